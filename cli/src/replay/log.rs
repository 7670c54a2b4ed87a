//! A trace as the log that its client would have written.

use std::io::Write;
use std::path::Path;

use sdam_core::bson::DateTime;
use sdam_core::logging::LogMessage;
use sdam_core::time::Instant;
use sdam_core::topology::Action;
use sdam_core::trace::Trace;

use super::{ReplayError, begin, is_cut, refuse_gap};

/// The mark before the time by the wall clock, in the comment that a recording begins with.
pub(crate) const BEGAN: &str = "# +0.000000000 was ";

/// Writes the messages about the topology, one a line, as JSON; documents are whole.
///
/// Times are those of the recording, or count from the beginning of 1970 if it does not say when
/// it was made.
pub(super) fn run(path: &Path, trace: &Trace, out: &mut dyn Write) -> Result<(), ReplayError> {
    let mut replay = begin(path, trace)?;
    let epoch = began(trace).map_or(0, DateTime::timestamp_millis);
    while let Some(step) = replay.step() {
        step.map_err(|difference| match is_cut(trace, &difference) {
            true => ReplayError::Cut { path: path.to_owned(), line: trace.lines().count() },
            false => ReplayError::Differs { path: path.to_owned(), difference },
        })?;
        for action in replay.actions() {
            let Action::Emit { event } = action else { continue };
            if let Some(message) = LogMessage::of_event(event, usize::MAX) {
                let since = millis(event.at);
                writeln!(out, "{}", message.line(DateTime::from_millis(epoch + since)))?;
            }
        }
    }
    refuse_gap(path, trace.gap())
}

fn millis(at: Instant) -> i64 {
    i64::try_from(at.since_origin().as_millis()).unwrap_or(i64::MAX)
}

/// Returns when a recording began.
fn began(trace: &Trace) -> Option<DateTime> {
    let text = trace.lines().find_map(|(_, line)| line.strip_prefix(BEGAN))?;
    DateTime::parse_rfc3339_str(text.trim()).ok()
}
