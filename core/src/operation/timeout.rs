//! The one limit of everything that an operation does.
//!
//! Implements Client Side Operations Timeout, as far as it is about one operation.

use std::time::Duration;

use bson::{RawBsonRef, RawDocument};

use super::options::MaxTime;
use crate::time::Instant;
use crate::wire;

/// The least time that can be sent to a server.
const MILLISECOND: Duration = Duration::from_millis(1);

/// The number of the error of a server that has used up `maxTimeMS`: MaxTimeMSExpired.
///
/// By this number alone, an error of a server is one of lack of time, as those of the client's own
/// clock are: whichever option has set `maxTimeMS`, and wherever the reply reports it, as the error
/// of the command, of a write or of the write concern (Client Side Operations Timeout, "Error
/// Transformations").
pub const MAX_TIME_EXPIRED: i32 = 50;

/// The limit of everything that an operation does: `timeoutMS`, as of when the operation began.
///
/// Batches of one operation, and the commands of a cursor, share one.
///
/// ```
/// use std::time::Duration;
/// use sdam_core::operation::Timeout;
/// use sdam_core::time::Instant;
///
/// let second = Duration::from_secs(1);
/// assert_eq!(Timeout::new(Instant::ZERO, Some(second)), Timeout::At(Instant::ZERO + second));
/// assert_eq!(Timeout::new(Instant::ZERO, Some(Duration::ZERO)), Timeout::Infinite);
/// assert_eq!(Timeout::new(Instant::ZERO, None), Timeout::Unset);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Timeout {
    /// `timeoutMS` is not set: the older time-outs count.
    #[default]
    Unset,
    /// `timeoutMS` is 0: there is no limit, and the older time-outs do not count.
    Infinite,
    /// The operation ends by then.
    At(Instant),
}

/// The time that is left is over, or less than the least round trip time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Expired;

impl Timeout {
    /// Begins an operation now, with this `timeoutMS`.
    pub fn new(now: Instant, timeout: Option<Duration>) -> Self {
        match timeout {
            None => Self::Unset,
            Some(Duration::ZERO) => Self::Infinite,
            Some(timeout) => Self::At(now + timeout),
        }
    }

    /// Returns whether `timeoutMS` is set: then what took too long fails with an error that says
    /// so, and nothing but time limits how often an operation is sent again.
    pub const fn is_set(self) -> bool {
        !matches!(self, Self::Unset)
    }

    /// Returns when the operation ends at the latest.
    pub const fn deadline(self) -> Option<Instant> {
        match self {
            Self::Unset | Self::Infinite => None,
            Self::At(deadline) => Some(deadline),
        }
    }

    /// Returns the limit that is so much later.
    #[must_use]
    pub fn later_by(self, time: Duration) -> Self {
        match self {
            Self::At(deadline) => Self::At(deadline + time),
            unlimited => unlimited,
        }
    }

    /// Returns the `maxTimeMS` of a command that is sent now.
    ///
    /// Whole milliseconds count, as zero would be no limit to the server.
    pub(super) fn max_time(
        self,
        now: Instant,
        round_trip: Duration,
        wanted: MaxTime,
    ) -> Result<Option<Duration>, Expired> {
        let wanted = match wanted {
            // Less than a millisecond would become none.
            MaxTime::AtMost(time) if !time.is_zero() => MaxTime::AtMost(time.max(MILLISECOND)),
            wanted => wanted,
        };
        let Self::At(deadline) = self else {
            return Ok(match wanted {
                MaxTime::AtMost(time) => Some(time),
                MaxTime::Remaining | MaxTime::Never => None,
            });
        };
        let rest = (deadline - now).saturating_sub(round_trip);
        if rest < MILLISECOND {
            return Err(Expired);
        }
        Ok(match wanted {
            MaxTime::Remaining => Some(rest),
            MaxTime::AtMost(time) => Some(time.min(rest)),
            MaxTime::Never => None,
        })
    }
}

/// Returns whether a reply reports that the server has used up `maxTimeMS`: as its error, as that
/// of a write, or as that of the write concern (Client Side Operations Timeout, "Error
/// Transformations").
///
/// ```
/// use sdam_core::bson::rawdoc;
/// use sdam_core::operation::is_max_time_expired;
///
/// let expired = rawdoc! { "code": 50, "errmsg": "operation exceeded time limit" };
/// assert!(is_max_time_expired(&rawdoc! { "ok": 0, "code": 50 }));
/// assert!(is_max_time_expired(&rawdoc! { "ok": 1, "writeErrors": [expired.clone()] }));
/// assert!(is_max_time_expired(&rawdoc! { "ok": 1, "writeConcernError": expired }));
/// assert!(!is_max_time_expired(&rawdoc! { "ok": 1, "code": 50 }));
/// ```
pub fn is_max_time_expired(reply: &RawDocument) -> bool {
    let (mut ok, mut expired, mut nested) = (false, false, false);
    for element in reply.iter_elements().map_while(Result::ok) {
        // A value that cannot be read says nothing, and leaves the others what they are.
        let Ok(value) = element.value() else { continue };
        match (element.key().as_str(), value) {
            ("ok", value) => ok = wire::ok(value) == Some(true),
            ("code", value) => expired = is_expired(value),
            ("writeConcernError", RawBsonRef::Document(error)) => nested |= has_expired(error),
            ("writeErrors", RawBsonRef::Array(errors)) => {
                let errors = errors.into_iter().filter_map(Result::ok);
                nested |= errors.filter_map(RawBsonRef::as_document).any(has_expired);
            }
            _ => {}
        }
    }
    nested || (expired && !ok)
}

fn has_expired(error: &RawDocument) -> bool {
    error.get("code").ok().flatten().is_some_and(is_expired)
}

/// "drivers MUST only check that the error code is 50"
fn is_expired(code: RawBsonRef<'_>) -> bool {
    match code {
        RawBsonRef::Int32(code) => code == MAX_TIME_EXPIRED,
        RawBsonRef::Int64(code) => code == i64::from(MAX_TIME_EXPIRED),
        RawBsonRef::Double(code) => code == f64::from(MAX_TIME_EXPIRED),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bson::{RawArrayBuf, RawBson, RawDocumentBuf, rawdoc};

    use super::{Expired, MaxTime, Timeout, is_max_time_expired};
    use crate::time::Instant;

    const fn millis(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    /// "Command Execution": "the value of this field MUST be `remaining timeoutMS -
    /// minRoundTripTime`"; "If not, drivers MUST return a timeout error without attempting to
    /// send".
    #[test]
    fn max_time_is_what_is_left_less_the_round_trip() {
        let timeout = Timeout::At(Instant::from_millis(100));
        let at = |now, round_trip| {
            timeout.max_time(Instant::from_millis(now), millis(round_trip), MaxTime::Remaining)
        };
        assert_eq!(at(40, 10), Ok(Some(millis(50))));
        assert_eq!(at(89, 10), Ok(Some(millis(1))));
        assert_eq!(at(90, 10), Err(Expired), "zero would be no limit");
        assert_eq!(at(95, 10), Err(Expired));
        assert_eq!(at(200, 0), Err(Expired));
    }

    /// "Cursors": getMore has none, and one that awaits data the lesser of two.
    #[test]
    fn max_time_is_left_out_or_limited_as_cursors_want_it() {
        let timeout = Timeout::At(Instant::from_millis(100));
        let max_time = |timeout: Timeout, wanted| {
            timeout.max_time(Instant::from_millis(40), millis(10), wanted).unwrap()
        };
        assert_eq!(max_time(timeout, MaxTime::Never), None);
        assert_eq!(max_time(timeout, MaxTime::AtMost(millis(20))), Some(millis(20)));
        assert_eq!(max_time(timeout, MaxTime::AtMost(millis(70))), Some(millis(50)));
        for timeout in [Timeout::Unset, Timeout::Infinite] {
            assert_eq!(max_time(timeout, MaxTime::Remaining), None);
            assert_eq!(max_time(timeout, MaxTime::Never), None);
            assert_eq!(max_time(timeout, MaxTime::AtMost(millis(20))), Some(millis(20)));
        }
        for timeout in [timeout, Timeout::Unset] {
            let short = max_time(timeout, MaxTime::AtMost(Duration::from_micros(1)));
            assert_eq!(short, Some(millis(1)), "zero would be no limit");
        }
        let unlimited = max_time(Timeout::Unset, MaxTime::AtMost(Duration::ZERO));
        assert_eq!(unlimited, Some(Duration::ZERO), "that is what was asked for");
        let late = timeout.max_time(Instant::from_millis(95), millis(10), MaxTime::Never);
        assert_eq!(late, Err(Expired), "it would fail all the same");
    }

    /// "timeoutMS": zero "means an infinite timeout", and is set all the same.
    #[test]
    fn a_time_out_of_zero_is_set_and_has_no_deadline() {
        let now = Instant::from_millis(40);
        for (timeout, is_set, deadline) in [
            (None, false, None),
            (Some(Duration::ZERO), true, None),
            (Some(millis(60)), true, Some(Instant::from_millis(100))),
        ] {
            let timeout = Timeout::new(now, timeout);
            assert_eq!((timeout.is_set(), timeout.deadline()), (is_set, deadline));
        }
    }

    /// "Error Transformations": "drivers MUST only check that the error code is 50", of the error,
    /// of those of writes, and of that of the write concern.
    #[test]
    fn a_server_that_has_used_up_its_time_says_so_by_code_50_in_three_places() {
        let of = |code: RawBson| {
            let mut error = RawDocumentBuf::new();
            error.append(bson::cstr!("code"), code);
            error
        };
        for (code, is_found) in [
            (RawBson::Int32(50), true),
            (RawBson::Int64(50), true),
            (RawBson::Double(50.0), true),
            (RawBson::Int32(51), false),
            (RawBson::Int64(51), false),
            (RawBson::Double(50.5), false),
            (RawBson::String("50".to_owned()), false),
        ] {
            let mut failed = of(code.clone());
            failed.append(bson::cstr!("ok"), 0);
            assert_eq!(is_max_time_expired(&failed), is_found, "{failed:?}");
            let error = of(code);
            let concern = rawdoc! { "ok": 1, "writeConcernError": error.clone() };
            assert_eq!(is_max_time_expired(&concern), is_found, "{concern:?}");
            let other = rawdoc! { "code": 11000 };
            let errors = RawArrayBuf::from_iter([other.clone(), error]);
            let writes = rawdoc! { "ok": 1, "writeErrors": errors, "writeConcernError": other };
            assert_eq!(is_max_time_expired(&writes), is_found, "{writes:?}");
        }
        assert!(!is_max_time_expired(&rawdoc! { "ok": 1, "code": 50 }));
        // Such errors come with a success, or with a failure that is another one.
        let expired = rawdoc! { "code": 50 };
        assert!(is_max_time_expired(&rawdoc! { "ok": 0, "code": 1, "writeConcernError": expired }));
    }
}
