//! `sdam check-log`: the log of any driver against our model, and its first illegal or stuck step.
//!
//! `read` finds out what lines say, whichever driver wrote them; `model` is our topology, `changes`
//! compares what the log reports with it, `fields` what it says of each server with that server's
//! replies, `laws` are what every description keeps, `heartbeats` looks after each server's checks,
//! and `judge` puts all that together. `rule` are the rules.

mod changes;
mod clock;
mod fields;
mod finding;
mod heartbeats;
mod judge;
mod laws;
mod model;
mod read;
mod record;
mod report;
mod rule;
mod shape;
#[cfg(test)]
mod tests;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use self::clock::Limits;
use self::read::Ambiguous;
pub(crate) use self::read::Log;
pub(crate) use self::record::{Found, Record, What};
use self::rule::Rule;
pub(crate) use self::shape::server_type;
use crate::color::ColorChoice;
use crate::duration;
use crate::file::read_or_standard_input;
use crate::findings::{Rule as _, allow, named};
use crate::printer::Printer;

/// The longest log that is read, in bytes.
const MAX_LOG_LEN: u64 = 1 << 28;

/// The default of every driver (SDAM, "heartbeatFrequencyMS").
const HEARTBEAT_FREQUENCY: Duration = Duration::from_secs(10);

/// Of how many lines about topologies one may be unreadable; with more, what is judged is not what
/// the driver has done.
const READABLE: usize = 20;

/// The longest default that a driver has for connectTimeoutMS.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// Examples and exit codes.
const MORE: &str = "\
Examples:
  sdam check-log driver.jsonl
  sdam watch --json --for 10m | sdam check-log -
  sdam check-log driver.jsonl --all --json

Exit codes:
  0  nothing illegal was found
  1  a step is illegal or stuck
  2  the arguments are invalid, the log says nothing of any topology, or too much of it cannot be
     read: more than one in 20 of the lines about topologies, or most descriptions";

/// Checks what another driver has logged of its topologies, and names the first step that is
/// illegal or stuck, if there is one.
#[derive(Debug, clap::Args)]
#[command(after_long_help = MORE)]
pub(crate) struct Args {
    /// The log, one JSON object a line, as cli/CHECK_LOG.md describes it; - for standard input
    file: PathBuf,
    /// The interval of checks, as in 10s; by default that of the log, or else 10s
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    heartbeat_frequency: Option<Duration>,
    /// The time that a check may take, as in 30s; by default the log says, or else 30s
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    connect_timeout: Option<Duration>,
    /// Count what breaks this rule, and do not complain; may be repeated
    #[arg(long, value_name = "RULE", value_parser = named::<Rule>)]
    allow: Vec<Rule>,
    /// Report all steps that break a rule, not only the first; those may follow from it
    #[arg(long)]
    all: bool,
    /// Print lines of JSON
    #[arg(long)]
    json: bool,
}

/// The reason why a log was not found to be without fault.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CheckError {
    /// The file cannot be read.
    #[error("cannot read {}: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The reason.
        error: io::Error,
    },
    /// A line cannot be attributed.
    #[error("{}, {error}", path.display())]
    Ambiguous {
        /// The file.
        path: PathBuf,
        /// The line, and the topologies that it may be about.
        error: Ambiguous,
    },
    /// There is nothing to judge.
    #[error("{}: no line is about a topology{reason}", path.display())]
    Nothing {
        /// The file.
        path: PathBuf,
        /// The reason why the first unreadable line cannot be read, if there is one.
        reason: String,
    },
    /// Too much is missing for a judgement.
    #[error(
        "{}: {unread} of {of} lines about topologies cannot be read, so that nothing was judged; \
         line {line}: {reason}",
        path.display()
    )]
    Unread {
        /// The file.
        path: PathBuf,
        /// The number of lines that look like that and cannot be read.
        unread: usize,
        /// Their number with those that can be.
        of: usize,
        /// The first of them.
        line: usize,
        /// The fault of the line.
        reason: String,
    },
    /// Nothing was found, but most of what there is to compare was not.
    #[error(
        "{}: {count} of {of} descriptions cannot be compared, so that little was judged; \
         line {line}: {reason}",
        path.display()
    )]
    NotCompared {
        /// The file.
        path: PathBuf,
        /// The number that could not be.
        count: usize,
        /// Their number.
        of: usize,
        /// The line of the first of them.
        line: usize,
        /// The reason why that could not be.
        reason: &'static str,
    },
    /// Something was found.
    #[error("{}, line {line}: {rule}", path.display())]
    Found {
        /// The file.
        path: PathBuf,
        /// The line of the first step that breaks a rule.
        line: usize,
        /// The rule.
        rule: &'static str,
    },
    /// Nothing more can be printed.
    #[error("cannot write: {0}")]
    Output(io::Error),
}

impl From<io::Error> for CheckError {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

impl CheckError {
    /// Returns 2 for what cannot be judged, and 1 for what was judged and is illegal.
    pub(crate) const fn exit_code(&self) -> u8 {
        match self {
            Self::Read { .. }
            | Self::Ambiguous { .. }
            | Self::Nothing { .. }
            | Self::Unread { .. }
            | Self::NotCompared { .. } => 2,
            Self::Found { .. } | Self::Output(_) => 1,
        }
    }
}

/// Checks a log.
pub(crate) fn run(args: &Args) -> Result<(), CheckError> {
    let path = &args.file;
    let bytes = read_or_standard_input(path, MAX_LOG_LEN);
    let bytes = bytes.map_err(|error| CheckError::Read { path: path.clone(), error })?;
    check(args, &String::from_utf8_lossy(&bytes))
}

/// Reads a log of any driver, and complains of lines that cannot be read.
///
/// # Errors
///
/// Too little of it can be read.
pub(crate) fn logged(path: &Path, text: &str) -> Result<Log, CheckError> {
    let ambiguous = |error| CheckError::Ambiguous { path: path.to_owned(), error };
    let log = Log::read(text).map_err(ambiguous)?;
    is_readable(&log, path.to_owned())?;
    for (line, reason) in &log.complaints {
        crate::complain(&format!("line {line} is passed over: {reason}"));
    }
    Ok(log)
}

fn check(args: &Args, text: &str) -> Result<(), CheckError> {
    let path = || args.file.clone();
    let log = logged(&args.file, text)?;
    let given = (args.heartbeat_frequency, args.connect_timeout);
    let limits = Limits {
        heartbeat_frequency: given.0.or(log.heartbeat_frequency).unwrap_or(HEARTBEAT_FREQUENCY),
        connect_timeout: given.1.or(log.connect_timeout).unwrap_or(CONNECT_TIMEOUT),
    };
    let (mut findings, mut counts) = judge::judge(&log, &limits);
    counts.allowed = allow(&mut findings, &args.allow, |finding| finding.broken.rule);
    if !args.all {
        findings.truncate(1);
    }
    Printer::report(ColorChoice::Never, |out| match args.json {
        true => report::json(&findings, &counts, &log.topologies, out),
        false => report::text(&findings, &counts, &log.topologies, &limits, out),
    })?;
    match (findings.first(), counts.missing()) {
        (None, Some((count, of, line, reason))) if counts.is_blind() => {
            Err(CheckError::NotCompared { path: path(), count, of, line, reason })
        }
        (None, _) => Ok(()),
        (Some(first), _) => {
            let (line, rule) = (first.line, first.broken.rule.law().name);
            Err(CheckError::Found { path: path(), line, rule })
        }
    }
}

/// Says what is missing of a log, if that is too much.
fn is_readable(log: &Log, path: PathBuf) -> Result<(), CheckError> {
    let of = log.records.len() + log.missing.count;
    match &log.missing.first {
        Some((line, reason)) if log.missing.count * READABLE > of => {
            let (line, reason) = (*line, reason.clone());
            Err(CheckError::Unread { path, unread: log.missing.count, of, line, reason })
        }
        _ if log.records.is_empty() => {
            let first = log.complaints.first();
            let reason = first.map(|(line, it)| format!("; line {line}: {it}"));
            Err(CheckError::Nothing { path, reason: reason.unwrap_or_default() })
        }
        _ => Ok(()),
    }
}
