//! Times in a trace: `+SECONDS.NANOSECONDS` since the origin.

use super::LineError;
use crate::time::{Instant, Time};

const NANOS: u64 = 1_000_000_000;

/// Writes a time.
pub(super) fn written(at: Instant) -> String {
    let nanos = at.as_nanos();
    format!("+{}.{:09}", nanos / NANOS, nanos % NANOS)
}

/// Writes the time of a call, with what the clock showed behind `@` if that was later.
pub(super) fn of_call(time: Time) -> String {
    let clock = (time.clock > time.judged).then(|| format!("@{}", written(time.clock)));
    written(time.judged) + &clock.unwrap_or_default()
}

/// Reads the time of a call.
pub(super) fn read_of_call(text: &str) -> Result<Time, LineError> {
    let (judged, clock) = match text.split_once('@') {
        Some((judged, clock)) => (read(judged)?, read(clock)?),
        None => (read(text)?, Instant::ZERO),
    };
    Ok(Time { judged, clock: clock.max(judged) })
}

/// Reads a time.
pub(super) fn read(text: &str) -> Result<Instant, LineError> {
    let parsed = || {
        let (seconds, nanos) = text.strip_prefix('+')?.split_once('.')?;
        let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if nanos.len() != 9 || !digits(nanos) || !digits(seconds) {
            return None;
        }
        let (seconds, nanos): (u64, u64) = (seconds.parse().ok()?, nanos.parse().ok()?);
        Some(Instant::from_nanos(seconds.checked_mul(NANOS)?.checked_add(nanos)?))
    };
    let expected = "write +SECONDS.NANOSECONDS with nine digits behind the point";
    parsed().ok_or_else(|| LineError::malformed("the time", &format!("{text:?}; {expected}")))
}
