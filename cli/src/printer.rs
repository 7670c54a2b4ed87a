//! Reports: lines for people, with colour or without, and lines of JSON.

use std::fmt;
use std::io::{self, IsTerminal as _, Write};

use clap::builder::styling::Style;
use serde_json::Value;

use crate::color::ColorChoice;
use crate::output;
use crate::text::ascii_controls;

/// Prints a report.
pub(crate) struct Printer<'o> {
    out: &'o mut dyn Write,
    color: bool,
}

impl<'o> Printer<'o> {
    /// Prints to `out`.
    pub(crate) fn new(out: &'o mut dyn Write, color: bool) -> Self {
        Self { out, color }
    }

    /// Prints a report to standard output. A reader that has seen enough is no error.
    pub(crate) fn report(
        color: ColorChoice,
        report: impl FnOnce(&mut Printer<'_>) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut out = io::stdout();
        let color = color.wants_color(out.is_terminal());
        let printed = report(&mut Printer::new(&mut out, color));
        output::unless_gone(printed.and_then(|()| out.flush()))
    }

    /// Returns a text in a style, if there is colour.
    pub(crate) fn paint(&self, style: Style, text: &str) -> String {
        match self.color {
            true => format!("{style}{text}{style:#}"),
            false => text.to_owned(),
        }
    }

    /// Prints a line.
    pub(crate) fn line(&mut self, line: fmt::Arguments<'_>) -> io::Result<()> {
        writeln!(self.out, "{line}")
    }

    /// Prints a line of JSON.
    pub(crate) fn json(&mut self, object: &Value) -> io::Result<()> {
        writeln!(self.out, "{}", ascii_controls(object.to_string()))
    }
}
