//! Creates topologies, and the clients above them.

use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Instant, SystemTime};

use sdam_core::config::Options;
use sdam_core::topology::Topics;
use sdam_host::driver::DriverTopology;
use sdam_host::{ClientError, CredentialProvider, Error, Resolver, Settings, settings_of_clients};

use crate::blueprint::Blueprint;
use crate::dialer::Dialer;
use crate::engine::{Engine, EngineMode, Joining};
use crate::helper::Helper;
use crate::runtime::{BlockingReactor, Registry};
use crate::subscription::Events;
use crate::topology::Topology;

/// Creates clients, those included whose servers are named in DNS: topologies, or what is made of
/// one, such as the typed client of `sdam::blocking`.
#[must_use]
pub struct ClientBuilder<C = Topology> {
    settings: Settings,
    dialer: Option<Arc<dyn Dialer>>,
    registry: Option<Registry>,
    builds: PhantomData<fn() -> C>,
}

impl<C: From<Topology>> ClientBuilder<C> {
    /// Starts to create a client; for a topology, that is [`Topology::builder`].
    pub fn new(options: Options) -> Self {
        let settings = Settings::new(options);
        Self { settings, dialer: None, registry: None, builds: PhantomData }
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

    settings_of_clients!();

    /// Has `resolver` look SRV and TXT records up, where it may block.
    pub fn resolver(mut self, resolver: impl Resolver) -> Self {
        self.settings.set_resolver(resolver);
        self
    }

    /// Has `provider` find tokens and credentials of AWS; the options may not name an `ENVIRONMENT`
    /// then. Without it, they come from the [sources](sdam_host::CredentialSources) that the
    /// process's environment names.
    ///
    /// Its futures are driven one after another on a background thread, so that they may block.
    pub fn credential_provider(mut self, provider: impl CredentialProvider) -> Self {
        self.settings.provider = Some(Arc::new(provider));
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
    pub fn build(self) -> Result<C, Error> {
        self.topics(Topics::NONE).build_with_events().map(|(client, _)| client)
    }

    /// As [`build`](Self::build), with a subscription that misses no event.
    ///
    /// # Errors
    ///
    /// Fails as [`build`](Self::build) does.
    pub fn build_with_events(self) -> Result<(C, Events), Error> {
        let topics = self.settings.topics;
        let mut blueprint = Blueprint {
            shared: self.settings.blueprint()?,
            epoch: Instant::now(),
            origin: SystemTime::now(),
            dialer: self.dialer,
        };
        let engine = Joining::new(blueprint.engine_mode()).map_err(no_thread)?;
        let reactor = blueprint.reactor(&engine);
        let (host, events) = blueprint.shared.topology(reactor, topics, self.registry.as_ref());
        // Those who share monitors have one clock.
        let epoch = host.host().runtime().reactor().epoch;
        blueprint.origin -= blueprint.epoch.saturating_duration_since(epoch);
        blueprint.epoch = epoch;
        let events = Events::new(events, host.host().runtime());
        Ok((Topology::made(blueprint, host).into(), events))
    }

    /// Looks up the servers if they are named in DNS (`mongodb+srv://`), and creates the client.
    ///
    /// # Errors
    ///
    /// Fails as [`build`](Self::build) does, and if DNS gives no hosts or options that can be used.
    pub fn connect(self) -> Result<C, Error> {
        self.topics(Topics::NONE).connect_with_events().map(|(client, _)| client)
    }

    /// As [`connect`](Self::connect), with a subscription that misses no event.
    ///
    /// # Errors
    ///
    /// Fails as [`connect`](Self::connect) does.
    pub fn connect_with_events(mut self) -> Result<(C, Events), Error> {
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

impl<C> Clone for ClientBuilder<C> {
    fn clone(&self) -> Self {
        Self {
            settings: self.settings.clone(),
            dialer: self.dialer.clone(),
            registry: self.registry.clone(),
            builds: PhantomData,
        }
    }
}

impl<C> fmt::Debug for ClientBuilder<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientBuilder")
            .field("options", &self.settings.options)
            .finish_non_exhaustive()
    }
}
