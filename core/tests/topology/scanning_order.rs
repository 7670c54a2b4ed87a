//! The order in which the scan of a single-threaded client checks servers (Server Monitoring,
//! "Scanning order", "cooldownMS").

use std::collections::BTreeSet;
use std::sync::Arc;

use bson::{RawDocumentBuf, cstr};
use sdam_core::config::Options;
use sdam_core::description::MAX_SERVERS;
use sdam_core::failure::{Cause, Failure, Stage as Step};
use sdam_core::id::{Generation, WaiterId};
use sdam_core::machine::Machine;
use sdam_core::operation::{OperationError, OperationFailure};
use sdam_core::selection::Criteria;
use sdam_core::time::Instant;
use sdam_core::topology::{Action, EventKind, Input, Topology};

use super::fixture::{Fixture, mongos, primary, secondary};
use super::single_threaded::{select, single, story};

/// The reply of a secondary that takes `primary` for the primary.
pub(super) fn secondary_of(primary: &str, me: &str, hosts: &[&str]) -> RawDocumentBuf {
    let mut reply = secondary(me, hosts);
    reply.append(cstr!("primary"), format!("{primary}:27017"));
    reply
}

/// Returns the only server that is being checked.
pub(super) fn checking(fixture: &Fixture) -> String {
    let mut checked = BTreeSet::new();
    for action in &fixture.topology.actions {
        let Action::Emit { event } = action else { continue };
        match &event.kind {
            EventKind::ServerHeartbeatStarted { address, .. } => {
                assert!(checked.insert(address.clone()), "twice");
                assert_eq!(checked.len(), 1, "two checks at once");
            }
            EventKind::ServerHeartbeatSucceeded { address, .. }
            | EventKind::ServerHeartbeatFailed { address, .. } => {
                assert!(checked.remove(address), "it had begun");
            }
            _ => {}
        }
    }
    checked.into_iter().map(|address| address.host().to_owned()).collect()
}

/// Answers the check in progress, or refuses the connection if there is no reply for that host;
/// returns whose check it was.
pub(super) fn answer(
    fixture: &mut Fixture,
    reply: impl Fn(&str) -> Option<RawDocumentBuf>,
) -> String {
    let host = checking(fixture);
    let link = fixture.links().into_iter().find(|link| link.starts_with(&format!("{host}.")));
    let link = link.expect("a link");
    match (reply(&host), fixture.is_opening(&link)) {
        (Some(reply), true) => fixture.greet(&link, &reply),
        (Some(reply), false) => fixture.reply(&link, &reply),
        (None, _) => fixture.closed(&link),
    };
    host
}

/// Answers a whole scan, and returns in which order servers were checked.
fn answer_all(fixture: &mut Fixture, reply: impl Fn(&str) -> Option<RawDocumentBuf>) -> String {
    let mut order = Vec::new();
    while !checking(fixture).is_empty() {
        order.push(answer(fixture, &reply));
    }
    order.join(" ")
}

/// The members of a set whose primary is `leader`; a host that is not listed is down.
pub(super) fn set<'a>(
    leader: &str,
    hosts: &'a [&'a str],
) -> impl Fn(&str) -> Option<RawDocumentBuf> {
    let (leader, hosts) = (leader.to_owned(), hosts.to_vec());
    move |host| {
        let hosts = hosts.contains(&host).then_some(&hosts)?;
        Some(match host == leader {
            true => primary(host, hosts, 1),
            false => secondary_of(&leader, host, hosts),
        })
    }
}

/// "if a server in serversToCheck is RSPrimary: check it"; then known servers "with the oldest
/// lastUpdateTime"; Unknown ones last.
#[test]
fn the_primary_comes_first_then_known_servers_by_age_then_unknown_ones_by_age() {
    const ALL: [&str; 5] = ["a", "b", "c", "d", "e"];
    let down = ["d", "e"];
    let reply = |host: &str| set("c", &ALL)(host).filter(|_| !down.contains(&host));
    let mut fixture = single("mongodb://a,b,c,d,e/?replicaSet=rs");
    select(&mut fixture, 1, Criteria::write());
    // Each check takes a millisecond, so that ages differ.
    let order: Vec<String> = (1..=5).map(|now| answer(fixture.at(now), reply)).collect();
    let (down, known): (Vec<&str>, Vec<&str>) = order
        .iter()
        .map(String::as_str)
        .filter(|host| *host != "c")
        .partition(|host| down.contains(host));
    fixture.at(60_010);
    select(&mut fixture, 2, Criteria::write());
    let expected = format!("c {} {}", known.join(" "), down.join(" "));
    assert_eq!(answer_all(&mut fixture, reply), expected);
}

/// "Unknown or RSGhost" come last, however long ago they were checked.
#[test]
fn a_ghost_comes_after_known_servers() {
    let hosts = ["a", "b"];
    let mut ghost = super::fixture::ok();
    ghost.append(cstr!("isreplicaset"), true);
    let mut fixture = single("mongodb://b/?replicaSet=rs");
    select(&mut fixture, 1, Criteria::write());
    assert_eq!(answer_all(&mut fixture, |me| Some(secondary(me, &hosts))), "b a");
    fixture.at(60_000);
    select(&mut fixture, 2, Criteria::write());
    // The ghost is older.
    answer(fixture.at(60_001), |_| Some(ghost.clone()));
    let first = checking(&fixture);
    answer(fixture.at(60_002), |me| Some(secondary(me, &hosts)));
    fixture.at(130_000);
    select(&mut fixture, 3, Criteria::write());
    assert_eq!(checking(&fixture), first, "the known server");
}

/// The example of the section, steps 1 to 7.
#[test]
fn a_possible_primary_comes_before_all_others_and_what_it_names_is_checked_too() {
    let hosts = ["a", "b", "c", "d"];
    for leader in ["b", "c", "d"] {
        let mut fixture = single("mongodb://a/?replicaSet=rs");
        select(&mut fixture, 1, Criteria::write());
        let order = answer_all(&mut fixture, set(leader, &hosts));
        assert!(order.starts_with(&format!("a {leader} ")), "{order}");
        assert_eq!(order.len(), 7, "all of them, each once: {order}");
        assert_eq!(story(&mut fixture).last().unwrap(), "wake 1");
    }
}

/// updateRSWithoutPrimary marks the possible primary before it removes a server that is known by
/// another name.
#[test]
fn a_seed_that_is_removed_because_it_has_another_name_still_tells_the_possible_primary() {
    let hosts = ["a", "b", "c", "d"];
    for leader in hosts {
        let mut fixture = single("mongodb://localhost/?replicaSet=rs");
        select(&mut fixture, 1, Criteria::write());
        answer(&mut fixture, |_| Some(secondary_of(leader, "b", &hosts)));
        assert_eq!(checking(&fixture), leader);
    }
}

/// updateRSWithPrimaryFromMember: "if there is no primary in topologyDescription.servers".
#[test]
fn while_there_is_a_primary_nobody_else_is_taken_for_it() {
    let hosts = ["a", "b", "c", "d"];
    let up = |host: &str| set("a", &hosts)(host).filter(|_| host != "d");
    let mut fixture = single("mongodb://a/?replicaSet=rs");
    select(&mut fixture, 1, Criteria::write());
    answer_all(&mut fixture, up);
    fixture.at(60_000);
    select(&mut fixture, 2, Criteria::write());
    let order = answer_all(&mut fixture, |host| match host {
        "a" => up("a"),
        host => Some(secondary_of("d", host, &hosts)),
    });
    assert!(order.starts_with("a ") && order.ends_with(" d"), "{order}");
}

/// updateRSWithPrimaryFromMember: the former primary names its successor.
#[test]
fn a_primary_that_has_stepped_down_tells_its_successor_if_that_is_unknown() {
    let hosts = ["a", "b", "c"];
    let mut fixture = single("mongodb://a,b,c/?replicaSet=rs");
    select(&mut fixture, 1, Criteria::write());
    // c was down.
    answer_all(&mut fixture, |host| set("a", &hosts)(host).filter(|_| host != "c"));
    fixture.at(60_000);
    select(&mut fixture, 2, Criteria::write());
    assert_eq!(answer_all(&mut fixture, set("c", &hosts)), "a c b");
    // Now all are known, and the age decides.
    fixture.at(120_000);
    select(&mut fixture, 3, Criteria::write());
    assert!(answer_all(&mut fixture, set("b", &hosts)).starts_with("c "));
}

/// "New servers discovered during the scan MUST be checked before the scan is complete. Sometimes
/// servers are removed during a scan so they are not checked".
#[test]
fn servers_that_join_during_a_scan_are_checked_and_those_that_leave_are_not() {
    let mut fixture = single("mongodb://a/?replicaSet=rs");
    select(&mut fixture, 1, Criteria::write());
    assert_eq!(answer_all(&mut fixture, set("a", &["a", "b"])), "a b");
    fixture.at(60_000);
    select(&mut fixture, 2, Criteria::write());
    assert_eq!(answer_all(&mut fixture, set("a", &["a", "c"])), "a c", "b has left, c has joined");
}

/// "if several servers have the same lastUpdateTime, choose one at random".
#[test]
fn servers_of_the_same_age_are_checked_in_random_order() {
    let first = |seed| {
        let builder = Options::builder().uri("mongodb://a,b,c/").unwrap();
        let options = builder.single_threaded(true).build().unwrap();
        let mut topology = Topology::new(Arc::new(options), seed);
        let (criteria, mut actions) = (Arc::new(Criteria::write()), Vec::new());
        let wait = Input::Wait { waiter: WaiterId(1), criteria, deadline: None };
        topology.handle(Instant::ZERO.into(), wait, &mut actions);
        let opened = actions.iter().find_map(|action| match action {
            Action::Open { address, .. } => Some(address.host().to_owned()),
            _ => None,
        });
        opened.expect("a check")
    };
    let count = |host: &str| (0..300).filter(|seed| first(*seed) == host).count();
    for host in ["a", "b", "c"] {
        assert!((60..140).contains(&count(host)), "{host}: {}", count(host));
    }
}

/// "A client's subsequent scans of the mongoses are always in the same order".
#[test]
fn later_scans_of_mongos_keep_the_order_of_the_first() {
    let mut fixture = single("mongodb://a,b,c/");
    select(&mut fixture, 1, Criteria::write());
    let order: Vec<String> =
        (1..=3).map(|now| answer(fixture.at(now), |_| Some(mongos()))).collect();
    for scan in 1..5_u64 {
        fixture.at(scan * 70_000);
        select(&mut fixture, scan + 1, Criteria::write());
        let again: Vec<String> = (1..=3)
            .map(|now| answer(fixture.at(scan * 70_000 + now), |_| Some(mongos())))
            .collect();
        assert_eq!(again, order);
    }
}

/// "minHeartbeatFrequencyMS": "it MUST wait at least minHeartbeatFrequencyMS milliseconds since the
/// previous check ended". A scan that lasts longer than heartbeatFrequencyMS is not restarted by
/// the next operation while another one waits for its end, or it would never come.
#[test]
fn a_scan_that_somebody_waits_for_ends_however_long_it_takes() {
    let reply = |host: &str| set("a", &["a", "b"])(host);
    let mut fixture = single("mongodb://a,b/?replicaSet=rs&heartbeatFrequencyMS=500");
    select(&mut fixture, 1, Criteria::write());
    fixture.at(400);
    let first = answer(&mut fixture, reply);
    fixture.at(600);
    select(&mut fixture, 2, Criteria::write());
    assert_ne!(answer(&mut fixture, reply), first);
    assert_eq!(checking(&fixture), "", "each was checked");
    assert_eq!(story(&mut fixture)[2..], ["wake 1", "wake 2"]);
}

/// The same: one that has rested for as long checks only those again that it checked as long ago.
#[test]
fn a_scan_that_was_left_alone_does_not_check_a_server_again_within_500_ms() {
    let reply = |host: &str| set("a", &["a", "b"])(host);
    for (then, again) in [(900, false), (901, true), (2000, true)] {
        let mut fixture = single("mongodb://a,b/?replicaSet=rs&heartbeatFrequencyMS=500");
        select(&mut fixture, 1, Criteria::write());
        let first = answer(fixture.at(400), reply);
        fixture.input(Input::Abandon { waiter: WaiterId(1) }).at(then).quiet();
        select(&mut fixture, 2, Criteria::write());
        assert_ne!(answer(&mut fixture, reply), first);
        let expected = if again { format!("started {first}") } else { "wake 2".to_owned() };
        assert_eq!(story(&mut fixture), [expected], "{then}");
    }
}

/// "cooldownMS": 5 s.
#[test]
fn a_server_whose_check_has_failed_is_left_alone_for_5_s() {
    let reply = |host: &str| set("a", &["a", "b"])(host).filter(|_| host == "a");
    for (scan, expected) in [(7999, "a"), (8000, "a b")] {
        let mut fixture = single("mongodb://a/?replicaSet=rs");
        select(&mut fixture, 1, Criteria::write());
        answer(&mut fixture, reply);
        fixture.at(3000);
        assert_eq!(answer_all(&mut fixture, reply), "b");
        fixture.at(scan).input(Input::RequestCheck);
        select(&mut fixture, 2, Criteria::write());
        assert_eq!(answer_all(&mut fixture, reply), expected, "{scan}");
    }
}

#[test]
fn a_scan_that_has_nobody_to_check_ends_at_once() {
    let mut fixture = single("mongodb://a");
    select(&mut fixture, 1, Criteria::write());
    assert_eq!(answer_all(&mut fixture, |_| None), "a");
    fixture.at(600).quiet();
    select(&mut fixture, 2, Criteria::write());
    assert_eq!(story(&mut fixture), ["refuse 2"]);
    assert_eq!(fixture.topology.machine.deadline(), None);
}

/// "After a single-threaded client gets a network error trying to check a server": an operation's
/// error is another thing, and its server is found again by the next scan.
#[test]
fn a_server_that_is_unknown_because_of_an_operation_does_not_cool_down() {
    let mut fixture = single("mongodb://a/?replicaSet=rs");
    select(&mut fixture, 1, Criteria::write());
    answer_all(&mut fixture, set("a", &["a"]));
    fixture.at(1000);
    let failure = Failure::new(Step::Operate, Cause::Closed, "it broke");
    fails(&mut fixture, "a", OperationError::Stream(failure));
    select(&mut fixture, 2, Criteria::write());
    assert_eq!(answer_all(&mut fixture, set("a", &["a"])), "a");
    assert_eq!(story(&mut fixture).last().unwrap(), "wake 2");
}

/// "Network or command error during server check", step 4: "the server was in a known state before
/// the error".
#[test]
fn the_check_of_a_known_server_that_fails_by_the_network_is_repeated_once_at_once() {
    let mut fixture = single("mongodb://a,b/?replicaSet=rs");
    select(&mut fixture, 1, Criteria::write());
    answer_all(&mut fixture, set("a", &["a", "b"]));
    fixture.at(60_000);
    select(&mut fixture, 2, Criteria::write());
    assert_eq!(answer(&mut fixture, |_| None), "a");
    assert_eq!(checking(&fixture), "a", "over another connection");
    assert_eq!(answer_all(&mut fixture, |_| None), "a b b");
    assert_eq!(story(&mut fixture).last().unwrap(), "refuse 2");
}

pub(super) fn fails(fixture: &mut Fixture, host: &str, error: OperationError) {
    let (generation, server) = (Generation::new(9), fixture.server(host).id);
    let failure = OperationFailure::new(generation, 17, error);
    fixture.input(Input::OperationFailed { server, failure });
}

/// "it MUST wait at least minHeartbeatFrequencyMS since the previous check ended", which holds for
/// a server that has left and is back as well.
#[test]
fn two_servers_whose_names_are_crossed_are_checked_once_in_a_scan() {
    let crossed = |host: &str| {
        let other = if host == "a" { "b" } else { "a" };
        Some(secondary(other, &["a", "b"]))
    };
    let mut fixture = single("mongodb://a,b/?replicaSet=rs");
    select(&mut fixture, 1, Criteria::write());
    let mut order = [answer(&mut fixture, crossed), answer(&mut fixture, crossed)];
    order.sort();
    assert_eq!((order.join(" "), checking(&fixture)), ("a b".to_owned(), String::new()));
}

/// A server names another one and leaves at once, as the next one does, and so on for ever.
#[test]
fn what_a_scan_remembers_of_servers_that_have_left_is_limited() {
    let mut fixture = single("mongodb://h0/?replicaSet=rs");
    select(&mut fixture, 1, Criteria::write());
    for number in 0..MAX_SERVERS + 50 {
        let next = format!("h{}", number + 1);
        fixture.quiet().greet(&format!("h{number}.0"), &secondary("x", &[&next]));
    }
    let state = serde_json::to_value(fixture.topology.machine.get()).unwrap();
    assert_eq!(state["departed"].as_object().unwrap().len(), MAX_SERVERS);
}

/// serverSelectionTryOnce: one scan is tried, though it may last for longer than
/// heartbeatFrequencyMS.
#[test]
fn a_scan_that_somebody_has_waited_for_is_the_only_one_however_long_it_has_taken() {
    let reply = |host: &str| Some(secondary(host, &["a", "b"]));
    let mut fixture = single("mongodb://a,b/?replicaSet=rs&heartbeatFrequencyMS=500");
    select(&mut fixture, 1, Criteria::write());
    answer(&mut fixture, reply);
    answer(fixture.at(700).quiet(), reply);
    assert_eq!(story(&mut fixture), ["refuse 1"]);
}
