//! Thousands of embedded mongos, in processes of their own: each holds as many files as it may.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

use rustix::process::{Resource, getrlimit, setrlimit};
use sdam_bench::{Failure, runtime};
use sdam_cluster::{EmbeddedCluster, EmbeddedOptions, MAX_MONGOS};

/// The number of servers of one process: each has its listener, and two connections of a monitor.
const SERVERS_EACH: usize = 5_000;

/// Processes that serve, and where.
pub(crate) struct Crowd {
    processes: Vec<Child>,
    /// The address of each server.
    pub(crate) addresses: Vec<String>,
}

impl Crowd {
    /// Starts so many servers.
    pub(crate) fn start(count: usize) -> Result<Self, Failure> {
        let mut crowd = Self { processes: Vec::new(), addresses: Vec::new() };
        while crowd.addresses.len() < count {
            let here = SERVERS_EACH.min(count - crowd.addresses.len());
            let mut child = Command::new(std::env::current_exe()?);
            child.args(["--serve", &here.to_string()]);
            let mut child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
            let mut said = BufReader::new(child.stdout.take().ok_or("no output of a child")?);
            crowd.processes.push(child);
            let mut addresses = String::new();
            said.read_line(&mut addresses)?;
            crowd.addresses.extend(addresses.split_whitespace().map(str::to_owned));
            if addresses.split_whitespace().count() != here {
                return Err(format!("a process does not serve {here} servers").into());
            }
        }
        Ok(crowd)
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        for mut process in self.processes.drain(..) {
            drop(process.stdin.take());
            // It ends with its input, however it does so.
            let _ = process.wait();
        }
    }
}

/// Serves so many servers until this process has no more input.
pub(crate) fn serve(count: usize) -> Result<(), Failure> {
    allow_files(3 * count)?;
    let runtime = runtime(1)?;
    let (mut clusters, mut addresses) = (Vec::new(), Vec::new());
    while addresses.len() < count {
        let here = MAX_MONGOS.min(count - addresses.len());
        let start = EmbeddedCluster::start(EmbeddedOptions::sharded(here));
        let cluster = runtime.block_on(start)?;
        addresses.extend(cluster.addresses().iter().map(ToString::to_string));
        clusters.push(cluster);
    }
    println!("{}", addresses.join(" "));
    let mut rest = Vec::new();
    std::io::stdin().read_to_end(&mut rest)?;
    Ok(())
}

/// Raises the number of files that this process may have open as far as it may, and fails if they
/// are fewer than needed.
pub(crate) fn allow_files(needed: usize) -> Result<(), Failure> {
    let mut files = getrlimit(Resource::Nofile);
    files.current = files.maximum;
    setrlimit(Resource::Nofile, files)?;
    let needed = u64::try_from(needed)?;
    match files.maximum.filter(|most| *most < needed) {
        Some(most) => Err(format!("{needed} files are needed, and the limit is {most}").into()),
        None => Ok(()),
    }
}
