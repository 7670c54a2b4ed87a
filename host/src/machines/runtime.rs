//! The services of a runtime: sockets, timers and tasks.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bson::DateTime;
use sdam_core::auth::{CredentialRequest, GssapiProvider};
use sdam_core::config::ServerAddress;
use sdam_core::failure::{Cause, Failure, Stage};
use sdam_core::id::ServerId;
use sdam_core::time::Instant;

use crate::machines::steps::{PoolStep, TopologyStep};
use crate::machines::tasks::{Link, PendingConnection, Rescan};
use crate::net::credentials::Answering;
use crate::net::reactor::Lane;
use crate::net::socket::Socket;

/// The runtime of a client, for the bounds of code that works with any: `R: Runtime`.
///
/// It is [`SocketRuntime`](crate::SocketRuntime), made of what you implement: a
/// [`Reactor`](crate::Reactor). The simulation has another, under which no time passes by itself.
// What a host asks of it is between the crates of this workspace. Every method returns at once.
// Only `now` and `wall_clock` are called under locks.
pub trait Runtime: Send + Sync + Sized + 'static {
    /// The byte stream under a connection or a link.
    #[doc(hidden)]
    type Socket: Socket;

    /// Reads the monotonic clock, whose origin is the creation of the runtime's host.
    #[doc(hidden)]
    fn now(&self) -> Instant;

    /// Starts to open a stream to `address`, and to move bytes between it and `link`, with
    /// [`Link::run`]; it reports to [`Progress`](crate::Progress) how far that has come.
    #[doc(hidden)]
    fn open(&self, link: Link<Self>, address: ServerAddress);

    /// Starts to establish an application's connection to `address`, with
    /// [`PendingConnection::run`].
    #[doc(hidden)]
    fn establish(&self, pending: PendingConnection<Self>, address: ServerAddress);

    /// Starts to look up what `rescan` asks for.
    #[doc(hidden)]
    fn resolve(&self, rescan: Rescan<Self>);

    /// Starts a task of a client's that no application waits for, as one that closes a cursor which
    /// was dropped. It ends soon, and at the latest with the client.
    #[doc(hidden)]
    fn spawn(&self, task: Task);

    /// Arranges for [`Host::ring`](crate::Host::ring) at `deadline`, replacing any earlier request.
    /// A ring that comes too early or twice does no harm: this is called again after each.
    #[doc(hidden)]
    fn alarm(&self, deadline: Option<Instant>);

    /// Reads the wall clock, by which lines of the log are dated and credentials of AWS expire; a
    /// runtime that can provide them has one, or else those it has provided are not used again, and
    /// lines are dated by the clock of the system.
    #[doc(hidden)]
    fn wall_clock(&self) -> Option<DateTime> {
        None
    }

    /// Draws the seeds of the names of sessions, which no other client may have, from the operating
    /// system. A runtime that leaves this as it is has them derived from the client's seed, as a
    /// simulation wants it.
    #[doc(hidden)]
    fn session_seeds(&self) -> Option<[u64; 2]> {
        None
    }

    /// Does work that keeps a thread busy, for up to a second and more on a slow machine, and that
    /// nothing interrupts; a login derives keys so, and asks the library of Kerberos.
    ///
    /// A runtime whose tasks have threads of their own leaves this as it is: the work is done at
    /// once. Others do it where no task waits. If `work` is dropped, the login fails.
    #[doc(hidden)]
    fn offload(&self, _lane: Lane, work: Work) -> Offloaded {
        work();
        Box::pin(std::future::ready(()))
    }

    /// Returns when the certificate that a server has shown last expires, in seconds since 1970, if
    /// its streams are encrypted and the runtime knows.
    #[doc(hidden)]
    fn certificate_expiry(&self, _: &ServerAddress) -> Option<u64> {
        None
    }

    /// Finds what an authentication mechanism asks for: a token, or credentials of AWS.
    ///
    /// It is asked for what the client does not remember, and for one token at a time.
    ///
    /// A runtime that has no such providers leaves this as it is: the login fails, and says why.
    #[doc(hidden)]
    fn answer(&self, question: CredentialRequest) -> Answering {
        let what = match question {
            CredentialRequest::Aws => "credentials of AWS",
            CredentialRequest::Oidc(_) => "tokens of OpenID Connect",
            CredentialRequest::Gssapi(_) => "security contexts of GSSAPI",
        };
        let detail = format!("this runtime has no provider of {what}");
        let failure = Failure::new(Stage::Credentials, Cause::Configuration, detail);
        Box::pin(async { Err(failure) })
    }

    /// Returns the source of security contexts for logins by GSSAPI, whose calls are
    /// [offloaded](Self::offload); a runtime without one leaves this as it is.
    #[doc(hidden)]
    fn gssapi_provider(&self) -> Option<Arc<dyn GssapiProvider>> {
        None
    }

    /// Is shown each step of the topology, under its lock: it may call nothing of the host.
    ///
    /// For simulations, which check every step. By default it does nothing, at no cost.
    #[doc(hidden)]
    fn on_topology(&self, _: TopologyStep<'_>) {}

    /// Is shown each step of a server's pool, under its lock: it may call nothing of the host.
    ///
    /// For simulations, as [`on_topology`](Self::on_topology) is.
    #[doc(hidden)]
    fn on_pool<C: std::fmt::Debug>(&self, _: ServerId, _: PoolStep<'_, C>) {}
}

/// A task for [`Runtime::spawn`].
pub type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The work for [`Runtime::offload`].
pub type Work = Box<dyn FnOnce() + Send>;

/// The result of [`Runtime::offload`].
pub type Offloaded = Pin<Box<dyn Future<Output = ()> + Send>>;
