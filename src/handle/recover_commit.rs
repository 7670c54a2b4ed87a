//! The question what became of a transaction whose commit has come to no known end.

use std::future::IntoFuture;
use std::time::Duration;

use sdam_core::session::{CommitOutcome, CommitToken};
use sdam_host::Runtime;
use sdam_host::driver::DriverTopology;

use super::awaiting::{ActionFuture, Async};
use crate::error::Error;

/// A commit that is asked for again, see
/// [`Client::recover_commit`](crate::generic::Client::recover_commit).
#[derive(Debug)]
#[must_use = "an action does nothing until it is awaited, or run by a thread"]
pub struct RecoverCommit<H> {
    on: H,
    token: CommitToken,
    timeout: Option<Duration>,
}

impl<H> RecoverCommit<H> {
    pub(crate) const fn new(on: H, token: CommitToken) -> Self {
        Self { on, token, timeout: None }
    }

    /// Sets its `timeoutMS`, zero for none; by default that of the client.
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    #[cfg(feature = "blocking")]
    pub(crate) fn parts(self) -> (H, CommitToken, Option<Duration>) {
        (self.on, self.token, self.timeout)
    }
}

impl<R: Runtime> RecoverCommit<Async<'_, R>> {
    async fn ask(self) -> Result<CommitOutcome, Error> {
        self.on.handle().client.recover_commit(&self.token, self.timeout).await
    }
}

impl<'a, R: Runtime> IntoFuture for RecoverCommit<Async<'a, R>> {
    type Output = Result<CommitOutcome, Error>;
    type IntoFuture = ActionFuture<'a, CommitOutcome>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.ask())
    }
}
