//! Times as people type them, `500ms` or `2m`, and as they read them.

use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use serde::Serializer;

/// The longest time that can be asked for: a year.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 3600);

/// The reason why a text is not a time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DurationError {
    /// The text is no number with a unit.
    #[error("write a whole number and its unit (ms, s, m or h), as in 500ms or 30s")]
    Form,
    /// The time exceeds [`LONGEST`].
    #[error("at most {} hours are allowed", LONGEST.as_secs() / 3600)]
    TooLong,
}

/// Reads a whole number with one of the units `ms`, `s`, `m` and `h`.
pub(crate) fn parse(text: &str) -> Result<Duration, DurationError> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let millis_in_unit = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return Err(DurationError::Form),
    };
    if number.is_empty() {
        return Err(DurationError::Form);
    }
    let millis = number.parse::<u64>().ok();
    millis
        .and_then(|number| number.checked_mul(millis_in_unit))
        .map(Duration::from_millis)
        .filter(|duration| *duration <= LONGEST)
        .ok_or(DurationError::TooLong)
}

/// Writes a time with the precision that a person cares for: `7s`, `3m 07s`, `2h 03m`.
pub(crate) fn rounded(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    match hours {
        0 if minutes == 0 => format!("{seconds}s"),
        0 => format!("{minutes}m {:02}s", seconds % 60),
        1..48 => format!("{hours}h {:02}m", minutes % 60),
        _ => format!("{}d {:02}h", hours / 24, hours % 24),
    }
}

/// Writes a time in milliseconds, as JSON has it.
pub(crate) fn millis<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_nanos() as f64 / 1e6)
}

/// As [`millis`], of a time that may be unknown.
pub(crate) fn optional_millis<S: Serializer>(
    time: &Option<Duration>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.serialize_some(&time.map(|time| time.as_nanos() as f64 / 1e6))
}

/// Writes how long something took: `0.42 ms`, `12.3 ms`, `10.00 s`.
pub(crate) fn precise(duration: Duration) -> String {
    let millis = duration.as_secs_f64() * 1e3;
    match millis {
        ..10.0 => format!("{millis:.2} ms"),
        10.0..1000.0 => format!("{millis:.1} ms"),
        _ => format!("{:.2} s", millis / 1e3),
    }
}

/// Writes a time as RFC 3339 does, in UTC and with milliseconds.
pub(crate) fn rfc_3339(time: SystemTime) -> String {
    // A clock beyond the year 9999 is not worth an error.
    let time = Timestamp::try_from(time).unwrap_or(Timestamp::MAX);
    format!("{time:.3}")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{DurationError, parse, precise, rounded};

    #[test]
    fn a_number_with_a_unit_is_a_time() {
        assert_eq!(parse("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse("30s"), Ok(Duration::from_secs(30)));
        assert_eq!(parse("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(parse("1h"), Ok(Duration::from_secs(3600)));
    }

    #[test]
    fn anything_else_is_refused() {
        for text in ["", "5", "s", "-1s", "1.5s", "1 s", "1d", "1sec", "５s"] {
            assert_eq!(parse(text), Err(DurationError::Form), "{text:?}");
        }
        for text in ["9000h", "99999999999999999999ms", "18446744073709551615h"] {
            assert_eq!(parse(text), Err(DurationError::TooLong), "{text:?}");
        }
    }

    #[test]
    fn times_are_written_with_as_much_precision_as_they_deserve() {
        let seconds = |seconds| rounded(Duration::from_secs(seconds));
        assert_eq!(seconds(7), "7s");
        assert_eq!(seconds(187), "3m 07s");
        assert_eq!(seconds(7380), "2h 03m");
        assert_eq!(seconds(183_600), "2d 03h");
        assert_eq!(precise(Duration::from_micros(420)), "0.42 ms");
        assert_eq!(precise(Duration::from_micros(12_340)), "12.3 ms");
        assert_eq!(precise(Duration::from_millis(10_004)), "10.00 s");
    }
}
