//! The steps of a failover while another driver's log of it is written.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use super::error::poll;
use super::replica_set::SETTLE_LIMIT;
use super::{Binary, HarnessError, Options, ReplicaSet};

/// The time that the set is left alone before, between and after what is done to it.
const CALM: Duration = Duration::from_secs(4);

/// The time that the program may take to begin, and to end once it is asked to.
const PROGRAM_LIMIT: Duration = Duration::from_secs(60);

/// Has a program watch a set of three while its primary steps down, and while the next one is
/// killed and started again; what the program prints is written to `log`.
///
/// The program finds the connection string in the environment variable `SDAM_URI`, prints its first
/// line once it has begun, and ends when its standard input does.
///
/// # Errors
///
/// Says which step failed, of the set or of the program.
///
/// # Panics
///
/// Panics if `command` is empty.
pub fn log_failovers(binary: &Binary, command: &[String], log: &Path) -> Result<(), HarnessError> {
    let mut set = ReplicaSet::start(binary, 3, &Options::default())?;
    let seeds: Vec<String> = set.seed_list().iter().map(ToString::to_string).collect();
    let uri = format!("mongodb://{}/?replicaSet={}", seeds.join(","), set.set_name());
    let mut program = start(command, &uri, log)?;
    let outcome = begun(log).and_then(|()| befall(&mut set));
    drop(program.stdin.take());
    let ended = ended(&mut program);
    outcome.and(ended)
}

fn befall(set: &mut ReplicaSet) -> Result<(), HarnessError> {
    thread::sleep(CALM);
    set.step_down()?;
    set.wait_until_settled(SETTLE_LIMIT)?;
    thread::sleep(CALM);
    let primary = set.primary()?;
    set.kill(primary)?;
    set.wait_for_primary(SETTLE_LIMIT)?;
    thread::sleep(CALM);
    set.restart(primary)?;
    set.wait_until_settled(SETTLE_LIMIT)?;
    thread::sleep(CALM);
    Ok(())
}

fn start(command: &[String], uri: &str, log: &Path) -> Result<Child, HarnessError> {
    let (name, arguments) = command.split_first().expect("a program");
    let file = File::create(log).map_err(HarnessError::io(format!("create {}", log.display())))?;
    Command::new(name)
        .args(arguments)
        .env("SDAM_URI", uri)
        .stdin(Stdio::piped())
        .stdout(file)
        .spawn()
        .map_err(HarnessError::io(format!("start {name}")))
}

/// Waits for the first line.
fn begun(log: &Path) -> Result<(), HarnessError> {
    poll("the first line of a program", PROGRAM_LIMIT, || match fs::metadata(log) {
        Ok(file) if file.len() > 0 => Ok(()),
        Ok(_) => Err("it has printed nothing".to_owned()),
        Err(error) => Err(error.to_string()),
    })
}

/// Waits until the program has ended, and kills it if it does not.
pub(super) fn ended(program: &mut Child) -> Result<(), HarnessError> {
    let status = poll("the end of a program", PROGRAM_LIMIT, || match program.try_wait() {
        Ok(Some(status)) => Ok(status),
        Ok(None) => Err("it goes on".to_owned()),
        Err(error) => Err(error.to_string()),
    });
    if status.is_err() {
        // It may have ended by now, and is not waited for any longer.
        let _ = program.kill();
        let _ = program.wait();
    }
    match status? {
        status if status.success() => Ok(()),
        status => Err(HarnessError::Program { status }),
    }
}
