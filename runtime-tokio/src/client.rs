//! The client that applications hold.

use std::ops::Deref;
use std::time::{Duration, SystemTime};

use sdam_core::config::Options;
use sdam_core::time::Instant;
use sdam_host::{self as host, Events, Settings};

pub use sdam_host::ClientError;

use crate::builder::ClientBuilder;
use crate::runtime::{Tokio, TokioReactor};

/// A client: it discovers a deployment and keeps watch over it until its last clone is dropped.
///
/// What it can do is told at [`host::Client`], which it derefs to.
#[derive(Clone, Debug)]
pub struct Client {
    client: host::Client<Tokio>,
    origin: SystemTime,
}

/// A server that was selected.
pub type Server = host::Selected<Tokio>;

/// A connection in use.
pub type CheckedOut = host::CheckedOut<Tokio>;

/// The replies to one command, as they come.
pub type Exhaust<'a> = host::Exhaust<'a, Tokio>;

impl Client {
    /// Creates a client; discovery begins in the background, and nothing is waited for.
    ///
    /// What the connection string contained in vain, [`Options::warnings`], is told through
    /// `tracing` with target `sdam`.
    ///
    /// Servers that are named in DNS (`mongodb+srv://`) must be looked up first, as
    /// [`connect`](Self::connect) does.
    ///
    /// # Errors
    ///
    /// Fails outside a tokio runtime, if the servers are still to be looked up in DNS, and if the
    /// operating system gives no random seed. Whether any server can be reached is not known yet.
    /// The files that the options name are read when connections are made: what is wrong with them
    /// is a failure of every server.
    ///
    /// # Panics
    ///
    /// The client's tasks panic if the runtime has neither its I/O nor its time driver enabled
    /// ([`enable_all`](tokio::runtime::Builder::enable_all)).
    pub fn new(options: Options) -> Result<Self, ClientError> {
        Self::with_events(options).map(|(client, _)| client)
    }

    /// Creates a client and subscribes to its events from the very first one.
    ///
    /// # Errors
    ///
    /// Fails as [`new`](Self::new) does.
    pub fn with_events(options: Options) -> Result<(Self, Events), ClientError> {
        Self::builder(options).build_with_events()
    }

    /// Looks up the servers if they are named in DNS (`mongodb+srv://`), and creates a client.
    ///
    /// It is the one constructor that does I/O, for SRV and TXT records alone: it asks the name
    /// servers of `/etc/resolv.conf`; [`builder`](Self::builder) has other ways.
    ///
    /// # Errors
    ///
    /// Fails as [`new`](Self::new) does, and if DNS gives no hosts or options that can be used.
    ///
    /// # Panics
    ///
    /// As [`new`](Self::new).
    pub async fn connect(options: Options) -> Result<Self, ClientError> {
        Self::builder(options).connect().await
    }

    /// Starts to create a client that differs from what [`new`](Self::new) would create.
    pub fn builder(options: Options) -> ClientBuilder {
        ClientBuilder::new(options)
    }

    pub(crate) fn start(
        settings: Settings,
        reactor: TokioReactor,
    ) -> Result<(Self, Events), ClientError> {
        let blueprint = settings.blueprint()?;
        let origin = SystemTime::now();
        let (client, events) = blueprint.client(reactor);
        Ok((Self { client, origin }, events))
    }

    /// Translates the time of an event to that of the wall clock when the client was created.
    pub fn wall_clock(&self, at: Instant) -> SystemTime {
        self.origin + at.since_origin()
    }

    /// As [`host::Client::by`].
    #[must_use]
    pub fn by(&self, deadline: Instant) -> Self {
        Self { client: self.client.by(deadline), origin: self.origin }
    }

    /// As [`host::Client::within`].
    #[must_use]
    pub fn within(&self, time: Duration) -> Self {
        self.by(self.now() + time)
    }
}

impl Deref for Client {
    type Target = host::Client<Tokio>;

    fn deref(&self) -> &Self::Target {
        &self.client
    }
}
