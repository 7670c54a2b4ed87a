//! The replies to writes: the number of documents, and whether to try again.

use bson::raw::{CStr, cstr};
use bson::{RawArrayBuf, RawDocument, RawDocumentBuf, rawdoc};
use sdam_core::bson;
use sdam_core::wire::{Flags, write_op_msg_with_sequences};

use super::{Input, MemberId, SECOND, ServerVersion, World, arbiter, body, member, options};

fn labels(reply: &RawDocument) -> Vec<&str> {
    let labels = reply.get_array("errorLabels").into_iter().flatten();
    labels.map(|it| it.unwrap().as_str().unwrap()).collect()
}

fn insert() -> RawDocumentBuf {
    rawdoc! { "insert": "x", "documents": [{}], "$db": "test" }
}

/// An insert with these fields, of which drivers choose the label of an error.
fn with(fields: &RawDocument) -> RawDocumentBuf {
    let mut command = insert();
    for field in fields {
        let (name, value) = field.unwrap();
        command.append(name, value);
    }
    command
}

#[test]
fn a_reply_counts_the_statements_wherever_the_message_has_them() {
    let mut world = World::settled(ServerVersion::V6_0);
    let connection = world.connect(world.primary().unwrap());
    let cases: [(&CStr, &CStr, &[&str]); 3] = [
        (cstr!("insert"), cstr!("documents"), &["n"]),
        (cstr!("update"), cstr!("updates"), &["n", "nModified"]),
        (cstr!("delete"), cstr!("deletes"), &["n"]),
    ];
    for (name, field, counts) in cases {
        let mut command = RawDocumentBuf::new();
        command.append(name, "x");
        command.append(cstr!("$db"), "test");
        let mut whole = command.clone();
        whole.append(field, bson::RawArrayBuf::from_iter([rawdoc! {}, rawdoc! {}, rawdoc! {}]));
        let mut bytes = Vec::new();
        let one = rawdoc! {};
        let sequences: [(&str, &[&RawDocument]); 1] = [(field.as_str(), &[&one, &one, &one])];
        write_op_msg_with_sequences(&mut bytes, 1, 0, Flags::NONE, &command, &sequences);
        let in_body = world.ask(connection, &whole);
        world.receive(connection, &bytes);
        let behind_it = body(&world.replies(connection)[0].1);
        for count in counts {
            assert_eq!(in_body.get_i32(count).unwrap(), 3, "{name} {count}");
            assert_eq!(behind_it.get_i32(count).unwrap(), 3, "{name} {count}");
        }
    }
    for name in [cstr!("findAndModify"), cstr!("findandmodify")] {
        let mut command = RawDocumentBuf::new();
        command.append(name, "x");
        command.append(cstr!("$db"), "test");
        let found = world.ask(connection, &command);
        assert_eq!(found.get_document("value").unwrap().get_i64("_id").unwrap(), 0);
    }
}

/// Retryable Writes, "RetryableWriteError Labels"; as 6.0.5 does.
#[test]
fn an_error_says_whether_a_write_may_be_tried_again() {
    let numbered = rawdoc! { "txnNumber": 1_i64 };
    let in_transaction = rawdoc! { "txnNumber": 1_i64, "autocommit": false };
    let cases = [
        (ServerVersion::V6_0, rawdoc! {}, None),
        (ServerVersion::V6_0, numbered.clone(), Some("RetryableWriteError")),
        (ServerVersion::V4_2, numbered, None),
        (ServerVersion::V6_0, in_transaction, Some("TransientTransactionError")),
    ];
    for (version, fields, expected) in cases {
        let mut world = World::settled(version);
        let connection = world.connect(world.secondary());
        let reply = world.ask(connection, &with(&fields));
        assert_eq!(reply.get_i32("code").unwrap(), 10107);
        assert_eq!(labels(&reply), expected.into_iter().collect::<Vec<_>>());
    }
}

/// As 6.0.5 does with each of these.
#[test]
fn a_fail_point_leaves_the_labels_to_the_server_unless_it_names_some_or_none() {
    let mut world = World::settled(ServerVersion::V6_0);
    let connection = world.connect(world.primary().unwrap());
    let write_concern_error = rawdoc! { "code": 91, "errmsg": "as wanted" };
    let cases: [(RawDocumentBuf, &[&str]); 5] = [
        (rawdoc! { "errorCode": 189 }, &["RetryableWriteError"]),
        (rawdoc! { "errorCode": 64 }, &[]),
        (rawdoc! { "errorCode": 189, "errorLabels": [] }, &[]),
        (rawdoc! { "errorCode": 64, "errorLabels": ["Own"] }, &["Own"]),
        (rawdoc! { "writeConcernError": write_concern_error }, &["RetryableWriteError"]),
    ];
    for (mut data, expected) in cases {
        data.append(cstr!("failCommands"), bson::RawArrayBuf::from_iter(["insert"]));
        let command = rawdoc! {
            "configureFailPoint": "failCommand", "mode": "alwaysOn", "data": data, "$db": "admin",
        };
        assert_eq!(world.ask(connection, &command).get_f64("ok").unwrap(), 1.0);
        let reply = world.ask(connection, &with(&rawdoc! { "txnNumber": 1_i64 }));
        assert_eq!(labels(&reply), expected);
    }
}

fn concern_code(world: &mut World, member: MemberId, w: impl Into<bson::RawBson>) -> Option<i32> {
    let connection = world.connect(member);
    let command = with(&rawdoc! { "writeConcern": { "w": w.into(), "wtimeout": 100 } });
    let reply = world.ask(connection, &command);
    assert_eq!((reply.get_f64("ok").unwrap(), reply.get_i32("n").unwrap()), (1.0, 1));
    reply.get_document("writeConcernError").ok()?.get_i32("code").ok()
}

/// Real servers would say the same after `wtimeout`, and "not enough members" at once.
#[test]
fn a_write_concern_that_too_few_members_satisfy_fails() {
    let mut world = World::settled(ServerVersion::V6_0);
    let old = world.primary().unwrap();
    assert_eq!(concern_code(&mut world, old, "majority"), None);
    assert_eq!(concern_code(&mut world, old, 3), None);
    assert_eq!(concern_code(&mut world, old, 4), Some(100));
    let other = world.secondary();
    world.handle(Input::Kill { member: other });
    assert_eq!(concern_code(&mut world, old, "majority"), None);
    assert_eq!(concern_code(&mut world, old, 3), Some(64));
    world.handle(Input::Start { member: other });
    world.advance(SECOND);
    world.handle(Input::Cut { member: old });
    assert_eq!(concern_code(&mut world, old, "majority"), Some(64), "the others do not hear it");
    assert_eq!(concern_code(&mut world, old, 1), None);
}

#[test]
fn an_arbiter_votes_and_replicates_nothing() {
    let members = [member("a:1"), member("b:1"), arbiter("c:1")];
    let mut world = World::of(ServerVersion::V6_0, &members);
    let primary = world.primary().unwrap();
    assert_eq!(concern_code(&mut world, primary, "majority"), None);
    assert_eq!(concern_code(&mut world, primary, 3), Some(100));
    let secondary = MemberId(1 - primary.0);
    world.handle(Input::Kill { member: secondary });
    assert_eq!(concern_code(&mut world, primary, "majority"), Some(64));
}

/// Returns the code of a write that does not say how many members must have it.
fn default_code(world: &mut World, concern: Option<RawDocumentBuf>) -> Option<i32> {
    let connection = world.connect(world.primary().unwrap());
    let mut command = insert();
    if let Some(concern) = concern {
        command.append(cstr!("writeConcern"), concern);
    }
    let reply = world.ask(connection, &command);
    assert_eq!(reply.get_i32("n").unwrap(), 1);
    let error = reply.get_document("writeConcernError").ok()?;
    let concern = error.get_document("errInfo").unwrap().get_document("writeConcern").unwrap();
    assert_eq!(concern.get_str("w").unwrap(), "majority");
    assert_eq!(concern.get_str("provenance").unwrap(), "implicitDefault");
    error.get_i32("code").ok()
}

/// The server's manual, "Implicit Default Write Concern"; what a concern without `w` means is so in
/// the latest releases of 5.0 and 6.0, and was `w: 1` in 6.0.5.
#[test]
fn a_write_that_does_not_say_how_many_members_it_means_waits_for_a_majority_since_5_0() {
    for version in ServerVersion::ALL {
        let mut world = World::settled(version);
        let primary = world.primary().unwrap();
        assert_eq!(default_code(&mut world, None), None, "all are there");
        world.handle(Input::Kill { member: world.secondary() });
        assert_eq!(default_code(&mut world, None), None, "two of three are a majority");
        let last =
            (0..3).map(MemberId).find(|it| *it != primary && world.model.get().is_running(*it));
        // Its process still runs when the primary cannot replicate to it.
        world.handle(Input::Cut { member: last.unwrap() });
        let expected = (version >= ServerVersion::V5_0).then_some(64);
        for concern in [None, Some(rawdoc! {}), Some(rawdoc! { "wtimeout": 100 })] {
            assert_eq!(default_code(&mut world, concern), expected, "{version:?}");
        }
        assert_eq!(concern_code(&mut world, primary, 1), None, "one that says it is content");
        let connection = world.connect(primary);
        let in_transaction = with(&rawdoc! { "txnNumber": 1_i64, "autocommit": false });
        let reply = world.ask(connection, &in_transaction);
        assert!(reply.get_document("writeConcernError").is_err(), "its commit would wait");
    }
}

/// The server's manual, "Implicit Default Write Concern": `w: 1` if members with data are no more
/// than a majority; so 6.0.5 does.
#[test]
fn a_set_that_cannot_lose_a_member_with_data_does_not_wait_for_a_majority_unasked() {
    let arbiters = |count: usize, with_data: usize| {
        let with_data = (0..with_data).map(|it| member(&format!("d{it}:1")));
        let arbiters = (0..count).map(|it| arbiter(&format!("a{it}:1")));
        with_data.chain(arbiters).collect::<Vec<_>>()
    };
    for (members, waits) in [
        (arbiters(1, 2), false),
        (arbiters(1, 3), false),
        (arbiters(1, 4), true),
        (arbiters(2, 3), false),
        (arbiters(0, 2), true),
    ] {
        let mut world = World::of(ServerVersion::V6_0, &members);
        let primary = world.primary().unwrap();
        let connection = world.connect(primary);
        let asked = rawdoc! { "getDefaultRWConcern": 1, "$db": "admin" };
        let default = world.ask(connection, &asked);
        assert_eq!(default.get_document("defaultWriteConcern").is_ok(), waits, "{members:?}");
        world.handle(Input::Cut { member: primary });
        let reply = world.ask(connection, &insert());
        assert_eq!(reply.get_document("writeConcernError").is_ok(), waits, "{members:?}");
    }
}

/// Server Write Commands, "maxWriteBatchSize": members say how many statements a write may have,
/// and refuse one more, whether they keep data or not.
#[test]
fn a_write_has_no_more_statements_than_its_member_says() {
    for keeps_data in [true, false] {
        let options = options(ServerVersion::V8_0).with_keeps_data(keeps_data);
        let mut world = World::new(options.with_max_write_batch_size(2));
        world.advance(SECOND);
        let primary = world.primary().unwrap();
        assert_eq!(world.hello(primary).get_i32("maxWriteBatchSize").unwrap(), 2);
        let connection = world.connect(primary);
        let mut code = |name: &CStr, field: &CStr, statement: &RawDocument, count| {
            let statements = std::iter::repeat_n(statement, count);
            let mut command = RawDocumentBuf::new();
            command.append(name, "x");
            command.append(field, RawArrayBuf::from_iter(statements));
            if name == cstr!("bulkWrite") {
                command
                    .append(cstr!("nsInfo"), RawArrayBuf::from_iter([rawdoc! { "ns": "test.x" }]));
            }
            command.append(cstr!("$db"), if name == cstr!("bulkWrite") { "admin" } else { "test" });
            world.ask(connection, &command).get_i32("code").unwrap_or_default()
        };
        let mut cases = vec![
            (cstr!("insert"), cstr!("documents"), rawdoc! {}),
            (cstr!("update"), cstr!("updates"), rawdoc! { "q": {}, "u": { "$set": { "a": 1 } } }),
            (cstr!("delete"), cstr!("deletes"), rawdoc! { "q": {}, "limit": 1 }),
        ];
        if keeps_data {
            let operation = rawdoc! { "insert": 0, "document": {} };
            cases.push((cstr!("bulkWrite"), cstr!("ops"), operation));
        }
        for (name, field, statement) in cases {
            let codes = [2, 3].map(|count| code(name, field, &statement, count));
            assert_eq!(codes, [0, 16], "{name:?}");
        }
    }
}
