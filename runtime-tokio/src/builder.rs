//! Creates clients, those included whose servers are named in DNS.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use sdam_core::config::Options;
use sdam_core::dns::NameServers;
#[cfg(feature = "tls")]
use sdam_core::transport::TlsConfig;
use sdam_host::{
    CredentialProvider, CredentialSources, Events, Recording, Records, Resolver, Settings,
};

use crate::client::{Client, ClientError};
use crate::dialer::Dialer;
use crate::runtime::TokioReactor;

/// Creates clients, those included whose servers are named in DNS.
///
/// ```no_run
/// # use sdam_core::config::Options;
/// # use sdam_tokio::{Client, ClientError};
/// # async fn example() -> Result<Client, Box<dyn std::error::Error>> {
/// let options = Options::parse("mongodb+srv://cluster0.example.com")?;
/// let client = Client::builder(options).name_servers([([192, 0, 2, 53], 53).into()]);
/// Ok(client.connect().await?)
/// # }
/// ```
#[derive(Clone)]
#[must_use]
pub struct ClientBuilder {
    settings: Settings,
    dialer: Option<Arc<dyn Dialer>>,
}

impl ClientBuilder {
    pub(crate) fn new(options: Options) -> Self {
        Self { settings: Settings::new(options), dialer: None }
    }

    /// Has the byte streams to servers opened by `dialer`, in place of sockets.
    pub fn dialer(mut self, dialer: impl Dialer) -> Self {
        self.dialer = Some(Arc::new(dialer));
        self
    }

    /// Uses the application's own TLS configuration; the options must ask for TLS, and say no more
    /// of it than `tls=true`.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, tls: TlsConfig) -> Self {
        self.settings.tls = Some(tls);
        self
    }

    /// Asks these name servers for SRV and TXT records, instead of those in `/etc/resolv.conf`.
    pub fn name_servers(mut self, addresses: impl IntoIterator<Item = SocketAddr>) -> Self {
        self.settings.records = Records::NameServers(NameServers::new(addresses));
        self
    }

    /// Looks SRV and TXT records up with a resolver of the application's own.
    pub fn resolver(mut self, resolver: impl Resolver) -> Self {
        self.settings.set_resolver(resolver);
        self
    }

    /// Asks `provider` for the tokens of MONGODB-OIDC and the credentials of MONGODB-AWS.
    ///
    /// Without one, the credentials of AWS come from the environment variables, a web identity, ECS
    /// or EC2, whichever is there first (with the feature `aws`), and tokens from the file that
    /// `ENVIRONMENT:k8s` stands for. With one, the options may not name an `ENVIRONMENT`.
    ///
    /// ```no_run
    /// # use sdam_core::auth::{Answer, OidcToken, Question};
    /// # use sdam_core::config::{AuthMechanism, Options};
    /// # use sdam_tokio::Client;
    /// # async fn ask_for_token() -> Result<String, std::io::Error> { Ok("token".into()) }
    /// # fn example() -> Result<Client, Box<dyn std::error::Error>> {
    /// let options = Options::builder()
    ///     .uri("mongodb://db.example/?tls=true")?
    ///     .auth_mechanism(AuthMechanism::Oidc)
    ///     .oidc_callback(true)
    ///     .build()?;
    /// let client = Client::builder(options).credential_provider(|_: Question| async {
    ///     Ok::<_, std::io::Error>(Answer::Oidc(OidcToken::new(ask_for_token().await?)))
    /// });
    /// # Ok(client.build()?)
    /// # }
    /// ```
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

    /// Records what the client's topology is told and does, to be replayed by `sdam replay`.
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
        Client::start(self.settings, TokioReactor::current(self.dialer)?)
    }

    /// Looks up the servers if they are named in DNS, and creates the client; servers are
    /// connected to in the background.
    ///
    /// # Errors
    ///
    /// Fails as [`Client::new`] does, and if DNS gives no hosts or options that can be used.
    ///
    /// # Panics
    ///
    /// As [`Client::new`].
    pub async fn connect(self) -> Result<Client, ClientError> {
        self.connect_with_events().await.map(|(client, _)| client)
    }

    /// As [`connect`](Self::connect), and subscribes to the client's events from the very first
    /// one.
    ///
    /// # Errors
    ///
    /// Fails as [`connect`](Self::connect) does.
    pub async fn connect_with_events(mut self) -> Result<(Client, Events), ClientError> {
        self.settings = self.settings.complete(TokioReactor::current(None)?).await?;
        self.build_with_events()
    }
}

impl fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientBuilder")
            .field("options", &self.settings.options)
            .finish_non_exhaustive()
    }
}
