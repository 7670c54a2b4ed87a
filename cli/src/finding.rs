//! The part of a finding that every command prints alike which judges by rules.

use std::io::{self, Write};

use serde::Serialize;

use crate::text::escaped;

/// A rule that is broken, and what there was instead.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Broken<'a> {
    /// The name of the rule.
    pub(crate) rule: &'static str,
    /// The promise, or the law.
    pub(crate) text: &'static str,
    /// The place where that is written.
    pub(crate) specification: &'static str,
    pub(crate) section: &'static str,
    pub(crate) expected: &'a str,
    pub(crate) found: &'a str,
}

impl Broken<'_> {
    /// Prints what follows the line that names the rule.
    pub(crate) fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "  rule:     {}", self.text)?;
        writeln!(out, "            ({}, \"{}\")", self.specification, self.section)?;
        writeln!(out, "  expected: {}", escaped(self.expected))?;
        writeln!(out, "  found:    {}", escaped(self.found))
    }
}
