//! `sdam export`: a trace as a test of the official suites.

use std::io;
use std::path::PathBuf;

use sdam_core::trace::{ExportError, export};

use crate::replay::{ReplayError, read};
use crate::{complain, output};

/// Examples and exit codes.
const MORE: &str = "\
Examples:
  sdam export small.trace -o small.json

Exit codes:
  0  the test is written, and has passed here
  2  the arguments are invalid, or the trace has what the format cannot say";

/// Writes a trace as a test in the official JSON format of Server Discovery And Monitoring, which
/// the maintainers of any driver can run.
///
/// The test has what servers answered and what errors operations met, and after each what was
/// known. That format knows nothing of time, of DNS, and of pools but how often one was cleared:
/// what it cannot say of the trace is printed, line by line, and the exit code is 2. The test has
/// passed here when it is written.
#[derive(Debug, clap::Args)]
#[command(after_long_help = MORE)]
pub(crate) struct Args {
    /// The trace, as `sdam record`, `sdam shrink` or a flight recorder wrote it
    file: PathBuf,
    /// The file to write, which must not exist yet; - is standard output
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Write the file even if it exists
    #[arg(long)]
    force: bool,
}

/// The reason why a trace was not exported.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The trace cannot be read.
    #[error(transparent)]
    Read(#[from] ReplayError),
    /// The trace is no test.
    #[error("{}: {error}", path.display())]
    Export {
        /// The file.
        path: PathBuf,
        /// The reason.
        error: ExportError,
    },
    /// Some lines of the trace, which were listed before, cannot be part of a test.
    #[error(
        "{}: the format of the official tests cannot say what {count} lines say, as above",
        path.display()
    )]
    Inexpressible {
        /// The file.
        path: PathBuf,
        /// The number of lines.
        count: usize,
    },
    /// The test cannot be written.
    #[error("cannot write {}: {error}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The reason.
        error: io::Error,
    },
}

/// Exports.
pub(crate) fn run(args: &Args) -> Result<(), Error> {
    let written = |error| Error::Write { path: args.output.clone(), error };
    output::check(&args.output, args.force).map_err(written)?;
    let trace = read(&args.file)?;
    let name = args.file.file_stem().unwrap_or_default().to_string_lossy();
    let text = match export(&trace, &name) {
        Ok(text) => text,
        Err(ExportError::Inexpressible(refused)) => {
            refused.iter().for_each(|it| complain(&format_args!("{}, {it}", args.file.display())));
            return Err(Error::Inexpressible { path: args.file.clone(), count: refused.len() });
        }
        Err(error) => return Err(Error::Export { path: args.file.clone(), error }),
    };
    output::write(&args.output, args.force, &text).map_err(written)
}
