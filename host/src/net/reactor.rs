//! Sockets, timers and tasks: what a runtime supplies for the host to make the rest of.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::time::Duration;

use sdam_core::config::{ServerAddress, TcpOptions};
use sdam_core::time::Instant;

use crate::error::ClientError;
use crate::net::socket::Socket;

/// The sockets, timers and tasks of a runtime, and its threads for what blocks: the one trait that
/// you implement for a runtime of your own, with [`Socket`].
///
/// A [`SocketRuntime`](crate::SocketRuntime) makes of them what clients need.
///
/// Clones are the same reactor. None of its futures is polled after it is dropped, and dropping one
/// gives up what it waits for.
pub trait Reactor: Clone + fmt::Debug + Send + Sync + 'static {
    /// The byte stream under a connection or a link, and the socket of a conversation with a name
    /// server.
    type Socket: Socket;

    /// Reads the monotonic clock, whose origin is the creation of the reactor.
    fn now(&self) -> Instant;

    /// Returns the same reactor with the clock of `other`, whose monitors a client shares: tasks of
    /// that client are to run where it was made, and the monitors there, too, when the runtime of
    /// `other` has ended.
    ///
    /// By default, it is `other`: for reactors that last as long as they have users.
    #[must_use]
    fn with_clock_of(&self, other: &Self) -> Self {
        other.clone()
    }

    /// Waits for a time of that clock.
    fn sleep_until(&self, at: Instant) -> impl Future<Output = ()> + Send + use<Self>;

    /// Waits for some time.
    fn sleep(&self, time: Duration) -> impl Future<Output = ()> + Send + use<Self> {
        self.sleep_until(self.now() + time)
    }

    /// Starts a task.
    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static);

    /// Calls what blocks, where no task waits for it.
    ///
    /// # Errors
    ///
    /// Fails if there is no thread for it, or if it panics.
    fn block<T: Send + 'static>(
        &self,
        lane: Lane,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> impl Future<Output = io::Result<T>> + Send;

    /// Awaits a future of the application's, which blocks in runtimes whose applications may.
    ///
    /// # Errors
    ///
    /// Fails if there is no thread for it, or if it panics there.
    fn drive<T: Send + 'static>(
        &self,
        _lane: Lane,
        work: impl Future<Output = T> + Send + 'static,
    ) -> impl Future<Output = io::Result<T>> + Send {
        async { Ok(work.await) }
    }

    /// Opens a stream of TCP with these options, which
    /// [`configure_tcp`](crate::system::configure_tcp) sets.
    ///
    /// # Errors
    ///
    /// Fails if there is no answer.
    fn open_tcp(
        &self,
        address: SocketAddr,
        options: TcpOptions,
    ) -> impl Future<Output = io::Result<Self::Socket>> + Send;

    /// Opens a socket that exchanges datagrams with `address`: each write sends one, and each read
    /// receives one.
    ///
    /// # Errors
    ///
    /// Fails if the system has no socket left, or no way there.
    fn open_udp(
        &self,
        address: SocketAddr,
    ) -> impl Future<Output = io::Result<Self::Socket>> + Send;

    /// Opens a stream to the Unix domain socket at `path`.
    ///
    /// # Errors
    ///
    /// Fails if no process listens there.
    #[cfg(unix)]
    fn open_unix(&self, path: &str) -> impl Future<Output = io::Result<Self::Socket>> + Send;

    /// Opens a stream the application's way, in `lane` if it blocks; `None` if it has none of its
    /// own. The future is polled for the first time when opening the stream begins.
    fn dial<'a>(
        &'a self,
        _lane: &Lane,
        _address: &'a ServerAddress,
    ) -> Option<Dialed<'a, Self::Socket>> {
        None
    }
}

/// A reactor that is to be had where a client is created, so that applications need not name it.
///
/// It gives them [`Topology::connect`](crate::Topology::connect),
/// [`Topology::new`](crate::Topology::new) and a [`ClientBuilder`](crate::ClientBuilder).
pub trait CurrentReactor: Reactor {
    /// The application's settings for it: how streams are opened, say, or where tasks run. If it
    /// has a default, you need not set it.
    type Setup: Clone + Send + Sync + 'static;

    /// Returns the reactor of the runtime that this thread is in; its clock begins now.
    ///
    /// # Errors
    ///
    /// Fails outside the runtime.
    fn current(setup: Self::Setup) -> Result<Self, ClientError>;
}

/// A reactor whose streams an application may open with a `D`, in place of sockets; see
/// [`ClientBuilder::dialer`](crate::ClientBuilder::dialer).
pub trait DialWith<D>: CurrentReactor {
    /// Has `dialer` open the streams.
    fn dial_with(setup: &mut Self::Setup, dialer: D);
}

/// The result of [`Reactor::dial`]: a stream, once it is open.
pub type Dialed<'a, S> = Pin<Box<dyn Future<Output = io::Result<S>> + Send + 'a>>;

/// A lane of work done one after another where it blocks, so that one hang holds up no other work.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Lane {
    /// Finding the way to a server: its name, or the application's dialer.
    Server(ServerAddress),
    /// Reading certificates.
    Certificates,
    /// Looking for servers in DNS.
    Records,
    /// Asking for tokens and credentials.
    Credentials,
    /// Deriving keys from a password.
    Keys,
}
