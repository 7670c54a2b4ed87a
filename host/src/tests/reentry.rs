//! Wakers, values and runtimes that come back as soon as they are woken, dropped or called, to the
//! very place that they were kept in.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use super::fixture::{Fixture, Task};
use super::inline::{Inline, unless_deadlocked};
use super::puppet::{Puppet, host, take_link};
use crate::machines::Host;
use crate::machines::alarm::Deadlines;
use crate::machines::sleep::sleep_until;
use crate::observe::subscription::Subscribers;
use crate::process::Process;
use crate::sync::Activity;
use crate::sync::AsyncMutex;
use crate::sync::CancellationToken;
use crate::sync::channel::Channel;
use crate::sync::lock;
use sdam_core::config::Options;
use sdam_core::failure::{Cause, Failure, Stage};
use sdam_core::time::Instant;
use sdam_core::topology::{Event, Topics};

/// Does something when the last waker is dropped.
struct WhenDropped<F: Fn() + Send + Sync + 'static>(F);

impl<F: Fn() + Send + Sync> Wake for WhenDropped<F> {
    fn wake(self: Arc<Self>) {}
}

impl<F: Fn() + Send + Sync> Drop for WhenDropped<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// Returns a waker that does something when it is dropped, and how often it was.
fn waker(act: impl Fn() + Send + Sync + 'static) -> (Waker, Arc<AtomicU32>) {
    let dropped = Arc::<AtomicU32>::default();
    let counted = Arc::clone(&dropped);
    let act = move || {
        act();
        counted.fetch_add(1, Ordering::Relaxed);
    };
    (Waker::from(Arc::new(WhenDropped(act))), dropped)
}

/// Polls with a waker, which is dropped here.
fn poll_with<T>(waker: Waker, poll: impl FnOnce(&mut Context<'_>) -> Poll<T>) {
    assert!(poll(&mut Context::from_waker(&waker)).is_pending(), "it waits");
    drop(waker);
}

#[test]
fn a_waker_that_is_replaced_or_forgotten_may_use_what_had_kept_it() {
    unless_deadlocked(|| {
        let channel = Arc::new(Channel::<u32>::new(1));
        let used = Arc::clone(&channel);
        let (first, dropped) = waker(move || assert_eq!(used.try_next(), None));
        poll_with(first, |cx| channel.poll_next(cx));
        assert_eq!(dropped.load(Ordering::Relaxed), 0);
        poll_with(Waker::noop().clone(), |cx| channel.poll_next(cx));
        assert_eq!(dropped.load(Ordering::Relaxed), 1, "replaced");
        let used = Arc::clone(&channel);
        let (second, dropped) = waker(move || assert_eq!(used.try_next(), None));
        poll_with(second, |cx| channel.poll_next(cx));
        drop(channel.leave());
        assert_eq!(dropped.load(Ordering::Relaxed), 1, "left");

        let cancellation = Arc::new(CancellationToken::new(None));
        let used = Arc::clone(&cancellation);
        let (waits, dropped) = waker(move || drop(used.cancel()));
        assert!(!cancellation.is_canceled_or_wake(&waits));
        drop(waits);
        cancellation.forget();
        assert_eq!(dropped.load(Ordering::Relaxed), 1, "forgotten");
    });
}

#[test]
fn a_waker_of_whoever_gives_up_to_wait_may_use_what_had_kept_it() {
    unless_deadlocked(|| {
        let activity = Arc::new(Activity::new(Process::current()));
        let running = activity.begin();
        let used = Arc::clone(&activity);
        let (waits, dropped) = waker(move || drop(used.begin()));
        {
            let mut idle = pin!(activity.idle());
            poll_with(waits, |cx| idle.as_mut().poll(cx));
        }
        assert_eq!(dropped.load(Ordering::Relaxed), 1);
        drop(running);

        let subscribers = Arc::<Subscribers<Event>>::default();
        let mut subscription = subscribers.subscribe(Topics::ALL, 1, None);
        let used = Arc::clone(&subscribers);
        let (waits, dropped) = waker(move || drop(used.subscribe(Topics::ALL, 1, None)));
        poll_with(waits, |cx| subscription.poll_next(cx));
        drop(subscription);
        assert_eq!(dropped.load(Ordering::Relaxed), 1);
        assert_eq!(subscribers.listed(), 0);
    });
}

#[test]
fn whoever_waits_for_a_turn_for_the_last_task_or_for_a_probe_may_look_at_once() {
    unless_deadlocked(|| {
        let mutex = Arc::<AsyncMutex>::default();
        let mut cx = Context::from_waker(Waker::noop());
        let Poll::Ready(turn) = pin!(mutex.take()).poll(&mut cx) else { panic!("it is free") };
        let takes = Arc::clone(&mutex);
        let task = Inline::start(async move { drop(takes.take().await) });
        drop(turn);
        assert!(task.has_ended());

        let activity = Arc::new(Activity::new(Process::current()));
        let running = activity.begin();
        let waits = Arc::clone(&activity);
        let task = Inline::start(async move { waits.idle().await });
        drop(running);
        assert!(task.has_ended());

        let channel = Arc::new(Channel::<u32>::new(1));
        let (reads, polls) = (Arc::clone(&channel), Arc::<AtomicU32>::default());
        let polled = Arc::clone(&polls);
        let _task = Inline::start(std::future::poll_fn(move |cx| {
            polled.fetch_add(1, Ordering::Relaxed);
            reads.poll_next(cx).map(drop)
        }));
        channel.barrier(Arc::new(()));
        assert_eq!(polls.load(Ordering::Relaxed), 2);
    });
}

fn refused() -> Failure {
    Failure::new(Stage::Connect, Cause::Refused, "refused")
}

/// A client with a timekeeper, whose timers end at once, too early, so many times.
fn with_early_timers(
    times: u32,
) -> (Arc<Host<Puppet>>, impl Future<Output = ()> + Send + 'static, Arc<AtomicU32>) {
    let (deadlines, timekeeper) = Deadlines::new();
    let puppet = Puppet { deadlines: Some(deadlines), ..Puppet::default() };
    let options = Options::parse("mongodb://a/?directConnection=true&connectTimeoutMS=0");
    let host = Host::new(Arc::new(options.unwrap()), 1, puppet);
    let slept = Arc::<AtomicU32>::default();
    let counted = Arc::clone(&slept);
    let sleep_until = move |at: Instant| {
        let is_early = at == Instant::ZERO || counted.fetch_add(1, Ordering::Relaxed) < times;
        std::future::poll_fn(move |_| if is_early { Poll::Ready(()) } else { Poll::Pending })
    };
    let task = timekeeper.run(Arc::downgrade(&host), sleep_until);
    (host, task, slept)
}

/// [`Runtime::alarm`](crate::machines::runtime::Runtime::alarm) polls the task that keeps time,
/// which rings.
#[test]
fn a_runtime_that_rings_while_it_is_told_is_told_once_more() {
    unless_deadlocked(|| {
        let (host, timekeeper, slept) = with_early_timers(5);
        let timekeeper = Inline::start(timekeeper);
        take_link(&host).closed(refused());
        assert_eq!(slept.load(Ordering::Relaxed), 6, "it sleeps at last");
        host.close();
        assert!(timekeeper.has_ended());
    });
}

#[test]
fn a_timekeeper_whose_timers_end_at_once_lets_others_have_their_turn() {
    let (host, timekeeper, slept) = with_early_timers(1000);
    let mut timekeeper = Task::new(timekeeper);
    assert!(timekeeper.poll().is_pending());
    take_link(&host).closed(refused());
    for turn in 1..10 {
        assert!(timekeeper.poll().is_pending() && timekeeper.was_woken());
        assert!(slept.load(Ordering::Relaxed) <= 16 * turn);
    }
}

#[test]
fn a_runtime_that_panics_when_it_is_told_is_told_again() {
    let host = host("mongodb://a/?connectTimeoutMS=0", false);
    host.ring();
    host.runtime().panics.store(true, Ordering::Relaxed);
    let link = take_link(&host);
    catch_unwind(AssertUnwindSafe(|| link.closed(refused()))).unwrap_err();
    *lock(&host.runtime().alarm) = None;
    host.ring();
    assert!(lock(&host.runtime().alarm).is_some(), "it is due");
}

/// Panics when it is woken.
struct Panics;

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        panic!("as a test wants it");
    }
}

#[test]
fn a_task_that_panics_when_it_is_woken_keeps_nobody_else_from_being_woken() {
    let fixture = Fixture::new("");
    let (mut first, mut second) = (fixture.host.watch(), fixture.host.watch());
    let mut events = fixture.host.subscribe();
    let is_first = |poll| matches!(poll, Poll::Ready(Some(_)));
    let panics = Waker::from(Arc::new(Panics));
    assert!(is_first(first.poll_next(&mut Context::from_waker(&panics))));
    assert!(first.poll_next(&mut Context::from_waker(&panics)).is_pending());
    let mut waits = Task::new(events.next());
    assert!(waits.poll().is_pending());
    assert!(Task::new(second.next()).poll().is_ready());
    let closes = catch_unwind(AssertUnwindSafe(|| fixture.host.close()));
    assert!(closes.is_err(), "no other task has panicked");
    assert!(waits.was_woken());
}

/// A second panic while the first one goes on would end the process.
#[test]
fn several_tasks_that_panic_when_they_are_woken_keep_nobody_else_from_being_woken() {
    let fixture = Fixture::new("");
    let panics = Waker::from(Arc::new(Panics));
    let mut panicking = [(); 2].map(|()| (fixture.host.watch(), fixture.host.subscribe()));
    for (views, events) in &mut panicking {
        let cx = &mut Context::from_waker(&panics);
        assert!(views.poll_next(cx).is_ready() && views.poll_next(cx).is_pending());
        assert!(events.poll_next(cx).is_pending());
    }
    let (mut views, mut events) = (fixture.host.watch(), fixture.host.subscribe());
    assert!(Task::new(views.next()).poll().is_ready());
    let (mut view, mut event) = (Task::new(views.next()), Task::new(events.next()));
    assert!(view.poll().is_pending() && event.poll().is_pending());
    assert!(catch_unwind(AssertUnwindSafe(|| fixture.host.close())).is_err());
    assert!(view.was_woken() && event.was_woken());
}

/// So does one that sleeps.
#[test]
fn a_sleeper_that_panics_when_it_is_woken_keeps_no_other_asleep() {
    let fixture = Fixture::new("");
    let until = fixture.now() + Duration::from_secs(1);
    let panics = Waker::from(Arc::new(Panics));
    let mut panicking = [(); 2].map(|()| Box::pin(sleep_until(&fixture.host.shared, until)));
    for sleeper in &mut panicking {
        assert!(sleeper.as_mut().poll(&mut Context::from_waker(&panics)).is_pending());
    }
    let mut sleeps = Task::new(sleep_until(&fixture.host.shared, until));
    assert!(sleeps.poll().is_pending());
    let rings = catch_unwind(AssertUnwindSafe(|| fixture.pass(Duration::from_secs(1))));
    assert!(rings.is_err() && sleeps.was_woken());
    drop(panicking);
}

#[test]
fn a_subscriber_that_panics_when_it_is_woken_takes_no_connection_and_no_commands_end_along() {
    let fixture = Fixture::new("");
    let pool = fixture.pool();
    drop(fixture.run(pool.check_out()).unwrap());
    let panics = Waker::from(Arc::new(Panics));
    let mut told = fixture.host.subscribe_to(Topics::POOLS);
    let mut others = fixture.host.subscribe_to(Topics::POOLS);
    let mut waits = Task::new(others.next());
    assert!(waits.poll().is_pending());
    assert!(told.poll_next(&mut Context::from_waker(&panics)).is_pending());
    let mut check_out = Task::new(pool.check_out());
    assert!(catch_unwind(AssertUnwindSafe(|| drop(check_out.poll()))).is_err());
    drop(check_out);
    assert!(waits.was_woken(), "another subscriber");
    assert_eq!((pool.counts().in_use, pool.counts().available), (0, 1));

    let mut told = fixture.host.subscribe_to(Topics::COMMANDS);
    assert!(told.poll_next(&mut Context::from_waker(&panics)).is_pending());
    let mut ping = Task::new(fixture.ping(None));
    assert!(catch_unwind(AssertUnwindSafe(|| drop(ping.poll()))).is_err());
    drop(ping);
    let names = std::iter::from_fn(|| told.try_next()).map(|event| event.kind.name());
    assert_eq!(names.collect::<Vec<_>>(), ["commandStarted", "commandFailed"]);
}

/// A waker that was left with the pause before a session is taken may look at the session.
#[test]
fn a_waker_of_an_operation_that_gives_way_may_use_the_session() {
    use crate::operations::session::{ClientSession, DriverSession};
    use sdam_core::operation::Timeout;
    use sdam_core::session::SessionOptions;
    unless_deadlocked(|| {
        let fixture = Fixture::with_sessions("");
        let own =
            ClientSession::start(&fixture.host, &Default::default(), SessionOptions::default())
                .unwrap();
        let guard = own.try_acquire().unwrap();
        let mut first = pin!(own.acquire(&fixture.host, Timeout::Unset));
        poll_with(Waker::noop().clone(), |cx| first.as_mut().poll(cx).map(drop));
        drop(guard);
        let mut late = pin!(own.acquire(&fixture.host, Timeout::Unset));
        let other = own.clone();
        let (waker, dropped) = waker(move || drop(other.cluster_time()));
        poll_with(waker, |cx| late.as_mut().poll(cx).map(drop));
        poll_with(Waker::noop().clone(), |cx| late.as_mut().poll(cx).map(drop));
        assert_eq!(dropped.load(Ordering::Relaxed), 1);
    });
}
