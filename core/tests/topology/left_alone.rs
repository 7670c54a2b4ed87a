//! Scans of single-threaded clients that no operation waits for any more: what they find is no news
//! to an operation that comes late (Server Selection, "Single-threaded server selection").

use std::sync::Arc;

use bson::RawDocumentBuf;
use sdam_core::config::{ReadMode, ReadPreference};
use sdam_core::id::WaiterId;
use sdam_core::machine::Machine;
use sdam_core::selection::Criteria;
use sdam_core::time::Instant;
use sdam_core::topology::{Action, Input};

use super::fixture::{Fixture, ms};
use super::scanning_order::{answer, checking, set};
use super::single_threaded::{nearest, select, single, story};

const URI: &str = "mongodb://a,b/?replicaSet=rs&heartbeatFrequencyMS=10000&connectTimeoutMS=0";

fn reply(host: &str) -> Option<RawDocumentBuf> {
    set("a", &["a", "b"])(host)
}

/// A client whose first operation has gone at 1 ms, when one server was checked; returns which.
fn left_alone(uri: &str) -> (Fixture, String) {
    let mut fixture = single(uri);
    select(&mut fixture, 1, Criteria::write());
    let first = answer(fixture.at(1), reply);
    abandon(&mut fixture, 1);
    (fixture, first)
}

fn abandon(fixture: &mut Fixture, waiter: u64) {
    fixture.input(Input::Abandon { waiter: WaiterId(waiter) });
}

/// "the topology is stale" after heartbeatFrequencyMS, whenever the scan has ended.
#[test]
fn a_scan_that_ends_when_an_operation_comes_late_is_not_fresh() {
    let (mut fixture, first) = left_alone("mongodb://a,b/?replicaSet=rs");
    fixture.quiet();
    // The check of the other one is overdue, with which the scan ends before the operation waits.
    let criteria = Arc::new(Criteria::read(ReadPreference::new(ReadMode::Nearest)));
    let wait = Input::Wait { waiter: WaiterId(2), criteria, deadline: None };
    let mut out = Vec::new();
    fixture.topology.machine.handle(Instant::from_millis(1_000_000).into(), wait, &mut out);
    let is_woken = out.iter().any(|action| matches!(action, Action::Wake { .. }));
    assert!(!is_woken, "by what {first} said 1000 s ago");
}

#[test]
fn what_was_checked_more_than_a_heartbeat_ago_is_checked_again() {
    let (mut fixture, first) = left_alone(URI);
    select(fixture.at(10_000), 2, Criteria::write());
    abandon(&mut fixture, 2);
    select(fixture.at(19_999).quiet(), 3, Criteria::write());
    answer(&mut fixture, reply);
    assert_eq!(story(&mut fixture), [format!("started {first}")], "it was checked 19998 ms ago");
}

/// "Requesting an immediate check"
#[test]
fn a_check_is_requested_while_a_scan_is_left_alone() {
    let (mut fixture, first) = left_alone(URI);
    fixture.at(50_000).quiet().input(Input::RequestCheck);
    select(fixture.at(50_001), 3, Criteria::write());
    answer(&mut fixture, reply);
    assert_eq!(story(&mut fixture), [format!("started {first}")], "it was checked 50 s ago");
}

/// Server Selection, "Calculation of Average Round Trip Times": samples are of the network.
#[test]
fn a_reply_that_is_read_before_somebody_waits_again_is_void_and_asked_for_anew() {
    let (mut fixture, first) = left_alone(URI);
    let other = checking(&fixture);
    let link = format!("{other}.0");
    fixture.opened(&link).at(1_000_000).quiet();
    fixture.reply(&link, &reply(&other).unwrap());
    assert_eq!(fixture.server(&other).round_trip_time, None);
    assert_eq!(fixture.topology.machine.deadline(), None, "nothing waits");
    select(fixture.at(2_000_000), 3, Criteria::write());
    fixture.at(2_000_007).reply(&link, &reply(&other).unwrap());
    assert_eq!(fixture.server(&other).round_trip_time, Some(ms(7)));
    assert_eq!(story(&mut fixture), [format!("started {first}")]);
}

#[test]
fn a_scan_that_ends_soon_after_the_last_operation_has_gone_is_fresh() {
    let (mut fixture, _) = left_alone(URI);
    let other = checking(&fixture);
    fixture.at(2).closed(&format!("{other}.0")).quiet();
    select(&mut fixture, 2, nearest());
    assert_eq!(story(&mut fixture), ["wake 2"]);
}
