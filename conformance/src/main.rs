//! The conformance runner: the official suites against the core, from the command line.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use sdam_conformance::spec::{Folder, FolderError, Report};

/// Checks that sdam does what the MongoDB specifications demand.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the official JSON suites in virtual time.
    ///
    /// Exits with 0 if all passed, 1 if something failed or there was no suite to run, and 2 if
    /// the folder cannot be read or the arguments make no sense.
    Spec {
        /// The folder `source` of the MongoDB specifications, or one of the same layout.
        dir: PathBuf,
        /// Run only this suite, or those whose names begin with this, as in server-selection.
        #[arg(long, value_name = "NAME")]
        suite: Option<String>,
        /// Print the report as JSON.
        #[arg(long)]
        json: bool,
    },
}

fn main() -> ExitCode {
    let Command::Spec { dir, suite, json } = Arguments::parse().command;
    let folder = match &suite {
        None => Folder::open(&dir),
        Some(suite) => Folder::open_suite(&dir, suite),
    };
    let report = match folder {
        Ok(folder) => folder.run(),
        Err(error) => {
            eprintln!("error: {error}");
            return match error {
                FolderError::NoSuites(_) | FolderError::MissingSuite { .. } => ExitCode::from(1),
                _ => ExitCode::from(2),
            };
        }
    };
    // Whoever closes the pipe early has read enough, and still gets the exit code.
    match print(&report, json) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            eprintln!("error: the report cannot be written: {error}");
            ExitCode::from(2)
        }
        _ => ExitCode::from(u8::from(report.has_failures())),
    }
}

fn print(report: &Report, json: bool) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if json {
        serde_json::to_writer_pretty(&mut out, report)?;
        writeln!(out)?;
    } else {
        write!(out, "{report}")?;
    }
    out.flush()
}
