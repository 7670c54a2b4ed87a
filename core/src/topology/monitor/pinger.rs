//! The second connection of a streaming monitor, which only measures the round trip time.
//!
//! Implements "Measuring RTT": a hello every heartbeatFrequencyMS on a dedicated connection, whose
//! reply is ignored, whose errors change nothing, and which publishes no events.

use serde::Serialize;

use super::conversation::Conversation;
use super::round_trip::RoundTripTime;
use super::{Context, Identity};
use crate::id::LinkId;
use crate::time::Instant;
use crate::topology::Action;

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
            && conversation.greet(ctx)
        {
            self.phase = Phase::Pinging { deadline: ctx.connect_deadline() };
        }
    }

    /// Takes bytes, and adds a sample if they end a measurement.
    pub(super) fn received(
        &mut self,
        link: LinkId,
        bytes: &[u8],
        round_trip: &mut RoundTripTime,
        ctx: &mut Context<'_>,
    ) {
        if let Some(conversation) = self.conversation_of(link) {
            conversation.receive(bytes);
        }
        while let Some(conversation) = self.conversation_of(link) {
            match conversation.next_reply(None) {
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
        self.phase = Phase::Sleeping { until: ctx.now.clock + ctx.options.heartbeat_frequency() };
    }

    fn hang_up(&mut self, ctx: &mut Context<'_>) {
        if let Some(conversation) = self.conversation.take() {
            ctx.out.push(Action::Close { link: conversation.link() });
        }
    }
}
