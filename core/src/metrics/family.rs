//! A snapshot of metrics: families of samples, as plain data.

use super::definition::{DEFINITIONS, Definition};
use super::histogram::Distribution;

/// A family of metrics, with its samples.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Family {
    /// The names, the unit and the kind.
    pub definition: &'static Definition,
    /// The samples, each with labels of its own; at least one.
    pub samples: Vec<Sample>,
}

/// A value, with what it is the value of.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Sample {
    /// The labels, as OpenTelemetry writes their names, with values.
    pub labels: Labels,
    /// The value.
    pub value: SampleValue,
}

/// The labels of a sample: names and values.
pub type Labels = Vec<(&'static str, String)>;

/// The value of a sample.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum SampleValue {
    /// A counter or gauge value.
    Number(f64),
    /// A histogram, as counts by bucket.
    Distribution(Distribution),
}

/// The families of a snapshot while they are collected.
pub(super) struct Families(Vec<Family>);

impl Families {
    /// Begins with all families, and no sample.
    pub(super) fn new() -> Self {
        let empty = |definition| Family { definition, samples: Vec::new() };
        Self(DEFINITIONS.iter().copied().map(empty).collect())
    }

    /// Adds a sample that is a number.
    pub(super) fn number(&mut self, definition: &'static Definition, labels: &Labels, value: f64) {
        self.add(definition, labels, SampleValue::Number(value));
    }

    /// Adds a sample that is a count.
    pub(super) fn count(&mut self, definition: &'static Definition, labels: &Labels, count: u64) {
        self.number(definition, labels, count as f64);
    }

    /// Adds a sample for each name, which is the value of the label.
    pub(super) fn counts<'a>(
        &mut self,
        definition: &'static Definition,
        labels: &Labels,
        label: &'static str,
        counts: impl IntoIterator<Item = (&'a str, u64)>,
    ) {
        for (name, count) in counts {
            let labels = [&labels[..], &[(label, name.to_owned())]].concat();
            self.count(definition, &labels, count);
        }
    }

    /// Adds a sample that is a distribution.
    pub(super) fn distribution(
        &mut self,
        definition: &'static Definition,
        labels: &Labels,
        distribution: Distribution,
    ) {
        self.add(definition, labels, SampleValue::Distribution(distribution));
    }

    fn add(&mut self, definition: &'static Definition, labels: &Labels, value: SampleValue) {
        let mut families = self.0.iter_mut();
        let family = families.find(|family| family.definition.name == definition.name);
        let sample = Sample { labels: labels.clone(), value };
        family.expect("it is one of the list").samples.push(sample);
    }

    /// Returns the families that have samples.
    pub(super) fn into_vec(self) -> Vec<Family> {
        self.0.into_iter().filter(|family| !family.samples.is_empty()).collect()
    }
}
