//! A process of its own that watches a deployment by an adapter, to be stopped and continued.

use std::env;
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, Stdio, exit};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use rustix::process::{Pid, Signal, kill_process};
use sdam_core::event::EventKind;
use sdam_core::options::Options;

use super::Adapter;
use super::stage::Outcome;
use crate::mongod::process::{dying_with_us, spawn};

/// What tells a process that it is a child: of which adapter, and what it watches.
const ADAPTER: &str = "SDAM_ADAPTER_CHILD";
const URI: &str = "SDAM_ADAPTER_CHILD_URI";

/// How the lines begin that a child prints.
const SUCCEEDED: &str = "succeeded";
const FAILED: &str = "failed";

/// Returns whether this process is a child.
pub(super) fn is_child() -> bool {
    env::var_os(ADAPTER).is_some()
}

/// Does what a child does, and ends the process, if it is one of this adapter.
pub(super) fn run_if_child<A: Adapter>(adapter: &A) {
    if env::var_os(ADAPTER).is_some_and(|name| name == *adapter.name()) {
        let watched = env::var(URI).map_err(Into::into).and_then(|uri| watch(adapter, &uri));
        if let Err(error) = &watched {
            eprintln!("error: {error}");
        }
        exit(i32::from(watched.is_err()));
    }
}

/// Tells of every awaited check that ends, until nobody listens any more.
fn watch<A: Adapter>(adapter: &A, uri: &str) -> Outcome {
    let (_client, mut events) = adapter.client(Options::parse(uri)?)?;
    adapter.block_on(async {
        while let Some(event) = events.next().await {
            let line = match event.kind {
                EventKind::ServerHeartbeatSucceeded { awaited: true, .. } => SUCCEEDED.to_owned(),
                EventKind::ServerHeartbeatFailed { failure, .. } => format!("{FAILED}: {failure}"),
                _ => continue,
            };
            writeln!(io::stdout(), "{line}")?;
        }
        Ok(())
    })
}

/// A child, until it is dropped.
pub(super) struct Watcher {
    process: Child,
    lines: Receiver<String>,
}

impl Watcher {
    /// Starts this very program once more, to watch a deployment.
    pub(super) fn start<A: Adapter>(adapter: &A, uri: &str) -> io::Result<Self> {
        let mut command = dying_with_us(env::current_exe()?);
        command.env(ADAPTER, adapter.name()).env(URI, uri);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut process = spawn(command)?;
        let output = process.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let (read, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if read.send(line).is_err() {
                    return;
                }
            }
        });
        Ok(Self { process, lines })
    }

    /// Waits until so many checks have succeeded.
    ///
    /// # Errors
    ///
    /// Returns the failure of one that has failed.
    pub(super) fn successes(&self, count: usize) -> Outcome {
        for _ in 0..count {
            match self.lines.recv()? {
                line if line == SUCCEEDED => {}
                line => return Err(line.into()),
            }
        }
        Ok(())
    }

    /// Waits until a check has failed, and returns what is said of it.
    pub(super) fn failure(&self) -> Outcome<String> {
        self.first(|line| line != SUCCEEDED)
    }

    /// Waits until a check has succeeded, whatever became of those before.
    pub(super) fn recovery(&self) -> Outcome {
        self.first(|line| line == SUCCEEDED).map(drop)
    }

    fn first(&self, wanted: impl Fn(&str) -> bool) -> Outcome<String> {
        loop {
            let line = self.lines.recv()?;
            if wanted(&line) {
                return Ok(line);
            }
        }
    }

    /// Stops the process, as a machine that is suspended does.
    pub(super) fn stop(&self) -> io::Result<()> {
        Ok(kill_process(Pid::from_child(&self.process), Signal::STOP)?)
    }

    pub(super) fn go_on(&self) -> io::Result<()> {
        Ok(kill_process(Pid::from_child(&self.process), Signal::CONT)?)
    }

    /// Forgets what it has said so far.
    pub(super) fn forget(&self) {
        self.lines.try_iter().for_each(drop);
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
