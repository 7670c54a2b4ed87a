//! Creates clients.

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Instant, SystemTime};

use sdam_core::config::Options;
use sdam_core::dns::NameServers;
#[cfg(feature = "tls")]
use sdam_core::transport::TlsConfig;
use sdam_host::system::{EnvironmentCredentials, client_seed, environment, log_warnings};
use sdam_host::{
    ClientError, Connector, CredentialProvider, Recording, Resolver, complete_from_dns,
};

use crate::blueprint::Blueprint;
use crate::client::Client;
use crate::dialer::Dialer;
use crate::dns::{Source, lookup};
use crate::engine::{Driver, Engine};
use crate::helper::Helper;
use crate::subscription::Events;

/// Creates clients, those included whose servers are named in DNS.
#[must_use]
pub struct ClientBuilder {
    options: Options,
    records: Source,
    dialer: Option<Arc<dyn Dialer>>,
    provider: Arc<dyn CredentialProvider>,
    recording: Option<Recording>,
    #[cfg(feature = "tls")]
    tls: Option<TlsConfig>,
}

impl ClientBuilder {
    pub(crate) fn new(options: Options) -> Self {
        Self {
            options,
            records: Source::System,
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
        Self { records: Source::NameServers(NameServers::new(addresses)), ..self }
    }

    /// Has `resolver` look SRV and TXT records up, where it may block.
    pub fn resolver(self, resolver: impl Resolver) -> Self {
        Self { records: Source::Application(Arc::new(resolver)), ..self }
    }

    /// Has `provider` find tokens and credentials of AWS; without it there are no tokens, and the
    /// credentials are those of the environment.
    ///
    /// Its futures are driven one after another on a thread where nobody waits for anything else,
    /// so that they may block.
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
    /// if the operating system gives no thread or no random seed. Files that the options name are
    /// read later: what is wrong with them is a failure of every server.
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
        let blueprint = Blueprint {
            connector: Connector::new(&self.options)?,
            #[cfg(feature = "tls")]
            tls: sdam_host::system::Certificates::choose(self.options.tls(), self.tls)?,
            options: Arc::new(self.options.or_environment(environment)),
            seed: client_seed()?,
            epoch: Instant::now(),
            origin: SystemTime::now(),
            records: self.records,
            dialer: self.dialer,
            provider: self.provider,
        };
        log_warnings(&blueprint.options);
        let engine = Engine::new(blueprint.driver()).map_err(no_thread)?;
        let client = blueprint.client(&blueprint.options, &engine);
        self.recording.iter().for_each(|recording| client.host().record(recording));
        let events = Events::new(client.subscribe(), client.host().runtime());
        engine.start().map_err(no_thread)?;
        Ok((Client::made(blueprint, client), events))
    }

    /// Looks up the servers if they are named in DNS (`mongodb+srv://`), and creates the client.
    ///
    /// # Errors
    ///
    /// Fails as [`build`](Self::build) does, and if DNS gives no hosts or options that can be used.
    pub fn connect(self) -> Result<Client, ClientError> {
        self.connect_with_events().map(|(client, _)| client)
    }

    /// As [`connect`](Self::connect), with a subscription that misses no event.
    ///
    /// # Errors
    ///
    /// Fails as [`connect`](Self::connect) does.
    pub fn connect_with_events(mut self) -> Result<(Client, Events), ClientError> {
        self.options = self.complete_options()?;
        self.build_with_events()
    }

    /// Looks up the servers on this thread.
    fn complete_options(&self) -> Result<Options, ClientError> {
        let engine = Engine::new(Driver::Callers).map_err(no_thread)?;
        let seed = client_seed()?;
        let completed = Arc::new(Mutex::new(None));
        let (options, records) = (self.options.clone(), self.records.clone());
        let (driven, result) = (Arc::clone(&engine), Arc::clone(&completed));
        // As a task, for those are what waits for sockets.
        engine.spawn(Box::pin(async move {
            let ask = |question| lookup(&driven, &Helper::Inline, question, records.clone());
            let sleep = |time| driven.sleep(time);
            let options = complete_from_dns(&options, seed, ask, sleep).await;
            *result.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(options);
        }));
        engine.block_on(engine.end());
        let mut completed = completed.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        match completed.take() {
            Some(completed) => Ok(completed?),
            None => Err(no_thread(std::io::Error::other("waiting for sockets has failed"))),
        }
    }
}

fn no_thread(error: std::io::Error) -> ClientError {
    ClientError::NoThread(error.into())
}

impl fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientBuilder").field("options", &self.options).finish_non_exhaustive()
    }
}
