//! Lines for pipes and logs: no colour, one event after the other, flushed one by one.

use std::io::{self, Write};

use sdam_core::topology::Event;

use super::Report;
use super::story::{Line, Story};
use crate::text::escaped;

/// The least width of subjects, which spares most deployments a ragged beginning.
const MIN_PADDING: usize = 20;

/// Prints what happens, line by line.
#[derive(Debug)]
pub(super) struct Plain<W> {
    out: W,
    story: Story,
    /// The width of the widest subject so far.
    padding: usize,
}

impl<W: Write> Plain<W> {
    /// Goes on with a story.
    pub(super) const fn new(out: W, story: Story) -> Self {
        let padding = MIN_PADDING;
        Self { out, story, padding }
    }

    /// Prints a line that is about no event.
    pub(super) fn headline(&mut self, text: &str) -> io::Result<()> {
        writeln!(self.out, "{}", escaped(text))?;
        self.out.flush()
    }

    fn line(&mut self, line: &Line) -> io::Result<()> {
        self.padding = self.padding.max(line.padding());
        let (time, width) = (line.time(), self.padding);
        writeln!(self.out, "{time:>9}  {:width$}  {}", line.subject, line.text)?;
        self.out.flush()
    }
}

impl<W: Write> Report for Plain<W> {
    fn event(&mut self, event: &Event) -> io::Result<()> {
        let lines = self.story.tell(event);
        lines.iter().try_for_each(|line| self.line(line))
    }

    fn dropped(&mut self, count: u64, next: &Event) -> io::Result<()> {
        self.line(&Line::dropped(next.at, count))
    }
}
