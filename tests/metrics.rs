//! Metrics that go to a recorder of the crate `metrics`: what Prometheus would read of the client.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, Key, KeyName, Metadata, Recorder, SharedString,
    Unit, with_local_recorder,
};
use sdam::core::config::Options;
use sdam::core::description::TopologyDescription;
use sdam::core::machine::Machine;
use sdam::core::metrics::{Exposition, Metrics, Traffic};
use sdam::core::time::Time;
use sdam::core::topology::{Action, Topology};

use sdam::metrics::Publisher;

/// A recorder that keeps the last value of everything, as Prometheus would read it.
#[derive(Default)]
struct Kept {
    values: Arc<Mutex<BTreeMap<String, f64>>>,
    described: Mutex<BTreeMap<String, &'static str>>,
}

struct Slot(Arc<Mutex<BTreeMap<String, f64>>>, String);

impl Slot {
    fn keep(&self, value: f64) {
        self.0.lock().unwrap().insert(self.1.clone(), value);
    }
}

impl CounterFn for Slot {
    fn increment(&self, _: u64) {
        unreachable!("counts are absolute");
    }

    fn absolute(&self, value: u64) {
        self.keep(value as f64);
    }
}

impl GaugeFn for Slot {
    fn increment(&self, _: f64) {
        unreachable!("gauges are set");
    }

    fn decrement(&self, _: f64) {
        unreachable!("gauges are set");
    }

    fn set(&self, value: f64) {
        self.keep(value);
    }
}

impl Kept {
    fn slot(&self, key: &Key) -> Arc<Slot> {
        let labels: Vec<_> =
            key.labels().map(|it| format!("{}=\"{}\"", it.key(), it.value())).collect();
        let name = match labels.is_empty() {
            true => key.name().to_owned(),
            false => format!("{}{{{}}}", key.name(), labels.join(",")),
        };
        Arc::new(Slot(Arc::clone(&self.values), name))
    }

    fn lines(&self) -> Vec<String> {
        let values = self.values.lock().unwrap();
        values.iter().map(|(name, value)| format!("{name} {value}")).collect()
    }

    fn describe(&self, key: &KeyName, kind: &'static str) {
        self.described.lock().unwrap().insert(key.as_str().to_owned(), kind);
    }
}

impl Recorder for Kept {
    fn describe_counter(&self, key: KeyName, _: Option<Unit>, _: SharedString) {
        self.describe(&key, "counter");
    }

    fn describe_gauge(&self, key: KeyName, _: Option<Unit>, _: SharedString) {
        self.describe(&key, "gauge");
    }

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {
        unreachable!("there is none");
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.slot(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.slot(key))
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        unreachable!("there is none")
    }
}

/// Metrics of a replica set of which no member has answered yet, that has had operations.
fn metrics() -> Metrics {
    let options = Options::parse("mongodb://a.example,b.example/?replicaSet=rs0").unwrap();
    let mut topology = Topology::new(Arc::new(options), 1);
    let (mut actions, mut metrics) = (Vec::new(), Metrics::new());
    topology.tick(Time::ZERO, &mut actions);
    for action in actions {
        if let Action::Emit { event } = action {
            metrics.note(&event);
        }
    }
    let mut traffic = Traffic::default();
    traffic.checked_out(Duration::from_millis(2));
    traffic.checked_in(Duration::from_millis(40));
    traffic.command_ended("find", Duration::from_millis(7), None);
    metrics.add(&"a.example".parse().unwrap(), traffic);
    metrics
}

#[test]
fn a_recorder_is_told_what_prometheus_would_read() {
    let (kept, metrics) = (Kept::default(), metrics());
    let families = metrics.snapshot(Time::ZERO.clock + Duration::from_millis(2600));
    with_local_recorder(&kept, || Publisher::new().publish(&families));
    let text = Exposition::new(&families).to_string();
    let mut expected: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
    expected.sort_unstable();
    let mut lines = kept.lines();
    lines.sort_unstable();
    assert_eq!(lines, expected);
    assert!(text.contains("sdam_primary_absence_seconds_total 2.6\n"), "{text}");
    // All of them are described.
    for line in &lines {
        let name = line.split(['{', ' ']).next().unwrap();
        assert!(kept.described.lock().unwrap().contains_key(name), "{name}");
    }
}

#[test]
fn a_gauge_that_is_not_there_any_more_has_no_value() {
    let (kept, mut metrics, mut publisher) = (Kept::default(), metrics(), Publisher::new());
    let now = Time::ZERO.clock;
    with_local_recorder(&kept, || publisher.publish(&metrics.snapshot(now)));
    metrics.see(now, &TopologyDescription::default());
    with_local_recorder(&kept, || publisher.publish(&metrics.snapshot(now)));
    let of_b: Vec<_> = kept.lines().into_iter().filter(|line| line.contains("b.example")).collect();
    let labels = r#"server_address="b.example",server_port="27017""#;
    assert!(of_b.contains(&format!("sdam_server_up{{{labels}}} NaN")), "{of_b:?}");
    let was = format!(r#"sdam_server_type{{{labels},sdam_type="Unknown"}} 0"#);
    assert!(of_b.contains(&was), "{of_b:?}");
    assert!(of_b.contains(&format!("sdam_heartbeats_succeeded_total{{{labels}}} 0")));
}
