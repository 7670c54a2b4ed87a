//! Measuring what programs cost that do the same again and again, or nothing: the part that all
//! benches have.

pub mod idle;
pub mod load;
pub mod ping;
pub mod raw;
pub mod rounds;
pub mod sample;
pub mod table;
pub mod watch;

use std::error::Error;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};

use clap::ValueEnum;
use sdam_conformance::mongod::{Availability, Binary, Config, Options, ReplicaSet, Server};
use tokio::runtime::{Builder, Runtime};

use crate::sample::Sample;

/// Any error; it ends the run.
pub type Failure = Box<dyn Error + Send + Sync>;

/// The number of threads that the runtimes of asynchronous clients have.
pub const THREADS: usize = 2;

#[cfg(feature = "allocations")]
#[global_allocator]
static ALLOCATOR: &stats_alloc::StatsAlloc<std::alloc::System> = &stats_alloc::INSTRUMENTED_SYSTEM;

/// Returns a runtime of tokio with so many threads.
///
/// # Errors
///
/// Fails if the system has no more threads or files.
pub fn runtime(threads: usize) -> Result<Runtime, Failure> {
    Ok(Builder::new_multi_thread().worker_threads(threads).enable_all().build()?)
}

/// Returns the name of a value on the command line and in the tables.
///
/// # Panics
///
/// Panics if the command line does not know it.
pub fn name(value: &impl ValueEnum) -> String {
    value.to_possible_value().expect("no variant is skipped").get_name().to_owned()
}

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
    let server = Server::start(&newest()?, Config::default())?;
    Ok((server.address().to_string().parse()?, Some(server)))
}

/// Returns the member of this address, or starts a replica set of one, of the newest mongod there
/// is; that ends when it is dropped.
///
/// # Errors
///
/// Fails if there is no mongod, and if it does not start.
pub fn replica_set(
    address: Option<SocketAddr>,
) -> Result<(SocketAddr, Option<ReplicaSet>), Failure> {
    if let Some(address) = address {
        return Ok((address, None));
    }
    let set = ReplicaSet::start(&newest()?, 1, &Options::calm())?;
    Ok((set.members()[0].address().to_string().parse()?, Some(set)))
}

/// Returns the newest mongod that there is, and prints its version.
///
/// # Errors
///
/// Fails if there is none.
pub fn newest() -> Result<Binary, Failure> {
    let availability = Availability::look();
    let binary =
        availability.binaries().last().ok_or_else(|| availability.left_out().join("\n"))?;
    eprintln!("mongod {}", binary.version());
    Ok(binary.clone())
}

/// Runs a process that measures, and returns what it prints.
///
/// # Errors
///
/// Fails if the process does.
pub fn output(command: &mut Command) -> Result<String, Failure> {
    let output = command.stderr(Stdio::inherit()).output()?;
    match output.status.success() {
        true => Ok(String::from_utf8(output.stdout)?),
        false => Err(format!("{command:?} ended with {}", output.status).into()),
    }
}

/// Builds a program of the official driver for C with this compiler.
///
/// # Errors
///
/// Fails if `pkg-config` does not know libmongoc-1.0, and if the compiler fails.
pub fn build_for_libmongoc(cc: &str, source: &Path, program: &Path) -> Result<(), Failure> {
    let flags = output(Command::new("pkg-config").args(["--cflags", "--libs", "libmongoc-1.0"]))?;
    let mut compiler = Command::new(cc);
    compiler.args(["-O2", "-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-o"]).arg(program);
    compiler.arg(source).args(flags.split_whitespace()).arg("-pthread");
    output(&mut compiler)?;
    Ok(())
}

/// Runs a process that measures, and reads the figures it prints.
///
/// # Errors
///
/// Fails if the process does, and if it prints something else.
pub fn sampled(command: &mut Command) -> Result<Sample, Failure> {
    output(command)?.parse()
}
