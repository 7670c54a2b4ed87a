//! The last events, or those that the user has scrolled to.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Color, Style};
use ratatui::text::{Line as TextLine, Span};
use ratatui::widgets::{Block, Borders, Paragraph};

use super::quiet;
use crate::text::{abridged, shortened};
use crate::watch::model::Model;
use crate::watch::screen::controls::{Controls, Focus};
use crate::watch::story::{Line, Tone};

/// The least room for the text of an event, in characters, before its subject is cut.
const MIN_TEXT_LEN: usize = 24;

/// Draws the events below a rule that says which of them they are.
pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, model: &Model, controls: &Controls) {
    let lines = model.lines(&controls.filter);
    let height = usize::from(area.height.saturating_sub(1));
    let end = (controls.last_shown(&lines) + 1).max(height).min(lines.len());
    let newer = lines.len() - end;
    let mut title = " events ".to_owned();
    if !controls.filter.is_empty() {
        let all = model.lines("").len();
        title += &format!("with {:?}, {} of {all} ", controls.filter, lines.len());
    }
    if newer > 0 {
        title += &format!("· {newer} newer below ");
    }
    let width = usize::from(area.width);
    let title = match controls.focus {
        Focus::Events if newer > 0 => Span::styled(title, Style::new().bold()),
        _ => Span::styled(abridged(&title, width).into_owned(), quiet()),
    };
    let block = Block::new().borders(Borders::TOP).title(title).border_style(quiet());
    let inside = block.inner(area);
    frame.render_widget(block, area);
    let shown = &lines[end.saturating_sub(height)..end];
    let padding = shown.iter().map(|(_, line)| line.padding()).max().unwrap_or(0);
    let rows: Vec<TextLine<'_>> =
        shown.iter().map(|(_, line)| event(line, padding, width)).collect();
    frame.render_widget(Paragraph::new(rows), inside);
}

fn event(line: &Line, padding: usize, width: usize) -> TextLine<'_> {
    let style = match line.tone {
        Tone::Quiet => quiet(),
        Tone::Neutral => Style::new(),
        Tone::Good => Style::new().fg(Color::Green),
        Tone::Bad => Style::new().fg(Color::Red),
        Tone::Notice => Style::new().fg(Color::Red).bold(),
    };
    let time = format!("{:>9}  ", line.time());
    let room = width.saturating_sub(time.chars().count());
    let padding = padding.min(room.saturating_sub(MIN_TEXT_LEN + 2));
    // An address that is cut would be the wrong thing to save at.
    let subject = match padding < line.padding() && room > MIN_TEXT_LEN {
        true => shortened(&line.subject, padding),
        false => line.subject.as_str().into(),
    };
    let subject = format!("{subject:padding$}  ");
    let room = room.saturating_sub(subject.chars().count());
    let text = line.within(room);
    TextLine::from(vec![Span::styled(time, quiet()), Span::raw(subject), Span::styled(text, style)])
}
