//! Executors that poll a task the moment it is woken, on the thread that wakes it: a woken task
//! calls the client at once, and so does what is dropped with a waker.
//!
//! Under a lock that would be a deadlock, so each test runs on a thread that may be left behind.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use bson::rawdoc;

use super::fixture::{Behaviour, Fixture, connect};
use super::puppet::{Puppet, host, take_link};
use crate::client::Topology;
use crate::client::driver::DriverTopology;
use crate::machines::Host;
use crate::machines::alarm::Deadlines;
use crate::observe::recording::Recording;
use crate::sync::lock;
use sdam_core::config::Options;
use sdam_core::failure::{Cause, Failure, Stage as Step};
use sdam_core::selection::Criteria;
use sdam_core::time::Instant;

/// Runs a test on a thread of its own; a deadlock fails it.
#[expect(clippy::disallowed_methods, reason = "a thread that hangs is left behind")]
pub(super) fn unless_deadlocked(test: impl FnOnce() + Send + 'static) {
    let (ended, end) = channel();
    let thread = thread::spawn(move || {
        test();
        let _ = ended.send(());
    });
    match end.recv_timeout(Duration::from_secs(60)) {
        Ok(()) => {}
        Err(RecvTimeoutError::Timeout) => panic!("a deadlock"),
        Err(RecvTimeoutError::Disconnected) => thread.join().expect("the test passes"),
    }
}

/// A task that is polled at once by the thread that wakes it.
pub(super) struct Inline {
    future: Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>,
    woken: AtomicBool,
}

impl Inline {
    pub(super) fn start(future: impl Future<Output = ()> + Send + 'static) -> Arc<Self> {
        let future = Mutex::new(Some(Box::pin(future) as Pin<Box<_>>));
        let task = Arc::new(Self { future, woken: AtomicBool::new(false) });
        Arc::clone(&task).wake();
        task
    }

    pub(super) fn has_ended(&self) -> bool {
        self.future.lock().unwrap().is_none()
    }
}

impl Wake for Inline {
    fn wake(self: Arc<Self>) {
        let waker = Waker::from(Arc::clone(&self));
        self.woken.store(true, Ordering::Release);
        while self.woken.load(Ordering::Acquire) {
            // Otherwise it is being polled, by this thread perhaps, which looks again.
            let Ok(mut future) = self.future.try_lock() else { return };
            self.woken.store(false, Ordering::Release);
            let poll =
                future.as_mut().map(|task| task.as_mut().poll(&mut Context::from_waker(&waker)));
            let ended = if poll == Some(Poll::Ready(())) { future.take() } else { None };
            drop(future);
            drop(ended);
        }
    }
}

/// An action on a client by a task that is woken or dropped.
type Deed = fn(&Arc<Host<Puppet>>);

/// Calls whatever there is to call.
fn meddle(host: &Arc<Host<Puppet>>) {
    let mut cx = Context::from_waker(Waker::noop());
    host.request_check();
    drop((host.subscribe(), host.watch()));
    let _ = pin!(host.select(&Arc::new(Criteria::write()), None)).poll(&mut cx);
    for member in host.members() {
        let _ = pin!(member.check_out()).poll(&mut cx);
    }
    host.ring();
}

const DEEDS: [(&str, Deed); 2] = [("meddle", meddle), ("close", |host| host.close())];

/// A task that does a deed once `what` has come.
fn after(host: &Arc<Host<Puppet>>, deed: Deed, what: impl Future + Send + 'static) -> Arc<Inline> {
    let host = Arc::clone(host);
    Inline::start(async move {
        let _ = what.await;
        deed(&host);
    })
}

fn refused() -> Failure {
    Failure::new(Step::Connect, Cause::Refused, "refused")
}

#[test]
fn whoever_waits_for_a_view_an_event_a_server_or_a_recording_may_call_the_client_at_once() {
    for (name, deed) in DEEDS {
        for refuses in [false, true] {
            unless_deadlocked(move || {
                let host = host("mongodb://a/?directConnection=true", false);
                let mut recording = Recording::everything();
                host.record(&recording.clone());
                host.ring();
                let (mut events, mut views) = (host.subscribe(), host.watch());
                let link = take_link(&host);
                link.opened();
                let reply = Fixture::reply_to_hello(&link);
                while events.try_next().is_some() {}
                let (selecting, criteria) = (Arc::clone(&host), Arc::new(Criteria::write()));
                let selects = async move { selecting.select(&criteria, None).await.is_ok() };
                let tasks = [
                    after(&host, deed, async move { (views.next().await, views.next().await) }),
                    after(&host, deed, selects),
                    after(&host, deed, async move { events.next().await }),
                    after(&host, deed, {
                        while recording.try_next().is_some() {}
                        async move { recording.next().await }
                    }),
                ];
                assert!(tasks.iter().all(|task| !task.has_ended()), "{name}");
                match refuses {
                    true => link.closed(refused()),
                    false => link.received(&reply),
                }
                host.close();
                assert!(tasks.iter().all(|task| task.has_ended()), "{name}");
            });
        }
    }
}

#[test]
fn whoever_waits_for_a_connection_that_fails_with_its_pool_may_call_the_client_at_once() {
    for (name, deed) in DEEDS {
        unless_deadlocked(move || {
            let host = host("mongodb://a/?directConnection=true", false);
            let mut dumps = Recording::flight_recorder(1 << 16);
            host.record(&dumps.clone());
            host.ring();
            let Fixture { host, link, .. } = Fixture::begin(host);
            let pool = host.members()[0].clone();
            let checks_out = async move { pool.check_out().await.is_err() };
            let checks_out = after(&host, deed, checks_out);
            let pending = lock(&host.runtime().pending).pop().expect("a slot");
            let establishes = pending.run(std::future::pending(), || Ok([7; 24]));
            let tasks = [
                checks_out,
                after(&host, deed, establishes),
                after(&host, deed, async move { dumps.next().await }),
            ];
            assert!(tasks.iter().all(|task| !task.has_ended()), "{name}");
            // In the middle of the next check, so that the pool is cleared.
            host.request_check();
            *lock(&host.runtime().now) = Instant::from_millis(500);
            host.ring();
            link.closed(Failure::new(Step::Hello, Cause::Timeout, "no reply"));
            assert!(tasks.iter().all(|task| task.has_ended()), "{name}");
        });
    }
}

#[test]
fn whoever_is_interrupted_may_call_the_client_at_once() {
    for (name, deed) in DEEDS {
        unless_deadlocked(move || {
            let fixture = Fixture::new("");
            let mut checked_out = fixture.run(fixture.pool().check_out()).unwrap();
            fixture.server.mute.store(true, Ordering::Relaxed);
            let exchange =
                async move { checked_out.command("admin", &rawdoc! { "ping": 1 }).await.is_err() };
            let task = after(&fixture.host, deed, exchange);
            assert!(!task.has_ended());
            fixture.pass(Duration::from_secs(30));
            assert!(task.has_ended(), "{name}");
        });
    }
}

#[test]
fn the_last_reference_to_a_client_may_be_dropped_by_whoever_is_woken() {
    unless_deadlocked(|| {
        let host = host("mongodb://a/?directConnection=true", false);
        host.ring();
        let (mut events, weak) = (host.subscribe(), Arc::downgrade(&host));
        let link = take_link(&host);
        let task = Inline::start(async move {
            events.next().await;
            drop(host);
        });
        link.closed(refused());
        assert!(task.has_ended());
        assert!(weak.upgrade().is_none());
    });
}

/// A client whose tasks are all polled by the threads that wake them.
struct Whole {
    client: Topology<Puppet>,
    server: Arc<Behaviour>,
    sleepers: Arc<Mutex<Vec<Waker>>>,
    timekeeper: Arc<Inline>,
}

impl Whole {
    fn new(options: Options) -> Self {
        let (deadlines, timekeeper) = Deadlines::new();
        let server = Arc::<Behaviour>::default();
        let now = Arc::<super::Mutex<Instant>>::default();
        let connecting = {
            let (server, now) = (Arc::clone(&server), Arc::clone(&now));
            move || connect(Arc::clone(&server), Arc::clone(&now))
        };
        let opening = connecting.clone();
        let puppet = Puppet {
            now: Arc::clone(&now),
            deadlines: Some(deadlines),
            opener: Some(Box::new(move |link| drop(Inline::start(link.run(opening()))))),
            establisher: Some(Box::new(move |pending| {
                drop(Inline::start(pending.run(connecting(), || Ok([7; 24]))));
            })),
            ..Puppet::default()
        };
        let host = Host::new(Arc::new(options), 1, puppet);
        let sleepers = Arc::<Mutex<Vec<Waker>>>::default();
        let asleep = Arc::clone(&sleepers);
        let sleep_until = move |at: Instant| {
            let (now, asleep) = (Arc::clone(&now), Arc::clone(&asleep));
            std::future::poll_fn(move |cx| {
                if at <= *lock(&now) {
                    return Poll::Ready(());
                }
                asleep.lock().unwrap().push(cx.waker().clone());
                Poll::Pending
            })
        };
        let timekeeper = Inline::start(timekeeper.run(Arc::downgrade(&host), sleep_until));
        Self { client: Topology::from_host(host), server, sleepers, timekeeper }
    }

    fn pass(&self, time: Duration) {
        {
            let mut now = lock(&self.client.host().runtime().now);
            *now = *now + time;
        }
        let sleepers = std::mem::take(&mut *self.sleepers.lock().unwrap());
        sleepers.into_iter().for_each(Waker::wake);
    }

    fn commands(&self) -> usize {
        lock(&self.server.commands).len()
    }
}

#[test]
fn a_client_works_whose_every_task_is_polled_by_whoever_wakes_it() {
    for single_threaded in [false, true] {
        unless_deadlocked(move || {
            let uri = "mongodb://a/?directConnection=true";
            let options = Options::builder().uri(uri).unwrap();
            let whole = Whole::new(options.single_threaded(single_threaded).build().unwrap());
            let pings = Arc::new(AtomicU32::new(0));
            let (client, counted) = (whole.client.clone(), Arc::clone(&pings));
            let task = Inline::start(async move {
                for _ in 0..3 {
                    client.run_command("admin", &rawdoc! { "ping": 1 }).await.unwrap();
                    counted.fetch_add(1, Ordering::Relaxed);
                }
            });
            assert!(task.has_ended(), "{} pings", pings.load(Ordering::Relaxed));
            for _ in 0..3 {
                let before = whole.commands();
                whole.pass(Duration::from_secs(10));
                whole.pass(Duration::from_millis(10));
                whole.pass(Duration::from_millis(10));
                let client = whole.client.clone();
                let task = Inline::start(async move {
                    client.run_command("admin", &rawdoc! { "ping": 1 }).await.unwrap();
                });
                assert!(task.has_ended());
                assert!(whole.commands() > before + 1, "hello, too");
            }
            let client = whole.client.clone();
            let task = Inline::start(async move { client.close().await });
            assert!(task.has_ended(), "no task runs any more");
            assert!(whole.timekeeper.has_ended());
            assert_eq!(whole.server.open.load(Ordering::Relaxed), 0);
        });
    }
}

/// Calls the client when the last waker is dropped.
struct CallsWhenDropped(Weak<Host<Puppet>>, Deed, Arc<AtomicU32>);

impl Wake for CallsWhenDropped {
    fn wake(self: Arc<Self>) {}
}

impl Drop for CallsWhenDropped {
    fn drop(&mut self) {
        self.2.fetch_add(1, Ordering::Relaxed);
        self.0.upgrade().iter().for_each(self.1);
    }
}

#[test]
fn a_waker_may_call_the_client_when_it_is_dropped() {
    for (name, deed) in DEEDS {
        // A client that was closed has answered.
        for rounds in if name == "close" { 1..2 } else { 1..3 } {
            unless_deadlocked(move || {
                let host = host("mongodb://a/?directConnection=true", false);
                let mut recording = Recording::everything();
                host.record(&recording.clone());
                host.ring();
                let link = take_link(&host);
                let (mut events, mut views) = (host.subscribe(), host.watch());
                let dropped = Arc::<AtomicU32>::default();
                let waker = || {
                    let weak = Arc::downgrade(&host);
                    Waker::from(Arc::new(CallsWhenDropped(weak, deed, Arc::clone(&dropped))))
                };
                let turn = pin!(host.shared.oidc.take()).poll(&mut Context::from_waker(&waker()));
                let mut next_view = pin!(async { while views.next().await.is_some() {} });
                let criteria = Arc::new(Criteria::write());
                {
                    let mut select = pin!(host.select(&criteria, None));
                    let mut ended = pin!(host.ended());
                    let mut takes = pin!(host.shared.oidc.take());
                    for _ in 0..rounds {
                        let _ = select.as_mut().poll(&mut Context::from_waker(&waker()));
                        let _ = ended.as_mut().poll(&mut Context::from_waker(&waker()));
                        let _ = takes.as_mut().poll(&mut Context::from_waker(&waker()));
                        let _ = next_view.as_mut().poll(&mut Context::from_waker(&waker()));
                        while recording.try_next().is_some() || events.try_next().is_some() {}
                        let _ = recording.poll_next(&mut Context::from_waker(&waker()));
                        let _ = events.poll_next(&mut Context::from_waker(&waker()));
                        let _ = link.poll_outgoing(&mut Context::from_waker(&waker()));
                    }
                }
                drop(turn);
                link.closed(refused());
                drop((events, recording));
                host.close();
                assert!(dropped.load(Ordering::Relaxed) >= 6, "{name}");
            });
        }
    }
}
