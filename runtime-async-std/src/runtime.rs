//! Sockets and timers of async-io, and tasks of an executor.

use std::future::Future;
use std::io;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::time;

use async_io::{Async, Timer};
use sdam_core::config::ServerAddress;
use sdam_core::dns::any_address_for;
use sdam_core::time::Instant;
use sdam_host::system::configure_tcp;
use sdam_host::{Dialed, Lane, Reactor, SocketRuntime};

use crate::dialer::Dialer;
use crate::executor::Executor;
use crate::socket::{Datagrams, Socket, Stream};

/// What the host asks of a runtime, by async-io and an executor.
pub type AsyncIo = SocketRuntime<AsyncIoReactor>;

/// Sockets and timers of async-io, tasks of an executor, and the application's dialer.
#[derive(Clone, Debug)]
pub struct AsyncIoReactor {
    executor: Arc<dyn Executor>,
    /// The origin of the client's clock.
    epoch: time::Instant,
    dialer: Option<Arc<dyn Dialer>>,
}

impl AsyncIoReactor {
    /// Its clock begins now.
    pub(crate) fn new(executor: Arc<dyn Executor>, dialer: Option<Arc<dyn Dialer>>) -> Self {
        Self { executor, epoch: time::Instant::now(), dialer }
    }

    fn socket(&self, stream: impl Stream) -> Socket {
        Socket::new(Box::new(stream), self.epoch)
    }
}

impl Reactor for AsyncIoReactor {
    type Socket = Socket;

    fn now(&self) -> Instant {
        Instant::ZERO + self.epoch.elapsed()
    }

    fn sleep_until(&self, at: Instant) -> impl Future<Output = ()> + Send + use<> {
        let timer = Timer::at(self.epoch + at.since_origin());
        async {
            timer.await;
        }
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.executor.spawn(Box::pin(task));
    }

    async fn block<T: Send + 'static>(
        &self,
        _: Lane,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T> {
        Ok(blocking::unblock(work).await)
    }

    async fn open_tcp(&self, address: SocketAddr) -> io::Result<Socket> {
        let stream = Async::<TcpStream>::connect(address).await?;
        configure_tcp(&stream);
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
        let dialer = self.dialer.as_ref()?;
        Some(Box::pin(async { Ok(self.socket(dialer.dial(address.clone()).await?)) }))
    }
}
