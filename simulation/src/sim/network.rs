//! The network between clients and members: streams that are slow, torn, silent, or broken.
//!
//! Packets of one stream and direction keep their order, as TCP sees to it; those of different
//! streams overtake each other. What is lost is sent again, so that a stream either loses nothing
//! or ends, or never says anything any more.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use sdam_core::time::Instant;
use sdam_core::wire::op_code;

pub(super) use sdam_cluster::ConnectionId as StreamId;

use super::flood::flood_after;
use super::path::{MAX_RETRANSMISSION, Path, Trouble};
use super::queue::Queue;
use super::random::Random;
use super::world::Event;

/// An end of a stream: where a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Client,
    Server,
}

/// A packet on a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Packet {
    /// The client wants a connection.
    Syn,
    /// The connection is accepted.
    SynAck,
    /// Nothing accepts it.
    Refused,
    /// The name has no address; no packet at all, but an answer.
    NotResolved,
    Bytes(Vec<u8>),
    /// The sender has closed its end.
    Fin,
}

#[derive(Debug)]
struct Stream {
    client: usize,
    /// The member that was dialled.
    member: usize,
    /// The member that is there.
    host: usize,
    /// The time when the last packet to either side arrives.
    until: [Instant; 2],
    /// The packets that wait for the network to work again.
    held: [VecDeque<Packet>; 2],
    client_open: bool,
    server_open: bool,
    /// Nothing arrives any more, without notice.
    dead: bool,
    /// True if a monitor has opened it.
    monitors: bool,
    random: Random,
}

/// All streams, the paths they take, and all that is going to happen.
#[derive(Debug)]
pub(super) struct Network {
    pub(super) now: Instant,
    pub(super) events: Queue<Event>,
    paths: Vec<Vec<Path>>,
    streams: BTreeMap<StreamId, Stream>,
    opened: u64,
    /// The random numbers of each client's streams: a client that is left out takes nothing from
    /// others.
    randoms: Vec<Random>,
}

/// The flag by which a message says that another one follows (OP_MSG, "moreToCome").
pub(super) const MORE_TO_COME: u8 = 1 << 1;

/// Sets that flag.
fn announcing(mut message: Vec<u8>) -> Vec<u8> {
    let is_op_msg = message.get(12..16) == Some(&op_code::OP_MSG.to_le_bytes()[..]);
    if let Some(flags) = message.get_mut(16).filter(|_| is_op_msg) {
        *flags |= MORE_TO_COME;
    }
    message
}

impl Network {
    /// Creates the paths between all of them; without `distances`, those are drawn.
    pub(super) fn new(
        clients: usize,
        members: usize,
        distances: &[Duration],
        mut random: Random,
    ) -> Self {
        let mut paths = || {
            let paths = (0..members).map(|member| (distances.get(member), Path::new(&mut random)));
            paths.map(|(distance, path)| path.at(distance.copied())).collect()
        };
        Self {
            now: Instant::ZERO,
            events: Queue::new(),
            paths: (0..clients).map(|_| paths()).collect(),
            streams: BTreeMap::new(),
            opened: 0,
            randoms: (0..clients).map(|_| random.fork()).collect(),
        }
    }

    pub(super) fn plan(&mut self, delay: Duration, event: Event) {
        self.events.plan(self.now + delay, event);
    }

    /// Adds a client on the machine of another one.
    pub(super) fn fork(&mut self, parent: usize, random: Random) {
        self.paths.push(self.paths[parent].clone());
        self.randoms.push(random);
    }

    /// Adds a client on a machine of its own, with a path to each of so many members.
    /// Without a distance, those are drawn.
    pub(super) fn join(&mut self, members: usize, distance: Option<Duration>, mut random: Random) {
        let paths = (0..members).map(|_| Path::new(&mut random).at(distance));
        self.paths.push(paths.collect());
        self.randoms.push(random);
    }

    /// Returns the shortest time from a client to each member.
    pub(super) fn latencies(&self, client: usize) -> Vec<Duration> {
        self.paths[client].iter().map(Path::latency).collect()
    }

    pub(super) fn path(&self, client: usize, member: usize) -> &Path {
        &self.paths[client][member]
    }

    /// A client dials a member.
    pub(super) fn open(&mut self, client: usize, member: usize) -> StreamId {
        self.opened += 1;
        let (id, path) = (StreamId(self.opened), &self.paths[client][member]);
        let host = if path.has(Trouble::Misdirected) { path.detour } else { member };
        let unresolvable = path.has(Trouble::Unresolvable);
        let stream = Stream {
            client,
            member,
            host,
            until: [self.now; 2],
            held: [VecDeque::new(), VecDeque::new()],
            client_open: true,
            server_open: false,
            dead: false,
            monitors: false,
            random: self.randoms[client].fork(),
        };
        self.streams.insert(id, stream);
        match unresolvable {
            true => self.travel(id, Side::Client, Packet::NotResolved, Duration::ZERO),
            false => self.send(id, Side::Server, Packet::Syn),
        }
        id
    }

    /// A monitor has opened a stream.
    pub(super) fn monitors(&mut self, id: StreamId) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.monitors = true;
        }
    }

    /// Sends a packet, or keeps it while the network is silent.
    pub(super) fn send(&mut self, id: StreamId, to: Side, packet: Packet) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let open = match to {
            Side::Client => stream.client_open,
            Side::Server => stream.client_open || packet == Packet::Fin,
        };
        // That a client is gone gets through at last, so that servers forget it.
        if !open || stream.dead && (to, &packet) != (Side::Server, &Packet::Fin) {
            return;
        }
        let silent = match to {
            Side::Client => Trouble::SilentToClient,
            Side::Server => Trouble::SilentToServer,
        };
        let path = &self.paths[stream.client][stream.member];
        if path.has(silent) || !stream.held[to as usize].is_empty() {
            stream.held[to as usize].push_back(packet);
        } else {
            let answers = to == Side::Client && matches!(packet, Packet::Bytes(_));
            let floods = answers && path.has(Trouble::Flooding) && stream.monitors;
            let ends = answers && path.has(Trouble::OneReply);
            let packet = match packet {
                Packet::Bytes(reply) if answers && path.has(Trouble::Announced) => {
                    Packet::Bytes(announcing(reply))
                }
                packet => packet,
            };
            let flood = if floods { flood_after(&packet, &mut stream.random) } else { Vec::new() };
            let is_flood = !flood.is_empty();
            self.travel(id, to, packet, Duration::ZERO);
            for (bytes, gap) in flood {
                self.travel(id, to, Packet::Bytes(bytes), gap);
            }
            if ends || is_flood {
                self.reset_all(vec![id]);
            }
        }
    }

    fn travel(&mut self, id: StreamId, to: Side, packet: Packet, wait: Duration) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let path = &self.paths[stream.client][stream.member];
        let until = &mut stream.until[to as usize];
        *until = (*until).max(self.now + wait + path.delay(&mut stream.random));
        let Packet::Bytes(bytes) = packet else {
            self.events.plan(*until, Event::Arrival { stream: id, to, packet });
            return;
        };
        let pieces = path.pieces(bytes.len(), &mut stream.random);
        if pieces.len() == 1 {
            let packet = Packet::Bytes(bytes);
            self.events.plan(*until, Event::Arrival { stream: id, to, packet });
            return;
        }
        let mut rest = bytes.as_slice();
        for (len, gap) in pieces {
            *until = *until + gap;
            let (piece, left) = rest.split_at(len);
            rest = left;
            let packet = Packet::Bytes(piece.to_vec());
            self.events.plan(*until, Event::Arrival { stream: id, to, packet });
        }
    }

    /// Returns who has opened a stream, and to which member.
    pub(super) fn dialled(&self, id: StreamId) -> Option<(usize, usize)> {
        self.streams.get(&id).map(|stream| (stream.client, stream.member))
    }

    /// Returns the client that a packet on this stream reaches.
    pub(super) fn reached_client(&self, id: StreamId) -> Option<usize> {
        let stream = self.streams.get(&id)?;
        (stream.client_open && !stream.dead).then_some(stream.client)
    }

    /// Returns the member that a packet on this stream reaches, and whether it has accepted it.
    pub(super) fn reached_member(&self, id: StreamId, packet: &Packet) -> Option<(usize, bool)> {
        let stream = self.streams.get(&id)?;
        let arrives = !stream.dead || *packet == Packet::Fin;
        arrives.then_some((stream.host, stream.server_open))
    }

    /// Returns whether a stream's connection is refused on its way.
    pub(super) fn refuses(&self, id: StreamId) -> bool {
        let stream = self.streams.get(&id);
        stream.is_some_and(|it| self.paths[it.client][it.member].has(Trouble::Refused))
    }

    /// A member accepts a stream; returns whether its client still wants it.
    pub(super) fn accept(&mut self, id: StreamId) -> bool {
        let Some(stream) = self.streams.get_mut(&id).filter(|stream| stream.client_open) else {
            self.streams.remove(&id);
            return false;
        };
        stream.server_open = true;
        true
    }

    /// A member learns that the client is gone, or the stream is broken.
    pub(super) fn hung_up(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        stream.server_open = false;
        if !stream.client_open {
            self.streams.remove(&id);
        }
    }

    /// The client closes its end.
    pub(super) fn close(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        stream.client_open = false;
        stream.held[Side::Client as usize].clear();
        if stream.dead {
            self.found_ended(id);
        }
        self.send(id, Side::Server, Packet::Fin);
    }

    /// The client finds out that a stream is over: dead, or closed by the member long ago.
    pub(super) fn found_ended(&mut self, id: StreamId) {
        if let Some(stream) = self.streams.get(&id) {
            self.paths[stream.client][stream.member].alive_since = self.now;
        }
    }

    /// The member closes its end.
    pub(super) fn close_server(&mut self, id: StreamId) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        stream.server_open = false;
        match stream.client_open {
            true => self.send(id, Side::Client, Packet::Fin),
            false => drop(self.streams.remove(&id)),
        }
    }

    fn between(&self, client: usize, member: usize) -> Vec<StreamId> {
        let all = self.streams.iter();
        all.filter(|(_, stream)| (stream.client, stream.member) == (client, member))
            .map(|(id, _)| *id)
            .collect()
    }

    /// Both ends of every stream of a path learn that it is broken.
    pub(super) fn reset(&mut self, client: usize, member: usize) {
        self.reset_all(self.between(client, member));
        self.disturb(client, member);
    }

    /// Streams that a name no longer leads to end, or they would lead astray for ever.
    fn reset_diverted(&mut self, client: usize, member: usize) {
        let mut diverted = self.between(client, member);
        diverted.retain(|id| self.streams[id].host != member);
        self.reset_all(diverted);
        self.disturb(client, member);
    }

    fn reset_all(&mut self, streams: Vec<StreamId>) {
        for stream in streams {
            self.send(stream, Side::Client, Packet::Fin);
            let arrival = Event::Arrival { stream, to: Side::Server, packet: Packet::Fin };
            self.events.plan(self.now, arrival);
        }
    }

    /// Every stream of a path falls silent for ever, and new ones work.
    pub(super) fn deaden(&mut self, client: usize, member: usize) {
        for id in self.between(client, member) {
            if let Some(stream) = self.streams.get_mut(&id) {
                stream.dead = true;
                stream.held[Side::Client as usize].clear();
                stream.held[Side::Server as usize].retain(|packet| *packet == Packet::Fin);
            }
        }
        self.disturb(client, member);
    }

    pub(super) fn begin(&mut self, client: usize, member: usize, trouble: Trouble) {
        self.paths[client][member].begin(trouble);
    }

    pub(super) fn divert(&mut self, client: usize, member: usize, detour: usize) {
        self.paths[client][member].detour = detour;
        self.paths[client][member].misled_until(self.now);
        self.begin(client, member, Trouble::Misdirected);
    }

    /// A trouble ends; what was held is sent again.
    pub(super) fn end(&mut self, client: usize, member: usize, trouble: Trouble) {
        let over = self.paths[client][member].end(trouble);
        if trouble == Trouble::Misdirected {
            self.paths[client][member].misled_until(self.now);
        }
        let to = match trouble {
            Trouble::SilentToServer if over => Side::Server,
            Trouble::SilentToClient if over => Side::Client,
            Trouble::Misdirected if over => return self.reset_diverted(client, member),
            _ => return self.disturb(client, member),
        };
        for id in self.between(client, member) {
            let stream = self.streams.get_mut(&id).expect("it was just there");
            let wait = stream.random.between(Duration::ZERO, MAX_RETRANSMISSION);
            for packet in std::mem::take(&mut stream.held[to as usize]) {
                self.travel(id, to, packet, wait);
            }
        }
        self.disturb(client, member);
    }

    /// Counts all as disturbed until what travels now has arrived.
    pub(super) fn disturb(&mut self, client: usize, member: usize) {
        let streams = self.streams.values();
        let of_path = streams.filter(|it| (it.client, it.member) == (client, member));
        let last = of_path.flat_map(|stream| stream.until).max();
        let until = last.unwrap_or(self.now).max(self.now);
        self.paths[client][member].disturbed_until(until);
    }

    /// Returns how many streams there are.
    pub(super) fn len(&self) -> usize {
        self.streams.len()
    }

    /// Returns whether nothing gets from a client to any member and back.
    pub(super) fn is_cut_off(&self, client: usize) -> bool {
        let is_silent =
            |it: &Path| it.has(Trouble::SilentToServer) || it.has(Trouble::SilentToClient);
        self.paths[client].iter().all(is_silent)
    }

    /// Returns since when nothing has been wrong with any path of a client, `None` if something is.
    pub(super) fn calm_since(&self, client: usize) -> Option<Instant> {
        let paths = self.paths[client].iter();
        paths.map(Path::calm_since).try_fold(Instant::ZERO, |latest, calm| Some(latest.max(calm?)))
    }
}
