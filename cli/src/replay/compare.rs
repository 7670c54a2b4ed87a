//! The first difference of two traces: what happened, whenever it did.

use std::io::Write;
use std::path::Path;

use sdam_core::trace::Trace;
use serde_json::{Value, json};

use super::{ReplayError, read};
use crate::text::escaped;

/// The lines that count as news: events but for heartbeats, pool commands, and answers to
/// operations.
const NEWS: [&str; 3] = ["  > emit ", "  > pool ", ANSWER];

/// The answer to an operation.
const ANSWER: &str = "  > wake ";

/// The mark of routine events.
const HEARTBEAT: &str = r#""event":"serverHeartbeat"#;

/// A line of a trace, with the time of its call.
#[derive(Debug)]
struct News<'t> {
    line: usize,
    seconds: f64,
    text: &'t str,
}

impl News<'_> {
    /// Returns whether the same has happened, whenever it did.
    fn is(&self, other: &News<'_>) -> bool {
        self.text == other.text
            || timeless(self.text).is_some_and(|text| timeless(other.text) == Some(text))
    }
}

/// Takes the times out of the answer to an operation that has waited without success.
fn timeless(text: &str) -> Option<(&str, Value)> {
    let (start, json) = text.split_at(text.find('{')?);
    let mut answer: Value = serde_json::from_str(json).ok()?;
    let object = answer.as_object_mut().filter(|_| start.starts_with(ANSWER))?;
    object.remove("waitedMS");
    object.remove("lastsMS");
    let checks = object.get_mut("checks").and_then(Value::as_array_mut);
    for check in checks.into_iter().flatten() {
        check.as_object_mut()?.remove("lastsMS");
    }
    for trouble in object.get_mut("troubles")?.as_array_mut()? {
        let trouble = trouble.as_object_mut()?;
        trouble.retain(|name, _| !["sinceMS", "attempts", "next"].contains(&&**name));
    }
    Some((start, answer))
}

/// Shows the first news that is in one trace and not, or another one, in the other.
pub(super) fn run(
    (path, trace): (&Path, &Trace),
    other_path: &Path,
    as_json: bool,
    out: &mut dyn Write,
) -> Result<(), ReplayError> {
    let other = read(other_path)?;
    let (mut left, mut right, mut same) = (news(trace), news(&other), 0);
    let (left, right) = loop {
        match (left.next(), right.next()) {
            (Some(left), Some(right)) if left.is(&right) => same += 1,
            parted => break parted,
        }
    };
    if as_json {
        let of = |news: &Option<News<'_>>| {
            news.as_ref().map(|News { line, seconds, text }| {
                json!({ "line": line, "seconds": seconds, "text": text.trim_start() })
            })
        };
        writeln!(out, "{}", json!({ "same": same, "left": of(&left), "right": of(&right) }))?;
    } else {
        writeln!(out, "{same} events, commands and answers are the same")?;
        if left.is_some() || right.is_some() {
            for (path, news) in [(path, &left), (other_path, &right)] {
                show(path, news.as_ref(), out)?;
            }
        }
    }
    match (left, right) {
        (None, None) => Ok(()),
        _ => Err(ReplayError::Diff),
    }
}

fn show(path: &Path, news: Option<&News<'_>>, out: &mut dyn Write) -> Result<(), ReplayError> {
    let path = path.display();
    match news {
        Some(News { line, seconds, text }) => {
            writeln!(out, "{path}, line {line}, at {seconds:.3} s:\n{}", escaped(text))?;
        }
        None => writeln!(out, "{path}: nothing more")?,
    }
    Ok(())
}

fn news(trace: &Trace) -> impl Iterator<Item = News<'_>> {
    trace.steps().flat_map(|step| {
        let seconds = step.at().since_origin().as_secs_f64();
        let lines = step.lines().filter(|(_, text)| {
            NEWS.iter().any(|kind| text.starts_with(kind)) && !text.contains(HEARTBEAT)
        });
        lines.map(move |(line, text)| News { line, seconds, text })
    })
}
