//! The limit of new connections of a member: the limiter of the server's ingress.

use std::time::Duration;

use sdam_core::time::Instant;

/// The fate of a new connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// It is served.
    Now,
    /// It is served from that instant on.
    At(Instant),
    /// It is closed.
    Refused,
}

/// A token bucket with a queue; one connection takes one token, with its first request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RateLimit {
    pub(crate) enabled: bool,
    /// The number of tokens that come each second.
    pub(crate) rate_per_sec: f64,
    /// The size of the bucket, as the seconds that its tokens last.
    pub(crate) burst_capacity_secs: f64,
    /// The number of connections that may wait for a token.
    pub(crate) max_queue_depth: i64,
    /// The time when the bucket will be full again.
    full_at: Instant,
}

impl Default for RateLimit {
    fn default() -> Self {
        Self {
            enabled: false,
            rate_per_sec: f64::from(i32::MAX),
            burst_capacity_secs: 1.0,
            max_queue_depth: 0,
            full_at: Instant::ZERO,
        }
    }
}

impl RateLimit {
    /// Takes a token for a connection, now or as soon as there is one.
    pub(super) fn admit(&mut self, now: Instant) -> Admission {
        if !self.enabled {
            return Admission::Now;
        }
        let token = seconds(1.0 / self.rate_per_sec);
        // A bucket for less than one token would admit no connection.
        let capacity = seconds(self.burst_capacity_secs).max(token);
        let full_at = self.full_at.max(now) + token;
        let wait = (full_at - now).saturating_sub(capacity);
        let queue = u32::try_from(self.max_queue_depth).unwrap_or_default();
        if wait > token.saturating_mul(queue) {
            return Admission::Refused;
        }
        self.full_at = full_at;
        match wait {
            Duration::ZERO => Admission::Now,
            wait => Admission::At(now + wait),
        }
    }
}

/// A number of seconds that came from outside; what is no duration is the longest one.
fn seconds(number: f64) -> Duration {
    Duration::try_from_secs_f64(number).unwrap_or(Duration::MAX)
}
