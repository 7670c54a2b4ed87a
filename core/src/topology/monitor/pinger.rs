//! The second connection of a streaming monitor, which only measures the round trip time.
//!
//! Implements "Measuring RTT": a hello every heartbeatFrequencyMS on a dedicated connection, whose
//! reply is ignored, whose errors change nothing, and which publishes no events.

use std::time::Duration;

use serde::Serialize;

use super::conversation::{Conversation, Known};
use super::round_trip::RoundTripTime;
use super::{Context, Identity};
use crate::id::LinkId;
use crate::time::Instant;
use crate::topology::Action;

/// The number of servers beyond which measurements wait for each other.
pub(crate) const CROWD: usize = 100;

/// The number of times in heartbeatFrequencyMS at which those of a crowd are made: each is late by
/// a fiftieth of it at most, and many are made in one go, which spares a process thousands of
/// wake-ups.
const TICKS: u32 = 50;

/// The second connection of a streaming monitor.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Pinger {
    phase: Phase,
    conversation: Option<Conversation>,
}

#[derive(Clone, Copy, Debug, Serialize)]
enum Phase {
    Sleeping { until: Instant },
    Pinging { deadline: Option<Instant> },
}

impl Pinger {
    /// Opens the connection; its handshake is the first measurement.
    pub(super) fn start(identity: &mut Identity, ctx: &mut Context<'_>) -> Self {
        Self {
            phase: Phase::Pinging { deadline: ctx.connect_deadline() },
            conversation: Some(identity.open(ctx)),
        }
    }

    pub(super) const fn deadline(&self) -> Option<Instant> {
        match self.phase {
            Phase::Sleeping { until } => Some(until),
            Phase::Pinging { deadline } => deadline,
        }
    }

    /// Does what is due: begins a measurement, or gives one up.
    pub(super) fn fire(&mut self, identity: &mut Identity, ctx: &mut Context<'_>) {
        match self.phase {
            Phase::Sleeping { until } if until <= ctx.now.judged => {
                match &mut self.conversation {
                    Some(conversation) => conversation.ask(None, ctx),
                    None => self.conversation = Some(identity.open(ctx)),
                }
                self.phase = Phase::Pinging { deadline: ctx.connect_deadline() };
            }
            Phase::Pinging { deadline: Some(deadline) } if deadline <= ctx.now.judged => {
                self.hang_up(ctx);
                self.pause(ctx);
            }
            Phase::Sleeping { .. } | Phase::Pinging { .. } => {}
        }
    }

    pub(super) fn opened(&mut self, link: LinkId, ctx: &mut Context<'_>) {
        if let Some(conversation) = self.conversation_of(link)
            && conversation.send_hello(ctx)
        {
            self.phase = Phase::Pinging { deadline: ctx.connect_deadline() };
        }
    }

    /// Takes bytes, and adds a sample if they end a measurement.
    pub(super) fn received(
        &mut self,
        link: LinkId,
        bytes: &[u8],
        (known, round_trip): (Option<&Known>, &mut RoundTripTime),
        ctx: &mut Context<'_>,
    ) {
        if let Some(conversation) = self.conversation_of(link) {
            conversation.receive(bytes);
        }
        while let Some(conversation) = self.conversation_of(link) {
            match conversation.next_reply(known) {
                Ok(None) => return,
                Ok(Some(reply)) => {
                    round_trip.add(ctx.answered_at(reply.asked_at) - reply.asked_at);
                    self.pause(ctx);
                }
                Err(_) => {
                    self.hang_up(ctx);
                    self.pause(ctx);
                }
            }
        }
    }

    pub(super) fn closed(&mut self, link: LinkId, ctx: &Context<'_>) {
        if self.conversation_of(link).is_some() {
            self.conversation = None;
            // A measurement is given up; a connection that is lost between two is no reason to
            // put off the next one.
            if let Phase::Pinging { .. } = self.phase {
                self.pause(ctx);
            }
        }
    }

    /// Returns whether its connection is open and the server has answered over it.
    pub(super) fn is_established(&self) -> bool {
        self.conversation.as_ref().is_some_and(Conversation::is_established)
    }

    /// Closes the connection.
    pub(super) fn stop(mut self, ctx: &mut Context<'_>) {
        self.hang_up(ctx);
    }

    fn conversation_of(&mut self, link: LinkId) -> Option<&mut Conversation> {
        self.conversation.as_mut().filter(|conversation| conversation.link() == link)
    }

    fn pause(&mut self, ctx: &Context<'_>) {
        let frequency = ctx.options.heartbeat_frequency();
        let due = ctx.now.clock + frequency;
        let until = if ctx.crowded { next_tick(due, frequency / TICKS) } else { due };
        self.phase = Phase::Sleeping { until };
    }

    fn hang_up(&mut self, ctx: &mut Context<'_>) {
        if let Some(conversation) = self.conversation.take() {
            ctx.out.push(Action::Close { link: conversation.link() });
        }
    }
}

/// Returns the first instant from `due` on that lies a whole number of ticks behind the origin.
fn next_tick(due: Instant, tick: Duration) -> Instant {
    let Ok(tick @ 1..) = u64::try_from(tick.as_nanos()) else { return due };
    Instant::from_nanos(due.as_nanos().checked_next_multiple_of(tick).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::next_tick;
    use crate::time::Instant;

    #[test]
    fn a_tick_is_never_before_it_is_due_and_at_most_one_tick_later() {
        let at = |due| next_tick(Instant::from_millis(due), Duration::from_millis(200));
        assert_eq!(at(0), Instant::ZERO);
        assert_eq!(at(200), Instant::from_millis(200));
        assert_eq!(at(201), Instant::from_millis(400));
        let last = Instant::from_nanos(u64::MAX);
        assert_eq!(next_tick(last, Duration::from_millis(200)), last);
        assert_eq!(next_tick(last, Duration::MAX), last, "a tick that is too long is none");
        assert_eq!(next_tick(Instant::from_millis(7), Duration::ZERO), Instant::from_millis(7));
    }
}
