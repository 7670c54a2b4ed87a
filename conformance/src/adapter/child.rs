//! A process of its own that is the client of a deployment, to be stopped and continued.

use std::env;
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio, exit};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use sdam_core::bson::rawdoc;
use sdam_core::config::Options;
use sdam_core::topology::EventKind;

use super::fixture::Outcome;
use super::{Adapter, forks};
use crate::mongod::process::{dying_with_us, spawn};

/// The variable that marks a child process: of which adapter, with which servers, and whether it
/// is to run a command, and in which time.
const ADAPTER: &str = "SDAM_ADAPTER_CHILD";
const URI: &str = "SDAM_ADAPTER_CHILD_URI";
const COMMAND_MILLIS: &str = "SDAM_ADAPTER_CHILD_COMMAND_MILLIS";
const FORKS: &str = "SDAM_ADAPTER_CHILD_FORKS";

/// The name of the command that it runs.
pub(super) const COMMAND: &str = "hang";

/// The beginnings of the lines that a child prints.
const SUCCEEDED: &str = "succeeded";
const FAILED: &str = "failed";
const FOUND: &str = "found";

/// Returns whether this process is a child.
pub(super) fn is_child() -> bool {
    env::var_os(ADAPTER).is_some()
}

/// Does what a child does, and ends the process, if it is one of this adapter.
pub(super) fn run_if_child<A: Adapter>(adapter: &A) {
    if env::var_os(ADAPTER).is_some_and(|name| name == *adapter.name()) {
        let done = run(adapter);
        if let Err(error) = &done {
            eprintln!("error: {error}");
        }
        exit(i32::from(done.is_err()));
    }
}

fn run<A: Adapter>(adapter: &A) -> Outcome {
    let uri = env::var(URI)?;
    if env::var_os(FORKS).is_some() {
        let line = match forks::fork_off(adapter, &uri) {
            Ok(()) => SUCCEEDED.to_owned(),
            Err(error) => format!("{FAILED}: {error}"),
        };
        return Ok(writeln!(io::stdout(), "{line}")?);
    }
    match env::var(COMMAND_MILLIS) {
        Ok(millis) => command(adapter, &uri, Duration::from_millis(millis.parse()?)),
        Err(_) => watch(adapter, &uri),
    }
}

/// Runs a command on a connection that is established, and prints what came of it.
fn command<A: Adapter>(adapter: &A, uri: &str, time: Duration) -> Outcome {
    let (client, _events) = adapter.client(Options::parse(uri)?)?;
    adapter.block_on(client.run_command("admin", &rawdoc! { "ping": 1 }))?;
    let limited = client.with_timeout(time);
    let line = match adapter.block_on(limited.run_command("admin", &rawdoc! { "hang": 1 })) {
        Ok(_) => SUCCEEDED.to_owned(),
        Err(error) => format!("{FAILED}: {error}"),
    };
    Ok(writeln!(io::stdout(), "{line}")?)
}

/// Prints every awaited check that ends, and what is found out, until the reader is gone.
fn watch<A: Adapter>(adapter: &A, uri: &str) -> Outcome {
    let (_client, mut events) = adapter.client(Options::parse(uri)?)?;
    adapter.block_on(async {
        while let Some(event) = events.next().await {
            let line = match event.kind {
                EventKind::ServerHeartbeatSucceeded { awaited: true, .. } => SUCCEEDED.to_owned(),
                EventKind::ServerHeartbeatFailed { failure, .. } => format!("{FAILED}: {failure}"),
                EventKind::Diagnosed { verdict } => format!("{FOUND}: {}", verdict.name()),
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
    /// Starts this very program once more, to watch a deployment; or, if there is a `time` for it,
    /// to run a command.
    pub(super) fn start<A: Adapter>(
        adapter: &A,
        uri: &str,
        time: Option<Duration>,
    ) -> io::Result<Self> {
        let time = time.map(|time| (COMMAND_MILLIS, time.as_millis().to_string()));
        Self::start_with(adapter, uri, |command| {
            command.envs(time);
        })
    }

    /// Starts this very program once more, to fork a process off.
    pub(super) fn start_forking<A: Adapter>(adapter: &A, uri: &str) -> io::Result<Self> {
        Self::start_with(adapter, uri, |command| {
            command.env(FORKS, "1");
        })
    }

    /// Starts this very program once more, to watch a deployment in an environment that `arrange`
    /// makes.
    pub(super) fn start_with<A: Adapter>(
        adapter: &A,
        uri: &str,
        arrange: impl FnOnce(&mut Command),
    ) -> io::Result<Self> {
        let mut command = dying_with_us(env::current_exe()?);
        command.env(ADAPTER, adapter.name()).env(URI, uri);
        arrange(&mut command);
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

    /// Waits until so many checks, or the command, have succeeded.
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
        self.first(|line| line.starts_with(FAILED))
    }

    /// Waits until it has found something out, and returns the name of that.
    pub(super) fn finding(&self) -> Outcome<String> {
        self.first(|line| line.starts_with(FOUND))
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
