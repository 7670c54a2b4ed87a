//! A runtime of one's own: sockets and timers of smol, and a thread for every task.

use std::net::{SocketAddr, TcpStream};
use std::task::{Context, Poll, ready};
use std::time::Instant as Clock;
use std::{future::Future, io, pin::Pin, thread};

use sdam::core::config::TcpOptions;
use sdam::core::time::Instant;
use sdam::host::{self, ClientError, CurrentReactor, Lane, Reactor, system};
use smol::io::{AsyncRead, AsyncWrite};
use smol::{Async, Timer, block_on};

type Done = Poll<io::Result<usize>>;

/// The runtime: the origin of its clock. Its topologies are
/// `host::Topology<SocketRuntime<Threads>>`.
#[derive(Clone, Debug)]
pub struct Threads(Clock);

impl CurrentReactor for Threads {
    type Setup = ();

    fn current((): ()) -> Result<Self, ClientError> {
        Ok(Self(Clock::now()))
    }
}

impl Reactor for Threads {
    type Socket = Socket;

    fn now(&self) -> Instant {
        Instant::ZERO + self.0.elapsed()
    }

    fn sleep_until(&self, at: Instant) -> impl Future<Output = ()> + Send + use<> {
        let timer = Timer::at(self.0 + at.since_origin());
        async { _ = timer.await }
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        thread::spawn(|| block_on(task));
    }

    async fn block<T: Send + 'static>(
        &self,
        _: Lane,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T> {
        Ok(smol::unblock(work).await)
    }

    async fn open_tcp(&self, address: SocketAddr, options: TcpOptions) -> io::Result<Socket> {
        let stream = Async::<TcpStream>::connect(address).await?;
        system::configure_tcp(&stream, options);
        Ok(Socket(stream, Timer::never(), self.0))
    }

    // Name servers are asked over UDP: this runtime does without mongodb+srv://.
    async fn open_udp(&self, _: SocketAddr) -> io::Result<Socket> {
        Err(io::ErrorKind::Unsupported.into())
    }

    #[cfg(unix)]
    async fn open_unix(&self, _: &str) -> io::Result<Socket> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// A stream, what rings at its deadline, and the origin of the clock.
pub struct Socket(Async<TcpStream>, Timer, Clock);

fn or_late(socket: &mut Socket, done: Done, cx: &mut Context<'_>, by: Option<Instant>) -> Done {
    let (Poll::Pending, Some(by)) = (&done, by) else { return done };
    socket.1.set_at(socket.2 + by.since_origin());
    ready!(Pin::new(&mut socket.1).poll(cx));
    Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
}

impl host::Socket for Socket {
    fn poll_read(&mut self, cx: &mut Context<'_>, to: &mut [u8], by: Option<Instant>) -> Done {
        let done = Pin::new(&mut self.0).poll_read(cx, to);
        or_late(self, done, cx, by)
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8], by: Option<Instant>) -> Done {
        let done = Pin::new(&mut self.0).poll_write(cx, bytes);
        or_late(self, done, cx, by)
    }

    fn is_quiet(&mut self) -> bool {
        let peeked = self.0.get_ref().peek(&mut [0]);
        peeked.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }
}
