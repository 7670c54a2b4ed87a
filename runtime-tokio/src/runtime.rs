//! The sockets, timers and tasks of tokio.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use sdam_core::config::{ServerAddress, TcpOptions};
use sdam_core::dns::any_address_for;
use sdam_core::time::Instant;
use sdam_host::system::configure_tcp;
use sdam_host::{
    ClientError, CurrentReactor, DialWith, Dialed, Lane, Reactor, Records, Resolver, SocketRuntime,
};
use tokio::net::{TcpStream, UdpSocket};
use tokio::runtime::Handle;
use tokio::time;

use crate::dialer::Dialer;
use crate::socket::{Datagrams, Socket, Stream};

/// The runtime of tokio.
pub type Tokio = SocketRuntime<TokioReactor>;

/// The sockets, timers and tasks of tokio, and the application's dialer.
#[derive(Clone, Debug)]
pub struct TokioReactor {
    handle: Handle,
    /// The origin of the client's clock.
    epoch: time::Instant,
    setup: Setup,
}

/// The settings of an application for its clients' runtime.
#[derive(Clone, Debug, Default)]
pub struct Setup {
    dialer: Option<Arc<dyn Dialer>>,
}

impl CurrentReactor for TokioReactor {
    type Setup = Setup;

    fn current(setup: Setup) -> Result<Self, ClientError> {
        let handle = Handle::try_current().map_err(|error| ClientError::NoRuntime(error.into()))?;
        Ok(Self { handle, epoch: time::Instant::now(), setup })
    }
}

impl<D: Dialer> DialWith<D> for TokioReactor {
    fn dial_with(setup: &mut Setup, dialer: D) {
        setup.dialer = Some(Arc::new(dialer));
    }
}

impl TokioReactor {
    fn socket(&self, stream: Stream) -> Socket {
        Socket::new(stream, self.handle.clone(), self.epoch)
    }
}

/// Asks for SRV and TXT records over sockets of the tokio runtime that this thread is in.
///
/// # Errors
///
/// Fails outside a tokio runtime.
pub fn resolver(records: Records) -> Result<impl Resolver, ClientError> {
    Ok(records.resolver(TokioReactor::current(Setup::default())?))
}

impl Reactor for TokioReactor {
    type Socket = Socket;

    fn now(&self) -> Instant {
        Instant::ZERO + self.epoch.elapsed()
    }

    fn with_clock_of(&self, other: &Self) -> Self {
        Self { epoch: other.epoch, ..self.clone() }
    }

    /// tokio rounds up to a millisecond, so that the time has passed when this ends.
    fn sleep_until(&self, at: Instant) -> impl Future<Output = ()> + Send + use<> {
        time::sleep_until(self.epoch + at.since_origin())
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.handle.spawn(task);
    }

    async fn block<T: Send + 'static>(
        &self,
        _: Lane,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T> {
        let done = self.handle.spawn_blocking(work).await;
        done.map_err(|error| match error.is_panic() {
            true => io::Error::other(error),
            false => io::Error::other("the runtime is shutting down"),
        })
    }

    async fn open_tcp(&self, address: SocketAddr, options: TcpOptions) -> io::Result<Socket> {
        let stream = TcpStream::connect(address).await?;
        configure_tcp(&stream, options);
        Ok(self.socket(Stream::Tcp(stream)))
    }

    async fn open_udp(&self, address: SocketAddr) -> io::Result<Socket> {
        let socket = UdpSocket::bind(any_address_for(address)).await?;
        socket.connect(address).await?;
        Ok(self.socket(Stream::Udp(Datagrams::new(socket))))
    }

    #[cfg(unix)]
    async fn open_unix(&self, path: &str) -> io::Result<Socket> {
        Ok(self.socket(Stream::Unix(tokio::net::UnixStream::connect(path).await?)))
    }

    fn dial<'a>(&'a self, _: &Lane, address: &'a ServerAddress) -> Option<Dialed<'a, Socket>> {
        let dialer = self.setup.dialer.as_ref()?;
        Some(Box::pin(async { Ok(self.socket(Stream::dialled(dialer.dial(address).await?))) }))
    }
}
