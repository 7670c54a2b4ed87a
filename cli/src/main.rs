//! `sdam`: watches a MongoDB deployment from the command line, records it, replays that, makes it
//! small, a page and a test of it; checks what other drivers log of one; finds the promises that a
//! server does not keep; leads clients to one, or plays one; serves metrics of one to Prometheus;
//! says what a fleet of clients costs one.
//!
//! # Features
//!
//! - `gssapi`: logins by Kerberos (GSSAPI), with the system's library of it.

mod check_log;
mod cluster;
mod color;
mod doctor;
mod duration;
mod embedded;
mod export;
mod exporter;
mod file;
mod findings;
#[cfg(test)]
mod fixture;
mod footprint;
mod history;
mod lint;
mod manual;
mod news;
mod open_files;
mod output;
#[cfg(test)]
mod pages;
mod preparation;
mod printer;
mod record;
mod replay;
mod report;
mod shrink;
mod shutdown;
mod status;
mod stream;
mod target;
mod text;
mod tunnel;
mod watch;

use std::ffi::{OsStr, OsString};
use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::color::ColorChoice;

/// Examples, variables and exit codes.
const MORE: &str = "\
Examples:
  sdam watch
  sdam watch 'mongodb://db1.example,db2.example/?replicaSet=rs0'
  sdam status --uri-file production.uri
  sdam record --uri-file production.uri -o failover.trace
  sdam report failover.trace -o failover.html
  sdam cluster --members 5
  sdam tunnel --ssh bastion.example --uri-file production.uri
  sdam exporter --uri-file production.uri --listen 127.0.0.1:9216

Variables:
  SDAM_URI  the connection string, where a command needs one and no argument has it
  NO_COLOR  if it is not empty, there is no colour, unless --color says otherwise

Exit codes:
  0    it was done
  1    it was done and the answer is bad, or it cannot be done here and now
  2    the arguments, the connection string or a file are invalid
       (of status: no server is available; there, what is invalid is 3)
  130  SIGINT came before it was done (143: SIGTERM); a second one always ends it at once";

/// Discovers MongoDB deployments and monitors them.
#[derive(Debug, Parser)]
#[command(name = "sdam", version, after_long_help = MORE)]
struct Cli {
    /// Use colour
    #[arg(long, global = true, value_name = "WHEN", value_enum, default_value_t)]
    color: ColorChoice,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Watch(watch::Args),
    Status(status::Args),
    Doctor(doctor::Args),
    Record(record::Args),
    Replay(replay::Args),
    Report(report::Args),
    CheckLog(check_log::Args),
    Lint(lint::Args),
    Shrink(shrink::Args),
    Export(export::Args),
    Cluster(Box<cluster::Args>),
    Tunnel(Box<tunnel::Args>),
    Exporter(exporter::Args),
    Footprint(footprint::Args),
    Completions(manual::CompletionsArgs),
    Man(manual::ManArgs),
}

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let Cli { command, color } = match Cli::try_parse_from(&arguments) {
        Ok(cli) => cli,
        Err(error) => {
            let said = explain(&error, ColorChoice::among(&arguments));
            let is_status = command_among(&arguments).is_some_and(|name| name == "status");
            return match is_status && error.use_stderr() {
                true => ExitCode::from(status::NOTHING_TO_SAY),
                false => said,
            };
        }
    };
    match command {
        Command::Watch(args) => conclude(
            watch::run(args, color).map_err(|error| (error.exit_code(), error.to_string())),
        ),
        Command::Status(args) => status::run(&args, color),
        Command::Doctor(args) => doctor::run(&args, color),
        Command::Record(args) => {
            conclude(record::run(args).map_err(|error| (error.exit_code(), error.to_string())))
        }
        Command::Replay(args) => {
            conclude(replay::run(&args).map_err(|error| (error.exit_code(), error.to_string())))
        }
        Command::Report(args) => conclude(
            report::run(args, color).map_err(|error| (error.exit_code(), error.to_string())),
        ),
        Command::CheckLog(args) => {
            conclude(check_log::run(&args).map_err(|error| (error.exit_code(), error.to_string())))
        }
        Command::Lint(args) => conclude(
            lint::run(&args, color).map_err(|error| (error.exit_code(), error.to_string())),
        ),
        // Nothing is written then.
        Command::Shrink(args) => {
            conclude(shrink::run(&args).map_err(|error| (2, error.to_string())))
        }
        Command::Export(args) => {
            conclude(export::run(&args).map_err(|error| (2, error.to_string())))
        }
        Command::Cluster(args) => {
            conclude(cluster::run(&args).map_err(|error| (error.exit_code(), error.to_string())))
        }
        Command::Tunnel(args) => {
            conclude(tunnel::run(&args).map_err(|error| (error.exit_code(), error.to_string())))
        }
        Command::Exporter(args) => {
            conclude(exporter::run(&args).map_err(|error| (error.exit_code(), error.to_string())))
        }
        Command::Footprint(args) => {
            conclude(footprint::run(&args).map_err(|error| (error.exit_code(), error.to_string())))
        }
        Command::Completions(args) => conclude(
            manual::complete(&args).map_err(|error| (error.exit_code(), error.to_string())),
        ),
        Command::Man(args) => {
            conclude(manual::write(&args).map_err(|error| (error.exit_code(), error.to_string())))
        }
    }
}

/// Finds the command among arguments that may not make sense otherwise.
fn command_among(arguments: &[OsString]) -> Option<&OsStr> {
    let mut arguments = arguments.iter().skip(1).map(OsString::as_os_str);
    while let Some(argument) = arguments.next() {
        match argument.to_str() {
            Some("--color") => _ = arguments.next(),
            Some(option) if option.starts_with('-') => {}
            _ => return Some(argument),
        }
    }
    None
}

/// Prints why a command has failed, and returns its exit code.
fn conclude(result: Result<(), (u8, String)>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err((code, error)) => {
            complain(&error);
            ExitCode::from(code)
        }
    }
}

/// Prints what clap has to say, which may quote a connection string that stands where none belongs.
fn explain(error: &clap::Error, color: ColorChoice) -> ExitCode {
    let is_terminal = match error.use_stderr() {
        true => std::io::stderr().is_terminal(),
        false => std::io::stdout().is_terminal(),
    };
    let said = match color.wants_color(is_terminal) {
        true => error.render().ansi().to_string(),
        false => error.render().to_string(),
    };
    let said = text::without_credentials(&said);
    // It does not matter whether the output is read.
    let _ = match error.use_stderr() {
        true => write!(std::io::stderr(), "{said}"),
        false => write!(std::io::stdout(), "{said}"),
    };
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
}

/// Prints one line to standard error; it does not matter whether that is read.
fn complain(message: &dyn std::fmt::Display) {
    let message = message.to_string();
    let _ = writeln!(std::io::stderr(), "sdam: {}", text::escaped(&message));
}
