//! The single-threaded mode: when servers are scanned, and what operations wait for.
//!
//! In which order a scan checks them is in `scanning_order`.

use std::sync::Arc;
use std::time::Duration;

use bson::rawdoc;
use sdam_core::config::{Options, ReadMode, ReadPreference};
use sdam_core::description::ServerType;
use sdam_core::diagnosis::Verdict;
use sdam_core::dns::DnsCause;
use sdam_core::dns::srv::{SrvRecord, complete};
use sdam_core::id::WaiterId;
use sdam_core::machine::Machine;
use sdam_core::selection::Criteria;
use sdam_core::time::Instant;
use sdam_core::topology::{Action, Input};

use super::fixture::{Fixture, fresh, mongos, primary, secondary, standalone};
use super::polling::absence;

pub(super) const HOSTS: [&str; 2] = ["a", "b"];
pub(super) const SET: &str = "mongodb://a,b/?replicaSet=rs";
const PATIENT: &str = "mongodb://a,b/?replicaSet=rs&serverSelectionTryOnce=false";

/// A single-threaded client.
pub(super) fn single(uri: &str) -> Fixture {
    Fixture::with(Options::builder().uri(uri).unwrap().single_threaded(true).build().unwrap())
}

/// An operation begins to select a server, in any time it takes.
pub(super) fn select(fixture: &mut Fixture, id: u64, criteria: Criteria) {
    let (waiter, criteria) = (WaiterId(id), Arc::new(criteria));
    fixture.input(Input::Wait { waiter, criteria, deadline: None });
}

/// The same, until that many milliseconds after the beginning.
fn select_until(fixture: &mut Fixture, id: u64, criteria: Criteria, until: u64) {
    let (waiter, criteria) = (WaiterId(id), Arc::new(criteria));
    let deadline = Some(Instant::from_millis(until));
    fixture.input(Input::Wait { waiter, criteria, deadline });
}

/// Returns which checks have begun and which operations were answered since the last call.
pub(super) fn story(fixture: &mut Fixture) -> Vec<String> {
    let told = |line: &String| {
        ["started ", "wake ", "refuse ", "resolve "].iter().any(|prefix| line.starts_with(prefix))
    };
    let short = |line: String| line.split(':').next().unwrap_or_default().to_owned();
    fixture.log().into_iter().filter(told).map(short).collect()
}

pub(super) fn nearest() -> Criteria {
    Criteria::read(ReadPreference::new(ReadMode::Nearest))
}

/// A client that has scanned a replica set at time zero; its primary is `a`.
pub(super) fn scanned(uri: &str) -> Fixture {
    let mut fixture = single(uri);
    select(&mut fixture, 0, Criteria::write());
    for _ in HOSTS {
        let open = fixture.links().into_iter().find(|link| fixture.is_opening(link)).unwrap();
        match open.as_str() {
            "a.0" => fixture.greet("a.0", &primary("a", &HOSTS, 1)),
            _ => fixture.greet("b.0", &secondary("b", &HOSTS)),
        };
    }
    assert_eq!(story(&mut fixture).last().unwrap(), "wake 0");
    fixture
}

/// Answers the checks of a whole scan.
pub(super) fn answer_scan(fixture: &mut Fixture) {
    fixture.reply("a.0", &primary("a", &HOSTS, 1)).reply("b.0", &secondary("b", &HOSTS));
}

/// SDAM, "Single-threaded client construction": "no I/O in the constructor".
#[test]
fn nothing_happens_until_an_operation_needs_a_server() {
    let mut fixture = single(SET);
    fixture.at(3_600_000);
    assert_eq!(fixture.links(), [""; 0]);
    assert_eq!(story(&mut fixture), [""; 0]);
    assert_eq!(fixture.topology.machine.deadline(), None);
}

/// Server Monitoring, "Scanning": "Single-threaded clients MUST scan all servers synchronously".
#[test]
fn the_first_operation_waits_for_all_servers_which_are_checked_one_after_another() {
    let mut fixture = single("mongodb://a,b/?replicaSet=rs&connectTimeoutMS=0");
    select(&mut fixture, 1, nearest());
    assert_eq!(story(&mut fixture).len(), 1, "one check");
    let first = if fixture.links() == ["a.0"] { "a" } else { "b" };
    let other = if first == "a" { "b" } else { "a" };
    fixture.greet(&format!("{first}.0"), &secondary(first, &HOSTS));
    assert_eq!(story(&mut fixture), [format!("started {other}")], "one is suitable, and all count");
    fixture.greet(&format!("{other}.0"), &secondary(other, &HOSTS));
    assert_eq!(story(&mut fixture), ["wake 1"]);
    assert_eq!(
        fixture.topology.machine.deadline(),
        None,
        "nothing is due until an operation comes"
    );
}

/// Server Monitoring, "Scanning": "the client checks if heartbeatFrequencyMS has passed since the
/// previous scan ended"; SDAM, "heartbeatFrequencyMS": 60 s by default.
#[test]
fn an_operation_scans_again_when_heartbeat_frequency_has_passed_since_the_last_scan() {
    for (uri, frequency) in [(SET.into(), 60_000), (format!("{SET}&heartbeatFrequencyMS=700"), 700)]
    {
        let mut fixture = scanned(&uri);
        fixture.at(frequency - 1);
        select(&mut fixture, 1, Criteria::write());
        assert_eq!(story(&mut fixture), ["wake 1"], "what is known is fresh enough");
        fixture.at(frequency);
        select(&mut fixture, 2, Criteria::write());
        assert_eq!(story(&mut fixture), ["started a"]);
        answer_scan(&mut fixture);
        assert_eq!(story(&mut fixture), ["started b", "wake 2"]);
    }
}

/// Server Monitoring, "Scanning": "Selection failure triggers an immediate scan"; "minHeartbeat-
/// FrequencyMS".
#[test]
fn an_operation_that_finds_no_server_scans_at_once_but_not_within_500_ms_of_the_last_scan() {
    let hidden = || Criteria::write().with_predicate(|_| false);
    for (after, begins) in [(200, 500), (5000, 5000)] {
        let mut fixture = scanned(SET);
        fixture.at(after);
        select(&mut fixture, 1, hidden());
        fixture.at(begins - u64::from(begins > after));
        assert_eq!(story(&mut fixture).is_empty(), begins > after);
        fixture.quiet().at(begins);
        answer_scan(&mut fixture);
        assert_eq!(story(&mut fixture).last().unwrap(), "refuse 1");
    }
}

/// Server Selection, "serverSelectionTryOnce": "scans the topology exactly once after server
/// selection fails, then either selects a server or raises an error".
#[test]
fn try_once_is_the_default_and_fails_after_one_scan_which_leaves_the_topology_stale() {
    let mut fixture = single("mongodb://a/?replicaSet=rs&serverSelectionTimeoutMS=1");
    select(&mut fixture, 1, Criteria::write());
    fixture.opened("a.0").at(3000).reply("a.0", &secondary("a", &["a"]));
    assert_eq!(story(&mut fixture), ["started a", "refuse 1"], "time-outs have no effect");
    assert_eq!(fixture.topology.machine.deadline(), None);
    fixture.at(3400);
    select(&mut fixture, 2, nearest());
    assert_eq!(story(&mut fixture), [""; 0], "stale, but the last scan was just now");
    fixture.at(3500);
    assert_eq!(story(&mut fixture), ["started a"]);
    fixture.reply("a.0", &secondary("a", &["a"]));
    assert_eq!(story(&mut fixture), ["wake 2"]);
}

/// Server Selection, "Single-threaded server selection", steps 4, 8 and 9, with
/// `serverSelectionTryOnce=false`.
#[test]
fn without_try_once_servers_are_scanned_every_500_ms_until_a_scan_would_come_too_late() {
    let mut fixture = scanned(PATIENT);
    fixture.at(1000);
    select_until(&mut fixture, 1, Criteria::write().with_predicate(|_| false), 2600);
    for began in [1000, 1500, 2000, 2500] {
        if began > 1000 {
            fixture.quiet().at(began - 1);
            assert_eq!(story(&mut fixture), [""; 0], "{began}");
        }
        fixture.at(began);
        assert_eq!(story(&mut fixture), ["started a"], "{began}");
        answer_scan(&mut fixture);
    }
    assert_eq!(story(&mut fixture).last().unwrap(), "refuse 1", "at 2500: 3000 is past 2600");
    assert_eq!(fixture.topology.machine.deadline(), None);
    select_until(&mut fixture, 2, Criteria::write().with_predicate(|_| false), 2999);
    assert_eq!(story(&mut fixture), ["refuse 2"], "the next scan cannot begin before 3000");
}

#[test]
fn without_try_once_an_operation_goes_on_as_soon_as_a_scan_finds_its_server() {
    let mut fixture = single("mongodb://a/?replicaSet=rs&serverSelectionTryOnce=false");
    select_until(&mut fixture, 1, Criteria::write(), 30_000);
    fixture.greet("a.0", &secondary("a", &["a"])).at(500);
    fixture.reply("a.0", &primary("a", &["a"], 1));
    assert_eq!(story(&mut fixture), ["started a", "started a", "wake 1"]);
}

#[test]
fn an_operation_that_comes_during_a_scan_waits_for_its_end() {
    let mut fixture = scanned(SET);
    fixture.at(60_000);
    select(&mut fixture, 1, Criteria::write());
    fixture.reply("a.0", &primary("a", &HOSTS, 1)).at(61_000);
    select(&mut fixture, 2, nearest());
    assert_eq!(story(&mut fixture), ["started a", "started b"]);
    fixture.reply("b.0", &secondary("b", &HOSTS));
    assert_eq!(story(&mut fixture), ["wake 1", "wake 2"]);
}

/// The limit of an operation itself holds: `timeoutMS`, or what its caller has set.
#[test]
fn a_deadline_ends_the_wait_for_a_scan_which_the_next_operation_goes_on_with() {
    let mut fixture = single("mongodb://a/?connectTimeoutMS=0");
    select_until(&mut fixture, 1, Criteria::write(), 700);
    fixture.opened("a.0").at(699);
    assert_eq!(story(&mut fixture), ["started a"]);
    fixture.at(700);
    assert_eq!(story(&mut fixture), ["refuse 1"]);
    assert_eq!(fixture.topology.machine.deadline(), None, "nothing waits");
    fixture.at(20_000);
    select(&mut fixture, 2, Criteria::write());
    assert_eq!(story(&mut fixture), [""; 0], "the check is still in progress");
    fixture.reply("a.0", &standalone()).reply("a.0", &standalone());
    assert_eq!(story(&mut fixture), ["wake 2"]);
}

/// A second question is put to the server again: when the first reply came is unknown.
#[test]
fn a_reply_that_nobody_waited_for_says_nothing_of_the_round_trip_time() {
    let mut fixture = single("mongodb://a/?serverSelectionTryOnce=false&connectTimeoutMS=1000");
    select_until(&mut fixture, 1, Criteria::write(), 300);
    fixture.opened("a.0").at(300);
    assert_eq!(story(&mut fixture), ["started a", "refuse 1"]);
    fixture.at(900);
    select(&mut fixture, 2, Criteria::write());
    fixture.reply("a.0", &standalone()).at(905);
    assert_eq!(story(&mut fixture), [""; 0], "it is asked once more");
    fixture.at(1500).reply("a.0", &standalone());
    assert_eq!(story(&mut fixture), ["wake 2"]);
    assert_eq!(fixture.server("a").round_trip_time, Some(Duration::from_millis(600)));
}

#[test]
fn a_scan_left_alone_goes_on_with_the_next_operation_and_one_that_was_to_come_does_not() {
    let mut fixture = scanned(PATIENT);
    fixture.at(60_000);
    select(&mut fixture, 1, Criteria::write());
    fixture.input(Input::Abandon { waiter: WaiterId(1) });
    select(&mut fixture, 2, Criteria::write());
    fixture.reply("a.0", &primary("a", &HOSTS, 1));
    answer_scan(&mut fixture);
    assert_eq!(story(&mut fixture), ["started a", "started b", "wake 2"]);
    fixture.at(60_100);
    select(&mut fixture, 2, Criteria::write().with_predicate(|_| false));
    assert_eq!(fixture.topology.machine.deadline(), Some(Instant::from_millis(60_500)));
    fixture.input(Input::Abandon { waiter: WaiterId(2) });
    assert_eq!(fixture.topology.machine.deadline(), None);
}

#[test]
fn a_scan_that_was_left_alone_for_a_heartbeat_checks_those_again_that_it_has_checked() {
    let mut fixture = single("mongodb://a,b/?replicaSet=rs&connectTimeoutMS=0");
    select_until(&mut fixture, 1, Criteria::write(), 1000);
    let (first, other) = if fixture.links() == ["a.0"] { ("a", "b") } else { ("b", "a") };
    fixture.greet(&format!("{first}.0"), &secondary(first, &HOSTS)).at(120_000).quiet();
    select(&mut fixture, 2, nearest());
    fixture.greet(&format!("{other}.0"), &secondary(other, &HOSTS));
    assert_eq!(story(&mut fixture), [format!("started {first}")]);
    fixture.reply(&format!("{first}.0"), &secondary(first, &HOSTS));
    assert_eq!(story(&mut fixture), ["wake 2"]);
}

/// The same when the check in progress is overdue, too, and was not given up yet.
#[test]
fn how_old_a_scan_is_is_told_by_the_clock_and_not_by_what_was_judged() {
    let mut fixture = single(SET);
    select_until(&mut fixture, 1, Criteria::write(), 1000);
    let (first, other) = if fixture.links() == ["a.0"] { ("a", "b") } else { ("b", "a") };
    fixture.greet(&format!("{first}.0"), &secondary(first, &HOSTS)).at(9999).quiet();
    fixture.topology.set_clock(Instant::from_millis(120_000));
    select(&mut fixture, 2, nearest());
    fixture.greet(&format!("{other}.0"), &secondary(other, &HOSTS));
    assert_eq!(story(&mut fixture), [format!("started {first}")]);
    fixture.reply(&format!("{first}.0"), &secondary(first, &HOSTS));
    assert_eq!(story(&mut fixture), ["wake 2"]);
}

/// Server Selection, "For a single-threaded client, this means a (blocking) scan of all servers."
#[test]
fn a_requested_check_is_done_by_the_next_operation() {
    let mut fixture = scanned(SET);
    fixture.at(100).input(Input::RequestCheck).at(1000);
    assert_eq!(story(&mut fixture), [""; 0]);
    select(&mut fixture, 1, Criteria::write());
    fixture.input(Input::RequestCheck);
    answer_scan(&mut fixture);
    assert_eq!(story(&mut fixture), ["started a", "started b", "wake 1"]);
    fixture.at(1100);
    select(&mut fixture, 2, Criteria::write());
    assert_eq!(story(&mut fixture), ["wake 2"], "the scan in progress was answer enough");
}

/// Server Monitoring, "Measuring RTT" and "Streaming Protocol" are for clients that monitor in the
/// background.
#[test]
fn servers_that_can_stream_are_polled_over_one_connection() {
    let mut fixture = single("mongodb://a/?serverMonitoringMode=stream&directConnection=true");
    select(&mut fixture, 1, Criteria::write());
    fixture.greet("a.0", &fresh(standalone(), 1));
    assert_eq!(story(&mut fixture), ["started a", "wake 1"]);
    fixture.at(60_000).quiet();
    select(&mut fixture, 2, Criteria::write());
    assert_eq!(fixture.log(), ["started a", "send a.0 hello"]);
    assert_eq!(fixture.links(), ["a.0"]);
    fixture.reply("a.0", &fresh(standalone(), 2));
    assert_eq!(story(&mut fixture), ["wake 2"]);
    assert_eq!(fixture.topology.machine.deadline(), None);
}

#[test]
fn a_connection_that_ends_between_two_scans_is_replaced_by_the_next_one() {
    let mut fixture = scanned(SET);
    fixture.at(1000).closed("a.0");
    assert_eq!(fixture.topology.machine.deadline(), None);
    assert_eq!(fixture.server("a").server_type, ServerType::RsPrimary);
    fixture.at(60_000);
    select(&mut fixture, 1, Criteria::write());
    fixture.greet("a.1", &primary("a", &HOSTS, 1)).reply("b.0", &secondary("b", &HOSTS));
    assert_eq!(story(&mut fixture), ["started a", "started b", "wake 1"]);
}

/// Polling SRV Records, "Single-Threaded Drivers": "The rescan MUST happen before scanning all
/// servers […], but only if rescanSRVIntervalMS has passed."
#[test]
fn hosts_are_looked_up_in_dns_before_a_scan_and_only_then() {
    let record =
        |host: &str| SrvRecord::new(format!("{host}.example.com"), 27017, Duration::from_secs(300));
    let options = Options::builder().uri("mongodb+srv://cluster.example.com/").unwrap();
    let options = options.single_threaded(true).build().unwrap();
    let options = complete(&options, &[record("a")], Ok(Vec::new()), 1).unwrap();
    let mut fixture = Fixture::with(options);
    select(&mut fixture, 1, Criteria::write());
    fixture.greet("a.example.com.0", &mongos());
    assert_eq!(story(&mut fixture), ["started a.example.com", "wake 1"]);
    fixture.at(1_000_000);
    assert_eq!(story(&mut fixture), [""; 0], "nothing is due by itself");
    select(&mut fixture, 2, Criteria::write());
    assert_eq!(story(&mut fixture), ["resolve _mongodb._tcp.cluster.example.com"]);
    fixture.input(Input::Resolved { records: Ok(vec![record("b")]) });
    assert_eq!(story(&mut fixture), ["started b.example.com"]);
    fixture.greet("b.example.com.0", &mongos());
    assert_eq!(story(&mut fixture), ["wake 2"]);
    fixture.at(1_100_000);
    select(&mut fixture, 3, Criteria::write());
    assert_eq!(story(&mut fixture), ["started b.example.com"], "the records still live");
}

/// A lookup may take its time, after which the servers are to be checked that have cooled down.
#[test]
fn servers_cool_down_while_hosts_are_looked_up() {
    let record = SrvRecord::new("a.b.test", 27017, Duration::ZERO);
    let options = Options::builder().uri("mongodb+srv://cluster.b.test/").unwrap();
    let options = options.single_threaded(true).build().unwrap();
    let options = complete(&options, &[record], Ok(Vec::new()), 1).unwrap();
    for (answered, checked) in [(63_999, false), (64_000, true)] {
        let mut fixture = Fixture::with(options.clone());
        select(&mut fixture, 1, Criteria::write());
        fixture.greet("a.b.test.0", &rawdoc! { "ok": 0 }).at(59_000);
        select(&mut fixture, 2, Criteria::write());
        fixture.greet("a.b.test.1", &rawdoc! { "ok": 0 }).at(60_000).quiet();
        select(&mut fixture, 3, Criteria::write());
        assert_eq!(story(&mut fixture), ["resolve _mongodb._tcp.cluster.b.test"]);
        let records = Err(absence(|server| DnsCause::NoSuchName { server }));
        fixture.at(answered).input(Input::Resolved { records });
        let expected = if checked { "started a.b.test" } else { "refuse 3" };
        assert_eq!(story(&mut fixture), [expected], "{answered}");
    }
}

/// Load Balancers, "Server Discovery Logging and Monitoring": there is nothing to scan.
#[test]
fn a_load_balancer_is_never_checked() {
    let mut fixture = single("mongodb://a/?loadBalanced=true");
    select(&mut fixture, 1, Criteria::write());
    assert_eq!(story(&mut fixture), ["wake 1"]);
    assert_eq!(fixture.topology.machine.deadline(), None);
}

#[test]
fn operations_are_answered_when_the_client_is_closed_and_after_that() {
    let mut fixture = single(SET);
    select(&mut fixture, 1, Criteria::write());
    fixture.input(Input::Shutdown);
    assert_eq!(story(&mut fixture).last().unwrap(), "refuse 1");
    select(&mut fixture, 2, Criteria::write());
    let Some(Action::Wake { outcome: Err(error), .. }) = fixture.topology.actions.last() else {
        panic!("no answer")
    };
    assert_eq!(error.verdict, Verdict::Closed);
    assert_eq!(fixture.topology.machine.deadline(), None);
    assert_eq!(fixture.links(), [""; 0]);
}

/// Server Selection, pseudocode `getServer`: only an incompatible server makes the topology stale.
#[test]
fn what_no_scan_can_help_is_refused_at_once() {
    let mut fixture = scanned(SET);
    fixture.at(1000);
    let preference = ReadPreference::new(ReadMode::Secondary);
    let preference = preference.with_max_staleness(Duration::from_secs(1)).unwrap();
    select(&mut fixture, 1, Criteria::read(preference));
    assert_eq!(story(&mut fixture), ["refuse 1"]);
    select(&mut fixture, 2, Criteria::write());
    assert_eq!(story(&mut fixture), ["wake 2"], "the topology is not stale");

    let mut fixture = single("mongodb://a");
    select(&mut fixture, 1, Criteria::write());
    fixture.greet("a.0", &rawdoc! { "ok": 1, "ismaster": true, "maxWireVersion": 7 });
    assert_eq!(story(&mut fixture), ["started a", "refuse 1"]);
    fixture.at(1000);
    select(&mut fixture, 2, Criteria::write());
    assert_eq!(story(&mut fixture), ["started a"], "it may have been upgraded");
}
