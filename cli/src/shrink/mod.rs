//! `sdam shrink`: of a trace, the few calls that matter.
//!
//! `property` is what is to stay true, and `draft` a trace with less in it.

mod draft;
mod property;

use std::io;
use std::panic;
use std::path::PathBuf;
use std::time::{Duration, Instant as Clock};

use sdam_core::selection::Criteria;
use sdam_core::time::Instant;
use sdam_core::trace::minimize;
use sdam_core::trace::{Replay, Script, Trace, TraceError, TraceStep};

use crate::replay::{ReplayError, criteria, read, refuse_gap, seconds};
use crate::{complain, duration, output};
use draft::Draft;
use property::{Finding, Property};

/// Examples and exit codes.
const MORE: &str = "\
Examples:
  sdam shrink failover.trace -o small.trace --fails write --at 12.5
  sdam shrink failover.trace -o small.trace --view

Exit codes:
  0  the smaller trace is written
  2  the arguments are invalid, the trace cannot be replayed, or does not end as it is said to";

/// Makes a trace smaller: of what servers said and operations did, it keeps only what leads to the
/// same end.
///
/// Say what is to stay as it is: `--fails write` where writes failed in the end and you want to
/// know why. The result replays exactly, with `sdam replay`; what is left in it is as it was, times
/// included, but for the numbers by which replies name what they answer, where that is left out.
#[derive(Debug, clap::Args)]
#[command(after_long_help = MORE)]
#[command(group(clap::ArgGroup::new("property").required(true)))]
pub(crate) struct Args {
    /// The trace, as `sdam record` or a flight recorder wrote it, from its beginning
    file: PathBuf,
    /// The file to write, which must not exist yet; - is standard output
    #[arg(short, long, value_name = "SMALLER")]
    output: PathBuf,
    /// Write the file even if it exists
    #[arg(long)]
    force: bool,
    /// A selection fails at the end, and for the same reason: write, or a read preference, as
    /// `sdam replay --explain` takes it
    #[arg(long, value_name = "CRITERIA", value_parser = needed, group = "property")]
    fails: Option<Needed>,
    /// A selection finds servers at the end, and chooses among the same ones
    #[arg(long, value_name = "CRITERIA", value_parser = needed, group = "property")]
    chooses: Option<Needed>,
    /// The types of the deployment and of each server are the same at the end
    #[arg(long, group = "property")]
    view: bool,
    /// The replay panics, or breaks a law of machines: a bug in sdam itself
    #[arg(long, group = "property")]
    breaks: bool,
    /// The end is at this time of the trace: seconds, as in 12.5; of a client that was closed, look
    /// before that
    #[arg(long, value_name = "SECONDS", value_parser = seconds, allow_negative_numbers = true)]
    at: Option<Instant>,
    /// Be content after this time with what is left: a whole number and ms, s, m or h
    #[arg(long = "for", value_name = "DURATION", default_value = "60s")]
    #[arg(value_parser = duration::parse)]
    limit: Duration,
}

/// The criteria of a selection, as they were written.
#[derive(Clone, Debug)]
struct Needed {
    text: String,
    criteria: Criteria,
}

fn needed(text: &str) -> Result<Needed, String> {
    Ok(Needed { text: text.to_owned(), criteria: criteria(text)? })
}

/// The reason why a trace was not made smaller.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The trace cannot be read, or begins in the middle.
    #[error(transparent)]
    Read(#[from] ReplayError),
    /// The property does not hold.
    #[error("{}: {complaint} {when}", path.display())]
    NotSo {
        /// The file.
        path: PathBuf,
        /// The complaint.
        complaint: String,
        /// The moment.
        when: String,
    },
    /// The shrunk text is not a trace.
    #[error("the smaller text is not a trace, which is a bug of sdam: {0}")]
    Draft(TraceError),
    /// The result cannot be written.
    #[error("cannot write {}: {error}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The reason.
        error: io::Error,
    },
}

impl From<TraceError> for Error {
    fn from(error: TraceError) -> Self {
        Self::Draft(error)
    }
}

impl Args {
    fn property(&self) -> Property {
        match (&self.fails, &self.chooses, self.view) {
            (Some(needed), ..) => Property::Fails(needed.criteria.clone()),
            (_, Some(needed), _) => Property::Chooses(needed.criteria.clone()),
            (.., true) => Property::View,
            _ => Property::Breaks,
        }
    }
}

/// Shrinks.
pub(crate) fn run(args: &Args) -> Result<(), Error> {
    let written = |error| Error::Write { path: args.output.clone(), error };
    output::check(&args.output, args.force).map_err(written)?;
    let trace = read(&args.file)?;
    let is_due = |step: &TraceStep<'_>| args.at.is_none_or(|at| step.at() <= at);
    refuse_gap(&args.file, trace.gap().filter(is_due))?;
    let calls = trace.steps().take_while(is_due).count();
    if matches!(args.property(), Property::Breaks) {
        // What panics does so hundreds of times.
        panic::set_hook(Box::new(|_| {}));
    }
    let mut search = Search::begin(args, &trace, calls)?;
    if !search.panicked {
        warn_of_difference(args, &trace);
    }
    search.shrink();
    let text = search.draft.finish(&search.script, &search.kept, search.panicked)?;
    output::write(&args.output, args.force, &text).map_err(written)?;
    report(args, &trace, &search, &text);
    Ok(())
}

/// Says if another version wrote the trace, which did something else.
fn warn_of_difference(args: &Args, trace: &Trace) {
    if let Some(Err(difference)) = Replay::new(trace).map(|mut replay| replay.finish()) {
        let (path, line) = (args.file.display(), difference.line);
        complain(&format_args!(
            "warning: {path}, line {line}: this sdam does something else; what stays the same is \
             what it comes to"
        ));
    }
}

/// The fewest calls so far.
struct Search {
    property: Property,
    script: Script,
    draft: Draft,
    /// The finding of the whole trace.
    finding: Finding,
    kept: Vec<usize>,
    panicked: bool,
    replays: usize,
    ends: Clock,
}

impl Search {
    fn begin(args: &Args, trace: &Trace, calls: usize) -> Result<Self, Error> {
        let (property, all) = (args.property(), (0..calls).collect::<Vec<usize>>());
        let tail = || ReplayError::Tail(args.file.clone());
        let script = Script::new(trace, calls).ok_or_else(tail)?;
        let whole = property.look(&script, &all);
        let Some(finding) = whole.finding else {
            let when = match args.at {
                Some(at) => format!("at {} s", at.since_origin().as_secs_f64()),
                None => "at the end; --at looks at another time".to_owned(),
            };
            let (path, complaint) = (args.file.clone(), property.complaint());
            return Err(Error::NotSo { path, complaint, when });
        };
        let kept = all[..whole.calls].to_vec();
        let (panicked, ends) = (whole.panicked, Clock::now() + args.limit);
        let draft = Draft::of(trace, calls);
        Ok(Self { property, script, draft, finding, kept, panicked, replays: 1, ends })
    }

    /// Leaves out servers, then calls.
    fn shrink(&mut self) {
        let groups = self.draft.by_subject();
        let of = |groups: &[Vec<usize>], within: &[usize]| {
            let mut calls = groups.concat();
            calls.retain(|call| within.binary_search(call).is_ok());
            calls.sort_unstable();
            calls
        };
        let all = self.kept.clone();
        let groups = minimize(&groups, |some| self.is_same(&of(some, &all)));
        self.kept = of(&groups, &all);
        let some = self.kept.clone();
        self.kept = minimize(&some, |few| self.is_same(few));
    }

    /// Returns whether these calls come to the same.
    fn is_same(&mut self, calls: &[usize]) -> bool {
        if Clock::now() >= self.ends {
            return false;
        }
        self.replays += 1;
        let replayed = self.property.look(&self.script, calls);
        // What breaks before the last call makes the calls behind that superfluous.
        let same = replayed.finding.as_ref() == Some(&self.finding);
        same && (!replayed.panicked || replayed.calls == calls.len())
    }
}

/// Says what became of it, where that is not in the way.
fn report(args: &Args, trace: &Trace, search: &Search, text: &str) {
    let lines = |text: usize, calls: usize| format!("{calls} calls, {text} lines");
    complain(&format_args!("the same in both: {}", search.finding));
    let before = lines(trace.lines().count(), trace.steps().len());
    let after = lines(text.lines().count(), search.kept.len());
    complain(&format_args!("{before}, and now {after}, after {} replays", search.replays));
    if Clock::now() >= search.ends {
        complain(&format_args!("it may get smaller: --for allows more time"));
    }
    if !output::is_standard(&args.output) {
        let needed = args.fails.as_ref().or(args.chooses.as_ref());
        let explain = needed.map(|needed| format!(" --explain '{}'", needed.text));
        let explain = explain.unwrap_or_default();
        complain(&format_args!("again: sdam replay {}{explain}", args.output.display()));
    }
}
