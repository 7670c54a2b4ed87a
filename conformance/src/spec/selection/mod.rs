//! The suites of Server Selection and of Max Staleness.

mod deployment;
mod in_window;
mod read_preference;
mod round_trip;
mod suitable;

use std::time::Duration;

use super::format::CaseError;
pub(super) use in_window::run_in_window;
pub(super) use round_trip::run_round_trip_time;
pub(super) use suitable::{run_max_staleness, run_server_selection};

/// The longest time that a case may speak of; those of the suites are minutes.
const MAX_TIME: Duration = Duration::from_secs(86_400);

/// Reads a number of milliseconds, to the nanosecond.
fn milliseconds(field: &'static str, millis: f64) -> Result<Duration, CaseError> {
    let duration = Duration::try_from_secs_f64(millis / 1e3).ok();
    duration.filter(|duration| *duration <= MAX_TIME).ok_or_else(|| CaseError::Value {
        field,
        found: millis.to_string(),
        allowed: "from 0 to a day in milliseconds is allowed",
    })
}
