//! Checking connections that were idle, as single-threaded clients do (Server Selection, "Checking
//! an Idle Socket After socketCheckIntervalMS").

use std::time::Duration;

use sdam_core::failure::{Cause, Failure, Stage};
use sdam_core::id::ServerId;
use sdam_core::pool::Lease;

use super::Client;
use super::operations::{OperationId, Timer};
use crate::sim::network::{Network, StreamId};
use crate::sim::request::ping;
use crate::sim::world::Event;

/// socketCheckIntervalMS.
const INTERVAL: Duration = Duration::from_secs(5);

/// How far an operation is with checking a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IdleCheck {
    None,
    InProgress,
    /// A connection was found dead; the next one that is, ends the operation.
    Failed,
    /// The second one is being checked.
    Again,
}

impl IdleCheck {
    /// A reply has come; returns whether it is that to the check.
    pub(super) fn ended(&mut self) -> bool {
        let (next, ended) = match self {
            Self::InProgress => (Self::None, true),
            Self::Again => (Self::Failed, true),
            Self::None | Self::Failed => return false,
        };
        *self = next;
        ended
    }

    /// The connection is dead; returns whether a server is to be selected once more.
    pub(super) fn failed(&mut self) -> bool {
        let again = *self == Self::InProgress;
        *self = Self::Failed;
        again
    }
}

impl Client {
    /// Returns whether a connection is to be checked before it is used.
    pub(super) fn was_idle(&self, stream: StreamId) -> bool {
        let used = self.connections.get(&stream).map(|connection| connection.used);
        self.options.is_single_threaded() && used.is_some_and(|used| self.now - used >= INTERVAL)
    }

    pub(super) fn ping(
        &mut self,
        network: &mut Network,
        id: OperationId,
        server: ServerId,
        loan: (Lease, StreamId),
    ) {
        let number = self.next_request();
        let Some(operation) = self.operations.get_mut(&id) else { return };
        operation.idle_check = match operation.idle_check {
            IdleCheck::None | IdleCheck::InProgress => IdleCheck::InProgress,
            IdleCheck::Failed | IdleCheck::Again => IdleCheck::Again,
        };
        if let Some(patience) = self.options.connect_timeout() {
            let client = self.index;
            let limit =
                Event::OperationTimer { client, operation: id, timer: Timer::Pinged(number) };
            network.plan(patience, limit);
        }
        self.ask(network, id, server, loan, (number, ping(number)));
    }

    /// `ping` was waited for as long as a check is, which counts against the server.
    pub(super) fn ping_timed_out(&mut self, network: &mut Network, id: OperationId) {
        let failure = Failure::new(Stage::Operate, Cause::Io, "no reply to ping in time");
        self.broken(network, id, failure);
    }
}
