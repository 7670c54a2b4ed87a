//! The printed form of a judgement: text for people, or lines of JSON.

use std::io;
use std::time::Duration;

use serde::Serialize;
use serde_json::json;

use super::clock::Limits;
use super::finding::{Broken, Counts, Finding};
use crate::findings::{Rule as _, print_allowed};
use crate::printer::Printer;
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
    broken: &'a Broken,
}

/// Prints findings and counts as JSON, one object each.
pub(super) fn json(
    findings: &[Finding],
    counts: &Counts,
    topologies: &[String],
    out: &mut Printer<'_>,
) -> io::Result<()> {
    for finding in findings {
        let line = Line {
            line: finding.line,
            elapsed_ms: finding.at.map(millis),
            topology: &topologies[finding.topology],
            broken: &finding.broken,
        };
        out.json(&json!({ "finding": line }))?;
    }
    out.json(&json!({ "counts": counts }))
}

/// Prints findings, or that there are none, for people.
pub(super) fn text(
    findings: &[Finding],
    counts: &Counts,
    topologies: &[String],
    limits: &Limits,
    out: &mut Printer<'_>,
) -> io::Result<()> {
    for finding in findings {
        let at = finding.at.map_or_else(String::new, |at| format!(", {:.3} s", at.as_secs_f64()));
        let topology = match &*topologies[finding.topology] {
            "" => String::new(),
            name => format!(", topology {}", escaped(name)),
        };
        let name = finding.broken.rule.law().name;
        out.line(format_args!("line {}{at}{topology}: {name}", finding.line))?;
        finding.broken.print(out)?;
    }
    if findings.is_empty() && !counts.is_blind() {
        out.line(format_args!("nothing illegal in {} lines", counts.lines))?;
    }
    summary(counts, limits, out)
}

fn summary(counts: &Counts, limits: &Limits, out: &mut Printer<'_>) -> io::Result<()> {
    out.line(format_args!(
        "{} topologies, {} heartbeats started ({} failed), {} changes of descriptions \
         ({} by errors of operations)",
        counts.topologies,
        counts.heartbeats,
        counts.failed_heartbeats,
        counts.description_changes,
        counts.operation_errors,
    ))?;
    for (count, what) in [
        (counts.passed_over, "lines are about something else"),
        (counts.unreadable, "lines cannot be read"),
    ] {
        if count > 0 {
            out.line(format_args!("{count} {what}"))?;
        }
    }
    if let Some((count, _, line, reason)) = counts.missing() {
        out.line(format_args!(
            "{count} descriptions cannot be compared, first in line {line}: {reason}"
        ))?;
    }
    if !counts.tells_errors {
        out.line(format_args!("no description has an error: nothing was judged by that"))?;
    }
    print_allowed(&counts.allowed, out)?;
    match counts.timed {
        true => out.line(format_args!(
            "servers are to be checked every {} ms, and to answer within {} ms",
            limits.heartbeat_frequency.as_millis(),
            limits.connect_timeout.as_millis(),
        )),
        false => out.line(format_args!("no line has a time: nothing was judged by that")),
    }
}

fn millis(at: Duration) -> f64 {
    at.as_secs_f64() * 1e3
}
