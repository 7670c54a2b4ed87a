//! When a client gets to do anything: while its process is not frozen and, in the single-threaded
//! mode, while the application is in one of its calls.

use std::collections::BTreeMap;

use sdam_core::description::ServerType;
use sdam_core::machine::Machine;
use sdam_core::time::Instant;
use sdam_core::topology::Input;

use super::operations::State;
use super::{Client, Operation, Use};
use crate::sim::network::{Network, Packet};
use crate::sim::witness::Sign;
use crate::sim::world::Event;

/// How many replies on one stream are many.
const MANY_REPLIES: u32 = 50;

impl Client {
    pub(in crate::sim) const fn is_frozen(&self) -> bool {
        self.frozen.is_some()
    }

    /// The process stops.
    pub(in crate::sim) fn freeze(&mut self, now: Instant) {
        if self.frozen.is_none() {
            self.frozen = Some(Vec::new());
            self.frozen_at = now;
        }
        self.deadline = None;
    }

    /// The process goes on: what has come meanwhile is read first.
    pub(in crate::sim) fn thaw(&mut self, network: &mut Network) {
        let Some(mut backlog) = self.frozen.take() else { return };
        // Bytes lie ready at once; the client's own timers ring a little later.
        backlog.sort_by_key(|event| !matches!(event, Event::Arrival { .. }));
        self.note_pause(network.now, &backlog);
        self.checks.resumed(network.now);
        self.now = network.now;
        for event in backlog {
            self.take(network, event);
        }
        self.running_since = network.now;
        self.tick(network);
    }

    /// Looks at what has come while the process was stopped.
    fn note_pause(&mut self, now: Instant, backlog: &[Event]) {
        let limit = self.options.connect_timeout();
        if limit.is_some_and(|limit| now - self.frozen_at > limit) {
            self.checks.paused_for_long();
        }
        let mut replies = BTreeMap::new();
        for event in backlog {
            if let Event::Arrival { stream, packet: Packet::Bytes(_), .. } = event
                && let Some(Use::Link(_)) = self.uses.get(stream)
            {
                *replies.entry(*stream).or_insert(0) += 1;
            }
        }
        if !replies.is_empty() && self.topology.deadline().is_some_and(|due| due < now) {
            self.checks.reads_late();
        }
        if replies.values().any(|count| *count >= MANY_REPLIES) {
            self.checks.note(Sign::RepliesQueued);
        }
    }

    /// The application closes the client.
    pub(in crate::sim) fn shut_down(&mut self, network: &mut Network) {
        self.now = network.now;
        self.trace.step(self.now, || "shutdown".to_owned());
        let awaits = |it: &Operation| matches!(it.state, State::Exchanging { .. });
        if !self.links.is_empty() && self.operations.values().any(awaits) {
            self.checks.note(Sign::ClosedAtWork);
        }
        self.closed = true;
        self.unread.clear();
        self.tell(network, Input::Shutdown);
        self.settle(network);
        self.checks.closed(self.topology.deadline(), self.links.len());
    }

    /// Something has come for the client.
    pub(in crate::sim) fn receive(&mut self, network: &mut Network, event: Event) {
        match &mut self.frozen {
            Some(backlog) => backlog.push(event),
            None => {
                self.now = network.now;
                self.take(network, event);
            }
        }
    }

    /// Returns whether anybody reads what comes and looks at the clock: always, but in the
    /// single-threaded mode only operations that wait for something.
    pub(super) fn is_attended(&self) -> bool {
        !self.options.is_single_threaded()
            || self.closed
            || self.operations.values().any(Operation::waits)
    }

    /// Lets something happen, unless nobody looks: then it is found by the next call.
    fn take(&mut self, network: &mut Network, event: Event) {
        let was_attended = self.is_attended();
        if !was_attended && !self.is_seen_anyway(&event) {
            self.unread.push(event);
            return;
        }
        self.trace.step(self.now, || match &event {
            Event::Arrival { stream, packet: Packet::Bytes(bytes), .. } => {
                format!("<- {stream:?} {} bytes", bytes.len())
            }
            event => format!("<- {event:?}"),
        });
        match event {
            Event::Arrival { stream, packet, .. } => self.arrived(network, stream, packet),
            Event::Operate { .. } => self.operate(network),
            Event::OperationTimer { operation, timer, .. } => {
                self.operation_timer(network, operation, timer);
            }
            Event::Resolved { records, .. } => self.resolved(network, records),
            _ => {}
        }
        self.settle(network);
        if !was_attended {
            self.catch_up(network);
        }
    }

    /// Returns whether something is seen while the application is in none of its calls: the calls
    /// themselves, and whatever comes over a pooled connection, which is looked at before it is
    /// used.
    fn is_seen_anyway(&self, event: &Event) -> bool {
        match event {
            Event::Arrival { stream, .. } => {
                matches!(self.uses.get(stream), Some(Use::Pooled(_)) | None)
            }
            event => !matches!(event, Event::Resolved { .. }),
        }
    }

    /// Reads what has come since the last call, and then looks at the clock.
    pub(super) fn catch_up(&mut self, network: &mut Network) {
        if !self.is_attended() {
            return;
        }
        for event in std::mem::take(&mut self.unread) {
            self.find_ended(network, &event);
            self.take(network, event);
        }
        self.tick(network);
    }

    /// Tells the network that a monitor's stream has ended while nobody looked, of a server that
    /// is Unknown: that fails a check over it, and only servers that are known are checked once
    /// more at once (Server Monitoring, "Network or command error during server check").
    fn find_ended(&self, network: &mut Network, event: &Event) {
        if let Event::Arrival { stream, packet: Packet::Fin, .. } = event
            && let Some(Use::Link(link)) = self.uses.get(stream)
        {
            let mut servers = self.view.description().servers().iter();
            let own = servers.find(|server| server.id == link.server());
            if own.is_some_and(|server| server.server_type == ServerType::Unknown) {
                network.found_ended(*stream);
            }
        }
    }

    /// Returns whether the client may look at the clock: when it begins, it may.
    pub(super) fn may_tick(&self, now: Instant) -> bool {
        !self.is_frozen() && (self.is_attended() || now == self.born)
    }
}
