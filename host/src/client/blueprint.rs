//! The plan that a topology over the sockets of a reactor is made from, whichever way it waits.

use std::collections::BTreeSet;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::task::Poll;

use arc_swap::ArcSwapOption;
use sdam_core::auth::GssapiProvider;
use sdam_core::config::Options;
use sdam_core::description::TopologyDescription;
use sdam_core::diagnosis::Verdict;
use sdam_core::logging::LogSettings;
use sdam_core::spans::SpanSettings;
use sdam_core::topology::{Topics, inherited_options};

use crate::client::Topology;
use crate::client::driver::DriverTopology;
use crate::client::registry::Registry;
use crate::client::siblings;
use crate::client::socket_runtime::SocketRuntime;
use crate::error::ClientError;
use crate::machines::Host;
use crate::machines::alarm::{Deadlines, Timekeeper};
use crate::machines::runtime::Runtime;
use crate::machines::topology::TopologyState;
use crate::net::credentials::sources::{CredentialSources, Provider};
use crate::net::credentials::{CredentialProvider, gssapi};
use crate::net::dial::Connector;
use crate::net::dns::{HostValidator, Records, Resolver, complete};
use crate::net::reactor::Reactor;
use crate::net::streams::Streams;
use crate::observe::recording::Recording;
use crate::observe::spans::{Spans, Tracer};
use crate::observe::subscription::Events;
use crate::system::{self, WallClock};

/// The settings of a client before it is made, whatever the runtime.
#[derive(Clone)]
#[non_exhaustive]
pub struct Settings {
    /// The options of the client.
    pub options: Options,
    /// The source of SRV and TXT records.
    pub records: Records,
    /// The provider of tokens and credentials of AWS in place of `sources`.
    pub provider: Option<Arc<dyn CredentialProvider>>,
    /// The source of security contexts for GSSAPI, in place of the system's.
    pub gssapi_provider: Option<Arc<dyn GssapiProvider>>,
    /// The sources of tokens and credentials of AWS without a provider.
    pub sources: CredentialSources,
    /// The recording of what happens, if there is one.
    pub recording: Option<Recording>,
    /// The topics of the events that a client is made with.
    pub topics: Topics,
    /// True if metrics are counted from the beginning.
    pub metrics: bool,
    /// The settings of the log, in place of those of the environment.
    pub log: Option<LogSettings>,
    /// The tracer that receives spans, in place of that of OpenTelemetry.
    pub tracer: Option<Arc<dyn Tracer>>,
    /// The settings of spans, in place of those of the environment.
    pub spans: Option<SpanSettings>,
    /// True if the application opens streams in a way of its own.
    pub dials: bool,
    /// The seed of the client's random numbers, in place of one from the operating system.
    pub seed: Option<u64>,
    /// The application's own configuration of TLS.
    #[cfg(feature = "tls")]
    tls: Option<sdam_core::transport::TlsConfig>,
    /// The application's own source of the client's certificate.
    #[cfg(feature = "tls")]
    certificate_key: Option<system::CertificateKeyProvider>,
    /// The function that judges the hosts in DNS.
    validator: Option<HostValidator>,
    /// The finding of looking the servers up, if it was slow.
    finding: Option<Verdict>,
}

impl Settings {
    /// Asks the name servers of `/etc/resolv.conf`, and finds credentials in the environment.
    pub fn new(options: Options) -> Self {
        Self {
            options,
            records: Records::System,
            provider: None,
            gssapi_provider: None,
            sources: CredentialSources::default(),
            recording: None,
            topics: Topics::WITHOUT_COMMANDS,
            metrics: false,
            log: None,
            tracer: None,
            spans: None,
            dials: false,
            seed: None,
            #[cfg(feature = "tls")]
            tls: None,
            #[cfg(feature = "tls")]
            certificate_key: None,
            validator: None,
            finding: None,
        }
    }

    /// Uses the application's own configuration of TLS.
    #[cfg(feature = "tls")]
    pub fn set_tls(&mut self, tls: sdam_core::transport::TlsConfig) {
        self.tls = Some(tls);
    }

    /// Asks the application for the client's certificate and private key.
    #[cfg(feature = "tls")]
    pub fn set_certificate_key_provider(&mut self, provider: system::CertificateKeyProvider) {
        self.certificate_key = Some(provider);
    }

    /// Has `resolver` look SRV and TXT records up.
    pub fn set_resolver(&mut self, resolver: impl Resolver) {
        self.records = Records::Application(Arc::new(resolver));
    }

    /// Has `judge` look at the hosts that DNS names, in place of the rule that they must be in the
    /// deployment's domain.
    pub fn set_srv_host_validator<E: fmt::Display>(
        &mut self,
        judge: impl Fn(&str) -> Result<(), E> + Send + Sync + 'static,
    ) {
        self.validator = Some(HostValidator::new(judge));
    }

    /// Notes in the options that hosts in DNS are judged, if they are; refuses options that say so,
    /// as those of another client do, where nothing judges them.
    fn note_validator(&mut self) -> Result<(), ClientError> {
        let says_so = self.options.srv().is_some_and(|srv| srv.hosts_are_judged);
        match self.validator.is_some() {
            true => self.options = self.options.clone().with_judged_hosts()?,
            false if says_so => return Err(sdam_core::config::OptionsError::NoHostValidator.into()),
            false => {}
        }
        Ok(())
    }

    /// Looks up the servers if they are named in DNS (`mongodb+srv://`).
    ///
    /// # Errors
    ///
    /// Fails if DNS gives no hosts or options that can be used.
    #[expect(clippy::manual_async_fn, reason = "callers see that the future is `Send`")]
    pub fn complete<R: Reactor>(
        mut self,
        reactor: R,
    ) -> impl Future<Output = Result<Self, ClientError>> + Send + use<R> {
        async move {
            self.note_validator()?;
            let seed = self.drawn_seed()?;
            let source = (&self.records, self.validator.as_ref());
            let completed = complete(&self.options, source, &reactor, seed).await?;
            (self.options, self.finding) = completed;
            Ok(self)
        }
    }

    /// Returns the seed that the application has given, or draws one.
    fn drawn_seed(&self) -> Result<u64, ClientError> {
        self.seed.map_or_else(system::client_seed, Ok)
    }

    /// Returns what clients can be made from; logs what has no effect in the options.
    ///
    /// # Errors
    ///
    /// Fails if servers are still to be looked up in DNS, if the options cannot be followed, and
    /// if the operating system gives no random seed.
    pub fn blueprint(mut self) -> Result<Blueprint, ClientError> {
        self.note_validator()?;
        ClientError::unless_resolved(&self.options)?;
        #[cfg(not(feature = "tls"))]
        if self.options.tls().is_some() {
            return Err(ClientError::TlsUnsupported);
        }
        let seed = self.drawn_seed()?;
        let shares = self.shares();
        let streams = Streams {
            connector: Connector::new(&self.options)?,
            #[cfg(feature = "tls")]
            tls: system::Certificates::choose(self.options.tls(), self.tls, self.certificate_key)?,
            #[cfg(feature = "ocsp")]
            connect_timeout: self.options.connect_timeout(),
            #[cfg(feature = "ocsp")]
            expiries: Arc::default(),
        };
        let gssapi = gssapi::choose(&self.options, self.gssapi_provider)?;
        let provider = Provider::choose(&self.options, self.provider, self.sources)?;
        let options = self.options.or_environment(system::environment);
        system::log_warnings(&options);
        Ok(Blueprint {
            options: Arc::new(options),
            seed,
            streams: Arc::new(streams),
            records: self.records,
            validator: self.validator,
            provider: Arc::new(provider),
            gssapi,
            recording: self.recording,
            metrics: self.metrics,
            log: self.log.unwrap_or_else(system::log_settings),
            spans: Spans::choose(self.tracer, self.spans),
            finding: self.finding,
            shares,
        })
    }

    /// Returns whether the monitors are those that other clients with these options have.
    fn shares(&self) -> bool {
        #[cfg(feature = "tls")]
        let own_tls = self.tls.is_some() || self.certificate_key.is_some();
        #[cfg(not(feature = "tls"))]
        let own_tls = false;
        let own_resolver = !matches!(self.records, Records::System);
        let own_records =
            self.validator.is_some() || (own_resolver && self.options.srv().is_some());
        !self.dials && !own_tls && !own_records && self.recording.is_none()
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings").field("options", &self.options).finish_non_exhaustive()
    }
}

/// The material of a client, in this process and in those that are forked off.
#[derive(Debug)]
pub struct Blueprint {
    options: Arc<Options>,
    seed: u64,
    streams: Arc<Streams>,
    records: Records,
    validator: Option<HostValidator>,
    provider: Arc<Provider>,
    gssapi: Option<Arc<dyn GssapiProvider>>,
    recording: Option<Recording>,
    metrics: bool,
    log: LogSettings,
    spans: Option<Spans>,
    finding: Option<Verdict>,
    /// True if its monitors may be those of other clients with the same options.
    shares: bool,
}

impl Blueprint {
    /// Returns what the client is configured with.
    pub const fn options(&self) -> &Arc<Options> {
        &self.options
    }

    /// Returns the same for the process numbered `process`, which was forked off and begins with
    /// what its parent knew; it is not recorded, and shares no locks with its parent.
    #[must_use]
    pub fn heir(&self, known: &TopologyDescription, process: u32) -> Self {
        Self {
            options: inherited_options(&self.options, known),
            seed: self.seed ^ u64::from(process),
            streams: Arc::new(self.streams.for_fork()),
            records: self.records.clone(),
            validator: self.validator.clone(),
            provider: Arc::new(self.provider.for_fork()),
            gssapi: self.gssapi.clone(),
            recording: None,
            metrics: self.metrics,
            log: self.log.clone(),
            spans: self.spans.clone(),
            finding: None,
            shares: false,
        }
    }

    /// Makes a topology whose tasks `reactor` runs, with a subscription that misses no event of
    /// these topics, and with monitors of the registry if it can share them.
    pub fn topology<R: Reactor>(
        &self,
        reactor: R,
        topics: Topics,
        registry: Option<&Registry<R>>,
    ) -> (Topology<SocketRuntime<R>>, Events) {
        let sharing = registry.and_then(|registry| self.share(&reactor, registry));
        let shares = sharing.is_some();
        let (host, timekeeper) = sharing.unwrap_or_else(|| {
            let (runtime, timekeeper) = self.runtime(reactor, system::wall_clock_origin());
            (Host::new(Arc::clone(&self.options), self.seed, runtime), timekeeper)
        });
        let events = host.subscribe_to(topics);
        if self.metrics {
            host.count();
        }
        host.log(self.log.clone());
        if let Some(spans) = self.spans.clone() {
            host.trace(spans);
        }
        self.recording.iter().for_each(|recording| host.record(recording));
        // Those who share are as many as they like.
        let many = if shares { None } else { siblings::note(&host) };
        host.announce(self.finding.iter().cloned().chain(many));
        keep_time(&host, timekeeper);
        (Topology::from_host(host), events)
    }

    /// Makes a host that shares the monitors of another one, if it can.
    fn share<R: Reactor>(
        &self,
        reactor: &R,
        registry: &Registry<R>,
    ) -> Option<(Arc<Host<SocketRuntime<R>>>, Timekeeper)> {
        let lead = || {
            let (mut runtime, timekeeper) =
                self.runtime(reactor.clone(), system::wall_clock_origin());
            // Monitors never log in.
            runtime.provider = Arc::new(Provider::Sources(CredentialSources::default(), None));
            runtime.gssapi = None;
            let options = Arc::new(self.options.without_credential());
            // Another seed, as its topology is another one.
            (Host::for_sharing(options, !self.seed, runtime), timekeeper)
        };
        let follow = |leader: Arc<Host<SocketRuntime<R>>>| {
            let SocketRuntime { reactor: leads, origin, .. } = leader.runtime();
            let (runtime, timekeeper) = self.runtime(reactor.with_clock_of(leads), *origin);
            let host = Host::sharing(leader, Arc::clone(&self.options), self.seed, runtime);
            Some((host.ok()?, timekeeper))
        };
        self.shares.then(|| registry.share(&self.options, lead, keep_shared_time, follow))?
    }

    fn runtime<R: Reactor>(&self, reactor: R, origin: WallClock) -> (SocketRuntime<R>, Timekeeper) {
        let (deadlines, timekeeper) = Deadlines::new();
        let runtime = SocketRuntime {
            reactor,
            successor: ArcSwapOption::empty(),
            deadlines,
            streams: Arc::clone(&self.streams),
            records: self.records.clone(),
            validator: self.validator.clone(),
            provider: Arc::clone(&self.provider),
            gssapi: self.gssapi.clone(),
            origin,
        };
        (runtime, timekeeper)
    }
}

/// Has a task keep the time of a host. Nothing has happened yet: the first deadline opens the
/// topology.
fn keep_time<R: Reactor>(host: &Arc<Host<SocketRuntime<R>>>, timekeeper: Timekeeper) {
    let (reactor, clock) = (host.runtime().reactor(), host.runtime().reactor().clone());
    let keep_time = timekeeper.run(Arc::downgrade(host), move |at| clock.sleep_until(at));
    reactor.spawn(while_alive(Arc::downgrade(host), keep_time));
}

/// As [`keep_time`], of monitors that several clients share: if that runtime ends, and one of the
/// others has not, they go on there.
fn keep_shared_time<R: Reactor>(leader: &Arc<Host<SocketRuntime<R>>>, timekeeper: Timekeeper) {
    let (reactor, host) = (leader.runtime().monitoring(), Arc::downgrade(leader));
    let clock = reactor.clone();
    let keep_time = timekeeper.run_and(
        Weak::clone(&host),
        move |at| clock.sleep_until(at),
        |leader| {
            hand_over(&leader);
        },
    );
    reactor.spawn(while_alive(host, keep_time));
}

/// Has the runtime of another client go on with monitors whose own has ended, or closes them.
///
/// Streams went with that runtime, so that servers are Unknown until they have been asked again.
fn hand_over<R: Reactor>(leader: &Arc<Host<SocketRuntime<R>>>) {
    if !leader.shared.process.is_current() || !leader.with_topology(TopologyState::begin_succession)
    {
        return;
    }
    // Kept, so that no other client has the place of one in memory.
    let (mut tried, mut kept) = (BTreeSet::new(), Vec::new());
    while let Some(heir) = leader.with_topology(|state| state.next_heir(leader, &mut tried)) {
        let runtime = leader.runtime();
        runtime.successor.store(Some(Arc::new(heir.runtime().reactor().clone())));
        // If that one has ended, too, it drops the task, which comes by here.
        keep_shared_time(leader, runtime.deadlines.timekeeper());
        if leader.with_topology(TopologyState::end_succession) {
            return leader.request_check();
        }
        kept.push(heir);
    }
}

/// Keeps time until the client is dropped; check-outs may live longer, but need no time.
async fn while_alive<R: Runtime>(host: Weak<Host<R>>, keep_time: impl Future<Output = ()>) {
    let mut keep_time = pin!(keep_time);
    poll_fn(|cx| match host.strong_count() {
        // Dropping the last one wakes this, as the client that ends has no deadline any more.
        0 => Poll::Ready(()),
        _ => keep_time.as_mut().poll(cx),
    })
    .await;
}
