//! The time of the next check of a server.
//!
//! Implements "Retry hello or legacy hello calls once" and "Requesting an immediate check". The
//! specification has the retry follow every network error of a server that was known, at once. We
//! depart from that where a retry lies less than minHeartbeatFrequencyMS back: a server, or
//! something in between, that answers one hello per connection and hangs up is known again each
//! time, and would be connected to without end.
//!
//! [`Options::eager_checks`](crate::config::Options::eager_checks) is our own: a server whose
//! connections are refused is checked again sooner than heartbeatFrequencyMS says, and never sooner
//! than minHeartbeatFrequencyMS does.

use std::time::Duration;

use super::{Context, Identity, Monitor, Phase};
use crate::config::MIN_HEARTBEAT_FREQUENCY;
use crate::description::TopologyVersion;
use crate::rng::Rng;
use crate::time::Instant;

/// The share of an outage that passes until the next eager check: an eighth.
const EAGER_SHARE: u32 = 8;

/// The step that follows the end of a check.
#[derive(Clone, Debug, serde::Serialize)]
pub(super) enum Next {
    /// Another reply follows without a request.
    Listen,
    /// The server can stream: ask it to reply when it is newer than this.
    Await { version: TopologyVersion },
    /// Check again after a pause.
    Pause,
    /// Check again soon if the server was known so far, else after a pause.
    RetryIfKnown,
}

impl Monitor {
    /// Goes on after an outcome was processed; `was_known` is whether the server was not Unknown
    /// before that.
    pub(crate) fn settle(&mut self, was_known: bool, ctx: &mut Context<'_>) {
        let Phase::Ended { next } = &self.phase else {
            return;
        };
        match next.clone() {
            Next::Listen => self.listen(ctx),
            Next::Await { version } => self.begin(Some(version), ctx),
            Next::RetryIfKnown if was_known => self.retry(ctx),
            Next::Pause | Next::RetryIfKnown => self.pause(ctx),
        }
    }

    /// Checks again at once, or when 500 ms have passed since that was last done.
    fn retry(&mut self, ctx: &mut Context<'_>) {
        let earliest = self.retried.map_or(ctx.now.clock, |last| last + MIN_HEARTBEAT_FREQUENCY);
        if earliest <= ctx.now.clock {
            self.retried = Some(ctx.now.clock);
            self.begin(None, ctx);
        } else if ctx.options.is_single_threaded() {
            self.pause(ctx);
        } else {
            self.retried = Some(earliest);
            self.phase = Phase::Sleeping { until: Some(earliest) };
        }
    }

    /// "Requesting an immediate check": wakes a sleeping monitor, though not before 500 ms have
    /// passed since its last check; a check in progress is answer enough.
    pub(crate) fn request_check(&mut self, now: Instant) {
        if let Phase::Sleeping { until: Some(until) } = &mut self.phase {
            let earliest = self.ended.map_or(now, |ended| ended + MIN_HEARTBEAT_FREQUENCY);
            *until = (*until).min(earliest.max(now));
        }
    }

    pub(super) fn pause(&mut self, ctx: &Context<'_>) {
        let options = ctx.options;
        let frequency = options.heartbeat_frequency();
        let until = (!options.is_single_threaded()).then(|| {
            let pause = self.eager_pause(ctx).map_or(frequency, |pause| pause.min(frequency));
            ctx.now.clock + pause
        });
        self.phase = Phase::Sleeping { until };
    }

    /// The time to the next check of a server that refuses connections, if checks are eager: in
    /// proportion to how long it has done so, so that an outage seems longer than it was by a
    /// share that stays the same, and checks become rare while it lasts. All clients of a server
    /// are refused at the same moment; that they ask again at different ones is what the random
    /// part is for.
    fn eager_pause(&self, ctx: &Context<'_>) -> Option<Duration> {
        let since = self.refused.filter(|_| ctx.options.eager_checks())?;
        let pause = MIN_HEARTBEAT_FREQUENCY.max((ctx.now.clock - since) / EAGER_SHARE);
        let Identity { server, .. } = self.identity;
        let seed =
            ctx.topology.0 ^ server.0 ^ u64::from(ctx.now.clock.since_origin().subsec_nanos());
        let part = u32::try_from(Rng::new(seed).next_u64() % 256).unwrap_or_default();
        Some(pause + pause * part / 1024)
    }
}
