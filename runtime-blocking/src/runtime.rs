//! Sockets, timers and tasks of an engine, and threads for what blocks.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time;

use sdam_core::config::{ServerAddress, TcpOptions};
use sdam_core::dns::any_address_for;
use sdam_core::time::Instant;
use sdam_host::system::configure_tcp;
use sdam_host::{Dialed, Lane, Reactor, SocketRuntime};
use socket2::{SockAddr, Socket as Stream, Type};

use crate::dialer::Dialer;
use crate::engine::{Engine, Interest, Registration};
use crate::helper::Helper;
use crate::socket::Socket;

/// The runtime of an engine's tasks and of threads that block.
pub type Blocking = SocketRuntime<BlockingReactor>;

/// The monitors that clients share which are [made with it](crate::ClientBuilder::registry).
pub type Registry = sdam_host::Registry<BlockingReactor>;

/// Sockets, timers and tasks of an engine, threads for what blocks, and the application's dialer.
#[derive(Clone, Debug)]
pub struct BlockingReactor {
    pub(crate) engine: Arc<Engine>,
    pub(crate) helper: Helper,
    /// The origin of the client's clock.
    pub(crate) epoch: time::Instant,
    pub(crate) dialer: Option<Arc<dyn Dialer>>,
}

impl BlockingReactor {
    fn socket(&self, stream: Arc<Stream>) -> io::Result<Socket> {
        Socket::new(stream, Arc::clone(&self.engine), self.epoch)
    }
}

impl Reactor for BlockingReactor {
    type Socket = Socket;

    fn now(&self) -> Instant {
        Instant::ZERO + self.epoch.elapsed()
    }

    fn sleep_until(&self, at: Instant) -> impl Future<Output = ()> + Send + use<> {
        self.engine.sleep_until(self.epoch.checked_add(at.since_origin()))
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.engine.spawn(Box::pin(task));
    }

    async fn block<T: Send + 'static>(
        &self,
        lane: Lane,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T> {
        self.helper.call(lane, work).await
    }

    async fn drive<T: Send + 'static>(
        &self,
        lane: Lane,
        work: impl Future<Output = T> + Send + 'static,
    ) -> io::Result<T> {
        self.helper.run(lane, work).await
    }

    async fn open_tcp(&self, address: SocketAddr, options: TcpOptions) -> io::Result<Socket> {
        let stream = open(&self.engine, address.into()).await?;
        configure_tcp(&*stream, options);
        self.socket(stream)
    }

    async fn open_udp(&self, address: SocketAddr) -> io::Result<Socket> {
        let local = SockAddr::from(any_address_for(address));
        let socket = Stream::new(local.domain(), Type::DGRAM, None)?;
        socket.bind(&local)?;
        socket.connect(&SockAddr::from(address))?;
        Ok(self.socket(Arc::new(socket))?.of_datagrams())
    }

    #[cfg(unix)]
    async fn open_unix(&self, path: &str) -> io::Result<Socket> {
        self.socket(open(&self.engine, SockAddr::unix(path)?).await?)
    }

    fn dial<'a>(&'a self, lane: &Lane, address: &'a ServerAddress) -> Option<Dialed<'a, Socket>> {
        let (dialer, lane) = (Arc::clone(self.dialer.as_ref()?), lane.clone());
        let address = address.clone();
        Some(Box::pin(async move {
            let dialed = self.helper.call(lane, move || dialer.dial(address)).await;
            self.socket(Arc::new(dialed.flatten()?.0))
        }))
    }
}

/// Opens a stream to one address.
async fn open(engine: &Arc<Engine>, address: SockAddr) -> io::Result<Arc<Stream>> {
    let socket = Arc::new(Stream::new(address.domain(), Type::STREAM, None)?);
    socket.set_nonblocking(true)?;
    match socket.connect(&address) {
        Ok(()) => return Ok(socket),
        Err(error) if is_in_progress(&error) => {}
        Err(error) => return Err(error),
    }
    Registration::new(engine, &socket)?.ready(Interest::WRITABLE).await?;
    match socket.take_error()? {
        None => Ok(socket),
        Some(error) => Err(error),
    }
}

#[cfg(unix)]
fn is_in_progress(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::INPROGRESS.raw_os_error())
}

#[cfg(not(unix))]
fn is_in_progress(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
}
