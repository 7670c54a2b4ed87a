//! Events of commands: each start is followed by an end, whatever comes between.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use bson::{RawDocumentBuf, rawdoc};

use super::fixture::{Fixture, Task};
use super::forks::in_child;
use super::in_use::{balanced, establish};
use crate::observe::subscription::{EVENT_BYTES_LIMIT, Events};
use sdam_core::command::{CommandEvent, MonitoredCommand};
use sdam_core::failure::{Cause, Failure};
use sdam_core::operation::OperationError;
use sdam_core::topology::{EventKind, Topics};
use sdam_core::wire::ReplyDocument;

fn read(events: &mut Events) -> Vec<(Arc<MonitoredCommand>, CommandEvent)> {
    let kinds = std::iter::from_fn(|| events.try_next()).map(|event| event.kind);
    kinds
        .map(|kind| match kind {
            EventKind::Command { command, event, .. } => (command, event),
            other => panic!("{other:?} is of another topic"),
        })
        .collect()
}

/// Returns the one end that follows the one beginning.
fn end(events: &mut Events) -> CommandEvent {
    let [(_, CommandEvent::CommandStarted { .. }), (_, end)] = &*read(events) else {
        panic!("not one beginning and one end")
    };
    end.clone()
}

fn failure(event: &CommandEvent) -> &Failure {
    match event {
        CommandEvent::CommandFailed { failure, .. } => match &**failure {
            OperationError::Stream(failure) => failure,
            error => panic!("{error}"),
        },
        other => panic!("{other:?} is no failure"),
    }
}

/// A client whose pool has a connection.
fn fixture() -> (Fixture, Events) {
    let fixture = Fixture::new("");
    fixture.run(fixture.ping(None)).unwrap();
    let events = fixture.host.subscribe_to(Topics::COMMANDS);
    (fixture, events)
}

/// Command Logging and Monitoring, "Events API": every field.
#[test]
fn events_tell_the_command_as_sent_its_reply_and_over_which_connection() {
    let (host, server) = balanced("", "");
    let service = *super::lock(&server.service);
    let mut events = host.subscribe_to(Topics::COMMANDS);
    let pool = host.members()[0].clone();
    let mut check_out = Task::new(pool.check_out());
    assert!(check_out.poll().is_pending());
    establish(&host, &server);
    let Poll::Ready(Ok(mut checked_out)) = check_out.poll() else { panic!("no connection") };
    let (insert, document) = (rawdoc! { "insert": "c" }, rawdoc! { "a": 1 });
    let documents = [&*document];
    let sequences = [("documents", &documents[..])];
    let mut command = Task::new(checked_out.command_with_sequences("db", &insert, &sequences));
    assert!(matches!(command.poll(), Poll::Ready(Ok(_))));
    drop(command);
    let [(command, started), (same, succeeded)] = &*read(&mut events) else { panic!("not two") };
    assert!(Arc::ptr_eq(command, same));
    assert_eq!((&*command.command_name, &*command.database_name), ("insert", "db"));
    assert_eq!(command.driver_connection_id, checked_out.connection_id());
    assert_eq!((command.server_connection_id, command.service_id), (Some(7), service));
    assert!(service.is_some() && command.operation_id == 1);
    let as_sent = rawdoc! { "insert": "c", "$db": "db", "documents": [{ "a": 1 }] };
    assert_eq!(*started, CommandEvent::CommandStarted { command: as_sent });
    let (duration, reply) = (Duration::ZERO, ReplyDocument::from(rawdoc! { "ok": 1 }));
    assert_eq!(*succeeded, CommandEvent::CommandSucceeded { duration, reply });
}

#[test]
fn numbers_of_requests_are_the_clients_and_those_of_operations_each_check_outs() {
    let (fixture, mut events) = fixture();
    let mut checked_outs: Vec<_> =
        (0..2).map(|_| fixture.run(fixture.pool().check_out()).unwrap()).collect();
    for _ in 0..2 {
        for checked_out in &mut checked_outs {
            fixture.run(checked_out.command("admin", &rawdoc! { "ping": 1 })).unwrap();
        }
    }
    let commands = read(&mut events);
    let numbers: Vec<(i64, i64)> =
        commands.iter().map(|(command, _)| (command.request_id, command.operation_id)).collect();
    // The first ping came before the subscription.
    let expected = [(2, 1), (2, 1), (3, 2), (3, 2), (4, 1), (4, 1), (5, 2), (5, 2)];
    assert_eq!(numbers, expected);
}

/// Command Logging and Monitoring, "driverConnectionId".
#[test]
fn a_connection_aside_has_a_number_that_no_other_to_its_server_has() {
    let (fixture, mut events) = fixture();
    let member = fixture.pool();
    let mut kept = Vec::new();
    for connects in [false, true, false, true] {
        let mut checked_out = match connects {
            false => fixture.run(member.check_out()).unwrap(),
            true => fixture.run(member.connect()).unwrap(),
        };
        fixture.run(checked_out.command("admin", &rawdoc! { "ping": 1 })).unwrap();
        kept.push(checked_out);
    }
    let commands = read(&mut events);
    let mut numbers: Vec<_> =
        commands.iter().map(|(command, _)| command.driver_connection_id).collect();
    numbers.dedup();
    numbers.sort();
    numbers.dedup();
    assert_eq!(numbers.len(), 4, "{numbers:?}");
}

#[test]
fn an_error_of_the_server_is_a_failure_and_errors_of_writes_are_not() {
    let (fixture, mut events) = fixture();
    *super::lock(&fixture.server.reply) = Some(rawdoc! { "ok": 0, "code": 13, "errmsg": "no" });
    fixture.run(fixture.ping(None)).unwrap_err();
    let CommandEvent::CommandFailed { failure, .. } = end(&mut events) else {
        panic!("no failure")
    };
    assert_eq!(failure.to_string(), "no (code 13)");
    let errors = rawdoc! {
        "ok": 1,
        "writeErrors": [{ "index": 0, "code": 11000 }],
        "writeConcernError": { "code": 64, "errmsg": "waiting" },
    };
    *super::lock(&fixture.server.reply) = Some(errors.clone());
    fixture.run(fixture.ping(None)).unwrap();
    let CommandEvent::CommandSucceeded { reply, .. } = end(&mut events) else {
        panic!("a failure")
    };
    assert_eq!(*reply, *errors);
}

/// Command Logging and Monitoring, "Error Handling".
#[test]
fn a_stream_that_fails_before_or_after_the_command_was_sent_is_a_failure() {
    let (fixture, mut events) = fixture();
    fixture.server.resets.store(true, Ordering::Relaxed);
    fixture.run(fixture.ping(None)).unwrap_err();
    assert_eq!(failure(&end(&mut events)).cause, Cause::Closed);

    let (fixture, mut events) = self::fixture();
    fixture.server.mute.store(true, Ordering::Relaxed);
    let mut task = Task::new(fixture.ping(Some(fixture.now() + Duration::from_millis(300))));
    assert!(task.poll().is_pending());
    fixture.pass(Duration::from_millis(300));
    assert!(matches!(task.poll(), Poll::Ready(Err(_))));
    let end = end(&mut events);
    assert_eq!(failure(&end).cause, Cause::Timeout);
    let CommandEvent::CommandFailed { duration, .. } = end else { unreachable!() };
    assert_eq!(duration, Duration::from_millis(300));
}

#[test]
fn a_command_that_is_refused_before_it_is_sent_has_no_events() {
    let (fixture, mut events) = fixture();
    let mut checked_out = fixture.run(fixture.pool().check_out()).unwrap();
    fixture.run(checked_out.command("", &rawdoc! { "ping": 1 })).unwrap_err();
    fixture.run(checked_out.command("db", &rawdoc! {})).unwrap_err();
    checked_out.set_deadline(Some(fixture.now()));
    fixture.run(checked_out.command("db", &rawdoc! { "ping": 1 })).unwrap_err();
    assert!(read(&mut events).is_empty());
}

/// Command Logging and Monitoring, "Guarantees": at every point where the exchange waits.
#[test]
fn a_command_whose_future_is_dropped_has_failed() {
    let mut polls = 0;
    loop {
        polls += 1;
        let (fixture, mut events) = fixture();
        fixture.server.mute.store(true, Ordering::Relaxed);
        let mut task = Task::new(fixture.ping(None));
        let mut ended = false;
        for _ in 0..polls {
            ended = ended || task.poll().is_ready();
            let mute = fixture.server.mute.load(Ordering::Relaxed);
            fixture.server.mute.store(!mute, Ordering::Relaxed);
        }
        drop(task);
        let end = end(&mut events);
        if ended {
            assert!(matches!(end, CommandEvent::CommandSucceeded { .. }));
            break;
        }
        assert_eq!(failure(&end).cause, Cause::Canceled, "after {polls} polls");
    }
    assert!(polls > 1, "it has never waited");
}

#[test]
fn what_still_runs_when_the_client_is_closed_has_failed_before_the_last_event() {
    let (fixture, commands) = fixture();
    drop(commands);
    let mut events = fixture.host.subscribe_to(Topics::ALL);
    let mut checked_out = fixture.run(fixture.pool().check_out()).unwrap();
    fixture.server.mute.store(true, Ordering::Relaxed);
    let ping = rawdoc! { "ping": 1 };
    let mut task = Task::new(checked_out.command("admin", &ping));
    assert!(task.poll().is_pending());
    fixture.host.close();
    fixture.server.mute.store(false, Ordering::Relaxed);
    assert!(matches!(task.poll(), Poll::Ready(Ok(_))), "what is in use can be used to the end");
    drop(task);
    fixture.run(checked_out.command("admin", &ping)).unwrap();
    let names: Vec<&str> =
        std::iter::from_fn(|| events.try_next()).map(|event| event.kind.name()).collect();
    let of_commands = names.iter().filter(|name| name.starts_with("command"));
    assert_eq!(of_commands.copied().collect::<Vec<_>>(), ["commandStarted", "commandFailed"]);
    assert_eq!(names.last(), Some(&"topologyClosed"));
}

/// Command Logging and Monitoring, "Unacknowledged/Acknowledged Writes".
#[test]
fn an_unacknowledged_write_has_succeeded_once_it_was_sent() {
    let (fixture, mut events) = fixture();
    let mut checked_out = fixture.run(fixture.pool().check_out()).unwrap();
    let insert = rawdoc! { "insert": "c", "writeConcern": { "w": 0 } };
    fixture.run(checked_out.command_unacknowledged("db", &insert)).unwrap();
    let CommandEvent::CommandSucceeded { reply, .. } = end(&mut events) else {
        panic!("a failure")
    };
    assert_eq!(*reply, *rawdoc! { "ok": 1 });
}

#[test]
fn of_several_replies_to_one_command_the_first_is_its_end() {
    let (fixture, mut events) = fixture();
    let mut checked_out = fixture.run(fixture.pool().check_out()).unwrap();
    let command = rawdoc! { "getMore": 1_i64 };
    let mut replies = fixture.run(checked_out.command_exhaust("db", &command)).unwrap();
    while let Some(reply) = fixture.run(replies.next()) {
        reply.unwrap();
    }
    assert!(matches!(end(&mut events), CommandEvent::CommandSucceeded { .. }));
    let replies = fixture.run(checked_out.command_exhaust("db", &command)).unwrap();
    drop(replies);
    assert_eq!(failure(&end(&mut events)).cause, Cause::Canceled);
}

#[test]
fn a_command_is_told_as_it_is_though_it_is_sent_compressed() {
    let fixture = Fixture::new("&compressors=snappy");
    fixture.server.compresses.store(true, Ordering::Relaxed);
    let mut events = fixture.host.subscribe_to(Topics::COMMANDS);
    fixture.run(fixture.ping(None)).unwrap();
    let [(_, started), _] = &*read(&mut events) else { panic!("not two") };
    let command = rawdoc! { "ping": 1, "$db": "admin" };
    assert_eq!(*started, CommandEvent::CommandStarted { command });
    assert_eq!(fixture.server.compressed.load(Ordering::Relaxed), 1);
}

/// A subscriber that has not received a start receives no end.
#[test]
fn who_subscribes_while_a_command_runs_hears_nothing_of_it() {
    let (fixture, events) = fixture();
    drop(events);
    fixture.server.mute.store(true, Ordering::Relaxed);
    let mut task = Task::new(fixture.ping(None));
    assert!(task.poll().is_pending());
    let mut events = fixture.host.subscribe_to(Topics::COMMANDS);
    fixture.server.mute.store(false, Ordering::Relaxed);
    assert!(matches!(task.poll(), Poll::Ready(Ok(()))));
    assert!(read(&mut events).is_empty());
}

#[test]
fn a_command_that_is_given_up_in_a_fork_still_runs_in_the_parent() {
    let (fixture, mut events) = fixture();
    fixture.server.mute.store(true, Ordering::Relaxed);
    let mut task = Task::new(fixture.ping(None));
    assert!(task.poll().is_pending());
    assert_eq!(read(&mut events).len(), 1);
    in_child(|| drop(task));
    assert!(read(&mut events).is_empty());
}

/// A lock of the parent may be held for ever in the child, which publishes nothing.
#[test]
fn a_command_whose_reply_comes_in_a_fork_still_runs_in_the_parent() {
    let (fixture, mut events) = fixture();
    let mut checked_out = fixture.run(fixture.pool().check_out()).unwrap();
    fixture.server.mute.store(true, Ordering::Relaxed);
    let ping = rawdoc! { "ping": 1 };
    let mut task = Task::new(checked_out.command("admin", &ping));
    assert!(task.poll().is_pending());
    assert_eq!(read(&mut events).len(), 1);
    fixture.server.mute.store(false, Ordering::Relaxed);
    let in_child = in_child(|| task.poll());
    assert!(read(&mut events).is_empty(), "{in_child:?}");
}

/// A subscriber that reads nothing costs no more memory than that.
#[test]
fn unread_documents_are_bounded_in_bytes_and_the_oldest_events_make_room() {
    let (fixture, mut events) = fixture();
    let mut checked_out = fixture.run(fixture.pool().check_out()).unwrap();
    let mut large = RawDocumentBuf::new();
    large.append(bson::cstr!("insert"), "c");
    large.append(bson::cstr!("filler"), "x".repeat(8 << 20));
    let fit = EVENT_BYTES_LIMIT / large.as_bytes().len();
    for _ in 0..fit {
        fixture.run(checked_out.command("db", &large)).unwrap();
    }
    assert_eq!(events.dropped(), 0);
    fixture.run(checked_out.command("db", &large)).unwrap();
    assert!((1..=2).contains(&events.dropped()), "{}", events.dropped());
    let held = |(_, event): &(_, CommandEvent)| event.documents_len();
    let held: usize = read(&mut events).iter().map(held).sum();
    assert!(held <= EVENT_BYTES_LIMIT, "{held}");
    fixture.run(checked_out.command("db", &large)).unwrap();
    assert_eq!(read(&mut events).len(), 2, "what was read makes room, too");
}
