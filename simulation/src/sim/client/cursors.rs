//! Cursors: a first batch, and further ones from the server it came from, behind a load balancer
//! over the very connection.

use std::time::Duration;

use sdam_core::id::ServerId;
use sdam_core::pool::{Input, Lease, Purpose};

use super::operations::{OperationId, State, Timer};
use super::{Client, Operation};
use crate::sim::network::{Network, StreamId};
use crate::sim::witness::Sign;
use crate::sim::world::Event;

/// How far an operation has read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::sim) enum Cursor {
    /// It wants one reply.
    None,
    /// It is going to read in batches.
    Wanted,
    /// There are more batches on that server.
    Open { server: ServerId, id: i64, of_primary: bool },
}

impl Operation {
    /// Returns the server that has more batches for it.
    pub(in crate::sim) const fn cursor_server(&self) -> Option<ServerId> {
        match self.cursor {
            Cursor::Open { server, .. } => Some(server),
            Cursor::None | Cursor::Wanted => None,
        }
    }
}

impl Client {
    /// A batch has come; if there are more, the application takes its time.
    pub(super) fn rest(
        &mut self,
        network: &mut Network,
        id: OperationId,
        cursor: i64,
        (server, lease, stream): (ServerId, Lease, StreamId),
    ) {
        let of_primary = self.sees_primary(server);
        let Some(operation) = self.operations.get_mut(&id) else { return };
        operation.cursor = Cursor::Open { server, id: cursor, of_primary };
        // "the driver MUST pin the connection" to a cursor behind a load balancer.
        let loan = self.options.load_balanced().then_some((lease, stream));
        operation.state = State::Resting { server, loan };
        match loan {
            Some(_) => {
                let purpose = Purpose::Cursor;
                self.tell_pool(network, server, Input::Pin { lease, purpose });
            }
            None => self.check_in(network, server, (lease, stream), true),
        }
        let pause = self.random.between(Duration::ZERO, Duration::from_millis(1_500));
        let client = self.index;
        network.plan(pause, Event::OperationTimer { client, operation: id, timer: Timer::More });
    }

    /// The application wants the next batch.
    pub(super) fn read_more(&mut self, network: &mut Network, id: OperationId) {
        let Some(operation) = self.operations.get(&id) else { return };
        let State::Resting { server, loan } = operation.state else { return };
        let of_primary = matches!(operation.cursor, Cursor::Open { of_primary: true, .. });
        if of_primary && self.servers.contains_key(&server) && !self.sees_primary(server) {
            self.checks.note(Sign::CursorDemoted);
        }
        if let Some(loan) = loan {
            return self.exchange(network, id, server, loan);
        }
        match self.servers.get_mut(&server) {
            Some(known) => {
                known.load += 1;
                self.check_out(network, id, server, None);
            }
            // It has left, and its pool is closed.
            None => drop(self.operations.remove(&id)),
        }
    }

    /// Returns whether the view names this server as the primary.
    fn sees_primary(&self, server: ServerId) -> bool {
        self.view.description().primary().is_some_and(|primary| primary.id == server)
    }

    /// Ends an operation whose cursor is open, as no other server has its batches; returns whether
    /// it was one.
    pub(super) fn loses_cursor(&mut self, id: OperationId) -> bool {
        let is_open = self.operations.get(&id).and_then(Operation::cursor_server).is_some();
        if is_open {
            self.operations.remove(&id);
        }
        is_open
    }
}
