//! The printed form of a judgement: text for people, or lines of JSON.

use std::io::{self, Write};
use std::time::Duration;

use serde::Serialize;
use serde_json::json;

use super::clock::Limits;
use super::finding::{Counts, Finding};
use crate::finding::Broken;
use crate::text::escaped;

/// A finding as a line of JSON.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Line<'a> {
    line: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    elapsed_ms: Option<f64>,
    topology: &'a str,
    #[serde(flatten)]
    broken: Broken<'a>,
}

impl Finding {
    /// Returns what is broken.
    fn broken(&self) -> Broken<'_> {
        let (specification, section) = self.rule.source();
        Broken {
            rule: self.rule.name(),
            text: self.rule.text(),
            specification,
            section,
            expected: &self.expected,
            found: &self.found,
        }
    }
}

/// Prints findings and counts as JSON, one object each.
pub(super) fn json(
    findings: &[Finding],
    counts: &Counts,
    topologies: &[String],
    out: &mut impl Write,
) -> io::Result<()> {
    for finding in findings {
        let line = Line {
            line: finding.line,
            elapsed_ms: finding.at.map(millis),
            topology: &topologies[finding.topology],
            broken: finding.broken(),
        };
        writeln!(out, "{}", json!({ "finding": line }))?;
    }
    writeln!(out, "{}", json!({ "counts": counts }))
}

/// Prints findings, or that there are none, for people.
pub(super) fn text(
    findings: &[Finding],
    counts: &Counts,
    topologies: &[String],
    limits: &Limits,
    out: &mut impl Write,
) -> io::Result<()> {
    for finding in findings {
        let at = finding.at.map_or_else(String::new, |at| format!(", {:.3} s", at.as_secs_f64()));
        let topology = match &*topologies[finding.topology] {
            "" => String::new(),
            name => format!(", topology {}", escaped(name)),
        };
        writeln!(out, "line {}{at}{topology}: {}", finding.line, finding.rule.name())?;
        finding.broken().print(out)?;
    }
    if findings.is_empty() && !counts.is_blind() {
        writeln!(out, "nothing illegal in {} lines", counts.lines)?;
    }
    summary(counts, limits, out)
}

fn summary(counts: &Counts, limits: &Limits, out: &mut impl Write) -> io::Result<()> {
    writeln!(
        out,
        "{} topologies, {} heartbeats started ({} failed), {} changes of descriptions \
         ({} by errors of operations)",
        counts.topologies,
        counts.heartbeats,
        counts.failed_heartbeats,
        counts.description_changes,
        counts.operation_errors,
    )?;
    for (count, what) in [
        (counts.passed_over, "lines are about something else"),
        (counts.unreadable, "lines cannot be read"),
    ] {
        if count > 0 {
            writeln!(out, "{count} {what}")?;
        }
    }
    if let Some((count, _, line, reason)) = counts.missing() {
        writeln!(out, "{count} descriptions cannot be compared, first in line {line}: {reason}")?;
    }
    if !counts.tells_errors {
        writeln!(out, "no description has an error: nothing was judged by that")?;
    }
    for (rule, count) in &counts.allowed {
        writeln!(out, "{count} times {rule}, which is allowed")?;
    }
    match counts.timed {
        true => writeln!(
            out,
            "servers are to be checked every {} ms, and to answer within {} ms",
            limits.heartbeat_frequency.as_millis(),
            limits.connect_timeout.as_millis(),
        ),
        false => writeln!(out, "no line has a time: nothing was judged by that"),
    }
}

fn millis(at: Duration) -> f64 {
    at.as_secs_f64() * 1e3
}
