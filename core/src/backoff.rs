//! Pauses between attempts that grow, and are not the same for all.
//!
//! Implements "Retry Backoff" of the Convenient API for Transactions, whose pauses change streams
//! have, too.

use std::time::Duration;

/// "`BACKOFF_INITIAL` is 5ms".
const INITIAL: Duration = Duration::from_millis(5);

/// "`BACKOFF_MAX` is 500ms".
const MAX: Duration = Duration::from_millis(500);

/// Returns the longest pause before an attempt, the first of which is number 0:
/// "`min(BACKOFF_INITIAL * 1.5 ** transactionAttempt, BACKOFF_MAX)`".
///
/// ```
/// use std::time::Duration;
/// use sdam_core::backoff::longest_pause;
///
/// assert_eq!(longest_pause(0), Duration::from_millis(5));
/// assert_eq!(longest_pause(1), Duration::from_micros(7_500));
/// assert_eq!(longest_pause(u32::MAX), Duration::from_millis(500));
/// ```
pub fn longest_pause(attempt: u32) -> Duration {
    // Where it is more than the most, the exponent may be cut, too.
    let factor = 1.5_f64.powi(attempt.min(64) as i32);
    Duration::from_secs_f64(MAX.as_secs_f64().min(INITIAL.as_secs_f64() * factor))
}

/// Makes a number from 0 up to, but not including, 1 of 64 random bits.
///
/// ```
/// use sdam_core::backoff::jitter;
///
/// assert_eq!((jitter(0), jitter(1 << 63)), (0.0, 0.5));
/// assert!(jitter(u64::MAX) < 1.0);
/// ```
pub fn jitter(random: u64) -> f64 {
    // 53 bits are what a double holds exactly.
    (random >> 11) as f64 / (1_u64 << 53) as f64
}
