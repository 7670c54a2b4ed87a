//! Topologies as large as they may be.

use std::thread;

use bson::{RawArrayBuf, RawDocumentBuf, cstr};
use sdam_core::description::MAX_SERVERS;
use sdam_core::topology::{Action, EventKind};
use sdam_core::wire::{Flags, MAX_EVENT_REPLY_LEN};

use super::fixture::{Fixture, fresh, member, mongos, ok, primary};

const URI: &str = "mongodb://a/?replicaSet=rs";

/// The reply of a secondary, a, that names itself and so many others, in lists of a thousand.
fn naming(others: usize) -> RawDocumentBuf {
    let others = (0..others).map(|number| format!("m{number:04}:27017"));
    let names: Vec<String> = ["a:27017".to_owned()].into_iter().chain(others).collect();
    let mut reply = ok();
    reply.append(cstr!("setName"), "rs");
    reply.append(cstr!("secondary"), true);
    for (field, list) in
        [cstr!("hosts"), cstr!("passives"), cstr!("arbiters")].into_iter().zip(names.chunks(1000))
    {
        let list: RawArrayBuf = list.iter().map(String::as_str).collect();
        reply.append(field, list);
    }
    reply
}

/// A primary, a, that names so many others; those of another round are others.
fn leading(others: usize, round: i64) -> RawDocumentBuf {
    let names: Vec<String> = (0..others).map(|number| format!("r{round}x{number:04}")).collect();
    let names: Vec<&str> = ["a"].into_iter().chain(names.iter().map(String::as_str)).collect();
    fresh(primary("a", &names, 1), round)
}

#[test]
fn thousands_of_checks_that_time_out_in_one_tick_need_no_deep_stack() {
    let crowd = || {
        let mut fixture = Fixture::new(&format!("{URI}&serverMonitoringMode=poll"));
        fixture.greet("a.0", &naming(MAX_SERVERS - 1));
        // No server ever answers again: not the others, whose first checks fail after 10 s, nor the
        // one that has named them, whose second fails after 20 s, and is tried again at once.
        fixture.at(29_999).forget();
        fixture.at(30_000);
        let timed_out = |action: &&Action| match action {
            Action::Emit { event } => matches!(event.kind, EventKind::ServerHeartbeatFailed { .. }),
            _ => false,
        };
        assert_eq!(fixture.topology.actions.iter().filter(timed_out).count(), MAX_SERVERS);
    };
    thread::Builder::new().stack_size(256 * 1024).spawn(crowd).unwrap().join().unwrap();
}

/// The number of bytes that are allocated, all in all, while this is done.
fn allocated(act: impl FnOnce()) -> f64 {
    allocation_counter::measure(act).bytes_total as f64
}

#[test]
fn members_that_join_by_one_reply_cost_in_proportion_to_their_number() {
    let joining = |count: usize| {
        let mut fixture = Fixture::new(URI);
        fixture.opened("a.0");
        let bytes = fixture.answer("a.0", &naming(count), Flags::NONE);
        allocated(|| {
            fixture.bytes("a.0", &bytes);
        })
    };
    let (few, many) = (joining(700), joining(2800));
    assert!(many < 5.0 * few, "{few} bytes for 700, {many} for four times as many");
}

#[test]
fn members_that_are_exchanged_by_one_reply_cost_in_proportion_to_their_number() {
    let exchanged = |count: usize| {
        let mut fixture = Fixture::new(URI);
        fixture.greet("a.0", &leading(count, 1));
        let bytes = fixture.answer("a.0", &leading(count, 2), Flags::NONE);
        allocated(|| {
            fixture.bytes("a.0", &bytes);
        })
    };
    let (few, many) = (exchanged(240), exchanged(960));
    assert!(many < 5.0 * few, "{few} bytes for 240, {many} for four times as many");
}

/// Returns at how many times the round trip times of so many mongos are measured within a heartbeat
/// frequency, if their first measurements end a millisecond apart from each other.
fn measured_at(count: usize) -> usize {
    let seeds: Vec<String> = (0..count).map(|number| format!("m{number:03}")).collect();
    let mut fixture = Fixture::new(&format!("mongodb://{}/", seeds.join(",")));
    for seed in &seeds {
        fixture.opened(&format!("{seed}.0")).reply(&format!("{seed}.0"), &fresh(mongos(), 1));
    }
    for (millis, seed) in (1..).zip(&seeds) {
        fixture.at(millis).opened(&format!("{seed}.1")).reply(&format!("{seed}.1"), &mongos());
    }
    let (last, mut times) = (count as u64, 0);
    fixture.at(10_000).forget();
    for millis in 10_001..=10_200 + last {
        fixture.at(millis);
        let asked = fixture.topology.take_actions();
        times += usize::from(asked.iter().any(|it| matches!(it, Action::Send { .. })));
    }
    times
}

/// Server Monitoring, "Measuring RTT": each heartbeatFrequencyMS, and a fiftieth later at most.
#[test]
fn round_trip_times_of_more_than_a_hundred_servers_are_measured_together() {
    assert_eq!(measured_at(100), 100);
    assert!(measured_at(101) <= 2, "200 ms apart");
}

/// Server Discovery And Monitoring Logging and Monitoring, "ServerHeartbeatSucceededEvent".
#[test]
fn events_that_nobody_reads_keep_sixteen_kib_of_each_reply_at_most() {
    const REPLIES: usize = 64;
    let mut fixture = Fixture::new("mongodb://a/?replicaSet=rs&connectTimeoutMS=0");
    fixture.greet("a.0", &fresh(member("a", &["a"]), 0));
    let padded = |counter: i64| {
        let mut reply = fresh(member("a", &["a"]), counter);
        reply.append(cstr!("padding"), "x".repeat(900_000));
        reply
    };
    let counted = allocation_counter::measure(|| {
        for counter in 1..=REPLIES {
            fixture.stream("a.0", &padded(counter as i64));
        }
    });
    let most = (REPLIES * (MAX_EVENT_REPLY_LEN + 16 * 1024)) as i64;
    assert!(counted.bytes_current < most, "{} bytes are kept", counted.bytes_current);
    let replies: Vec<_> = fixture
        .topology
        .actions
        .iter()
        .filter_map(|action| match action {
            Action::Emit { event } => match &event.kind {
                EventKind::ServerHeartbeatSucceeded { reply, .. } => Some(reply),
                _ => None,
            },
            _ => None,
        })
        .collect();
    assert_eq!(replies.len(), REPLIES + 1);
    for reply in &replies[1..] {
        assert_eq!(reply.get_str("setName").unwrap(), "rs", "what fits in is there");
        assert!(reply.get("topologyVersion").unwrap().is_some());
        assert!(reply.get("padding").unwrap().is_none());
    }
}
