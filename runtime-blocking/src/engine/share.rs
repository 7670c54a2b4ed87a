//! The engine that the clients of a process share, and its thread.

use std::io;
use std::ops::Deref;
use std::sync::Arc;
use std::task::Waker;
use std::thread;

use arc_swap::ArcSwapOption;

use super::{Engine, EngineMode};

/// The engine of the clients that have a thread, while there is one.
///
/// Without a lock, which a process that is forked off could find taken: what it finds here is its
/// parent's then, and it makes one of its own.
static SHARED: ArcSwapOption<Engine> = ArcSwapOption::const_empty();

/// An engine that a client is about to start tasks on, and which does not end before this is
/// dropped.
pub(crate) struct Joining(Arc<Engine>);

impl Joining {
    /// Returns the engine for one more client, which is driven: the one that all clients of the
    /// process share, or one of its own if callers drive it.
    ///
    /// # Errors
    ///
    /// Fails if the system has no thread, or nothing that waits for sockets.
    pub(crate) fn new(mode: EngineMode) -> io::Result<Self> {
        let engine = || Engine::new(mode).map(Self::first);
        if mode == EngineMode::Callers {
            return engine();
        }
        loop {
            let known = SHARED.load_full();
            let ours = known.as_ref().filter(|engine| engine.is_ours());
            if let Some(joining) = ours.and_then(Self::next) {
                return Ok(joining);
            }
            let joining = engine()?;
            start(&joining)?;
            let found = SHARED.compare_and_swap(&known, Some(Arc::clone(&joining)));
            // If another thread was faster, all use its engine, and this one ends.
            if found.as_ref().map(Arc::as_ptr) == known.as_ref().map(Arc::as_ptr) {
                if known.as_ref().is_some_and(|engine| !engine.is_ours()) {
                    // What is in it is the parent's.
                    std::mem::forget(known);
                }
                return Ok(joining);
            }
        }
    }

    fn first(engine: Arc<Engine>) -> Self {
        engine.lock().joining += 1;
        Self(engine)
    }

    /// Joins an engine unless it has ended.
    fn next(engine: &Arc<Engine>) -> Option<Self> {
        let mut state = engine.lock();
        if state.ended {
            return None;
        }
        state.joining += 1;
        drop(state);
        Some(Self(Arc::clone(engine)))
    }
}

impl Deref for Joining {
    type Target = Arc<Engine>;

    fn deref(&self) -> &Arc<Engine> {
        &self.0
    }
}

impl Drop for Joining {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.joining -= 1;
        let waits_for_end = if state.is_idle() { state.waits_for_end.take() } else { None };
        drop(state);
        waits_for_end.into_iter().for_each(Waker::wake);
    }
}

/// Starts a thread that drives an engine until the last task has ended.
pub(super) fn start(engine: &Arc<Engine>) -> io::Result<()> {
    let ending = Ending(Arc::clone(engine));
    let run = move || ending.0.block_on(ending.0.end());
    thread::Builder::new().name("sdam-poller".to_owned()).spawn(run).map(drop)
}

/// Gives up what is left when the thread ends, also by a panic; the next client makes another
/// engine.
struct Ending(Arc<Engine>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.give_up();
        SHARED.compare_and_swap(&Some(Arc::clone(&self.0)), None);
    }
}
