//! Child processes that outlive neither a test nor the process that runs the tests.

use std::ffi::OsStr;
use std::io;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{LazyLock, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// The time that a process that only prints something may take.
const RUN_LIMIT: Duration = Duration::from_secs(60);

/// True if there is a `setpriv` that knows `--pdeathsig`.
static SETPRIV: LazyLock<bool> = LazyLock::new(|| {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "true"]);
    run(command).is_ok_and(|output| output.status.success())
});

/// Returns a command that the kernel kills when this process ends, however it ends.
///
/// That takes `setpriv`, part of util-linux; where it is missing, only [`Drop`] cleans up.
pub(crate) fn dying_with_us(program: impl AsRef<OsStr>) -> Command {
    if !*SETPRIV {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]).arg(program);
    command
}

type Request = (Command, mpsc::Sender<io::Result<Child>>);

/// Starts a process from a thread that lives as long as this process does.
///
/// To the kernel the parent is the thread, not the process: a server started by the thread of one
/// test would be killed when that thread ends, even if the server had been handed on.
pub(crate) fn spawn(command: Command) -> io::Result<Child> {
    static PARENT: LazyLock<mpsc::Sender<Request>> = LazyLock::new(|| {
        let (sender, requests) = mpsc::channel::<Request>();
        thread::spawn(move || {
            for (mut command, reply) in requests {
                // The caller waits for the answer, so there is a receiver.
                let _ = reply.send(command.spawn());
            }
        });
        sender
    });
    let (reply, child) = mpsc::channel();
    let gone = |_| io::Error::other("the thread that starts processes is gone");
    PARENT.send((command, reply)).map_err(|error| gone(error.to_string()))?;
    child.recv().map_err(|error| gone(error.to_string()))?
}

/// Runs a process that prints little and ends soon.
///
/// # Errors
///
/// If it cannot be started or does not end within [`RUN_LIMIT`]; then it is killed.
pub(super) fn run(mut command: Command) -> io::Result<Output> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    let start = Instant::now();
    while child.try_wait()?.is_none() {
        if start.elapsed() > RUN_LIMIT {
            child.kill()?;
            child.wait()?;
            return Err(io::ErrorKind::TimedOut.into());
        }
        thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output()
}
