//! Creates clients.

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, SystemTime};

use sdam_core::config::Options;
use sdam_core::dns::NameServers;
use sdam_core::logging::LogSettings;
use sdam_core::spans::SpanSettings;
use sdam_core::topology::Topics;
#[cfg(feature = "tls")]
use sdam_core::transport::TlsConfig;
use sdam_host::{
    ClientError, CredentialProvider, CredentialSources, Error, Recording, Records, Resolver,
    Settings, Tracer,
};

use crate::blueprint::Blueprint;
use crate::client::Client;
use crate::dialer::Dialer;
use crate::engine::{Engine, EngineMode, Joining};
use crate::helper::Helper;
use crate::runtime::{BlockingReactor, Registry};
use crate::subscription::Events;

/// Creates clients, those included whose servers are named in DNS.
#[derive(Clone)]
#[must_use]
pub struct ClientBuilder {
    settings: Settings,
    dialer: Option<Arc<dyn Dialer>>,
    registry: Option<Registry>,
}

impl ClientBuilder {
    pub(crate) fn new(options: Options) -> Self {
        Self { settings: Settings::new(options), dialer: None, registry: None }
    }

    /// Has `dialer` open the byte streams to servers, in place of sockets.
    pub fn dialer(mut self, dialer: impl Dialer) -> Self {
        self.settings.dials = true;
        self.dialer = Some(Arc::new(dialer));
        self
    }

    /// Has the client share the monitors of `registry` with other clients of the same deployment;
    /// [`Registry`] says which.
    pub fn registry(mut self, registry: &Registry) -> Self {
        self.registry = Some(registry.clone());
        self
    }

    /// Uses a TLS configuration of the application's own; of TLS, the options must say `tls=true`
    /// and nothing else.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, tls: TlsConfig) -> Self {
        self.settings.set_tls(tls);
        self
    }

    /// Asks these name servers, not those in `/etc/resolv.conf`, for SRV and TXT records.
    pub fn name_servers(mut self, addresses: impl IntoIterator<Item = SocketAddr>) -> Self {
        self.settings.records = Records::NameServers(NameServers::new(addresses));
        self
    }

    /// Has `resolver` look SRV and TXT records up, where it may block.
    pub fn resolver(mut self, resolver: impl Resolver) -> Self {
        self.settings.set_resolver(resolver);
        self
    }

    /// Has `judge` look at each host that DNS names for the deployment, when the client connects
    /// and when it looks again, in place of the rule that hosts must be in the deployment's domain.
    /// It is given the name in lower case, without a dot at its end.
    ///
    /// That rule keeps anyone who can forge answers of DNS from leading the client to hosts of
    /// theirs; `judge` must do so too. Where all hosts are in one other domain,
    /// `srvAllowedHostsSuffix` says it more simply, and the two cannot be combined. The options
    /// must be those of `mongodb+srv://`.
    pub fn srv_host_validator<E: fmt::Display>(
        mut self,
        judge: impl Fn(&str) -> Result<(), E> + Send + Sync + 'static,
    ) -> Self {
        self.settings.set_srv_host_validator(judge);
        self
    }

    /// Has `provider` find tokens and credentials of AWS; the options may not name an `ENVIRONMENT`
    /// then. Without it, they come from the [sources](CredentialSources) that the process's
    /// environment names.
    ///
    /// Its futures are driven one after another on a background thread, so that they may block.
    pub fn credential_provider(mut self, provider: impl CredentialProvider) -> Self {
        self.settings.provider = Some(Arc::new(provider));
        self
    }

    /// Finds tokens and credentials of AWS elsewhere than in the process's environment, if there is
    /// no provider.
    pub fn credential_sources(mut self, sources: CredentialSources) -> Self {
        self.settings.sources = sources;
        self
    }

    /// Records the inputs and the actions of the client's topology, to be replayed by
    /// `sdam replay`.
    pub fn record(mut self, recording: &Recording) -> Self {
        self.settings.recording = Some(recording.clone());
        self
    }

    /// Has the client draw from `seed` whatever it leaves to chance: which of several servers an
    /// operation goes to, which hosts of many in DNS it begins with, when it tries again.
    ///
    /// A client with the same seed, to which the same happens at the same times, does the same;
    /// without this, the operating system gives a seed. It is for tests, where it belongs to one
    /// client: several with the same seed choose the same servers. What must be said once only in
    /// logins is drawn elsewhere still.
    pub const fn seed(mut self, seed: u64) -> Self {
        self.settings.seed = Some(seed);
        self
    }

    /// Has the client count metrics from its very first event, not only from the first call of
    /// [`Client::metrics`].
    pub const fn metrics(mut self) -> Self {
        self.settings.metrics = true;
        self
    }

    /// Sets the topics of the events, if the client is created with events; by default all but
    /// commands.
    pub const fn topics(mut self, topics: Topics) -> Self {
        self.settings.topics = topics;
        self
    }

    /// Logs as these settings say, whatever the environment has (Logging, "Supporting Both
    /// Programmatic and Environment Variable Configuration").
    ///
    /// For the opposite, pass these settings on only if the environment has none:
    ///
    /// ```
    /// use sdam_core::logging::LogSettings;
    ///
    /// let (environment, _) = LogSettings::from_variables(|name| std::env::var(name).ok());
    /// let own = LogSettings::default();
    /// let settings = if environment.is_off() { own } else { environment };
    /// ```
    pub fn log(mut self, settings: LogSettings) -> Self {
        self.settings.log = Some(settings);
        self
    }

    /// Exports spans of operations and commands as these settings say, whatever the environment has
    /// (OpenTelemetry, "`MongoClient` Options for configuring OpenTelemetry on the client level"):
    /// to OpenTelemetry, with the feature `otel`, or to a [`tracer`](Self::tracer).
    pub const fn spans(mut self, settings: SpanSettings) -> Self {
        self.settings.spans = Some(settings);
        self
    }

    /// Exports spans to a tracer of the application's own; the environment need not enable them.
    pub fn tracer(mut self, tracer: impl Tracer) -> Self {
        self.settings.tracer = Some(Arc::new(tracer));
        self
    }

    /// Creates the client; discovery begins in the background, and nothing is waited for.
    ///
    /// Parts of the connection string that have no effect, [`Options::warnings`], are logged
    /// through `tracing` with target `sdam`.
    ///
    /// # Errors
    ///
    /// Fails if servers are still to be looked up in DNS, if the options cannot be followed, and
    /// if the operating system gives no thread or no random seed. Files that the options name are
    /// read later: what is wrong with them is a failure of every server.
    pub fn build(self) -> Result<Client, Error> {
        self.topics(Topics::NONE).build_with_events().map(|(client, _)| client)
    }

    /// As [`build`](Self::build), with a subscription that misses no event.
    ///
    /// # Errors
    ///
    /// Fails as [`build`](Self::build) does.
    pub fn build_with_events(self) -> Result<(Client, Events), Error> {
        let topics = self.settings.topics;
        let mut blueprint = Blueprint {
            shared: self.settings.blueprint()?,
            epoch: Instant::now(),
            origin: SystemTime::now(),
            dialer: self.dialer,
        };
        let engine = Joining::new(blueprint.engine_mode()).map_err(no_thread)?;
        let reactor = blueprint.reactor(&engine);
        let (client, events) = blueprint.shared.client(reactor, topics, self.registry.as_ref());
        // Those who share monitors have one clock.
        let epoch = client.host().runtime().reactor().epoch;
        blueprint.origin -= blueprint.epoch.saturating_duration_since(epoch);
        blueprint.epoch = epoch;
        let events = Events::new(events, client.host().runtime());
        Ok((Client::made(blueprint, client), events))
    }

    /// Looks up the servers if they are named in DNS (`mongodb+srv://`), and creates the client.
    ///
    /// # Errors
    ///
    /// Fails as [`build`](Self::build) does, and if DNS gives no hosts or options that can be used.
    pub fn connect(self) -> Result<Client, Error> {
        self.topics(Topics::NONE).connect_with_events().map(|(client, _)| client)
    }

    /// As [`connect`](Self::connect), with a subscription that misses no event.
    ///
    /// # Errors
    ///
    /// Fails as [`connect`](Self::connect) does.
    pub fn connect_with_events(mut self) -> Result<(Client, Events), Error> {
        self.settings = complete(self.settings)?;
        self.build_with_events()
    }
}

/// Looks up the servers on this thread.
fn complete(settings: Settings) -> Result<Settings, ClientError> {
    let engine = Engine::new(EngineMode::Callers).map_err(no_thread)?;
    let reactor = BlockingReactor {
        engine: Arc::clone(&engine),
        helper: Helper::Inline,
        epoch: Instant::now(),
        dialer: None,
    };
    let completed = Arc::new(Mutex::new(None));
    let (completing, result) = (settings.complete(reactor), Arc::clone(&completed));
    // As a task, for those are what waits for sockets.
    engine.spawn(Box::pin(async move {
        let done = completing.await;
        *result.lock().unwrap_or_else(PoisonError::into_inner) = Some(done);
    }));
    engine.block_on(engine.end());
    let completed = completed.lock().unwrap_or_else(PoisonError::into_inner).take();
    completed
        .unwrap_or_else(|| Err(no_thread(std::io::Error::other("waiting for sockets has failed"))))
}

fn no_thread(error: std::io::Error) -> ClientError {
    ClientError::NoThread(error.into())
}

impl fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientBuilder")
            .field("options", &self.settings.options)
            .finish_non_exhaustive()
    }
}
