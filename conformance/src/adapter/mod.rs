//! The suite that every runtime has to pass: discovery, failover, time-outs, cancellation, broken
//! networks and the end of a client, each tried with the sockets and timers of the runtime itself.
//!
//! An author implements [`Adapter`] and runs a [`Suite`], which prints a table of tests by
//! adapters. `docs/write-your-own-runtime.md` says what a runtime must do.
//!
//! The suite waits with threads and never with the runtime that it judges: whatever that does, a
//! test ends. Servers are the embedded deployment, small peers on threads of their own, and real
//! ones where they are installed.

mod child;
mod fixture;
mod forks;
mod fronts;
mod name_server;
mod parts;
mod port;
mod scenarios;
mod scripted;
mod silent;
mod suite;
mod table;

use std::fmt;
use std::future::Future;
use std::net::SocketAddr;

use sdam_core::auth::GssapiProvider;
use sdam_core::config::Options;
use sdam_core::logging::LogSettings;
use sdam_core::spans::SpanSettings;
use sdam_host::{CredentialProvider, Error, Events, Runtime, Topology, Tracer};

pub(crate) use fixture::world;
pub use suite::{Conclusion, Suite};
pub use table::{Column, Outcome, Table};

/// A client, with a subscription that misses no event.
pub type Subject<R> = (Topology<R>, Events);

/// A runtime, as the suite makes use of it; it is used by several threads at once.
pub trait Adapter: Send + Sync + 'static {
    /// The runtime of its clients.
    type Runtime: Runtime;

    /// Returns what the column of the table is called, and the names of tests begin with.
    fn name(&self) -> &str;

    /// Creates a client that differs in nothing from what applications get.
    ///
    /// # Errors
    ///
    /// Fails if the runtime cannot follow the options.
    fn client(&self, options: Options) -> Result<Subject<Self::Runtime>, Error>;

    /// As [`client`](Self::client), with these settings of the log, which a runtime of tests may
    /// leave as they are.
    ///
    /// # Errors
    ///
    /// Fails as [`client`](Self::client) does.
    fn logging_client(
        &self,
        options: Options,
        settings: LogSettings,
    ) -> Result<Subject<Self::Runtime>, Error> {
        drop(settings);
        self.client(options)
    }

    /// As [`client`](Self::client), with spans by these settings for a tracer, which a runtime of
    /// tests may leave as they are.
    ///
    /// # Errors
    ///
    /// Fails as [`client`](Self::client) does.
    fn traced_client(
        &self,
        options: Options,
        settings: SpanSettings,
        tracer: impl Tracer,
    ) -> Result<Subject<Self::Runtime>, Error> {
        drop((settings, tracer));
        self.client(options)
    }

    /// As [`client`](Self::client), with a provider of credentials, which a runtime of tests may
    /// leave out.
    ///
    /// # Errors
    ///
    /// Fails as [`client`](Self::client) does.
    fn provided_client(
        &self,
        options: Options,
        provider: impl CredentialProvider,
    ) -> Result<Subject<Self::Runtime>, Error> {
        drop(provider);
        self.client(options)
    }

    /// As [`client`](Self::client), with a source of security contexts for logins by GSSAPI.
    ///
    /// A runtime without one leaves this as it is, and [lacks](Self::lacks) [`Feature::Gssapi`].
    ///
    /// # Errors
    ///
    /// Fails as [`client`](Self::client) does.
    fn gssapi_client(
        &self,
        options: Options,
        provider: impl GssapiProvider,
    ) -> Result<Subject<Self::Runtime>, Error> {
        drop(provider);
        self.client(options)
    }

    /// As [`client`](Self::client), for each of these options, with a registry of monitors that all
    /// of them share.
    ///
    /// A runtime without a registry leaves this as it is, and [lacks](Self::lacks)
    /// [`Feature::Sharing`].
    ///
    /// # Errors
    ///
    /// Fails as [`client`](Self::client) does.
    fn sharing_clients(&self, options: Vec<Options>) -> Result<Vec<Subject<Self::Runtime>>, Error> {
        options.into_iter().map(|options| self.client(options)).collect()
    }

    /// As [`client`](Self::client), after these name servers were asked for the servers of
    /// `mongodb+srv://`, whom the client goes on asking.
    ///
    /// A runtime without lookups leaves this as it is, and [lacks](Self::lacks)
    /// [`Feature::Lookups`].
    ///
    /// # Errors
    ///
    /// Fails as [`client`](Self::client) does, and if the lookup does.
    fn connect(
        &self,
        options: Options,
        name_servers: Vec<SocketAddr>,
    ) -> impl Future<Output = Result<Subject<Self::Runtime>, Error>> {
        drop(name_servers);
        async { self.client(options) }
    }

    /// Runs a future to its end on the calling thread, which the runtime does not know.
    fn block_on<T>(&self, future: impl Future<Output = T>) -> T;

    /// Returns why the runtime does without a feature, if it does: its tests are left out, and the
    /// table says so.
    fn lacks(&self, feature: Feature) -> Option<&str> {
        let _ = feature;
        None
    }
}

/// A feature that a runtime may lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Feature {
    /// A lookup that is under way may be given up.
    GivingUp,
    /// Security contexts of GSSAPI come from where a test wants it.
    Gssapi,
    /// An exchange that waits without a deadline is interrupted when the server's monitor finds it
    /// silent.
    Interruption,
    /// The servers of `mongodb+srv://` are looked up in DNS.
    Lookups,
    /// Work that keeps a thread busy is done where no task waits.
    Offloading,
    /// Clients share monitors by a registry.
    Sharing,
    /// `host::Topology` drives a client that looks for servers only when it needs one.
    SingleThreaded,
    /// Streams are encrypted.
    Tls,
    /// Servers are reached over Unix domain sockets.
    UnixSockets,
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::GivingUp => "lookups that are given up",
            Self::Gssapi => "logins by GSSAPI",
            Self::Interruption => "interruption",
            Self::Lookups => "lookups in DNS",
            Self::Offloading => "long work elsewhere",
            Self::Sharing => "shared monitors",
            Self::SingleThreaded => "single-threaded clients",
            Self::Tls => "TLS",
            Self::UnixSockets => "Unix domain sockets",
        })
    }
}
