//! Those who do operations one after the other: the test itself, and its threads.

use std::collections::VecDeque;

use bson::Bson;
use sdam_core::config::ServerAddress;
use sdam_core::time::Instant;

use super::machine::{Command, Token};
use crate::unified::format::{ExpectedEvent, Operation};

/// One who does operations, one after the other.
#[derive(Debug, Default)]
pub(super) struct Actor {
    /// The operations to come, each with its place in the test.
    pub(super) queue: VecDeque<(String, Operation)>,
    /// The operation that is under way.
    pub(super) current: Option<Current>,
    /// The call of a transaction that is run as a whole, if these are the operations of its
    /// callback.
    pub(super) callback: Option<Token>,
}

/// An operation that is under way.
#[derive(Debug)]
pub(super) struct Current {
    /// Its place in the test.
    pub(super) place: String,
    pub(super) operation: Operation,
    pub(super) wait: Wait,
}

/// The thing that an operation waits for.
#[derive(Clone, Debug)]
pub(super) enum Wait {
    /// The end of a call, which is then compared with the expectation.
    Call(Token),
    /// The end of a call that sets a fail point of this name.
    FailPoint { token: Token, name: String },
    /// The reply to an internal command, which is then looked at.
    Look { token: Token, look: Look, command: Box<Command> },
    /// The answer to a question about a session.
    Answer { token: Token, wanted: Bson },
    /// So many events of a client that match.
    Event { client: String, event: Box<ExpectedEvent>, count: usize, until: Instant },
    /// Another primary than this, as a client sees it.
    Primary { client: String, prior: Option<ServerAddress>, until: Instant },
    /// The end of what another actor has to do.
    Thread { index: usize, until: Instant },
    /// A moment.
    Moment(Instant),
}

/// The question that an internal command answers.
#[derive(Clone, Debug)]
pub(super) enum Look {
    /// Is there a collection?
    Collection { wanted: bool },
    /// Is there an index of this name?
    Index { name: String, wanted: bool },
}

impl Actor {
    /// Returns whether there is nothing left to do.
    pub(super) fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.current.is_none()
    }

    /// Forgets what there was to do; returns the call whose callback this was.
    pub(super) fn stop(&mut self) -> Option<Token> {
        self.queue.clear();
        self.current = None;
        self.callback.take()
    }
}

impl Wait {
    /// Returns the call that this waits for.
    pub(super) const fn token(&self) -> Option<Token> {
        match self {
            Self::Call(token)
            | Self::FailPoint { token, .. }
            | Self::Look { token, .. }
            | Self::Answer { token, .. } => Some(*token),
            Self::Event { .. } | Self::Primary { .. } | Self::Thread { .. } | Self::Moment(_) => {
                None
            }
        }
    }

    /// Returns when the wait is over, whether or not its end was seen.
    pub(super) const fn until(&self) -> Option<Instant> {
        match self {
            Self::Event { until, .. }
            | Self::Primary { until, .. }
            | Self::Thread { until, .. }
            | Self::Moment(until) => Some(*until),
            Self::Call(_) | Self::FailPoint { .. } | Self::Look { .. } | Self::Answer { .. } => {
                None
            }
        }
    }
}
