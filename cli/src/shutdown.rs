//! The end of what a command does: after its time, or at a signal.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal as Kill, kill_process};
use tokio::sync::oneshot;

use crate::complain;

/// The time that the last events may take to be written after a signal.
const GRACE: Duration = Duration::from_secs(5);

/// The end of what the process does.
#[derive(Debug)]
pub(crate) struct Shutdown {
    over: oneshot::Receiver<End>,
    reached: Option<End>,
    companion: Companion,
    /// The time that the command needs after a signal for what it has begun.
    clean_up: Arc<OnceLock<Duration>>,
    /// Called before the process ends at once.
    last: Arc<OnceLock<fn()>>,
}

/// Another process, which is not to stay when this one ends at once.
#[derive(Clone, Debug, Default)]
pub(crate) struct Companion(Arc<Mutex<Option<u32>>>);

impl Companion {
    /// Goes with the process of this number from now on.
    pub(crate) fn join(&self, process: Option<u32>) {
        *self.get() = process;
    }

    /// Goes with that process no more, which has ended or is being ended.
    pub(crate) fn leave(&self, process: Option<u32>) {
        let mut companion = self.get();
        if *companion == process {
            *companion = None;
        }
    }

    fn kill(&self) {
        let process = self.get().and_then(|process| Pid::from_raw(process.try_into().ok()?));
        // It may have ended by itself a moment ago.
        let _ = process.map(|process| kill_process(process, Kill::KILL));
    }

    fn get(&self) -> MutexGuard<'_, Option<u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The reason why it is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Its time is up.
    Time,
    /// Somebody has asked for it.
    Signal(Signal),
}

/// A signal that asks the process to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// SIGINT, which Ctrl-C sends.
    Interrupt,
    /// SIGTERM.
    #[cfg(unix)]
    Terminate,
}

impl Signal {
    /// Returns the exit code of a command that was ended before it was done, as shells have it: 128
    /// and the number of the signal.
    pub(crate) const fn exit_code(self) -> u8 {
        match self {
            Self::Interrupt => 130,
            #[cfg(unix)]
            Self::Terminate => 143,
        }
    }
}

impl Shutdown {
    /// Ends after `limit`, if there is one, and at SIGINT or SIGTERM.
    ///
    /// A second signal ends the process at once; [`GRACE`] after the first, it ends even if what it
    /// writes is not read.
    ///
    /// # Errors
    ///
    /// Fails if signals cannot be received.
    pub(crate) fn arrange(limit: Option<Duration>) -> io::Result<Self> {
        let mut signals = Signals::new()?;
        let (over, shutdown) = oneshot::channel();
        let shutdown = Self {
            over: shutdown,
            reached: None,
            companion: Companion::default(),
            clean_up: Arc::default(),
            last: Arc::default(),
        };
        let companion = shutdown.companion();
        let (clean_up, last) = (Arc::clone(&shutdown.clean_up), Arc::clone(&shutdown.last));
        tokio::spawn(async move {
            let time_is_up = async {
                match limit {
                    Some(limit) => tokio::time::sleep(limit).await,
                    None => std::future::pending().await,
                }
            };
            let end = tokio::select! {
                signal = signals.next() => End::Signal(signal),
                () = time_is_up => End::Time,
            };
            // The receiver is gone if the command is over for another reason.
            let _ = over.send(end);
            if end == End::Time {
                signals.next().await;
            }
            let grace = GRACE + clean_up.get().copied().unwrap_or_default();
            let signal = tokio::select! {
                signal = signals.next() => Some(signal),
                () = tokio::time::sleep(grace) => None,
            };
            if let Some(last) = last.get() {
                last();
            }
            if signal.is_none() {
                complain(&"ended before everything was written, because it is not read");
            }
            companion.kill();
            std::process::exit(signal.map_or(1, Signal::exit_code).into());
        });
        Ok(shutdown)
    }

    /// Calls `last` before the process ends at once: what a terminal was set to is undone.
    pub(crate) fn on_end(&self, last: fn()) {
        // A command has one screen.
        let _ = self.last.set(last);
    }

    /// Leaves the command that time besides, after a signal, to undo what it has begun.
    pub(crate) fn allow_clean_up(&self, limit: Duration) {
        // A command says it once.
        let _ = self.clean_up.set(limit);
    }

    /// Returns the place of a process that is killed if this one ends at once.
    pub(crate) fn companion(&self) -> Companion {
        self.companion.clone()
    }

    /// Waits for a work, or for the end: then that is `None`.
    pub(crate) async fn or<T>(&mut self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            done = work => Some(done),
            () = self.reached() => None,
        }
    }

    /// Waits for the end; returns at once if it has come before.
    pub(crate) async fn reached(&mut self) {
        if self.reached.is_none() {
            // An error means that the runtime is going down, which is an end too.
            let end = (&mut self.over).await;
            self.reached = Some(end.unwrap_or(End::Signal(Signal::Interrupt)));
        }
    }

    /// Returns why it is over, if it is.
    pub(crate) const fn end(&self) -> Option<End> {
        self.reached
    }
}

/// The signals that ask a process to end.
#[cfg(unix)]
#[derive(Debug)]
struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    fn new() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.interrupt.recv() => Signal::Interrupt,
            _ = self.terminate.recv() => Signal::Terminate,
        }
    }
}

/// The signals that ask a process to end.
#[cfg(windows)]
#[derive(Debug)]
struct Signals(tokio::signal::windows::CtrlC);

#[cfg(windows)]
impl Signals {
    fn new() -> io::Result<Self> {
        tokio::signal::windows::ctrl_c().map(Self)
    }

    async fn next(&mut self) -> Signal {
        self.0.recv().await;
        Signal::Interrupt
    }
}
