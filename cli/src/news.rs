//! The printed output of commands that go on: a line for each event, for people or as JSON.

use std::fmt;
use std::io::{self, Write};
use std::time::Duration;

use serde::Serialize;

use crate::text::ascii_controls;
use crate::text::escaped;

/// Something to report; serialised, it is an object.
pub(crate) trait News: fmt::Display + Serialize {
    /// Returns the line that a script reads, before all others.
    fn first_line(&self) -> Option<String> {
        None
    }

    /// Returns the lines for people.
    fn lines(&self) -> Vec<String> {
        vec![self.to_string()]
    }
}

/// An object: its time first.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Timed<'a, N> {
    elapsed_ms: f64,
    #[serde(flatten)]
    news: &'a N,
}

/// Prints news.
#[derive(Debug)]
pub(crate) struct Report<W> {
    out: W,
    json: bool,
    /// The end of a line; a terminal that reads single keys needs a carriage return, too.
    end: &'static str,
}

impl<W: Write> Report<W> {
    /// Prints to `out`, which is a terminal that reads single keys or not.
    pub(crate) const fn new(out: W, json: bool, is_raw: bool) -> Self {
        let end = if is_raw { "\r\n" } else { "\n" };
        Self { out, json, end }
    }

    /// Prints what has happened so long after the start.
    pub(crate) fn print(&mut self, elapsed: Duration, news: &impl News) -> io::Result<()> {
        let (end, seconds) = (self.end, elapsed.as_secs_f64());
        if self.json {
            let object = serde_json::to_string(&Timed { elapsed_ms: seconds * 1e3, news })?;
            write!(self.out, "{}{end}", ascii_controls(object))?;
        } else {
            if let Some(line) = news.first_line() {
                write!(self.out, "{}{end}", escaped(&line))?;
            }
            for line in news.lines() {
                write!(self.out, "{seconds:>8.2}s  {}{end}", escaped(&line))?;
            }
        }
        self.out.flush()
    }
}
