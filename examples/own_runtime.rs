//! A runtime of one's own: sockets and timers of smol, and a thread for every task.

use std::net::{TcpStream, ToSocketAddrs};
use std::task::{Context, Poll, ready};
use std::time::Instant as Clock;
use std::{future::Future, io, pin::Pin, sync::Arc, thread};

use sdam::core::failure::{Failure, Stage};
use sdam::core::time::Instant;
use sdam::host::{self, Client, ClientError, Connected, Connector, Deadlines, Events, Host, Link};
use sdam::host::{PendingConnection, Rescan, Route, Task, dial, system};
use sdam::{Options, ServerAddress};
use smol::io::{AsyncRead, AsyncWrite};
use smol::{Async, Timer, block_on};

type Try<T> = Result<T, Failure>;
type Done = Poll<io::Result<usize>>;

/// The origin of the clock, where streams lead to, and where deadlines are put.
pub struct Threads(pub Clock, pub Connector, pub Deadlines);

/// Creates a client, with a subscription that misses no event.
pub fn client(options: Options) -> Result<(Client<Threads>, Events), ClientError> {
    ClientError::unless_resolved(&options)?;
    let options = options.or_environment(system::environment);
    let ((deadlines, timekeeper), clock) = (Deadlines::new(), Clock::now());
    let runtime = Threads(clock, Connector::new(&options)?, deadlines);
    let host = Host::new(Arc::new(options), system::client_seed()?, runtime);
    let events = host.subscribe();
    spawn(timekeeper.run(Arc::downgrade(&host), move |at| Timer::at(clock + at.since_origin())));
    Ok((Client::from_host(host), events))
}

fn spawn(task: impl Future<Output = ()> + Send + 'static) {
    thread::spawn(|| block_on(task));
}

/// Opens a stream. That resolving its name blocks does not matter on a thread of its own.
async fn open(to: Try<Route>, clock: Clock, at: impl Fn(Stage)) -> Try<Connected<Socket>> {
    let route = to?;
    let at = route.stages(at);
    at(route.first_stage());
    let (name, port) = (route.dial().host(), route.dial().port().unwrap_or_default());
    let addresses = (name, port).to_socket_addrs().map(Iterator::collect);
    let stream = dial(name, addresses, at, Async::<TcpStream>::connect, Timer::after).await;
    let configured = stream.inspect(|stream| system::configure_tcp(stream, route.tcp()));
    route.opened(configured.map(|stream| Socket(stream, Timer::never(), clock)))
}

impl host::Runtime for Threads {
    type Socket = Socket;

    fn now(&self) -> Instant {
        Instant::ZERO + self.0.elapsed()
    }

    fn open(&self, link: Link<Self>, address: ServerAddress) {
        let (progress, to) = (link.progress(), self.1.route(&address, &self.1.filters()));
        spawn(link.run(open(to, self.0, move |stage| progress.reached(stage))));
    }

    fn establish(&self, pending: PendingConnection<Self>, address: ServerAddress) {
        let (progress, to) = (pending.progress(), self.1.route(&address, &self.1.filters()));
        spawn(pending.run(open(to, self.0, move |stage| progress.reached(stage)), system::nonce));
    }

    // A lookup that is dropped was given up: this runtime does without mongodb+srv://.
    fn resolve(&self, _: Rescan<Self>) {}

    fn spawn(&self, task: Task) {
        spawn(task);
    }

    fn alarm(&self, deadline: Option<Instant>) {
        self.2.set(deadline);
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
