//! `sdam`: watches a MongoDB deployment from the command line, records it, replays that, makes it
//! small, and a test of it; checks what other drivers log of one; or plays one.

mod check_log;
mod cluster;
mod duration;
mod embedded;
mod export;
mod output;
mod preparation;
mod record;
mod replay;
mod shrink;
mod shutdown;
mod text;
mod watch;

use std::io::Write;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Discovers MongoDB deployments and monitors them.
#[derive(Debug, Parser)]
#[command(name = "sdam", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Watch(watch::Args),
    Record(record::Args),
    Replay(replay::Args),
    CheckLog(check_log::Args),
    Shrink(shrink::Args),
    Export(export::Args),
    Cluster(Box<cluster::Args>),
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return explain(&error),
    };
    match cli.command {
        Command::Watch(args) => {
            conclude(watch::run(args).map_err(|error| (error.exit_code(), error.to_string())))
        }
        Command::Record(args) => {
            conclude(record::run(args).map_err(|error| (error.exit_code(), error.to_string())))
        }
        Command::Replay(args) => {
            conclude(replay::run(&args).map_err(|error| (error.exit_code(), error.to_string())))
        }
        Command::CheckLog(args) => {
            conclude(check_log::run(&args).map_err(|error| (error.exit_code(), error.to_string())))
        }
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
    }
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
fn explain(error: &clap::Error) -> ExitCode {
    let said = text::without_credentials(&error.render().to_string());
    // Whether anybody reads it changes nothing.
    let _ = match error.use_stderr() {
        true => write!(std::io::stderr(), "{said}"),
        false => write!(std::io::stdout(), "{said}"),
    };
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
}

/// Prints one line to standard error; whether anybody reads it changes nothing.
fn complain(message: &dyn std::fmt::Display) {
    let message = message.to_string();
    let _ = writeln!(std::io::stderr(), "sdam: {}", text::escaped(&message));
}
