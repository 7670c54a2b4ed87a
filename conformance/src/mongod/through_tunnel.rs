//! A set behind `sdam tunnel` that loses its primary twice, while other drivers use it.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::failover::ended;
use super::replica_set::SETTLE_LIMIT;
use super::{Binary, HarnessError, Options, ReplicaSet};

/// The time that a program may take for the next line.
const LIMIT: Duration = Duration::from_secs(90);

/// A process that prints lines.
struct Program {
    name: String,
    process: Child,
    input: Option<ChildStdin>,
    lines: Arc<Lines>,
    /// The number of lines that were waited for.
    seen: usize,
}

/// The lines that were printed so far.
#[derive(Default)]
struct Lines {
    printed: Mutex<Vec<String>>,
    news: Condvar,
}

impl Program {
    fn start(name: &str, mut command: Command) -> Result<Self, HarnessError> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().map_err(HarnessError::io(format!("start {name}")))?;
        let (output, lines) = (process.stdout.take(), Arc::<Lines>::default());
        let shared = Arc::clone(&lines);
        thread::spawn(move || {
            let output = output.into_iter().flat_map(|output| BufReader::new(output).lines());
            for line in output.map_while(Result::ok) {
                shared.printed.lock().unwrap_or_else(PoisonError::into_inner).push(line);
                shared.news.notify_all();
            }
        });
        let (input, name) = (process.stdin.take(), name.to_owned());
        Ok(Self { name, process, input, lines, seen: 0 })
    }

    /// Waits for the next line that begins so, and returns the rest of it.
    fn expect(&mut self, beginning: &str) -> Result<String, HarnessError> {
        let deadline = Instant::now() + LIMIT;
        let mut printed = self.lines.printed.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            while let Some(line) = printed.get(self.seen) {
                self.seen += 1;
                if let Some(rest) = line.strip_prefix(beginning) {
                    return Ok(rest.trim().to_owned());
                }
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(HarnessError::TimedOut {
                    awaited: format!("{beginning:?} of {}", self.name),
                    waited: LIMIT,
                    last: printed.join("\n"),
                });
            }
            let waited = self.lines.news.wait_timeout(printed, left);
            printed = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn send(&mut self, line: &str) -> Result<(), HarnessError> {
        let input = self.input.as_mut().expect("it reads until it ends");
        writeln!(input, "{line}").map_err(HarnessError::io(format!("send a line to {}", self.name)))
    }

    /// Closes its input, and waits until it has ended well.
    fn end(&mut self) -> Result<(), HarnessError> {
        self.input = None;
        ended(&mut self.process)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended before.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Starts a set of three whose names no other process can resolve, and `sdam tunnel` in front of
/// it; has all programs use it at the same time, while its primary steps down, and while the next
/// one is killed.
///
/// A program finds the connection string in the variable `SDAM_URI`. It prints `ready` when it has
/// seen the whole set, written, and read from a secondary; `followed` for each line that it
/// receives, when it has found another primary after that and written to it; and it ends well when
/// its standard input does, if nothing that it has written is lost.
///
/// # Errors
///
/// Says which step failed, of the set, of the tunnel or of a program.
///
/// # Panics
///
/// Panics if a program is empty.
pub fn follow_through_tunnel(
    binary: &Binary,
    sdam: &Path,
    programs: &[Vec<String>],
) -> Result<(), HarnessError> {
    let private_names = (1..=3).map(|n| format!("db{n}.sdam.invalid")).collect();
    let options = Options { private_names, ..Options::default() };
    let mut set = ReplicaSet::start(binary, 3, &options)?;
    let seeds: Vec<String> = set.seed_list().iter().map(ToString::to_string).collect();
    let uri = format!("mongodb://{}/?replicaSet={}", seeds.join(","), set.set_name());
    let mut tunnel = Command::new(sdam);
    tunnel.args(["tunnel", "--map", "*.sdam.invalid=127.0.0.1", &uri]);
    let mut tunnel = Program::start("sdam tunnel", tunnel)?;
    let uri = format!("mongodb://{}", tunnel.expect("mongodb://")?);
    let start = |program: &Vec<String>| {
        let (name, arguments) = program.split_first().expect("a program");
        let mut command = Command::new(name);
        command.args(arguments).env("SDAM_URI", &uri);
        Program::start(&program.join(" "), command)
    };
    let mut programs: Vec<_> = programs.iter().map(start).collect::<Result<_, _>>()?;
    programs.iter_mut().try_for_each(|program| program.expect("ready").map(drop))?;

    set.step_down()?;
    follow("step-down", &mut programs)?;
    set.wait_until_settled(SETTLE_LIMIT)?;
    set.kill(set.primary()?)?;
    follow("kill", &mut programs)?;
    programs.iter_mut().try_for_each(Program::end)
}

/// Sends each program what has happened, and waits until all have followed.
fn follow(what: &str, programs: &mut [Program]) -> Result<(), HarnessError> {
    programs.iter_mut().try_for_each(|program| program.send(what))?;
    programs.iter_mut().try_for_each(|program| {
        let primary = program.expect("followed")?;
        println!("{} has followed the {what} {primary}", program.name);
        Ok(())
    })
}
