//! The way between one client and one member, and what can be wrong with it.

use std::time::Duration;

use sdam_core::time::Instant;

use super::random::Random;

/// The longest that a packet takes one way, unless something is wrong with its path.
pub(super) const MAX_LATENCY: Duration = Duration::from_millis(60);

/// The longest wait of a sender before it sends again what was lost.
pub(super) const MAX_RETRANSMISSION: Duration = Duration::from_millis(500);

/// Something that is wrong with a path, as long as somebody wants it to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Trouble {
    /// Nothing gets to the member; what is sent waits.
    SilentToServer,
    /// Nothing gets to the client; what is sent waits.
    SilentToClient,
    /// The member's host refuses connections.
    Refused,
    /// The member's name has no address.
    Unresolvable,
    /// A packet in four is lost and sent again.
    Lossy,
    /// Packets take seconds.
    Slow,
    /// Bytes come by the dozen.
    Dripping,
    /// Messages come in pieces.
    Torn,
    /// The member's name leads to another member.
    Misdirected,
    /// Nothing is wrong with the network, but the member misbehaves.
    Misbehaving,
    /// Streams end with the first answer.
    OneReply,
    /// Replies announce others.
    Announced,
    /// Replies to monitors are followed by others, one after the other.
    Flooding,
}

impl Trouble {
    const COUNT: usize = Self::Flooding as usize + 1;
}

/// The way between one client and one member.
#[derive(Clone, Debug)]
pub(super) struct Path {
    latency: Duration,
    troubles: [u32; Trouble::COUNT],
    /// The member that the name leads to while it is misdirected.
    pub(super) detour: usize,
    /// Since when nothing is wrong, if nothing is.
    calm_since: Instant,
    /// The time when its name last led to another member.
    pub(super) misled: Option<Instant>,
    /// The time when the client last found out that a stream was dead or, where that costs a check,
    /// closed.
    pub(super) alive_since: Instant,
}

impl Path {
    pub(super) fn new(random: &mut Random) -> Self {
        let latency = random.between(Duration::from_micros(100), MAX_LATENCY / 2);
        Self {
            latency,
            troubles: [0; Trouble::COUNT],
            detour: 0,
            calm_since: Instant::ZERO,
            misled: None,
            alive_since: Instant::ZERO,
        }
    }

    /// Sets how long a packet takes at least.
    pub(super) fn at(self, distance: Option<Duration>) -> Self {
        Self { latency: distance.unwrap_or(self.latency), ..self }
    }

    /// Returns how long a packet takes at least; unless something is wrong, twice that at most.
    pub(super) const fn latency(&self) -> Duration {
        self.latency
    }

    pub(super) const fn has(&self, trouble: Trouble) -> bool {
        self.troubles[trouble as usize] > 0
    }

    pub(super) const fn begin(&mut self, trouble: Trouble) {
        self.troubles[trouble as usize] += 1;
    }

    /// Returns whether that was the last who wanted it.
    pub(super) const fn end(&mut self, trouble: Trouble) -> bool {
        let wanted = &mut self.troubles[trouble as usize];
        *wanted = wanted.saturating_sub(1);
        *wanted == 0
    }

    /// Notes that its name may have led to another member until then.
    pub(super) const fn misled_until(&mut self, at: Instant) {
        self.misled = Some(at);
    }

    /// Notes that events before `at` may have done harm.
    pub(super) fn disturbed_until(&mut self, at: Instant) {
        self.calm_since = self.calm_since.max(at);
    }

    /// Returns since when nothing has been wrong, `None` if something is.
    pub(super) fn calm_since(&self) -> Option<Instant> {
        self.troubles.iter().all(|wanted| *wanted == 0).then_some(self.calm_since)
    }

    /// Draws how long a packet takes.
    pub(super) fn delay(&self, random: &mut Random) -> Duration {
        let mut delay = random.between(self.latency, self.latency * 2);
        if self.has(Trouble::Slow) {
            delay += random.millis(50, 2500);
        }
        let mut again = Duration::from_millis(200);
        while self.has(Trouble::Lossy) && again < Duration::from_secs(7) && random.percent(25) {
            delay += again;
            again *= 2;
        }
        delay
    }

    /// Draws in what pieces, and how far apart, so many bytes arrive.
    pub(super) fn pieces(&self, len: usize, random: &mut Random) -> Vec<(usize, Duration)> {
        let (most, gap) = match (self.has(Trouble::Dripping), self.has(Trouble::Torn)) {
            (true, _) => (64, Duration::from_millis(150)),
            (false, true) => (len, Duration::from_millis(2)),
            (false, false) => return vec![(len, Duration::ZERO)],
        };
        let (mut pieces, mut left) = (Vec::new(), len);
        while left > 0 {
            let piece = (1 + random.index(most)).min(left);
            pieces.push((piece, random.between(Duration::ZERO, gap)));
            left -= piece;
        }
        pieces
    }
}
