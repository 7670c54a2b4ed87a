//! A topology that has lost its last server begins again with its seeds, which no specification
//! asks for: SDAM calls the state of having no servers terminal ("Other TopologyTypes").

use std::sync::Arc;
use std::time::Duration;

use bson::oid::ObjectId;
use bson::{RawDocumentBuf, cstr};
use sdam_core::config::Options;
use sdam_core::diagnosis::{SelectionError, Verdict};
use sdam_core::dns::srv::{SrvRecord, complete};
use sdam_core::id::WaiterId;
use sdam_core::machine::Machine;
use sdam_core::selection::Criteria;
use sdam_core::time::Instant;
use sdam_core::topology::{Action, Input};

use super::fixture::{Fixture, mongos, ok, primary, secondary, standalone};
use super::single_threaded::{select, single, story};

const URI: &str = "mongodb://a/?replicaSet=rs&serverMonitoringMode=poll";

/// The primary of another replica set.
fn stranger() -> RawDocumentBuf {
    let mut reply = ok();
    reply.append(cstr!("setName"), "other");
    reply.append(cstr!("isWritablePrimary"), true);
    reply
}

/// A secondary that its own set knows by another name, and that names no other member.
fn renamed() -> RawDocumentBuf {
    secondary("b", &["a"])
}

/// A client that loses its only server at 10 ms.
fn emptied(reply: &RawDocumentBuf) -> Fixture {
    let mut fixture = Fixture::new(URI);
    fixture.at(10).greet("a.0", reply).quiet();
    fixture
}

fn wait(fixture: &mut Fixture, until: u64) {
    let (waiter, criteria) = (WaiterId(1), Arc::new(Criteria::write()));
    let deadline = Some(Instant::from_millis(until));
    fixture.input(Input::Wait { waiter, criteria, deadline });
}

/// Returns why an operation fails that cannot wait at all.
fn error(fixture: &mut Fixture) -> SelectionError {
    let (waiter, criteria) = (WaiterId(9), Arc::new(Criteria::write()));
    fixture.input(Input::Wait { waiter, criteria, deadline: Some(Instant::ZERO) });
    match fixture.topology.actions.last() {
        Some(Action::Wake { outcome: Err(error), .. }) => (**error).clone(),
        other => panic!("no refusal: {other:?}"),
    }
}

/// SDAM, "updateRSWithoutPrimary" and "Other TopologyTypes": right after the reply, as the official
/// suite has it.
#[test]
fn the_last_server_is_removed_like_any_other_and_leaves_an_empty_topology() {
    for reply in [stranger(), renamed(), mongos()] {
        let mut fixture = Fixture::new(URI);
        fixture.at(10).greet("a.0", &reply);
        assert_eq!(fixture.summary(), "ReplicaSetNoPrimary");
        assert_eq!(fixture.links(), [""; 0]);
        assert_eq!(fixture.at(10_009).summary(), "ReplicaSetNoPrimary", "for a heartbeat");
    }
}

#[test]
fn after_a_heartbeat_the_seeds_join_as_new_servers_with_the_usual_events() {
    let mut fixture = Fixture::new(URI);
    let first = fixture.server("a").id;
    fixture.at(10).greet("a.0", &renamed()).at(10_009).quiet();
    assert_eq!(fixture.topology.machine.get().deadline(), Some(Instant::from_millis(10_010)));
    let expected = [
        "publish ReplicaSetNoPrimary a=Unknown",
        "opening a",
        "topology ReplicaSetNoPrimary -> ReplicaSetNoPrimary a=Unknown",
        "started a",
        "open a.0",
    ];
    assert_eq!(sorted(fixture.at(10_010).log()), sorted(expected.map(str::to_owned).into()));
    assert!(fixture.server("a").id > first, "it is a new server");
    fixture.greet("a.0", &primary("a", &["a", "b"], 1));
    assert_eq!(fixture.summary(), "ReplicaSetWithPrimary a=RSPrimary b=Unknown", "all is well");
}

fn sorted(mut lines: Vec<String>) -> Vec<String> {
    lines.sort();
    lines
}

/// SDAM, "Using electionId and setVersion to detect stale primaries": what was the latest stays it.
#[test]
fn the_set_name_the_type_and_the_latest_election_are_kept() {
    let mut fixture = Fixture::new("mongodb://a,b/?serverMonitoringMode=poll");
    fixture.greet("a.0", &primary("a", &["a"], 7)).at(10_000);
    fixture.reply("a.0", &stranger());
    assert_eq!(fixture.summary(), "ReplicaSetNoPrimary");
    fixture.at(20_000);
    assert_eq!(fixture.summary(), "ReplicaSetNoPrimary a=Unknown b=Unknown");
    let view = fixture.view();
    assert_eq!(view.set_name.as_deref(), Some("rs"));
    assert_eq!(view.max_election_id, Some(ObjectId::from_bytes([7; 12])));
    assert_eq!(view.max_set_version, Some(1));
    let stale = primary("b", &["a", "b"], 6);
    let b = fixture.links().into_iter().find(|link| link.starts_with("b.")).unwrap();
    fixture.greet(&b, &stale);
    assert_eq!(fixture.summary(), "ReplicaSetNoPrimary a=Unknown b=Unknown", "a stale primary");
}

/// SDAM, "minHeartbeatFrequencyMS": as often as servers are checked while an operation waits.
#[test]
fn who_waits_for_a_server_has_the_seeds_asked_every_500_ms_and_no_more_often() {
    let mut fixture = emptied(&stranger());
    wait(&mut fixture, 60_000);
    for round in 1..20 {
        let begins = 10 + round * 510;
        fixture.at(begins - 11);
        assert_eq!(fixture.summary(), "ReplicaSetNoPrimary", "for less than 500 ms");
        fixture.at(begins - 10);
        assert_eq!(fixture.summary(), "ReplicaSetNoPrimary a=Unknown");
        fixture.at(begins).greet("a.0", &stranger());
    }
    assert_eq!(fixture.events().iter().filter(|line| *line == "started a").count(), 19);
    assert!(fixture.topology.calls < 100, "{} calls", fixture.topology.calls);
}

#[test]
fn who_begins_to_wait_or_asks_for_a_check_later_has_the_seeds_back_at_once() {
    let mut fixture = emptied(&stranger());
    fixture.at(3_000);
    wait(&mut fixture, 60_000);
    assert_eq!(fixture.summary(), "ReplicaSetNoPrimary a=Unknown");
    let mut fixture = emptied(&stranger());
    fixture.at(100).input(Input::RequestCheck);
    assert_eq!(fixture.at(509).summary(), "ReplicaSetNoPrimary", "500 ms are the least");
    assert_eq!(fixture.at(510).summary(), "ReplicaSetNoPrimary a=Unknown");
}

#[test]
fn an_operation_that_waits_finds_its_server_when_the_seed_is_what_it_should_be() {
    let mut fixture = emptied(&stranger());
    wait(&mut fixture, 5_000);
    fixture.at(1_000).greet("a.0", &primary("a", &["a"], 1));
    let woken = fixture.log().into_iter().filter(|line| line.starts_with("wake")).count();
    assert_eq!(woken, 1);
}

#[test]
fn the_error_says_why_the_last_server_was_removed_until_a_server_stays() {
    let mut fixture = emptied(&renamed());
    let text = "a:27017 is called b:27017 by its replica set";
    let found = error(&mut fixture);
    assert!(matches!(found.verdict, Verdict::NoServersLeft { removal: Some(_) }), "{found}");
    assert!(found.to_string().contains(&format!("no server is left: {text}; name")), "{found}");
    fixture.at(10_010);
    let found = error(&mut fixture);
    let is_left = matches!(found.verdict, Verdict::NoServersLeft { removal: Some(_) });
    assert!(is_left, "the seed has not answered yet: {found}");
    assert_eq!(found.to_string().matches(text).count(), 1, "{found}");
    fixture.closed("a.0");
    let found = error(&mut fixture);
    assert_eq!(found.verdict, Verdict::ConnectionRefused, "the latest news come first");
    let because = format!("the last server was removed because {text}.");
    assert!(found.to_string().contains(&because), "{found}");
    fixture.at(20_010).greet("a.1", &secondary("a", &["a"]));
    let found = error(&mut fixture);
    assert_eq!(found.emptied, None, "{found}");
}

#[test]
fn the_error_names_the_other_replica_set_also_while_the_seed_is_asked_again() {
    let mut fixture = emptied(&stranger());
    for at in [10, 10_010] {
        let found = error(fixture.at(at));
        let Verdict::SetNameDiffers { wanted, found: Some(other) } = &found.verdict else {
            panic!("{found}");
        };
        assert_eq!((wanted.as_str(), other.as_str()), ("rs", "other"));
        assert!(found.to_string().contains("a:27017 is in replica set \"other\""), "{found}");
    }
}

/// SDAM, "updateUnknownWithStandalone" and the table's row of Sharded, which remove servers too.
#[test]
fn seeds_return_whatever_the_type_of_the_topology() {
    let mut fixture = Fixture::new("mongodb://a,b");
    fixture.greet("a.0", &standalone()).greet("b.0", &standalone());
    assert_eq!(fixture.summary(), "Unknown");
    assert_eq!(fixture.at(10_000).summary(), "Unknown a=Unknown b=Unknown");
    let mut fixture = Fixture::new("mongodb://a/?serverMonitoringMode=poll");
    fixture.greet("a.0", &mongos()).at(10_000).reply("a.0", &standalone());
    assert_eq!(fixture.summary(), "Sharded");
    assert_eq!(fixture.at(20_000).summary(), "Sharded a=Unknown");
}

/// "Client closing": nothing is due any more.
#[test]
fn a_client_that_is_closed_stays_empty() {
    let mut fixture = emptied(&stranger());
    fixture.input(Input::Shutdown);
    assert_eq!(fixture.topology.machine.get().deadline(), None);
    assert_eq!(fixture.at(100_000).summary(), "Unknown");
}

/// "TopologyType Single" and Load Balancers remove no server, so that there is nothing to bring
/// back.
#[test]
fn a_direct_connection_and_a_load_balancer_are_never_without_their_server() {
    let mut fixture = Fixture::new("mongodb://a/?directConnection=true&replicaSet=rs");
    fixture.greet("a.0", &stranger());
    assert_eq!(fixture.summary(), "Single a=Unknown");
    let fixture = Fixture::new("mongodb://a/?loadBalanced=true");
    assert_eq!(fixture.summary(), "LoadBalanced a=LoadBalancer");
}

/// Polling SRV Records for mongos Discovery: the hosts of the last lookup count, and further
/// lookups bring hosts back as well.
#[test]
fn with_hosts_from_dns_the_seeds_are_those_of_the_last_lookup() {
    let record =
        |host: &str| SrvRecord::new(format!("{host}.example.com"), 27017, Duration::from_secs(300));
    let options = Options::parse("mongodb+srv://cluster.example.com/?tls=false").unwrap();
    let options = complete(&options, &[record("a")], Ok(Vec::new()), 1).unwrap();
    let mut fixture = Fixture::with(options);
    fixture.greet("a.example.com.0", &standalone());
    assert_eq!(fixture.summary(), "Single a.example.com=Standalone", "the only seed");
    let options = Options::parse("mongodb+srv://cluster.example.com/?tls=false").unwrap();
    let options = complete(&options, &[record("a"), record("b")], Ok(Vec::new()), 1).unwrap();
    let mut fixture = Fixture::with(options);
    fixture.at(300_000).input(Input::Resolved { records: Ok(vec![record("b"), record("c")]) });
    let greet = |fixture: &mut Fixture, host: &str| {
        let links = fixture.links();
        let link = links.into_iter().find(|link| link.starts_with(host)).unwrap();
        match fixture.is_opening(&link) {
            true => fixture.greet(&link, &standalone()),
            false => fixture.reply(&link, &standalone()),
        };
    };
    greet(&mut fixture, "b.");
    greet(&mut fixture, "c.");
    assert_eq!(fixture.summary(), "Unknown");
    fixture.at(310_000);
    assert_eq!(fixture.summary(), "Unknown b.example.com=Unknown c.example.com=Unknown");
    greet(&mut fixture, "b.");
    greet(&mut fixture, "c.");
    fixture.at(600_000).input(Input::Resolved { records: Ok(vec![record("d")]) });
    assert_eq!(fixture.summary(), "Unknown d.example.com=Unknown");
}

/// "Single-threaded monitoring": nothing is due by itself, and the next scan begins with the seeds.
#[test]
fn a_scan_over_an_empty_topology_begins_with_the_seeds() {
    let mut fixture = single("mongodb://a/?replicaSet=rs");
    select(&mut fixture, 1, Criteria::write());
    fixture.greet("a.0", &stranger());
    assert_eq!(story(&mut fixture), ["started a", "refuse 1"]);
    assert_eq!(fixture.summary(), "ReplicaSetNoPrimary");
    fixture.at(100);
    select(&mut fixture, 2, Criteria::write());
    assert_eq!(fixture.at(499).summary(), "ReplicaSetNoPrimary", "500 ms are the least");
    assert_eq!(fixture.at(500).summary(), "ReplicaSetNoPrimary a=Unknown");
    fixture.greet("a.0", &stranger());
    assert_eq!(story(&mut fixture), ["started a", "refuse 2"], "once in each scan");
    assert_eq!(fixture.at(100_000).summary(), "ReplicaSetNoPrimary", "while nothing asks");
    select(&mut fixture, 3, Criteria::write());
    fixture.greet("a.0", &primary("a", &["a"], 1));
    assert_eq!(story(&mut fixture), ["started a", "wake 3"]);
}

#[test]
fn another_set_that_was_found_once_is_not_blamed_for_a_later_loss() {
    let mut fixture = emptied(&stranger());
    fixture.at(10_010).greet("a.0", &primary("a", &["a"], 1));
    assert_eq!(fixture.summary(), "ReplicaSetWithPrimary a=RSPrimary");
    fixture.at(3_600_000).quiet();
    let link = fixture.links()[0].clone();
    match fixture.is_opening(&link) {
        true => fixture.greet(&link, &standalone()),
        false => fixture.reply(&link, &standalone()),
    };
    assert_eq!(fixture.summary(), "ReplicaSetNoPrimary");
    let found = error(&mut fixture);
    assert!(matches!(found.verdict, Verdict::NotAReplicaSet { .. }), "{found}");
}

#[test]
fn a_seed_that_is_removed_for_another_reason_has_errors_tell_that_one() {
    let mut fixture = emptied(&stranger());
    fixture.at(10_010).greet("a.0", &secondary("b", &["b"]));
    assert_eq!(fixture.summary(), "ReplicaSetNoPrimary b=Unknown");
    for is_refused in [false, true] {
        if is_refused {
            fixture.closed("b.0");
        }
        let found = error(&mut fixture);
        let reason = found.emptied.as_ref().map(ToString::to_string).unwrap_or_default();
        assert_eq!(reason, "a:27017 is called b:27017 by its replica set", "{found}");
        assert!(!found.to_string().contains("\"other\""), "{found}");
    }
}
