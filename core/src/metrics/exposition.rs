//! The text by which Prometheus reads metrics ("Exposition formats", text format 0.0.4).

use std::fmt::{self, Display, Formatter, Write};

use super::definition::{Definition, MetricKind};
use super::family::{Family, Labels, Sample, SampleValue};

/// The media type of the text.
pub const MEDIA_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The label for the bound of a bucket.
const BOUND: &str = "le";

/// Families in the text format of Prometheus, in UTF-8; printing it writes that.
///
/// The dots in the names of labels are underscores there.
#[derive(Clone, Copy, Debug)]
pub struct Exposition<'a>(&'a [Family]);

impl<'a> Exposition<'a> {
    /// Writes these families, in their order.
    pub const fn new(families: &'a [Family]) -> Self {
        Self(families)
    }
}

impl Display for Exposition<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for Family { definition, samples } in self.0 {
            let Definition { prometheus_name: name, help, kind, .. } = definition;
            write!(f, "# HELP {name} ")?;
            escape(f, help, false)?;
            let kind = match kind {
                MetricKind::Counter => "counter",
                MetricKind::Gauge => "gauge",
                MetricKind::Histogram { .. } => "histogram",
            };
            writeln!(f, "\n# TYPE {name} {kind}")?;
            samples.iter().try_for_each(|sample| write_sample(f, name, sample))?;
        }
        Ok(())
    }
}

fn write_sample(f: &mut Formatter<'_>, name: &str, sample: &Sample) -> fmt::Result {
    let Sample { labels, value } = sample;
    match value {
        SampleValue::Number(value) => line(f, name, "", labels, None, value),
        SampleValue::Distribution(distribution) => {
            let (count, sum) = (&distribution.count, &distribution.sum);
            for (bound, count) in &distribution.buckets {
                line(f, name, "_bucket", labels, Some(bound), count)?;
            }
            line(f, name, "_bucket", labels, Some(&"+Inf"), count)?;
            line(f, name, "_sum", labels, None, sum)?;
            line(f, name, "_count", labels, None, count)
        }
    }
}

/// Writes a line with a name, labels and a value.
fn line(
    f: &mut Formatter<'_>,
    name: &str,
    ending: &str,
    labels: &Labels,
    bound: Option<&dyn Display>,
    value: &dyn Display,
) -> fmt::Result {
    write!(f, "{name}{ending}")?;
    let mut before = '{';
    for (label, value) in labels {
        f.write_char(std::mem::replace(&mut before, ','))?;
        for c in label.chars() {
            f.write_char(if c == '.' { '_' } else { c })?;
        }
        f.write_str("=\"")?;
        escape(f, value, true)?;
        f.write_char('"')?;
    }
    if let Some(bound) = bound {
        f.write_char(std::mem::replace(&mut before, ','))?;
        write!(f, "{BOUND}=\"{bound}\"")?;
    }
    if before == ',' {
        f.write_char('}')?;
    }
    writeln!(f, " {value}")
}

/// Writes what stands in a line, in quotes or not.
fn escape(f: &mut Formatter<'_>, text: &str, in_quotes: bool) -> fmt::Result {
    for c in text.chars() {
        match c {
            '\\' => f.write_str("\\\\")?,
            '\n' => f.write_str("\\n")?,
            '"' if in_quotes => f.write_str("\\\"")?,
            c => f.write_char(c)?,
        }
    }
    Ok(())
}
