//! How connections of pools are established.

use bson::oid::ObjectId;
use sdam_core::bson;
use sdam_core::description::ServerType;
use sdam_core::failure::Stage;
use sdam_core::handshake::{Agreement, Handshake, Opening, Progress};
use sdam_core::id::{ConnectionId, Generation, ServerId};
use sdam_core::operation::{OperationError, OperationFailure};
use sdam_core::pool::{Established, Input};
use sdam_core::wire::Frames;

use super::pools::{Connection, Task};
use super::words::failure_of;
use super::{Client, Use};
use crate::sim::network::{Network, Packet, StreamId};

/// A connection that is being established.
#[derive(Clone, Copy, Debug)]
pub(super) struct Establishing {
    generation: Generation,
    /// Behind a load balancer, the service, once hello has named it.
    service: Option<ObjectId>,
    max_wire_version: i32,
    stream: Option<StreamId>,
}

/// The opening conversation of a connection that is being established.
#[derive(Debug)]
pub(super) struct Attempt {
    pub(super) handshake: Option<Handshake>,
}

impl Client {
    pub(super) fn abort(
        &mut self,
        network: &mut Network,
        id: ServerId,
        connection: ConnectionId,
    ) -> Option<Establishing> {
        let attempt = self.servers.get_mut(&id)?.establishing.remove(&connection)?;
        if let Some(stream) = attempt.stream {
            self.hang_up(network, stream);
        }
        Some(attempt)
    }

    pub(super) fn establish(
        &mut self,
        network: &mut Network,
        id: ServerId,
        connection: ConnectionId,
    ) {
        let address = match self.servers.get(&id) {
            Some(server) if server.establishing.contains_key(&connection) => server.address.clone(),
            _ => return,
        };
        let Some(member) = self.member_at(&address) else { return };
        let stream = network.open(self.index, member);
        self.uses.insert(stream, Use::Attempt(id, connection));
        self.attempts.insert(stream, Attempt { handshake: None });
        if let Some(attempt) =
            self.servers.get_mut(&id).and_then(|it| it.establishing.get_mut(&connection))
        {
            attempt.stream = Some(stream);
        }
        self.tell_pool(network, id, Input::Reached { connection, stage: Stage::Connect });
    }

    pub(super) fn arrived_at_attempt(
        &mut self,
        network: &mut Network,
        stream: StreamId,
        (id, connection): (ServerId, ConnectionId),
        packet: Packet,
    ) {
        let Some(attempt) = self.attempts.get_mut(&stream) else { return };
        let opened = matches!(packet, Packet::SynAck);
        let result = match packet {
            Packet::Syn | Packet::SynAck => {
                let opening = Opening {
                    client: self.topology.get().get().client_metadata().clone(),
                    nonce: self.nonce(),
                    remembered: self.remembered.clone(),
                    encrypted: false,
                };
                let mut out = Vec::new();
                let handshake = Handshake::start(&self.options, opening, &mut out);
                self.send(network, stream, out);
                handshake.map(|handshake| {
                    let attempt = self.attempts.get_mut(&stream).expect("it was just there");
                    attempt.handshake = Some(handshake);
                    None
                })
            }
            Packet::Bytes(bytes) => {
                let Some(handshake) = &mut attempt.handshake else { return };
                let mut out = Vec::new();
                let progress = handshake.receive(&bytes, &mut out);
                let known = (handshake.service(), handshake.max_wire_version());
                let stage = handshake.stage();
                if !matches!(progress, Ok(Progress::Reading)) {
                    self.remembered.learn(handshake.remembered());
                }
                self.greeted((id, connection), known);
                self.tell_pool(network, id, Input::Reached { connection, stage });
                self.send(network, stream, out);
                progress.map(|progress| match progress {
                    Progress::Done(agreement) => Some(agreement),
                    Progress::Reading | Progress::Asking(_) => None,
                })
            }
            Packet::Refused | Packet::NotResolved | Packet::Fin => {
                let stage = attempt.handshake.as_ref().map_or(Stage::Connect, Handshake::stage);
                Err(OperationError::Stream(failure_of(&packet, stage)))
            }
        };
        match result {
            Ok(None) if opened => {
                self.tell_pool(network, id, Input::Reached { connection, stage: Stage::Hello });
            }
            Ok(None) => {}
            Ok(Some(agreement)) => {
                self.established(network, stream, (id, connection), &agreement);
            }
            Err(error) => {
                if let Some(attempt) = self.abort(network, id, connection) {
                    let failure = attempt.failure(error);
                    self.tasks.push_back(Task::NotEstablished(id, connection, failure));
                }
            }
        }
    }

    /// Draws what is to be said once only.
    fn nonce(&mut self) -> [u8; 24] {
        let mut nonce = [0; 24];
        for part in nonce.chunks_mut(8) {
            part.copy_from_slice(&self.random.bits().to_le_bytes());
        }
        nonce
    }

    /// Hello was answered, perhaps; what it says counts if the rest fails.
    fn greeted(
        &mut self,
        (id, connection): (ServerId, ConnectionId),
        (service, max_wire_version): (Option<ObjectId>, i32),
    ) {
        let Some(server) = self.servers.get_mut(&id) else { return };
        let Some(attempt) = server.establishing.get_mut(&connection) else { return };
        attempt.max_wire_version = max_wire_version;
        if attempt.service.is_none() && service.is_some() {
            (attempt.service, attempt.generation) =
                (service, server.pool.get().generation(service));
        }
    }

    fn established(
        &mut self,
        network: &mut Network,
        stream: StreamId,
        (id, connection): (ServerId, ConnectionId),
        agreement: &Agreement,
    ) {
        self.attempts.remove(&stream);
        if let Some(server) = self.servers.get_mut(&id) {
            server.establishing.remove(&connection);
        }
        let (frames, dead, operation) = (Frames::new(), false, None);
        let (max_wire_version, used) = (agreement.max_wire_version, self.now);
        let anonymous = self.options.credential().is_some() && agreement.mechanism.is_none();
        if anonymous && agreement.server_type != ServerType::RsArbiter {
            let what = || format!("{connection} of {id} to a {}", agreement.server_type);
            self.checks.fail("whoever has a name logs in", what);
        }
        let made = Connection { frames, max_wire_version, anonymous, dead, operation, used };
        self.connections.insert(stream, made);
        self.uses.insert(stream, Use::Pooled(id));
        let outcome = Ok(Established { connection: stream, service: agreement.service });
        self.tell_pool(network, id, Input::Established { connection, outcome });
    }
}

impl Establishing {
    pub(super) const fn new(generation: Generation) -> Self {
        Self { generation, service: None, max_wire_version: 0, stream: None }
    }

    pub(super) const fn failure(self, error: OperationError) -> OperationFailure {
        let Self { generation, service, max_wire_version, .. } = self;
        OperationFailure { generation, service, max_wire_version, error }
    }
}
