//! The conformance runner: the official suites against the core, from the command line.

use std::fmt::Display;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use sdam_conformance::mongod::{
    Availability, Binary, follow_through_tunnel, log_failovers, private_names_work,
};
use sdam_conformance::spec::{Folder, FolderError};
use serde::Serialize;

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
    /// Run the official suites in the unified test format, on real servers and the embedded
    /// deployment.
    ///
    /// Exits with 0 if nothing failed, 1 if something did or there was no suite to run, and 2 if
    /// the folder cannot be read or the arguments make no sense. A test that needs what the client
    /// does not have yet, or another deployment, counts as neither.
    #[cfg(feature = "runtimes")]
    Unified {
        /// The folder `source` of the MongoDB specifications, or one of the same layout.
        dir: PathBuf,
        /// Run only this suite, or those whose names begin with this, as in transactions.
        #[arg(long, value_name = "NAME")]
        suite: Option<String>,
        /// Use only this runtime: tokio, smol, async-std or blocking.
        #[arg(long, value_name = "NAME")]
        runtime: Option<String>,
        /// The servers: a version of mongod, as in 6.0; the embedded deployment as a server of a
        /// version, as in embedded-8.0; virtual, in virtual time; all; or by default the newest of
        /// the first two, and virtual.
        #[arg(long, value_name = "VERSION", default_value = "")]
        server: String,
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
    /// Have programs, other drivers', use a real replica set of three through `sdam tunnel`, while
    /// its primary steps down, and the next one is killed.
    Tunnel {
        /// The version of mongod, as in 6.0; by default the newest that there is.
        #[arg(long, value_name = "VERSION", default_value = "")]
        mongod: String,
        /// The tool `sdam`.
        #[arg(long, value_name = "FILE")]
        sdam: PathBuf,
        /// A program and its arguments, with spaces between them; may be repeated.
        #[arg(long = "program", value_name = "COMMAND", required = true)]
        programs: Vec<String>,
    },
}

fn main() -> ExitCode {
    match Arguments::parse().command {
        Command::Spec { dir, suite, json } => spec(&dir, suite.as_deref(), json),
        #[cfg(feature = "runtimes")]
        Command::Unified { dir, suite, runtime, server, json } => {
            match unified(&dir, suite.as_deref(), runtime.as_deref(), &server) {
                Ok(report) => end(print(&report, json), report.has_failures()),
                Err(error) => {
                    eprintln!("error: {error}");
                    ExitCode::from(2)
                }
            }
        }
        Command::Failovers { mongod, log, command } => match failovers(&mongod, &log, &command) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("error: {error}");
                ExitCode::from(2)
            }
        },
        Command::Tunnel { mongod, sdam, programs } => match tunnel(&mongod, &sdam, &programs) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("error: {error}");
                ExitCode::from(2)
            }
        },
    }
}

/// Has programs use a real replica set through a tunnel.
fn tunnel(version: &str, sdam: &Path, programs: &[String]) -> Result<(), String> {
    if let Err(reason) = private_names_work() {
        eprintln!("left out, as this machine {reason}");
        return Ok(());
    }
    let programs: Vec<Vec<String>> = programs
        .iter()
        .map(|program| program.split_whitespace().map(str::to_owned).collect())
        .collect();
    if programs.iter().any(Vec::is_empty) {
        return Err("--program: there is no command".to_owned());
    }
    follow_through_tunnel(&binary(version)?, sdam, &programs).map_err(|error| error.to_string())
}

/// Finds the binary of a version.
fn binary(version: &str) -> Result<Binary, String> {
    let availability = Availability::look();
    let wanted = |binary: &&Binary| binary.version().to_string().starts_with(version);
    let binary = availability.binaries().iter().rfind(wanted);
    binary.cloned().ok_or_else(|| format!("there is no mongod {version} in .mongod"))
}

/// Has a program log the failovers of a real replica set.
fn failovers(version: &str, log: &Path, command: &[String]) -> Result<(), String> {
    log_failovers(&binary(version)?, command, log).map_err(|error| error.to_string())
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
    end(print(&report, json), report.has_failures())
}

/// Returns the exit code of a run whose report was printed.
fn end(printed: io::Result<()>, has_failures: bool) -> ExitCode {
    // A reader that closes the pipe early has read enough, and still gets the exit code.
    match printed {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            eprintln!("error: the report cannot be written: {error}");
            ExitCode::from(2)
        }
        _ => ExitCode::from(u8::from(has_failures)),
    }
}

fn print(report: &(impl Serialize + Display), json: bool) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if json {
        serde_json::to_writer_pretty(&mut out, report)?;
        writeln!(out)?;
    } else {
        write!(out, "{report}")?;
    }
    out.flush()
}

/// Runs the suites in the unified format.
#[cfg(feature = "runtimes")]
fn unified(
    dir: &Path,
    suite: Option<&str>,
    runtime: Option<&str>,
    server: &str,
) -> Result<sdam_conformance::unified::Report, Box<dyn std::error::Error>> {
    use sdam_conformance::unified::run::{Runner, load, servers};

    let files = load(dir, suite)?;
    let runner = match runtime {
        None => Runner::all(),
        Some(runtime) => Runner::all().only(runtime)?,
    };
    Ok(runner.run(&files, &servers(server)?))
}
