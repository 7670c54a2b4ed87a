//! Something that is waited for no longer than so.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::virtual_time::VirtualTime;

/// The time, or the number of polls, after which a future is dropped.
#[derive(Clone, Copy, Debug)]
pub(super) enum Patience {
    Endless,
    Time(Duration),
    /// Wherever it waits for this time.
    Polls(u64),
}

impl Patience {
    /// Returns what a future comes to, unless it is dropped before; then what it has sent is under
    /// way.
    pub(super) async fn with<F: IntoFuture>(
        self,
        time: &VirtualTime,
        future: F,
    ) -> Option<F::Output> {
        let outcome = match self {
            Self::Endless => Some(future.await),
            Self::Time(limit) => within(time, limit, future).await,
            Self::Polls(most) => within_polls(most, future).await,
        };
        if outcome.is_none() {
            time.sleep(Duration::from_nanos(1)).await;
        }
        outcome
    }
}

/// Returns what a future comes to, unless it has to wait for that time: then it is dropped.
async fn within_polls<F: IntoFuture>(time: u64, future: F) -> Option<F::Output> {
    let (mut future, mut polls) = (pin!(future.into_future()), 0);
    poll_fn(|cx: &mut Context<'_>| match future.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => {
            polls += 1;
            if polls < time { Poll::Pending } else { Poll::Ready(None) }
        }
    })
    .await
}

/// Returns what a future comes to, unless the time is over before: then it is dropped.
pub(super) async fn within<F: IntoFuture>(
    time: &VirtualTime,
    limit: Duration,
    future: F,
) -> Option<F::Output> {
    let (mut future, mut timer) = (pin!(future.into_future()), pin!(time.sleep(limit)));
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => timer.as_mut().poll(cx).map(|()| None),
    })
    .await
}
