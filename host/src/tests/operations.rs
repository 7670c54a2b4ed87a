//! Operations: their sessions, the attempts that are made, and the time they have.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use bson::{RawDocument, RawDocumentBuf, Timestamp, rawdoc};
use sdam_core::command::CommandEvent;
use sdam_core::failure::{Cause, Failure, Stage};
use sdam_core::handshake::ConnectionDescription;
use sdam_core::operation::{CommandMessage, InvalidCommand, OperationOptions, Timeout};
use sdam_core::selection::Criteria;
use sdam_core::session::{ClusterTime, SessionOptions};
use sdam_core::topology::{EventKind, Topics};

use super::fixture::{Fixture, Task};
use super::forks::in_child;
use super::{Puppet, host, lock};
use crate::client::Topology;
use crate::client::driver::DriverTopology;
use crate::error::{Error, ErrorKind};
use crate::operations::exchange::Reply;
use crate::operations::pinned::Pinned;
use crate::operations::request::{BuildCommand, BuiltCommand, Request, Target};
use crate::operations::session::{ClientSession, DriverSession, SessionGuard};

/// The commands that the server has received over connections that are established.
fn received(fixture: &Fixture) -> Vec<RawDocumentBuf> {
    let mut commands = lock(&fixture.server.commands);
    let opening = |command: &RawDocumentBuf| command.get("client").unwrap().is_none();
    std::mem::take(&mut *commands).into_iter().filter(opening).collect()
}

/// An insert that is built by a function.
struct Insert<F>(F);

impl<F> BuildCommand<Error> for Insert<F>
where
    F: FnMut(&ConnectionDescription) -> Result<BuiltCommand<'static>, Error> + Send,
{
    fn name(&self) -> Cow<'static, str> {
        "insert".into()
    }

    fn options(&self) -> OperationOptions {
        OperationOptions::write()
    }

    fn build(&mut self, connection: &ConnectionDescription) -> Result<BuiltCommand<'_>, Error> {
        self.0(connection)
    }
}

/// The session of an operation that was given none.
fn implicit(fixture: &Fixture) -> SessionGuard<Puppet> {
    ClientSession::implicit(&fixture.host).try_acquire().unwrap()
}

/// A session of the application's, for an operation.
fn start(fixture: &Fixture, options: SessionOptions) -> SessionGuard<Puppet> {
    ClientSession::start(&fixture.host, &Default::default(), options)
        .unwrap()
        .try_acquire()
        .unwrap()
}

/// The name of the servers' session.
fn lsid(session: &SessionGuard<Puppet>) -> RawDocumentBuf {
    session.server_session().unwrap().id().document().to_owned()
}

async fn operate(
    fixture: &Fixture,
    options: &OperationOptions,
    session: Option<&mut SessionGuard<Puppet>>,
    timeout: Timeout,
) -> Result<Reply, Error> {
    let command = rawdoc! { "insert": "things" };
    let message = CommandMessage::new("db", &command);
    let target = Target::Select(Arc::new(Criteria::write()));
    let request = Request::new(message, options, target).with_session(session);
    fixture.host.operate(request.with_timeout(timeout)).await
}

pub(super) fn run(fixture: &Fixture, options: &OperationOptions) -> Result<Reply, Error> {
    let mut session = implicit(fixture);
    fixture.run(operate(fixture, options, Some(&mut session), Timeout::Unset))
}

pub(super) fn insert_one() -> OperationOptions {
    OperationOptions::write().with_retryable(true)
}

fn answers(fixture: &Fixture, replies: impl IntoIterator<Item = Option<RawDocumentBuf>>) {
    lock(&fixture.server.replies).extend(replies);
}

fn refusal(code: i32, labels: &[&str]) -> Option<RawDocumentBuf> {
    let labels: bson::RawArrayBuf = labels.iter().copied().collect();
    Some(rawdoc! { "ok": 0, "code": code, "errmsg": "no", "errorLabels": labels })
}

/// Driver Sessions: implicit sessions are used again, one operation at a time ("An implicit session
/// MUST be returned to the pool immediately following the completion of an operation").
#[test]
fn implicit_sessions_are_taken_when_they_are_sent_and_used_again() {
    let fixture = Fixture::with_sessions("");
    run(&fixture, &insert_one()).unwrap();
    run(&fixture, &insert_one()).unwrap();
    let [first, second] = &received(&fixture)[..] else { panic!("two commands") };
    assert_eq!(first.get_document("lsid").unwrap(), second.get_document("lsid").unwrap());
    assert_eq!(first.get_i64("txnNumber").unwrap(), 1);
    assert_eq!(second.get_i64("txnNumber").unwrap(), 2, "the number goes on");
    let unacknowledged = insert_one().with_acknowledged(false);
    let reply = run(&fixture, &unacknowledged).unwrap();
    assert_eq!(&*reply, &*rawdoc! { "ok": 1 });
    let [command] = &received(&fixture)[..] else { panic!("one command") };
    assert_eq!(command, &rawdoc! { "insert": "things", "$db": "db" });
}

/// Bulk Write: the limits of the server decide about a command, and every attempt sends the same.
#[test]
fn a_command_that_is_written_for_its_server_is_sent_again_as_it_was() {
    let fixture = Fixture::with_sessions("");
    answers(&fixture, [refusal(6, &["RetryableWriteError"])]);
    let mut limits = Vec::new();
    let empty = RawDocument::from_bytes(b"\x05\0\0\0\0").unwrap();
    let mut insert = Insert(|connection: &ConnectionDescription| {
        limits.push(connection.max_write_batch_size);
        let built = BuiltCommand::new("db".into(), rawdoc! { "insert": "things" }, insert_one());
        Ok(built.with_sequences(vec![("documents", vec![empty])]))
    });
    let target = || Target::Select(Arc::new(Criteria::write()));
    let mut session = implicit(&fixture);
    let request = Request::building(&mut insert, target()).with_session(Some(&mut session));
    fixture.run(fixture.host.execute(request)).unwrap();
    assert_eq!(limits.len(), 1);
    let [first, second] = &received(&fixture)[..] else { panic!("two commands") };
    assert_eq!(first, second, "with its number");
    assert_eq!(first.get_i64("txnNumber").unwrap(), 1);

    let mut refusing = Insert(|_: &ConnectionDescription| Err(InvalidCommand::Empty.into()));
    let error = fixture.run(fixture.host.execute(Request::building(&mut refusing, target())));
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Invalid);
    assert!(received(&fixture).is_empty());
    assert_eq!(fixture.pool().counts().available, 1, "the connection is as good as before");
}

/// "the driver MUST raise an error" in the case of an explicit session, and ignore an implicit one.
#[test]
fn servers_without_sessions_are_sent_none() {
    let fixture = Fixture::mongos();
    run(&fixture, &insert_one()).unwrap();
    let [command] = &received(&fixture)[..] else { panic!("one command") };
    assert_eq!(command, &rawdoc! { "insert": "things", "$db": "db" });
    let mut session = start(&fixture, SessionOptions::default());
    let options = OperationOptions::write();
    let refused = operate(&fixture, &options, Some(&mut session), Timeout::Unset);
    let error = fixture.run(refused).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let text = "the command was not sent: the server does not support sessions; 0 ms";
    assert!(error.to_string().starts_with(text), "{error}");
    assert!(received(&fixture).is_empty());
    run(&fixture, &options).unwrap();
    assert_eq!(fixture.pool().counts().available, 1, "the connection is as good as before");
}

/// A thread that is not there may hold the lock of the pool of sessions.
#[test]
fn a_process_that_was_forked_off_takes_no_session() {
    let fixture = Fixture::with_sessions("");
    let mut checked_out = fixture.run(fixture.pool().check_out()).unwrap();
    let mut session = implicit(&fixture);
    let (command, options) = (rawdoc! { "insert": "things" }, insert_one());
    let message = CommandMessage::new("db", &command);
    let request = Request::new(message, &options, Target::Connection(&mut checked_out));
    let mut task = Task::new(fixture.host.operate(request.with_session(Some(&mut session))));
    let Poll::Ready(Err(error)) = in_child(|| task.poll()) else { panic!("an answer") };
    assert_eq!(error.kind(), ErrorKind::Forked);
    drop(task);
    assert!(session.server_session().is_none());
    assert!(received(&fixture).is_empty());
}

/// The log and events call an operation by one number, however often it is sent, and the next one
/// by another, even over the same connection.
#[test]
fn an_operation_that_is_sent_again_keeps_its_number() {
    let fixture = Fixture::with_sessions("");
    let mut events = fixture.host.subscribe_to(Topics::COMMANDS);
    let overloaded = refusal(462, &["SystemOverloadedError", "RetryableError"]);
    answers(&fixture, [overloaded]);
    let (insert, command) = (insert_one(), rawdoc! { "insert": "things" });
    let mut task = Task::new(operate(&fixture, &insert, None, Timeout::Unset));
    while task.poll().is_pending() {
        if !fixture.establish() && !task.was_woken() {
            fixture.pass(Duration::from_millis(200));
        }
    }
    drop(task);
    let mut checked_out = fixture.run(fixture.pool().check_out()).unwrap();
    for _ in 0..2 {
        let message = CommandMessage::new("db", &command);
        let request = Request::new(message, &insert, Target::Connection(&mut checked_out));
        fixture.run(fixture.host.operate(request)).unwrap();
    }
    let numbers: Vec<i64> = std::iter::from_fn(|| events.try_next())
        .filter_map(|event| match event.kind {
            EventKind::Command { command, event: CommandEvent::CommandStarted { .. }, .. } => {
                Some(command.operation_id)
            }
            _ => None,
        })
        .collect();
    assert_eq!(numbers, [1, 1, 2, 3]);
}

/// Causal Consistency: the times of replies, errors included, travel with what follows.
#[test]
fn an_explicit_session_hears_the_times_of_its_replies() {
    let fixture = Fixture::with_sessions("");
    let at = |time| Timestamp { time, increment: 1 };
    let mut session = start(&fixture, SessionOptions::default());
    let lsid = lsid(&session);
    let own = rawdoc! { "clusterTime": at(9) };
    session.advance_cluster_time(ClusterTime::parse(&own).unwrap());
    let refused = rawdoc! { "ok": 0, "code": 11, "errmsg": "no", "operationTime": at(5) };
    answers(&fixture, [Some(refused)]);
    for _ in 0..2 {
        let read = OperationOptions::read();
        let _ = fixture.run(operate(&fixture, &read, Some(&mut session), Timeout::Unset));
    }
    let [first, second] = &received(&fixture)[..] else { panic!("two commands") };
    let expected = rawdoc! {
        "insert": "things", "$db": "db", "lsid": lsid.clone(), "$clusterTime": own.clone(),
    };
    assert_eq!(first, &expected);
    let expected = rawdoc! {
        "insert": "things", "$db": "db", "lsid": lsid,
        "readConcern": { "afterClusterTime": at(5) }, "$clusterTime": own,
    };
    assert_eq!(second, &expected);
    assert_eq!(session.operation_time(), Some(at(5)));
    let _ = session.end();
    let read = OperationOptions::read();
    let ended = operate(&fixture, &read, Some(&mut session), Timeout::Unset);
    assert_eq!(fixture.run(ended).unwrap_err().kind(), ErrorKind::Invalid);
    let other = Fixture::with_sessions("");
    let mut foreign = start(&other, SessionOptions::default());
    let foreign = operate(&fixture, &read, Some(&mut foreign), Timeout::Unset);
    assert_eq!(fixture.run(foreign).unwrap_err().kind(), ErrorKind::Invalid);
}

/// Causal Consistency, "operationTime": replies may come in another order than the times in them,
/// as those of a secondary that lags behind do.
#[test]
fn the_time_of_a_session_does_not_go_back() {
    let fixture = Fixture::with_sessions("");
    let at = |time| Timestamp { time, increment: 1 };
    let mut session = start(&fixture, SessionOptions::default());
    answers(&fixture, [5, 4].map(|time| Some(rawdoc! { "ok": 1, "operationTime": at(time) })));
    let read = OperationOptions::read();
    for _ in 0..3 {
        fixture.run(operate(&fixture, &read, Some(&mut session), Timeout::Unset)).unwrap();
    }
    let sent = received(&fixture);
    let after = |it: &RawDocumentBuf| {
        it.get_document("readConcern").ok()?.get_timestamp("afterClusterTime").ok()
    };
    assert_eq!(sent.iter().map(after).collect::<Vec<_>>(), [None, Some(at(5)), Some(at(5))]);
}

/// "the driver MUST save the operationTime" (Causal Consistency), and the cluster time, also of a
/// reply that says that its write concern was not met.
#[test]
fn a_session_hears_the_times_of_a_reply_whose_write_concern_failed() {
    let fixture = Fixture::with_sessions("");
    let at = |time| Timestamp { time, increment: 1 };
    let mut session = start(&fixture, SessionOptions::default());
    let time = rawdoc! { "clusterTime": at(6) };
    let late = rawdoc! {
        "ok": 1,
        "writeConcernError": { "code": 64, "errmsg": "waiting for replication timed out" },
        "operationTime": at(5),
        "$clusterTime": time.clone(),
    };
    answers(&fixture, [Some(late)]);
    let write = OperationOptions::write();
    let reply = fixture.run(operate(&fixture, &write, Some(&mut session), Timeout::Unset)).unwrap();
    assert_eq!(reply.write_concern_error().and_then(|error| error.code), Some(64));
    assert_eq!(session.operation_time(), Some(at(5)));
    assert_eq!(session.cluster_time().map(ClusterTime::document), Some(&*time));
}

/// Driver Sessions, "Gossipping the cluster time": all replies of an operation count, those that
/// are errors among them, for whatever the client sends next.
#[test]
fn the_cluster_time_of_an_error_is_passed_on() {
    let fixture = Fixture::with_sessions("");
    let time = rawdoc! { "clusterTime": Timestamp { time: 7, increment: 1 } };
    let refused = rawdoc! { "ok": 0, "code": 11, "errmsg": "no", "$clusterTime": time.clone() };
    answers(&fixture, [Some(refused)]);
    run(&fixture, &insert_one()).unwrap_err();
    run(&fixture, &insert_one()).unwrap();
    let [_, second] = &received(&fixture)[..] else { panic!("two commands") };
    assert_eq!(second.get_document("$clusterTime").unwrap(), &*time);
}

/// Driver Sessions, "Server Session Pool": what was used last is what counts, and reads use a
/// session as writes do. Servers forget one after half an hour.
#[test]
fn a_session_that_reads_use_now_and_then_does_not_become_stale() {
    let fixture = Fixture::with_sessions("");
    for _ in 0..4 {
        run(&fixture, &OperationOptions::read()).unwrap();
        // The clock goes on, and nothing happens meanwhile.
        let mut now = lock(&fixture.host.runtime().now);
        *now = *now + Duration::from_secs(20 * 60);
    }
    let sent = received(&fixture);
    let first = sent[0].get_document("lsid").unwrap();
    assert!(sent.iter().all(|command| command.get_document("lsid").unwrap() == first), "{sent:?}");
}

/// Driver Sessions, "Server Session Pool": "If it has less than one minute left before becoming
/// stale discard it", whether it lies in the pool or comes back to it.
#[test]
fn a_session_with_less_than_a_minute_left_is_used_no_more() {
    let fixture = Fixture::with_sessions("");
    let pass = |seconds| {
        let mut now = lock(&fixture.host.runtime().now);
        *now = *now + Duration::from_secs(seconds);
    };
    let mut names = Vec::new();
    for seconds in [29 * 60, 29 * 60 + 1, 0] {
        run(&fixture, &insert_one()).unwrap();
        let [command] = &received(&fixture)[..] else { panic!("one command") };
        names.push(command.get_document("lsid").unwrap().to_owned());
        pass(seconds);
    }
    assert_eq!(names[0], names[1], "it has a minute");
    assert_ne!(names[1], names[2], "a second too late");
}

/// Snapshot Reads, "readConcern": every command of the session declares it, but for those that go
/// on with a cursor, which take none.
#[test]
fn what_goes_on_with_a_cursor_declares_no_snapshot() {
    let fixture = Fixture::with_sessions("");
    let snapshot = SessionOptions::default().with_snapshot(true);
    let mut session = start(&fixture, snapshot);
    for (command, options, declares) in [
        (rawdoc! { "find": "things" }, OperationOptions::read(), true),
        (
            rawdoc! { "getMore": 7_i64, "collection": "things" },
            OperationOptions::continuing(),
            false,
        ),
        (rawdoc! { "killCursors": "things" }, OperationOptions::continuing(), false),
        (rawdoc! { "ping": 1 }, OperationOptions::command(), true),
    ] {
        let target = Target::Select(Arc::new(Criteria::write()));
        let request = Request::new(CommandMessage::new("db", &command), &options, target);
        fixture.run(fixture.host.operate(request.with_session(Some(&mut session)))).unwrap();
        let [command] = &received(&fixture)[..] else { panic!("one command") };
        assert_eq!(command.get("readConcern").unwrap().is_some(), declares, "{command:?}");
        assert!(command.get("lsid").unwrap().is_some());
    }
}

/// Find, getMore and killCursors: "the driver MUST send [getMore] to the same server", for which it
/// waits as for any other, if nothing is known of it now.
#[test]
fn a_command_for_one_member_waits_until_that_is_known() {
    let host = host("mongodb://a/?directConnection=true", false);
    host.ring();
    let (address, body) = ("a:27017".parse().unwrap(), rawdoc! { "getMore": 7_i64 });
    let options = OperationOptions::continuing();
    let target = Target::Member(&address, Arc::new(Criteria::write()));
    let request = Request::new(CommandMessage::new("db", &body), &options, target);
    let mut task = Task::new(host.operate(request));
    assert!(task.poll().is_pending());
    let fixture = Fixture::begin(Arc::clone(&host));
    assert!(task.was_woken());
    for _ in 0..10 {
        if let Poll::Ready(answered) = task.poll() {
            assert_eq!(&*answered.unwrap(), &*rawdoc! { "ok": 1 });
            return;
        }
        fixture.establish();
    }
    panic!("no answer");
}

/// CSOT, "Backwards Breaking Considerations": an operation that has a limit of its own, or none,
/// has not that of sockets.
#[test]
fn an_operation_whose_limit_is_lifted_has_not_that_of_sockets() {
    for (timeout, ends) in [(Timeout::Unset, true), (Timeout::Infinite, false)] {
        let fixture = Fixture::new("&socketTimeoutMS=300");
        fixture.run(fixture.ping(None)).unwrap();
        fixture.server.mute.store(true, Ordering::Relaxed);
        let options = OperationOptions::command();
        let mut task = Task::new(operate(&fixture, &options, None, timeout));
        assert!(task.poll().is_pending());
        fixture.pass(Duration::from_millis(300));
        assert_eq!(task.poll().is_ready(), ends, "{timeout:?}");
    }
}

/// Retryable Writes: "drivers MUST resend the command with the same transaction ID"; Driver
/// Sessions: a network error makes the session dirty.
#[test]
fn a_write_whose_connection_breaks_is_sent_again_with_its_number() {
    let fixture = Fixture::with_sessions("");
    answers(&fixture, [None]);
    let mut session = start(&fixture, SessionOptions::default());
    let options = insert_one();
    let mut task = Task::new(operate(&fixture, &options, Some(&mut session), Timeout::Unset));
    while task.poll().is_pending() {
        if !fixture.establish() && !task.was_woken() {
            // The monitor has to find the server again.
            fixture.pass(Duration::from_millis(500));
            fixture.check_again();
        }
    }
    drop(task);
    let [first, second] = &received(&fixture)[..] else { panic!("two commands") };
    assert_eq!(first, second);
    assert!(session.server_session().unwrap().is_dirty());
    let lsid = lsid(&session);
    drop(session);
    run(&fixture, &insert_one()).unwrap();
    let [command] = &received(&fixture)[..] else { panic!("one command") };
    assert_ne!(command.get_document("lsid").unwrap(), &*lsid, "it is not used again");
}

/// Driver Sessions, "Server Session Pool": a session is dirty if "a network error is encountered
/// when executing any command" with it; nothing is, where time is up before anything was sent.
#[test]
fn a_session_whose_command_was_not_sent_in_time_is_not_dirty() {
    let fixture = Fixture::with_sessions("");
    run(&fixture, &insert_one()).unwrap();
    received(&fixture);
    let mut session = start(&fixture, SessionOptions::default());
    let host = &fixture.host;
    let timeout = Timeout::At(fixture.now() + Duration::from_millis(500));
    // The process is stopped when the operation has decided to send the command.
    let mut insert = Insert(move |_: &ConnectionDescription| {
        *lock(&host.runtime().stops) = Some(Duration::from_secs(1));
        Ok(BuiltCommand::new("db".into(), rawdoc! { "insert": "things" }, insert_one()))
    });
    let target = Target::Select(Arc::new(Criteria::write()));
    let request = Request::building(&mut insert, target).with_session(Some(&mut session));
    let error = fixture.run(fixture.host.execute(request.with_timeout(timeout))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert!(error.to_string().contains("before the command was sent"), "{error}");
    assert!(received(&fixture).is_empty());
    assert!(!session.server_session().unwrap().is_dirty());
}

/// Driver Sessions: a command that was given up may still be carried out with its session.
#[test]
fn a_session_whose_operation_was_given_up_is_not_used_again() {
    let fixture = Fixture::with_sessions("");
    run(&fixture, &insert_one()).unwrap();
    let options = insert_one();
    fixture.server.mute.store(true, Ordering::Relaxed);
    let mut session = implicit(&fixture);
    let mut task = Task::new(operate(&fixture, &options, Some(&mut session), Timeout::Unset));
    assert!(task.poll().is_pending());
    drop(task);
    fixture.server.mute.store(false, Ordering::Relaxed);
    let lsid = lsid(&session);
    assert!(session.server_session().unwrap().is_dirty());
    drop(session);
    received(&fixture);
    run(&fixture, &insert_one()).unwrap();
    let [command] = &received(&fixture)[..] else { panic!("one command") };
    assert_ne!(command.get_document("lsid").unwrap(), &*lsid);
}

/// Retryable Writes: code 20 "MUST be re-raised with an actionable error message".
#[test]
fn a_deployment_that_takes_no_numbers_says_what_to_do() {
    let fixture = Fixture::with_sessions("");
    let errmsg = "Transaction numbers are only allowed on a replica set member or mongos";
    answers(&fixture, [Some(rawdoc! { "ok": 0, "code": 20, "errmsg": errmsg })]);
    let error = run(&fixture, &insert_one()).unwrap_err();
    assert!(error.to_string().contains("retryWrites=false"), "{error}");
    assert_eq!(error.reply_document().unwrap().get_str("errmsg").unwrap(), errmsg);
}

/// Retryable Writes, "RetryableWriteError Labels": the error of every attempt has the label,
/// that of the last one, too.
#[test]
fn the_error_of_the_last_attempt_is_labelled_as_that_of_the_first() {
    let fixture = Fixture::with_sessions("");
    answers(&fixture, [refusal(6, &["RetryableWriteError"]), None]);
    let error = run(&fixture, &insert_one()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Network, "{error}");
    assert!(error.labels().contains(&"RetryableWriteError"), "{error}");
    assert_eq!(received_count(&fixture), 2);
}

/// A check-out that takes too long is one kind of error, whichever option limits it.
#[test]
fn a_check_out_that_comes_too_late_is_an_error_of_lack_of_time() {
    for (options, timeout) in [("&waitQueueTimeoutMS=100", None), ("", Some(100))] {
        let fixture = Fixture::new(&format!("&maxPoolSize=1{options}"));
        let held = fixture.run(fixture.pool().check_out()).unwrap();
        let by = |millis| Timeout::At(fixture.now() + Duration::from_millis(millis));
        let (timeout, command) = (timeout.map_or(Timeout::Unset, by), OperationOptions::command());
        let mut task = Task::new(operate(&fixture, &command, None, timeout));
        assert!(task.poll().is_pending());
        fixture.pass(Duration::from_millis(100));
        let Poll::Ready(Err(error)) = task.poll() else { panic!("its time is up") };
        assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
        drop(held);
    }
}

/// Client Backpressure: the connection is back in the pool while the operation waits, and closing
/// the client ends the wait.
#[test]
fn overload_is_waited_for_without_a_connection() {
    let fixture = Fixture::with_sessions("maxAdaptiveRetries=1");
    let overloaded = refusal(462, &["SystemOverloadedError", "RetryableError"]);
    let command = OperationOptions::command();
    for closes in [false, true] {
        answers(&fixture, [overloaded.clone()]);
        let mut task = Task::new(operate(&fixture, &command, None, Timeout::Unset));
        while received_count(&fixture) == 0 {
            assert!(task.poll().is_pending());
            fixture.establish();
        }
        assert!(task.poll().is_pending());
        assert_eq!(fixture.pool().counts().in_use, 0);
        assert_eq!(received(&fixture).len(), 1);
        assert!(!task.was_woken());
        if closes {
            fixture.host.close();
            assert!(task.was_woken());
            let Poll::Ready(Err(error)) = task.poll() else { panic!("an answer") };
            assert_eq!(error.code(), Some(462), "the error of the attempt");
        } else {
            fixture.pass(Duration::from_millis(200));
            assert!(task.was_woken());
            assert!(matches!(task.poll(), Poll::Ready(Ok(_))));
            assert_eq!(received(&fixture).len(), 1);
        }
    }
}

/// Server Selection, "serverSelectionTimeoutMS": what an attempt has taken is not taken off the
/// selection of the next one.
#[test]
fn an_attempt_after_a_slow_one_has_all_the_time_of_a_selection() {
    let fixture = Fixture::with_sessions("serverSelectionTimeoutMS=25000");
    *lock(&fixture.server.mute_from) = Some("insert");
    let (options, mut session) = (insert_one(), implicit(&fixture));
    let mut task = Task::new(operate(&fixture, &options, Some(&mut session), Timeout::Unset));
    for _ in 0..5 {
        assert!(task.poll().is_pending());
        fixture.establish();
    }
    assert_eq!(received_count(&fixture), 1);
    // The next heartbeat begins after 10 s, and is given up after another 10 s: the server is lost.
    fixture.pass(Duration::from_secs(20));
    assert!(task.was_woken() && task.poll().is_pending(), "another server is waited for");
    fixture.pass(Duration::from_millis(24_999));
    assert!(task.poll().is_pending());
    fixture.pass(Duration::from_millis(1));
    assert!(matches!(task.poll(), Poll::Ready(Err(_))), "its time is up");
}

/// Client Backpressure: "if `baseBackoffMS` is present on the error and has a positive value", the
/// pauses grow from that.
#[test]
fn the_server_says_from_what_the_pauses_grow() {
    let fixture = Fixture::with_sessions("maxAdaptiveRetries=1");
    let labels = ["SystemOverloadedError", "RetryableError"];
    let mut overloaded = refusal(462, &labels).unwrap();
    overloaded.append(bson::raw::cstr!("baseBackoffMS"), 1);
    answers(&fixture, [Some(overloaded)]);
    let command = OperationOptions::command();
    let mut task = Task::new(operate(&fixture, &command, None, Timeout::Unset));
    while received_count(&fixture) == 0 {
        assert!(task.poll().is_pending());
        fixture.establish();
    }
    // The reply is read, and the pause begins.
    if task.poll().is_pending() {
        fixture.pass(Duration::from_millis(2));
        assert!(task.was_woken(), "twice a millisecond at most");
        assert!(matches!(task.poll(), Poll::Ready(Ok(_))));
    }
    assert_eq!(received_count(&fixture), 2);
}

/// Retryable Writes, "Supported Server Versions": a standalone takes no transaction numbers.
#[test]
fn a_write_to_a_standalone_is_not_sent_again() {
    let fixture = Fixture::new("");
    answers(&fixture, [None]);
    let error = run(&fixture, &insert_one()).unwrap_err();
    assert!(!error.labels().contains(&"RetryableWriteError"), "{error}");
    assert_eq!(received_count(&fixture), 1);
}

fn received_count(fixture: &Fixture) -> usize {
    let commands = lock(&fixture.server.commands);
    commands.iter().filter(|command| command.get("client").unwrap().is_none()).count()
}

/// CSOT, "Command Execution" and "Errors".
#[test]
fn a_time_out_is_told_to_the_server_and_to_the_caller() {
    let fixture = Fixture::with_sessions("");
    let timeout = Timeout::At(fixture.now() + Duration::from_millis(500));
    let command = OperationOptions::command();
    fixture.run(operate(&fixture, &command, None, timeout)).unwrap();
    let [sent] = &received(&fixture)[..] else { panic!("one command") };
    assert_eq!(sent.get_i64("maxTimeMS").unwrap(), 500);
    answers(&fixture, [refusal(50, &[])]);
    let error = fixture.run(operate(&fixture, &command, None, timeout)).unwrap_err();
    assert_eq!((error.kind(), error.code()), (ErrorKind::Timeout, Some(50)));
    answers(&fixture, [refusal(50, &[])]);
    let error = fixture.run(operate(&fixture, &command, None, Timeout::Unset)).unwrap_err();
    assert_eq!((error.kind(), error.code()), (ErrorKind::Timeout, Some(50)), "by maxTimeMS");
    let late = Timeout::At(fixture.now());
    received(&fixture);
    let error = fixture.run(operate(&fixture, &command, None, late)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    assert!(received(&fixture).is_empty());
}

/// Driver Sessions, "endSessions": "MUST be run once when the MongoClient instance is shut down".
#[test]
fn sessions_are_ended_when_the_client_is_closed() {
    let fixture = Fixture::with_sessions("");
    run(&fixture, &insert_one()).unwrap();
    let [command] = &received(&fixture)[..] else { panic!("one command") };
    let lsid = command.get_document("lsid").unwrap().to_owned();
    let client = Topology::from_host(Arc::clone(&fixture.host));
    fixture.run(client.end_sessions());
    let [command] = &received(&fixture)[..] else { panic!("one command") };
    let ended = command.get_array("endSessions").unwrap();
    assert_eq!(ended.get_document(0).unwrap(), &*lsid);
    assert!(command.get("lsid").unwrap().is_none(), "it is no operation of a session");
    fixture.run(client.end_sessions());
    assert!(received(&fixture).is_empty(), "once");
    assert_eq!(fixture.server.open.load(Ordering::Relaxed), 1);
}

/// A client that has run an operation in a session, whose name is returned with it.
fn used(fixture: &Fixture) -> (Topology<Puppet>, RawDocumentBuf) {
    run(fixture, &insert_one()).unwrap();
    let [command] = &received(fixture)[..] else { panic!("one command") };
    let lsid = command.get_document("lsid").unwrap().to_owned();
    (Topology::from_host(Arc::clone(&fixture.host)), lsid)
}

fn take_tasks(fixture: &Fixture) -> Vec<crate::machines::runtime::Task> {
    std::mem::take(&mut *lock(&fixture.host.runtime().tasks))
}

/// Driver Sessions, "endSessions": as above, without a call of `close`.
#[test]
fn sessions_are_ended_in_the_background_when_the_last_handle_is_dropped() {
    let fixture = Fixture::with_sessions("");
    let (client, lsid) = used(&fixture);
    let clone = client.with_timeout(Duration::from_secs(1));
    drop(client);
    assert!(take_tasks(&fixture).is_empty(), "there is another one");
    drop(clone);
    let mut tasks = take_tasks(&fixture);
    assert_eq!(tasks.len(), 1);
    assert!(received(&fixture).is_empty(), "the thread that drops it does nothing");
    fixture.run(tasks.remove(0));
    let [command] = &received(&fixture)[..] else { panic!("one command") };
    let ended = command.get_array("endSessions").unwrap();
    assert_eq!(ended.get_document(0).unwrap(), &*lsid);
    assert!(take_tasks(&fixture).is_empty(), "the end of the task is no end of a client");
    assert!(!fixture.host.is_closed(), "the test has it still");
    let (client, _) = used(&fixture);
    fixture.host.close();
    drop(client);
    assert!(take_tasks(&fixture).is_empty(), "it is closed already");
}

/// No caller waits for that, so that it has to end by itself: a server that is silent is given up
/// after a second.
#[test]
fn a_silent_server_holds_the_end_of_a_client_up_for_a_second() {
    let fixture = Fixture::with_sessions("");
    let (client, _) = used(&fixture);
    fixture.server.mute.store(true, Ordering::Relaxed);
    drop(client);
    let mut tasks = take_tasks(&fixture);
    assert_eq!(tasks.len(), 1);
    let held = Arc::strong_count(&fixture.host);
    let mut task = Task::new(tasks.remove(0));
    assert!(task.poll().is_pending());
    assert_eq!(received_count(&fixture), 1);
    fixture.pass(Duration::from_millis(999));
    assert!(task.poll().is_pending());
    assert_eq!(Arc::strong_count(&fixture.host), held);
    fixture.pass(Duration::from_millis(1));
    assert!(task.poll().is_ready());
    drop(task);
    assert!(Arc::strong_count(&fixture.host) < held, "the host is let go of");
}

/// A runtime that ends drops its tasks: with this one, all that the client has goes.
#[test]
fn a_client_whose_farewell_is_given_up_ends_there_and_then() {
    let fixture = Fixture::with_sessions("");
    let (client, _) = used(&fixture);
    let kept = Arc::new(());
    let held = Arc::clone(&kept);
    client.spawn(|client| async move {
        let _held = (client, held);
        std::future::pending::<()>().await;
    });
    let other = take_tasks(&fixture);
    drop(client);
    assert_eq!(Arc::strong_count(&kept), 2, "it ends with the client");
    drop(take_tasks(&fixture));
    assert_eq!(Arc::strong_count(&kept), 1);
    assert!(received(&fixture).is_empty() && take_tasks(&fixture).is_empty());
    let host = Arc::downgrade(&fixture.host);
    drop((other, fixture));
    assert!(host.upgrade().is_none());
}

/// A client that servers keep nothing for, or that knows no server, is closed at once when it is
/// dropped; so is that of a parent, where a process was forked off.
#[test]
fn a_client_without_sessions_or_servers_ends_at_once() {
    let fixture = Fixture::with_sessions("");
    fixture.run(fixture.ping(None)).unwrap();
    drop(Topology::from_host(Arc::clone(&fixture.host)));
    assert!(take_tasks(&fixture).is_empty());
    received(&fixture);
    let (client, _) = used(&fixture);
    in_child(|| {
        drop(Topology::from_host(Arc::clone(&fixture.host)));
        assert!(take_tasks(&fixture).is_empty());
    });
    let host = Arc::clone(&fixture.host);
    // While a check is in progress, so that it has failed.
    fixture.pass(Duration::from_secs(10));
    fixture.link.closed(Failure::new(Stage::Hello, Cause::Io, "gone"));
    drop(client);
    assert!(lock(&host.runtime().tasks).is_empty());
}

/// The same of `close`, which ends them before it closes the connections.
#[test]
fn closing_a_client_ends_its_sessions() {
    let fixture = Fixture::with_sessions("");
    run(&fixture, &insert_one()).unwrap();
    let lsid = received(&fixture)[0].get_document("lsid").unwrap().to_owned();
    let client = Topology::from_host(Arc::clone(&fixture.host));
    let mut closing = Task::new(client.close());
    // Connections of monitors end later than that.
    for _ in 0..10 {
        if closing.poll().is_ready() {
            break;
        }
    }
    let ended = received(&fixture);
    let [command] = &ended[..] else { panic!("one command: {ended:?}") };
    assert_eq!(command.get_array("endSessions").unwrap().get_document(0).unwrap(), &*lsid);
}

/// Opens a cursor that is read in a stream, over a connection of its own.
fn opens_streamed_cursor(fixture: &Fixture) -> Pinned<Puppet> {
    let mut find = Insert(|_: &ConnectionDescription| {
        let command = rawdoc! { "find": "things" };
        let built = BuiltCommand::new("db".into(), command, OperationOptions::read());
        Ok(built.with_cursor(true, true))
    });
    answers(
        fixture,
        [Some(rawdoc! { "ok": 1, "cursor": { "id": 7_i64, "ns": "db.things", "firstBatch": [] } })],
    );
    let target = Target::Select(Arc::new(Criteria::write()));
    let response = fixture.run(fixture.host.execute(Request::building(&mut find, target))).unwrap();
    response.pin.unwrap()
}

/// OP_MSG, "exhaustAllowed": only getMore is streamed; what kills the cursor is not.
#[test]
fn a_cursor_that_is_read_in_a_stream_is_killed_by_a_plain_command() {
    let fixture = Fixture::new("");
    let mut pin = opens_streamed_cursor(&fixture).without_stream();
    let address = "a:27017".parse().unwrap();
    let cursor = sdam_core::operation::OpenCursor::new(address, ("db".into(), "things".into()), 7);
    let command = sdam_core::operation::KillCursors::of(&cursor);
    let client = Topology::from_host(Arc::clone(&fixture.host));
    let limits = crate::client::kill_cursors::KillLimits::in_background(&client, None);
    fixture.run(client.kill_cursors(&command, pin.target(), None, limits));
    let is_streaming = match pin.target() {
        Target::Stream(it) | Target::Connection(it) => it.is_streaming(),
        _ => false,
    };
    assert!(!is_streaming, "killCursors was sent with exhaustAllowed");
}

/// Nothing more is sent over a connection that a cursor has for itself once the client is closed.
#[test]
fn a_cursor_with_a_connection_of_its_own_ends_with_its_client() {
    for streams in [true, false] {
        let fixture = Fixture::new("");
        let pin = opens_streamed_cursor(&fixture);
        let mut pin = if streams { pin } else { pin.without_stream() };
        received(&fixture);
        fixture.host.close();
        let body = rawdoc! { "getMore": 7_i64, "collection": "things" };
        let message = CommandMessage::new("db", &body);
        let options = OperationOptions::continuing();
        let request = Request::new(message, &options, pin.target());
        let error = fixture.run(fixture.host.execute(request)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
        assert!(received(&fixture).is_empty());
    }
}
