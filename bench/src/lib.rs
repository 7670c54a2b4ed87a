//! Measuring what programs cost that do the same again and again: the part that all benches have.

pub mod load;
pub mod sample;
pub mod table;

use std::error::Error;
use std::net::SocketAddr;
use std::process::{Command, Stdio};

use sdam_conformance::mongod::{Availability, Config, Server};

use crate::sample::Sample;

/// Any error; it ends the run.
pub type Failure = Box<dyn Error + Send + Sync>;

#[cfg(feature = "allocations")]
#[global_allocator]
static ALLOCATOR: &stats_alloc::StatsAlloc<std::alloc::System> = &stats_alloc::INSTRUMENTED_SYSTEM;

/// Returns the server of this address, or starts the newest mongod there is; that ends when it is
/// dropped.
///
/// # Errors
///
/// Fails if there is no mongod, and if it does not start.
pub fn server(address: Option<SocketAddr>) -> Result<(SocketAddr, Option<Server>), Failure> {
    if let Some(address) = address {
        return Ok((address, None));
    }
    let availability = Availability::look();
    let binary =
        availability.binaries().last().ok_or_else(|| availability.left_out().join("\n"))?;
    eprintln!("mongod {}", binary.version());
    let server = Server::start(binary, Config::default())?;
    Ok((server.address().to_string().parse()?, Some(server)))
}

/// Runs a process that measures, and reads the figures it prints.
///
/// # Errors
///
/// Fails if the process does, and if it prints something else.
pub fn sampled(command: &mut Command) -> Result<Sample, Failure> {
    let output = command.stderr(Stdio::inherit()).output()?;
    match output.status.success() {
        true => String::from_utf8_lossy(&output.stdout).parse(),
        false => Err(format!("{command:?} ended with {}", output.status).into()),
    }
}
