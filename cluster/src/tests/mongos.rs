//! Mongos, alone and behind a load balancer.

use bson::rawdoc;
use sdam_core::bson;

use super::{ClusterOptions, Input, MemberId, SECOND, ServerVersion, World, options};
use crate::Deployment;

fn world(deployment: Deployment) -> World {
    let mut world = World::new(ClusterOptions { deployment, ..options(ServerVersion::V6_0) });
    world.advance(60 * SECOND);
    world
}

#[test]
fn every_mongos_is_writable_and_knows_of_no_set() {
    let mut world = world(Deployment::Sharded);
    assert_eq!(world.primary(), None);
    world.handle(Input::StepDown { member: MemberId(0) });
    for member in (0..3).map(MemberId) {
        let reply = world.hello(member);
        assert_eq!(reply.get_str("msg").unwrap(), "isdbgrid");
        assert!(reply.get_bool("isWritablePrimary").unwrap());
        for field in ["setName", "hosts", "electionId", "secondary", "lastWrite", "serviceId"] {
            assert!(reply.get(field).unwrap().is_none(), "{field}");
        }
        let connection = world.connect(member);
        for command in ["insert", "find"] {
            let mut document = bson::RawDocumentBuf::new();
            document.append(<&bson::raw::CStr>::try_from(command).unwrap(), "things");
            document.append(bson::raw::cstr!("$db"), "test");
            assert_eq!(world.ask(connection, &document).get_f64("ok").unwrap(), 1.0);
        }
        let step_down = rawdoc! { "replSetStepDown": 1, "$db": "admin" };
        assert_eq!(world.ask(connection, &step_down).get_i32("code").unwrap(), 59);
    }
}

/// Load Balancers, "Connection Establishment": hello has `loadBalanced: true`, and its reply
/// `serviceId`.
#[test]
fn a_service_id_is_given_to_those_who_ask_and_differs_by_process() {
    let mut ids = std::collections::BTreeSet::new();
    let mut world = world(Deployment::LoadBalanced);
    let asked = rawdoc! { "hello": 1, "loadBalanced": true, "$db": "admin" };
    for member in (0..3).map(MemberId) {
        assert!(world.hello(member).get("serviceId").unwrap().is_none());
        for _ in 0..2 {
            let connection = world.connect(member);
            ids.insert(world.ask(connection, &asked).get_object_id("serviceId").unwrap());
        }
    }
    assert_eq!(ids.len(), 3);
    world.handle(Input::Kill { member: MemberId(0) });
    world.handle(Input::Start { member: MemberId(0) });
    let connection = world.connect(MemberId(0));
    assert!(ids.insert(world.ask(connection, &asked).get_object_id("serviceId").unwrap()));

    let mut plain = self::world(Deployment::Sharded);
    let connection = plain.connect(MemberId(0));
    assert!(plain.ask(connection, &asked).get("serviceId").unwrap().is_none());
}
