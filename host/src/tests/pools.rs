//! The contents of the host's pools when servers fail: through the fast path, which publishes no
//! events, and past it.

use std::future::ready;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use bson::rawdoc;

use super::fixture::{Fixture, Task};
use super::lock;
use crate::observe::subscription::Events;
use sdam_core::description::ServerType;
use sdam_core::failure::{Cause, Failure, Stage as Phase};
use sdam_core::pool::PoolEvent;
use sdam_core::topology::{EventKind, Topics};

/// The number of connections that are available, pending and in use, and how many of them are open.
fn counts(fixture: &Fixture) -> ([usize; 3], u32) {
    let counts = fixture.pool().counts();
    let open = fixture.server.open.load(Ordering::Relaxed);
    ([counts.available, counts.pending, counts.in_use], open)
}

/// Lets an operation find that the server shuts down, which clears the pool, and a check soon after
/// that it is back.
fn shut_down_and_return(fixture: &Fixture) {
    let shutting_down = rawdoc! { "ok": 0, "code": 91, "errmsg": "shutting down" };
    *lock(&fixture.server.reply) = Some(shutting_down);
    fixture.run(fixture.ping(None)).unwrap_err();
    assert_eq!(fixture.host.view().servers()[0].server_type, ServerType::Unknown);
    *lock(&fixture.server.reply) = None;
    fixture.pass(Duration::from_millis(500));
    fixture.heartbeat();
    assert_eq!(fixture.host.view().servers()[0].server_type, ServerType::Standalone);
}

/// Connection Pool, "Checking In a Connection": one that is perished is closed.
#[test]
fn a_connection_on_loan_while_its_pool_was_cleared_is_closed_when_it_is_returned() {
    for is_subscribed in [false, true] {
        let fixture = Fixture::new("");
        let _events = is_subscribed.then(|| fixture.host.subscribe());
        let kept = fixture.run(fixture.pool().check_out()).unwrap();
        shut_down_and_return(&fixture);
        assert_eq!(counts(&fixture), ([0, 0, 1], 1), "what found out is closed");
        drop(kept);
        assert_eq!(counts(&fixture), ([0, 0, 0], 0));
        fixture.run(fixture.ping(None)).unwrap();
        assert_eq!(counts(&fixture), ([1, 0, 0], 1));
    }
}

/// Connection Pool, "Clearing a Connection Pool": what was begun before a clear is of no use.
#[test]
fn a_connection_that_was_begun_before_a_clear_is_closed_once_it_is_established() {
    let fixture = Fixture::new("");
    let pool = fixture.pool();
    let idle = fixture.run(pool.check_out()).unwrap();
    let mut early = Task::new(pool.check_out());
    assert!(early.poll().is_pending(), "another one is begun");
    drop(early);
    drop(idle);
    assert_eq!(counts(&fixture), ([1, 1, 0], 1));
    shut_down_and_return(&fixture);
    assert_eq!(counts(&fixture), ([0, 1, 0], 0));
    let mut late = Task::new(pool.check_out());
    assert!(late.poll().is_pending());
    assert_eq!(counts(&fixture), ([0, 2, 0], 0), "it does not wait for the one of before");
    while fixture.establish() {}
    assert!(matches!(late.poll(), Poll::Ready(Ok(_))));
    assert_eq!(counts(&fixture), ([1, 0, 0], 1), "only the new one was kept");
}

/// Connection Pool, "maxConnecting": an attempt that has failed is none any more.
#[test]
fn whoever_comes_after_attempts_that_have_failed_gets_an_attempt_too() {
    let fixture = Fixture::new("&maxConnecting=1");
    let pool = fixture.pool();
    for _ in 0..5 {
        let mut task = Task::new(pool.check_out());
        assert!(task.poll().is_pending());
        assert_eq!(lock(&fixture.host.runtime().pending).len(), 1, "one is asked for");
        fixture.give_up();
        assert!(matches!(task.poll(), Poll::Ready(Err(_))));
    }
    assert_eq!(counts(&fixture), ([0, 0, 0], 0));
    fixture.run(fixture.ping(None)).unwrap();
}

/// Connection Pool, "Populating the Pool with a Connection": a server that sheds connections is not
/// asked for the next without a pause.
#[test]
fn min_pool_size_asks_for_no_connection_within_500_ms_of_a_failure() {
    let fixture = Fixture::new("&minPoolSize=1");
    let asked = || lock(&fixture.host.runtime().pending).len();
    for _ in 0..3 {
        assert_eq!(asked(), 1);
        fixture.give_up();
        assert_eq!(asked(), 0);
        fixture.pass(Duration::from_millis(499));
        assert_eq!(asked(), 0);
        fixture.pass(Duration::from_millis(1));
    }
    while fixture.establish() {}
    assert_eq!(counts(&fixture), ([1, 0, 0], 1));
}

/// Connection Pool, "maxIdleTimeMS": where the alarm is set for nothing else, the return of a
/// connection sets it, with subscribers or without.
#[test]
fn an_idle_connection_is_closed_in_time_where_nothing_else_is_due() {
    for is_subscribed in [false, true] {
        let quiet = "&connectTimeoutMS=0&heartbeatFrequencyMS=600000&maxIdleTimeMS=100";
        let fixture = Fixture::new(quiet);
        let _events = is_subscribed.then(|| fixture.host.subscribe());
        for _ in 0..2 {
            fixture.run(fixture.ping(None)).unwrap();
            assert_eq!(counts(&fixture), ([1, 0, 0], 1));
            fixture.pass(Duration::from_millis(100));
            assert_eq!(counts(&fixture), ([0, 0, 0], 0));
        }
    }
}

/// The return of a connection sets the alarm also where something later is due already.
#[test]
fn an_idle_connection_is_closed_in_time_where_something_later_is_due() {
    for is_subscribed in [false, true] {
        let quiet = "&connectTimeoutMS=5000&heartbeatFrequencyMS=600000&maxIdleTimeMS=100";
        let fixture = Fixture::new(quiet);
        let _events = is_subscribed.then(|| fixture.host.subscribe());
        let pool = fixture.pool();
        let checked_out = fixture.run(pool.check_out()).unwrap();
        let mut other = Task::new(pool.check_out());
        assert!(other.poll().is_pending(), "it is to be there within 5 s");
        drop(other);
        drop(checked_out);
        assert_eq!(counts(&fixture), ([1, 1, 0], 1));
        fixture.pass(Duration::from_millis(100));
        assert_eq!(counts(&fixture), ([0, 1, 0], 0));
    }
}

/// A connection aside says nothing of the server, whatever it is for.
#[test]
fn a_connection_aside_that_cannot_be_established_leaves_the_server_as_it_is() {
    let fixture = Fixture::new("");
    let member = fixture.host.members().remove(0);
    let mut task = Task::new(member.connect());
    assert!(task.poll().is_pending());
    for pending in std::mem::take(&mut *lock(&fixture.host.runtime().pending)) {
        let failure = Failure::new(Phase::Tls, Cause::UnknownIssuer, "not signed by anybody");
        assert!(Task::new(pending.run(ready(Err(failure)), || Ok([7; 24]))).poll().is_ready());
    }
    assert!(matches!(task.poll(), Poll::Ready(Err(_))));
    assert_eq!(fixture.host.view().servers()[0].server_type, ServerType::Standalone);
    fixture.run(fixture.ping(None)).unwrap();
}

#[test]
fn connections_that_the_server_has_closed_are_all_passed_over() {
    let fixture = Fixture::new("");
    let pool = fixture.pool();
    let mut in_use = [(); 2].map(|()| fixture.run(pool.check_out()).unwrap());
    fixture.server.hangs_up.store(true, Ordering::Relaxed);
    for checked_out in &mut in_use {
        fixture.run(checked_out.command("admin", &rawdoc! { "ping": 1 })).unwrap();
    }
    fixture.server.hangs_up.store(false, Ordering::Relaxed);
    // The one that is tried first is the older one.
    let [older, newer] = in_use;
    drop(newer);
    drop(older);
    assert_eq!(counts(&fixture), ([2, 0, 0], 2));
    let mut checked_out = fixture.run(pool.check_out()).unwrap();
    fixture.run(checked_out.command("admin", &rawdoc! { "ping": 1 })).unwrap();
    assert_eq!(counts(&fixture), ([0, 0, 1], 1));
}

/// Returns the events of connections that were closed, and of check-outs that have failed.
fn ends(events: &mut Events) -> Vec<String> {
    let told = std::iter::from_fn(|| events.try_next()).filter_map(|event| match event.kind {
        EventKind::Pool { event: PoolEvent::ConnectionClosed { error, reason, .. }, .. } => {
            Some(format!("{reason:?}: {}", error.map_or_else(String::new, |it| it.to_string())))
        }
        EventKind::Pool { event: PoolEvent::ConnectionCheckOutFailed { error, .. }, .. } => {
            Some(error.name().to_owned())
        }
        _ => None,
    });
    told.collect()
}

/// Connection Monitoring and Pooling, "Connection Closed Message": "If `reason` is `Error`, the
/// associated error".
#[test]
fn a_connection_that_is_closed_because_of_an_error_is_told_of_with_that() {
    let fixture = Fixture::new("");
    let mut events = fixture.host.subscribe_to(Topics::POOLS);
    let mut broken = fixture.run(fixture.pool().check_out()).unwrap();
    fixture.server.resets.store(true, Ordering::Relaxed);
    let error = fixture.run(broken.command("admin", &rawdoc! { "ping": 1 })).unwrap_err();
    fixture.server.resets.store(false, Ordering::Relaxed);
    assert!(ends(&mut events).is_empty(), "it is in use");
    drop(broken);
    let [told] = &*ends(&mut events) else { panic!("not one") };
    let cause = told.strip_prefix("Error: ").unwrap();
    assert!(error.to_string().contains(cause), "{cause}: {error}");

    let fixture = Fixture::new("");
    let mut events = fixture.host.subscribe_to(Topics::POOLS);
    let mut given_up = fixture.run(fixture.pool().check_out()).unwrap();
    fixture.server.mute.store(true, Ordering::Relaxed);
    let ping = rawdoc! { "ping": 1 };
    let mut task = Task::new(given_up.command("admin", &ping));
    assert!(task.poll().is_pending());
    drop(task);
    drop(given_up);
    fixture.server.mute.store(false, Ordering::Relaxed);
    assert_eq!(ends(&mut events), ["Error: an exchange was given up before its end"]);

    let mut idle = fixture.run(fixture.pool().check_out()).unwrap();
    fixture.server.hangs_up.store(true, Ordering::Relaxed);
    fixture.run(idle.command("admin", &ping)).unwrap();
    fixture.server.hangs_up.store(false, Ordering::Relaxed);
    drop(idle);
    fixture.run(fixture.ping(None)).unwrap();
    let [told] = &*ends(&mut events) else { panic!("not one") };
    assert!(told.starts_with("Error: the server hung up, or sent something"), "{told}");
}

/// A subscriber that counts pending requests hears of the end of each.
#[test]
fn a_check_out_that_is_given_up_is_told_to_have_ended() {
    let fixture = Fixture::new("");
    let mut events = fixture.host.subscribe_to(Topics::POOLS);
    let pool = fixture.pool();
    let mut waits = Task::new(pool.check_out());
    assert!(waits.poll().is_pending());
    drop(waits);
    assert_eq!(ends(&mut events), ["abandoned"]);
}
