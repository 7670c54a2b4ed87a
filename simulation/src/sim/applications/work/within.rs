//! Something that is waited for no longer than so.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use crate::virtual_time::VirtualTime;

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
