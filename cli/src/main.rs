//! `sdam`: watches a MongoDB deployment from the command line, or plays one.

mod cluster;
mod duration;
mod embedded;
mod text;
mod watch;

use std::io::Write;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use self::cluster::ClusterError;
use self::watch::WatchError;

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
    Cluster(Box<cluster::Args>),
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return explain(&error),
    };
    match cli.command {
        Command::Watch(args) => exit(watch::run(args), WatchError::exit_code),
        Command::Cluster(args) => exit(cluster::run(&args), ClusterError::exit_code),
    }
}

/// Prints an error, if there is one, and says how the process ends.
fn exit<E: std::fmt::Display>(result: Result<(), E>, code: impl Fn(&E) -> u8) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&error);
            ExitCode::from(code(&error))
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
