//! Commit and abort, the log, and what becomes of transactions whose member does not stay primary.

use std::time::Duration;

use super::*;

#[test]
fn a_commit_is_answered_again_and_nothing_else_goes_on() {
    let (mut world, connection) = client();
    must(&mut world, connection, first(put(1), 1, 1));
    for _ in 0..2 {
        must(&mut world, connection, within(commit(), 1, 1));
    }
    fails(&mut world, connection, within(abort(), 1, 1), 256, &[]);
    fails(&mut world, connection, within(find(), 1, 1), 256, &[]);
    fails(&mut world, connection, first(find(), 1, 1), 117, &[]);
    must(&mut world, connection, first(find(), 1, 2));
    must(&mut world, connection, within(abort(), 1, 2));
    for command in [abort(), commit(), find()] {
        fails(&mut world, connection, within(command, 1, 2), 251, &[TRANSIENT]);
    }
    fails(&mut world, connection, first(find(), 1, 2), 117, &[]);
    for command in [abort(), commit(), find()] {
        fails(&mut world, connection, within(command.clone(), 1, 3), 251, &[TRANSIENT]);
        fails(&mut world, connection, within(command, 1, 1), 225, &[]);
    }
}

#[test]
fn a_transaction_is_one_entry_of_the_log() {
    let (mut world, connection) = client();
    must(&mut world, connection, first(put(1), 1, 7));
    must(&mut world, connection, within(put(2), 1, 7));
    must(&mut world, connection, within(set(1, 1), 1, 7));
    let primary = world.primary().unwrap();
    assert_eq!(world.model.get().log(primary).len(), 1, "with it, the primary has begun");
    must(&mut world, connection, within(commit(), 1, 7));
    for member in [primary, another(&world, primary)] {
        let log = world.model.get().log(member);
        assert_eq!(log.len(), 2);
        assert_eq!((log[1].session.clone(), log[1].documents), (Some((vec![1; 16], 7)), 3));
    }
    must(&mut world, connection, first(find(), 1, 8));
    must(&mut world, connection, within(commit(), 1, 8));
    assert_eq!(world.model.get().log(primary).len(), 2, "it has only read");
}

/// The session record of the log says that it was committed.
#[test]
fn another_primary_knows_what_was_committed_and_has_lost_what_was_open() {
    let (mut world, connection) = client();
    must(&mut world, connection, first(put(1), 1, 1));
    must(&mut world, connection, within(commit(), 1, 1));
    must(&mut world, connection, first(put(2), 2, 1));
    let old = world.primary().unwrap();
    world.handle(Input::Kill { member: old });
    world.advance(4 * SECOND);
    let connection = world.connect(world.primary().unwrap());
    must(&mut world, connection, within(commit(), 1, 1));
    fails(&mut world, connection, within(abort(), 1, 1), 256, &[]);
    fails(&mut world, connection, within(commit(), 2, 1), 251, &[TRANSIENT]);
    assert_eq!(all(&mut world, connection), [doc! { "_id": 1 }]);
}

#[test]
fn who_steps_down_aborts_what_is_open() {
    let (mut world, connection) = client();
    must(&mut world, connection, first(put(1), 1, 1));
    let old = world.primary().unwrap();
    world.handle(Input::StepDown { member: old });
    fails(&mut world, connection, within(find(), 1, 1), 13435, &[TRANSIENT]);
    fails(&mut world, connection, within(put(2), 1, 1), 10107, &[TRANSIENT]);
    fails(&mut world, connection, within(commit(), 1, 1), 10107, &["RetryableWriteError"]);
    world.advance(SECOND);
    let secondary = world.connect(old);
    let mut read = first(find(), 1, 2);
    read.insert("$readPreference", doc! { "mode": "secondary" });
    fails(&mut world, secondary, read, 10107, &[TRANSIENT]);
}

#[test]
fn what_a_majority_never_saw_is_rolled_back_as_a_whole() {
    let (mut world, connection) = client();
    let old = world.primary().unwrap();
    insert(&mut world, connection, vec![doc! { "_id": 1 }]);
    world.handle(Input::Cut { member: old });
    must(&mut world, connection, first(put(2), 1, 1));
    must(&mut world, connection, within(set(1, 1), 1, 1));
    let mut commit = within(commit(), 1, 1);
    commit.insert("writeConcern", doc! { "w": 1 });
    must(&mut world, connection, commit.clone());
    assert_eq!(all(&mut world, connection).len(), 2);
    world.advance(4 * SECOND);
    world.handle(Input::Heal { member: old });
    world.advance(SECOND);
    let connection = world.connect(old);
    assert_eq!(all(&mut world, connection), [doc! { "_id": 1 }]);
    let connection = world.connect(world.primary().unwrap());
    fails(&mut world, connection, commit.clone(), 251, &[TRANSIENT]);
    while world.primary() != Some(old) {
        let member = world.primary().unwrap();
        world.handle(Input::StepDown { member });
        world.advance(SECOND);
    }
    let connection = world.connect(old);
    fails(&mut world, connection, commit, 251, &[TRANSIENT]);
}

/// Transactions, "Commit": the write concern is that of the commit; without one, since 5.0, it is
/// that of all writes.
#[test]
fn a_commit_waits_for_its_write_concern() {
    for version in [ServerVersion::V4_4, ServerVersion::V5_0] {
        let (mut world, connection) = keeping(version);
        let primary = world.primary().unwrap();
        world.handle(Input::Cut { member: primary });
        must(&mut world, connection, first(put(1), 1, 1));
        let mut limited = within(commit(), 1, 1);
        limited.insert("writeConcern", doc! { "w": "majority", "wtimeout": 100 });
        send(&mut world, connection, &limited);
        world.advance(Duration::from_millis(100));
        let reply = answer(&mut world, connection);
        assert_eq!(code(reply.get_document("writeConcernError").unwrap()), 64);
        assert_eq!(reply.get_f64("ok").unwrap(), 1.0);
        let implied = within(commit(), 1, 1);
        match version.has_majority_by_default() {
            true => send(&mut world, connection, &implied),
            false => drop(must(&mut world, connection, implied)),
        }
    }
}

/// As 4.4.2 and 6.0.27 do: a primary that has lost the others cannot say that a transaction was not
/// committed, and leaves the label away (Transactions, "UnknownTransactionCommitResult").
#[test]
fn that_there_is_no_transaction_is_for_a_majority_to_say() {
    for version in [ServerVersion::V4_4, ServerVersion::V6_0] {
        let (mut world, connection) = keeping(version);
        let primary = world.primary().unwrap();
        let with = |concern: Document| {
            let mut commit = within(commit(), 1, 1);
            commit.insert("writeConcern", concern);
            commit
        };
        let majority = with(doc! { "w": "majority", "wtimeout": 100 });
        fails(&mut world, connection, majority.clone(), 251, &[TRANSIENT]);
        assert_eq!(world.model.get().log(primary).len(), 2, "others are to have an entry");
        fails(&mut world, connection, within(commit(), 1, 1), 251, &[TRANSIENT]);
        let count = 2 + usize::from(version.has_majority_by_default());
        assert_eq!(world.model.get().log(primary).len(), count, "{version:?}");
        world.handle(Input::Cut { member: primary });
        fails(&mut world, connection, with(doc! { "w": 1 }), 251, &[TRANSIENT]);
        send(&mut world, connection, &majority);
        world.advance(Duration::from_millis(100));
        let reply = answer(&mut world, connection);
        assert_eq!(error(&reply), (251, Vec::new()));
        assert_eq!(code(reply.get_document("writeConcernError").unwrap()), 64);
    }
}

#[test]
fn a_transaction_is_aborted_after_its_lifetime() {
    let (mut world, connection) = client();
    must(&mut world, connection, first(put(1), 1, 1));
    let writer = world.connect(world.primary().unwrap());
    world.advance(59 * SECOND);
    must(&mut world, connection, within(find(), 1, 1));
    insert(&mut world, connection, vec![doc! { "_id": 2 }]);
    send(&mut world, writer, &doc! { "insert": "x", "documents": [{ "_id": 1 }] });
    world.advance(SECOND);
    fails(&mut world, connection, within(find(), 1, 1), 251, &[TRANSIENT]);
    assert_eq!(answer(&mut world, writer).get_i32("n").unwrap(), 1);
}

#[test]
fn no_more_transactions_may_be_open_than_the_limit() {
    let (mut world, connection) = client();
    must(&mut world, connection, doc! { "create": "x" });
    let begin = |session: usize| {
        let mut command = first(find(), 1, 1);
        let bytes = [session.to_be_bytes(), [0; 8]].concat();
        let id = Binary { subtype: BinarySubtype::Uuid, bytes };
        command.insert("lsid", doc! { "id": id });
        command
    };
    for session in 0..crate::store::MAX_OPEN {
        must(&mut world, connection, begin(session));
    }
    fails(&mut world, connection, begin(crate::store::MAX_OPEN), 261, &[]);
    let mut end = begin(0);
    end.remove("startTransaction");
    end.remove("find");
    let mut commit = doc! { "commitTransaction": 1, "$db": "admin" };
    commit.extend(end);
    must(&mut world, connection, commit);
    must(&mut world, connection, begin(crate::store::MAX_OPEN));
}

#[test]
fn sessions_that_are_killed_abort_their_transactions() {
    let (mut world, connection) = client();
    let kills = [
        (doc! { "endSessions": [session(1)] }, true),
        (doc! { "refreshSessions": [session(1)] }, true),
        (doc! { "killSessions": [session(2)] }, true),
        (doc! { "killSessions": [session(1)] }, false),
        (doc! { "killAllSessions": [] }, false),
    ];
    for (number, (mut kill, lives)) in (1..).zip(kills) {
        must(&mut world, connection, first(put(1), 1, number));
        kill.insert("$db", "admin");
        must(&mut world, connection, kill);
        match lives {
            true => drop(must(&mut world, connection, within(find(), 1, number))),
            false => fails(&mut world, connection, within(find(), 1, number), 251, &[TRANSIENT]),
        }
    }
}

/// As 4.2.6, 4.4.2 and 6.0.27 do: a fail point strikes before the transaction is looked at.
#[test]
fn a_fail_point_leaves_the_transaction_as_it_was() {
    let (mut world, connection) = client();
    must(&mut world, connection, first(put(1), 1, 1));
    let fail = |name: &str, data: Document| {
        let mut all = doc! { "failCommands": [name] };
        all.extend(data);
        doc! {
            "configureFailPoint": "failCommand", "mode": { "times": 1 }, "data": all,
            "$db": "admin",
        }
    };
    must(&mut world, connection, fail("find", doc! { "errorCode": 91 }));
    fails(&mut world, connection, within(find(), 1, 1), 91, &[TRANSIENT]);
    must(&mut world, connection, within(find(), 1, 1));
    must(&mut world, connection, fail("commitTransaction", doc! { "errorCode": 91 }));
    fails(&mut world, connection, within(commit(), 1, 1), 91, &["RetryableWriteError"]);
    must(&mut world, connection, within(find(), 1, 1));
    for (data, expected) in [
        (doc! { "errorCode": 91, "errorLabels": ["Own"] }, (91, vec!["Own"])),
        (doc! { "errorCode": 24 }, (24, vec![TRANSIENT])),
        (doc! { "errorCode": 251, "errorLabels": [] }, (251, vec![])),
    ] {
        must(&mut world, connection, fail("commitTransaction", data));
        fails(&mut world, connection, within(commit(), 1, 1), expected.0, &expected.1);
    }
    for (code, labels) in [(64, None), (91, Some("RetryableWriteError"))] {
        let concern = doc! { "code": code, "errmsg": "as wanted" };
        let point = fail("commitTransaction", doc! { "writeConcernError": concern });
        must(&mut world, connection, point);
        let reply = must(&mut world, connection, within(commit(), 1, 1));
        assert_eq!(super::super::code(reply.get_document("writeConcernError").unwrap()), code);
        assert_eq!(error(&reply).1, labels.into_iter().collect::<Vec<_>>());
    }
}
