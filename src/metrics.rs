//! Metrics of clients for the crate `metrics`, and so for whichever recorder the program has.
//!
//! Names, labels and values are those of `sdam::core::metrics::Exposition`, what Prometheus reads
//! from a client directly. A
//! recorder has no histograms with buckets of others, so that a family of histograms becomes what
//! Prometheus makes of it: a counter `_bucket` for each bound in `le`, a counter `_count` and a
//! gauge `_sum`. A counter of seconds is a gauge, too, as counters are whole numbers there.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use sdam::metrics::Publisher;
//! use sdam::{Topology, Options};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let options = Options::parse("mongodb://db1.example,db2.example/?replicaSet=rs0")?;
//! let client = Topology::builder(options).metrics().connect().await?;
//! let mut publisher = Publisher::new();
//! loop {
//!     publisher.publish(&client.metrics());
//!     tokio::time::sleep(Duration::from_secs(10)).await;
//! }
//! # }
//! ```

use std::collections::BTreeSet;

use ::metrics::{Label, Unit};
use sdam_core::metrics::{Definition, Distribution, Family, MetricKind, Sample, SampleValue};

/// The label whose values are what is so: of those, the ones that are not are 0.
const TYPE: &str = "sdam_type";

/// The labels of a sample, as they are published.
type Labels = Vec<(String, String)>;

/// A publisher of one client's metrics, through the recorder that the thread or the program has.
#[derive(Clone, Debug, Default)]
pub struct Publisher {
    /// The gauges that were there when it last published.
    gauges: BTreeSet<(&'static str, Labels)>,
}

impl Publisher {
    /// Begins with nothing published.
    pub fn new() -> Self {
        Self::default()
    }

    /// Publishes a snapshot: [`Client::metrics`](sdam_host::Topology::metrics) of one client,
    /// always of the same.
    ///
    /// A gauge that is not in it any more, as those of a server that has left, is set to NaN; but
    /// to 0 where its label says what was so, as in `sdam_server_type`. Recorders forget none.
    pub fn publish(&mut self, families: &[Family]) {
        let mut gauges = BTreeSet::new();
        for Family { definition, samples, .. } in families {
            describe(definition);
            for Sample { labels, value, .. } in samples {
                let labels = labels.iter();
                let labels: Labels =
                    labels.map(|(name, value)| (name.replace('.', "_"), value.clone())).collect();
                let name = definition.prometheus_name;
                match value {
                    SampleValue::Number(number) if counts(definition) => {
                        count(name.to_owned(), &labels, *number as u64);
                    }
                    SampleValue::Number(number) => {
                        set(name.to_owned(), &labels, *number);
                        gauges.insert((name, labels));
                    }
                    SampleValue::Distribution(distribution) => {
                        distribute(name, &labels, distribution);
                    }
                    _ => {}
                }
            }
        }
        for (name, labels) in self.gauges.difference(&gauges) {
            let says_what_is = labels.iter().any(|(label, _)| label == TYPE);
            set((*name).to_owned(), labels, if says_what_is { 0.0 } else { f64::NAN });
        }
        self.gauges = gauges;
    }
}

/// Returns whether a family has whole numbers that only grow.
fn counts(definition: &Definition) -> bool {
    definition.kind == MetricKind::Counter && definition.unit != "s"
}

/// Says what a family is, which recorders pass on.
fn describe(definition: &Definition) {
    let unit = if definition.unit == "s" { Unit::Seconds } else { Unit::Count };
    let (name, help) = (definition.prometheus_name, definition.help);
    match definition.kind {
        MetricKind::Histogram { .. } => {
            ::metrics::describe_counter!(format!("{name}_bucket"), Unit::Count, help);
            ::metrics::describe_counter!(format!("{name}_count"), Unit::Count, help);
            ::metrics::describe_gauge!(format!("{name}_sum"), unit, help);
        }
        _ if counts(definition) => ::metrics::describe_counter!(name, unit, help),
        _ => ::metrics::describe_gauge!(name, unit, help),
    }
}

/// Publishes a histogram as Prometheus has it.
fn distribute(name: &str, labels: &Labels, distribution: &Distribution) {
    let bounds = distribution.buckets.iter().map(|(bound, count)| (bound.to_string(), *count));
    let all = ("+Inf".to_owned(), distribution.count);
    for (bound, in_bucket) in bounds.chain([all]) {
        let labels = [&labels[..], &[("le".to_owned(), bound)]].concat();
        count(format!("{name}_bucket"), &labels, in_bucket);
    }
    set(format!("{name}_sum"), labels, distribution.sum);
    count(format!("{name}_count"), labels, distribution.count);
}

fn count(name: String, labels: &Labels, count: u64) {
    ::metrics::counter!(name, published(labels)).absolute(count);
}

fn set(name: String, labels: &Labels, value: f64) {
    ::metrics::gauge!(name, published(labels)).set(value);
}

fn published(labels: &Labels) -> Vec<Label> {
    labels.iter().map(|(name, value)| Label::new(name.clone(), value.clone())).collect()
}
