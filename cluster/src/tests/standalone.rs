//! A server of its own.

use bson::{Timestamp, rawdoc};
use sdam_core::bson;
use sdam_core::description::ServerType;

use super::{Input, MemberId, SECOND, ServerVersion, World, options};
use crate::{Cluster, Deployment, OptionsError};

fn world() -> World {
    let mut options = options(ServerVersion::V6_0).with_deployment(Deployment::Standalone);
    options.members.truncate(1);
    World::new(options.with_keeps_data(true))
}

#[test]
fn it_is_writable_at_once_and_knows_of_no_set_and_no_cluster_time() {
    let mut world = world();
    world.advance(60 * SECOND);
    assert_eq!(world.primary(), None);
    world.handle(Input::StepDown { member: MemberId(0) });
    let reply = world.hello(MemberId(0));
    assert!(reply.get_bool("isWritablePrimary").unwrap());
    for field in ["msg", "setName", "hosts", "secondary", "lastWrite", "isreplicaset"] {
        assert!(reply.get(field).unwrap().is_none(), "{field}");
    }
    let connection = world.connect(MemberId(0));
    let insert = rawdoc! { "insert": "things", "documents": [{ "_id": 1 }], "$db": "test" };
    let reply = world.ask(connection, &insert);
    assert_eq!(reply.get_i32("n").unwrap(), 1);
    for field in ["operationTime", "$clusterTime"] {
        assert!(reply.get(field).unwrap().is_none(), "{field}");
    }
    let count = rawdoc! { "count": "things", "$db": "test" };
    assert_eq!(world.ask(connection, &count).get_i32("n").unwrap(), 1);
    assert_eq!(
        world.model.get().state(None).members[&MemberId(0)].server_type,
        ServerType::Standalone
    );
}

/// With the codes of 6.0.27.
#[test]
fn what_takes_a_replica_set_is_refused() {
    let mut world = world();
    let connection = world.connect(MemberId(0));
    let time = Timestamp { time: 1, increment: 1 };
    for (command, code) in [
        (rawdoc! { "insert": "a", "documents": [{}], "txnNumber": 1_i64, "$db": "test" }, 20),
        (
            rawdoc! { "insert": "a", "documents": [{}], "writeConcern": { "w": 2 }, "$db": "test" },
            2,
        ),
        (rawdoc! { "find": "a", "readConcern": { "level": "snapshot" }, "$db": "test" }, 123),
        (rawdoc! { "find": "a", "readConcern": { "level": "linearizable" }, "$db": "test" }, 123),
        (rawdoc! { "find": "a", "readConcern": { "afterClusterTime": time }, "$db": "test" }, 20),
        (rawdoc! { "replSetGetStatus": 1, "$db": "admin" }, 76),
        (rawdoc! { "replSetStepDown": 1, "$db": "admin" }, 76),
    ] {
        let reply = world.ask(connection, &command);
        assert_eq!(reply.get_i32("code").ok(), Some(code), "{command:?}: {reply:?}");
    }
    let read = rawdoc! { "find": "a", "readConcern": { "level": "majority" }, "$db": "test" };
    assert_eq!(world.ask(connection, &read).get_f64("ok").unwrap(), 1.0);
    let majority = rawdoc! { "w": "majority" };
    let insert =
        rawdoc! { "insert": "a", "documents": [{}], "writeConcern": majority, "$db": "test" };
    assert_eq!(world.ask(connection, &insert).get_f64("ok").unwrap(), 1.0);
}

#[test]
fn it_is_one_server() {
    let options = options(ServerVersion::V6_0).with_deployment(Deployment::Standalone);
    let refused = Cluster::new(options).err();
    assert_eq!(refused, Some(OptionsError::MemberCount { count: 3, most: 1 }));
}
