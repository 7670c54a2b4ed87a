//! Waiting for a time.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use super::Engine;

/// Waits for a time; over only once its engine has looked at what had come by then.
#[must_use]
pub(crate) struct Sleep {
    engine: Arc<Engine>,
    /// `None` if the clock cannot represent that time: it never ends.
    until: Option<Instant>,
    /// Its name among the timers, once it is one of them.
    key: Option<usize>,
}

impl Sleep {
    pub(super) const fn new(engine: Arc<Engine>, until: Option<Instant>) -> Self {
        Self { engine, until, key: None }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Some(until) = self.until else { return Poll::Pending };
        let engine = Arc::clone(&self.engine);
        let mut state = engine.lock();
        let known = self.key;
        let key = known.unwrap_or_else(|| state.new_key());
        self.key = Some(key);
        if known.is_some() && !state.timers.contains_key(&(until, key)) {
            return Poll::Ready(());
        }
        let replaced = state.timers.insert((until, key), cx.waker().clone());
        engine.rouse(state);
        drop(replaced);
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let (Some(until), Some(key)) = (self.until, self.key)
            && self.engine.is_ours()
        {
            let timer = self.engine.lock().timers.remove(&(until, key));
            drop(timer);
        }
    }
}
