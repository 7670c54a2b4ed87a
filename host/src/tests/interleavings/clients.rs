//! Selections, check-outs, the end of a client, and what is read after the process was stopped.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use shuttle::thread::spawn;

use super::super::fixture::{Behaviour, Fixture, connect};
use super::super::puppet::{Puppet, take_link};
use super::{Sleeper, block_on, explore, give_up};
use crate::machines::Host;
use crate::machines::tasks::Link;
use crate::observe::subscription::Events;
use crate::sync::Mutex;
use crate::sync::lock;
use sdam_core::config::Options;
use sdam_core::failure::{self, Cause, Failure};
use sdam_core::machine::Machine;
use sdam_core::pool::Counts;
use sdam_core::selection::Criteria;
use sdam_core::time::Instant;
use sdam_core::topology::EventKind;

/// A client that has begun to look for its server, and connects to it with a thread each time.
fn client(options: &str, server: &Arc<Behaviour>) -> Arc<Host<Puppet>> {
    client_of(Puppet::default(), options, server)
}

/// The same with a runtime that can do more.
pub(super) fn client_of(
    puppet: Puppet,
    options: &str,
    server: &Arc<Behaviour>,
) -> Arc<Host<Puppet>> {
    let uri = format!("mongodb://a/?directConnection=true{options}");
    let options = Arc::new(Options::parse(&uri).unwrap());
    let host = Host::new(options, 1, connecting(puppet, server));
    host.ring();
    host
}

/// Has a runtime connect with a thread each time.
pub(super) fn connecting(puppet: Puppet, server: &Arc<Behaviour>) -> Puppet {
    let (now, server) = (Arc::<Mutex<Instant>>::default(), Arc::clone(server));
    let clock = Arc::clone(&now);
    Puppet {
        now,
        establisher: Some(Box::new(move |pending| {
            let (server, clock) = (Arc::clone(&server), Arc::clone(&clock));
            spawn(move || block_on(pending.run(connect(server, clock), || Ok([7; 24]))));
        })),
        ..puppet
    }
}

/// The same once it has found its server, with the monitor's link.
fn discovered(options: &str, server: &Arc<Behaviour>) -> (Arc<Host<Puppet>>, Link<Puppet>) {
    let Fixture { host, link, .. } = Fixture::begin(client(options, server));
    (host, link)
}

/// Gives up the links that a runtime was asked for and has not run.
fn drop_links(runtime: &Puppet) {
    loop {
        // What is dropped, without the lock, may open another.
        let links = std::mem::take(&mut *lock(&runtime.links));
        if links.is_empty() {
            return;
        }
    }
}

fn set_clock(host: &Host<Puppet>, now: Instant) {
    *lock(&host.runtime().now) = now;
}

fn reset() -> Failure {
    Failure::new(failure::Stage::Hello, Cause::Io, "reset")
}

/// Reads events up to the last one.
fn read_to_the_end(mut events: Events) {
    let (sleeper, mut last) = (Arc::<Sleeper>::default(), None);
    // A publisher of an event takes no lock: it may see the waker of a look that sees the event.
    while let Some(event) = sleeper.run_by_looks(events.next()) {
        last = Some(event.kind);
    }
    assert!(matches!(last, None | Some(EventKind::TopologyClosed)), "{last:?}");
}

const ANSWERED: u32 = 1;
const CLOSED: u32 = 2;
const RUNG: u32 = 4;

/// Lets a selection wait while a view with a suitable server is published, the client is closed, or
/// its deadline passes; `late` says that all this may come before it waits.
fn select_while(causes: u32, late: bool) {
    let host = client("", &Arc::default());
    let link = take_link(&host);
    link.opened();
    let reply = Fixture::reply_to_hello(&link);
    let deadline = Instant::from_millis(5);
    let mut causing = Some({
        let (closing, ringing) = (Arc::clone(&host), Arc::clone(&host));
        move || {
            let answers = spawn(move || {
                if causes & ANSWERED != 0 {
                    link.received(&reply);
                }
                link
            });
            let closes = spawn(move || {
                if causes & CLOSED != 0 {
                    closing.close();
                }
            });
            let rings = spawn(move || {
                if causes & RUNG != 0 {
                    set_clock(&ringing, deadline);
                    ringing.ring();
                }
            });
            (answers, closes, rings)
        }
    });
    let mut threads = causing.take_if(|_| late).map(|cause| cause());
    let criteria = Arc::new(Criteria::write());
    let sleeper = Arc::<Sleeper>::default();
    let selected = {
        let mut selection = pin!(host.select(&criteria, Some(deadline)));
        sleeper.run(poll_fn(|cx| {
            let poll = selection.as_mut().poll(cx);
            threads = threads.take().or_else(|| causing.take().map(|cause| cause()));
            poll
        }))
    };
    sleeper.assert_woken_once_per_wait();
    match causes {
        ANSWERED => assert!(selected.is_ok()),
        causes if causes & ANSWERED == 0 => assert!(selected.is_err()),
        _ => {}
    }
    let (answers, closes, rings) = threads.expect("they were started");
    drop(answers.join().unwrap());
    closes.join().unwrap();
    rings.join().unwrap();
    assert!(lock(&host.topology).waiters.is_empty());
    drop_links(host.runtime());
    block_on(host.ended());
}

#[test]
fn a_selection_that_waits_is_answered_once_whatever_comes_first() {
    for causes in 1..=ANSWERED + CLOSED + RUNG {
        explore(100, move || select_while(causes, false));
    }
}

#[test]
fn a_selection_misses_nothing_that_happens_while_it_begins_to_wait() {
    for causes in [ANSWERED, CLOSED, ANSWERED + CLOSED, ANSWERED + CLOSED + RUNG] {
        explore(100, move || select_while(causes, true));
    }
}

/// Three threads use a pool of one connection, one of them without patience, while the pool is
/// cleared and becomes ready again.
fn check_out_while_cleared(subscribed: bool) {
    let server = Arc::<Behaviour>::default();
    let (host, link) = discovered("&maxPoolSize=1", &server);
    let reader =
        subscribed.then(|| host.subscribe()).map(|events| spawn(move || read_to_the_end(events)));
    let pool = host.members()[0].clone();
    let users = [(2, false), (2, false), (2, true)].map(|(times, impatient)| {
        let pool = pool.clone();
        spawn(move || {
            for _ in 0..times {
                match impatient {
                    true => give_up(pool.check_out()),
                    false => drop(block_on(pool.check_out())),
                }
            }
        })
    });
    link.closed(reset());
    // For the next check, whose deadline another thread may still be about to set.
    set_clock(&host, Instant::from_millis(500));
    host.ring();
    let link = take_link(&host);
    link.opened();
    Fixture::answer(&link);
    users.into_iter().for_each(|user| user.join().unwrap());
    drop(link);
    drop_links(host.runtime());
    block_on(host.ended());
    let Counts { pending, in_use, waiting, .. } = pool.counts();
    assert_eq!((pending, in_use, waiting, pool.operation_count()), (0, 0, 0, 0));
    host.close();
    block_on(host.ended());
    assert_eq!((pool.counts(), server.open.load(Ordering::Relaxed)), (Counts::default(), 0));
    reader.into_iter().for_each(|reader| reader.join().unwrap());
}

#[test]
fn every_check_out_ends_and_leaves_nothing_behind_while_the_pool_is_cleared() {
    for subscribed in [false, true] {
        explore(200, move || check_out_while_cleared(subscribed));
    }
}

/// A client ends, with its last reference or because it is closed, while the alarm rings, its
/// monitor learns something, and a connection is established.
fn end_in_flight(closes: bool) {
    let server = Arc::<Behaviour>::default();
    let (host, link) = discovered("", &server);
    let (events, shared) = (host.subscribe(), Arc::clone(&host.shared));
    let pool = host.members()[0].clone();
    let reader = spawn(move || read_to_the_end(events));
    let user = spawn(move || drop(block_on(pool.check_out())));
    let monitor = spawn(move || {
        link.received(b"no message");
        link.closed(reset());
    });
    let weak = Arc::downgrade(&host);
    let rings = spawn(move || {
        if let Some(host) = weak.upgrade() {
            set_clock(&host, Instant::from_millis(10_000));
            host.ring();
        }
    });
    if closes {
        let mut views = host.watch();
        let closing = Arc::clone(&host);
        let closer = spawn(move || closing.close());
        host.close();
        read_to_the_end(host.subscribe());
        while block_on(views.next()).is_some() {}
        assert!(block_on(host.watch().next()).is_some(), "the view of now comes first");
        assert!(block_on(host.select(&Arc::new(Criteria::write()), None)).is_err());
        closer.join().unwrap();
    }
    drop(host);
    [reader, user, monitor, rings].into_iter().for_each(|thread| thread.join().unwrap());
    drop_links(&shared.runtime);
    block_on(shared.activity.idle());
    assert_eq!(server.open.load(Ordering::Relaxed), 0);
}

#[test]
fn what_the_runtime_was_told_last_is_when_the_host_is_due_whoever_has_told_it() {
    explore(200, || {
        let (host, link) = discovered("", &Arc::default());
        let [selecting, checking, ringing] = [(); 3].map(|()| Arc::clone(&host));
        let selects = spawn(move || {
            for millis in [7, 5] {
                let deadline = Some(Instant::from_millis(millis));
                let criteria = Arc::new(Criteria::write());
                give_up(selecting.select(&criteria, deadline));
            }
        });
        let threads = [
            selects,
            spawn(move || checking.request_check()),
            spawn(move || ringing.ring()),
            spawn(move || link.closed(reset())),
        ];
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let due = lock(&host.topology).topology().and_then(Machine::deadline);
        assert_eq!(*lock(&host.runtime().alarm), due);
        drop_links(host.runtime());
    });
}

#[test]
fn dropping_the_last_reference_ends_whatever_is_in_flight() {
    explore(200, || end_in_flight(false));
}

#[test]
fn whatever_is_in_flight_or_comes_later_finds_a_client_closed() {
    explore(200, || end_in_flight(true));
}

#[test]
fn deadlines_are_judged_when_the_last_thread_that_reads_has_read_what_arrived_meanwhile() {
    explore(200, || {
        let server = Arc::<Behaviour>::default();
        server.hangs_up.store(true, Ordering::Relaxed);
        let host = client("&minPoolSize=1", &server);
        let (link, clock) = (take_link(&host), Arc::clone(&host.runtime().now));
        let monitor = spawn(move || block_on(link.run(connect(server, clock))));
        let mut now = Instant::from_millis(300_000);
        set_clock(&host, now);
        host.ring();
        now = now + Duration::from_millis(10);
        set_clock(&host, now);
        host.ring();
        monitor.join().unwrap();
        drop_links(host.runtime());
        block_on(host.ended());
        let alarm = || *lock(&host.runtime().alarm);
        // It was read before the first ring, after which nothing may be late any more, or else no
        // barrier is held until patience ends.
        let patience = now + Duration::from_secs(1);
        assert_ne!(alarm(), Some(patience), "deadlines wait");
        host.ring();
        assert!(alarm().is_none_or(|alarm| alarm > now), "they were judged: {:?}", alarm());
    });
}
