//! The conformance runner: the official suites against the core, from the command line.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use sdam_conformance::mongod::{Availability, Binary, log_failovers};
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
    /// Have a program, another driver's, log the failovers of a real replica set of three.
    ///
    /// The program finds the connection string in SDAM_URI, prints lines, and ends when its input
    /// does; meanwhile the primary steps down, and the next one is killed and started again.
    Failovers {
        /// The version of mongod, as in 6.0: one that scripts/fetch-mongod has fetched.
        #[arg(long, value_name = "VERSION")]
        mongod: String,
        /// The file for what the program prints.
        #[arg(long, value_name = "FILE")]
        log: PathBuf,
        /// The program, and its arguments.
        #[arg(required = true, last = true)]
        command: Vec<String>,
    },
}

fn main() -> ExitCode {
    match Arguments::parse().command {
        Command::Spec { dir, suite, json } => spec(&dir, suite.as_deref(), json),
        Command::Failovers { mongod, log, command } => match failovers(&mongod, &log, &command) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("error: {error}");
                ExitCode::from(2)
            }
        },
    }
}

/// Has a program log the failovers of a real replica set.
fn failovers(version: &str, log: &Path, command: &[String]) -> Result<(), String> {
    let availability = Availability::look();
    let wanted = |binary: &&Binary| binary.version().to_string().starts_with(version);
    let binary = availability.binaries().iter().find(wanted);
    let binary = binary.ok_or_else(|| format!("there is no mongod {version} in .mongod"))?;
    log_failovers(binary, command, log).map_err(|error| error.to_string())
}

fn spec(dir: &Path, suite: Option<&str>, json: bool) -> ExitCode {
    let folder = match suite {
        None => Folder::open(dir),
        Some(suite) => Folder::open_suite(dir, suite),
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
