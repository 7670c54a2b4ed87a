//! Rescans that are made up, and break the rules.

use std::sync::Arc;
use std::time::Duration;

use sdam_core::config::{Options, SrvOptions};
use sdam_core::description::TopologyType;
use sdam_core::dns::srv::SrvRecord;
use sdam_core::dns::{DnsCause, DnsError, Question};
use sdam_core::selection::Snapshot;
use sdam_core::time::Instant;
use sdam_core::topology::{Event, EventKind, Topology};

use super::{FAILED, FOLLOWED, Finding, IN_TIME, RescanOutcome, Rescans};

const HOSTNAME: &str = "cluster.sim.example";

const fn at(seconds: u64) -> Instant {
    Instant::from_millis(seconds * 1000)
}

/// The options of a client that begins with these hosts.
fn options(hosts: &[&str], max_hosts: usize) -> Options {
    let mut srv = SrvOptions::new(HOSTNAME);
    srv.max_hosts = max_hosts;
    let seeds = hosts.iter().map(|host| format!("{host}.sim.example").parse().unwrap());
    let options = Options::builder().srv(srv).tls(false).build().unwrap();
    options.resolved(seeds.collect(), "").unwrap()
}

fn view(hosts: &[&str]) -> Arc<Snapshot> {
    Arc::clone(Topology::new(Arc::new(options(hosts, 0)), 1).snapshot())
}

fn event(kind: EventKind, now: Instant) -> Event {
    Event::new(Topology::new(Arc::new(options(&["a"], 0)), 1).id(), now, kind)
}

/// A client that began at the origin, and asks a minute later.
fn asking(max_hosts: usize) -> Rescans {
    let mut rescans = Rescans::new(&options(&["a", "b"], max_hosts));
    rescans.event(&event(EventKind::TopologyOpening, at(0)));
    rescans.begun(at(60)).unwrap();
    rescans
}

fn named(hosts: &[&str]) -> RescanOutcome {
    let record = |host: &&str| SrvRecord::new(host.to_string(), 27017, Duration::from_secs(90));
    Ok(hosts.iter().map(record).collect())
}

fn failed() -> RescanOutcome {
    Err(DnsError::new(Question::srv("mongodb", HOSTNAME), DnsCause::NoNameServer))
}

fn told_of_failure(rescans: &mut Rescans) {
    let Err(error) = failed() else { return };
    let kind = EventKind::SrvRescanFailed { error: error.into() };
    rescans.event(&event(kind, at(61)));
}

fn check(finding: Finding) -> Option<&'static str> {
    finding.err().map(|violation| violation.check)
}

#[test]
fn a_rescan_that_comes_too_early_or_twice_or_of_a_replica_set_is_found() {
    let mut rescans = Rescans::new(&options(&["a"], 0));
    assert_eq!(check(rescans.begun(at(0))), Some(IN_TIME), "it has not begun");
    rescans = asking(0);
    assert_eq!(check(rescans.begun(at(60))), Some(IN_TIME), "one is in progress");
    rescans.event(&event(EventKind::TopologyOpening, at(0)));
    rescans.looking = false;
    assert_eq!(check(rescans.begun(at(59))), Some(IN_TIME));
    rescans = Rescans::new(&options(&["a"], 0));
    rescans.event(&event(EventKind::TopologyOpening, at(0)));
    rescans.published(TopologyType::Sharded);
    assert_eq!(check(rescans.after_step(Some(at(60)))), None);
    rescans.published(TopologyType::ReplicaSetNoPrimary);
    assert_eq!(check(rescans.begun(at(60))), Some(IN_TIME), "never of a replica set");
}

/// "MUST temporarily set rescanSRVIntervalMS to heartbeatFrequencyMS"
#[test]
fn after_a_failure_the_next_rescan_is_due_a_heartbeat_later_and_not_forgotten() {
    let (mut rescans, before) = (asking(0), view(&["a", "b"]));
    told_of_failure(&mut rescans);
    assert_eq!(check(rescans.ended(at(61), &failed(), &before, &before)), None);
    assert_eq!(check(rescans.after_step(None)), Some(IN_TIME));
    assert_eq!(check(rescans.after_step(Some(at(72)))), Some(IN_TIME));
    assert_eq!(check(rescans.after_step(Some(at(71)))), None);
    assert_eq!(check(rescans.begun(at(71))), None);
    // "MUST be set to the lowest of the individual TTL values"
    let answer = named(&["a.sim.example", "b.sim.example"]);
    rescans.failed = 0;
    assert_eq!(check(rescans.ended(at(71), &answer, &before, &before)), None);
    assert_eq!(rescans.due, Some(at(71 + 90)));
}

/// "MUST NOT change the topology [...] SHOULD log this situation"
#[test]
fn a_rescan_that_fails_and_changes_the_view_or_is_not_told_of_is_found() {
    let (before, after) = (view(&["a", "b"]), view(&["a"]));
    for answer in [failed(), named(&[]), named(&["a.sim.example.org"])] {
        for (refused, told, after, expected) in [
            (true, true, &before, None),
            (true, true, &after, Some(FAILED)),
            (true, false, &before, Some(FAILED)),
        ] {
            let mut rescans = asking(0);
            rescans.refused = if refused { answer.as_ref().map_or(0, Vec::len) } else { 0 };
            if told {
                told_of_failure(&mut rescans);
            }
            let finding = rescans.ended(at(61), &answer, &before, after);
            assert_eq!(check(finding), expected, "{answer:?}");
        }
    }
}

#[test]
fn an_answer_that_nobody_has_asked_for_changes_nothing() {
    let (mut rescans, before) = (asking(0), view(&["a", "b"]));
    rescans.looking = false;
    let answer = named(&["a.sim.example"]);
    assert_eq!(check(rescans.ended(at(61), &answer, &before, &before)), None);
    assert_eq!(check(rescans.ended(at(61), &answer, &before, &view(&["a"]))), Some(FAILED));
}

#[test]
fn hosts_that_are_not_those_that_dns_names_are_found() {
    let ended = |max_hosts, answer: &RescanOutcome, refused, after: &[&str]| {
        let mut rescans = asking(max_hosts);
        rescans.refused = refused;
        check(rescans.ended(at(61), answer, &view(&["a", "b"]), &view(after)))
    };
    let answer = named(&["a.sim.example", "b.sim.example", "c.sim.example"]);
    assert_eq!(ended(0, &answer, 0, &["a", "b", "c"]), None);
    assert_eq!(ended(0, &answer, 0, &["a", "b"]), Some(FOLLOWED), "one is missing");
    assert_eq!(ended(0, &answer, 0, &["a", "b", "d"]), Some(FOLLOWED), "one is not named");
    // Ids are given in order, so that it is another one.
    let others = named(&["b.sim.example", "c.sim.example"]);
    assert_eq!(ended(0, &others, 0, &["b", "c"]), Some(FOLLOWED), "one was not left alone");
    assert_eq!(ended(2, &answer, 0, &["a", "b"]), None, "srvMaxHosts");
    assert_eq!(ended(2, &answer, 0, &["a", "b", "c"]), Some(FOLLOWED));
    let answer = named(&["a.sim.example", "a.sim.example.org"]);
    assert_eq!(ended(0, &answer, 1, &["a"]), None);
    assert_eq!(ended(0, &answer, 0, &["a"]), Some(FOLLOWED), "nothing is reported of it");
    assert_eq!(ended(0, &answer, 1, &["a", "b"]), Some(FOLLOWED));
}
