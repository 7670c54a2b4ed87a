//! The start of a session of the application's.

use std::future::{IntoFuture, Ready, ready};
use std::time::Duration;

use bson::Timestamp;
use sdam_core::session::{SessionOptions, TransactionOptions};
use sdam_host::driver::DriverTopology;
use sdam_host::{ClientSession, Runtime};

use super::awaiting::Async;
use crate::error::Error;

/// The start of a session, see [`Client::start_session`](crate::generic::Client::start_session).
#[derive(Debug)]
#[must_use = "an action does nothing until it is awaited, or run by a thread"]
pub struct StartSession<H> {
    on: H,
    options: SessionOptions,
}

impl<H> StartSession<H> {
    pub(crate) fn new(on: H) -> Self {
        Self { on, options: SessionOptions::default() }
    }

    /// Sets whether an operation sees what the ones before it have read and written; it does,
    /// unless this is set (Causal Consistency).
    pub fn causal_consistency(mut self, is_consistent: bool) -> Self {
        self.options = self.options.with_causal_consistency(Some(is_consistent));
        self
    }

    /// Sets whether all reads see the data of the same time (Snapshot Reads).
    pub fn snapshot(mut self, is_snapshot: bool) -> Self {
        self.options = self.options.with_snapshot(is_snapshot);
        self
    }

    /// Sets the time of that data, as another session has it ([`ClientSession::snapshot_time`]).
    pub fn snapshot_time(mut self, time: Timestamp) -> Self {
        self.options = self.options.with_snapshot_time(Some(time));
        self
    }

    /// Sets the options of its transactions, where those have none of their own.
    pub fn default_transaction_options(mut self, options: TransactionOptions) -> Self {
        self.options = self.options.with_default_transaction_options(options);
        self
    }

    /// Sets `timeoutMS` of commits, aborts and whole transactions, where they have none of their
    /// own.
    pub fn default_timeout(mut self, timeout: Duration) -> Self {
        self.options = self.options.with_default_timeout(timeout);
        self
    }

    /// Sets all options.
    pub fn with_options(mut self, options: impl Into<Option<SessionOptions>>) -> Self {
        self.options = options.into().unwrap_or_default();
        self
    }

    #[cfg(feature = "blocking")]
    pub(crate) fn parts(self) -> (H, SessionOptions) {
        (self.on, self.options)
    }
}

impl<R: Runtime> StartSession<Async<'_, R>> {
    /// Starts the session at once: nothing is sent, so that nothing is waited for.
    ///
    /// # Errors
    ///
    /// Fails if the options exclude each other.
    pub fn run(self) -> Result<ClientSession<R>, Error> {
        Ok(self.on.handle().client.start_session(self.options)?)
    }
}

impl<R: Runtime> IntoFuture for StartSession<Async<'_, R>> {
    type Output = Result<ClientSession<R>, Error>;
    type IntoFuture = Ready<Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        ready(self.run())
    }
}
