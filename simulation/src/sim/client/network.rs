//! A client's share of the network: its streams and lookups, while its process runs and while not.

use std::sync::Arc;

use sdam_core::config::ServerAddress;
use sdam_core::description::ServerType;
use sdam_core::time::Instant;

use super::Client;
use crate::sim::coverage::Sign;
use crate::sim::dns::WAY;
use crate::sim::network::{Network, Packet, Side, StreamId};
use crate::sim::runtime::{Call, End};
use crate::sim::world::Event;

/// The number of replies on one stream that counts as many.
const MANY_REPLIES: u32 = 50;

impl Client {
    /// Performs what the runtime is asked for; returns whether there was anything.
    pub(super) fn perform(&mut self, network: &mut Network) -> bool {
        let mut calls = std::mem::take(&mut self.calls);
        self.desk.take_calls(&mut calls);
        let any = !calls.is_empty();
        for call in calls.drain(..) {
            match call {
                Call::Open { end, address } => self.open(network, end, &address),
                Call::Send { end, bytes } => {
                    if let Some(stream) = end.stream() {
                        if end.link().is_none() {
                            self.note_sent(stream, &bytes);
                        }
                        network.send(stream, Side::Server, Packet::Bytes(bytes));
                    }
                }
                Call::Close { end } => {
                    if let Some(stream) = end.stream() {
                        self.ends.remove(&stream);
                        self.note_closed(stream);
                        network.close(stream);
                    }
                }
                Call::Wake { at, waker } => {
                    let client = self.index;
                    network.events.plan(at, Event::Wake { client, waker });
                }
                Call::Ripen { at, end } => {
                    let client = self.index;
                    network.events.plan(at, Event::Ripen { client, end });
                }
                Call::Resolve { lookup } => {
                    self.lookups.push_back(lookup);
                    network.plan(WAY, Event::Resolve { client: self.index });
                }
            }
        }
        self.calls = calls;
        any
    }

    /// A connection for operations says something.
    fn note_sent(&self, stream: StreamId, bytes: &[u8]) {
        if self.plan.documents_percent > 0 {
            let mut ledger = self.ledger.lock();
            if let Err(what) = ledger.documents.sessions.sent(stream, bytes) {
                ledger.checks.fail("a session is used by one operation at a time", || what);
            }
        }
    }

    fn note_closed(&self, stream: StreamId) {
        if self.plan.documents_percent > 0 {
            self.ledger.lock().documents.sessions.closed(stream);
        }
    }

    fn open(&mut self, network: &mut Network, end: Arc<End>, address: &ServerAddress) {
        let Some(member) = self.member_at(address) else { return };
        let stream = network.open(self.index, member);
        if end.link().is_some() {
            network.monitors(stream);
        }
        end.set_stream(stream);
        self.ends.insert(stream, end);
    }

    pub(super) fn member_at(&mut self, address: &ServerAddress) -> Option<usize> {
        if self.options.load_balanced() {
            // The balancer passes each connection on to whichever mongos it likes.
            return Some(self.random.index(self.addresses.len()));
        }
        let member = self.addresses.iter().position(|known| known == address);
        if member.is_none() {
            self.ledger().checks.fail("known addresses", || format!("{address} is dialled"));
        }
        member
    }

    /// Something has come for the client: its system takes it, be its process stopped or not.
    pub(in crate::sim) fn receive(&mut self, network: &mut Network, event: Event) {
        match event {
            Event::Arrival { stream, packet, .. } => self.arrived(stream, &packet),
            Event::Wake { waker, .. } => waker.wake(),
            Event::Ripen { end, .. } => end.ripen(),
            Event::Resolved { records, .. } => {
                if let Some(lookup) = self.lookups.pop_front() {
                    lookup.answer(records);
                }
            }
            event if self.is_frozen() => self.missed.push(event),
            event => self.act(network, &event),
        }
        self.run(network);
    }

    fn arrived(&mut self, stream: StreamId, packet: &Packet) {
        let Some(end) = self.ends.get(&stream) else { return };
        self.ledger.lock().trace.step(self.clock.now(), || match packet {
            Packet::Bytes(bytes) => format!("<- {stream:?} {} bytes", bytes.len()),
            packet => format!("<- {stream:?} {packet:?}"),
        });
        if let (Packet::Bytes(bytes), true) = (packet, self.plan.documents_percent > 0) {
            self.ledger.lock().documents.sessions.received(stream, bytes);
        }
        match packet {
            Packet::Bytes(_) if self.frozen.is_some() && end.link().is_some() => {
                *self.replies.entry(stream).or_default() += 1;
            }
            Packet::Fin if !self.attended && end.link().is_some() => {
                self.unseen.insert(stream);
            }
            _ => {}
        }
        end.arrived(packet);
    }

    /// Reports to the network that a monitor's stream has ended without notice, of a server that is
    /// Unknown: that fails a check over it, and only servers that are known are checked once more
    /// at once (Server Monitoring, "Network or command error during server check").
    pub(super) fn find_ended(&mut self, network: &mut Network) {
        for stream in std::mem::take(&mut self.unseen) {
            let link = self.ends.get(&stream).and_then(|end| end.link());
            let Some(link) = link else { continue };
            let view = self.view();
            let own = view.servers().iter().find(|server| server.id == link.server());
            if own.is_some_and(|server| server.server_type == ServerType::Unknown) {
                network.found_ended(stream);
            }
        }
    }

    /// The process stops.
    pub(in crate::sim) fn freeze(&mut self, now: Instant) {
        self.frozen.get_or_insert(now);
        self.deadline = None;
    }

    /// The process goes on: its timers ring, and its tasks read what has come meanwhile.
    pub(in crate::sim) fn thaw(&mut self, network: &mut Network) {
        let Some(frozen_at) = self.frozen.take() else { return };
        let limit = self.options.connect_timeout();
        let replies = std::mem::take(&mut self.replies);
        {
            let mut ledger = self.ledger.lock();
            if limit.is_some_and(|limit| network.now - frozen_at > limit) {
                ledger.checks.paused_for_long();
            }
            if !replies.is_empty() && ledger.deadline.is_some_and(|due| due < network.now) {
                ledger.checks.reads_late();
            }
            if replies.values().any(|count| *count >= MANY_REPLIES) {
                ledger.checks.note(Sign::RepliesQueued);
            }
            ledger.checks.resumed(network.now);
        }
        self.running_since = network.now;
        let (missed, is_due) = (
            std::mem::take(&mut self.missed),
            self.alarm.next().is_some_and(|at| at <= network.now),
        );
        if is_due && self.is_attended() && self.random.percent(50) {
            self.ring(network.now);
        }
        missed.iter().for_each(|event| self.act(network, event));
        self.run(network);
    }
}
