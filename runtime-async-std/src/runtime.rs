//! Sockets and timers of async-io, and tasks of an executor.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::time;

use async_io::{Async, Timer};
use sdam_core::config::{Options, ServerAddress, TcpOptions};
use sdam_core::dns::any_address_for;
use sdam_core::time::Instant;
use sdam_host::system::configure_tcp;
use sdam_host::{
    ClientBuilder, ClientError, CurrentReactor, DialWith, Dialed, Lane, Reactor, SocketRuntime,
};

use crate::dialer::Dialer;
use crate::executor::Executor;
use crate::socket::{Datagrams, Socket, Stream};

/// The runtime of async-io and an executor.
pub type AsyncIo<E> = SocketRuntime<AsyncIoReactor<E>>;

/// Sockets and timers of async-io, tasks of an executor, and the application's dialer.
pub struct AsyncIoReactor<E> {
    setup: Setup<E>,
    /// The origin of the client's clock.
    epoch: time::Instant,
}

/// The settings of an application for its clients' runtime.
pub struct Setup<E> {
    executor: Arc<E>,
    dialer: Option<Arc<dyn Dialer>>,
}

/// Starts to create a topology whose tasks run on `executor`.
pub fn builder_on<E: Executor>(options: Options, executor: E) -> ClientBuilder<AsyncIoReactor<E>> {
    ClientBuilder::with_setup(options, Setup::on(executor))
}

impl<E> Setup<E> {
    /// Has tasks run on an executor.
    pub fn on(executor: E) -> Self {
        Self { executor: Arc::new(executor), dialer: None }
    }
}

impl<E: Default> Default for Setup<E> {
    fn default() -> Self {
        Self { executor: Arc::default(), dialer: None }
    }
}

impl<E> Clone for Setup<E> {
    fn clone(&self) -> Self {
        Self { executor: Arc::clone(&self.executor), dialer: self.dialer.clone() }
    }
}

impl<E> fmt::Debug for Setup<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Setup").field("dialer", &self.dialer).finish_non_exhaustive()
    }
}

impl<E> Clone for AsyncIoReactor<E> {
    fn clone(&self) -> Self {
        Self { setup: self.setup.clone(), epoch: self.epoch }
    }
}

impl<E> fmt::Debug for AsyncIoReactor<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AsyncIoReactor").field("setup", &self.setup).finish_non_exhaustive()
    }
}

impl<E: Executor> CurrentReactor for AsyncIoReactor<E> {
    type Setup = Setup<E>;

    /// It works on every thread.
    fn current(setup: Setup<E>) -> Result<Self, ClientError> {
        Ok(Self { setup, epoch: time::Instant::now() })
    }
}

impl<E: Executor, D: Dialer> DialWith<D> for AsyncIoReactor<E> {
    fn dial_with(setup: &mut Setup<E>, dialer: D) {
        setup.dialer = Some(Arc::new(dialer));
    }
}

impl<E> AsyncIoReactor<E> {
    fn socket(&self, stream: impl Stream) -> Socket {
        Socket::new(Box::new(stream), self.epoch)
    }
}

impl<E: Executor> Reactor for AsyncIoReactor<E> {
    type Socket = Socket;

    fn now(&self) -> Instant {
        Instant::ZERO + self.epoch.elapsed()
    }

    fn with_clock_of(&self, other: &Self) -> Self {
        Self { setup: self.setup.clone(), epoch: other.epoch }
    }

    fn sleep_until(&self, at: Instant) -> impl Future<Output = ()> + Send + use<E> {
        let timer = Timer::at(self.epoch + at.since_origin());
        async {
            timer.await;
        }
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.setup.executor.spawn(Box::pin(task));
    }

    async fn block<T: Send + 'static>(
        &self,
        _: Lane,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T> {
        Ok(blocking::unblock(work).await)
    }

    async fn open_tcp(&self, address: SocketAddr, options: TcpOptions) -> io::Result<Socket> {
        let stream = Async::<TcpStream>::connect(address).await?;
        configure_tcp(&stream, options);
        Ok(self.socket(stream))
    }

    async fn open_udp(&self, address: SocketAddr) -> io::Result<Socket> {
        let socket = Async::<UdpSocket>::bind(any_address_for(address))?;
        socket.get_ref().connect(address)?;
        Ok(self.socket(Datagrams(socket)))
    }

    #[cfg(unix)]
    async fn open_unix(&self, path: &str) -> io::Result<Socket> {
        Ok(self.socket(Async::<std::os::unix::net::UnixStream>::connect(path).await?))
    }

    fn dial<'a>(&'a self, _: &Lane, address: &'a ServerAddress) -> Option<Dialed<'a, Socket>> {
        let dialer = self.setup.dialer.as_ref()?;
        Some(Box::pin(async { Ok(self.socket(dialer.dial(address.clone()).await?)) }))
    }
}
