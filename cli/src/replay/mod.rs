//! `sdam replay`: does again what a trace records, and shows what was known, and why.
//!
//! `view` shows what was known and explains selections, `steps` goes call by call, `compare` finds
//! where two traces part, and `log` writes what would have been logged.

mod compare;
mod log;
mod steps;
mod view;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use sdam_core::selection::Criteria;
use sdam_core::time::Instant;
use sdam_core::topology::Topology;
use sdam_core::trace::{Difference, Replay, Trace, TraceStep};
use serde_json::{Value, json};

use crate::complain;
use crate::file::{self, TraceFileError};
use crate::text::escaped;

pub(crate) use log::BEGAN;
pub(crate) use view::{criteria, selected};

/// The last call of a client that is closed.
const SHUTDOWN: &str = " shutdown";

/// Examples and exit codes.
const MORE: &str = "\
Examples:
  sdam replay failover.trace
  sdam replay failover.trace --at 12.5 --explain write
  sdam replay failover.trace --explain 'secondary&readPreferenceTags=dc:east'
  sdam replay before.trace --diff after.trace
  sdam replay failover.trace --log | sdam check-log -

Exit codes:
  0  the replay is the same as the trace, or was shown
  1  the replay differs, or the traces of --diff do
  2  the arguments are invalid, or the trace cannot be replayed";

/// Replays a trace, and says at which line it differs, if it does.
#[derive(Debug, clap::Args)]
#[command(after_long_help = MORE)]
pub(crate) struct Args {
    /// The trace, as `sdam record` or a flight recorder wrote it; - is standard input
    file: PathBuf,
    /// Show what was known at this time of the trace: seconds, as in 12.5
    #[arg(long, value_name = "SECONDS", value_parser = seconds, allow_negative_numbers = true)]
    at: Option<Instant>,
    /// Say why a selection at that time, or at the end of the trace, chooses or fails: write,
    /// or a read preference, as in nearest or
    /// 'secondary&readPreferenceTags=dc:east&maxStalenessSeconds=120'
    #[arg(long, value_name = "CRITERIA", value_parser = view::criteria)]
    explain: Option<Criteria>,
    /// Show call by call, each when Enter is pressed; q ends it
    #[arg(long, conflicts_with_all = ["at", "explain", "diff", "json"])]
    step: bool,
    /// Show the first thing that happened otherwise in this trace; times do not count
    #[arg(long, value_name = "OTHER", conflicts_with_all = ["at", "explain", "step"])]
    diff: Option<PathBuf>,
    /// Write the log that the client would have written of its topology, by the Logging
    /// specification: one JSON object a line
    #[arg(long, conflicts_with_all = ["at", "explain", "step", "diff", "json"])]
    log: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// The reason why a trace cannot be replayed, or differs when it is replayed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReplayError {
    /// The file cannot be read, or is no trace.
    #[error(transparent)]
    File(#[from] TraceFileError),
    /// The beginning of the trace is missing.
    #[error("{} begins in the middle: it can be read, not replayed", .0.display())]
    Tail(PathBuf),
    /// An input is missing.
    #[error(
        "{}, line {line}: an input was left out here, as it was too long for the flight recorder: \
         what came before can be replayed, and the rest only be read",
        path.display()
    )]
    Gap {
        /// The file.
        path: PathBuf,
        /// The number of the line.
        line: usize,
    },
    /// The trace ends before the time that was asked for.
    #[error(
        "{} ends at {:.3} s, before that time",
        path.display(),
        end.since_origin().as_secs_f64()
    )]
    Beyond {
        /// The file.
        path: PathBuf,
        /// The time when it ends.
        end: Instant,
    },
    /// The end of the trace is missing.
    #[error(
        "{} is cut off behind line {line}: what the last call did is not all there; what came \
         before is the same",
        path.display()
    )]
    Cut {
        /// The file.
        path: PathBuf,
        /// The last line that is there.
        line: usize,
    },
    /// The replay differs.
    #[error("{}, line {}: the replay differs", path.display(), difference.line)]
    Differs {
        /// The file.
        path: PathBuf,
        /// The first difference.
        difference: Difference,
    },
    /// Two traces differ.
    #[error("the traces differ")]
    Diff,
    /// Nothing more can be printed.
    #[error("cannot write: {0}")]
    Output(io::Error),
}

impl From<io::Error> for ReplayError {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

impl ReplayError {
    /// Returns 2 for what cannot be replayed, and 1 for what was replayed and differs.
    pub(crate) const fn exit_code(&self) -> u8 {
        match self {
            Self::File(_)
            | Self::Tail(_)
            | Self::Gap { .. }
            | Self::Beyond { .. }
            | Self::Cut { .. } => 2,
            Self::Differs { .. } | Self::Diff | Self::Output(_) => 1,
        }
    }
}

/// Replays.
pub(crate) fn run(args: &Args) -> Result<(), ReplayError> {
    let trace = read(&args.file)?;
    let out = &mut io::stdout();
    let result = match (&args.diff, args.step) {
        (Some(other), _) => compare::run((&args.file, &trace), other, args.json, out),
        (None, false) if args.log => log::run(&args.file, &trace, out),
        (None, true) => steps::run(&args.file, &trace, &mut io::stdin().lock(), out),
        (None, false) if args.at.is_some() || args.explain.is_some() => look(args, &trace, out),
        (None, false) => verify(args, &trace, out),
    };
    match result {
        // The reader has seen enough.
        Err(ReplayError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

/// Reads a trace.
pub(crate) fn read(path: &Path) -> Result<Trace, ReplayError> {
    Ok(file::trace(path, file::bytes_of_trace(path)?)?)
}

fn begin<'t>(path: &Path, trace: &'t Trace) -> Result<Replay<'t>, ReplayError> {
    Replay::new(trace).ok_or_else(|| ReplayError::Tail(path.to_owned()))
}

/// Refuses what an input that was left out has decided.
pub(crate) fn refuse_gap(path: &Path, gap: Option<TraceStep<'_>>) -> Result<(), ReplayError> {
    gap.map_or(Ok(()), |gap| Err(ReplayError::Gap { path: path.to_owned(), line: gap.line() }))
}

/// Replays all of it, and says whether it is the same.
fn verify(args: &Args, trace: &Trace, out: &mut dyn Write) -> Result<(), ReplayError> {
    let outcome = begin(&args.file, trace)?.finish();
    let (calls, lines) = (trace.steps().len(), trace.lines().count());
    let last = trace.steps().last().map_or(Instant::ZERO, |step| step.at());
    let took = last.since_origin().as_secs_f64();
    let is_whole = trace.steps().any(|step| closes(&step));
    let (difference, gap) = (outcome.err(), trace.gap());
    let is_cut = difference.as_ref().is_some_and(|difference| is_cut(trace, difference));
    let difference = difference.filter(|_| !is_cut);
    let not_compared = trace.steps().filter(TraceStep::omits_actions).count();
    if args.json {
        let gap = gap.map(
            |gap| json!({ "line": gap.line(), "seconds": gap.at().since_origin().as_secs_f64() }),
        );
        let summary = json!({
            "calls": calls, "lines": lines, "seconds": took, "sdam": trace.header().sdam,
            "closed": is_whole, "gap": gap, "cut": is_cut, "callsWithOmittedActions": not_compared,
            "difference": difference.as_ref().map(of_difference),
        });
        writeln!(out, "{summary}")?;
    } else if let Some(difference) = &difference {
        show_difference(difference, out)?;
    } else {
        let file = args.file.display();
        let what = format_args!("{calls} calls in {took:.1} s, {lines} lines");
        write!(out, "{file}: {what}: replayed exactly")?;
        match gap {
            Some(gap) => {
                let seconds = gap.at().since_origin().as_secs_f64();
                write!(out, " until line {}, at {seconds:.3} s", gap.line())?;
            }
            None if is_cut => write!(out, " until it is cut off")?,
            None if is_whole => {}
            None => write!(out, "; it ends before the client was closed")?,
        }
        match not_compared {
            0 => writeln!(out)?,
            count => writeln!(out, "; actions of {count} calls were left out, as too long")?,
        }
    }
    match difference {
        None if is_cut => Err(ReplayError::Cut { path: args.file.clone(), line: lines }),
        None => refuse_gap(&args.file, gap),
        Some(difference) => Err(ReplayError::Differs { path: args.file.clone(), difference }),
    }
}

/// Returns whether the client is closed.
pub(crate) fn closes(step: &TraceStep<'_>) -> bool {
    step.lines().next().is_some_and(|(_, line)| line.ends_with(SHUTDOWN))
}

/// Returns whether nothing differs but that the end is missing of what the last call did.
pub(crate) fn is_cut(trace: &Trace, difference: &Difference) -> bool {
    let of_last = trace.steps().last().is_some_and(|last| last.line() <= difference.line);
    of_last && difference.recorded.is_none()
}

fn of_difference(difference: &Difference) -> Value {
    let Difference { line, at, recorded, replayed, .. } = difference;
    let seconds = at.since_origin().as_secs_f64();
    json!({ "line": line, "seconds": seconds, "recorded": recorded, "replayed": replayed })
}

fn show_difference(difference: &Difference, out: &mut dyn Write) -> io::Result<()> {
    let or_nothing = |text: &Option<String>| match text {
        Some(text) => escaped(text).into_owned(),
        None => "nothing".to_owned(),
    };
    writeln!(out, "recorded: {}", or_nothing(&difference.recorded))?;
    writeln!(out, "replayed: {}", or_nothing(&difference.replayed))
}

/// Replays until a time, and shows what was known then.
fn look(args: &Args, trace: &Trace, out: &mut dyn Write) -> Result<(), ReplayError> {
    let (topology, line, now) = replayed(&args.file, trace, args.at)?;
    if args.json {
        let explained =
            args.explain.as_ref().map(|criteria| view::explained(&topology, criteria, now));
        let seconds = now.since_origin().as_secs_f64();
        let view = &**topology.description();
        let object = json!({
            "seconds": seconds, "line": line, "view": view, "explanation": explained,
        });
        writeln!(out, "{object}")?;
        return Ok(());
    }
    writeln!(out, "at {:.3} s, line {line}", now.since_origin().as_secs_f64())?;
    view::show(topology.description(), now, out)?;
    if let Some(criteria) = &args.explain {
        view::explain(&topology, criteria, now, out)?;
    }
    Ok(())
}

/// Replays all calls until a time, or until the client is closed, as nothing is known then; returns
/// the machine, the last line, and the time, which is then that of the end.
fn replayed(
    path: &Path,
    trace: &Trace,
    until: Option<Instant>,
) -> Result<(Topology, usize, Instant), ReplayError> {
    let mut replay = begin(path, trace)?;
    let is_due = |step: &TraceStep<'_>| match until {
        Some(until) => step.at() <= until,
        None => !closes(step),
    };
    refuse_gap(path, trace.gap().filter(is_due))?;
    let due = trace.steps().take_while(is_due);
    let end = trace.steps().last().map_or(Instant::ZERO, |step| step.at());
    // Times are shown in milliseconds, so that one may come out too late.
    if until.is_some_and(|until| until - end > Duration::from_millis(1)) {
        return Err(ReplayError::Beyond { path: path.to_owned(), end });
    }
    let (mut line, now) = (0, until.unwrap_or(end));
    for step in due {
        line = step.lines().last().map_or(line, |(line, _)| line);
        if let Some(Err(difference)) = replay.step() {
            if is_cut(trace, &difference) {
                let cut = ReplayError::Cut { path: path.to_owned(), line };
                complain(&format_args!("warning: {cut}"));
                break;
            }
            return Err(ReplayError::Differs { path: path.to_owned(), difference });
        }
    }
    Ok((replay.topology().clone(), line, now))
}

/// Reads seconds, with or without a fraction.
pub(crate) fn seconds(text: &str) -> Result<Instant, String> {
    let number = text.trim_start_matches('+').trim_end_matches('s');
    let seconds = number.parse::<f64>().ok().filter(|seconds| (0.0..1e9).contains(seconds));
    let seconds = seconds.ok_or("write seconds since the beginning, 0 or more, as in 12.5")?;
    Ok(Instant::ZERO + std::time::Duration::from_secs_f64(seconds))
}
