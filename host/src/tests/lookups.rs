//! Exchanges over the sockets of a reactor: lookups, and credentials of AWS.

use std::future::{Future, pending};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};

use super::fixture::Task;
#[cfg(feature = "aws")]
use crate::net::credentials::sources::{CredentialSources, Provider};
use crate::net::dns::{Records, Resolver as _};
use crate::net::reactor::{Lane, Reactor};
use crate::net::socket::Socket;
use sdam_core::config::TcpOptions;
use sdam_core::dns::{NameServers, Question};
use sdam_core::time::Instant;

/// A reactor whose sockets read more and more, and never an answer; it counts reads and writes.
#[derive(Clone, Debug, Default)]
struct Babble {
    calls: Arc<AtomicU32>,
    /// True if sockets take nothing of what is written to them.
    takes_nothing: bool,
}

impl Babble {
    fn count(&self) {
        assert!(self.calls.fetch_add(1, Ordering::Relaxed) < 1000, "no other task has a turn");
    }
}

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

    async fn open_tcp(&self, _: SocketAddr, _: TcpOptions) -> io::Result<Self> {
        Ok(self.clone())
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
        self.count();
        buffer[..12].fill(0);
        Poll::Ready(Ok(12))
    }

    fn poll_write(
        &mut self,
        _: &mut Context<'_>,
        bytes: &[u8],
        _: Option<Instant>,
    ) -> Poll<io::Result<usize>> {
        self.count();
        Poll::Ready(Ok(if self.takes_nothing { 0 } else { bytes.len() }))
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
        let read = babble.calls.load(Ordering::Relaxed);
        assert!((1..=17 * turn).contains(&read), "{read} by turn {turn}");
    }
}

/// A stream of an application's `Dialer`, or a runtime of one's own, may return 0 when it has
/// ended.
#[test]
fn a_lookup_whose_socket_takes_nothing_fails() {
    let (question, socket) = (Question::txt("cluster.example.com"), Babble::default());
    let socket = Babble { takes_nothing: true, ..socket };
    let servers = NameServers::new(["127.0.0.1:53".parse().unwrap()]);
    let resolver = Records::NameServers(servers).resolver(socket);
    let mut task = Task::new(resolver.lookup(question));
    let Poll::Ready(outcome) = task.poll() else { panic!("it waits for what never comes") };
    let error = outcome.unwrap_err().to_string();
    assert!(error.contains("127.0.0.1:53") && error.contains("write zero"), "{error}");
}

#[cfg(feature = "aws")]
#[test]
fn a_request_for_credentials_whose_socket_takes_nothing_fails() {
    let socket = Babble { takes_nothing: true, ..Babble::default() };
    let variable = |name: &str| match name {
        "AWS_CONTAINER_CREDENTIALS_FULL_URI" => Some("http://127.0.0.1:80/role".to_owned()),
        _ => None,
    };
    let provider = Provider::Sources(CredentialSources::default().variables(variable), None);
    let mut task = Task::new(provider.answer(&socket, sdam_core::auth::CredentialRequest::Aws));
    let Poll::Ready(outcome) = task.poll() else { panic!("it waits for what never comes") };
    let error = outcome.unwrap_err().to_string();
    assert!(error.contains("write zero"), "{error}");
}
