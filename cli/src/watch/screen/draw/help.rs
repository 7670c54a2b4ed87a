//! The explanation of keys and lanes, over everything else.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line as TextLine, Span};
use ratatui::widgets::{Block, Clear, Paragraph};

use super::{quiet, style};
use crate::watch::model::State;
use crate::watch::screen::controls::KEYS;

/// The width, with the frame.
const WIDTH: u16 = 78;

/// The width of a column of states.
const STATE_LEN: usize = 22;

/// Draws it in the middle, as far as there is room.
pub(super) fn draw(frame: &mut Frame<'_>) {
    let mut lines: Vec<TextLine<'_>> = KEYS
        .iter()
        .map(|(key, what)| {
            TextLine::from(vec![
                Span::styled(format!(" {key:11}"), Style::new().bold()),
                Span::raw(*what),
            ])
        })
        .collect();
    lines.extend([
        TextLine::raw(""),
        TextLine::raw(" A lane shows each server's state; a run of one begins with its letter:"),
    ]);
    for states in State::ALL.chunks(3) {
        let explained = states.iter().flat_map(|state| {
            let sign = format!(" {}{}{} ", state.letter(), state.stroke(), state.stroke());
            let rest = STATE_LEN - sign.chars().count();
            [Span::styled(sign, style(*state)), Span::raw(format!("{:rest$}", state.name()))]
        });
        lines.push(TextLine::from(explained.collect::<Vec<_>>()));
    }
    lines.push(TextLine::styled(
        " Bars are round trip times. A failure marks its cell, however short it was.",
        quiet(),
    ));
    let area = frame.area();
    let (width, height) = (WIDTH.min(area.width), (lines.len() as u16 + 2).min(area.height));
    let area = Rect {
        x: area.x + (area.width - width) / 2,
        y: area.y + (area.height - height) / 2,
        width,
        height,
    };
    frame.render_widget(Clear, area);
    let block = Block::bordered().title(" help ");
    frame.render_widget(Paragraph::new(lines).block(block), area);
}
