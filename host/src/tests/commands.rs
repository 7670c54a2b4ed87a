//! Commands as they are sent: what is attached to them, what is refused, and how often a server is
//! selected for one.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use bson::{RawDocument, RawDocumentBuf, Timestamp, rawdoc};

use super::fixture::{Fixture, Task};
use super::{Puppet, lock, take_link};
use crate::client::driver::DriverTopology;
use crate::error::ClientError;
use crate::operations::checked_out::CheckedOut;
use sdam_core::config::{ReadMode, ReadPreference};
use sdam_core::failure::{Cause, Failure, Stage as Step};
use sdam_core::id::Generation;
use sdam_core::operation::{InvalidCommand, OperationError, OperationFailure, Timeout};
use sdam_core::selection::Criteria;
use sdam_core::wire::{MAX_SEQUENCES, SequenceError};

/// The commands that a server has received over connections that are established.
fn received(fixture: &Fixture) -> Vec<RawDocumentBuf> {
    let commands = lock(&fixture.server.commands);
    let opening = |command: &&RawDocumentBuf| command.get("client").unwrap().is_none();
    commands.iter().filter(opening).cloned().collect()
}

fn mode(command: &RawDocumentBuf) -> Option<String> {
    let preference = command.get_document("$readPreference").ok()?;
    Some(preference.get_str("mode").unwrap().to_owned())
}

/// Server Selection, "Passing read preference to mongos and load balancers": "For mode 'primary',
/// drivers MUST NOT set `$readPreference`; for all other read preference modes, drivers MUST".
#[test]
fn the_read_preference_travels_with_every_loan_of_what_was_selected() {
    let fixture = Fixture::mongos();
    let (ping, insert) = (rawdoc! { "ping": 1 }, rawdoc! { "insert": "c" });
    let more = rawdoc! { "getMore": 1_i64 };
    let read = |mode| Criteria::read(ReadPreference::new(mode));
    for (criteria, expected) in [
        (Criteria::write(), None),
        (read(ReadMode::Primary), None),
        (read(ReadMode::Secondary), Some("secondary".to_owned())),
        (read(ReadMode::Nearest), Some("nearest".to_owned())),
    ] {
        let selected = fixture.run(fixture.host.select(&criteria.into(), None)).unwrap();
        lock(&fixture.server.commands).clear();
        let in_use =
            [fixture.run(selected.check_out()).unwrap(), fixture.run(selected.connect()).unwrap()];
        for mut checked_out in in_use {
            let reply = fixture.run(checked_out.command("db", &ping)).unwrap();
            assert_eq!(reply.server(), selected.address());
            assert_eq!(reply.connection_id(), checked_out.connection_id());
            fixture
                .run(checked_out.command_with_sequences("db", &insert, &[("documents", &[])]))
                .unwrap();
            fixture.run(checked_out.command_unacknowledged("db", &insert)).unwrap();
            let mut replies = fixture.run(checked_out.command_exhaust("db", &more)).unwrap();
            while fixture.run(replies.next()).is_some() {}
        }
        let modes: Vec<_> = received(&fixture).iter().map(mode).collect();
        assert_eq!(modes, vec![expected; 8]);
    }
}

/// Server Selection, "Topology type: Single": "clients MUST NOT send the read preference" to a
/// standalone.
#[test]
fn a_standalone_is_told_no_read_preference() {
    let fixture = Fixture::new("");
    let secondary = Criteria::read(ReadPreference::new(ReadMode::Secondary));
    let selected = fixture.run(fixture.host.select(&secondary.into(), None)).unwrap();
    for selected in [selected, fixture.host.members().remove(0)] {
        let mut checked_out = fixture.run(selected.check_out()).unwrap();
        fixture.run(checked_out.command("admin", &rawdoc! { "ping": 1 })).unwrap();
    }
    assert_eq!(received(&fixture), vec![rawdoc! { "ping": 1, "$db": "admin" }; 2]);
}

/// RunCommand: "A driver MUST not inspect the user's command, this includes checking for the fields
/// a driver MUST attach"; `$db` "MUST equal the database name RunCommand was invoked on", and the
/// command "MUST gossip the `$clusterTime`". So each is sent once, as the driver has it.
#[test]
fn fields_that_are_attached_take_the_place_of_the_users_and_all_others_are_left_as_they_are() {
    let fixture = Fixture::new("");
    fixture.server.has_sessions.store(true, Ordering::Relaxed);
    let at = |time| rawdoc! { "clusterTime": Timestamp { time, increment: 1 } };
    let command = rawdoc! {
        "ping": 1,
        "$db": "other",
        "$clusterTime": at(7),
        "$readPreference": { "mode": "nearest" },
        "lsid": { "id": 1 },
        "readConcern": { "level": "local" },
    };
    let before = command.clone();
    *lock(&fixture.server.reply) = Some(rawdoc! { "$clusterTime": at(5), "ok": 1 });
    let mut checked_out = fixture.run(fixture.pool().check_out()).unwrap();
    fixture.run(checked_out.command("db", &command)).unwrap();
    fixture.run(checked_out.command("db", &command)).unwrap();
    assert_eq!(command, before, "a driver MUST not modify the user's command");
    let own = rawdoc! { "mode": "nearest" };
    let (session, concern) = (rawdoc! { "id": 1 }, rawdoc! { "level": "local" });
    let expected = [
        // No server has sent a cluster time yet.
        rawdoc! {
            "ping": 1, "$clusterTime": at(7), "$readPreference": own.clone(),
            "lsid": session.clone(), "readConcern": concern.clone(), "$db": "db",
        },
        rawdoc! {
            "ping": 1, "$readPreference": own, "lsid": session, "readConcern": concern,
            "$db": "db", "$clusterTime": at(5),
        },
    ];
    assert_eq!(received(&fixture), expected);
}

/// Sessions, "advanceClusterTime": the greater one is kept, and the next command carries it.
#[test]
fn a_cluster_time_of_the_application_is_gossiped_if_it_is_the_greatest() {
    let fixture = Fixture::new("");
    fixture.server.has_sessions.store(true, Ordering::Relaxed);
    let client = crate::Topology::from_host(Arc::clone(&fixture.host));
    let at = |time| rawdoc! { "clusterTime": Timestamp { time, increment: 1 } };
    client.advance_cluster_time(&at(7)).unwrap();
    client.advance_cluster_time(&at(6)).unwrap();
    client.advance_cluster_time(&rawdoc! { "clusterTime": 8 }).unwrap_err();
    let mut checked_out = fixture.run(fixture.pool().check_out()).unwrap();
    fixture.run(checked_out.command("db", &rawdoc! { "ping": 1 })).unwrap();
    let expected = rawdoc! { "ping": 1, "$db": "db", "$clusterTime": at(7) };
    assert_eq!(received(&fixture), [expected]);
}

/// Causal Consistency, test 11: "When connected to a deployment that does not support cluster times
/// messages sent to the server should not include `$clusterTime`".
#[test]
fn a_standalone_is_told_no_cluster_time() {
    let fixture = Fixture::new("");
    let client = crate::Topology::from_host(Arc::clone(&fixture.host));
    let elsewhere = rawdoc! { "clusterTime": Timestamp { time: 7, increment: 1 } };
    client.advance_cluster_time(&elsewhere).unwrap();
    fixture.run(fixture.ping(None)).unwrap();
    assert_eq!(received(&fixture), [rawdoc! { "ping": 1, "$db": "admin" }]);
}

/// RunCommand, "ReadPreference": if it is not `{mode: primary}`, and the server no standalone, "the
/// command sent MUST include the `$readPreference` global command argument".
#[test]
fn the_read_preference_of_the_selection_takes_the_place_of_the_users() {
    let fixture = Fixture::mongos();
    let own = rawdoc! { "ping": 1, "$readPreference": { "mode": "secondaryPreferred" } };
    for (mode_of_selection, expected) in
        [(ReadMode::Nearest, "nearest"), (ReadMode::Primary, "secondaryPreferred")]
    {
        lock(&fixture.server.commands).clear();
        let criteria = Criteria::read(ReadPreference::new(mode_of_selection)).into();
        fixture.run(fixture.host.run_command("db", &own, criteria, Timeout::Unset)).unwrap();
        let [command] = &received(&fixture)[..] else { panic!("one command") };
        assert_eq!(mode(command).as_deref(), Some(expected));
        let names = command.into_iter().filter(|it| it.as_ref().unwrap().0 == "$readPreference");
        assert_eq!(names.count(), 1, "{command:?}");
    }
}

/// Stable API, "Generic command helper": attached as configured.
#[test]
fn the_server_api_is_declared_once_whatever_the_command_says() {
    let options = sdam_core::config::Options::builder();
    let version = sdam_core::config::ServerApiVersion::V1;
    let api = sdam_core::config::ServerApi::from(version).with_strict(Some(true));
    let options = options.uri("mongodb://a/?directConnection=true").unwrap().server_api(api);
    let options = Arc::new(options.build().unwrap());
    let host = super::Host::new(options, 1, Puppet::default());
    host.ring();
    let fixture = Fixture::begin(host);
    let ping = rawdoc! { "ping": 1, "apiVersion": "2", "apiDeprecationErrors": true };
    let mut checked_out = fixture.run(fixture.pool().check_out()).unwrap();
    fixture.run(checked_out.command("db", &ping)).unwrap();
    let expected = rawdoc! {
        "ping": 1, "apiDeprecationErrors": true, "$db": "db", "apiVersion": "1", "apiStrict": true,
    };
    assert_eq!(received(&fixture), [expected]);
}

/// OP_MSG, "sections": an identifier is a string that ends with NUL, and "MUST be unique per
/// message".
#[test]
fn names_of_sequences_that_cannot_be_sent_are_refused_and_harm_nothing() {
    let fixture = Fixture::new("");
    let insert = rawdoc! { "insert": "c" };
    let mut checked_out = fixture.run(fixture.pool().check_out()).unwrap();
    let twice: [(&str, &[&RawDocument]); 2] = [("documents", &[&insert]), ("documents", &[])];
    for (sequences, reason, text) in [
        (&twice[..], SequenceError::Duplicate("documents".into()), "\"documents\""),
        (&[("a\0b", [].as_slice())][..], SequenceError::Nul("a\0b".into()), "\"a\\0b\""),
    ] {
        let sent = fixture.run(checked_out.command_with_sequences("db", &insert, sequences));
        let error = sent.unwrap_err();
        assert!(error.to_string().contains(text), "{error}");
        assert_eq!(
            error.as_operation(),
            Some(&OperationError::Invalid(InvalidCommand::Sequence(reason)))
        );
    }
    fixture.run(checked_out.command_with_sequences("db", &insert, &twice[..1])).unwrap();
}

#[test]
fn a_command_has_at_most_as_many_sequences_as_a_message_may_have() {
    let fixture = Fixture::new("");
    let insert = rawdoc! { "insert": "c" };
    let mut checked_out = fixture.run(fixture.pool().check_out()).unwrap();
    let names: Vec<String> = (0..=MAX_SEQUENCES).map(|number| number.to_string()).collect();
    let all: Vec<(&str, &[&RawDocument])> =
        names.iter().map(|name| (name.as_str(), [].as_slice())).collect();
    let error = fixture.run(checked_out.command_with_sequences("db", &insert, &all)).unwrap_err();
    let reason = InvalidCommand::Sequence(SequenceError::TooMany);
    assert_eq!(error.as_operation(), Some(&OperationError::Invalid(reason)));
    assert!(error.to_string().contains("more than 100 document sequences"), "{error}");
    fixture.run(checked_out.command_with_sequences("db", &insert, &all[1..])).unwrap();
}

/// An error that is printed with all its sources says nothing twice.
#[test]
fn no_source_of_an_error_says_what_its_text_has_said() {
    let fixture = Fixture::new("&maxPoolSize=1");
    let empty = fixture.run(fixture.host.run_command("db", &rawdoc! {}, write(), Timeout::Unset));
    *lock(&fixture.server.reply) = Some(rawdoc! { "ok": 0, "code": 1, "errmsg": "no" });
    let ping = rawdoc! { "ping": 1 };
    let refused = fixture.run(fixture.host.run_command("db", &ping, write(), Timeout::Unset));
    fixture.host.close();
    let closed = fixture.run(fixture.host.run_command("db", &ping, write(), Timeout::Unset));
    let options = sdam_core::config::Options::parse("mongodb://a:0").unwrap_err();
    let wire = sdam_core::wire::WireError::from(sdam_core::wire::NotCompiledIn(
        sdam_core::wire::Compressor::Zstd,
    ));
    let client = ClientError::NoSeed("there is none".into());
    let srv = ClientError::from(sdam_core::dns::srv::SrvError::from(options.clone()));
    let errors: [Box<dyn Error>; 7] = [
        Box::new(empty.unwrap_err()),
        Box::new(refused.unwrap_err()),
        Box::new(closed.unwrap_err()),
        Box::new(options),
        Box::new(wire),
        Box::new(client),
        Box::new(srv),
    ];
    for error in errors {
        let text = error.to_string();
        let chain = std::iter::successors(error.source(), |&error| error.source());
        for source in chain {
            assert!(!text.contains(&source.to_string()), "{text}, {source}");
        }
    }
}

fn write() -> Arc<Criteria> {
    Arc::new(Criteria::write())
}

/// A client whose only connection is in use, so that the next caller waits.
pub(super) fn all_out() -> (Fixture, CheckedOut<Puppet>) {
    let fixture = Fixture::new("&maxPoolSize=1");
    let checked_out = fixture.run(fixture.pool().check_out()).unwrap();
    (fixture, checked_out)
}

/// Another operation finds the server to be of no use, which clears the pool once more.
pub(super) fn lose(fixture: &Fixture, generation: u32) {
    let failure = Failure::new(Step::Operate, Cause::Closed, "gone");
    fixture.pool().server().operation_failed(OperationFailure::new(
        Generation::new(generation),
        17,
        OperationError::Stream(failure),
    ));
}

/// The monitor finds the server again.
pub(super) fn find(fixture: &Fixture) {
    fixture.pass(Duration::from_millis(500));
    let link = take_link(&fixture.host);
    link.opened();
    Fixture::answer(&link);
    lock(&fixture.host.runtime().links).push(link);
}

/// RunCommand, "Retryability": nothing is sent again; nothing was sent yet, and still there is an
/// end.
#[test]
fn a_pool_that_is_cleared_again_and_again_is_given_up() {
    let (fixture, _other) = all_out();
    let mut task = Task::new(fixture.ping(None));
    for generation in 0..2 {
        assert!(task.poll().is_pending(), "it waits for a connection");
        lose(&fixture, generation);
        assert!(task.poll().is_pending(), "it selects again");
        find(&fixture);
    }
    assert!(task.poll().is_pending());
    lose(&fixture, 2);
    let Poll::Ready(Err(error)) = task.poll() else { panic!("it goes on") };
    assert!(error.contains("was cleared because another operation failed"), "{error}");
    assert_eq!(received(&fixture), Vec::<RawDocumentBuf>::new(), "nothing was sent");
}

#[test]
fn a_pool_that_is_cleared_when_there_is_no_time_left_is_given_up() {
    let (fixture, _other) = all_out();
    let mut task = Task::new(fixture.ping(None));
    assert!(task.poll().is_pending());
    // The selection had 30 s; there is no ring meanwhile.
    let mut now = lock(&fixture.host.runtime().now);
    *now = *now + Duration::from_secs(30);
    drop(now);
    lose(&fixture, 0);
    let Poll::Ready(Err(error)) = task.poll() else { panic!("it goes on") };
    assert!(error.contains("was cleared because another operation failed"), "{error}");
}

/// CSOT, "Command Execution": "After wire message construction, drivers MUST check for timeout
/// before writing the message to the server", and "MUST return the connection to the pool".
#[test]
fn a_command_that_was_made_too_late_is_not_sent_and_its_connection_comes_back() {
    let fixture = Fixture::new("");
    let mut checked_out = fixture.run(fixture.pool().check_out()).unwrap();
    checked_out.set_deadline(Some(fixture.now() + Duration::from_secs(1)));
    received(&fixture);
    // When the message was begun there was time.
    *lock(&fixture.host.runtime().stops) = Some(Duration::from_secs(2));
    let error = fixture.run(checked_out.command("admin", &rawdoc! { "ping": 1 })).unwrap_err();
    assert!(error.to_string().contains("had passed before the command was sent"), "{error}");
    drop(checked_out);
    assert_eq!(received(&fixture), Vec::<RawDocumentBuf>::new());
    assert_eq!(fixture.pool().counts().available, 1, "it is as good as before");
    fixture.run(fixture.ping(None)).unwrap();
}

/// OP_COMPRESSED: "network compression" is agreed on by hello.
#[test]
fn commands_are_compressed_where_both_sides_know_how() {
    for (option, knows, compressed) in
        [("&compressors=snappy", true, 1), ("", true, 0), ("&compressors=snappy", false, 0)]
    {
        let fixture = Fixture::new(option);
        fixture.server.compresses.store(knows, Ordering::Relaxed);
        fixture.run(fixture.ping(None)).unwrap();
        assert_eq!(
            fixture.server.compressed.load(Ordering::Relaxed),
            compressed,
            "{option} {knows}"
        );
    }
}
