//! The client that applications hold.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use sdam_core::description::{ServerDescription, TopologyDescription};
use sdam_core::host::{Events, Host, Runtime, Views};
use sdam_core::metadata::{DriverInfo, Environment};
use sdam_core::options::Options;
use sdam_core::selection::{Criteria, SelectionError};
use sdam_core::time::Instant;
use sdam_core::transport::LoginError;
#[cfg(feature = "tls")]
use sdam_core::transport::TlsConfig;
use tokio::runtime::Handle;

use crate::connector::Connector;
use crate::dialer::{Dialer, Route};
use crate::runtime::{Tokio, keep_time};

/// A client: it discovers a deployment and keeps watch over it until its last clone is dropped.
#[derive(Clone, Debug)]
pub struct Client {
    host: Arc<Host<Tokio>>,
    origin: SystemTime,
    selection_timeout: Duration,
}

/// Why a client could not be created.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The thread is in no tokio runtime.
    #[error("a client must be created inside a tokio runtime: {0}")]
    NoRuntime(#[from] tokio::runtime::TryCurrentError),
    /// The operating system gave no randomness.
    #[error("the operating system gave no random seed: {0}")]
    NoSeed(#[from] getrandom::Error),
    /// The options ask for TLS, but this build cannot do it.
    #[error("the options ask for TLS, which needs the feature tls")]
    TlsUnsupported,
    /// There is a configuration of TLS, but the options do not ask for TLS.
    #[error("there is a TLS configuration, but the options ask for no TLS; write tls=true")]
    TlsNotAskedFor,
    /// The user name or the password for the proxy cannot be sent.
    #[error(transparent)]
    ProxyLogin(#[from] LoginError),
}

impl Client {
    /// Creates a client; discovery begins in the background, and nothing is waited for.
    ///
    /// # Errors
    ///
    /// Fails outside a tokio runtime, and if the operating system gives no random seed. Whether
    /// any server can be reached is not known yet. The files that the options name are read when
    /// connections are made: what is wrong with them is a failure of every server.
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

    /// Starts to create a client that differs from what [`new`](Self::new) would create.
    pub fn builder(options: Options) -> ClientBuilder {
        ClientBuilder {
            options,
            dialer: None,
            #[cfg(feature = "tls")]
            tls: None,
        }
    }

    /// Returns what is known now; it waits for nothing and takes no lock.
    pub fn view(&self) -> Arc<TopologyDescription> {
        self.host.view()
    }

    /// Selects a server for an operation, waiting for one for serverSelectionTimeoutMS at most.
    ///
    /// Cancelling the wait is safe at any point. A time-out of zero selects from what is known
    /// already.
    ///
    /// # Errors
    ///
    /// Fails if no server is suitable in time, and at once if waiting cannot help; the error says
    /// why, for every server.
    ///
    /// ```no_run
    /// # use sdam_core::selection::Criteria;
    /// # async fn example(client: sdam_tokio::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let primary = client.select(Criteria::write()).await?;
    /// println!("writes go to {}", primary.address);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn select(
        &self,
        criteria: impl Into<Arc<Criteria>>,
    ) -> Result<Arc<ServerDescription>, Box<SelectionError>> {
        let deadline = self.now() + self.selection_timeout;
        self.host.select(&criteria.into(), deadline).await
    }

    /// Returns how far the client's clock, which events are stamped with, has come.
    pub fn now(&self) -> Instant {
        self.host.runtime().now()
    }

    /// Subscribes to the events from now on; [`with_events`](Self::with_events) misses none.
    pub fn subscribe(&self) -> Events {
        self.host.subscribe()
    }

    /// Subscribes to the view, beginning with that of now.
    pub fn watch_topology(&self) -> Views {
        self.host.watch()
    }

    /// Asks for a check of every server as soon as possible, though not within 500 ms of its last
    /// check.
    pub fn request_check(&self) {
        self.host.request_check();
    }

    /// Adds the name of a library that wraps this one to the metadata of connections made from now
    /// on; adding the same twice changes nothing.
    pub fn append_metadata(&self, info: DriverInfo) {
        self.host.append_metadata(info);
    }

    /// Translates the time of an event to that of the wall clock when the client was created.
    pub fn wall_clock(&self, at: Instant) -> SystemTime {
        self.origin + at.since_origin()
    }

    /// Closes the client for all its clones; subscriptions end after their last events.
    pub fn close(&self) {
        self.host.close();
    }
}

/// Creates a [`Client`]; see [`Client::builder`].
pub struct ClientBuilder {
    options: Options,
    dialer: Option<Arc<dyn Dialer>>,
    #[cfg(feature = "tls")]
    tls: Option<TlsConfig>,
}

impl ClientBuilder {
    /// Has the byte streams to servers opened by `dialer`, in place of sockets.
    #[must_use]
    pub fn dialer(mut self, dialer: impl Dialer) -> Self {
        self.dialer = Some(Arc::new(dialer));
        self
    }

    /// Uses the application's own TLS configuration in the place of the files that the options
    /// name; the options must ask for TLS.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls(mut self, tls: TlsConfig) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Creates the client, as [`Client::new`] does.
    ///
    /// # Errors
    ///
    /// Fails as [`Client::new`] does.
    pub fn build(self) -> Result<Client, ClientError> {
        self.build_with_events().map(|(client, _)| client)
    }

    /// Creates the client and subscribes to its events, as [`Client::with_events`] does.
    ///
    /// # Errors
    ///
    /// Fails as [`Client::new`] does.
    pub fn build_with_events(self) -> Result<(Client, Events), ClientError> {
        let route = Route { map: self.options.address_map().clone(), dialer: self.dialer };
        #[cfg(feature = "tls")]
        let connector = Connector::new(&self.options, route, self.tls)?;
        #[cfg(not(feature = "tls"))]
        let connector = Connector::new(&self.options, route)?;
        let options = self.options;
        let handle = Handle::try_current()?;
        let selection_timeout = options.server_selection_timeout();
        let seed = getrandom::u64()?;
        let (runtime, alarm) = Tokio::new(handle.clone(), connector);
        let (epoch, origin) = (runtime.epoch(), SystemTime::now());
        let host = Host::new(Arc::new(options), seed, runtime);
        let events = host.subscribe();
        // Nothing has happened yet: the first alarm opens the topology.
        handle.spawn(keep_time(epoch, Arc::downgrade(&host), alarm));
        Ok((Client { host, origin, selection_timeout }, events))
    }
}

impl fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientBuilder").field("options", &self.options).finish_non_exhaustive()
    }
}

/// Looks at what this process runs in, for the metadata of a handshake.
pub fn environment() -> Environment {
    Environment::detect(|name| std::env::var(name).ok(), |path| Path::new(path).exists())
}
