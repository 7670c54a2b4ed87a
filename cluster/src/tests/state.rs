//! The model's state is what a client reads in its replies.

use sdam_core::description::ServerType;

use super::{Input, MemberId, SECOND, ServerVersion, World, addresses, arbiter, hidden, member};
use crate::{Change, ClusterOptions, Deployment};

fn types(world: &World) -> Vec<ServerType> {
    world.model.get().state(None).members.values().map(|it| it.server_type).collect()
}

#[test]
fn the_state_is_what_a_client_should_see_of_each_member() {
    use ServerType::{RsArbiter, RsGhost, RsOther, RsPrimary, RsSecondary, Unknown};
    let members = [member("a:1"), hidden("b:2"), arbiter("c:3")];
    let mut world = World::of(ServerVersion::V6_0, &members);
    world.reconfig(&[Change::Add(member("d:4"))]);
    assert_eq!(types(&world), [RsPrimary, RsOther, RsArbiter, RsGhost]);
    world.advance(SECOND);
    assert_eq!(types(&world)[3], RsOther, "it syncs");
    world.advance(2 * SECOND);
    assert_eq!(types(&world)[3], RsSecondary);
    world.reconfig(&[Change::Remove(MemberId(1))]);
    world.advance(SECOND);
    assert_eq!(types(&world)[1], RsGhost);
    world.handle(Input::Kill { member: MemberId(1) });
    world.handle(Input::Freeze { member: MemberId(2) });
    world.handle(Input::Shutdown { member: MemberId(3) });
    assert_eq!(types(&world), [RsPrimary, Unknown, Unknown, Unknown]);
}

#[test]
fn names_versions_elections_and_addresses_are_those_of_the_replies() {
    let members = [member("a:1"), hidden("b:2"), arbiter("c:3")];
    let mut world = World::of(ServerVersion::V8_0, &members);
    let state = world.model.get().state(None);
    let known: Vec<String> = state.known.iter().map(ToString::to_string).collect();
    assert_eq!(known, ["a:1", "c:3"]);
    for (id, said) in &state.members {
        let reply = world.hello(*id);
        assert_eq!(said.address.to_string(), reply.get_str("me").unwrap());
        assert_eq!(said.set_name.as_deref(), reply.get_str("setName").ok());
        assert_eq!(said.set_version, reply.get_i32("setVersion").ok().map(i64::from));
        assert_eq!(said.election_id, reply.get_object_id("electionId").ok());
        let lists = ["hosts", "passives", "arbiters"].map(|list| addresses(&reply, list));
        assert_eq!(lists.concat().len(), said.named.len());
        let named = lists.concat().iter().map(|it| it.parse().unwrap()).collect();
        assert_eq!(said.named, named);
        assert_eq!(said.options.as_ref(), Some(&members[id.0]));
    }
}

#[test]
fn mongos_belong_to_no_set() {
    let deployment = Deployment::Sharded;
    let sharded = ClusterOptions { deployment, ..super::options(ServerVersion::V6_0) };
    let world = World::new(sharded);
    let state = world.model.get().state(None);
    assert_eq!(state.known.len(), 3);
    for said in state.members.values() {
        assert_eq!((said.server_type, &said.set_name), (ServerType::Mongos, &None));
        assert!(said.named.is_empty());
    }
}
