//! A `sdam watch --json` in a process of its own, and the events it has printed.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{fmt, thread};

use serde_json::Value;

/// The time limit of steps that depend on the load of the machine.
pub(crate) const GENEROUS: Duration = Duration::from_secs(90);

/// An expected line that did not come, with the lines that came instead.
#[derive(Debug, thiserror::Error)]
#[error("{what} did not come within {GENEROUS:?}; the watch shown:\n{shown}")]
pub(crate) struct Missing {
    what: String,
    shown: String,
}

/// A `sdam watch --json` in a process of its own.
pub(crate) struct Watch {
    process: Child,
    shown: Arc<Lines>,
    /// The number of events that the test has seen.
    seen: usize,
}

/// The lines so far, and whether there will be more.
#[derive(Default)]
struct Lines {
    lines: Mutex<(Vec<Value>, bool)>,
    news: Condvar,
}

impl Lines {
    fn lock(&self) -> MutexGuard<'_, (Vec<Value>, bool)> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watch {
    /// Starts to watch the deployment at `uri`.
    pub(crate) fn start(uri: &str) -> std::io::Result<Self> {
        Self::start_with(&[], uri)
    }

    /// Starts to watch the deployment at `uri` with more arguments.
    pub(crate) fn start_with(arguments: &[String], uri: &str) -> std::io::Result<Self> {
        Self::of_command("watch", arguments, uri)
    }

    /// Starts another command, which prints events, too.
    pub(crate) fn of_command(
        command: &str,
        arguments: &[String],
        uri: &str,
    ) -> std::io::Result<Self> {
        let mut process = Command::new(env!("CARGO_BIN_EXE_sdam"))
            .args([command, "--json", uri])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let shown = Arc::<Lines>::default();
        let (output, writer) = (process.stdout.take(), Arc::clone(&shown));
        thread::spawn(move || {
            for line in output.into_iter().flat_map(|output| BufReader::new(output).lines()) {
                let event = line.ok().and_then(|line| serde_json::from_str(&line).ok());
                writer.lock().0.push(event.unwrap_or(Value::Null));
                writer.news.notify_all();
            }
            writer.lock().1 = true;
            writer.news.notify_all();
        });
        Ok(Self { process, shown, seen: 0 })
    }

    /// Waits for the first event not seen yet of which `wanted` is true, and returns it.
    pub(crate) fn expect(
        &mut self,
        what: impl fmt::Display,
        wanted: impl Fn(&Value) -> bool,
    ) -> Result<Value, Missing> {
        let deadline = Instant::now() + GENEROUS;
        let mut lines = self.shown.lock();
        loop {
            if let Some(at) = lines.0[self.seen..].iter().position(&wanted) {
                self.seen += at + 1;
                return Ok(lines.0[self.seen - 1].clone());
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || lines.1 {
                let last = lines.0.iter().rev().take(40).rev();
                let shown = last.map(ToString::to_string).collect::<Vec<_>>().join("\n");
                return Err(Missing { what: what.to_string(), shown });
            }
            let waited = self.shown.news.wait_timeout(lines, left);
            lines = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits until the view has servers of these types, and no others.
    pub(crate) fn expect_types(
        &mut self,
        topology: &str,
        types: &[&str],
    ) -> Result<Value, Missing> {
        let what = format!("a topology of type {topology} with {types:?}");
        self.expect(what, |event| {
            let view = &event["newDescription"];
            let servers = view["servers"].as_array().map_or(&[][..], Vec::as_slice);
            let mut found: Vec<&str> =
                servers.iter().filter_map(|server| server["type"].as_str()).collect();
            let mut types = types.to_vec();
            found.sort_unstable();
            types.sort_unstable();
            event["event"] == "topologyDescriptionChanged"
                && view["type"] == topology
                && found == types
        })
    }

    /// Waits until the server at `address` changes to a type.
    pub(crate) fn expect_change(
        &mut self,
        address: &str,
        server_type: &str,
    ) -> Result<Value, Missing> {
        self.expect(format!("{address} becoming {server_type}"), |event| {
            event["event"] == "serverDescriptionChanged"
                && event["address"].as_str().or(event["newDescription"]["address"].as_str())
                    == Some(address)
                && event["newDescription"]["type"] == server_type
        })
    }

    /// Waits until the server at `address` is unknown because its connections end, and not because
    /// another one says that it is primary.
    pub(crate) fn expect_loss(&mut self, address: &str) -> Result<Value, Missing> {
        self.expect(format!("the loss of {address}"), |event| {
            let description = &event["newDescription"];
            let cause = description["error"]["cause"].as_str();
            event["event"] == "serverDescriptionChanged"
                && event["address"].as_str().or(description["address"].as_str()) == Some(address)
                && description["type"] == "Unknown"
                && cause.is_some_and(|cause| ["closed", "refused", "io"].contains(&cause))
        })
    }

    /// Returns the events so far of one kind that concern the server at `address`.
    pub(crate) fn all(&self, kind: &str, address: &str) -> Vec<Value> {
        let of_kind = |event: &&Value| event["event"] == kind && event["address"] == address;
        self.shown.lock().0.iter().filter(of_kind).cloned().collect()
    }

    /// Ends the watch as a person with a kill command would, and expects it to say goodbye.
    pub(crate) fn end(mut self) -> Result<(), Box<dyn std::error::Error>> {
        self.terminate()?;
        self.expect("the end of the topology", |event| event["event"] == "topologyClosed")?;
        self.ended()
    }

    /// Asks it to end.
    pub(crate) fn terminate(&self) -> std::io::Result<()> {
        let pid = self.process.id().to_string();
        Command::new("kill").args(["-TERM", &pid]).status().map(drop)
    }

    /// Waits until it has ended well.
    pub(crate) fn ended(mut self) -> Result<(), Box<dyn std::error::Error>> {
        let status = self.process.wait()?;
        match status.success() {
            true => Ok(()),
            false => Err(format!("the watch has ended with {status}").into()),
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // Only after a failure is it still there, and then it does not matter how it ends.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
