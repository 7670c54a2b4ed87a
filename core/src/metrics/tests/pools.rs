//! Pools: connections by state, times, and whatever else events report of them.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;

use super::{SECOND, address, at, event, failure, lines, without_buckets};
use crate::config::PoolOptions;
use crate::failure::Cause;
use crate::id::{ConnectionId, ServerId};
use crate::metrics::{MetricKind, Metrics, Sample, SampleValue};
use crate::pool::{CheckOutError, CloseReason, Obstacle, PoolEvent};
use crate::topology::EventKind;

/// Metrics of a pool that leads to h.
struct Fixture(Metrics);

impl Fixture {
    fn new() -> Self {
        let mut new = Self(Metrics::new());
        let options = PoolOptions::default().with_max_pool_size(7).with_min_pool_size(2);
        new.note(0, PoolEvent::PoolCreated { options });
        new
    }

    fn note(&mut self, millis: u64, pool_event: PoolEvent) -> &mut Self {
        let (server, address) = (ServerId(3), address("h"));
        self.0.note(&event(millis, EventKind::Pool { server, address, event: pool_event }));
        self
    }

    /// A connection is established.
    fn establish(&mut self, millis: u64, number: u64) -> &mut Self {
        let (connection, stages) = (ConnectionId(number), Arc::default());
        self.note(millis, PoolEvent::ConnectionCreated { connection });
        self.note(millis, PoolEvent::ConnectionReady { connection, duration: SECOND, stages })
    }

    /// A connection is checked out at once.
    fn check_out(&mut self, millis: u64, number: u64) -> &mut Self {
        let (connection, duration) = (ConnectionId(number), Duration::ZERO);
        self.note(millis, PoolEvent::ConnectionCheckOutStarted);
        self.note(millis, PoolEvent::ConnectionCheckedOut { connection, duration })
    }

    fn lines(&self, name: &str) -> Vec<String> {
        without_buckets(&self.0, 100_000, &format!("db_client_connection{name}"))
    }

    fn counts(&self) -> [u64; 3] {
        counts(&self.0)
    }
}

/// Returns how many connections of a pool are pending, idle and in use.
pub(super) fn counts(metrics: &Metrics) -> [u64; 3] {
    let families = metrics.snapshot(at(100_000));
    let family = families.iter().find(|it| it.definition.name == "db.client.connection.count");
    let value = |sample: &Sample| match sample.value {
        SampleValue::Number(value) => value as u64,
        SampleValue::Distribution(_) => panic!("a histogram"),
    };
    let states: Vec<_> = family.unwrap().samples.iter().map(value).collect();
    states.try_into().unwrap()
}

fn timeout() -> Box<CheckOutError> {
    let obstacle = Obstacle::Queued { behind: 0, in_use: 1, pending: 0 };
    let (address, waited) = (address("h"), SECOND);
    Box::new(CheckOutError::Timeout { address, waited, obstacle, in_use: None, verdict: None })
}

#[test]
fn connections_are_counted_by_their_state() {
    let mut pool = Fixture::new();
    assert_eq!(pool.counts(), [0, 0, 0]);
    pool.note(10, PoolEvent::ConnectionCheckOutStarted);
    pool.note(10, PoolEvent::ConnectionCreated { connection: ConnectionId(1) });
    assert_eq!(pool.counts(), [1, 0, 0]);
    pool.establish(20, 1);
    assert_eq!(pool.counts(), [0, 1, 0]);
    let connection = ConnectionId(1);
    pool.note(20, PoolEvent::ConnectionCheckedOut { connection, duration: SECOND });
    assert_eq!(pool.counts(), [0, 0, 1]);
    pool.note(30, PoolEvent::ConnectionCheckedIn { connection });
    assert_eq!(pool.counts(), [0, 1, 0]);
    pool.note(
        40,
        PoolEvent::ConnectionClosed { connection, reason: CloseReason::Idle, error: None },
    );
    assert_eq!(pool.counts(), [0, 0, 0]);
    let closed = [
        r#"sdam_connections_closed_total{db_client_connection_pool_name="h:27017",sdam_reason="idle"} 1"#,
    ];
    assert_eq!(lines(&pool.0, 50, "sdam_connections_closed"), closed);
    let limits = ["_idle_max", "_idle_min", "_max"].map(|name| pool.lines(name).concat());
    assert!(limits[0].ends_with(" 7") && limits[1].ends_with(" 2") && limits[2].ends_with(" 7"));
}

#[test]
fn a_pool_without_a_limit_has_none() {
    let mut pool = Fixture::new();
    let options = PoolOptions::default().with_max_pool_size(0);
    pool.note(0, PoolEvent::PoolCreated { options });
    assert_eq!(pool.lines("_max"), [""; 0]);
    assert_eq!(pool.lines("_idle_max"), [""; 0]);
}

#[test]
fn times_of_waiting_of_use_and_of_establishing_are_added_up() {
    let mut pool = Fixture::new();
    pool.establish(0, 1).establish(0, 2).check_out(1000, 1).check_out(1000, 2);
    pool.note(1500, PoolEvent::ConnectionCheckedIn { connection: ConnectionId(1) });
    let (connection, reason) = (ConnectionId(2), CloseReason::Error);
    pool.note(4000, PoolEvent::ConnectionClosed { connection, reason, error: None });
    let of = |name: &str, ending: &str, value: &str| {
        format!(
            "db_client_connection{name}_seconds{ending}\
                 {{db_client_connection_pool_name=\"h:27017\"}} {value}"
        )
    };
    let both = |name, sum| [of(name, "_sum", sum), of(name, "_count", "2")];
    assert_eq!(pool.lines("_use_time"), both("_use_time", "3.5"));
    assert_eq!(pool.lines("_create_time"), both("_create_time", "2"));
    assert_eq!(pool.lines("_wait_time"), both("_wait_time", "0"));
    let clear = PoolEvent::PoolCleared {
        service: None,
        interrupt_in_use_connections: false,
        cause: failure(Cause::Timeout),
    };
    pool.note(5000, clear);
    let clears =
        r#"sdam_pool_clears_total{server_address="h",server_port="27017",error_type="timeout"} 1"#;
    assert_eq!(lines(&pool.0, 6000, "sdam_pool_clears"), [clears]);
}

#[test]
fn operations_that_get_no_connection_are_counted_by_cause() {
    let mut pool = Fixture::new();
    let closed = Box::new(CheckOutError::PoolClosed { address: address("h") });
    for error in [timeout(), timeout(), closed] {
        pool.note(0, PoolEvent::ConnectionCheckOutStarted);
        pool.note(9, PoolEvent::ConnectionCheckOutFailed { error, duration: SECOND });
    }
    let timeouts =
        r#"db_client_connection_timeouts_total{db_client_connection_pool_name="h:27017"} 2"#;
    assert_eq!(pool.lines("_timeouts"), [timeouts]);
    let failed = lines(&pool.0, 9, "sdam_check_outs_failed");
    assert!(failed[0].ends_with(r#"error_type="poolClosed"} 1"#), "{failed:?}");
    assert!(failed[1].ends_with(r#"error_type="timeout"} 2"#), "{failed:?}");
}

#[test]
fn connections_in_use_when_their_pool_is_closed_count_until_they_are() {
    let mut pool = Fixture::new();
    pool.establish(0, 1).check_out(0, 1).note(10, PoolEvent::PoolClosed);
    assert_eq!(pool.counts(), [0, 0, 1]);
    let (connection, reason) = (ConnectionId(1), CloseReason::PoolClosed);
    pool.note(20, PoolEvent::ConnectionClosed { connection, reason, error: None });
    assert_eq!(pool.counts(), [0, 0, 0]);
}

#[test]
fn after_dropped_events_connections_count_from_their_next_use() {
    let mut pool = Fixture::new();
    pool.establish(0, 1).establish(0, 2).check_out(0, 1);
    pool.0.note_dropped(12);
    pool.0.note_dropped(12);
    assert_eq!(pool.counts(), [0, 0, 0]);
    pool.note(10, PoolEvent::ConnectionCheckedIn { connection: ConnectionId(1) });
    pool.check_out(20, 2);
    pool.0.note_dropped(12);
    assert_eq!(pool.counts(), [0, 1, 1]);
    assert_eq!(lines(&pool.0, 20, "sdam_events_dropped"), ["sdam_events_dropped_total 12"]);
}

#[test]
fn the_change_stream_that_is_furthest_behind_counts_until_it_has_ended() {
    let mut metrics = Metrics::new();
    let of = |metrics: &Metrics, millis| lines(metrics, millis, "sdam_change_stream");
    assert_eq!(of(&metrics, 0), [""; 0]);
    metrics.change_stream_lags(at(1000), 1, Some(SECOND * 7));
    metrics.change_stream_lags(at(2000), 2, Some(SECOND * 3));
    assert_eq!(of(&metrics, 3000), ["sdam_change_stream_lag_seconds 9"], "two seconds ago");
    metrics.change_stream_lags(at(3000), 1, Some(Duration::ZERO));
    assert_eq!(of(&metrics, 3000), ["sdam_change_stream_lag_seconds 4"]);
    metrics.change_stream_lags(at(3000), 1, None);
    metrics.change_stream_lags(at(3000), 2, None);
    assert_eq!(of(&metrics, 3000), [""; 0]);
}

#[test]
fn a_change_stream_does_not_fall_behind_while_its_server_waits_for_changes() {
    let mut metrics = Metrics::new();
    let of = |metrics: &Metrics, millis| lines(metrics, millis, "sdam_change_stream");
    metrics.change_stream_waits(at(0), 1, SECOND);
    assert_eq!(of(&metrics, 0), [""; 0], "nothing is known of it");
    metrics.change_stream_lags(at(1000), 1, Some(Duration::ZERO));
    metrics.change_stream_waits(at(3000), 1, SECOND * 30);
    assert_eq!(of(&metrics, 3000), ["sdam_change_stream_lag_seconds 2"], "it was not read");
    assert_eq!(of(&metrics, 33_000), ["sdam_change_stream_lag_seconds 2"]);
    assert_eq!(of(&metrics, 34_000), ["sdam_change_stream_lag_seconds 3"], "it is late");
    metrics.change_stream_waits(at(34_000), 1, SECOND);
    metrics.change_stream_waits(at(34_500), 1, SECOND);
    assert_eq!(of(&metrics, 34_500), ["sdam_change_stream_lag_seconds 3"]);
}

/// Any event of a pool with few connections, in any order.
fn any_event() -> impl Strategy<Value = PoolEvent> {
    let connection = (0..4_u64).prop_map(ConnectionId);
    let duration = (0..20_000_u64).prop_map(Duration::from_millis);
    (0..8_u8, connection, duration).prop_map(|(kind, connection, duration)| match kind {
        0 => PoolEvent::ConnectionCreated { connection },
        1 => PoolEvent::ConnectionReady { connection, duration, stages: Arc::default() },
        2 => PoolEvent::ConnectionClosed { connection, reason: CloseReason::Stale, error: None },
        3 => PoolEvent::ConnectionCheckOutStarted,
        4 => PoolEvent::ConnectionCheckOutFailed { error: timeout(), duration },
        5 => PoolEvent::ConnectionCheckedOut { connection, duration },
        6 => PoolEvent::ConnectionCheckedIn { connection },
        _ => PoolEvent::PoolClosed,
    })
}

/// Returns all that never falls: counters, buckets, sums and counts; and checks that each bucket
/// holds all that is in the one before.
fn growing(metrics: &Metrics, millis: u64) -> Vec<f64> {
    let mut all = Vec::new();
    for family in metrics.snapshot(at(millis)) {
        for sample in &family.samples {
            match &sample.value {
                SampleValue::Number(value) if family.definition.kind == MetricKind::Counter => {
                    all.push(*value);
                }
                SampleValue::Number(value) => assert!(*value >= 0.0),
                SampleValue::Distribution(distribution) => {
                    let counts = distribution.buckets.iter().map(|(_, count)| *count);
                    let mut counts: Vec<_> = counts.collect();
                    counts.push(distribution.count);
                    assert!(counts.is_sorted(), "{distribution:?}");
                    all.extend(counts.iter().map(|count| *count as f64));
                    all.push(distribution.sum);
                }
            }
        }
    }
    all
}

proptest! {
    #[test]
    fn whatever_comes_nothing_falls_that_is_to_grow(
        events in proptest::collection::vec((0..5_000_u64, any_event()), 0..80),
    ) {
        let (mut pool, mut now) = (Fixture::new(), 0);
        // The labels that come and go are those of failures: all of them are there from now on.
        pool.note(0, PoolEvent::ConnectionCheckOutFailed { error: timeout(), duration: SECOND });
        let (connection, reason) = (ConnectionId(9), CloseReason::Stale);
        pool.note(0, PoolEvent::ConnectionClosed { connection, reason, error: None });
        let mut last = growing(&pool.0, now);
        for (pause, event) in events {
            now += pause;
            pool.note(now, event);
            let grown = growing(&pool.0, now);
            prop_assert_eq!(grown.len(), last.len());
            for (new, old) in grown.iter().zip(&last) {
                prop_assert!(new >= old, "{new} < {old}");
            }
            last = grown;
        }
    }
}

/// An operation may ask a closed pool, and a connection in use returns when its pool has long been
/// closed.
#[test]
fn nothing_is_kept_of_a_closed_pool() {
    let mut pool = Fixture::new();
    pool.establish(0, 1).check_out(10, 1).note(20, PoolEvent::PoolClosed);
    let (connection, reason) = (ConnectionId(1), CloseReason::PoolClosed);
    pool.note(30, PoolEvent::ConnectionCheckedIn { connection });
    pool.note(30, PoolEvent::ConnectionClosed { connection, reason, error: None });
    let kept = |pool: &Fixture| pool.0.servers[&address("h")].pool.tracked();
    assert_eq!(kept(&pool), 0);
    let error = Box::new(CheckOutError::PoolClosed { address: address("h") });
    pool.note(40, PoolEvent::ConnectionCheckOutStarted);
    pool.note(40, PoolEvent::ConnectionCheckOutFailed { error, duration: Duration::ZERO });
    assert_eq!(kept(&pool), 0, "it has come back with a late event");
    // As after events were dropped.
    pool.note(50, PoolEvent::ConnectionCheckedIn { connection });
    let reason = CloseReason::PoolClosed;
    pool.note(50, PoolEvent::ConnectionClosed { connection, reason, error: None });
    assert_eq!(kept(&pool), 0);
}
