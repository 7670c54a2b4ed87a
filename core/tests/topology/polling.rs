//! Polling SRV Records for mongos Discovery: its prose tests, in virtual time.
//!
//! Hosts a, b, c and d stand for the ports 27017 to 27020 of the prose.

use std::net::SocketAddr;
use std::time::Duration;

use sdam_core::config::Options;
use sdam_core::dns::srv::{SrvRecord, complete};
use sdam_core::dns::{DnsCause, DnsError, Question, ServerFailure, Transport, Unanswered};
use sdam_core::topology::Input;

use super::fixture::{Fixture, member, mongos, standalone};

const URI: &str = "mongodb+srv://test1.test.build.10gen.cc/";
const QUESTION: &str = "resolve _mongodb._tcp.test1.test.build.10gen.cc";

/// The time that the records of these tests live, in milliseconds.
const TTL: u64 = 300_000;

fn host(name: &str) -> String {
    format!("{name}.test.build.10gen.cc")
}

fn records_living(names: &[&str], seconds: u64) -> Vec<SrvRecord> {
    let record = |name: &&str| SrvRecord::new(host(name), 27017, Duration::from_secs(seconds));
    names.iter().map(record).collect()
}

fn records(names: &[&str]) -> Vec<SrvRecord> {
    records_living(names, TTL / 1000)
}

/// A client that DNS gave these hosts, and this TXT record.
fn client_with_txt(uri: &str, names: &[&str], txt: &str) -> Fixture {
    let options = Options::parse(uri).unwrap();
    let txt = vec![txt.to_owned()];
    Fixture::with(complete(&options, &records(names), Ok(txt), 1).unwrap())
}

/// A client of mongos a and others.
fn client(uri: &str, names: &[&str]) -> Fixture {
    let mut fixture = client_with_txt(uri, names, "");
    fixture.greet(&format!("{}.0", host("a")), &mongos());
    assert_eq!(fixture.view().topology_type.name(), "Sharded");
    fixture
}

pub(super) fn absence(cause: fn(SocketAddr) -> DnsCause) -> DnsError {
    let question = Question::srv("mongodb", "test1.test.build.10gen.cc");
    DnsError::new(question, cause(([127, 0, 0, 1], 53).into()))
}

/// Returns the first parts of the known hosts.
fn hosts(fixture: &Fixture) -> String {
    let view = fixture.view();
    let names = view.servers().iter().map(|server| server.address.host().split('.').next());
    names.map(Option::unwrap).collect::<Vec<_>>().join(" ")
}

/// Lets the records live out, and answers the lookup that follows.
fn rescan(fixture: &mut Fixture, at: u64, names: &[&str]) {
    fixture.at(at).quiet().input(Input::Resolved { records: Ok(records(names)) });
}

/// Returns what is known after the records have become these.
fn after(uri: &str, names: &[&str]) -> String {
    let mut fixture = client(uri, &["a", "b"]);
    rescan(&mut fixture, TTL, names);
    hosts(&fixture)
}

fn lookups(fixture: &mut Fixture) -> usize {
    fixture.log().iter().filter(|line| line.starts_with("resolve ")).count()
}

/// Prose tests 1 to 5.
#[test]
fn records_that_are_added_removed_and_replaced_are_followed() {
    assert_eq!(after(URI, &["a", "b", "c"]), "a b c");
    assert_eq!(after(URI, &["a"]), "a");
    assert_eq!(after(URI, &["a", "c"]), "a c");
    assert_eq!(after(URI, &["c"]), "c");
    assert_eq!(after(URI, &["c", "d"]), "c d");
}

/// Prose tests 6 to 8.
#[test]
fn a_lookup_that_fails_changes_nothing_and_is_repeated_after_a_heartbeat() {
    let failures: [fn(SocketAddr) -> DnsCause; 3] = [
        |server| DnsCause::Unanswered {
            servers: vec![Unanswered::new(
                server,
                Transport::Udp,
                ServerFailure::Timeout(Duration::from_secs(5)),
            )],
        },
        |server| DnsCause::NoSuchName { server },
        |server| DnsCause::NoRecords { server },
    ];
    for failure in failures {
        let mut fixture = client(URI, &["a", "b"]);
        let before = fixture.server(&host("a")).id;
        fixture.at(TTL).quiet().input(Input::Resolved { records: Err(absence(failure)) });
        assert_eq!(hosts(&fixture), "a b");
        assert_eq!(fixture.server(&host("a")).id, before);
        let failed = format!("rescan failed: {}", absence(failure));
        assert_eq!(fixture.log(), [failed]);
        fixture.at(TTL + 9_999);
        assert_eq!(lookups(&mut fixture), 0);
        rescan(&mut fixture, TTL + 10_000, &["a", "c"]);
        assert_eq!(hosts(&fixture), "a c");
        fixture.at(TTL + 10_000 + TTL - 1);
        assert_eq!(lookups(&mut fixture), 0, "the records live again");
        fixture.at(TTL + 10_000 + TTL);
        assert_eq!(lookups(&mut fixture), 1);
    }
}

/// Prose test 9.
#[test]
fn a_load_balanced_deployment_is_never_looked_up_again() {
    let uri = "mongodb+srv://test3.test.build.10gen.cc/?loadBalanced=true";
    let mut fixture = client_with_txt(uri, &["a"], "");
    fixture.at(2 * TTL);
    assert_eq!(lookups(&mut fixture), 0);
    fixture.input(Input::Resolved { records: Ok(records(&["a", "b"])) });
    assert_eq!(hosts(&fixture), "a");
}

/// Prose tests 10 to 12.
#[test]
fn srv_max_hosts_limits_the_servers_but_not_if_it_is_zero() {
    let limited = |limit| format!("{URI}?srvMaxHosts={limit}");
    assert_eq!(after(&limited(0), &["a", "c", "d"]), "a c d");
    assert_eq!(after(&limited(2), &["c", "d"]), "c d");
    let drawn = after(&limited(2), &["a", "c", "d"]);
    assert!(["a c", "a d"].contains(&&*drawn), "{drawn}");
}

/// Prose test 13.
#[test]
fn the_service_name_is_looked_up_again_too() {
    let uri = "mongodb+srv://test22.test.build.10gen.cc/?srvServiceName=customname";
    let mut fixture = client(uri, &["a", "b"]);
    fixture.at(TTL);
    let expected = "resolve _customname._tcp.test22.test.build.10gen.cc".to_owned();
    assert!(fixture.log().contains(&expected));
    fixture.input(Input::Resolved { records: Ok(records(&["c", "d"])) });
    assert_eq!(hosts(&fixture), "c d");
}

/// "Hosts that have not changed, MUST be left alone and unchanged."
#[test]
fn an_unchanged_host_keeps_its_connections_and_the_others_come_and_go_with_events() {
    let mut fixture = client(URI, &["a", "b"]);
    rescan(&mut fixture, TTL, &["a", "c"]);
    let (a, b, c) = (host("a"), host("b"), host("c"));
    let log: Vec<String> =
        fixture.log().into_iter().filter(|line| !line.starts_with("failed")).collect();
    let expected = [
        format!("publish Sharded {a}=Unknown {c}=Unknown"),
        format!("opening {c}"),
        format!("close {b}.15"),
        format!("closed {b}"),
        format!("topology Sharded {a}=Unknown {b}=Unknown -> Sharded {a}=Unknown {c}=Unknown"),
        format!("started {c}"),
        format!("open {c}.0"),
    ];
    assert_eq!(log, expected);
    rescan(&mut fixture, 2 * TTL, &["c", "a"]);
    assert_eq!(fixture.log(), [""; 0], "the same hosts in another order are no news");
}

/// "MUST NOT add such a non-compliant host name to the topology".
#[test]
fn a_host_outside_the_domain_is_passed_over_and_told() {
    let mut fixture = client(URI, &["a", "b"]);
    let mut found = records(&["a", "c"]);
    found.push(SrvRecord::new("x.evil.com", 27017, Duration::from_secs(60)));
    fixture.at(TTL).quiet().input(Input::Resolved { records: Ok(found) });
    assert_eq!(hosts(&fixture), "a c");
    let expected = "refused: an SRV record for test1.test.build.10gen.cc names the host \
                    \"x.evil.com\", which does not end in .test.build.10gen.cc";
    assert_eq!(fixture.log()[0], expected);
}

#[test]
fn hosts_outside_the_domain_alone_change_nothing() {
    let mut fixture = client(URI, &["a", "b"]);
    let evil = SrvRecord::new("x.evil.com", 27017, Duration::from_secs(60));
    fixture.at(TTL).quiet().input(Input::Resolved { records: Ok(vec![evil]) });
    assert_eq!(hosts(&fixture), "a b");
    let expected = "rescan failed: there are no SRV records for test1.test.build.10gen.cc";
    assert_eq!(fixture.log()[1], expected);
}

/// "MUST NOT be lower than 60 seconds", "calculated from the end of the previous rescan".
#[test]
fn the_interval_is_that_of_the_latest_records_and_begins_when_they_came() {
    let mut fixture = client(URI, &["a", "b"]);
    fixture.at(TTL - 1);
    assert_eq!(lookups(&mut fixture), 0);
    fixture.at(TTL);
    assert!(fixture.log().contains(&QUESTION.to_owned()));
    fixture.at(TTL + 7_000).quiet();
    fixture.input(Input::Resolved { records: Ok(records_living(&["a"], 1)) });
    fixture.at(TTL + 66_999);
    assert_eq!(lookups(&mut fixture), 0);
    fixture.at(TTL + 67_000);
    assert_eq!(lookups(&mut fixture), 1);
    fixture.at(3 * TTL);
    assert_eq!(lookups(&mut fixture), 0, "one lookup at a time");
}

/// "Drivers MUST NOT rescan SRV DNS records when the Topology is not Sharded".
#[test]
fn only_an_unknown_or_sharded_topology_is_looked_up_again() {
    let mut unknown = client_with_txt(URI, &["a", "b"], "");
    unknown.at(TTL);
    assert_eq!(lookups(&mut unknown), 1);
    rescan(&mut unknown, TTL, &["c"]);
    assert_eq!(hosts(&unknown), "c");

    let mut set = client_with_txt(URI, &["a"], "replicaSet=rs");
    set.at(2 * TTL);
    assert_eq!(lookups(&mut set), 0);

    let mut single = client_with_txt(URI, &["a"], "");
    single.greet(&format!("{}.0", host("a")), &standalone()).at(2 * TTL);
    assert_eq!(lookups(&mut single), 0);
}

#[test]
fn a_topology_that_turns_out_to_be_a_replica_set_is_left_alone_even_during_a_lookup() {
    let mut fixture = client_with_txt(URI, &["a"], "");
    fixture.at(TTL);
    assert_eq!(lookups(&mut fixture), 1);
    let link = fixture.links()[0].clone();
    let me = host("a");
    fixture.greet(&link, &member(&me, &[&me]));
    assert!(fixture.view().topology_type.name().starts_with("ReplicaSet"));
    fixture.input(Input::Resolved { records: Ok(records(&["b"])) });
    assert_eq!(hosts(&fixture), "a");
    fixture.at(3 * TTL);
    assert_eq!(lookups(&mut fixture), 0);
}

#[test]
fn an_answer_that_was_not_asked_for_and_one_after_the_end_are_ignored() {
    let mut fixture = client(URI, &["a", "b"]);
    fixture.quiet().input(Input::Resolved { records: Ok(records(&["c"])) });
    assert_eq!((hosts(&fixture), fixture.log()), ("a b".to_owned(), vec![]));
    fixture.at(TTL).input(Input::Shutdown).quiet();
    fixture.input(Input::Resolved { records: Ok(records(&["c"])) }).at(3 * TTL);
    assert_eq!((hosts(&fixture), fixture.log()), (String::new(), vec![]));
}

/// SDAM, "TopologyType": "Single: exactly one server"; "updateUnknownWithStandalone" removes
/// others.
#[test]
fn of_two_standalones_that_have_replaced_a_sole_seed_one_is_removed() {
    let mut fixture = client_with_txt(URI, &["a"], "");
    fixture.closed(&format!("{}.0", host("a"))).at(TTL).quiet();
    fixture.input(Input::Resolved { records: Ok(records(&["b", "c"])) });
    fixture.greet(&format!("{}.0", host("b")), &standalone());
    fixture.greet(&format!("{}.0", host("c")), &standalone());
    assert_eq!(
        fixture.summary(),
        format!("Single {}=Standalone", host("c")),
        "and the last one stays"
    );
}

#[test]
fn a_thousand_records_are_followed_and_more_are_refused() {
    for (count, followed) in [(1000, 1000), (1001, 2), (1002, 2)] {
        let mut fixture = client(URI, &["a", "b"]);
        let names: Vec<String> = (0..count).map(|number| format!("n{number}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        fixture.at(TTL).input(Input::Resolved { records: Ok(records(&names)) });
        assert_eq!(fixture.view().servers().len(), followed, "{count}");
    }
}
