//! The suite of adapters, with every runtime there is.

mod blocking;
mod example;
mod executors;
mod tokios;

use std::process::ExitCode;

use sdam_conformance::adapter::Suite;

fn main() -> ExitCode {
    let suite = Suite::new()
        .with(tokios::Tokio::multi_thread())
        .with(tokios::Tokio::current_thread())
        .with(executors::Smol)
        .with(executors::AsyncStd)
        .with(blocking::Blocking)
        .with(example::Example);
    suite.run().exit_code()
}
