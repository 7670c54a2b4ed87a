//! The client that applications hold.

use std::ops::Deref;
use std::time::{Duration, SystemTime};

use sdam_core::config::Options;
use sdam_core::time::Instant;
use sdam_host::{self as host, ClientError, Events};

use crate::builder::ClientBuilder;
use crate::executor::Executor;
use crate::runtime::AsyncIo;

/// A server that was selected.
pub type Server = host::Selected<AsyncIo>;

/// A connection in use.
pub type CheckedOut = host::CheckedOut<AsyncIo>;

/// The replies to one command, as they come.
pub type Exhaust<'a> = host::Exhaust<'a, AsyncIo>;

/// A client: it discovers a deployment and keeps watch over it until its last clone is dropped.
///
/// What it can do is told at [`host::Client`], which it derefs to.
#[derive(Clone, Debug)]
pub struct Client {
    pub(crate) client: host::Client<AsyncIo>,
    pub(crate) origin: SystemTime,
}

impl Client {
    /// Creates a client whose tasks run on `executor`; discovery begins in the background.
    ///
    /// # Errors
    ///
    /// Fails as [`ClientBuilder::build`] does.
    pub fn new(options: Options, executor: impl Executor) -> Result<Self, ClientError> {
        Self::builder(options, executor).build()
    }

    /// As [`new`](Self::new), with a subscription that misses no event.
    ///
    /// # Errors
    ///
    /// Fails as [`ClientBuilder::build`] does.
    pub fn with_events(
        options: Options,
        executor: impl Executor,
    ) -> Result<(Self, Events), ClientError> {
        Self::builder(options, executor).build_with_events()
    }

    /// As [`new`](Self::new), after the servers of `mongodb+srv://` were looked up in DNS.
    ///
    /// # Errors
    ///
    /// Fails as [`ClientBuilder::connect`] does.
    pub async fn connect(options: Options, executor: impl Executor) -> Result<Self, ClientError> {
        Self::builder(options, executor).connect().await
    }

    /// Starts to create a client that differs from what [`new`](Self::new) would create.
    pub fn builder(options: Options, executor: impl Executor) -> ClientBuilder {
        ClientBuilder::new(options, executor)
    }

    /// As [`host::Client::by`].
    #[must_use]
    pub fn by(&self, deadline: Instant) -> Self {
        Self { client: self.client.by(deadline), ..*self }
    }

    /// As [`host::Client::within`].
    #[must_use]
    pub fn within(&self, time: Duration) -> Self {
        Self { client: self.client.within(time), ..*self }
    }

    /// Translates the time of an event to that of the wall clock when the client was created.
    pub fn wall_clock(&self, at: Instant) -> SystemTime {
        self.origin + at.since_origin()
    }
}

impl Deref for Client {
    type Target = host::Client<AsyncIo>;

    fn deref(&self) -> &host::Client<AsyncIo> {
        &self.client
    }
}
