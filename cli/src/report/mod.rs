//! `sdam report`: what happened to a deployment, as one page that needs nothing else, or as a plot
//! in the terminal.
//!
//! `source` are traces and logs, `model` is what they come to as plain data, `page` prints that in
//! HTML, and `plot` as text.

mod model;
mod page;
mod plot;
mod source;

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};

use self::model::Report;
use self::source::log::LogError;
use crate::check_log::{self, CheckError};
use crate::color::ColorChoice;
use crate::file::{self, TraceFileError};
use crate::output::{self, is_standard};
use crate::preparation::{self, Observation};
use crate::record::{self, RecordError};

/// The beginning of every trace.
const TRACE: &[u8] = b"sdam-trace";

/// The mark of a connection string.
const SCHEME: &str = "://";

/// Examples and exit codes.
const MORE: &str = "\
Examples:
  sdam report failover.trace -o failover.html
  sdam report 'mongodb://db1.example,db2.example/?replicaSet=rs0' --for 30s -o now.html
  sdam report driver.jsonl -o driver.html
  sdam report failover.trace --text

Exit codes:
  0    the report is written, whatever is in it
  1    it cannot be written, or nothing can be recorded
  2    the arguments, the connection string, the trace or the log are invalid, or the file exists
  130  SIGINT came before any server was known (143: SIGTERM)";

/// Makes a page of a trace, of a log of any driver, or of a deployment that is watched for a while.
///
/// The page shows who was primary when, what each server was and how its checks went, and why
/// operations would have found no server; it is one file, which loads nothing. A deployment is
/// looked at until --for is over, or until Ctrl-C; without any source, that is an embedded
/// demonstration deployment.
#[derive(Debug, clap::Args)]
#[command(
    after_long_help = MORE,
    mut_arg("uri", |arg| arg
        .value_name("SOURCE")
        .help("A trace, a log as check-log reads it, - for standard input, or a connection string")
        .long_help(
            "A trace, as `sdam record` or a flight recorder wrote it; a log, as cli/CHECK_LOG.md \
             describes it; - for one of them on standard input; or a connection string, \
             mongodb://… or mongodb+srv://…, of a deployment to look at\n\n\
             Without it, the connection string is that of --uri-file, or else of the variable \
             SDAM_URI. Anyone who lists the processes of this machine can read this argument: \
             a string with a password belongs in a file or in the variable."
        ))
)]
pub(crate) struct Args {
    #[command(flatten)]
    observation: Observation,
    /// The file to write, which must not exist yet; - is standard output
    #[arg(short, long, value_name = "FILE", required_unless_present = "text")]
    output: Option<PathBuf>,
    /// Write the file even if it exists
    #[arg(long)]
    force: bool,
    /// Draw it as text, to standard output unless --output says otherwise
    #[arg(long)]
    text: bool,
    /// The topology of a log that is shown; by default that with the most lines
    #[arg(long, value_name = "NAME")]
    topology: Option<String>,
}

/// The reason why there is no report.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReportError {
    /// The deployment cannot be looked at.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The file cannot be read, or is no trace.
    #[error(transparent)]
    File(#[from] TraceFileError),
    /// The file begins like no trace, and is no log either.
    #[error("{error}; and it is no trace, as its first line does not begin with sdam-trace")]
    Check {
        /// The reason.
        error: CheckError,
    },
    /// There is nothing to be shown of the log.
    #[error("{}: {error}", path.display())]
    Log {
        /// The file.
        path: PathBuf,
        /// The reason.
        error: LogError,
    },
    /// An option has no meaning for this source.
    #[error("{option} is for {of}, which {} is not", path.display())]
    Meaningless {
        /// The option.
        option: &'static str,
        /// The kind of source that it is for.
        of: &'static str,
        /// The file.
        path: PathBuf,
    },
    /// The report cannot be written.
    #[error("cannot write {}: {error}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The reason.
        error: io::Error,
    },
}

impl ReportError {
    /// Returns 2 for what the user can write differently, else 1.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Record(error) => error.exit_code(),
            Self::Write { error, .. } if error.kind() != io::ErrorKind::AlreadyExists => 1,
            Self::File(_)
            | Self::Check { .. }
            | Self::Log { .. }
            | Self::Meaningless { .. }
            | Self::Write { .. } => 2,
        }
    }
}

/// Makes a report, and writes it.
pub(crate) fn run(args: Args, color: ColorChoice) -> Result<(), ReportError> {
    let Args { observation, output, force, text, topology } = args;
    let output = output.unwrap_or_else(|| PathBuf::from("-"));
    let written = |error| ReportError::Write { path: output.clone(), error };
    // Before waiting for a deployment whose report could not be written.
    output::check(&output, force).map_err(written)?;
    let report = match observation.argument() {
        Some(path) if !path.contains(SCHEME) => {
            let path = PathBuf::from(path);
            refuse("--for", "a deployment", observation.limit().is_some(), &path)?;
            refuse("--map", "a deployment", observation.is_mapped(), &path)?;
            of_file(&path, topology.as_deref())?
        }
        _ => {
            let path = Path::new("a deployment");
            refuse("--topology", "a log", topology.is_some(), path)?;
            of_deployment(observation)?
        }
    };
    let printed = match text {
        true => {
            let is_terminal = is_standard(&output) && io::stdout().is_terminal();
            plot::print(&report, plot::width(), color.wants_color(is_terminal))
        }
        false => page::print(&report),
    };
    output::write(&output, force, &printed).map_err(written)
}

fn refuse(
    option: &'static str,
    of: &'static str,
    is_given: bool,
    path: &Path,
) -> Result<(), ReportError> {
    match is_given {
        true => Err(ReportError::Meaningless { option, of, path: path.to_owned() }),
        false => Ok(()),
    }
}

/// Reads a trace or a log, whichever it is.
fn of_file(path: &Path, topology: Option<&str>) -> Result<Report, ReportError> {
    let bytes = file::bytes_of_trace(path)?;
    let name = match is_standard(path) {
        true => "standard input".to_owned(),
        false => path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
    };
    if bytes.starts_with(TRACE) {
        refuse("--topology", "a log", topology.is_some(), path)?;
        return Ok(source::trace::read(&name, &file::trace(path, bytes)?));
    }
    let text = String::from_utf8_lossy(&bytes);
    let log = check_log::logged(path, &text).map_err(|error| ReportError::Check { error })?;
    source::log::read(&name, &log, &text, topology)
        .map_err(|error| ReportError::Log { path: path.to_owned(), error })
}

/// Records a deployment, and shows that.
fn of_deployment(observation: Observation) -> Result<Report, ReportError> {
    let (recorded, _) = preparation::run(record::tape(observation, || Ok(Vec::new())))?;
    let trace = file::trace(Path::new("what was recorded"), recorded)?;
    Ok(source::trace::read("a recording", &trace))
}
