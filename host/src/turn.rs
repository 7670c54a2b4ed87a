//! One after another: whoever has the turn does what only one may do at a time.

use super::waking::Gate;

/// A turn that one task at a time has.
#[derive(Default)]
pub(super) struct Turns {
    taken: Gate<bool>,
}

/// A turn, until it is dropped.
pub(super) struct Turn<'a>(&'a Turns);

impl Turns {
    /// Waits for the turn.
    pub(super) async fn take(&self) -> Turn<'_> {
        let is_free = |taken: &mut bool| (!std::mem::replace(taken, true)).then_some(());
        self.taken.wait(is_free).await;
        Turn(self)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        // All are woken: the first may have been dropped.
        self.0.taken.change(|taken| {
            *taken = false;
            true
        });
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::{Context, Poll, Wake, Waker};

    use super::Turns;

    #[derive(Default)]
    struct Woken(AtomicU32);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn whoever_still_waits_gets_the_turn_when_others_have_given_up() {
        let (turns, woken) = (Turns::default(), Arc::new(Woken::default()));
        let mut first = Context::from_waker(Waker::noop());
        let waker = Waker::from(Arc::clone(&woken));
        let mut last = Context::from_waker(&waker);
        let Poll::Ready(turn) = pin!(turns.take()).poll(&mut first) else { panic!("free") };
        let mut waits = pin!(turns.take());
        {
            let mut given_up = pin!(turns.take());
            assert!(given_up.as_mut().poll(&mut first).is_pending());
            assert!(waits.as_mut().poll(&mut last).is_pending());
            assert!(waits.as_mut().poll(&mut last).is_pending());
        }
        drop(turn);
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
        let Poll::Ready(_turn) = waits.as_mut().poll(&mut last) else { panic!("free again") };
        assert!(pin!(turns.take()).poll(&mut first).is_pending());
    }
}
