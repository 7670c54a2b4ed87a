//! Creates topologies, and the clients above them, over the sockets, timers and tasks of the
//! runtime that an application is in.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use sdam_core::config::Options;
use sdam_core::topology::Topics;

use crate::client::Topology;
use crate::client::blueprint::Settings;
use crate::client::registry::Registry;
use crate::client::socket_runtime::SocketRuntime;
use crate::error::Error;
use crate::net::credentials::CredentialProvider;
use crate::net::dns::Resolver;
use crate::net::reactor::{CurrentReactor, DialWith};
use crate::observe::subscription::Events;

/// Writes the methods of a builder of clients that every runtime's has, also that for threads. The
/// builder has the field `settings`.
#[doc(hidden)]
#[macro_export]
macro_rules! settings_of_clients {
    () => {
        /// Uses the application's own TLS configuration; the options must ask for TLS, and say no
        /// more of it than `tls=true`.
        #[cfg(feature = "tls")]
        pub fn tls(mut self, tls: sdam_core::transport::TlsConfig) -> Self {
            self.settings.set_tls(tls);
            self
        }

        /// Asks a function for the client's certificate and private key, which are in no file. It
        /// returns what a file of `tlsCertificateKeyFile` has, in PEM.
        ///
        /// It is asked before each new connection, where it may block as reading a file does, and a
        /// configuration is made when its answer changes. Once it has answered, a failure leaves
        /// the earlier certificate in use, and the log says why. Its key may be encrypted
        /// (`tlsCertificateKeyFilePassword`). The options must ask for TLS, and name no such file.
        #[cfg(feature = "tls")]
        pub fn certificate_key_provider<E: std::fmt::Display>(
            mut self,
            provider: impl Fn() -> Result<sdam_core::config::Secret, E> + Send + Sync + 'static,
        ) -> Self {
            let provider = $crate::system::CertificateKeyProvider::new(provider);
            self.settings.set_certificate_key_provider(provider);
            self
        }

        /// Asks these name servers for SRV and TXT records, instead of those in `/etc/resolv.conf`.
        pub fn name_servers(
            mut self,
            addresses: impl IntoIterator<Item = std::net::SocketAddr>,
        ) -> Self {
            self.settings.records =
                $crate::Records::NameServers(sdam_core::dns::NameServers::new(addresses));
            self
        }

        /// Has `judge` look at each host that DNS names for the deployment, when the client
        /// connects and when it looks again, in place of the rule that hosts must be in the
        /// deployment's domain. It is given the name in lower case, without a dot at its end.
        ///
        /// That rule keeps anyone who can forge answers of DNS from leading the client to hosts of
        /// theirs; `judge` must do so too. Where all hosts are in one other domain,
        /// `srvAllowedHostsSuffix` says it more simply, and the two cannot be combined. The options
        /// must be those of `mongodb+srv://`.
        ///
        /// ```
        /// # use sdam_core::config::Options;
        /// # use sdam_host::{ClientBuilder, CurrentReactor};
        /// # fn example<R: CurrentReactor>(builder: ClientBuilder<R>) -> ClientBuilder<R> {
        /// // let builder = Topology::builder(Options::parse("mongodb+srv://db.example.org")?);
        /// builder.srv_host_validator(|host| match host.ends_with(".db.example.net") {
        ///     true => Ok(()),
        ///     false => Err("it is not one of ours"),
        /// })
        /// # }
        /// ```
        pub fn srv_host_validator<E: std::fmt::Display>(
            mut self,
            judge: impl Fn(&str) -> Result<(), E> + Send + Sync + 'static,
        ) -> Self {
            self.settings.set_srv_host_validator(judge);
            self
        }

        /// Finds tokens and credentials of AWS elsewhere than in the process's environment, if
        /// there is no provider.
        pub fn credential_sources(mut self, sources: $crate::CredentialSources) -> Self {
            self.settings.sources = sources;
            self
        }

        /// Has `provider` begin the security contexts by which GSSAPI logs in, in place of the
        /// system's library of Kerberos, which needs the feature `gssapi`.
        ///
        /// It may block, as it is called where the runtime has such calls done; for several
        /// connections at once, unless the runtime does one after the other, as that of threads.
        pub fn gssapi_provider(mut self, provider: impl sdam_core::auth::GssapiProvider) -> Self {
            self.settings.gssapi_provider = Some(std::sync::Arc::new(provider));
            self
        }

        /// Records the inputs and actions of the topology, for `sdam replay`.
        pub fn record(mut self, recording: &$crate::Recording) -> Self {
            self.settings.recording = Some(recording.clone());
            self
        }

        /// Has the client draw from `seed` whatever it leaves to chance: which of several servers
        /// an operation goes to, which hosts of many in DNS it begins with, when it tries again.
        ///
        /// A client with the same seed, to which the same happens at the same times, does the same;
        /// without this, the operating system gives a seed. It is for tests, where it belongs to
        /// one client: several with the same seed choose the same servers. What must be said once
        /// only in logins is drawn elsewhere still.
        pub const fn seed(mut self, seed: u64) -> Self {
            self.settings.seed = Some(seed);
            self
        }

        /// Has the client count metrics from its very first event, not only from the first call of
        /// [`Topology::metrics`].
        pub const fn metrics(mut self) -> Self {
            self.settings.metrics = true;
            self
        }

        /// Limits the events of the client that is created with events to these topics; the default
        /// is all but commands.
        pub const fn topics(mut self, topics: sdam_core::topology::Topics) -> Self {
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
        pub fn log(mut self, settings: sdam_core::logging::LogSettings) -> Self {
            self.settings.log = Some(settings);
            self
        }

        /// Reports spans of operations and commands as these settings say, whatever the environment
        /// has (OpenTelemetry, "`MongoClient` Options for configuring OpenTelemetry on the client
        /// level"): to OpenTelemetry, with the feature `otel`, or to a [`tracer`](Self::tracer).
        pub const fn spans(mut self, settings: sdam_core::spans::SpanSettings) -> Self {
            self.settings.spans = Some(settings);
            self
        }

        /// Reports spans to a tracer of the application's own; the environment need not enable
        /// them.
        pub fn tracer(mut self, tracer: impl $crate::Tracer) -> Self {
            self.settings.tracer = Some(std::sync::Arc::new(tracer));
            self
        }
    };
}

/// Creates clients that differ from what `connect` creates: topologies, or what is made of one,
/// such as the client of the crate `sdam`, if that is the parameter `C`.
///
/// Every runtime that waits with futures has it, under its own name, as `sdam_tokio` does:
///
/// ```
/// # use sdam_core::config::Options;
/// # use sdam_host::{CurrentReactor, SocketRuntime};
/// # async fn example<R: CurrentReactor<Setup: Default>>(
/// # ) -> Result<sdam_host::Topology<SocketRuntime<R>>, sdam_host::Error> {
/// # type Topology<R> = sdam_host::Topology<SocketRuntime<R>>;
/// let options = Options::parse("mongodb+srv://cluster0.example.com")?;
/// let builder = Topology::builder(options).name_servers([([192, 0, 2, 53], 53).into()]);
/// # let builder: sdam_host::ClientBuilder<R> = builder;
/// Ok(builder.connect().await?)
/// # }
/// ```
#[must_use]
pub struct ClientBuilder<R: CurrentReactor, C = Topology<SocketRuntime<R>>> {
    settings: Settings,
    setup: R::Setup,
    registry: Option<Registry<R>>,
    builds: PhantomData<fn() -> C>,
}

impl<R: CurrentReactor, C: From<Topology<SocketRuntime<R>>>> ClientBuilder<R, C> {
    /// Starts with what the runtime is to be set up with; [`Topology::builder`] does without.
    pub fn with_setup(options: Options, setup: R::Setup) -> Self {
        Self { settings: Settings::new(options), setup, registry: None, builds: PhantomData }
    }

    /// Has the byte streams to servers opened by `dialer`, in place of sockets: by a `Dialer` of
    /// the runtime, a closure for instance.
    pub fn dialer<D>(mut self, dialer: D) -> Self
    where
        R: DialWith<D>,
    {
        R::dial_with(&mut self.setup, dialer);
        self.settings.dials = true;
        self
    }

    /// Has the client share the monitors of `registry` with other clients of the same deployment;
    /// [`Registry`] says which.
    pub fn registry(mut self, registry: &Registry<R>) -> Self {
        self.registry = Some(registry.clone());
        self
    }

    settings_of_clients!();

    /// Looks SRV and TXT records up with a resolver of the application's own.
    pub fn resolver(mut self, resolver: impl Resolver) -> Self {
        self.settings.set_resolver(resolver);
        self
    }

    /// Asks `provider` for the tokens of MONGODB-OIDC and the credentials of MONGODB-AWS.
    ///
    /// Without one, the credentials of AWS come from the environment variables, a web identity, ECS
    /// or EC2, whichever is there first (with the feature `aws`), and tokens from the file that
    /// `ENVIRONMENT:k8s` stands for, or from the metadata of the cloud that `ENVIRONMENT:azure` or
    /// `ENVIRONMENT:gcp` names (with the feature `oidc-environments`). With one, the options may
    /// not name an `ENVIRONMENT`. One that asks a person needs `oidc_human_callback` in the options
    /// instead of `oidc_callback`.
    ///
    /// ```
    /// # use sdam_core::auth::{CredentialResponse, OidcToken, CredentialRequest};
    /// # use sdam_core::config::{AuthMechanism, Options};
    /// # use sdam_host::{ClientBuilder, CurrentReactor};
    /// # async fn ask_for_token() -> Result<String, std::io::Error> { Ok("token".into()) }
    /// # fn example<R: CurrentReactor>(
    /// #     builder: ClientBuilder<R>,
    /// # ) -> Result<ClientBuilder<R>, Box<dyn std::error::Error>> {
    /// let options = Options::builder()
    ///     .uri("mongodb://db.example/?tls=true")?
    ///     .auth_mechanism(AuthMechanism::Oidc)
    ///     .oidc_callback(true)
    ///     .build()?;
    /// // let builder = Topology::builder(options);
    /// let builder = builder.credential_provider(|_: CredentialRequest| async {
    ///     let token = OidcToken::new(ask_for_token().await?);
    ///     Ok::<_, std::io::Error>(CredentialResponse::Oidc(token))
    /// });
    /// # Ok(builder)
    /// # }
    /// ```
    pub fn credential_provider(mut self, provider: impl CredentialProvider) -> Self {
        self.settings.provider = Some(Arc::new(provider));
        self
    }

    /// Creates the client, as [`Topology::new`] does.
    ///
    /// # Errors
    ///
    /// Fails as [`Topology::new`] does.
    pub fn build(self) -> Result<C, Error> {
        self.topics(Topics::NONE).build_with_events().map(|(client, _)| client)
    }

    /// Creates the client and subscribes to its events, as [`Topology::with_events`] does.
    ///
    /// # Errors
    ///
    /// Fails as [`Topology::new`] does.
    pub fn build_with_events(self) -> Result<(C, Events), Error> {
        let (reactor, topics) = (R::current(self.setup)?, self.settings.topics);
        let blueprint = self.settings.blueprint()?;
        let (topology, events) = blueprint.topology(reactor, topics, self.registry.as_ref());
        Ok((topology.into(), events))
    }

    /// Looks up the servers if they are named in DNS (`mongodb+srv://`), and creates the client;
    /// servers are connected to in the background.
    ///
    /// # Errors
    ///
    /// Fails as [`Topology::new`] does, and if DNS gives no hosts or options that can be used.
    pub async fn connect(self) -> Result<C, Error> {
        self.topics(Topics::NONE).connect_with_events().await.map(|(client, _)| client)
    }

    /// As [`connect`](Self::connect), and subscribes to the client's events from the very first
    /// one.
    ///
    /// # Errors
    ///
    /// Fails as [`connect`](Self::connect) does.
    pub async fn connect_with_events(mut self) -> Result<(C, Events), Error> {
        // On the heap: a program waits for it once, and executors may move what they wait for.
        let completed = Box::pin(self.settings.complete(R::current(self.setup.clone())?));
        self.settings = completed.await?;
        self.build_with_events()
    }
}

impl<R: CurrentReactor, C> Clone for ClientBuilder<R, C> {
    fn clone(&self) -> Self {
        Self {
            settings: self.settings.clone(),
            setup: self.setup.clone(),
            registry: self.registry.clone(),
            builds: PhantomData,
        }
    }
}

impl<R: CurrentReactor, C> fmt::Debug for ClientBuilder<R, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientBuilder")
            .field("options", &self.settings.options)
            .finish_non_exhaustive()
    }
}

/// Topologies that find the runtime's sockets, timers and tasks where they are created.
impl<R: CurrentReactor<Setup: Default>> Topology<SocketRuntime<R>> {
    /// Creates a topology of what a connection string or [`Options`] describe, after the servers
    /// were looked up if they are named in DNS (`mongodb+srv://`); servers are connected to in the
    /// background.
    ///
    /// It is the one constructor that does I/O, for SRV and TXT records alone: it asks the name
    /// servers of `/etc/resolv.conf`; [`builder`](Self::builder) has other ways.
    ///
    /// # Errors
    ///
    /// Fails if the connection string is malformed, if DNS gives no hosts or options that can be
    /// used, and as [`new`](Self::new) does.
    pub async fn connect<O>(options: O) -> Result<Self, Error>
    where
        O: TryInto<Options, Error: Into<Error>>,
    {
        Self::builder(options.try_into().map_err(Into::into)?).connect().await
    }

    /// Creates a topology; discovery begins in the background, and nothing is waited for.
    ///
    /// What has no effect in the connection string, [`Options::warnings`], is logged through
    /// `tracing` with target `sdam`.
    ///
    /// Servers that are named in DNS (`mongodb+srv://`) must be looked up first, as
    /// [`connect`](Self::connect) does.
    ///
    /// # Errors
    ///
    /// Fails outside the runtime, if the servers are still to be looked up in DNS, if the options
    /// cannot be followed, and if the operating system gives no random seed. Whether any server can
    /// be reached is not known yet. The files that the options name are read when connections are
    /// made: what is wrong with them is a failure of every server.
    pub fn new(options: Options) -> Result<Self, Error> {
        Self::builder(options).build()
    }

    /// Creates a topology and subscribes to its events from the very first one.
    ///
    /// # Errors
    ///
    /// Fails as [`new`](Self::new) does.
    pub fn with_events(options: Options) -> Result<(Self, Events), Error> {
        Self::builder(options).build_with_events()
    }

    /// Starts to create a topology that differs from what [`new`](Self::new) would create.
    pub fn builder(options: Options) -> ClientBuilder<R> {
        ClientBuilder::with_setup(options, R::Setup::default())
    }
}
