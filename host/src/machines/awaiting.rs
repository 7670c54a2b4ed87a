//! The connections over which a server waits for something to happen, such as the next change of a
//! collection. They are interrupted when the client is closed, however long their servers wait.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::Waker;

use crate::process::Process;
use crate::sync::{CancellationToken, Mutex, lock, wake_all};

/// The tokens of these connections, until the client is closed.
#[derive(Default)]
pub(crate) struct Awaiting(Mutex<State>);

#[derive(Default)]
struct State {
    has_ended: bool,
    last: u64,
    tokens: BTreeMap<u64, Arc<CancellationToken>>,
}

/// The time for which a connection is among them.
pub(crate) struct Awaited<'a> {
    awaiting: &'a Awaiting,
    key: u64,
    process: Process,
}

impl Awaiting {
    /// Adds a connection, which is interrupted at once if the client is closed already.
    pub(crate) fn begin(&self, token: &Arc<CancellationToken>, process: Process) -> Awaited<'_> {
        let mut state = lock(&self.0);
        state.last += 1;
        let (key, has_ended) = (state.last, state.has_ended);
        if !has_ended {
            state.tokens.insert(key, Arc::clone(token));
        }
        drop(state);
        if has_ended {
            wake_all(token.end());
        }
        Awaited { awaiting: self, key, process }
    }

    /// Returns whether the client is closed; in a process that was forked off, nothing is known.
    pub(crate) fn have_ended(&self, process: Process) -> bool {
        process.is_current() && lock(&self.0).has_ended
    }

    /// Interrupts all when it is dropped, and those that are added later.
    pub(crate) const fn ending(&self) -> Ending<'_> {
        Ending(self)
    }

    /// Interrupts all, and those that are added later; returns who is to be woken.
    fn end(&self) -> Vec<Waker> {
        let tokens = {
            let mut state = lock(&self.0);
            state.has_ended = true;
            std::mem::take(&mut state.tokens)
        };
        tokens.values().filter_map(|token| token.end()).collect()
    }
}

/// The end of all, as soon as the client is closed.
pub(crate) struct Ending<'a>(&'a Awaiting);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        wake_all(self.0.end());
    }
}

impl Drop for Awaited<'_> {
    fn drop(&mut self) {
        // The lock may be another process's, which never releases it here.
        if self.process.is_current() {
            lock(&self.awaiting.0).tokens.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Arc;
    use std::task::{Wake, Waker};

    use super::{Awaiting, CancellationToken, Process};

    fn token() -> Arc<CancellationToken> {
        Arc::new(CancellationToken::new(None))
    }

    /// "a call that waits fails when the client is closed" (docs/change-streams.md), also one that
    /// begins then, as over a connection that a cursor has for itself.
    #[test]
    fn calls_end_with_their_client_unless_they_have_ended_before() {
        let (awaiting, [before, during, after]) =
            (Awaiting::default(), [token(), token(), token()]);
        drop(awaiting.begin(&before, Process::current()));
        let waits = awaiting.begin(&during, Process::current());
        assert!(!during.is_canceled());
        drop(awaiting.ending());
        assert!(during.is_canceled() && during.has_ended());
        assert!(!before.is_canceled());
        drop(waits);
        drop(awaiting.begin(&after, Process::current()));
        assert!(after.is_canceled() && after.has_ended());
    }

    /// A task that may panic when it is woken.
    struct Woken(bool);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            assert!(!self.0, "as a test wants it");
        }
    }

    /// The same holds while the thread panics already, as by another task that the end has woken.
    #[test]
    fn tasks_that_panic_when_they_are_woken_keep_no_other_asleep() {
        for panics_already in [false, true] {
            let awaiting = Awaiting::default();
            let waiting = [true, false, true, false].map(|it| (token(), Arc::new(Woken(it))));
            let begin = |(token, woken): &(Arc<CancellationToken>, Arc<Woken>)| {
                assert!(!token.is_canceled_or_wake(&Waker::from(Arc::clone(woken))));
                awaiting.begin(token, Process::current())
            };
            let begun = waiting.each_ref().map(begin);
            let ended = catch_unwind(AssertUnwindSafe(|| {
                let _ends = awaiting.ending();
                assert!(!panics_already, "the thread panics");
            }));
            let panic = *ended.unwrap_err().downcast::<&str>().unwrap();
            let first = if panics_already { "the thread panics" } else { "as a test wants it" };
            assert_eq!(panic, first);
            for (token, woken) in &waiting {
                assert!(token.has_ended());
                assert_eq!(Arc::strong_count(woken), 1, "it was woken");
            }
            drop(begun);
            let late = (token(), Arc::new(Woken(true)));
            assert!(catch_unwind(AssertUnwindSafe(|| drop(begin(&late)))).is_err());
        }
    }
}
