//! The suite of adapters, with every runtime there is; the guide shows their results.

mod blocking;
mod example;
mod executors;
mod page;
mod tokios;
mod unpunctual;

use std::process::ExitCode;

use sdam_conformance::adapter::Suite;

fn main() -> ExitCode {
    let suite = Suite::new()
        .with(tokios::Tokio::multi_thread())
        .with(tokios::Tokio::current_thread())
        .with(executors::Smol)
        .with(executors::AsyncStd)
        .with(blocking::Blocking)
        .with(example::Example)
        .with(unpunctual::Unpunctual);
    let conclusion = suite.run();
    match page::check(&conclusion) {
        Ok(()) => conclusion.exit_code(),
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
