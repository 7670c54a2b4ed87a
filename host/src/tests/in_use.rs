//! Connections in use: exchanges, their ends, and what the topology receives.

use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Poll;
use std::time::Duration;

use bson::oid::ObjectId;
use bson::{Timestamp, rawdoc};

use super::fixture::{Behaviour, Fixture, Task, connect};
use super::inline::unless_deadlocked;
use super::lock;
use super::puppet::{Puppet, pass};
use crate::error::{Error, ErrorKind};
use crate::machines::Host;
use crate::observe::subscription::EVENT_LIMIT;
use crate::operations::exchange::Outcome;
use crate::operations::request::{Request, Target};
use crate::sync::wake_all;
use sdam_core::config::Options;
use sdam_core::description::ServerType;
use sdam_core::failure::{Cause, Failure, Stage as Phase};
use sdam_core::operation::{CommandMessage, InvalidCommand, OperationError, OperationOptions};
use sdam_core::pool::{CheckOutError, Purpose};
use sdam_core::selection::Criteria;
use sdam_core::topology::Topics;
use sdam_core::wire::{Flags, Frames, MAX_MESSAGE_LEN, write_op_msg};

fn counts(fixture: &Fixture) -> (usize, usize, usize, usize) {
    let counts = fixture.pool().counts();
    (counts.available, counts.pending, counts.in_use, counts.waiting)
}

#[test]
fn a_command_carries_what_the_server_needs_and_the_connection_is_kept() {
    let fixture = Fixture::new("");
    fixture.server.has_sessions.store(true, Ordering::Relaxed);
    let time = rawdoc! { "clusterTime": Timestamp { time: 5, increment: 1 } };
    *super::lock(&fixture.server.reply) = Some(rawdoc! { "$clusterTime": time.clone(), "ok": 1.0 });
    fixture.run(fixture.ping(None)).unwrap();
    fixture.run(fixture.ping(None)).unwrap();
    assert_eq!(counts(&fixture), (1, 0, 0, 0));
    let commands = super::lock(&fixture.server.commands);
    assert_eq!(
        commands[1..],
        [
            rawdoc! { "ping": 1, "$db": "admin" },
            rawdoc! { "ping": 1, "$db": "admin", "$clusterTime": time },
        ]
    );
}

#[test]
fn errors_are_told_to_the_topology_before_the_operation_learns_of_them() {
    let fixture = Fixture::new("");
    *super::lock(&fixture.server.reply) =
        Some(rawdoc! { "ok": 0, "code": 10107, "codeName": "NotWritablePrimary", "errmsg": "no" });
    let error = fixture.run(fixture.ping(None)).unwrap_err();
    assert!(error.starts_with("no (NotWritablePrimary, code 10107) (at a:27017)"), "{error}");
    assert_eq!(fixture.host.view().servers()[0].server_type, ServerType::Unknown);
    assert_eq!(counts(&fixture), (1, 0, 0, 0), "it only stepped down, so the pool is kept");
}

#[test]
fn a_deadline_ends_the_exchange_and_the_connection_but_says_nothing_of_the_server() {
    let fixture = Fixture::new("");
    fixture.run(fixture.ping(None)).unwrap();
    fixture.server.mute.store(true, Ordering::Relaxed);
    let deadline = fixture.now() + Duration::from_millis(300);
    let mut task = Task::new(fixture.ping(Some(deadline)));
    assert!(task.poll().is_pending());
    fixture.pass(Duration::from_millis(300));
    let Poll::Ready(Err(error)) = task.poll() else { panic!("no error") };
    assert!(error.contains("300 ms into the exchange"), "{error}");
    drop(task);
    assert_eq!(fixture.host.view().servers()[0].server_type, ServerType::Standalone);
    assert_eq!((counts(&fixture), fixture.server.open.load(Ordering::Relaxed)), ((0, 0, 0, 0), 0));
}

/// Nothing was there when it was read, then the process was stopped: the deadline is judged before
/// the next read.
#[test]
fn a_reply_that_came_between_the_read_and_the_deadline_counts() {
    let fixture = Fixture::new("");
    fixture.run(fixture.ping(None)).unwrap();
    fixture.server.mute.store(true, Ordering::Relaxed);
    fixture.server.stops.store(true, Ordering::Relaxed);
    let deadline = fixture.now() + Duration::from_millis(300);
    fixture.run(fixture.ping(Some(deadline))).unwrap();
    assert!(fixture.now() > deadline);
}

/// CMAP, "Clearing a non-load balanced pool": the user of a connection when the monitor times out
/// gets that error, and not some network error.
#[test]
fn whoever_waits_for_a_reply_is_told_that_the_monitor_has_timed_out() {
    let fixture = Fixture::new("");
    fixture.run(fixture.ping(None)).unwrap();
    fixture.server.mute.store(true, Ordering::Relaxed);
    let mut task = Task::new(fixture.ping(None));
    assert!(task.poll().is_pending());
    // The next heartbeat begins after 10 s, and is given up after another 10 s.
    fixture.pass(Duration::from_secs(20));
    assert!(task.was_woken());
    let std::task::Poll::Ready(Err(error)) = task.poll() else { panic!("no error") };
    assert!(error.contains("interrupted due to a time-out of the server's monitor"), "{error}");
    drop(task);
    assert_eq!((counts(&fixture), fixture.server.open.load(Ordering::Relaxed)), ((0, 0, 0, 0), 0));
}

/// An exchange that was ended may learn so before the client is known to be closed; that no
/// server is to be had then is another matter.
#[test]
fn an_exchange_that_was_ended_says_that_the_client_is_closed_only_if_it_is() {
    for is_closed in [false, true] {
        let fixture = Fixture::new("");
        let mut checked_out = fixture.run(fixture.pool().check_out()).unwrap();
        let token = Arc::clone(&checked_out.connection().stream.cancellation);
        let stepped_down = rawdoc! { "ok": 0, "code": 10107, "errmsg": "no" };
        lock(&fixture.server.replies).push_back(Some(stepped_down));
        fixture.run(fixture.ping(None)).unwrap_err();
        assert!(fixture.host.diagnose(&Criteria::write()).is_some(), "no server is to be had");
        fixture.server.mute.store(true, Ordering::Relaxed);
        let (command, options) = (rawdoc! { "ping": 1 }, OperationOptions::command());
        let message = CommandMessage::new("admin", &command);
        let request = Request::new(message, &options, Target::Connection(&mut checked_out));
        let mut task = Task::new(fixture.host.operate(request));
        assert!(task.poll().is_pending());
        if is_closed {
            fixture.host.close();
        }
        wake_all(token.end());
        let Poll::Ready(Err(error)) = task.poll() else { panic!("it still waits") };
        let kind = if is_closed { ErrorKind::Closed } else { ErrorKind::Network };
        assert_eq!(error.kind(), kind, "{error}");
    }
}

#[test]
fn a_command_that_is_too_late_is_not_sent_and_costs_no_connection() {
    let fixture = Fixture::new("");
    fixture.run(fixture.ping(None)).unwrap();
    let sent = super::lock(&fixture.server.commands).len();
    let error = fixture.run(fixture.ping(Some(fixture.now()))).unwrap_err();
    assert!(error.starts_with("the time allowed had passed"), "{error}");
    assert_eq!(super::lock(&fixture.server.commands).len(), sent);
    assert_eq!(counts(&fixture), (1, 0, 0, 0));
}

/// CSOT, "Backwards Breaking Considerations": "drivers MUST continue to honor existing timeouts
/// such as socketTimeoutMS", unless timeoutMS is set.
#[test]
fn the_older_time_outs_hold_unless_timeout_ms_is_set() {
    for (options, holds) in
        [("&socketTimeoutMS=300", true), ("&socketTimeoutMS=300&timeoutMS=0", false)]
    {
        let fixture = Fixture::new(options);
        fixture.run(fixture.ping(None)).unwrap();
        fixture.server.mute.store(true, Ordering::Relaxed);
        let mut task = Task::new(fixture.ping(None));
        assert!(task.poll().is_pending());
        fixture.pass(Duration::from_millis(300));
        assert_eq!(task.poll().is_ready(), holds, "{options}");
    }
    for (options, holds) in
        [("&waitQueueTimeoutMS=300", true), ("&waitQueueTimeoutMS=300&timeoutMS=0", false)]
    {
        let fixture = Fixture::new(options);
        let pool = fixture.pool();
        let mut task = Task::new(pool.check_out());
        assert!(task.poll().is_pending());
        fixture.pass(Duration::from_millis(300));
        assert_eq!(task.poll().is_ready(), holds, "{options}");
    }
}

/// Returns how long a message was said to be, and how long it may be.
fn too_long(error: &Error) -> (usize, usize) {
    match error.as_operation() {
        Some(OperationError::Invalid(InvalidCommand::TooLong { length, limit })) => {
            (*length, *limit)
        }
        _ => panic!("{error:?}"),
    }
}

#[test]
fn whatever_makes_a_message_too_long_it_is_refused() {
    let fixture = Fixture::new("");
    let mut checked_out = fixture.run(fixture.pool().check_out()).unwrap();
    let long = "x".repeat(sdam_core::wire::MAX_MESSAGE_LEN);
    let insert = rawdoc! { "insert": "c" };
    for (database, sequence) in [(long.as_str(), "documents"), ("db", long.as_str())] {
        let sequences: &[(&str, &[&bson::RawDocument])] = &[(sequence, &[])];
        let sent = fixture.run(checked_out.command_with_sequences(database, &insert, sequences));
        assert_eq!(sent.unwrap_err().kind(), ErrorKind::Invalid);
    }
    drop(checked_out);
    assert_eq!(counts(&fixture), (1, 0, 0, 0));
}

#[test]
fn a_loan_that_is_dropped_in_the_middle_closes_its_connection() {
    let fixture = Fixture::new("");
    let ping = rawdoc! { "ping": 1 };
    let mut checked_out = fixture.run(fixture.pool().check_out()).unwrap();
    assert_eq!(counts(&fixture), (0, 0, 1, 0));
    fixture.server.mute.store(true, Ordering::Relaxed);
    assert!(Task::new(checked_out.command("admin", &ping)).poll().is_pending());
    let again = fixture.run(checked_out.command("admin", &ping)).unwrap_err();
    assert_eq!(again.as_operation(), Some(&OperationError::Invalid(InvalidCommand::Busy)));
    drop(checked_out);
    assert_eq!((counts(&fixture), fixture.server.open.load(Ordering::Relaxed)), ((0, 0, 0, 0), 0));
}

#[test]
fn a_command_that_cannot_be_sent_harms_nothing() {
    let fixture = Fixture::new("");
    let mut checked_out = fixture.run(fixture.pool().check_out()).unwrap();
    for (database, command, reason) in [
        ("admin", rawdoc! {}, InvalidCommand::Empty),
        ("", rawdoc! { "ping": 1 }, InvalidCommand::Database),
        ("admin", rawdoc! { "$db": "x" }, InvalidCommand::Empty),
    ] {
        let error = fixture.run(checked_out.command(database, &command)).unwrap_err();
        assert_eq!(error.as_operation(), Some(&OperationError::Invalid(reason)));
    }
    // Whatever makes it too long: the name of a database, or that of a sequence.
    let (ping, long) = (rawdoc! { "ping": 1 }, "x".repeat(MAX_MESSAGE_LEN));
    let errors = [
        fixture.run(checked_out.command(&long, &ping)).unwrap_err(),
        fixture.run(checked_out.command_with_sequences("db", &ping, &[(&long, &[])])).unwrap_err(),
    ];
    for error in errors {
        assert_eq!(too_long(&error).1, MAX_MESSAGE_LEN);
    }
    fixture.run(checked_out.command("admin", &ping)).unwrap();
    drop(checked_out);
    assert_eq!(counts(&fixture), (1, 0, 0, 0));
}

#[test]
fn exhaust_replies_come_one_by_one_and_unfinished_ones_cost_the_connection() {
    let fixture = Fixture::new("");
    let command = rawdoc! { "getMore": 1_i64 };
    let mut checked_out = fixture.run(fixture.pool().check_out()).unwrap();
    let mut replies = fixture.run(checked_out.command_exhaust("db", &command)).unwrap();
    let mut count = 0;
    while let Some(reply) = fixture.run(replies.next()) {
        reply.unwrap();
        count += 1;
    }
    assert_eq!(count, 3);
    let mut replies = fixture.run(checked_out.command_exhaust("db", &command)).unwrap();
    fixture.run(replies.next()).unwrap().unwrap();
    drop(checked_out);
    assert_eq!((counts(&fixture), fixture.server.open.load(Ordering::Relaxed)), ((0, 0, 0, 0), 0));
}

#[test]
fn an_unacknowledged_write_has_no_reply_and_leaves_the_connection_usable() {
    let fixture = Fixture::new("");
    let mut checked_out = fixture.run(fixture.pool().check_out()).unwrap();
    let insert = rawdoc! { "insert": "c", "writeConcern": { "w": 0 } };
    fixture.run(checked_out.command_unacknowledged("db", &insert)).unwrap();
    fixture.run(checked_out.command("admin", &rawdoc! { "ping": 1 })).unwrap();
    drop(checked_out);
    assert_eq!(counts(&fixture), (1, 0, 0, 0));
}

#[test]
fn raw_messages_pass_as_they_are_and_must_be_reported() {
    let fixture = Fixture::new("");
    let mut bytes = Vec::new();
    write_op_msg(&mut bytes, 42, 0, Flags::NONE, &rawdoc! { "ping": 1, "$db": "admin" });
    let mut frames = Frames::new();
    frames.extend(&bytes);
    let message = frames.next().unwrap().unwrap();
    for (outcome, kept) in
        [(Some(Outcome::Success), true), (Some(Outcome::Discard), false), (None, false)]
    {
        let mut checked_out = fixture.run(fixture.pool().check_out()).unwrap();
        let early = fixture.run(checked_out.receive_message()).unwrap_err();
        assert_eq!(
            early.as_operation(),
            Some(&OperationError::Invalid(InvalidCommand::NoReplyDue))
        );
        fixture.run(checked_out.send_message(&message)).unwrap();
        let reply = fixture.run(checked_out.receive_message()).unwrap();
        assert_eq!(reply.header().response_to, 42);
        let unreported =
            fixture.run(checked_out.command("admin", &rawdoc! { "ping": 1 })).unwrap_err();
        assert_eq!(
            unreported.as_operation(),
            Some(&OperationError::Invalid(InvalidCommand::Unreported))
        );
        if let Some(outcome) = outcome {
            checked_out.report(outcome);
        }
        // What was reported is over: a check-out that is of use goes on.
        let ping = rawdoc! { "ping": 1 };
        assert_eq!(fixture.run(checked_out.command("admin", &ping)).is_ok(), kept);
        drop(checked_out);
        assert_eq!(counts(&fixture), (kept.into(), 0, 0, 0));
    }
}

/// OP_MSG, "exhaustAllowed": "The server will never produce replies with the moreToCome bit set
/// unless the request has the exhaustAllowed bit set", so that a reply is passed on as it came.
#[test]
fn a_compressed_reply_that_is_the_only_one_is_not_decompressed() {
    const LENGTH: usize = 8 << 20;
    let fixture = Fixture::new("");
    let long = rawdoc! { "ok": 1, "text": "x".repeat(LENGTH) };
    let mut checked_out = fixture.run(fixture.pool().check_out()).unwrap();
    fixture.server.compresses.store(true, Ordering::Relaxed);
    *super::lock(&fixture.server.reply) = Some(long);
    for (flags, replies) in [(Flags::NONE, 1), (Flags::EXHAUST_ALLOWED, 3)] {
        let (mut bytes, mut frames) = (Vec::new(), Frames::new());
        write_op_msg(&mut bytes, 42, 0, flags, &rawdoc! { "getMore": 1_i64, "$db": "db" });
        frames.extend(&bytes);
        let message = frames.next().unwrap().unwrap();
        fixture.run(checked_out.send_message(&message)).unwrap();
        let (mut count, mut most) = (0, 0);
        while checked_out.is_reply_due() {
            let allocated = allocation_counter::measure(|| {
                fixture.run(checked_out.receive_message()).unwrap();
            });
            most = most.max(allocated.bytes_max);
            count += 1;
        }
        assert_eq!(count, replies);
        let decompressed = most >= LENGTH as u64;
        assert_eq!(decompressed, flags == Flags::EXHAUST_ALLOWED, "{most} bytes at once");
        checked_out.report(Outcome::Success);
    }
}

/// Client Backpressure, "backpressure-connection-checkin": a retry finds the pool whole.
#[test]
fn a_server_that_sheds_load_keeps_its_pool_and_gets_its_connection_back() {
    let fixture = Fixture::new("&maxAdaptiveRetries=0");
    *super::lock(&fixture.server.reply) = Some(rawdoc! {
        "ok": 0,
        "code": 2,
        "errmsg": "later",
        "errorLabels": ["RetryableError", "SystemOverloadedError"],
    });
    for _ in 0..3 {
        let error = fixture.run(fixture.ping(None)).unwrap_err();
        assert!(error.starts_with("later (code 2) [RetryableError, Sys"), "{error}");
        assert_eq!(counts(&fixture), (1, 0, 0, 0));
    }
    assert_eq!(fixture.host.view().servers()[0].server_type, ServerType::Standalone);
}

#[test]
fn checking_out_and_in_again_allocates_nothing_and_sets_no_alarm() {
    for options in ["", "&maxIdleTimeMS=5000"] {
        let fixture = Fixture::new(options);
        fixture.run(fixture.ping(None)).unwrap();
        let (pool, now) = (fixture.pool(), &fixture.host.runtime().now);
        let mut task = Task::new(async {
            for _ in 0..100 {
                let checked_out = pool.check_out().await.unwrap();
                *super::lock(now) = fixture.now() + Duration::from_millis(1);
                drop(checked_out);
            }
        });
        let alarm = || *super::lock(&fixture.host.runtime().alarm);
        let (mut ended, before) = (false, alarm());
        let allocated = allocation_counter::measure(|| ended = task.poll().is_ready());
        assert!(ended, "an idle connection is to be had at once");
        assert_eq!(allocated.count_total, 0, "{options}");
        assert_eq!(alarm(), before, "the runtime is not bothered each time");
        drop(task);
        fixture.pass(Duration::from_millis(4999));
        assert_eq!(counts(&fixture).0, 1, "{options}");
        fixture.pass(Duration::from_millis(1));
        assert_eq!(counts(&fixture).0, usize::from(options.is_empty()), "it was idle for too long");
    }
}

/// Events reach any subscriber without an allocation and without another lock, also when it falls
/// behind.
#[test]
fn checking_out_and_in_again_allocates_nothing_while_others_listen() {
    let fixture = Fixture::new("");
    fixture.run(fixture.ping(None)).unwrap();
    let pool = fixture.pool();
    let check_out = || {
        let mut task = Task::new(async { drop(pool.check_out().await.unwrap()) });
        let mut ended = false;
        let allocated = allocation_counter::measure(|| ended = task.poll().is_ready());
        assert!(ended);
        allocated.count_total
    };
    let shared = &fixture.host.shared;
    for _ in 0..100 {
        drop((fixture.host.subscribe(), fixture.host.watch()));
        assert_eq!((shared.events.listed(), shared.views.listed()), (0, 0));
        assert_eq!(check_out(), 0, "nothing listens");
    }
    let mut kept = fixture.host.subscribe_to(Topics::ALL);
    let dropped = fixture.host.subscribe();
    for _ in 0..EVENT_LIMIT {
        assert_eq!(check_out(), 0, "two listen");
    }
    assert_eq!(kept.dropped(), 2 * EVENT_LIMIT as u64, "of three events each");
    let names: Vec<&str> =
        std::iter::from_fn(|| kept.try_next()).map(|event| event.kind.name()).collect();
    let last = ["connectionCheckOutStarted", "connectionCheckedOut", "connectionCheckedIn"];
    assert_eq!(names[names.len() - 3..], last);
    let mut waits = Task::new(kept.next());
    assert!(waits.poll().is_pending());
    assert_eq!(check_out(), 0, "somebody waits");
    assert!(waits.was_woken() && matches!(waits.poll(), Poll::Ready(Some(_))));
    drop(waits);
    drop(dropped);
    // An event for the one who is left changes nothing.
    fixture.host.request_check();
    fixture.pass(Duration::from_secs(10));
    assert_eq!(shared.events.listed(), 1);
    drop(kept);
    assert_eq!((shared.events.listed(), check_out()), (0, 0));
}

#[test]
fn loans_outlive_their_client() {
    let fixture = Fixture::new("");
    let mut checked_out = fixture.run(fixture.pool().check_out()).unwrap();
    let pool = fixture.pool();
    fixture.host.close();
    fixture.run(checked_out.command("admin", &rawdoc! { "ping": 1 })).unwrap();
    let error = fixture.run(pool.check_out()).unwrap_err();
    assert!(matches!(error.as_check_out(), Some(CheckOutError::PoolClosed { .. })), "{error}");
    assert_eq!(error.kind(), ErrorKind::CheckOut);
    let server = std::sync::Arc::clone(&fixture.server);
    drop(fixture);
    stage_less(checked_out);
    assert_eq!(server.open.load(Ordering::Relaxed), 0);
    assert_eq!(pool.counts().in_use, 0);
}

/// Connection Pool, "Clearing a non-load balanced pool": those in use are interrupted.
#[test]
fn a_monitor_that_times_out_interrupts_whoever_waits_for_a_reply() {
    whoever_waits_for_a_reply_is_interrupted(&Fixture::new(""));
}

#[test]
fn a_monitor_that_times_out_interrupts_a_thread_that_a_socket_blocks() {
    let fixture = Fixture::new("");
    fixture.server.blocks.store(true, Ordering::Relaxed);
    whoever_waits_for_a_reply_is_interrupted(&fixture);
}

/// Nothing of the runtime's is called under a lock.
#[test]
fn whatever_interrupts_a_thread_may_look_at_the_pool() {
    unless_deadlocked(|| {
        let fixture = Fixture::new("");
        fixture.server.blocks.store(true, Ordering::Relaxed);
        let (pool, seen) = (Arc::downgrade(fixture.pool().server()), Arc::<AtomicU32>::default());
        let looked = Arc::clone(&seen);
        *super::lock(&fixture.server.when_interrupted) = Some(Box::new(move || {
            pool.upgrade().expect("a pool").counts();
            looked.fetch_add(1, Ordering::Relaxed);
        }));
        whoever_waits_for_a_reply_is_interrupted(&fixture);
        assert_eq!(seen.load(Ordering::Relaxed), 1);
    });
}

fn whoever_waits_for_a_reply_is_interrupted(fixture: &Fixture) {
    let mut checked_out = fixture.run(fixture.pool().check_out()).unwrap();
    fixture.server.mute.store(true, Ordering::Relaxed);
    let ping = rawdoc! { "ping": 1 };
    let mut task = Task::new(checked_out.command("admin", &ping));
    assert!(task.poll().is_pending());
    fixture.pass(Duration::from_secs(30));
    assert!(task.was_woken());
    let Poll::Ready(Err(error)) = task.poll() else { panic!("no error") };
    assert_eq!(error.failure().unwrap().cause, Cause::Interrupted, "{error}");
    drop(task);
    drop(checked_out);
    assert_eq!((counts(fixture), fixture.server.open.load(Ordering::Relaxed)), ((0, 0, 0, 0), 0));
}

#[test]
fn an_idle_connection_keeps_in_mind_nobody_who_has_used_it() {
    let fixture = Fixture::new("");
    fixture.server.mute.store(true, Ordering::Relaxed);
    let mut task = Task::new(fixture.ping(None));
    assert!(task.poll().is_pending());
    fixture.server.mute.store(false, Ordering::Relaxed);
    while fixture.establish() {}
    fixture.server.mute.store(true, Ordering::Relaxed);
    assert!(task.poll().is_pending(), "it waits for the reply");
    assert!(task.is_known());
    fixture.server.mute.store(false, Ordering::Relaxed);
    assert_eq!(task.poll(), Poll::Ready(Ok(())));
    assert_eq!(counts(&fixture), (1, 0, 0, 0));
    assert!(!task.is_known());
}

#[test]
fn a_connection_on_which_the_server_talks_unasked_is_not_handed_out_again() {
    let fixture = Fixture::new("");
    fixture.server.chatty.store(true, Ordering::Relaxed);
    for _ in 0..3 {
        fixture.run(fixture.ping(None)).unwrap();
    }
    assert_eq!(fixture.server.open.load(Ordering::Relaxed), 1);
}

#[test]
fn a_server_that_hangs_up_on_every_connection_is_not_asked_for_ever() {
    let fixture = Fixture::new("");
    fixture.run(fixture.ping(None)).unwrap();
    fixture.server.hangs_up.store(true, Ordering::Relaxed);
    fixture.run(fixture.ping(None)).unwrap();
    let error = fixture.run(fixture.ping(None)).unwrap_err();
    assert!(error.starts_with("the server closed the connection"), "{error}");
    assert_eq!(fixture.host.view().servers()[0].server_type, ServerType::Unknown);
}

/// Drops a check-out where there is neither client nor runtime.
fn stage_less<T>(checked_out: T) {
    drop(checked_out);
}

/// A deadline of ours is believed when it is reported twice; a stream that the system has given up
/// is not read from again.
#[cfg(unix)]
#[test]
fn a_time_out_of_the_systems_own_ends_the_exchange_at_once() {
    let fixture = Fixture::new("");
    let mut checked_out = fixture.run(fixture.pool().check_out()).unwrap();
    fixture.server.gives_up.store(true, Ordering::Relaxed);
    fixture.server.mute.store(true, Ordering::Relaxed);
    let ping = rawdoc! { "ping": 1 };
    let Poll::Ready(outcome) = Task::new(checked_out.command("admin", &ping)).poll() else {
        panic!("it reads again")
    };
    let error = outcome.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
}

/// The application receives the error, and the topology only what says something of the server.
#[test]
fn the_error_of_a_write_concern_is_told_with_the_reply() {
    for (code, server_type) in [(64, ServerType::Standalone), (91, ServerType::Unknown)] {
        let fixture = Fixture::new("");
        let mut checked_out = fixture.run(fixture.pool().check_out()).unwrap();
        let insert = rawdoc! { "insert": "c" };
        let reply = fixture.run(checked_out.command("db", &insert)).unwrap();
        assert!(reply.write_concern_error().is_none());
        *lock(&fixture.server.reply) = Some(rawdoc! {
            "ok": 1, "n": 1, "writeConcernError": { "code": code, "errmsg": "no" },
        });
        let reply = fixture.run(checked_out.command("db", &insert)).unwrap();
        assert_eq!(reply.get_i32("n").ok(), Some(1));
        assert_eq!(reply.write_concern_error().unwrap().code, Some(code));
        assert_eq!(fixture.host.view().servers()[0].server_type, server_type);
    }
}

/// A message counts with its header and with what the driver adds, and with nothing else.
#[test]
fn a_command_is_as_long_as_the_server_allows() {
    let fixture = Fixture::new("");
    let mut checked_out = fixture.run(fixture.pool().check_out()).unwrap();
    let (command, document) = (rawdoc! { "insert": "c" }, rawdoc! { "x": 1 });
    let sequences: &[(&str, &[&bson::RawDocument])] = &[("docs", &[&document, &document])];
    // The kind of a sequence, its length, and the NUL behind its name.
    let sequence = 6 + "docs".len() + 2 * document.as_bytes().len();
    let body = command.as_bytes().len() + "\x02$db\0".len() + 4 + "db\0".len();
    let length = 16 + 4 + 1 + body + sequence;
    checked_out.connection().connection_description.max_message_size_bytes = length;
    fixture.run(checked_out.command_with_sequences("db", &command, sequences)).unwrap();
    checked_out.connection().connection_description.max_message_size_bytes = length - 1;
    let error =
        fixture.run(checked_out.command_with_sequences("db", &command, sequences)).unwrap_err();
    assert_eq!(too_long(&error), (length, length - 1));
}

#[test]
fn raw_messages_are_as_long_as_the_server_allows_and_begin_only_where_nothing_is_due() {
    let fixture = Fixture::new("");
    let message = |flags| {
        let (mut bytes, mut frames) = (Vec::new(), Frames::new());
        write_op_msg(&mut bytes, 42, 0, flags, &rawdoc! { "ping": 1, "$db": "admin" });
        frames.extend(&bytes);
        frames.next().unwrap().unwrap()
    };
    let (ping, silent) = (message(Flags::NONE), message(Flags::MORE_TO_COME));
    let mut checked_out = fixture.run(fixture.pool().check_out()).unwrap();
    checked_out.connection().connection_description.max_message_size_bytes = ping.bytes().len() - 1;
    let error = fixture.run(checked_out.send_message(&ping)).unwrap_err();
    assert_eq!(too_long(&error), (ping.bytes().len(), ping.bytes().len() - 1));
    checked_out.connection().connection_description.max_message_size_bytes = ping.bytes().len();
    // One after the other, as long as there is no reply to them.
    fixture.run(checked_out.send_message(&silent)).unwrap();
    fixture.run(checked_out.send_message(&silent)).unwrap();
    fixture.run(checked_out.send_message(&ping)).unwrap();
    let error = fixture.run(checked_out.send_message(&ping)).unwrap_err();
    assert_eq!(error.as_operation(), Some(&OperationError::Invalid(InvalidCommand::Busy)));
    fixture.run(checked_out.receive_message()).unwrap();
    checked_out.report(Outcome::Discard);
    let error = fixture.run(checked_out.send_message(&ping)).unwrap_err();
    assert_eq!(error.as_operation(), Some(&OperationError::Invalid(InvalidCommand::Broken)));
}

#[test]
fn a_connection_keeps_its_buffer_unless_a_message_was_large() {
    let fixture = Fixture::new("");
    let mut checked_out = fixture.run(fixture.pool().check_out()).unwrap();
    let mut kept_after = |length: usize| {
        let insert = rawdoc! { "insert": "x".repeat(length) };
        fixture.run(checked_out.command("db", &insert)).unwrap();
        checked_out.connection().outgoing.capacity()
    };
    assert!((1..=65_536).contains(&kept_after(100)));
    assert_eq!(kept_after(100_000), 0);
    assert!(kept_after(100) > 0);
}

/// Connections that belong to no pool: they have no events, and say nothing of the server.
#[test]
fn a_connection_aside_is_not_counted_and_is_forgotten_when_it_is_gone() {
    let fixture = Fixture::new("");
    let member = fixture.host.members().remove(0);
    let mut events = fixture.host.subscribe();
    for _ in 0..5 {
        let mut checked_out = fixture.run(member.connect()).unwrap();
        fixture.run(checked_out.command("admin", &rawdoc! { "ping": 1 })).unwrap();
    }
    assert!(events.try_next().is_none());
    assert!(lock(&fixture.host.topology).asides.len() <= 1, "those that are gone are forgotten");

    // All that are there end with the client.
    let mut waits = [Task::new(member.connect()), Task::new(member.connect())];
    assert!(waits.each_mut().map(|wait| wait.poll().is_pending()).iter().all(|waits| *waits));
    fixture.host.close();
    assert!(waits.each_mut().map(|wait| wait.poll().is_ready()).iter().all(|is_over| *is_over));

    let fixture = Fixture::new("");
    let member = fixture.host.members().remove(0);
    let mut wait = Task::new(member.connect());
    assert!(wait.poll().is_pending());
    let pending = lock(&fixture.host.runtime().pending).pop().expect("a slot");
    let refused = Failure::new(Phase::Connect, Cause::Refused, "refused");
    let mut establishing = Task::new(pending.run(ready(Err(refused)), || Ok([7; 24])));
    assert!(establishing.poll().is_ready());
    assert!(matches!(wait.poll(), Poll::Ready(Err(_))));
    assert_eq!(fixture.host.view().servers()[0].server_type, ServerType::Standalone);
}

/// An operation that stops to wait for its connection ends what establishes it.
#[test]
fn establishing_a_connection_aside_ends_with_the_wait_for_it() {
    let fixture = Fixture::new("");
    let member = fixture.host.members().remove(0);
    fixture.server.mute.store(true, Ordering::Relaxed);
    let mut wait = Task::new(member.connect());
    assert!(wait.poll().is_pending());
    assert!(fixture.establish());
    assert_eq!(fixture.server.open.load(Ordering::Relaxed), 1);
    drop(wait);
    fixture.establish_woken();
    assert_eq!(fixture.server.open.load(Ordering::Relaxed), 0);
    fixture.host.close();
    assert_eq!(*lock(&fixture.host.runtime().alarm), None);
}

/// A client behind a load balancer, whose servers are of one service.
pub(super) fn balanced(login: &str, options: &str) -> (Arc<Host<Puppet>>, Arc<Behaviour>) {
    let uri = format!("mongodb://{login}a/?loadBalanced=true{options}");
    let options = Options::builder().uri(&uri).unwrap().allow_plain_without_tls(true);
    let host = Host::new(Arc::new(options.build().unwrap()), 1, Puppet::default());
    host.ring();
    let server = Arc::<Behaviour>::default();
    *lock(&server.service) = Some(ObjectId::from_bytes([3; 12]));
    (host, server)
}

/// Lets the tasks that establish connections come to their end.
pub(super) fn establish(host: &Host<Puppet>, server: &Arc<Behaviour>) {
    for pending in std::mem::take(&mut *lock(&host.runtime().pending)) {
        let wire = connect(Arc::clone(server), Arc::clone(&host.runtime().now));
        let mut task = Task::new(pending.run(wire, || Ok([7; 24])));
        while task.poll().is_pending() {
            assert!(task.was_woken(), "the server has answered");
        }
    }
}

/// Load Balancer Support, "Connection Pinning": the error of a time-out says what connections are
/// pinned to.
#[test]
fn a_loan_that_is_pinned_is_counted_as_what_it_is_pinned_to() {
    let (host, server) = balanced("", "&maxPoolSize=1&waitQueueTimeoutMS=100");
    let pool = host.members()[0].clone();
    let mut first = Task::new(pool.check_out());
    assert!(first.poll().is_pending());
    establish(&host, &server);
    let Poll::Ready(Ok(checked_out)) = first.poll() else { panic!("no connection") };
    for (purpose, told) in
        [(Purpose::Cursor, "cursors: 1"), (Purpose::Transaction, "transactions: 1")]
    {
        checked_out.pin(purpose);
        let mut next = Task::new(pool.check_out());
        assert!(next.poll().is_pending());
        pass(&host, Duration::from_millis(100));
        let Poll::Ready(Err(error)) = next.poll() else { panic!("it still waits") };
        assert!(error.to_string().contains(told), "{error}");
        assert!(error.to_string().contains("other operations: 0"), "{error}");
    }
}

/// Load Balancer Support, "Errors": one after the first hello clears the connections to its
/// service.
#[test]
fn a_login_that_fails_behind_a_load_balancer_clears_the_service_that_was_greeted() {
    let (host, server) = balanced("user:password@", "&authMechanism=PLAIN");
    let pool = host.members()[0].clone();
    let mut first = Task::new(pool.check_out());
    assert!(first.poll().is_pending());
    establish(&host, &server);
    let Poll::Ready(Ok(checked_out)) = first.poll() else { panic!("no connection") };
    *lock(&server.reply) = Some(rawdoc! { "ok": 0, "code": 91, "errmsg": "shutting down" });
    let mut second = Task::new(pool.check_out());
    assert!(second.poll().is_pending());
    establish(&host, &server);
    assert!(matches!(second.poll(), Poll::Ready(Err(_))));
    assert_eq!(server.open.load(Ordering::Relaxed), 1);
    drop(checked_out);
    assert_eq!(server.open.load(Ordering::Relaxed), 0, "it is of an older generation");
}
