//! The last waker counts: what is polled by another task than before is woken there, and the
//! earlier ones are forgotten.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use bson::rawdoc;

use super::fixture::Fixture;
use super::puppet::{host, take_link};
use crate::machines::alarm::Deadlines;
use crate::observe::recording::Recording;
use crate::process::Process;
use crate::sync::Activity;
use crate::sync::AsyncMutex;
use crate::sync::CancellationToken;
use crate::sync::channel::{Barrier, Channel};
use crate::sync::lock;
use sdam_core::selection::Criteria;
use sdam_core::time::Instant;

#[derive(Default)]
struct Woken(AtomicU32);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Polls what waits with one waker after the other.
#[derive(Default)]
pub(super) struct Moved(Vec<Arc<Woken>>);

impl Moved {
    /// Polls it three times, each time as another task.
    fn poll<T>(mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>) -> Self {
        let mut moved = Self::default();
        for _ in 0..3 {
            let woken = Arc::<Woken>::default();
            let waker = Waker::from(Arc::clone(&woken));
            assert!(poll(&mut Context::from_waker(&waker)).is_pending(), "it waits");
            moved.0.push(woken);
        }
        moved
    }

    fn future<T>(mut future: Pin<&mut impl Future<Output = T>>) -> Self {
        Self::poll(|cx| future.as_mut().poll(cx))
    }

    /// Panics unless the last task alone was woken, and no references to the others are left.
    fn assert_last_woken(&self, what: &str) {
        let woken: Vec<u32> = self.0.iter().map(|task| task.0.load(Ordering::Relaxed)).collect();
        assert_eq!(woken, [0, 0, 1], "{what}");
        let known: Vec<usize> = self.0[..2].iter().map(Arc::strong_count).collect();
        assert_eq!(known, [1, 1], "{what}");
    }
}

#[test]
fn the_last_waker_of_a_mailbox_is_woken_by_an_item_by_the_end_and_by_a_probe() {
    type Wakes = (&'static str, fn(&Channel<u32>));
    let wakes: [Wakes; 3] = [
        ("an item", |channel| channel.push(1)),
        ("the end", Channel::close),
        ("a probe", |channel| channel.barrier(Arc::new(()))),
    ];
    for (what, wake) in wakes {
        let channel = Channel::<u32>::new(1);
        let moved = Moved::poll(|cx| channel.poll_next(cx));
        wake(&channel);
        moved.assert_last_woken(what);
    }
}

#[test]
fn the_last_waker_of_a_switch_and_of_whoever_waits_for_a_turn_or_for_the_last_task_is_woken() {
    let cancellation = CancellationToken::new(None);
    let moved = Moved::poll(|cx| match cancellation.is_canceled_or_wake(cx.waker()) {
        true => Poll::Ready(()),
        false => Poll::Pending,
    });
    cancellation.cancel().into_iter().for_each(Waker::wake);
    moved.assert_last_woken("a switch");
    let mutex = Arc::new(AsyncMutex::default());
    let mut cx = Context::from_waker(Waker::noop());
    let Poll::Ready(turn) = pin!(mutex.take()).poll(&mut cx) else { panic!("it is free") };
    let mut takes = pin!(mutex.take());
    let moved = Moved::future(takes.as_mut());
    drop(turn);
    moved.assert_last_woken("a turn");
    let activity = Arc::new(Activity::new(Process::current()));
    let running = activity.begin();
    let mut idle = pin!(activity.idle());
    let moved = Moved::future(idle.as_mut());
    drop(running);
    moved.assert_last_woken("the last task");
}

#[test]
fn the_last_waker_of_subscriptions_recordings_and_selections_is_woken() {
    let host = host("mongodb://a/?directConnection=true", false);
    let mut recording = Recording::everything();
    host.record(&recording.clone());
    host.ring();
    let (mut events, mut views, link) = (host.subscribe(), host.watch(), take_link(&host));
    link.opened();
    let reply = Fixture::reply_to_hello(&link);
    let criteria = Arc::new(Criteria::write());
    let mut selection = pin!(host.select(&criteria, None));
    let of_selection = Moved::future(selection.as_mut());
    let mut cx = Context::from_waker(Waker::noop());
    assert!(pin!(views.next()).poll(&mut cx).is_ready(), "the view of now");
    while recording.try_next().is_some() || events.try_next().is_some() {}
    let moved = [
        ("events", Moved::poll(|cx| events.poll_next(cx))),
        ("views", Moved::poll(|cx| pin!(views.next()).poll(cx))),
        ("a recording", Moved::poll(|cx| recording.poll_next(cx))),
        ("a selection", of_selection),
        ("a link", Moved::poll(|cx| link.poll_outgoing(cx))),
    ];
    link.received(&reply);
    host.close();
    moved.iter().for_each(|(what, moved)| moved.assert_last_woken(what));
}

#[test]
fn the_last_waker_of_whoever_waits_for_a_connection_or_a_reply_is_woken() {
    let fixture = Fixture::new("&maxPoolSize=1");
    let pool = fixture.pool();
    let mut checked_out = fixture.run(pool.check_out()).unwrap();
    let mut waits = pin!(pool.check_out());
    let of_check_out = Moved::future(waits.as_mut());
    fixture.server.mute.store(true, Ordering::Relaxed);
    let ping = rawdoc! { "ping": 1 };
    let mut exchange = Box::pin(checked_out.command("admin", &ping));
    let of_exchange = Moved::future(exchange.as_mut());
    fixture.pass(Duration::from_secs(30));
    of_exchange.assert_last_woken("an exchange");
    of_check_out.assert_last_woken("a check-out");
    drop(exchange);
}

#[test]
fn the_last_waker_of_the_timekeeper_is_woken_by_a_new_deadline() {
    let host = host("mongodb://a", false);
    let (deadlines, timekeeper) = Deadlines::new();
    let mut task = pin!(timekeeper.run(Arc::downgrade(&host), |_| std::future::pending::<()>()));
    let moved = Moved::future(task.as_mut());
    deadlines.set(Some(Instant::from_millis(5)));
    moved.assert_last_woken("the timekeeper");
}

#[test]
fn of_two_who_read_a_recording_both_are_woken_and_one_has_it() {
    let host = host("mongodb://a/?directConnection=true", false);
    let mut first = Recording::everything();
    let mut second = first.clone();
    host.record(&first);
    while first.try_next().is_some() {}
    let readers = [Moved::poll(|cx| first.poll_next(cx)), Moved::poll(|cx| second.poll_next(cx))];
    host.ring();
    readers.iter().for_each(|reader| reader.assert_last_woken("a reader"));
    let mut cx = Context::from_waker(Waker::noop());
    assert!(matches!(first.poll_next(&mut cx), Poll::Ready(Some(_))));
    let waits = Moved::poll(|cx| second.poll_next(cx));
    host.close();
    lock(&host.runtime().links).clear();
    drop(host);
    waits.assert_last_woken("the reader that got nothing");
    for mut reader in [first, second] {
        while reader.try_next().is_some() {}
        assert!(matches!(reader.poll_next(&mut cx), Poll::Ready(None)), "both see the end");
    }
}

#[test]
fn a_probe_is_kept_for_work_that_goes_on_unless_there_is_another_or_the_mailbox_has_ended() {
    for (has_another, has_ended) in [(false, false), (true, false), (false, true)] {
        let channel = Channel::<u32>::new(1);
        let (first, second): (Barrier, Barrier) = (Arc::new(()), Arc::new(()));
        let (kept, other) = (Arc::downgrade(&first), Arc::downgrade(&second));
        channel.barrier(first);
        let mut second = Some(second).filter(|_| has_another);
        let mut work = pin!(poll_fn(|cx| {
            second.take().into_iter().for_each(|barrier| channel.barrier(barrier));
            if has_ended {
                channel.close();
            }
            cx.waker().wake_by_ref();
            Poll::<()>::Pending
        }));
        let mut cx = Context::from_waker(Waker::noop());
        assert!(pin!(channel.read_by(work.as_mut())).poll(&mut cx).is_pending());
        assert_eq!(kept.upgrade().is_some(), !has_another && !has_ended);
        assert_eq!(other.upgrade().is_some(), has_another);
    }
}
