//! Lines for pipes and logs: one event after the other, flushed one by one.

use std::io::{self, Write};

use clap::builder::styling::{AnsiColor, Style};
use sdam_core::topology::Event;

use super::Report;
use super::story::{Line, Story, Tone};
use crate::text::escaped;

/// The least width of subjects, which spares most deployments a ragged beginning.
const MIN_PADDING: usize = 20;

/// Prints what happens, line by line.
#[derive(Debug)]
pub(super) struct Plain<W> {
    out: W,
    story: Story,
    color: bool,
    /// The width of the widest subject so far.
    padding: usize,
}

impl<W: Write> Plain<W> {
    /// Goes on with a story.
    pub(super) const fn new(out: W, story: Story, color: bool) -> Self {
        let padding = MIN_PADDING;
        Self { out, story, color, padding }
    }

    /// Prints a line that is about no event.
    pub(super) fn headline(&mut self, text: &str) -> io::Result<()> {
        writeln!(self.out, "{}", escaped(text))?;
        self.out.flush()
    }

    fn line(&mut self, line: &Line) -> io::Result<()> {
        self.padding = self.padding.max(line.padding());
        let (time, width) = (line.time(), self.padding);
        let style = match self.color {
            true => style(line.tone),
            false => Style::new(),
        };
        let text = format_args!("{style}{}{style:#}", line.text);
        writeln!(self.out, "{time:>9}  {:width$}  {text}", line.subject)?;
        self.out.flush()
    }
}

const fn style(tone: Tone) -> Style {
    match tone {
        Tone::Quiet => Style::new().dimmed(),
        Tone::Neutral => Style::new(),
        Tone::Good => AnsiColor::Green.on_default(),
        Tone::Bad => AnsiColor::Red.on_default(),
        Tone::Notice => AnsiColor::Red.on_default().bold(),
    }
}

impl<W: Write> Report for Plain<W> {
    fn event(&mut self, event: &Event) -> io::Result<()> {
        let lines = self.story.describe(event);
        lines.iter().try_for_each(|line| self.line(line))
    }

    fn dropped(&mut self, count: u64, next: &Event) -> io::Result<()> {
        self.line(&Line::dropped(next.at, count))
    }
}
