//! Checking connections out of a pool, and in again.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::mailbox::Mailbox;
use super::select::Selection;
use super::server::{Boxed, Delivery, Server};
use super::sync::atomic::Ordering;
use super::{CheckedOut, Runtime, lock};
use sdam_core::id::WaiterId;
use sdam_core::pool::{CheckOutError, Input, Lease};
use sdam_core::time::Instant;

impl<R: Runtime> Server<R> {
    /// Checks out a connection: an idle one at once, or else the next that becomes available.
    ///
    /// This server was named, and not selected: commands say so, see [`CheckedOut::command`]. With
    /// [`Selected::check_out`](super::Selected::check_out), they say what it was selected for.
    ///
    /// Cancelling the wait is safe at any point.
    ///
    /// # Errors
    ///
    /// Fails when the pool is paused or closed, when the connection that is established for this
    /// operation fails, and at `deadline`, or without one after waitQueueTimeoutMS; in the
    /// single-threaded mode also if the connection has been idle for 5 s and is found dead, see
    /// [`CheckOutError::IdleConnection`].
    pub async fn check_out(
        self: &Arc<Self>,
        deadline: Option<Instant>,
    ) -> Result<CheckedOut<R>, Box<CheckOutError>> {
        self.check_out_for(None, deadline).await
    }

    /// As [`check_out`](Self::check_out), for what the server was selected for.
    pub(super) async fn check_out_for(
        self: &Arc<Self>,
        selection: Option<Selection>,
        deadline: Option<Instant>,
    ) -> Result<CheckedOut<R>, Box<CheckOutError>> {
        self.unless_forked()?;
        let operation = Operation::new(self);
        let mut newest = None;
        loop {
            let (lease, mut connection) = match self.try_check_out() {
                Some(idle) => idle,
                None => Waiting::new(self, deadline).await?,
            };
            // One that was made since the first was found dead is handed out as it is: whether a
            // server hangs up on every new connection, too, is for the topology to know.
            let is_new = newest.is_some_and(|newest| lease.connection > newest);
            if is_new || connection.is_quiet() {
                let mut loan = CheckedOut::new((operation, selection), lease, connection, deadline);
                loan.check_after_idling().await?;
                return Ok(loan);
            }
            // The peer has closed it or talks unasked, and nobody need find out the hard way.
            newest.get_or_insert_with(|| lock(&self.state).pool.newest());
            self.check_in(lease, None);
        }
    }

    /// Refuses a process that was forked off: the pool is its parent's, and perhaps locked for
    /// ever.
    pub(super) fn unless_forked(&self) -> Result<(), Box<CheckOutError>> {
        self.shared().process.check().map_err(|forked| {
            Box::new(CheckOutError::Forked { address: self.address().clone(), forked })
        })
    }

    /// The hot path, which has no events to tell.
    fn try_check_out(&self) -> Option<(Lease, Boxed<R>)> {
        match self.shared().events.any() {
            true => None,
            false => lock(&self.state).pool.try_check_out(self.time()),
        }
    }

    /// Takes a connection back, or `None` for one that is of no more use.
    pub(super) fn check_in(&self, lease: Lease, mut connection: Option<Boxed<R>>) {
        if let Some(mut returned) = connection.take() {
            returned.idle_since = self.idle_since();
            if self.shared().events.any() {
                connection = Some(returned);
            } else {
                let mut state = lock(&self.state);
                match state.pool.try_check_in(self.time(), lease, returned) {
                    Ok(()) => {
                        let tells = self.rearm_if_sooner(&mut state);
                        drop(state);
                        if tells {
                            self.shared().alarm.tell(&self.shared().runtime);
                        }
                        return;
                    }
                    Err(returned) => connection = Some(returned),
                }
            }
        } else {
            // It may still know whom to wake, and is dropped when the lock is free.
            let switch = lock(&self.state).switches.remove(&lease.connection);
            drop(switch);
        }
        self.handle(Input::CheckIn { lease, connection });
    }
}

/// An operation that waits for a connection or has one, for `operationCount`.
pub(super) struct Operation<R: Runtime>(pub(super) Arc<Server<R>>);

impl<R: Runtime> Operation<R> {
    fn new(server: &Arc<Server<R>>) -> Self {
        server.operations.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(server))
    }
}

impl<R: Runtime> Drop for Operation<R> {
    fn drop(&mut self) {
        self.0.operations.fetch_sub(1, Ordering::Relaxed);
    }
}

/// One operation's wait for a connection; dropping it ends the wait.
struct Waiting<'a, R: Runtime> {
    server: &'a Server<R>,
    waiter: WaiterId,
    delivery: Arc<Mailbox<Delivery<R>>>,
}

impl<'a, R: Runtime> Waiting<'a, R> {
    fn new(server: &'a Server<R>, deadline: Option<Instant>) -> Self {
        let waiter = WaiterId(server.next_waiter.fetch_add(1, Ordering::Relaxed));
        let delivery = Arc::new(Mailbox::new(1));
        lock(&server.state).waiters.insert(waiter, Arc::clone(&delivery));
        server.handle(Input::CheckOut { waiter, deadline });
        Self { server, waiter, delivery }
    }
}

impl<R: Runtime> Future for Waiting<'_, R> {
    type Output = Delivery<R>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.delivery.poll_next(cx) {
            Poll::Ready(Some(delivery)) => Poll::Ready(delivery),
            // The mailbox is never closed.
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
        }
    }
}

impl<R: Runtime> Drop for Waiting<'_, R> {
    fn drop(&mut self) {
        let (server, waiter) = (self.server, self.waiter);
        if !server.shared().process.is_current() {
            return;
        }
        if lock(&server.state).waiters.contains_key(&waiter) {
            server.handle(Input::Abandon { waiter });
            lock(&server.state).waiters.remove(&waiter);
        }
        // It was delivered, and nobody has taken it.
        if let Some(Ok((lease, connection))) = self.delivery.try_next() {
            server.check_in(lease, Some(connection));
        }
    }
}
