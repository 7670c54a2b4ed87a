//! Waiting for something, but not for ever.

use std::future::Future;
use std::pin::pin;
use std::task::Poll;

/// Waits for `work`, or gives it up with `None` when `end` comes first.
pub(super) async fn before<T>(end: impl Future, work: impl Future<Output = T>) -> Option<T> {
    let (mut work, mut end) = (pin!(work), pin!(end));
    std::future::poll_fn(|cx| match work.as_mut().poll(cx) {
        Poll::Ready(done) => Poll::Ready(Some(done)),
        Poll::Pending => end.as_mut().poll(cx).map(|_| None),
    })
    .await
}
