//! `sdam`: watches a MongoDB deployment from the command line.

mod duration;
mod embedded;
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
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return explain(&error),
    };
    match cli.command {
        Command::Watch(args) => match watch::run(args) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                complain(&error);
                ExitCode::from(error.exit_code())
            }
        },
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
