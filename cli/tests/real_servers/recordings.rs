//! `sdam record` on real servers, through all that befalls them, and `sdam replay` of that.
//!
//! With `UPDATE=1` the recordings become the golden traces of `conformance/transcripts`, which are
//! replayed where there are no servers.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, process, thread};

use bson::doc;
use sdam_conformance::mongod::{Member, ReplicaSet};
use sdam_core::trace::{Replay, Trace};

use crate::Outcome;
use crate::watch::GENEROUS;

/// An incident of a set while it is recorded.
type Incident = fn(&mut ReplicaSet, &Tape) -> Outcome;

const INCIDENTS: [(&str, Incident); 5] = [
    ("discovery", |_, _| Ok(())),
    ("step-down", step_down),
    ("kill", kill),
    ("freeze", freeze),
    ("reconfig", reconfig),
];

/// Quick enough for tests, slow enough for short traces.
const OPTIONS: &str = "heartbeatFrequencyMS=2000&connectTimeoutMS=1000";

/// A `sdam record` in a process of its own.
struct Tape {
    process: Child,
    path: PathBuf,
}

impl Tape {
    fn start(uri: &str, name: &str) -> Result<Self, Box<dyn std::error::Error>> {
        let path = env::temp_dir().join(format!("sdam-{}-{name}.trace", process::id()));
        let process = Command::new(env!("CARGO_BIN_EXE_sdam"))
            .args(["record", uri, "--force", "--output"])
            .arg(&path)
            .stdin(Stdio::null())
            .spawn()?;
        Ok(Self { process, path })
    }

    /// Waits until what was recorded, and the last view in it, are as wanted.
    fn wait(&self, what: &str, wanted: impl Fn(&str, &str) -> bool) -> Outcome {
        let deadline = Instant::now() + GENEROUS;
        loop {
            let text = fs::read_to_string(&self.path).unwrap_or_default();
            let view = text.lines().rfind(|line| line.starts_with("  > publish "));
            if wanted(&text, view.unwrap_or_default()) {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(format!("{what} was not recorded within {GENEROUS:?}:\n{text}").into());
            }
            thread::sleep(Duration::from_millis(50));
        }
    }

    fn wait_until_whole(&self) -> Outcome {
        self.wait("a whole set", |_, view| is_whole(view))
    }

    /// Ends the recording as Ctrl-C does, and returns what was written.
    fn end(mut self) -> Result<Vec<u8>, Box<dyn std::error::Error>> {
        Command::new("kill").args(["-INT", &self.process.id().to_string()]).status()?;
        let status = self.process.wait()?;
        match status.success() {
            true => Ok(fs::read(&self.path)?),
            false => Err(format!("the recording ended with {status}").into()),
        }
    }
}

impl Drop for Tape {
    fn drop(&mut self) {
        // It has ended already, unless a test has failed.
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_file(&self.path);
    }
}

fn is_whole(view: &str) -> bool {
    view.contains("WithPrimary")
        && view.matches(" RSPrimary").count() == 1
        && view.matches(" RSSecondary").count() == 2
        && view.matches(" | ").count() == 3
}

/// Every incident is recorded; each recording replays byte for byte, and says which line was
/// changed if one was.
pub(crate) fn recordings_replay_exactly(set: &mut ReplicaSet) -> Outcome {
    let build = set.members()[0].command(&doc! { "buildInfo": 1 }, GENEROUS)?;
    let version = build.get_str("version")?;
    let series = version.rsplit_once('.').map_or(version, |(series, _)| series).to_owned();
    for (name, incident) in INCIDENTS {
        set.wait_until_settled(GENEROUS)?;
        let seeds: Vec<String> = set.seed_list().iter().map(ToString::to_string).collect();
        let (seeds, set_name) = (seeds.join(","), set.set_name());
        let uri = format!("mongodb://planted:sesame@{seeds}/?replicaSet={set_name}&{OPTIONS}");
        let tape = Tape::start(&uri, &format!("{series}-{name}"))?;
        tape.wait_until_whole()?;
        incident(set, &tape)?;
        let recorded = tape.end()?;
        check(&recorded).map_err(|error| format!("{name}: {error}"))?;
        if env::var_os("UPDATE").is_some() {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../conformance/transcripts");
            fs::write(folder.join(format!("{series}-{name}.trace")), recorded)?;
        }
    }
    Ok(())
}

fn step_down(set: &mut ReplicaSet, tape: &Tape) -> Outcome {
    let old = address(set, set.wait_for_primary(GENEROUS)?);
    set.step_down()?;
    let was_primary = format!("{old} RSSecondary");
    tape.wait("another primary", |_, view| is_whole(view) && view.contains(&was_primary))
}

fn kill(set: &mut ReplicaSet, tape: &Tape) -> Outcome {
    let primary = set.wait_for_primary(GENEROUS)?;
    let gone = format!("{} Unknown", address(set, primary));
    set.kill(primary)?;
    tape.wait("a failover", |_, view| view.contains("WithPrimary") && view.contains(&gone))?;
    set.restart(primary)?;
    tape.wait_until_whole()
}

fn freeze(set: &mut ReplicaSet, tape: &Tape) -> Outcome {
    let primary = set.wait_for_primary(GENEROUS)?;
    let gone = format!("{} Unknown", address(set, primary));
    set.freeze(primary)?;
    tape.wait("a time-out and a failover", |text, view| {
        let timed_out = text.contains(r#""cause":"timeout""#);
        timed_out && view.contains("WithPrimary") && view.contains(&gone)
    })?;
    set.thaw(primary)?;
    tape.wait_until_whole()
}

fn reconfig(set: &mut ReplicaSet, tape: &Tape) -> Outcome {
    set.add_member(&Member::default())?;
    let new = format!("{} RSSecondary", address(set, set.members().len() - 1));
    tape.wait("a new member", |_, view| view.contains(&new))?;
    let removed = usize::from(set.wait_for_primary(GENEROUS)? == 0);
    let removed = set.remove_member(removed)?;
    let gone = format!(r#""address":"{}"}}"#, removed.address());
    tape.wait("a member that has left", |text, _| {
        text.lines().any(|line| line.contains(r#""serverClosed""#) && line.contains(&gone))
    })
}

fn address(set: &ReplicaSet, index: usize) -> String {
    set.members()[index].address().to_string()
}

/// Replays a recording, as it is and with a byte changed.
fn check(recorded: &[u8]) -> Outcome {
    let trace = Trace::parse(recorded)?;
    let replay = Replay::new(&trace).ok_or("the beginning is missing")?;
    if replay.rewrite().as_bytes() != recorded {
        return Err("the replay is not the same, byte for byte".into());
    }
    let text = String::from_utf8_lossy(recorded);
    if text.contains("planted") || text.contains("sesame") || !text.contains("topologyClosed") {
        return Err(format!("there are secrets in it, or no end:\n{text}").into());
    }
    let (code, out, err) = replay_of(recorded)?;
    if code != Some(0) || !out.contains("replayed exactly") {
        return Err(format!("exit code {code:?}: {out}{err}").into());
    }
    for at in [recorded.len() / 3, recorded.len() / 2, recorded.len() - 9] {
        let mut changed = recorded.to_vec();
        changed[at] = if changed[at] == b'7' { b'8' } else { b'7' };
        let line = 1 + recorded[..at].iter().filter(|byte| **byte == b'\n').count();
        let (code, out, err) = replay_of(&changed)?;
        if code != Some(2) || !err.contains(&format!(" line {line}: ")) {
            let said = format!("byte {at} of line {line} was changed, exit code {code:?}");
            return Err(format!("{said}: {out}{err}").into());
        }
    }
    Ok(())
}

fn replay_of(trace: &[u8]) -> Result<(Option<i32>, String, String), Box<dyn std::error::Error>> {
    let path = env::temp_dir().join(format!("sdam-{}-replay.trace", thread_name()));
    fs::write(&path, trace)?;
    let output = Command::new(env!("CARGO_BIN_EXE_sdam")).arg("replay").arg(&path).output()?;
    fs::remove_file(&path)?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok((output.status.code(), text(&output.stdout), text(&output.stderr)))
}

/// Tests run side by side, each with files of its own.
fn thread_name() -> String {
    format!("{}-{:?}", process::id(), thread::current().id())
        .replace(|c: char| !c.is_ascii_alphanumeric(), "-")
}
