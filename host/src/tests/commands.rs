//! Commands as they are sent: what is attached to them, what is refused, and how often a server is
//! selected for one.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use bson::{RawDocument, RawDocumentBuf, Timestamp, rawdoc};

use super::stage::{Stage, Task};
use super::{Puppet, lock, take_link};
use crate::client::ClientError;
use crate::connection::checked_out::CheckedOut;
use sdam_core::config::{ReadMode, ReadPreference};
use sdam_core::failure::{Cause, Failure, Stage as Step};
use sdam_core::id::Generation;
use sdam_core::operation::{InvalidCommand, OperationError, OperationFailure};
use sdam_core::selection::Criteria;
use sdam_core::wire::{MAX_SEQUENCES, SequenceError};

/// The commands that a server has received over connections that are established.
fn received(stage: &Stage) -> Vec<RawDocumentBuf> {
    let commands = lock(&stage.server.commands);
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
    let stage = Stage::mongos();
    let (ping, insert) = (rawdoc! { "ping": 1 }, rawdoc! { "insert": "c" });
    let more = rawdoc! { "getMore": 1_i64 };
    let read = |mode| Criteria::read(ReadPreference::new(mode));
    for (criteria, expected) in [
        (Criteria::write(), None),
        (read(ReadMode::Primary), None),
        (read(ReadMode::Secondary), Some("secondary".to_owned())),
        (read(ReadMode::Nearest), Some("nearest".to_owned())),
    ] {
        let selected = stage.run(stage.host.select(&criteria.into(), None)).unwrap();
        lock(&stage.server.commands).clear();
        let loans =
            [stage.run(selected.check_out()).unwrap(), stage.run(selected.connect()).unwrap()];
        for mut loan in loans {
            let reply = stage.run(loan.command("db", &ping)).unwrap();
            assert_eq!(reply.server(), selected.server().address());
            assert_eq!(reply.connection_id(), loan.connection_id());
            stage.run(loan.command_with_sequences("db", &insert, &[("documents", &[])])).unwrap();
            stage.run(loan.command_unacknowledged("db", &insert)).unwrap();
            let mut replies = stage.run(loan.command_exhaust("db", &more)).unwrap();
            while stage.run(replies.next()).is_some() {}
        }
        let modes: Vec<_> = received(&stage).iter().map(mode).collect();
        assert_eq!(modes, vec![expected; 8]);
    }
}

/// Server Selection, "Topology type: Single": "clients MUST NOT send the read preference" to a
/// standalone.
#[test]
fn a_standalone_is_told_no_read_preference() {
    let stage = Stage::new("");
    let secondary = Criteria::read(ReadPreference::new(ReadMode::Secondary));
    let selected = stage.run(stage.host.select(&secondary.into(), None)).unwrap();
    for selected in [selected, stage.host.members().remove(0)] {
        let mut loan = stage.run(selected.check_out()).unwrap();
        stage.run(loan.command("admin", &rawdoc! { "ping": 1 })).unwrap();
    }
    assert_eq!(received(&stage), vec![rawdoc! { "ping": 1, "$db": "admin" }; 2]);
}

/// RunCommand: "A driver MUST not inspect the user's command, this includes checking for the fields
/// a driver MUST attach"; `$db` "MUST equal the database name RunCommand was invoked on", and the
/// command "MUST gossip the `$clusterTime`". So each is sent once, as the driver has it.
#[test]
fn fields_that_are_attached_take_the_place_of_the_users_and_all_others_are_left_as_they_are() {
    let stage = Stage::new("");
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
    *lock(&stage.server.reply) = Some(rawdoc! { "$clusterTime": at(5), "ok": 1 });
    let mut loan = stage.run(stage.pool().check_out(None)).unwrap();
    stage.run(loan.command("db", &command)).unwrap();
    stage.run(loan.command("db", &command)).unwrap();
    assert_eq!(command, before, "a driver MUST not modify the user's command");
    let own = rawdoc! { "mode": "nearest" };
    let (session, concern) = (rawdoc! { "id": 1 }, rawdoc! { "level": "local" });
    let expected = [
        // No server has told a cluster time yet.
        rawdoc! {
            "ping": 1, "$clusterTime": at(7), "$readPreference": own.clone(),
            "lsid": session.clone(), "readConcern": concern.clone(), "$db": "db",
        },
        rawdoc! {
            "ping": 1, "$readPreference": own, "lsid": session, "readConcern": concern,
            "$db": "db", "$clusterTime": at(5),
        },
    ];
    assert_eq!(received(&stage), expected);
}

/// RunCommand, "ReadPreference": if it is not `{mode: primary}`, and the server no standalone, "the
/// command sent MUST include the `$readPreference` global command argument".
#[test]
fn the_read_preference_of_the_selection_takes_the_place_of_the_users() {
    let stage = Stage::mongos();
    let own = rawdoc! { "ping": 1, "$readPreference": { "mode": "secondaryPreferred" } };
    for (mode_of_selection, expected) in
        [(ReadMode::Nearest, "nearest"), (ReadMode::Primary, "secondaryPreferred")]
    {
        lock(&stage.server.commands).clear();
        let criteria = Criteria::read(ReadPreference::new(mode_of_selection)).into();
        stage.run(stage.host.run_command("db", &own, &criteria, None, None)).unwrap();
        let [command] = &received(&stage)[..] else { panic!("one command") };
        assert_eq!(mode(command).as_deref(), Some(expected));
        let names = command.into_iter().filter(|it| it.as_ref().unwrap().0 == "$readPreference");
        assert_eq!(names.count(), 1, "{command:?}");
    }
}

/// Stable API, "Generic command helper": attached as configured.
#[test]
fn the_server_api_is_declared_once_whatever_the_command_says() {
    let options = sdam_core::config::Options::builder();
    let api = sdam_core::config::ServerApi {
        version: sdam_core::config::ServerApiVersion::V1,
        strict: Some(true),
        deprecation_errors: None,
    };
    let options = options.uri("mongodb://a/?directConnection=true").unwrap().server_api(api);
    let options = Arc::new(options.build().unwrap());
    let host = super::Host::new(options, 1, Puppet::default());
    host.ring();
    let stage = Stage::begin(host);
    let ping = rawdoc! { "ping": 1, "apiVersion": "2", "apiDeprecationErrors": true };
    let mut loan = stage.run(stage.pool().check_out(None)).unwrap();
    stage.run(loan.command("db", &ping)).unwrap();
    let expected = rawdoc! {
        "ping": 1, "apiDeprecationErrors": true, "$db": "db", "apiVersion": "1", "apiStrict": true,
    };
    assert_eq!(received(&stage), [expected]);
}

/// OP_MSG, "sections": an identifier is a string that ends with NUL, and "MUST be unique per
/// message".
#[test]
fn names_of_sequences_that_cannot_be_sent_are_refused_and_harm_nothing() {
    let stage = Stage::new("");
    let insert = rawdoc! { "insert": "c" };
    let mut loan = stage.run(stage.pool().check_out(None)).unwrap();
    let twice: [(&str, &[&RawDocument]); 2] = [("documents", &[&insert]), ("documents", &[])];
    for (sequences, reason, text) in [
        (&twice[..], SequenceError::Duplicate("documents".into()), "\"documents\""),
        (&[("a\0b", [].as_slice())][..], SequenceError::Nul("a\0b".into()), "\"a\\0b\""),
    ] {
        let sent = stage.run(loan.command_with_sequences("db", &insert, sequences));
        let error = sent.unwrap_err();
        assert!(error.to_string().contains(text), "{error}");
        assert_eq!(error, OperationError::Invalid(InvalidCommand::Sequence(reason)));
    }
    stage.run(loan.command_with_sequences("db", &insert, &twice[..1])).unwrap();
}

#[test]
fn a_command_has_at_most_as_many_sequences_as_a_message_may_have() {
    let stage = Stage::new("");
    let insert = rawdoc! { "insert": "c" };
    let mut loan = stage.run(stage.pool().check_out(None)).unwrap();
    let names: Vec<String> = (0..=MAX_SEQUENCES).map(|number| number.to_string()).collect();
    let all: Vec<(&str, &[&RawDocument])> =
        names.iter().map(|name| (name.as_str(), [].as_slice())).collect();
    let error = stage.run(loan.command_with_sequences("db", &insert, &all)).unwrap_err();
    let reason = InvalidCommand::Sequence(SequenceError::TooMany);
    assert_eq!(error, OperationError::Invalid(reason));
    assert!(error.to_string().contains("more than 100 document sequences"), "{error}");
    stage.run(loan.command_with_sequences("db", &insert, &all[1..])).unwrap();
}

/// Whoever prints an error and all its sources reads nothing twice.
#[test]
fn no_source_of_an_error_says_what_its_text_has_said() {
    let stage = Stage::new("&maxPoolSize=1");
    let empty = stage.run(stage.host.run_command("db", &rawdoc! {}, &write(), None, None));
    *lock(&stage.server.reply) = Some(rawdoc! { "ok": 0, "code": 1, "errmsg": "no" });
    let ping = rawdoc! { "ping": 1 };
    let refused = stage.run(stage.host.run_command("db", &ping, &write(), None, None));
    stage.host.close();
    let closed = stage.run(stage.host.run_command("db", &ping, &write(), None, None));
    let options = sdam_core::config::Options::parse("mongodb://a:0").unwrap_err();
    let wire = sdam_core::wire::WireError::from(sdam_core::wire::NotCompiledIn(
        sdam_core::wire::Compressor::Zstd,
    ));
    let client = ClientError::NoSeed("there is none".into());
    let srv = ClientError::from(sdam_core::dns::srv::SrvError::from(options.clone()));
    let errors: [Box<dyn Error>; 7] = [
        empty.unwrap_err(),
        refused.unwrap_err(),
        closed.unwrap_err(),
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

/// A client whose only connection is on loan, so that whoever wants one waits.
fn all_out() -> (Stage, CheckedOut<Puppet>) {
    let stage = Stage::new("&maxPoolSize=1");
    let loan = stage.run(stage.pool().check_out(None)).unwrap();
    (stage, loan)
}

/// Another operation finds the server to be of no use, which clears the pool once more.
fn lose(stage: &Stage, generation: u32) {
    let failure = Failure::new(Step::Operate, Cause::Closed, "gone");
    stage.pool().operation_failed(OperationFailure {
        generation: Generation::new(generation),
        service: None,
        max_wire_version: 17,
        error: OperationError::Stream(failure),
    });
}

/// The monitor finds the server again.
fn find(stage: &Stage) {
    stage.pass(Duration::from_millis(500));
    let link = take_link(&stage.host);
    link.opened();
    Stage::answer(&link);
    lock(&stage.host.runtime().links).push(link);
}

/// RunCommand, "Retryability": nothing is sent again; nothing was sent yet, and still there is an
/// end.
#[test]
fn a_pool_that_is_cleared_again_and_again_is_given_up() {
    let (stage, _other) = all_out();
    let mut task = Task::new(stage.ping(None));
    for generation in 0..2 {
        assert!(task.poll().is_pending(), "it waits for a connection");
        lose(&stage, generation);
        assert!(task.poll().is_pending(), "it selects again");
        find(&stage);
    }
    assert!(task.poll().is_pending());
    lose(&stage, 2);
    let Poll::Ready(Err(error)) = task.poll() else { panic!("it goes on") };
    assert!(error.contains("was cleared because another operation failed"), "{error}");
    assert_eq!(received(&stage), Vec::<RawDocumentBuf>::new(), "nothing was sent");
}

#[test]
fn a_pool_that_is_cleared_when_there_is_no_time_left_is_given_up() {
    let (stage, _other) = all_out();
    let mut task = Task::new(stage.ping(None));
    assert!(task.poll().is_pending());
    // The selection had 30 s; nobody rings meanwhile.
    let mut now = lock(&stage.host.runtime().now);
    *now = *now + Duration::from_secs(30);
    drop(now);
    lose(&stage, 0);
    let Poll::Ready(Err(error)) = task.poll() else { panic!("it goes on") };
    assert!(error.contains("was cleared because another operation failed"), "{error}");
}

/// OP_COMPRESSED: "network compression" is agreed on by hello.
#[test]
fn commands_are_compressed_where_both_sides_know_how() {
    for (option, knows, compressed) in
        [("&compressors=snappy", true, 1), ("", true, 0), ("&compressors=snappy", false, 0)]
    {
        let stage = Stage::new(option);
        stage.server.compresses.store(knows, Ordering::Relaxed);
        stage.run(stage.ping(None)).unwrap();
        assert_eq!(stage.server.compressed.load(Ordering::Relaxed), compressed, "{option} {knows}");
    }
}
