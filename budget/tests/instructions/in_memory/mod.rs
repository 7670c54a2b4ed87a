//! A reactor without an operating system: streams in memory, a clock that stands still until all
//! wait for it, and tasks on one thread. What a client does with it takes the same instructions
//! each time.

mod pipe;
mod tasks;

use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use sdam_core::config::TcpOptions;
use sdam_core::time::Instant;
use sdam_host::{Lane, Reactor};

use crate::server::Server;
use pipe::Pipe;
pub(crate) use pipe::Socket;
use tasks::Tasks;

/// The reactor; clones are the same.
#[derive(Clone)]
pub(crate) struct InMemory(Arc<NetworkState>);

struct NetworkState {
    /// The deployment at the other end of all streams.
    server: Arc<Server>,
    /// The time in nanoseconds.
    clock: AtomicU64,
    tasks: Tasks,
    /// True if the future that is waited for was woken.
    woken: Arc<Woken>,
    sleepers: Mutex<Vec<(Instant, Waker)>>,
    pipes: Mutex<Vec<Arc<Pipe>>>,
}

#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl InMemory {
    pub(crate) fn new(server: Server) -> Self {
        Self(Arc::new(NetworkState {
            server: Arc::new(server),
            clock: AtomicU64::new(0),
            tasks: Tasks::default(),
            woken: Arc::default(),
            sleepers: Mutex::default(),
            pipes: Mutex::default(),
        }))
    }

    /// Runs tasks until all of them wait.
    pub(crate) fn run(&self) {
        self.0.tasks.run();
    }

    /// Waits for a future, running tasks meanwhile; time passes when nothing else is left to do.
    pub(crate) fn wait<T>(&self, future: impl IntoFuture<Output = T>) -> T {
        let mut future = pin!(future.into_future());
        loop {
            let waker = Waker::from(Arc::clone(&self.0.woken));
            if let Poll::Ready(done) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                return done;
            }
            let has_run = self.0.tasks.run();
            if !self.0.woken.0.swap(false, Ordering::Relaxed) && !has_run {
                self.pass();
            }
        }
    }

    /// Lets time pass until the next task wakes.
    fn pass(&self) {
        let mut sleepers = lock(&self.0.sleepers);
        let next = sleepers.iter().map(|(at, _)| *at).min().expect("something is left to happen");
        self.0.clock.fetch_max(next.as_nanos(), Ordering::Relaxed);
        let due = sleepers.extract_if(.., |(at, _)| *at <= next).collect::<Vec<_>>();
        drop(sleepers);
        due.into_iter().for_each(|(_, waker)| waker.wake());
    }

    /// Has each server say once more what it has said last, where a monitor waits for it to change;
    /// returns how many do.
    pub(crate) fn repeat_hello(&self) -> usize {
        let pipes = lock(&self.0.pipes).clone();
        pipes.into_iter().filter(|pipe| pipe.repeat_hello()).count()
    }
}

impl Reactor for InMemory {
    type Socket = Socket;

    fn now(&self) -> Instant {
        Instant::from_nanos(self.0.clock.load(Ordering::Relaxed))
    }

    fn sleep_until(&self, at: Instant) -> impl Future<Output = ()> + Send + use<> {
        let (reactor, mut sleeps) = (self.clone(), false);
        poll_fn(move |cx: &mut Context<'_>| {
            if reactor.now() >= at {
                return Poll::Ready(());
            }
            if !std::mem::replace(&mut sleeps, true) {
                lock(&reactor.0.sleepers).push((at, cx.waker().clone()));
            }
            Poll::Pending
        })
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.0.tasks.spawn(task);
    }

    async fn block<T: Send + 'static>(
        &self,
        _: Lane,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T> {
        Ok(work())
    }

    async fn open_tcp(&self, address: SocketAddr, _: TcpOptions) -> io::Result<Socket> {
        let pipe = crate::measured::apart(|| Arc::new(Pipe::new(&self.0.server, address)));
        lock(&self.0.pipes).retain(|pipe| Arc::strong_count(pipe) > 1);
        lock(&self.0.pipes).push(Arc::clone(&pipe));
        Ok(Socket(pipe))
    }

    async fn open_udp(&self, _: SocketAddr) -> io::Result<Socket> {
        Err(io::ErrorKind::Unsupported.into())
    }

    #[cfg(unix)]
    async fn open_unix(&self, _: &str) -> io::Result<Socket> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

impl fmt::Debug for InMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("InMemory")
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
