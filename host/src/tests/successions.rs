//! Monitors that several clients share, and the ends of the runtimes that these are made in.

use std::convert::Infallible;
use std::future::{Future, pending, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use super::fixture::Task;
use super::puppet::{Puppet, take_link};
use crate::client::Topology;
use crate::client::blueprint::Settings;
use crate::client::driver::DriverTopology;
use crate::client::registry::{Leaders, Registry};
use crate::client::socket_runtime::SocketRuntime;
use crate::machines::Host;
use crate::machines::runtime;
use crate::net::reactor::{Lane, Reactor};
use crate::net::socket::Socket;
use crate::sync::{Mutex, lock};
use sdam_core::config::{Options, TcpOptions};
use sdam_core::selection::Criteria;
use sdam_core::time::Instant;
use sdam_core::topology::Topics;

/// A runtime that ends when a test says so, and that counts the streams which are opened; no server
/// answers there.
#[derive(Clone, Debug)]
struct Room(Arc<Inner>, Arc<Mutex<Instant>>);

#[derive(Default)]
struct Inner {
    has_ended: Mutex<bool>,
    tasks: Mutex<Vec<runtime::Task>>,
    opened: AtomicU32,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inner").finish_non_exhaustive()
    }
}

/// A stream that is never open.
struct Never(Infallible);

impl Socket for Never {
    fn poll_read(
        &mut self,
        _: &mut Context<'_>,
        _: &mut [u8],
        _: Option<Instant>,
    ) -> Poll<io::Result<usize>> {
        match self.0 {}
    }

    fn poll_write(
        &mut self,
        _: &mut Context<'_>,
        _: &[u8],
        _: Option<Instant>,
    ) -> Poll<io::Result<usize>> {
        match self.0 {}
    }

    fn is_quiet(&mut self) -> bool {
        match self.0 {}
    }
}

impl Reactor for Room {
    type Socket = Never;

    fn now(&self) -> Instant {
        *lock(&self.1)
    }

    fn with_clock_of(&self, other: &Self) -> Self {
        Self(Arc::clone(&self.0), Arc::clone(&other.1))
    }

    fn sleep_until(&self, at: Instant) -> impl Future<Output = ()> + Send + use<> {
        let room = self.clone();
        poll_fn(move |_| match room.now() >= at {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        if !*lock(&self.0.has_ended) {
            lock(&self.0.tasks).push(Box::pin(task));
        }
    }

    async fn block<T: Send + 'static>(
        &self,
        _: Lane,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T> {
        Ok(work())
    }

    async fn open_tcp(&self, _: SocketAddr, _: TcpOptions) -> io::Result<Never> {
        self.0.opened.fetch_add(1, Ordering::Relaxed);
        pending().await
    }

    async fn open_udp(&self, _: SocketAddr) -> io::Result<Never> {
        pending().await
    }

    #[cfg(unix)]
    async fn open_unix(&self, _: &str) -> io::Result<Never> {
        pending().await
    }
}

impl Room {
    fn new() -> Self {
        Self(Arc::default(), Arc::default())
    }

    /// Polls every task, and those that are started meanwhile, a few times.
    fn run(&self) {
        for _ in 0..10 {
            let mut tasks = std::mem::take(&mut *lock(&self.0.tasks));
            let mut cx = Context::from_waker(Waker::noop());
            tasks.retain_mut(|task| task.as_mut().poll(&mut cx).is_pending());
            lock(&self.0.tasks).extend(tasks);
        }
    }

    /// Ends it, the tasks that were started first at first.
    fn end(&self) {
        *lock(&self.0.has_ended) = true;
        let tasks = std::mem::take(&mut *lock(&self.0.tasks));
        drop(tasks);
    }

    fn opened(&self) -> u32 {
        self.0.opened.load(Ordering::Relaxed)
    }

    fn client(&self, registry: &Registry<Self>) -> Topology<SocketRuntime<Self>> {
        let options = Options::parse("mongodb://127.0.0.1:1").unwrap();
        let blueprint = Settings::new(options).blueprint().unwrap();
        blueprint.topology(self.clone(), Topics::NONE, Some(registry)).0
    }
}

fn is_closed(client: &Topology<SocketRuntime<Room>>) -> bool {
    client.host().is_closed()
}

#[test]
fn monitors_go_on_in_the_runtime_of_another_client_when_their_own_has_ended() {
    let (registry, [first, second, third]) = (Registry::new(), [(); 3].map(|()| Room::new()));
    let early = [&first, &first].map(|room| room.client(&registry));
    let [late, last] = [&second, &third].map(|room| room.client(&registry));
    [&first, &second, &third].into_iter().for_each(Room::run);
    assert_eq!([&first, &second, &third].map(Room::opened), [1, 0, 0], "one set of monitors");
    let mut waiting = Task::new(late.select(Criteria::write()));
    assert!(waiting.poll().is_pending());

    first.end();
    assert!(early.iter().all(is_closed), "their own runtime has ended");
    assert!(!is_closed(&late) && !is_closed(&last));
    assert_eq!(registry.monitored(), 1);
    *lock(&first.1) = Instant::ZERO + Duration::from_millis(500);
    [&second, &third].into_iter().for_each(Room::run);
    assert_eq!(second.opened() + third.opened(), 1, "the monitor's stream, made again");
    assert!(waiting.poll().is_pending());

    second.end();
    *lock(&first.1) = Instant::ZERO + Duration::from_secs(1);
    third.run();
    assert!(is_closed(&late) && !is_closed(&last));
    assert!(matches!(waiting.poll(), Poll::Ready(Err(_))));
    assert_eq!(third.opened(), 1);
    let more = third.client(&registry);
    third.run();
    assert_eq!((registry.monitored(), third.opened()), (1, 1), "it shares them, too");

    third.end();
    assert!(is_closed(&last) && is_closed(&more));
    assert_eq!(registry.monitored(), 0);
    assert!(is_closed(&third.client(&registry)), "a runtime that has ended runs no client");
}

/// A client whose runtime goes on, but which is closed or dropped, is no heir.
#[test]
fn monitors_end_with_their_runtime_if_the_others_are_closed_or_not_to_be_had() {
    for closes in [false, true] {
        let (registry, [first, second]) = (Registry::new(), [(); 2].map(|()| Room::new()));
        let (early, late) = (first.client(&registry), second.client(&registry));
        [&first, &second].into_iter().for_each(Room::run);
        match closes {
            true => late.close_now(),
            false => drop(late),
        }
        first.end();
        assert!(is_closed(&early));
        assert_eq!(registry.monitored(), 0);
        second.run();
        assert_eq!(second.opened(), 0);
    }
}

/// A client whose streams are opened in a way of its own has monitors of its own.
#[test]
fn a_client_that_dials_shares_no_monitors() {
    for dials in [false, true] {
        let (registry, room) = (Registry::new(), Room::new());
        let mut settings = Settings::new(Options::parse("mongodb://127.0.0.1:1").unwrap());
        settings.dials = dials;
        let blueprint = settings.blueprint().unwrap();
        let client = blueprint.topology(room, Topics::NONE, Some(&registry)).0;
        assert_eq!(registry.monitored(), usize::from(!dials));
        drop(client);
    }
}

/// The leader is in the list before its first client is made, so that others may follow it by then.
#[test]
fn a_first_client_that_cannot_be_made_leaves_no_leader_without_monitors() {
    let options = || Arc::new(Options::parse("mongodb://a/?directConnection=true").unwrap());
    let lead = || (Host::for_sharing(options(), 1, Puppet::default()), ());
    let follow = |leader| Host::sharing(leader, options(), 2, Puppet::default()).ok();
    let leaders = Leaders::default();
    let start = |leader: &Arc<Host<Puppet>>, ()| leader.ring();
    let mut other = None;
    let made = catch_unwind(AssertUnwindSafe(|| {
        leaders.share(&options(), lead, start, |_| -> Option<()> {
            let unused = || panic!("there is a leader");
            other = Some(leaders.share(&options(), unused, |_, ()| {}, follow));
            panic!("as a test wants it");
        });
    }));
    assert!(made.is_err());
    let other: Arc<Host<Puppet>> = other.expect("it was made first");
    other.ring();
    let leader = other.leader.as_ref().expect("it shares monitors");
    drop(take_link(leader));
    assert!(!other.is_closed());
}
