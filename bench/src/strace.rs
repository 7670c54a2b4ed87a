//! System calls per ping, as strace counts them.

use std::fs;
use std::process::Command;

use tempfile::NamedTempFile;

use sdam_bench::{Failure, sampled};

/// The number of kinds of calls that are named.
const NAMED: usize = 5;

/// Runs a process that measures, and returns how many system calls it made for each ping, from its
/// start to its end.
pub(crate) fn calls_per_ping(child: &Command) -> Result<String, Failure> {
    let report = NamedTempFile::new()?;
    let mut traced = Command::new("strace");
    traced.args(["-f", "-c", "-S", "calls", "-o"]).arg(report.path());
    traced.arg(child.get_program()).args(child.get_args());
    let pings = sampled(&mut traced)?.times_in_all as f64;
    let report = fs::read_to_string(report.path())?;
    let mut counts: Vec<_> = report.lines().filter_map(count).collect();
    counts.sort_by(|one, other| other.1.total_cmp(&one.1));
    let all: f64 = counts.iter().map(|(_, calls)| calls).sum();
    let named: Vec<String> = counts
        .iter()
        .take(NAMED)
        .map(|(name, calls)| format!("{name} {:.2}", calls / pings))
        .collect();
    Ok(format!("{:>6.2}  ({})", all / pings, named.join(", ")))
}

/// Reads a row of the report: shares and times, the number of calls, perhaps errors, and the name.
fn count(row: &str) -> Option<(&str, f64)> {
    let columns: Vec<&str> = row.split_whitespace().collect();
    let name = columns.last().copied().filter(|name| *name != "total")?;
    Some((name, columns.get(3)?.parse().ok()?))
}
