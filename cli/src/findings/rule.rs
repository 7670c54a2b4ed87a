//! Rules, each with the place where it is written, and what breaks one.

use std::collections::BTreeMap;
use std::io;

use serde::{Serialize, Serializer};

use crate::printer::Printer;
use crate::text::escaped;

/// The statement of a rule, and the place where that is written.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Law {
    /// The name, as `--allow` takes it.
    #[serde(rename = "rule")]
    pub(crate) name: &'static str,
    /// The statement.
    pub(crate) text: &'static str,
    pub(crate) specification: &'static str,
    pub(crate) section: &'static str,
}

impl Law {
    /// Prints what follows the line that names it.
    pub(crate) fn print(&self, out: &mut Printer<'_>) -> io::Result<()> {
        out.line(format_args!("  rule:     {}", self.text))?;
        out.line(format_args!("            ({}, \"{}\")", self.specification, self.section))
    }
}

/// A rule that a command judges by.
pub(crate) trait Rule: Copy {
    /// Returns what it says.
    fn law(self) -> Law;

    /// Returns every rule of that command, in the order of its page.
    fn all() -> impl Iterator<Item = Self>;
}

/// Finds the rule of that name.
pub(crate) fn named<R: Rule>(name: &str) -> Result<R, String> {
    let names = || R::all().map(|rule| rule.law().name).collect::<Vec<_>>().join(", ");
    R::all().find(|rule| rule.law().name == name).ok_or_else(|| format!("there are: {}", names()))
}

/// A rule that is broken, and what there was instead.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Breach<R: Rule> {
    #[serde(flatten, serialize_with = "law")]
    pub(crate) rule: R,
    pub(crate) expected: String,
    pub(crate) found: String,
}

fn law<R: Rule, S: Serializer>(rule: &R, serializer: S) -> Result<S::Ok, S::Error> {
    rule.law().serialize(serializer)
}

impl<R: Rule> Breach<R> {
    pub(crate) fn new(rule: R, expected: impl Into<String>, found: impl Into<String>) -> Self {
        Self { rule, expected: expected.into(), found: found.into() }
    }

    /// Prints what follows the line that names the rule.
    pub(crate) fn print(&self, out: &mut Printer<'_>) -> io::Result<()> {
        self.rule.law().print(out)?;
        out.line(format_args!("  expected: {}", escaped(&self.expected)))?;
        out.line(format_args!("  found:    {}", escaped(&self.found)))
    }
}

/// The number of findings that are allowed, by the name of their rule.
pub(crate) type Allowed = BTreeMap<&'static str, usize>;

/// Takes out what breaks an allowed rule, and counts it.
pub(crate) fn allow<F, R: Rule>(
    findings: &mut Vec<F>,
    allowed: &[R],
    rule: impl Fn(&F) -> R,
) -> Allowed {
    let mut counts = Allowed::new();
    findings.retain(|finding| {
        let name = rule(finding).law().name;
        let is_allowed = allowed.iter().any(|rule| rule.law().name == name);
        if is_allowed {
            *counts.entry(name).or_default() += 1;
        }
        !is_allowed
    });
    counts
}

/// Prints how often allowed rules are broken.
pub(crate) fn print_allowed(allowed: &Allowed, out: &mut Printer<'_>) -> io::Result<()> {
    allowed.iter().try_for_each(|(rule, count)| {
        out.line(format_args!("{count} times {rule}, which is allowed"))
    })
}
