//! Secondaries have what the primary writes, write concerns wait for them, and what a majority has
//! never seen is lost.

use std::time::Duration;

use bson::doc;
use sdam_core::bson;

use super::{all, another, answer, ask, batch, client, insert, must, send};
use crate::tests::{SECOND, World, options};
use crate::{ClusterOptions, Input, MemberId, ServerVersion};

#[test]
fn every_member_has_what_was_written() {
    let (mut world, connection) = client();
    insert(&mut world, connection, vec![doc! { "_id": 1 }]);
    for member in (0..3).map(MemberId) {
        let connection = world.connect(member);
        assert_eq!(all(&mut world, connection), [doc! { "_id": 1 }]);
    }
    let secondary = world.secondary();
    let connection = world.connect(secondary);
    let write = ask(&mut world, connection, doc! { "insert": "x", "documents": [{}] });
    assert_eq!(super::code(&write), 10107);
}

#[test]
fn what_a_majority_never_saw_is_lost() {
    let (mut world, connection) = client();
    insert(&mut world, connection, vec![doc! { "_id": 1 }]);
    let old = world.primary().unwrap();
    world.handle(Input::Cut { member: old });
    let write = doc! { "insert": "x", "documents": [{ "_id": 2 }], "writeConcern": { "w": 1 } };
    must(&mut world, connection, write);
    let majority = doc! { "find": "x", "readConcern": { "level": "majority" } };
    assert_eq!(batch(&must(&mut world, connection, majority)), [doc! { "_id": 1 }]);
    world.advance(4 * SECOND);
    let new = world.primary().unwrap();
    assert_ne!(new, old);
    let other = world.connect(new);
    insert(&mut world, other, vec![doc! { "_id": 3 }]);
    let expected = [doc! { "_id": 1 }, doc! { "_id": 3 }];
    assert_eq!(all(&mut world, other), expected);
    let model = world.model.get();
    assert_eq!(model.documents(old, "test", "x").len(), 2);
    assert_eq!(model.committed_documents(old, "test", "x").len(), 1);
    let committed = model.log(old).into_iter().map(|it| it.committed).collect::<Vec<_>>();
    assert_eq!(committed, [true, true, false]);
    let lost = [doc! { "_id": 1 }, doc! { "_id": 2 }];
    assert_eq!(all(&mut world, connection), lost, "it has not heard of it yet");
    world.handle(Input::Heal { member: old });
    world.advance(SECOND);
    assert_eq!(all(&mut world, connection), expected);
}

/// Read and Write Concern: a write waits for the members that are to have it, or for `wtimeout`.
#[test]
fn a_write_waits_for_a_majority() {
    let (mut world, connection) = client();
    let old = world.primary().unwrap();
    world.handle(Input::Cut { member: old });
    let write = |limit: i32| {
        let concern = doc! { "w": "majority", "wtimeout": limit };
        doc! { "insert": "x", "documents": [{}], "writeConcern": concern }
    };
    send(&mut world, connection, &write(100));
    world.advance(Duration::from_millis(100));
    let reply = answer(&mut world, connection);
    assert_eq!(reply.get_i32("n").unwrap(), 1);
    assert_eq!(super::code(reply.get_document("writeConcernError").unwrap()), 64);
    send(&mut world, connection, &write(0));
    world.handle(Input::Heal { member: old });
    world.advance(SECOND);
    let reply = answer(&mut world, connection);
    assert!(!reply.contains_key("writeConcernError"), "{reply}");
    world.handle(Input::Cut { member: old });
    send(&mut world, connection, &write(0));
    world.advance(4 * SECOND);
    let reply = answer(&mut world, connection);
    assert_eq!(super::code(reply.get_document("writeConcernError").unwrap()), 189);
}

/// Read and Write Concern, "linearizable": a read waits until a majority confirms that its server
/// is the primary still, so that what it has seen is not lost.
#[test]
fn a_linearizable_read_is_confirmed_by_a_majority() {
    let (mut world, connection) = client();
    insert(&mut world, connection, vec![doc! { "_id": 1 }]);
    let read = |limit: i32| {
        let concern = doc! { "level": "linearizable" };
        doc! { "find": "x", "readConcern": concern, "maxTimeMS": limit }
    };
    assert_eq!(batch(&must(&mut world, connection, read(0))), [doc! { "_id": 1 }]);
    let secondary = world.secondary();
    let other = world.connect(secondary);
    assert_eq!(super::code(&ask(&mut world, other, read(0))), 10107);
    let old = world.primary().unwrap();
    world.handle(Input::Cut { member: old });
    let write = doc! { "insert": "x", "documents": [{ "_id": 2 }], "writeConcern": { "w": 1 } };
    must(&mut world, connection, write);
    send(&mut world, connection, &read(100));
    world.advance(Duration::from_millis(100));
    assert_eq!(super::code(&answer(&mut world, connection)), 50);
    send(&mut world, connection, &read(0));
    world.advance(4 * SECOND);
    assert_eq!(super::code(&answer(&mut world, connection)), 189);
}

/// A deployment whose secondaries lag behind, and a write that they do not have yet.
fn lagging() -> World {
    let lag = Duration::from_millis(50);
    let mut world = World::new(ClusterOptions {
        keeps_data: true,
        replication_lag: lag,
        ..options(ServerVersion::V6_0)
    });
    world.advance(SECOND);
    let connection = world.connect(world.primary().unwrap());
    let write = doc! { "insert": "x", "documents": [{ "_id": 1 }], "writeConcern": { "w": 1 } };
    must(&mut world, connection, write);
    world
}

#[test]
fn secondaries_may_lag_behind() {
    let mut world = lagging();
    let secondary = world.secondary();
    let connection = world.connect(secondary);
    assert!(all(&mut world, connection).is_empty());
    world.advance(Duration::from_millis(50));
    assert_eq!(all(&mut world, connection), [doc! { "_id": 1 }]);
    let primary = world.connect(world.primary().unwrap());
    let write = doc! { "insert": "x", "documents": [{}], "writeConcern": { "w": "majority" } };
    send(&mut world, primary, &write);
    world.advance(Duration::from_millis(50));
    assert_eq!(answer(&mut world, primary).get_i32("n").unwrap(), 1);
}

/// Causal Consistency: a read waits until the member has what it wants to see.
#[test]
fn a_read_waits_for_its_cluster_time() {
    let mut world = lagging();
    let primary = world.connect(world.primary().unwrap());
    let pong = world.ask(primary, &super::raw(doc! { "ping": 1 }));
    let time = pong.get_timestamp("operationTime").unwrap();
    let read = doc! {
        "find": "x", "readConcern": { "afterClusterTime": time },
        "$readPreference": { "mode": "secondary" },
    };
    let secondary = world.secondary();
    let connection = world.connect(secondary);
    send(&mut world, connection, &read);
    world.advance(Duration::from_millis(50));
    assert_eq!(batch(&answer(&mut world, connection)), [doc! { "_id": 1 }]);
    let mut limited = read;
    limited.insert("maxTimeMS", 10);
    let write = doc! { "insert": "x", "documents": [{}], "writeConcern": { "w": 1 } };
    must(&mut world, primary, write);
    let pong = world.ask(primary, &super::raw(doc! { "ping": 1 }));
    let time = pong.get_timestamp("operationTime").unwrap();
    limited.insert("readConcern", doc! { "afterClusterTime": time });
    send(&mut world, connection, &limited);
    world.advance(Duration::from_millis(10));
    assert_eq!(super::code(&answer(&mut world, connection)), 50);
}

/// Snapshot reads see one moment, whatever is written meanwhile.
#[test]
fn a_snapshot_stays_as_it_is() {
    let (mut world, connection) = client();
    insert(&mut world, connection, vec![doc! { "_id": 1 }]);
    let mut snapshot = doc! { "find": "x", "readConcern": { "level": "snapshot" } };
    let first = must(&mut world, connection, snapshot.clone());
    let time = first.get_document("cursor").unwrap().get_timestamp("atClusterTime").unwrap();
    insert(&mut world, connection, vec![doc! { "_id": 2 }]);
    snapshot.insert("readConcern", doc! { "level": "snapshot", "atClusterTime": time });
    assert_eq!(batch(&must(&mut world, connection, snapshot)), [doc! { "_id": 1 }]);
    assert_eq!(all(&mut world, connection).len(), 2);
}

#[test]
fn a_member_that_was_down_catches_up() {
    let (mut world, connection) = client();
    let down = another(&world, MemberId(9));
    world.handle(Input::Kill { member: down });
    for id in 0..1100 {
        insert(&mut world, connection, vec![doc! { "_id": id }]);
    }
    world.handle(Input::Start { member: down });
    world.advance(SECOND);
    let connection = world.connect(down);
    let count = doc! { "count": "x", "$readPreference": { "mode": "secondary" } };
    assert_eq!(must(&mut world, connection, count).get_i32("n").unwrap(), 1100);
}

/// Causal Consistency: a member that is cut off waits for what others have, though there is no
/// primary.
#[test]
fn a_read_waits_for_its_cluster_time_while_there_is_no_primary() {
    let (mut world, connection) = client();
    let (primary, behind) = (world.primary().unwrap(), world.secondary());
    world.handle(Input::Cut { member: behind });
    let concern = doc! { "w": "majority" };
    let write = doc! { "insert": "x", "documents": [{ "_id": 1 }], "writeConcern": concern };
    must(&mut world, connection, write);
    let pong = world.ask(connection, &super::raw(doc! { "ping": 1 }));
    let time = pong.get_timestamp("operationTime");
    world.handle(Input::Kill { member: primary });
    let read = doc! {
        "find": "x", "readConcern": { "afterClusterTime": time.unwrap() },
        "$readPreference": { "mode": "secondary" },
    };
    let connection = world.connect(behind);
    send(&mut world, connection, &read);
    world.advance(4 * SECOND);
    assert_eq!(world.model.get().primary(), None);
    world.handle(Input::Heal { member: behind });
    world.advance(4 * SECOND);
    assert_eq!(batch(&answer(&mut world, connection)), [doc! { "_id": 1 }]);
}
