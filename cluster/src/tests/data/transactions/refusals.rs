//! Commands that are refused, and whether that ends the transaction.

use super::*;

/// Each of these leaves the transaction as it was.
#[test]
fn a_command_that_may_not_be_in_a_transaction_is_refused() {
    let (mut world, connection) = keeping(ServerVersion::V6_0);
    insert(&mut world, connection, vec![doc! { "_id": 1 }]);
    must(&mut world, connection, first(find(), 1, 1));
    let with = |mut command: Document, fields: Document| {
        command.extend(fields);
        command
    };
    let level = |level: &str| doc! { "readConcern": { "level": level } };
    let refused = [
        (doc! { "count": "x" }, 263),
        (doc! { "listCollections": 1 }, 263),
        (doc! { "listIndexes": "x" }, 263),
        (doc! { "drop": "x" }, 263),
        (doc! { "dropDatabase": 1 }, 263),
        (doc! { "collMod": "x" }, 263),
        (doc! { "explain": { "find": "x" } }, 263),
        (doc! { "ping": 1 }, 263),
        (doc! { "renameCollection": "test.x", "to": "test.y", "$db": "admin" }, 263),
        (doc! { "find": "x", "$db": "local" }, 263),
        (doc! { "find": "x", "$db": "config" }, 263),
        (with(put(2), doc! { "writeConcern": { "w": 1 } }), 72),
        (with(find(), level("local")), 72),
        (with(put(2), level("snapshot")), 72),
        (with(commit(), level("majority")), 72),
        (doc! { "abortTransaction": 1, "startTransaction": true }, 263),
        (doc! { "commitTransaction": 1, "startTransaction": true }, 263),
    ];
    for (command, code) in refused {
        fails(&mut world, connection, within(command, 1, 1), code, &[]);
        must(&mut world, connection, within(find(), 1, 1));
    }
    let count = ask(&mut world, connection, within(doc! { "count": "x" }, 1, 1));
    let message = count.get_str("errmsg").unwrap();
    assert!(message.starts_with("Cannot run 'count' in a multi-document transaction."));
}

/// Each of these aborts it.
#[test]
fn a_command_that_wants_too_much_aborts_the_transaction() {
    let (mut world, connection) = keeping(ServerVersion::V6_0);
    insert(&mut world, connection, vec![doc! { "_id": 1 }]);
    must(&mut world, connection, doc! { "create": "capped", "capped": true, "size": 4096 });
    let stage = |stage: Document| doc! { "aggregate": "x", "pipeline": [stage], "cursor": {} };
    let index = doc! { "key": { "a": 1 }, "name": "a" };
    let commands = [
        (stage(doc! { "$out": "y" }), 263),
        (stage(doc! { "$merge": "y" }), 263),
        (stage(doc! { "$collStats": {} }), 263),
        (doc! { "aggregate": "x", "pipeline": [], "explain": true }, 263),
        (doc! { "create": "x" }, 48),
        (doc! { "createIndexes": "x", "indexes": [index] }, 263),
        (doc! { "find": "capped", "tailable": true }, 72),
        (doc! { "find": "x", "nonsense": 1 }, 40415),
        (doc! { "getMore": 7_i64, "collection": "x" }, 43),
        (doc! { "insert": "system.js", "documents": [{}] }, 50791),
    ];
    for (number, (command, code)) in (1..).zip(commands) {
        must(&mut world, connection, first(find(), 1, number));
        fails(&mut world, connection, within(command, 1, number), code, &[]);
        fails(&mut world, connection, within(find(), 1, number), 251, &[TRANSIENT]);
    }
    let capped = doc! { "insert": "capped", "documents": [{}] };
    let reply = ask(&mut world, connection, first(capped, 2, 1));
    let failed = reply.get_array("writeErrors").unwrap()[0].as_document().unwrap();
    assert_eq!(code(failed), 263);
    fails(&mut world, connection, within(find(), 2, 1), 251, &[TRANSIENT]);
}

/// 4.2.6: collections cannot be created in a transaction, by whatever means.
#[test]
fn before_4_4_no_collection_is_created() {
    let (mut world, connection) = keeping(ServerVersion::V4_2);
    for command in [doc! { "create": "y" }, doc! { "find": "x", "$db": "admin" }] {
        fails(&mut world, connection, first(command, 1, 1), 263, &[]);
    }
    let reply = ask(&mut world, connection, first(put(1), 1, 1));
    let failed = reply.get_array("writeErrors").unwrap()[0].as_document().unwrap();
    assert_eq!(code(failed), 263);
    assert!(all(&mut world, connection).is_empty());
}

#[test]
fn only_its_first_command_may_have_a_read_concern_and_not_any() {
    let (mut world, connection) = client();
    insert(&mut world, connection, vec![doc! { "_id": 1 }]);
    let levels = [
        ("local", 0),
        ("majority", 0),
        ("snapshot", 0),
        ("linearizable", 72),
        ("available", 72),
        ("nonsense", 9),
    ];
    for (number, (level, expected)) in (1..).zip(levels) {
        for command in [find(), set(1, 1)] {
            let mut begin = first(command, 1, number);
            begin.insert("readConcern", doc! { "level": level });
            fails(&mut world, connection, begin, expected, &[]);
            ask(&mut world, connection, within(abort(), 1, number));
            must(&mut world, connection, doc! { "killAllSessions": [], "$db": "admin" });
            if expected == 0 {
                break;
            }
        }
    }
}

/// The fields are checked before anything else, on 4.2.6 and 6.0.27.
#[test]
fn fields_that_do_not_fit_together_are_refused() {
    let (mut world, connection) = client();
    let id = session(1);
    let cases = [
        (doc! { "lsid": id.clone(), "txnNumber": 1_i64, "autocommit": true }, 72),
        (doc! { "lsid": id.clone(), "autocommit": false }, 72),
        (doc! { "txnNumber": 1_i64, "autocommit": false }, 72),
        (doc! { "lsid": id.clone(), "txnNumber": 1_i64, "startTransaction": true }, 72),
        (doc! { "lsid": id.clone(), "startTransaction": true }, 72),
        (doc! { "lsid": id.clone(), "txnNumber": 1, "autocommit": false }, 14),
        (doc! { "lsid": id.clone(), "txnNumber": -1_i64, "autocommit": false }, 72),
        (doc! { "lsid": id.clone(), "txnNumber": 1_i64 }, 50768),
    ];
    for (fields, expected) in cases {
        let mut command = find();
        command.extend(fields);
        fails(&mut world, connection, command, expected, &[]);
    }
    let mut begin = within(find(), 1, 1);
    begin.insert("startTransaction", false);
    fails(&mut world, connection, begin, 72, &[]);
    let ping = doc! { "ping": 1, "lsid": id.clone(), "txnNumber": 1_i64 };
    fails(&mut world, connection, ping, 50889, &[]);
    for name in ["commitTransaction", "abortTransaction"] {
        fails(&mut world, connection, doc! { name: 1, "$db": "admin" }, 125, &[]);
        let mut on_test = within(doc! { name: 1 }, 1, 1);
        on_test.insert("$db", "test");
        fails(&mut world, connection, on_test, 13, &[]);
    }
}

/// A server of its own has no transactions.
#[test]
fn a_standalone_server_refuses_transactions() {
    let deployment = Deployment::Standalone;
    let members = options(ServerVersion::V6_0).members[..1].to_vec();
    let options =
        ClusterOptions { keeps_data: true, deployment, members, ..options(ServerVersion::V6_0) };
    let mut world = World::new(options);
    world.advance(SECOND);
    let connection = world.connect(MemberId(0));
    for command in [first(find(), 1, 1), within(commit(), 1, 1)] {
        fails(&mut world, connection, command, 20, &[]);
    }
}
