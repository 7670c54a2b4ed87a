//! Draws a model: what is going on, a row for each member, and what has happened last. What is
//! drawn depends on the arguments only.

mod events;
mod help;
mod servers;
mod summary;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Color, Style};
use ratatui::text::{Line as TextLine, Span};
use sdam_core::time::Instant;

use super::controls::Controls;
use crate::text::abridged;
use crate::watch::model::{Model, State};

/// The least height of the events, in lines, if servers are many.
const MIN_EVENTS: u16 = 4;

/// The rest that a drawing depends on, besides the model and the user's choice.
#[derive(Debug)]
pub(super) struct Moment<'a> {
    /// The seeds of the deployment.
    pub(super) title: &'a str,
    /// Now, by the machine's clock.
    pub(super) now: Instant,
    /// Now, by the wall clock.
    pub(super) clock: String,
    /// `true` to use colours.
    pub(super) color: bool,
}

/// Draws everything.
pub(super) fn draw(frame: &mut Frame<'_>, model: &Model, controls: &Controls, moment: &Moment<'_>) {
    let area = frame.area();
    let summary = summary::lines(model, controls, moment, usize::from(area.width));
    let summary_height = u16::try_from(summary.len()).unwrap_or(u16::MAX);
    let servers = servers::Table::new(model, moment.now, usize::from(area.width));
    // The events keep a part of the screen.
    let rest = area.height.saturating_sub(summary_height + 1);
    let most = rest.saturating_sub(MIN_EVENTS.max(rest / 3));
    let [summary_area, servers_area, events_area, footer_area] = Layout::vertical([
        Constraint::Length(summary_height),
        Constraint::Length(servers.height().min(most)),
        Constraint::Fill(1),
        Constraint::Length(1),
    ])
    .areas(area);
    for (line, row) in summary.into_iter().zip(summary_area.rows()) {
        frame.render_widget(line, row);
    }
    let lines = servers.lines(controls, usize::from(servers_area.height));
    for (line, row) in lines.into_iter().zip(servers_area.rows()) {
        frame.render_widget(line, row);
    }
    events::draw(frame, events_area, model, controls);
    frame.render_widget(footer(model, controls, usize::from(area.width)), footer_area);
    if controls.shows_help {
        help::draw(frame);
    }
    if !moment.color {
        for cell in &mut frame.buffer_mut().content {
            cell.set_fg(Color::Reset).set_bg(Color::Reset);
        }
    }
}

/// Returns the style of what is about a state.
fn style(state: State) -> Style {
    match state {
        State::Primary => Style::new().fg(Color::Green).bold(),
        State::Standalone | State::Mongos | State::LoadBalancer => Style::new().fg(Color::Green),
        State::Secondary => Style::new().fg(Color::Cyan),
        State::Failing => Style::new().fg(Color::Red).bold(),
        State::Unchecked => Style::new().fg(Color::DarkGray),
        State::Arbiter | State::Other | State::Ghost => Style::new().fg(Color::Yellow),
    }
}

/// Returns the style of what is said beside what matters.
const fn quiet() -> Style {
    Style::new().fg(Color::DarkGray)
}

fn footer(model: &Model, controls: &Controls, width: usize) -> TextLine<'static> {
    if controls.is_writing {
        let filter = abridged(&controls.filter, width.saturating_sub(30)).into_owned();
        return TextLine::from(vec![
            Span::raw(format!("/{filter}")),
            Span::styled("▏", Style::new().bold()),
            Span::styled("  Enter keeps it, Esc drops it", quiet()),
        ]);
    }
    let keys = match width {
        ..30 => "q quit",
        30..70 => "q quit · ? help · space pause",
        _ => "q quit · ? help · space pause · / filter · ↑↓ scroll · Tab servers",
    };
    let dropped = match model.dropped() {
        0 => Span::raw(""),
        1 => Span::styled(" · 1 event was dropped", Style::new().fg(Color::Red)),
        dropped => {
            let text = format!(" · {dropped} events were dropped");
            Span::styled(text, Style::new().fg(Color::Red))
        }
    };
    TextLine::from(vec![Span::styled(keys, quiet()), dropped])
}
