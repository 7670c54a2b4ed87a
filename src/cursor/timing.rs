//! The time that a cursor has.
//!
//! Implements "Cursors" of Client Side Operations Timeout.

use std::time::Duration;

use sdam_core::operation::MaxTime;
use sdam_host::TimingError;
use serde::Serialize;

/// The part of a cursor's life that `timeoutMS` limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum TimeoutMode {
    /// All of it: the command that opens the cursor and every getMore, together. The default of
    /// cursors that are not tailable.
    CursorLifetime,
    /// The command that opens the cursor, and each call that asks for the next document, one by
    /// one. The only one of tailable cursors.
    Iteration,
}

/// The options of a cursor that are about time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Timing {
    /// The part of its life that `timeoutMS` limits; `None` leaves that to the kind of the cursor.
    pub mode: Option<TimeoutMode>,
    /// True if the cursor is tailable.
    pub tailable: bool,
    /// True if the server waits for new documents.
    pub await_data: bool,
    /// The time that the server waits for them (`maxAwaitTimeMS`).
    pub max_await_time: Option<Duration>,
    /// True if the command writes.
    pub writes: bool,
}

impl Timing {
    /// Judges the options beside `timeoutMS`.
    ///
    /// # Errors
    ///
    /// Fails if they do not go together.
    pub fn check(&self, timeout: Option<Duration>) -> Result<(), TimingError> {
        let Some(timeout) = timeout else {
            return match self.mode {
                Some(_) => Err(TimingError::WithoutTimeout),
                None => Ok(()),
            };
        };
        let is_too_long = |time| !timeout.is_zero() && time >= timeout;
        match self.mode {
            Some(TimeoutMode::CursorLifetime) if self.tailable => {
                Err(TimingError::TailableLifetime)
            }
            Some(TimeoutMode::Iteration) if self.writes => Err(TimingError::WritingIteration),
            _ if self.await_data && self.max_await_time.is_some_and(is_too_long) => {
                Err(TimingError::AwaitTooLong)
            }
            _ => Ok(()),
        }
    }

    /// Returns what `timeoutMS` limits.
    pub fn mode(&self) -> TimeoutMode {
        match self.tailable {
            true => TimeoutMode::Iteration,
            false => self.mode.unwrap_or(TimeoutMode::CursorLifetime),
        }
    }

    /// Returns the `maxTimeMS` of the command that opens the cursor.
    pub fn of_first(&self) -> MaxTime {
        match self.mode() {
            TimeoutMode::Iteration if !self.await_data => MaxTime::Never,
            TimeoutMode::Iteration | TimeoutMode::CursorLifetime => MaxTime::Remaining,
        }
    }

    /// Returns the `maxTimeMS` of a getMore.
    pub fn of_next(&self) -> MaxTime {
        match self.max_await_time.filter(|_| self.await_data) {
            // Zero would be no limit to the server.
            Some(time) => MaxTime::AtMost(time.max(Duration::from_millis(1))),
            None => MaxTime::Never,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sdam_core::operation::MaxTime;

    use super::{TimeoutMode, Timing, TimingError};

    const SECOND: Option<Duration> = Some(Duration::from_secs(1));

    /// "Drivers MUST error if `timeoutMode` is set and `timeoutMS` is not", and the other errors of
    /// "Cursors".
    #[test]
    fn options_that_do_not_go_together_are_errors() {
        let mode = |mode| Timing { mode: Some(mode), ..Timing::default() };
        let lifetime = mode(TimeoutMode::CursorLifetime);
        let iteration = mode(TimeoutMode::Iteration);
        for timing in [lifetime, iteration] {
            assert_eq!(timing.check(None), Err(TimingError::WithoutTimeout));
            assert_eq!(timing.check(SECOND), Ok(()));
        }
        let tailable = Timing { tailable: true, ..lifetime };
        assert_eq!(tailable.check(SECOND), Err(TimingError::TailableLifetime));
        let writing = Timing { writes: true, ..iteration };
        assert_eq!(writing.check(SECOND), Err(TimingError::WritingIteration));
        let awaiting = Timing {
            tailable: true,
            await_data: true,
            max_await_time: SECOND,
            ..Timing::default()
        };
        assert_eq!(awaiting.check(SECOND), Err(TimingError::AwaitTooLong));
        assert_eq!(awaiting.check(Some(Duration::ZERO)), Ok(()), "there is no limit");
        assert_eq!(awaiting.check(Some(Duration::from_millis(1001))), Ok(()));
    }

    /// "Non-tailable Cursors" and "Tailable Cursors".
    #[test]
    fn commands_of_a_cursor_carry_their_part_of_the_time() {
        let plain = Timing::default();
        assert_eq!(plain.mode(), TimeoutMode::CursorLifetime);
        assert_eq!((plain.of_first(), plain.of_next()), (MaxTime::Remaining, MaxTime::Never));
        let iteration = Timing { mode: Some(TimeoutMode::Iteration), ..plain };
        assert_eq!((iteration.of_first(), iteration.of_next()), (MaxTime::Never, MaxTime::Never));
        let tailable = Timing { tailable: true, ..plain };
        assert_eq!(tailable.mode(), TimeoutMode::Iteration);
        assert_eq!((tailable.of_first(), tailable.of_next()), (MaxTime::Never, MaxTime::Never));
        let awaiting = Timing { await_data: true, max_await_time: SECOND, ..tailable };
        assert_eq!(awaiting.of_first(), MaxTime::Remaining);
        assert_eq!(awaiting.of_next(), MaxTime::AtMost(Duration::from_secs(1)));
    }
}
