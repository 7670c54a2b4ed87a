//! Limits: how long and how many servers are kept, and what labels may say.

use super::{at, event, lines, server_closed, server_opening};
use crate::id::{LinkId, ServerId};
use crate::metrics::{DEFINITIONS, Exposition, MAX_DEPARTED, MetricKind, Metrics, RETENTION};
use crate::pool::PoolEvent;
use crate::topology::{EventKind, MonitoringConnection};

const HEARTBEATS: &str = "sdam_heartbeats_succeeded";

#[test]
fn counts_of_a_server_that_has_left_are_kept_for_ten_minutes() {
    let mut metrics = Metrics::new();
    metrics.note(&server_opening(0, "a"));
    assert_eq!(lines(&metrics, 0, "sdam_server_up").len(), 1);
    metrics.note(&server_closed(1000, "a"));
    assert_eq!(lines(&metrics, 1000, "sdam_server_"), [""; 0], "it is no member");
    let last = 1000 + RETENTION.as_millis() as u64;
    assert_eq!(lines(&metrics, last, HEARTBEATS).len(), 1);
    assert_eq!(lines(&metrics, last + 1, HEARTBEATS), [""; 0]);
    metrics.note(&server_opening(last + 1, "b"));
    assert_eq!(metrics.servers.len(), 1, "it is forgotten");
    assert!(metrics.departed.is_empty());
}

#[test]
fn a_server_that_comes_back_goes_on_counting() {
    let mut metrics = Metrics::new();
    for millis in [0, 2000] {
        metrics.note(&server_opening(millis, "a"));
        let (server, address) = (ServerId(1), super::address("a"));
        let failed = EventKind::ServerHeartbeatFailed {
            server,
            address,
            awaited: false,
            duration: super::SECOND,
            connection: MonitoringConnection::new(LinkId { server, number: 0 }, None),
            failure: super::failure(crate::failure::Cause::Closed),
        };
        metrics.note(&event(millis, failed));
        metrics.note(&server_closed(millis + 1000, "a"));
    }
    assert!(lines(&metrics, 3000, "sdam_heartbeats_failed")[0].ends_with(" 2"));
    metrics.note(&server_opening(4000, "a"));
    assert!(metrics.departed.is_empty());
    assert_eq!(lines(&metrics, 4000 + 10 * RETENTION.as_millis() as u64, HEARTBEATS).len(), 1);
}

#[test]
fn of_servers_that_have_left_the_last_hundred_are_kept() {
    let mut metrics = Metrics::new();
    for number in 0..MAX_DEPARTED as u64 + 5 {
        let host = format!("h{number}");
        metrics.note(&server_opening(number, &host));
        metrics.note(&server_closed(number, &host));
    }
    assert_eq!((metrics.servers.len(), metrics.departed.len()), (MAX_DEPARTED, MAX_DEPARTED));
    assert!(!metrics.servers.contains_key(&super::address("h4")));
    assert!(metrics.servers.contains_key(&super::address("h5")));
}

/// A connection in use closes when it returns, however late.
#[test]
fn what_comes_of_a_server_long_after_it_has_left_is_forgotten_with_the_next_change() {
    let mut metrics = Metrics::new();
    let (server, address) = (ServerId(1), super::address("gone"));
    metrics.note(&event(0, EventKind::Pool { server, address, event: PoolEvent::PoolClosed }));
    assert_eq!(metrics.servers.len(), 1);
    metrics.see(at(10), &crate::description::TopologyDescription::default());
    assert_eq!(metrics.departed.len(), 1);
}

#[test]
fn what_stands_in_quotes_is_escaped() {
    let mut metrics = Metrics::new();
    metrics.note(&server_opening(0, "/tmp/a\"b\\c é.sock"));
    let text = Exposition::new(&metrics.snapshot(at(0))).to_string();
    let line = r#"sdam_server_up{server_address="/tmp/a\"b\\c é.sock"} 0"#;
    assert!(text.lines().any(|it| it == line), "{text}");
    let mut families = metrics.snapshot(at(0));
    families.retain(|family| family.definition.name == "sdam.server.up");
    families[0].samples[0].labels = vec![("a.b", "1\n2".to_owned())];
    let text = Exposition::new(&families).to_string();
    assert_eq!(text.lines().last(), Some(r#"sdam_server_up{a_b="1\n2"} 0"#));
}

#[test]
fn each_family_has_its_help_and_its_kind_once() {
    let mut metrics = Metrics::new();
    metrics.note(&server_opening(0, "a"));
    metrics.note(&server_opening(0, "b"));
    let text = Exposition::new(&metrics.snapshot(at(0))).to_string();
    for head in ["# HELP sdam_server_up 1 if ", "# TYPE sdam_server_up gauge\n"] {
        assert_eq!(text.matches(head).count(), 1, "{text}");
    }
    assert!(text.ends_with('\n') && !text.contains("\n\n"));
}

/// Prometheus, "Metric and label naming": units last, `_total` after counters.
#[test]
fn both_names_say_the_same() {
    let mut names = std::collections::BTreeSet::new();
    for definition in DEFINITIONS {
        let mut expected = definition.name.replace('.', "_");
        if definition.unit == "s" {
            expected += "_seconds";
        }
        if definition.kind == MetricKind::Counter {
            expected += "_total";
        }
        // An ending that histograms have.
        if expected == "db_client_connection_count" {
            expected = "db_client_connections".to_owned();
        }
        assert_eq!(definition.prometheus_name, expected);
        assert!(names.insert(definition.name), "{} is there twice", definition.name);
        assert!(definition.help.ends_with('.'), "{}", definition.help);
    }
}
