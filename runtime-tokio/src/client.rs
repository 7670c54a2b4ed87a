//! The client that applications hold.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use sdam_core::description::TopologyDescription;
use sdam_core::host::{Events, Host, Runtime, Views};
use sdam_core::metadata::{DriverInfo, Environment};
use sdam_core::options::Options;
use sdam_core::srv::SrvError;
use sdam_core::time::Instant;
use sdam_core::transport::LoginError;
use tokio::runtime::Handle;

use crate::builder::ClientBuilder;
use crate::connector::Connector;
use crate::dns::Resolver;
use crate::provider::CredentialProvider;
use crate::runtime::{Tokio, keep_time};

/// A client: it discovers a deployment and keeps watch over it until its last clone is dropped.
#[derive(Clone, Debug)]
pub struct Client {
    host: Arc<Host<Tokio>>,
    origin: SystemTime,
    /// By when each operation is to end at the latest.
    deadline: Option<Instant>,
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
    /// There is a configuration of TLS, and options that say more than `tls=true`.
    #[error(
        "there is a TLS configuration, so the options may say tls=true but name no files and \
         allow no exceptions"
    )]
    TlsConfiguredTwice,
    /// The user name or the password for the proxy cannot be sent.
    #[error(transparent)]
    ProxyLogin(#[from] LoginError),
    /// There are two sources of tokens for MONGODB-OIDC.
    #[error("there is a provider of tokens, so the options may not name an ENVIRONMENT for them")]
    ProviderAndEnvironment,
    /// The servers are named in DNS, and were not looked up.
    #[error("the servers of {0} are still to be looked up in DNS, which Client::connect does")]
    Unresolved(Arc<str>),
    /// The servers are named in DNS, and cannot be had from there.
    #[error(transparent)]
    Srv(#[from] SrvError),
}

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
        options: Options,
        connector: Connector,
        resolver: Arc<dyn Resolver>,
        provider: Arc<dyn CredentialProvider>,
    ) -> Result<(Self, Events), ClientError> {
        let handle = Handle::try_current()?;
        if let Some(srv) = options.srv().filter(|_| options.seeds().is_empty()) {
            return Err(ClientError::Unresolved(srv.hostname.clone()));
        }
        for warning in options.warnings() {
            tracing::warn!(target: "sdam", "connection string: {warning}");
        }
        let seed = getrandom::u64()?;
        let (runtime, alarm) = Tokio::new(handle.clone(), connector, resolver, provider);
        let (epoch, origin) = (runtime.epoch(), SystemTime::now());
        let host = Host::new(Arc::new(options), seed, runtime);
        let events = host.subscribe();
        // Nothing has happened yet: the first alarm opens the topology.
        handle.spawn(keep_time(epoch, Arc::downgrade(&host), alarm));
        Ok((Self { host, origin, deadline: None }, events))
    }

    /// Returns what is known now; it waits for nothing and takes no lock.
    pub fn view(&self) -> Arc<TopologyDescription> {
        self.host.view()
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

    /// Closes the client for all its clones, and waits until none of its tasks runs any more.
    ///
    /// Operations that wait are told so at once; subscriptions end after their last events.
    /// Connections on loan are not waited for: they are closed when they return. Dropping the last
    /// clone closes a client, too.
    pub async fn close(&self) {
        self.host.close();
        self.host.ended().await;
    }

    pub(crate) const fn host(&self) -> &Arc<Host<Tokio>> {
        &self.host
    }

    /// Returns by when an operation that begins now is to end at the latest.
    pub(crate) fn operation_deadline(&self) -> Option<Instant> {
        let timeout = self.host.options().timeout().filter(|timeout| !timeout.is_zero());
        self.deadline.or_else(|| timeout.map(|timeout| self.now() + timeout))
    }

    /// Returns a client whose every operation ends by `deadline`, a time of [`now`](Self::now): to
    /// select, to check out, to connect and to exchange messages, all of it together.
    ///
    /// It shares everything else. Without it, `timeoutMS` of the options is the limit, anew for
    /// each operation.
    #[must_use]
    pub fn by(&self, deadline: Instant) -> Self {
        Self { host: Arc::clone(&self.host), deadline: Some(deadline), ..*self }
    }

    /// Returns a client whose operations all end before `time` has passed, see [`by`](Self::by).
    #[must_use]
    pub fn within(&self, time: Duration) -> Self {
        self.by(self.now() + time)
    }
}

/// Looks at what this process runs in, for the metadata of a handshake.
pub fn environment() -> Environment {
    Environment::detect(|name| std::env::var(name).ok(), |path| Path::new(path).exists())
}
