//! Times in a trace: `+SECONDS.NANOSECONDS` since the origin.

use super::LineError;
use crate::time::Instant;

const NANOS: u64 = 1_000_000_000;

/// Writes a time.
pub(super) fn written(at: Instant) -> String {
    let nanos = at.as_nanos();
    format!("+{}.{:09}", nanos / NANOS, nanos % NANOS)
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
