//! The suite of runtimes, with every one there is; the guide shows their results.

mod example;
mod page;
mod unpunctual;

use std::process::ExitCode;

use sdam_conformance::adapter::Suite;
use sdam_conformance::runtimes::{AsyncStd, Blocking, Smol, Tokio};

use example::Own;

fn main() -> ExitCode {
    let suite = Suite::new()
        .with(Tokio::multi_thread())
        .with(Tokio::current_thread())
        .with(Smol)
        .with(AsyncStd)
        .with(Blocking)
        .with(example::EXAMPLE)
        .with(Own::<unpunctual::Unpunctual>::new("unpunctual"));
    let conclusion = suite.run();
    match page::check(&conclusion) {
        Ok(()) => conclusion.exit_code(),
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
