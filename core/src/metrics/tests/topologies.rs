//! Topologies in virtual time: primaries, servers, checks.

use bson::oid::ObjectId;
use bson::{RawDocumentBuf, cstr, rawdoc};

use super::{at, failure, lines, without_buckets};
use crate::config::Options;
use crate::failure::{Cause, Stage};
use crate::harness::VirtualTopology;
use crate::id::Generation;
use crate::metrics::Metrics;
use crate::operation::{CommandError, OperationError, OperationFailure};
use crate::topology::{Action, Input};

/// A topology, and the metrics of all of its events.
struct Fixture {
    topology: VirtualTopology,
    metrics: Metrics,
}

impl Fixture {
    fn new(uri: &str) -> Self {
        let topology = VirtualTopology::open(Options::parse(uri).unwrap(), 1);
        let mut new = Self { topology, metrics: Metrics::new() };
        new.note();
        new
    }

    fn at(&mut self, millis: u64) -> &mut Self {
        self.topology.pass(at(millis));
        self.note();
        self
    }

    /// The server answers the check that goes on, or the one that begins now.
    fn reply(&mut self, server: &str, reply: &RawDocumentBuf) -> &mut Self {
        let link = self.topology.last_link(server).unwrap();
        if !self.topology.peer(link).is_asked {
            self.topology.accept(link);
        }
        self.topology.reply(link, reply);
        self.note();
        self
    }

    /// The server fails while it is checked, as the other one is too.
    fn fail(&mut self, server: &str, cause: Cause) -> &mut Self {
        self.topology.input(Input::RequestCheck);
        self.topology.close(self.topology.last_link(server).unwrap(), failure(cause));
        self.note();
        self
    }

    fn note(&mut self) {
        for action in self.topology.take_actions() {
            if let Action::Emit { event } = action {
                self.metrics.note(&event);
            }
        }
    }

    fn lines(&self, beginning: &str) -> Vec<String> {
        let now = self.topology.now().as_nanos() / 1_000_000;
        without_buckets(&self.metrics, now, beginning)
    }
}

/// A reply of a member of the set of a and b; `election` is that of a primary.
fn member(me: &str, election: Option<u8>) -> RawDocumentBuf {
    let mut reply = rawdoc! {
        "ok": 1, "maxWireVersion": 17, "setName": "rs0", "setVersion": 1, "me": me,
        "hosts": ["a:27017", "b:27017"],
        "isWritablePrimary": election.is_some(), "secondary": election.is_none(),
    };
    if let Some(number) = election {
        reply.append(cstr!("electionId"), ObjectId::from_bytes([number; 12]));
    }
    reply
}

const SET: &str = "mongodb://a,b/?replicaSet=rs0&serverMonitoringMode=poll\
                   &heartbeatFrequencyMS=600000&connectTimeoutMS=0";

/// A set whose primary is a.
fn set() -> Fixture {
    let mut set = Fixture::new(SET);
    set.at(100).reply("a:27017", &member("a:27017", Some(1)));
    set.reply("b:27017", &member("b:27017", None));
    set
}

#[test]
fn a_failover_is_an_election_and_a_time_without_a_primary() {
    let mut set = set();
    assert_eq!(set.lines("sdam_elections"), ["sdam_elections_total 0"]);
    assert_eq!(set.lines("sdam_topology_writable"), ["sdam_topology_writable 1"]);
    set.at(5000).fail("a:27017", Cause::Closed);
    let absence = ["sdam_primary_absence_seconds_total 2.6"];
    assert_eq!(set.at(7500).lines("sdam_primary_absence"), absence, "it goes on");
    assert_eq!(set.lines("sdam_topology_writable"), ["sdam_topology_writable 0"]);
    assert_eq!(set.lines("sdam_topology_readable"), ["sdam_topology_readable 1"]);
    let of = |name| format!("sdam_topology_type{{sdam_type=\"{name}\"}} 1");
    assert_eq!(set.lines("sdam_topology_type"), [of("ReplicaSetNoPrimary")]);
    set.at(8000).reply("b:27017", &member("b:27017", Some(2)));
    assert_eq!(set.lines("sdam_elections"), ["sdam_elections_total 1"]);
    assert_eq!(set.lines("sdam_topology_type"), [of("ReplicaSetWithPrimary")]);
    let failover =
        ["sdam_failover_duration_seconds_sum 3", "sdam_failover_duration_seconds_count 1"];
    assert_eq!(set.at(9000).lines("sdam_failover"), failover);
    let buckets = lines(&set.metrics, 9000, "sdam_failover_duration_seconds_bucket");
    assert_eq!(buckets[3], "sdam_failover_duration_seconds_bucket{le=\"2\"} 0");
    assert_eq!(buckets[4], "sdam_failover_duration_seconds_bucket{le=\"5\"} 1");
    assert_eq!(buckets.last().unwrap(), "sdam_failover_duration_seconds_bucket{le=\"+Inf\"} 1");
    assert_eq!(set.lines("sdam_primary_absence"), ["sdam_primary_absence_seconds_total 3.1"]);
}

#[test]
fn a_primary_that_comes_back_without_an_election_was_not_elected() {
    for (election, elections) in [(1, 0), (2, 1)] {
        let mut set = set();
        set.at(5000).fail("a:27017", Cause::Timeout);
        set.at(6000).reply("a:27017", &member("a:27017", Some(election)));
        assert_eq!(set.lines("sdam_elections"), [format!("sdam_elections_total {elections}")]);
        let failover = set.lines("sdam_failover_duration_seconds_count");
        assert_eq!(failover, ["sdam_failover_duration_seconds_count 1"]);
    }
}

#[test]
fn each_server_has_its_type_and_its_checks_by_outcome() {
    let mut set = set();
    set.at(5000).fail("a:27017", Cause::Refused);
    let of_a = |name: &str, label: &str, value| {
        format!("{name}{{server_address=\"a\",server_port=\"27017\"{label}}} {value}")
    };
    let expected = [
        of_a("sdam_server_type", ",sdam_type=\"Unknown\"", 1),
        "sdam_server_type{server_address=\"b\",server_port=\"27017\",sdam_type=\"RSSecondary\"} 1"
            .to_owned(),
    ];
    assert_eq!(set.lines("sdam_server_type"), expected);
    assert_eq!(set.lines("sdam_server_up")[0], of_a("sdam_server_up", "", 0));
    let failed = of_a("sdam_heartbeats_failed_total", ",error_type=\"refused\"", 1);
    assert_eq!(set.lines("sdam_heartbeats_failed"), [failed]);
    let succeeded = of_a("sdam_heartbeats_succeeded_total", "", 1);
    assert_eq!(set.lines("sdam_heartbeats_succeeded")[0], succeeded);
    // Of b only, as a was not asked since.
    assert_eq!(set.lines("sdam_server_round_trip_time").len(), 1);
}

#[test]
fn whoever_begins_late_sees_what_the_view_has() {
    let set = set();
    let mut late = Metrics::new();
    late.see(at(200), set.topology.machine.get().description());
    for family in ["sdam_server_", "sdam_topology_writable", "sdam_topology_type"] {
        assert_eq!(lines(&late, 200, family), lines(&set.metrics, 200, family));
        assert!(!lines(&late, 200, family).is_empty(), "{family}");
    }
    assert_eq!(lines(&late, 200, "sdam_elections"), ["sdam_elections_total 0"]);
}

#[test]
fn a_deployment_without_members_has_no_time_without_a_primary() {
    let mut one = Fixture::new("mongodb://a/?connectTimeoutMS=0");
    one.at(5000)
        .reply("a:27017", &rawdoc! { "ok": 1, "isWritablePrimary": true, "maxWireVersion": 17 });
    assert_eq!(one.at(9000).lines("sdam_primary"), ["sdam_primary_absence_seconds_total 0"]);
    assert_eq!(one.lines("sdam_topology_writable"), ["sdam_topology_writable 1"]);
}

/// The view is newer than what is still to be noted: what both report counts once.
#[test]
fn a_failover_that_the_view_shows_before_its_events_counts_once() {
    let mut set = set();
    set.at(1000);
    let mut late = set.metrics.clone();
    set.topology.input(Input::RequestCheck);
    set.topology.close(set.topology.last_link("a:27017").unwrap(), failure(Cause::Closed));
    set.topology.pass(at(3000));
    let elected = member("b:27017", Some(2));
    let link = set.topology.last_link("b:27017").unwrap();
    if !set.topology.peer(link).is_asked {
        set.topology.accept(link);
    }
    set.topology.reply(link, &elected);
    set.topology.pass(at(6000));
    let view = set.topology.machine.get().description().clone();
    assert_eq!(view.primary().unwrap().address, super::address("b:27017"));
    late.see(at(6000), &view);
    assert_eq!(lines(&late, 6000, "sdam_topology_writable"), ["sdam_topology_writable 1"]);
    for action in set.topology.take_actions() {
        if let Action::Emit { event } = action {
            late.note(&event);
            late.see(at(6000), &view);
        }
    }
    assert_eq!(lines(&late, 6000, "sdam_elections"), ["sdam_elections_total 1"]);
    let count = "sdam_failover_duration_seconds_count";
    assert_eq!(lines(&late, 6000, count), [format!("{count} 1")]);
}

/// The time without a primary never falls, although the view knows first that it is over, and the
/// events know better since when.
#[test]
fn the_time_without_a_primary_does_not_fall_when_the_view_is_ahead() {
    let mut set = set();
    set.at(5000).fail("a:27017", Cause::Closed);
    let mut late = set.metrics.clone();
    late.see(at(7000), set.topology.machine.get().description());
    let absence = |metrics: &Metrics, millis| {
        let lines = lines(metrics, millis, "sdam_primary_absence");
        lines[0].rsplit(' ').next().unwrap().parse::<f64>().unwrap()
    };
    let before = absence(&late, 7000);
    set.topology.pass(at(8000));
    let link = set.topology.last_link("b:27017").unwrap();
    if !set.topology.peer(link).is_asked {
        set.topology.accept(link);
    }
    set.topology.reply(link, &member("b:27017", Some(2)));
    let view = set.topology.machine.get().description().clone();
    late.see(at(9000), &view);
    let ahead = absence(&late, 9000);
    assert!(ahead >= before, "{ahead} < {before}");
    for action in set.topology.take_actions() {
        if let Action::Emit { event } = action {
            late.note(&event);
        }
    }
    let told = absence(&late, 9000);
    assert!(told >= ahead, "{told} < {ahead}");
}

/// An operation's error makes a server unknown that answers its checks.
#[test]
fn a_server_is_up_as_long_as_it_answers_its_checks() {
    let mut set = set();
    let error = CommandError { code: Some(10107), ..CommandError::default() };
    let error = OperationError::Reply { stage: Stage::Operate, error };
    let view = set.topology.machine.get().description().clone();
    let server = view.server(&super::address("a:27017")).unwrap();
    let failure = OperationFailure::new(Generation::new(0), 17, error);
    set.topology.input(Input::OperationFailed { server: server.id, failure });
    set.note();
    let up = |set: &Fixture| set.lines("sdam_server_up{server_address=\"a\"").concat();
    assert!(set.lines("sdam_server_type")[0].contains("Unknown"));
    assert!(up(&set).ends_with(" 1"), "its last check was answered");
    set.at(5000).fail("a:27017", Cause::Timeout);
    assert!(up(&set).ends_with(" 0"));
}

/// Of a server that has left and come back, nothing is known but what it says from then on.
#[test]
fn a_server_that_comes_back_is_not_up_before_it_has_answered() {
    let mut metrics = Metrics::new();
    metrics.note(&super::server_opening(0, "a"));
    let set = set();
    metrics.see(at(200), set.topology.machine.get().description());
    metrics.note(&super::server_closed(300, "a"));
    metrics.note(&super::server_opening(400, "a"));
    assert!(lines(&metrics, 400, "sdam_server_up{server_address=\"a\"")[0].ends_with(" 0"));
}

/// As many as before, but others.
#[test]
fn members_of_the_view_are_compared_and_not_only_counted() {
    let mut metrics = Metrics::new();
    metrics.note(&super::server_opening(0, "c"));
    metrics.note(&super::server_opening(0, "d"));
    let set = set();
    metrics.see(at(200), set.topology.machine.get().description());
    let types = lines(&metrics, 200, "sdam_server_type");
    assert_eq!(types.len(), 2, "{types:?}");
    assert!(types[0].contains("\"a\"") && types[1].contains("\"b\""), "{types:?}");
}
