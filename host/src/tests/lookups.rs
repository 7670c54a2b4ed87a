//! Lookups over the sockets of a reactor.

use std::future::{Future, pending};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};

use super::fixture::Task;
use crate::dns::{Records, Resolver as _};
use crate::reactor::{Lane, Reactor};
use crate::runtime::Socket;
use sdam_core::dns::{NameServers, Question};
use sdam_core::time::Instant;

/// A reactor whose name servers send more and more, and never an answer; it counts what was read.
#[derive(Clone, Debug, Default)]
struct Babble(Arc<AtomicU32>);

impl Reactor for Babble {
    type Socket = Self;

    fn now(&self) -> Instant {
        Instant::ZERO
    }

    fn sleep_until(&self, _: Instant) -> impl Future<Output = ()> + Send + use<> {
        pending()
    }

    fn spawn(&self, _: impl Future<Output = ()> + Send + 'static) {}

    async fn block<T: Send + 'static>(
        &self,
        _: Lane,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T> {
        Ok(work())
    }

    async fn open_tcp(&self, _: SocketAddr) -> io::Result<Self> {
        Err(io::ErrorKind::ConnectionRefused.into())
    }

    async fn open_udp(&self, _: SocketAddr) -> io::Result<Self> {
        Ok(self.clone())
    }

    #[cfg(unix)]
    async fn open_unix(&self, _: &str) -> io::Result<Self> {
        Err(io::ErrorKind::NotFound.into())
    }
}

impl Socket for Babble {
    fn poll_read(
        &mut self,
        _: &mut Context<'_>,
        buffer: &mut [u8],
        _: Option<Instant>,
    ) -> Poll<io::Result<usize>> {
        assert!(self.0.fetch_add(1, Ordering::Relaxed) < 1000, "nobody else has a turn");
        buffer[..12].fill(0);
        Poll::Ready(Ok(12))
    }

    fn poll_write(
        &mut self,
        _: &mut Context<'_>,
        bytes: &[u8],
        _: Option<Instant>,
    ) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn is_quiet(&mut self) -> bool {
        false
    }
}

#[test]
fn a_lookup_whose_name_server_babbles_lets_others_have_their_turn() {
    let (question, babble) = (Question::txt("cluster.example.com"), Babble::default());
    let servers = NameServers::new(["127.0.0.1:53".parse().unwrap()]);
    let resolver = Records::NameServers(servers).resolver(babble.clone());
    let mut task = Task::new(resolver.lookup(question));
    for turn in 1..10 {
        assert!(task.poll().is_pending() && task.was_woken());
        let read = babble.0.load(Ordering::Relaxed);
        assert!((1..=16 * turn).contains(&read), "{read} by turn {turn}");
    }
}
