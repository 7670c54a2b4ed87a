//! "Updating the TopologyDescription": the cells of the TopologyType table, and the actions.

use bson::oid::ObjectId;
use bson::{RawDocumentBuf, cstr, rawdoc};
use sdam_core::failure::Cause;

use super::fixture::{Fixture, fresh, member, mongos, ms, ok, primary, secondary, standalone};

const HOSTS: [&str; 2] = ["a", "b"];

fn ghost() -> RawDocumentBuf {
    let mut reply = ok();
    reply.append(cstr!("isreplicaset"), true);
    reply
}

fn arbiter(me: &str) -> RawDocumentBuf {
    let mut reply = member(me, &HOSTS);
    reply.append(cstr!("arbiterOnly"), true);
    reply
}

fn other(me: &str) -> RawDocumentBuf {
    let mut reply = member(me, &HOSTS);
    reply.append(cstr!("hidden"), true);
    reply.append(cstr!("secondary"), true);
    reply
}

/// Returns the topology after `a` has answered, given how it got its type.
fn cell(uri: &str, before: &[(&str, RawDocumentBuf)], reply: &RawDocumentBuf) -> String {
    let mut fixture = Fixture::new(uri);
    for (link, reply) in before {
        fixture.greet(link, reply);
    }
    fixture.greet("a.0", reply);
    fixture.summary()
}

#[test]
fn topology_type_unknown_with_each_server_type() {
    let cell = |reply| cell("mongodb://a,b", &[], &reply);
    assert_eq!(cell(rawdoc! { "ok": 0 }), "Unknown a=Unknown b=Unknown");
    assert_eq!(cell(standalone()), "Unknown b=Unknown");
    assert_eq!(cell(mongos()), "Sharded a=Mongos b=Unknown");
    assert_eq!(cell(primary("a", &HOSTS, 1)), "ReplicaSetWithPrimary a=RSPrimary b=Unknown");
    assert_eq!(cell(secondary("a", &HOSTS)), "ReplicaSetNoPrimary a=RSSecondary b=Unknown");
    assert_eq!(cell(arbiter("a")), "ReplicaSetNoPrimary a=RSArbiter b=Unknown");
    assert_eq!(cell(other("a")), "ReplicaSetNoPrimary a=RSOther b=Unknown");
    assert_eq!(cell(ghost()), "Unknown a=RSGhost b=Unknown");
}

#[test]
fn topology_type_sharded_with_each_server_type() {
    let cell = |reply| cell("mongodb://a,b", &[("b.0", mongos())], &reply);
    assert_eq!(cell(rawdoc! { "ok": 0 }), "Sharded a=Unknown b=Mongos");
    assert_eq!(cell(mongos()), "Sharded a=Mongos b=Mongos");
    for reply in [
        standalone(),
        primary("a", &HOSTS, 1),
        secondary("a", &HOSTS),
        arbiter("a"),
        other("a"),
        ghost(),
    ] {
        assert_eq!(cell(reply), "Sharded b=Mongos");
    }
}

#[test]
fn topology_type_replica_set_no_primary_with_each_server_type() {
    let cell = |reply| cell("mongodb://a,b/?replicaSet=rs", &[], &reply);
    assert_eq!(cell(rawdoc! { "ok": 0 }), "ReplicaSetNoPrimary a=Unknown b=Unknown");
    assert_eq!(cell(standalone()), "ReplicaSetNoPrimary b=Unknown");
    assert_eq!(cell(mongos()), "ReplicaSetNoPrimary b=Unknown");
    assert_eq!(cell(primary("a", &HOSTS, 1)), "ReplicaSetWithPrimary a=RSPrimary b=Unknown");
    assert_eq!(cell(secondary("a", &HOSTS)), "ReplicaSetNoPrimary a=RSSecondary b=Unknown");
    assert_eq!(cell(arbiter("a")), "ReplicaSetNoPrimary a=RSArbiter b=Unknown");
    assert_eq!(cell(other("a")), "ReplicaSetNoPrimary a=RSOther b=Unknown");
    assert_eq!(cell(ghost()), "ReplicaSetNoPrimary a=RSGhost b=Unknown");
}

#[test]
fn topology_type_replica_set_with_primary_with_each_server_type() {
    let before = [("b.0", primary("b", &HOSTS, 1))];
    let cell = |reply| cell("mongodb://a,b", &before, &reply);
    assert_eq!(cell(rawdoc! { "ok": 0 }), "ReplicaSetWithPrimary a=Unknown b=RSPrimary");
    assert_eq!(cell(standalone()), "ReplicaSetWithPrimary b=RSPrimary");
    assert_eq!(cell(mongos()), "ReplicaSetWithPrimary b=RSPrimary");
    assert_eq!(cell(primary("a", &HOSTS, 2)), "ReplicaSetWithPrimary a=RSPrimary b=Unknown");
    assert_eq!(cell(secondary("a", &HOSTS)), "ReplicaSetWithPrimary a=RSSecondary b=RSPrimary");
    assert_eq!(cell(arbiter("a")), "ReplicaSetWithPrimary a=RSArbiter b=RSPrimary");
    assert_eq!(cell(other("a")), "ReplicaSetWithPrimary a=RSOther b=RSPrimary");
    assert_eq!(cell(ghost()), "ReplicaSetWithPrimary a=RSGhost b=RSPrimary");
}

#[test]
fn topology_type_single_keeps_whatever_its_server_is() {
    let cell = |reply| cell("mongodb://a/?directConnection=true", &[], &reply);
    assert_eq!(cell(rawdoc! { "ok": 0 }), "Single a=Unknown");
    assert_eq!(cell(mongos()), "Single a=Mongos");
    assert_eq!(cell(primary("x", &["x"], 1)), "Single a=RSPrimary");
    assert_eq!(cell(other("a")), "Single a=RSOther");
    assert_eq!(cell(ghost()), "Single a=RSGhost");
}

#[test]
fn initial_topology_type_depends_on_direct_connection_and_replica_set() {
    for (uri, expected) in [
        ("mongodb://a/?directConnection=true", "Single a=Unknown"),
        ("mongodb://a/?directConnection=true&replicaSet=rs", "Single a=Unknown"),
        ("mongodb://a/?directConnection=false", "Unknown a=Unknown"),
        ("mongodb://a/?directConnection=false&replicaSet=rs", "ReplicaSetNoPrimary a=Unknown"),
        ("mongodb://a", "Unknown a=Unknown"),
    ] {
        assert_eq!(Fixture::new(uri).summary(), expected, "{uri}");
    }
}

#[test]
fn update_unknown_with_standalone_makes_a_lone_seed_single() {
    assert_eq!(cell("mongodb://a", &[], &standalone()), "Single a=Standalone");
}

#[test]
fn verifying_set_name_with_topology_type_single_makes_a_wrong_name_unknown() {
    let uri = "mongodb://a/?directConnection=true&replicaSet=wanted";
    for (reply, said) in [
        (primary("a", &HOSTS, 1), "the server is in replica set \"rs\", not \"wanted\""),
        (standalone(), "the server is in no replica set, and \"wanted\" was asked for"),
    ] {
        let mut fixture = Fixture::new(uri);
        fixture.greet("a.0", &reply);
        assert_eq!(fixture.summary(), "Single a=Unknown");
        let server = fixture.server("a");
        assert_eq!(server.error.as_ref().unwrap().to_string(), said);
        assert_eq!(server.error.as_ref().unwrap().cause, Cause::WrongSetName);
    }
}

#[test]
fn members_of_another_set_are_removed() {
    let uri = "mongodb://a,b/?replicaSet=wanted";
    assert_eq!(cell(uri, &[], &secondary("a", &HOSTS)), "ReplicaSetNoPrimary b=Unknown");
    assert_eq!(cell(uri, &[], &primary("a", &HOSTS, 1)), "ReplicaSetNoPrimary b=Unknown");
}

#[test]
fn a_member_that_is_called_something_else_is_found_by_that_name() {
    let mut fixture = Fixture::new("mongodb://alias/?replicaSet=rs");
    fixture.greet("alias.0", &secondary("a", &HOSTS));
    assert_eq!(fixture.summary(), "ReplicaSetNoPrimary a=Unknown b=Unknown");
    let mut fixture = Fixture::new("mongodb://alias/?replicaSet=rs");
    fixture.greet("alias.0", &primary("a", &HOSTS, 1));
    assert_eq!(fixture.summary(), "ReplicaSetNoPrimary a=Unknown b=Unknown");
}

#[test]
fn a_hidden_seed_leads_to_the_set_and_is_removed_once_the_primary_is_known() {
    let mut fixture = Fixture::new("mongodb://hidden/?replicaSet=rs");
    let mut reply = member("hidden", &HOSTS);
    reply.append(cstr!("hidden"), true);
    fixture.greet("hidden.0", &reply);
    assert_eq!(fixture.summary(), "ReplicaSetNoPrimary a=Unknown b=Unknown hidden=RSOther");
    fixture.greet("a.0", &primary("a", &HOSTS, 1));
    assert_eq!(fixture.summary(), "ReplicaSetWithPrimary a=RSPrimary b=Unknown");
}

#[test]
fn a_newer_primary_makes_the_old_one_unknown_says_why_and_has_it_checked() {
    let mut fixture = Fixture::new("mongodb://a,b/?replicaSet=rs&serverMonitoringMode=poll");
    fixture.greet("a.0", &primary("a", &HOSTS, 1)).at(5000).quiet();
    fixture.greet("b.0", &primary("b", &HOSTS, 2));
    assert_eq!(fixture.summary(), "ReplicaSetWithPrimary a=Unknown b=RSPrimary");
    let error = fixture.server("a").error.clone().unwrap();
    assert!(error.to_string().contains("primary marked stale due to discovery of newer primary"));
    assert!(fixture.log().ends_with(&["started a".into(), "send a.0 hello".into()]));
}

/// A primary that reports this term and set version, and this maxWireVersion.
fn tuple(me: &str, term: Option<u8>, set_version: Option<i32>, wire: i32) -> RawDocumentBuf {
    let mut reply = rawdoc! {
        "ok": 1, "ismaster": true, "setName": "rs", "hosts": ["a:27017", "b:27017"],
        "me": format!("{me}:27017"), "maxWireVersion": wire,
    };
    if let Some(term) = term {
        reply.append(cstr!("electionId"), ObjectId::from_bytes([term; 12]));
    }
    if let Some(version) = set_version {
        reply.append(cstr!("setVersion"), version);
    }
    reply
}

/// Returns whether a primary with the second tuple is taken after one with the first.
fn accepted(
    first: (Option<u8>, Option<i32>),
    second: (Option<u8>, Option<i32>),
    wire: i32,
) -> bool {
    let mut fixture = Fixture::new("mongodb://a,b/?replicaSet=rs");
    fixture.greet("a.0", &tuple("a", first.0, first.1, wire));
    fixture.greet("b.0", &tuple("b", second.0, second.1, wire));
    let error = fixture.server("b").error.clone();
    let stale = "primary marked stale due to electionId/setVersion mismatch";
    if let Some(error) = error {
        assert!(error.to_string().contains(stale), "{error}");
        assert_eq!(fixture.summary(), "ReplicaSetWithPrimary a=RSPrimary b=Unknown");
        return false;
    }
    assert_eq!(fixture.summary(), "ReplicaSetWithPrimary a=Unknown b=RSPrimary");
    true
}

#[test]
fn stale_primaries_from_wire_version_17_the_election_id_comes_first() {
    let (one, two, none) = (Some(1_u8), Some(2_u8), None);
    assert!(accepted((one, Some(5)), (two, Some(1)), 17));
    assert!(!accepted((two, Some(1)), (one, Some(5)), 17));
    assert!(accepted((one, Some(1)), (one, Some(1)), 17));
    assert!(accepted((one, Some(1)), (one, Some(2)), 17));
    assert!(!accepted((one, Some(2)), (one, Some(1)), 17));
    assert!(!accepted((one, Some(1)), (none, Some(9)), 17), "null is less than anything");
    assert!(!accepted((one, Some(1)), (one, None), 17));
}

#[test]
fn stale_primaries_before_wire_version_17_the_set_version_comes_first() {
    let (one, two, none) = (Some(1_u8), Some(2_u8), None);
    assert!(!accepted((one, Some(5)), (two, Some(1)), 13));
    assert!(accepted((two, Some(1)), (one, Some(5)), 13));
    assert!(!accepted((two, Some(1)), (one, Some(1)), 13));
    assert!(accepted((one, Some(1)), (one, Some(1)), 13));
    assert!(accepted((one, Some(1)), (none, Some(1)), 13), "without an electionId it is believed");
    assert!(accepted((one, Some(1)), (one, None), 13));
}

#[test]
fn topology_version_a_staler_description_is_ignored_and_the_same_one_taken() {
    let mut fixture = Fixture::new("mongodb://a/?directConnection=true");
    fixture.greet("a.0", &fresh(standalone(), 5));
    fixture.stream("a.0", &fresh(mongos(), 4));
    assert_eq!(fixture.summary(), "Single a=Standalone");
    fixture.stream("a.0", &fresh(mongos(), 5));
    assert_eq!(fixture.summary(), "Single a=Mongos");
    let mut restarted = standalone();
    let process = ObjectId::from_bytes([8; 12]);
    restarted.append(cstr!("topologyVersion"), rawdoc! { "processId": process, "counter": 0_i64 });
    fixture.stream("a.0", &restarted);
    assert_eq!(fixture.summary(), "Single a=Standalone", "another process is always newer");
}

#[test]
fn checking_wire_protocol_compatibility_names_server_and_versions() {
    let reply = |min: i32, max: i32| {
        rawdoc! { "ok": 1, "ismaster": true, "minWireVersion": min, "maxWireVersion": max }
    };
    let incompatibility = |reply: &RawDocumentBuf| {
        let mut fixture = Fixture::new("mongodb://a");
        fixture.greet("a.0", reply);
        fixture.view().incompatibility.as_ref().map(ToString::to_string)
    };
    assert_eq!(incompatibility(&reply(0, 8)), None);
    assert_eq!(incompatibility(&reply(25, 99)), None);
    assert_eq!(
        incompatibility(&reply(26, 99)).unwrap(),
        "Server at a:27017 requires wire version 26, but this version of sdam only supports up to 25."
    );
    assert_eq!(
        incompatibility(&reply(0, 7)).unwrap(),
        "Server at a:27017 reports wire version 7, but this version of sdam requires at least 8 \
         (MongoDB 4.2)."
    );
}

#[test]
fn logical_session_timeout_is_the_smallest_of_data_bearing_servers_or_none() {
    let minutes = |reply: &mut RawDocumentBuf, minutes: i32| {
        reply.append(cstr!("logicalSessionTimeoutMinutes"), minutes);
    };
    let (mut a, mut b) = (primary("a", &HOSTS, 1), secondary("b", &HOSTS));
    minutes(&mut a, 30);
    let mut fixture = Fixture::new("mongodb://a,b/?replicaSet=rs&serverMonitoringMode=poll");
    fixture.greet("a.0", &a);
    assert_eq!(fixture.view().logical_session_timeout_minutes, Some(30));
    fixture.greet("b.0", &b);
    assert_eq!(fixture.view().logical_session_timeout_minutes, None);
    minutes(&mut b, 20);
    fixture.at(10_000).reply("b.0", &b);
    assert_eq!(fixture.view().logical_session_timeout_minutes, Some(20));
    fixture.reply("a.0", &a).at(20_000).reply("b.0", &arbiter("b"));
    assert_eq!(fixture.view().logical_session_timeout_minutes, Some(30), "arbiters do not count");
}

#[test]
fn load_balanced_servers_are_what_the_options_say_and_never_checked() {
    let mut fixture = Fixture::new("mongodb://a/?loadBalanced=true");
    assert_eq!(
        fixture.log(),
        [
            "topology opening",
            "publish LoadBalanced a=Unknown",
            "topology Unknown -> LoadBalanced a=Unknown",
            "opening a",
            "publish LoadBalanced a=LoadBalancer",
            "server a Unknown -> LoadBalancer",
            "topology LoadBalanced a=Unknown -> LoadBalanced a=LoadBalancer",
        ]
    );
    fixture.at(1_000_000);
    assert_eq!(fixture.log(), [""; 0]);
}

#[test]
fn events_of_a_reply_come_in_the_order_server_opening_closed_topology() {
    let mut fixture = Fixture::new("mongodb://x,b/?replicaSet=rs&serverMonitoringMode=poll");
    fixture.opened("b.0").quiet().reply("b.0", &primary("b", &HOSTS, 1));
    assert_eq!(
        fixture.events(),
        [
            "succeeded b 0ms",
            "server b Unknown -> RSPrimary",
            "opening a",
            "failed x: the server is no longer part of the deployment",
            "closed x",
            "topology ReplicaSetNoPrimary b=Unknown x=Unknown -> ReplicaSetWithPrimary a=Unknown b=RSPrimary",
            "started a",
        ]
    );
}

#[test]
fn equal_descriptions_are_published_but_are_no_news() {
    let mut fixture = Fixture::new("mongodb://a/?directConnection=true&serverMonitoringMode=poll");
    fixture.greet("a.0", &standalone()).at(10_000).quiet().at(10_003).reply("a.0", &standalone());
    assert_eq!(fixture.log(), ["succeeded a 3ms", "publish Single a=Standalone"]);
    assert_eq!(
        fixture.server("a").last_update_time.unwrap().since_origin(),
        super::fixture::ms(10_003)
    );
}

/// Server Monitoring, "minHeartbeatFrequencyMS", where a server leaves and comes back.
#[test]
fn names_that_are_crossed_bring_each_other_back_no_sooner_than_500_ms_after_their_checks() {
    let mut fixture = Fixture::new("mongodb://a,b/?replicaSet=rs");
    fixture.at(1).greet("a.0", &secondary("b", &["a", "b"]));
    assert!(fixture.view().server(&"a".parse().unwrap()).is_none(), "a is known as b");
    fixture.greet("b.0", &secondary("a", &["a", "b"]));
    assert!(fixture.view().server(&"a".parse().unwrap()).is_some(), "b has brought it back");
    let opened = |fixture: &mut Fixture| {
        fixture.log().into_iter().filter(|line| line.starts_with("open ")).collect::<Vec<_>>()
    };
    opened(&mut fixture);
    fixture.at(500);
    assert_eq!(opened(&mut fixture), [""; 0]);
    fixture.at(501);
    assert_eq!(opened(&mut fixture).len(), 1);
}

/// Server Selection: "When a server becomes unavailable, its average RTT MUST be cleared."
#[test]
fn the_first_round_trip_to_a_primary_that_a_newer_one_has_replaced_is_the_average_again() {
    let mut fixture = Fixture::new("mongodb://a,b/?replicaSet=rs");
    let hosts = ["a", "b"];
    fixture.opened("a.0").at(80).reply("a.0", &fresh(primary("a", &hosts, 1), 1));
    fixture.opened("a.1").at(160).reply("a.1", &primary("a", &hosts, 1));
    fixture.greet("b.0", &primary("b", &hosts, 2));
    assert_eq!(fixture.server("a").round_trip_time, None);
    fixture.at(10_160).at(10_170).reply("a.1", &secondary("a", &hosts));
    fixture.at(10_200).stream("a.0", &fresh(secondary("a", &hosts), 2));
    assert_eq!(fixture.server("a").round_trip_time, Some(ms(10)));
}

/// The same of one that is rejected itself.
#[test]
fn the_first_round_trip_to_a_primary_that_was_rejected_as_stale_is_the_average_again() {
    let mut fixture = Fixture::new("mongodb://a,b/?replicaSet=rs&serverMonitoringMode=poll");
    let hosts = ["a", "b"];
    fixture.opened("a.0").at(80).reply("a.0", &secondary("a", &hosts));
    fixture.greet("b.0", &primary("b", &hosts, 2));
    fixture.at(10_080).at(10_090).reply("a.0", &primary("a", &hosts, 1));
    assert_eq!(fixture.server("a").round_trip_time, None, "a stale primary");
    fixture.at(20_090).at(20_120).reply("a.0", &secondary("a", &hosts));
    assert_eq!(fixture.server("a").round_trip_time, Some(ms(30)));
}

/// A server that comes back in time keeps its 500 ms; what does not matter any more is forgotten.
#[test]
fn servers_that_have_left_are_remembered_for_500_ms_after_their_last_check() {
    let mut fixture = Fixture::new("mongodb://a,b,c,d/?replicaSet=rs");
    let credential_cache = |fixture: &Fixture| -> Vec<String> {
        let state = serde_json::to_value(fixture.topology.machine.get()).unwrap();
        let departed = state["departed"].as_object().unwrap();
        departed.keys().map(|address| address.split(':').next().unwrap().to_owned()).collect()
    };
    // None of them is a member of the set.
    for (at, name, expected) in [
        (1, "a", &["a"][..]),
        (100, "b", &["a", "b"]),
        (501, "c", &["b", "c"]),
        (5000, "d", &["d"]),
    ] {
        fixture.at(at).greet(&format!("{name}.0"), &standalone());
        assert_eq!(credential_cache(&fixture), expected, "at {at}");
    }
}

/// SDAM, "updateRSWithPrimaryFromMember": a member that is in another set, or known by another
/// name, is not the one that the primary lists.
#[test]
fn a_member_that_the_primary_lists_and_that_is_in_another_set_is_removed() {
    let hosts = ["a", "b"];
    let mut other = ok();
    other.append(cstr!("setName"), "other");
    other.append(cstr!("secondary"), true);
    other.append(cstr!("hosts"), bson::rawbson!(["a:27017", "b:27017"]));
    other.append(cstr!("maxWireVersion"), 17);
    for reply in [other, secondary("x", &hosts)] {
        let mut fixture = Fixture::new("mongodb://a/?replicaSet=rs");
        fixture.greet("a.0", &primary("a", &hosts, 1)).greet("b.0", &reply);
        assert_eq!(fixture.summary(), "ReplicaSetWithPrimary a=RSPrimary");
    }
}
