//! Replies of members about their transactions and their oplog, as 6.0.27 gives them.

use bson::{Document, doc};
use sdam_core::bson;

use super::*;
use crate::ClusterOptions;
use crate::tests::options;

fn status(world: &mut World, connection: ConnectionId) -> Document {
    must(world, connection, doc! { "serverStatus": 1, "oplog": 1, "$db": "admin" })
}

/// The transactions that are open, as a tool asks for them.
fn open(world: &mut World, connection: ConnectionId) -> Vec<Document> {
    let pipeline = vec![
        doc! { "$currentOp": { "allUsers": true, "idleSessions": true } },
        doc! { "$match": { "active": false, "transaction": { "$exists": true } } },
        doc! { "$limit": 1000 },
        doc! { "$project": { "client": 1, "transaction": 1 } },
    ];
    let ask = doc! { "aggregate": 1, "pipeline": pipeline, "cursor": {}, "$db": "admin" };
    batch(&must(world, connection, ask))
}

#[test]
fn a_transaction_is_shown_with_its_client_and_its_times() {
    let (mut world, connection) = client();
    let address = "10.0.0.1:50000".parse().unwrap();
    world.handle(Input::Peer { connection, address });
    insert(&mut world, connection, vec![doc! { "_id": 1 }]);
    must(&mut world, connection, first(put(2), 1, 1));
    world.advance(2 * SECOND);
    must(&mut world, connection, within(put(3), 1, 1));
    world.advance(3 * SECOND);
    let another = world.connect(world.primary().unwrap());
    let shown = open(&mut world, another);
    assert_eq!(shown.len(), 1);
    assert_eq!(shown[0].get_str("client").ok(), Some("10.0.0.1:50000"));
    assert!(!shown[0].contains_key("desc"), "{shown:?}");
    let transaction = shown[0].get_document("transaction").unwrap();
    let times = ["timeOpenMicros", "timeInactiveMicros"];
    assert_eq!(times.map(|name| transaction.get_i64(name).unwrap()), [5_000_000, 3_000_000]);
}

#[test]
fn one_that_was_open_for_too_long_is_in_the_log() {
    let (mut world, connection) = client();
    let parameter =
        doc! { "getParameter": 1, "transactionLifetimeLimitSeconds": 1, "$db": "admin" };
    let limit = must(&mut world, connection, parameter);
    assert_eq!(limit.get_i32("transactionLifetimeLimitSeconds").ok(), Some(60));
    let log = |world: &mut World| {
        let log = must(world, connection, doc! { "getLog": "global", "$db": "admin" });
        let lines = log.get_array("log").unwrap().clone();
        assert_eq!(
            log.get_i32("totalLinesWritten").ok(),
            Some(i32::try_from(lines.len()).unwrap())
        );
        lines.iter().map(|it| it.as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    insert(&mut world, connection, vec![doc! { "_id": 1 }]);
    must(&mut world, connection, first(put(2), 1, 7));
    world.advance(59 * SECOND);
    assert_eq!(log(&mut world), [""; 0]);
    world.advance(SECOND);
    let lines = log(&mut world);
    assert_eq!(lines.len(), 1);
    for part in [r#""id":20707"#, r#""attr":{"txnNumber":7}"#] {
        assert!(lines[0].contains(part), "{lines:?}");
    }
    assert!(lines[0].contains("longer than 'transactionLifetimeLimitSeconds'"), "{lines:?}");
}

#[test]
fn commands_that_fail_and_writes_that_wait_are_counted() {
    let (mut world, connection) = client();
    insert(&mut world, connection, vec![doc! { "_id": 1 }]);
    must(&mut world, connection, first(set(1, 1), 1, 1));
    assert_eq!(code(&ask(&mut world, connection, first(set(1, 2), 2, 1))), 112);
    assert_eq!(code(&ask(&mut world, connection, within(commit(), 3, 1))), 251);
    let waiting = world.connect(world.primary().unwrap());
    send(&mut world, waiting, &set(1, 3));
    must(&mut world, connection, within(commit(), 1, 1));
    let status = status(&mut world, connection);
    let metrics = status.get_document("metrics").unwrap();
    let commands = metrics.get_document("commands").unwrap();
    let counts = |name: &str| {
        let counts = commands.get_document(name).unwrap();
        ["failed", "total"].map(|field| counts.get_i64(field).unwrap())
    };
    assert_eq!(counts("update"), [1, 3]);
    assert_eq!(counts("commitTransaction"), [1, 2]);
    let operation = metrics.get_document("operation").unwrap();
    assert_eq!(operation.get_i64("writeConflicts").ok(), Some(1));
}

#[test]
fn the_oplog_is_as_long_as_its_entries() {
    let options = ClusterOptions { keeps_data: true, ..options(ServerVersion::V6_0) };
    let mut world = World::new(options.with_oplog_entries(500));
    world.advance(SECOND);
    let connection = world.connect(world.primary().unwrap());
    let stats = |world: &mut World| {
        let stats = must(world, connection, doc! { "collStats": "oplog.rs", "$db": "local" });
        (stats.get_i32("size").unwrap(), stats.get_i32("maxSize").unwrap())
    };
    insert(&mut world, connection, vec![doc! { "_id": 1 }]);
    let (before, most) = stats(&mut world);
    let window = |world: &mut World| {
        let status = status(world, connection);
        let oplog = status.get_document("oplog").unwrap();
        let time = |name| oplog.get_timestamp(name).unwrap().time;
        time("latestOptime") - time("earliestOptime")
    };
    let first = window(&mut world);
    world.advance(5 * SECOND);
    must(&mut world, connection, put(2));
    assert_eq!(window(&mut world), first + 5);
    assert!(stats(&mut world).0 > before);
    for id in 3..600 {
        must(&mut world, connection, put(id));
    }
    assert_eq!(stats(&mut world).0, most, "it is full");
    assert_eq!(window(&mut world), 0, "and has forgotten what was five seconds ago");
}
