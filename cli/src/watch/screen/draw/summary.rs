//! The lines above: what is watched, what it is, its primary, and whether operations work.

use ratatui::style::{Color, Style, Stylize};
use ratatui::text::{Line as TextLine, Span};
use sdam_core::description::{ServerDescription, ServerType, TopologyType};

use super::{Moment, quiet};
use crate::duration::rounded;
use crate::text::{abridged, escaped};
use crate::watch::model::{Model, Verdicts};
use crate::watch::screen::controls::Controls;

/// The greatest number of lines for one thing that is wrong.
const MAX_ALERT_LINES: usize = 3;

/// Returns the lines, as many as there is something to say.
pub(super) fn lines(
    model: &Model,
    controls: &Controls,
    moment: &Moment<'_>,
    width: usize,
) -> Vec<TextLine<'static>> {
    let mut lines = vec![title(moment, width), topology(model, controls)];
    if let Some(sentence) = model.primaries().sentence(moment.now) {
        lines.extend(wrapped(&sentence, width, Style::new()));
    }
    let verdicts = model.verdicts();
    let news = alert(model).filter(|alert| !says(verdicts, alert));
    lines.extend(operations(verdicts, width));
    let red = Style::new().fg(Color::Red).bold();
    lines.extend(news.iter().flat_map(|alert| wrapped(alert, width, red)));
    lines
}

/// Returns the reason that prevents all operations, or the thing to do about it.
fn alert(model: &Model) -> Option<String> {
    let incompatibility = model.view().incompatibility.as_ref();
    incompatibility
        .map(|incompatibility| escaped(&incompatibility.to_string()).into_owned())
        .or_else(|| model.notice().map(ToOwned::to_owned))
}

/// Returns whether one of the verdicts says so already.
fn says(verdicts: &Verdicts, alert: &str) -> bool {
    let alert = alert.trim_end_matches('.');
    [&verdicts.write, &verdicts.read].into_iter().flatten().any(|verdict| verdict == alert)
}

fn title(moment: &Moment<'_>, width: usize) -> TextLine<'static> {
    let elapsed = rounded(moment.now.since_origin());
    // Milliseconds would only flicker.
    let clock = moment.clock.split('.').next().unwrap_or_default();
    let clock = format!(" {}Z  {elapsed}", clock.replace('T', " "));
    let command = "sdam watch ";
    let room = width.saturating_sub(command.len() + clock.len());
    let title = escaped(moment.title);
    let title = abridged(&title, room);
    let gap = room - title.chars().count();
    TextLine::from(vec![
        command.bold(),
        Span::raw(format!("{title}{:gap$}", "")),
        Span::styled(clock, quiet()),
    ])
}

fn topology(model: &Model, controls: &Controls) -> TextLine<'static> {
    let view = model.view();
    let color = match view.topology_type {
        TopologyType::Unknown => Color::DarkGray,
        TopologyType::ReplicaSetNoPrimary => Color::Yellow,
        _ => Color::Green,
    };
    let mut spans = Vec::new();
    if controls.is_paused {
        spans.extend([" PAUSED ".bold().reversed(), Span::raw("  ")]);
    }
    spans.push(Span::from(view.topology_type.name()).fg(color).bold());
    if let Some(name) = &view.set_name {
        spans.push(Span::styled("  set ", quiet()));
        spans.push(escaped(name).into_owned().bold());
    }
    let count = view.servers().len();
    spans.push(format!("  {count} server{}", if count == 1 { "" } else { "s" }).into());
    let is_unknown = |server: &ServerDescription| server.server_type == ServerType::Unknown;
    match view.servers().iter().filter(|server| is_unknown(server)).count() {
        0 => {}
        unknown => spans.push(format!(", {unknown} unknown").red()),
    }
    spans.into()
}

/// Says whether writes and reads find a server, and why they do not.
fn operations(verdicts: &Verdicts, width: usize) -> Vec<TextLine<'static>> {
    let green = Style::new().fg(Color::Green);
    let red = Style::new().fg(Color::Red).bold();
    match (&verdicts.write, &verdicts.read) {
        (None, None) => wrapped("writes and reads find a server", width, green),
        (Some(write), Some(read)) if write == read => {
            wrapped(&format!("writes and reads fail: {}", escaped(write)), width, red)
        }
        (write, read) => {
            let of = |what: &str, verdict: &Option<String>| match verdict {
                None => wrapped(&format!("{what} find a server"), width, green),
                Some(verdict) => wrapped(&format!("{what} fail: {}", escaped(verdict)), width, red),
            };
            [of("writes", write), of("reads", read)].concat()
        }
    }
}

/// Breaks a text between words into few lines; what does not fit is left out in the middle.
fn wrapped(text: &str, width: usize, style: Style) -> Vec<TextLine<'static>> {
    let text = abridged(text, width.saturating_mul(MAX_ALERT_LINES).saturating_sub(width / 2));
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let is_last = lines.len() == MAX_ALERT_LINES;
        let line = lines.last_mut().expect("there is always one");
        let len = line.chars().count();
        if len == 0 {
            *line = word.to_owned();
        } else if len + 1 + word.chars().count() <= width || is_last {
            *line = format!("{line} {word}");
        } else {
            lines.push(word.to_owned());
        }
    }
    let cut = |line: String| TextLine::styled(abridged(&line, width).into_owned(), style);
    lines.into_iter().map(cut).collect()
}
