//! Clients of every runtime, which log in because they are asked for a ping.

use std::future::Future;
use std::pin::Pin;

use sdam::Error;
use sdam::bson::rawdoc;
use sdam::core::auth::CredentialRequest;
use sdam::core::config::{Options, OptionsBuilder};
use sdam::core::failure::{Cause, Failure};
use sdam::host::{self, CredentialProvider, CredentialSources};

use crate::certificates::Vault;
use crate::fake_server::{FakeServer, soon};
use crate::gssapi::Planted;

/// The runtime of a client.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Runtime {
    Tokio,
    Smol,
    AsyncStd,
    Blocking,
    /// The same without a thread: the caller that pings does the work.
    SingleThreaded,
}

/// The place where a client gets tokens and credentials.
pub(crate) enum Asked<P> {
    Sources(CredentialSources),
    Provider(P),
    Contexts(Planted),
    Vault(Vault),
}

impl Asked<fn(CredentialRequest) -> host::Answering> {
    /// The source of security contexts.
    pub(crate) const fn contexts(planted: Planted) -> Self {
        Self::Contexts(planted)
    }

    /// The source of the client's own certificate.
    pub(crate) const fn vault(vault: Vault) -> Self {
        Self::Vault(vault)
    }
}

impl From<CredentialSources> for Asked<fn(CredentialRequest) -> host::Answering> {
    fn from(sources: CredentialSources) -> Self {
        Self::Sources(sources)
    }
}

/// A client of any runtime.
pub(crate) trait Client: Send + Sync {
    fn ping(&self) -> Pin<Box<dyn Future<Output = Result<(), Error>> + Send + '_>>;
}

impl<R: host::Runtime> Client for host::Topology<R> {
    fn ping(&self) -> Pin<Box<dyn Future<Output = Result<(), Error>> + Send + '_>> {
        Box::pin(async { self.run_command("admin", &rawdoc! { "ping": 1 }).await.map(drop) })
    }
}

impl Client for sdam::blocking::Topology {
    fn ping(&self) -> Pin<Box<dyn Future<Output = Result<(), Error>> + Send + '_>> {
        let client = self.clone();
        let ping = move || client.run_command("admin", &rawdoc! { "ping": 1 }).map(drop);
        Box::pin(async { tokio::task::spawn_blocking(ping).await.expect("it does not panic") })
    }
}

/// Adds whom to ask, and makes the client.
macro_rules! build {
    ($builder:expr, $asked:expr) => {
        match $asked {
            Asked::Sources(sources) => $builder.credential_sources(sources),
            Asked::Provider(provider) => $builder.credential_provider(provider),
            Asked::Contexts(planted) => $builder.gssapi_provider(planted),
            Asked::Vault(vault) => $builder.certificate_key_provider(move || vault.open()),
        }
        .build()
        .expect("a client")
    };
}

impl Runtime {
    pub(crate) const ALL: [Self; 5] =
        [Self::Tokio, Self::Smol, Self::AsyncStd, Self::Blocking, Self::SingleThreaded];

    /// Makes a client of `server`.
    pub(crate) fn client<P: CredentialProvider>(
        self,
        server: &FakeServer,
        login: impl FnOnce(OptionsBuilder) -> OptionsBuilder,
        asked: impl Into<Asked<P>>,
    ) -> Box<dyn Client> {
        let options = Options::builder().uri(&format!("mongodb://{}/", server.address)).unwrap();
        let options = login(options).single_threaded(matches!(self, Self::SingleThreaded));
        let (options, asked) = (options.build().unwrap(), asked.into());
        match self {
            Self::Tokio => Box::new(build!(sdam::tokio::Topology::builder(options), asked)),
            Self::Smol => Box::new(build!(sdam::smol::Topology::builder(options), asked)),
            Self::AsyncStd => Box::new(build!(sdam::async_std::Topology::builder(options), asked)),
            Self::Blocking | Self::SingleThreaded => {
                Box::new(build!(sdam::blocking::Topology::builder(options), asked))
            }
        }
    }
}

/// Has a client log in, or use a connection that it has.
pub(crate) async fn ping(client: &dyn Client) -> Result<(), String> {
    soon(client.ping()).await.map_err(|error| error.to_string())
}

/// Has a client try to log in, and returns why it cannot.
pub(crate) async fn failed(client: &dyn Client) -> Failure {
    let error = soon(client.ping()).await.unwrap_err();
    assert!(!format!("{error} {error:?}").contains("planted"), "{error}");
    assert!(error.as_check_out().is_some(), "{error:?}");
    error.failure().unwrap_or_else(|| panic!("{error:?}")).clone()
}

/// Returns whether this is the application's doing.
pub(crate) fn is_configuration(failure: &Failure) -> bool {
    failure.cause == Cause::Configuration
}
