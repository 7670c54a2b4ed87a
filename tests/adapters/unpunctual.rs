//! The example's runtime with timers that ring too early and too late.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use sdam::core::config::TcpOptions;
use sdam::core::time::Instant;
use sdam::host::{ClientError, CurrentReactor, Lane, Reactor};

use crate::example::own_runtime::{Socket, Threads};

/// By how much a timer is early or late; what is later than 100 ms looks as if the process had been
/// stopped.
const OFF: [Duration; 2] = [Duration::from_millis(20), Duration::from_millis(150)];

/// Bad timers, which are counted.
#[derive(Clone, Debug)]
pub(crate) struct Unpunctual(Threads, Arc<AtomicU32>);

impl CurrentReactor for Unpunctual {
    type Setup = ();

    fn current((): ()) -> Result<Self, ClientError> {
        Ok(Self(Threads::current(())?, Arc::default()))
    }
}

impl Reactor for Unpunctual {
    type Socket = Socket;

    fn now(&self) -> Instant {
        self.0.now()
    }

    fn sleep_until(&self, at: Instant) -> impl Future<Output = ()> + Send + use<> {
        let left = at - self.now();
        self.0.sleep_until(match self.1.fetch_add(1, Ordering::Relaxed) % 5 {
            0 => self.now() + left / 2,
            1 => self.now() + left.saturating_sub(Duration::from_millis(1)),
            2 => self.now() + left.saturating_sub(Duration::from_nanos(1)),
            3 => at + OFF[0],
            _ => at + OFF[1],
        })
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.0.spawn(task);
    }

    async fn block<T: Send + 'static>(
        &self,
        lane: Lane,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T> {
        self.0.block(lane, work).await
    }

    async fn open_tcp(&self, address: SocketAddr, options: TcpOptions) -> io::Result<Socket> {
        self.0.open_tcp(address, options).await
    }

    async fn open_udp(&self, address: SocketAddr) -> io::Result<Socket> {
        self.0.open_udp(address).await
    }

    #[cfg(unix)]
    async fn open_unix(&self, path: &str) -> io::Result<Socket> {
        self.0.open_unix(path).await
    }
}
