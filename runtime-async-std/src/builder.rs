//! Creates clients.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use sdam_core::config::Options;
use sdam_core::dns::NameServers;
#[cfg(feature = "tls")]
use sdam_core::transport::TlsConfig;
use sdam_host::system::{EnvironmentCredentials, client_seed, environment, log_warnings};
use sdam_host::{
    self as host, ClientError, Connector, CredentialProvider, Deadlines, Events, Host, Recording,
    Resolver, complete_from_dns,
};

use crate::client::Client;
use crate::connect::sleep;
use crate::dialer::Dialer;
use crate::dns::{StubResolver, SystemResolver};
use crate::executor::Executor;
use crate::runtime::{AsyncIo, Streams, sleep_until};

/// Creates clients, those included whose servers are named in DNS.
#[must_use]
pub struct ClientBuilder {
    options: Options,
    executor: Arc<dyn Executor>,
    resolver: Arc<dyn Resolver>,
    dialer: Option<Arc<dyn Dialer>>,
    provider: Arc<dyn CredentialProvider>,
    recording: Option<Recording>,
    #[cfg(feature = "tls")]
    tls: Option<TlsConfig>,
}

impl ClientBuilder {
    pub(crate) fn new(options: Options, executor: impl Executor) -> Self {
        Self {
            options,
            executor: Arc::new(executor),
            resolver: Arc::new(SystemResolver),
            dialer: None,
            provider: Arc::new(EnvironmentCredentials),
            recording: None,
            #[cfg(feature = "tls")]
            tls: None,
        }
    }

    /// Has `dialer` open the byte streams to servers, in place of sockets.
    pub fn dialer(self, dialer: impl Dialer) -> Self {
        Self { dialer: Some(Arc::new(dialer)), ..self }
    }

    /// Uses a TLS configuration of the application's own; of TLS, the options must say `tls=true`
    /// and nothing else.
    #[cfg(feature = "tls")]
    pub fn tls(self, tls: TlsConfig) -> Self {
        Self { tls: Some(tls), ..self }
    }

    /// Asks these name servers, not those in `/etc/resolv.conf`, for SRV and TXT records.
    pub fn name_servers(self, addresses: impl IntoIterator<Item = SocketAddr>) -> Self {
        self.resolver(StubResolver(NameServers::new(addresses)))
    }

    /// Has `resolver` look SRV and TXT records up.
    pub fn resolver(self, resolver: impl Resolver) -> Self {
        Self { resolver: Arc::new(resolver), ..self }
    }

    /// Has `provider` find tokens and credentials of AWS; without it there are no tokens, and the
    /// credentials are those of the environment.
    pub fn credential_provider(self, provider: impl CredentialProvider) -> Self {
        Self { provider: Arc::new(provider), ..self }
    }

    /// Has what the client's topology is told and does recorded, to be replayed by `sdam replay`.
    pub fn record(self, recording: &Recording) -> Self {
        Self { recording: Some(recording.clone()), ..self }
    }

    /// Creates the client; discovery begins in the background, and nothing is waited for.
    ///
    /// What the connection string contained in vain, [`Options::warnings`], is told through
    /// `tracing` with target `sdam`.
    ///
    /// # Errors
    ///
    /// Fails if servers are still to be looked up in DNS, if the options cannot be followed, and
    /// if the operating system gives no random seed. Files that the options name are read later:
    /// what is wrong with them is a failure of every server.
    pub fn build(self) -> Result<Client, ClientError> {
        self.build_with_events().map(|(client, _)| client)
    }

    /// As [`build`](Self::build), with a subscription that misses no event.
    ///
    /// # Errors
    ///
    /// Fails as [`build`](Self::build) does.
    pub fn build_with_events(self) -> Result<(Client, Events), ClientError> {
        ClientError::unless_resolved(&self.options)?;
        #[cfg(not(feature = "tls"))]
        if self.options.tls().is_some() {
            return Err(ClientError::TlsUnsupported);
        }
        let (epoch, origin) = (Instant::now(), SystemTime::now());
        let streams = Streams {
            epoch,
            connector: Connector::new(&self.options)?,
            dialer: self.dialer,
            #[cfg(feature = "tls")]
            tls: sdam_host::system::Certificates::choose(self.options.tls(), self.tls)?,
        };
        let seed = client_seed()?;
        let options = self.options.or_environment(environment);
        log_warnings(&options);
        let (deadlines, timekeeper) = Deadlines::new();
        let runtime = AsyncIo {
            executor: Arc::clone(&self.executor),
            epoch,
            deadlines,
            streams: Arc::new(streams),
            resolver: self.resolver,
            provider: self.provider,
        };
        let host = Host::new(Arc::new(options), seed, runtime);
        let events = host.subscribe();
        self.recording.iter().for_each(|recording| host.record(recording));
        // Nothing has happened yet: the first deadline opens the topology.
        let keep_time = timekeeper.run(Arc::downgrade(&host), move |at| sleep_until(epoch, at));
        self.executor.spawn(Box::pin(keep_time));
        Ok((Client { client: host::Client::new(host), origin }, events))
    }

    /// Looks up the servers if they are named in DNS (`mongodb+srv://`), and creates the client.
    ///
    /// # Errors
    ///
    /// Fails as [`build`](Self::build) does, and if DNS gives no hosts or options that can be used.
    pub async fn connect(self) -> Result<Client, ClientError> {
        self.connect_with_events().await.map(|(client, _)| client)
    }

    /// As [`connect`](Self::connect), with a subscription that misses no event.
    ///
    /// # Errors
    ///
    /// Fails as [`connect`](Self::connect) does.
    pub async fn connect_with_events(mut self) -> Result<(Client, Events), ClientError> {
        let ask = |question| self.resolver.lookup(question);
        self.options = complete_from_dns(&self.options, client_seed()?, ask, sleep).await?;
        self.build_with_events()
    }
}

impl fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientBuilder").field("options", &self.options).finish_non_exhaustive()
    }
}
