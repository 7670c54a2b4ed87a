//! A topology in virtual time, for tests and measurements.
//!
//! Inputs go in when the test says so. What comes out is noted: which streams there are and what
//! was asked over them, which servers there are and the commands to their pools; and it is checked
//! for what every runtime relies on.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bson::oid::ObjectId;
use bson::{RawDocument, RawDocumentBuf};

use crate::config::{Options, ServerAddress};
use crate::failure::Failure;
use crate::id::{Generation, LinkId, ServerId};
use crate::machine::{Lawful, Machine};
use crate::pool::Command;
use crate::time::{Instant, Time};
use crate::topology::{Action, Input, Topology};
use crate::wire::{Flags, Frames, ReplyFlags, op_code, write_op_msg, write_op_reply};

/// A topology in virtual time, the far ends of its streams, and its servers.
///
/// `M` is the topology or a machine around it.
///
/// ```
/// use bson::rawdoc;
/// use sdam_core::config::Options;
/// use sdam_core::harness::VirtualTopology;
/// use sdam_core::time::Instant;
///
/// let mut topology = VirtualTopology::open(Options::parse("mongodb://a")?, 1);
/// topology.pass(Instant::from_millis(2));
/// let link = topology.last_link("a:27017").expect("it is being opened");
/// topology.accept(link);
/// topology.reply(link, &rawdoc! { "ok": 1, "isWritablePrimary": true, "maxWireVersion": 17 });
/// let description = topology.machine.get().description();
/// assert_eq!(description.servers().iter().next().unwrap().server_type.to_string(), "Standalone");
/// # Ok::<(), sdam_core::config::OptionsError>(())
/// ```
#[derive(Clone, Debug)]
pub struct VirtualTopology<M = Lawful<Topology>> {
    /// The topology, or a machine around it.
    pub machine: M,
    /// The actions of the machine that were not [taken](Self::take_actions) yet.
    pub actions: Vec<Action>,
    /// The number of calls of the machine.
    pub calls: usize,
    /// The number of actions that are noted.
    noted: usize,
    now: Instant,
    clock: Instant,
    peers: BTreeMap<LinkId, Peer>,
    /// The streams that are not closed, of which there are few among all that there have been.
    connected: BTreeSet<LinkId>,
    servers: BTreeMap<ServerId, Member>,
}

/// The far end of a stream.
#[derive(Clone, Debug)]
pub struct Peer {
    /// The server that was to be connected to.
    pub address: ServerAddress,
    /// The state of the stream.
    pub state: StreamState,
    /// The last request, answered or not.
    pub request: Option<Request>,
    /// True if the last request is still to be answered.
    pub is_asked: bool,
    /// The message that the next reply is one to.
    answers: i32,
    /// The number of replies that were made.
    replies: i32,
}

/// The state of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StreamState {
    /// It is being opened.
    Opening,
    /// It is up.
    Open,
    /// One of both sides has closed it.
    Closed,
}

/// A request of a monitor.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Request {
    /// The number of the message.
    pub number: i32,
    /// The opcode of the message.
    pub op_code: i32,
    /// The command in it.
    pub command: RawDocumentBuf,
}

/// A server that has joined, and the commands to its pool.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Member {
    /// The address that the server advertises.
    pub address: ServerAddress,
    /// The generation that connections belong to.
    pub generation: Generation,
    /// The generations of the services behind a load balancer that are not the first.
    pub services: BTreeMap<ObjectId, Generation>,
    /// True if the pool may be used.
    pub is_ready: bool,
    /// True if the server has left.
    pub has_left: bool,
}

impl VirtualTopology {
    /// Begins at time zero with these options.
    pub fn open(options: Options, seed: u64) -> Self {
        let mut new = Self::new(Lawful::new(Topology::new(Arc::new(options), seed)));
        new.pass(Instant::ZERO);
        new
    }
}

impl<M> VirtualTopology<M>
where
    M: for<'a> Machine<Input<'a> = Input<'a>, Action = Action>,
{
    /// Begins at time zero with a new machine, which is due at once.
    pub fn new(machine: M) -> Self {
        Self {
            machine,
            actions: Vec::new(),
            calls: 0,
            noted: 0,
            now: Instant::ZERO,
            clock: Instant::ZERO,
            peers: BTreeMap::new(),
            connected: BTreeSet::new(),
            servers: BTreeMap::new(),
        }
    }

    /// Returns the virtual time: that up to which deadlines are judged.
    pub const fn now(&self) -> Instant {
        self.now
    }

    /// Sets what the clock shows, while no more deadlines are judged: as after the process was
    /// stopped.
    pub fn set_clock(&mut self, clock: Instant) {
        self.clock = clock;
    }

    /// Lets time pass until then; every deadline on the way is met exactly.
    pub fn pass(&mut self, until: Instant) {
        while self.pass_to_deadline(until) {}
        self.now = until.max(self.now);
    }

    /// Lets time pass until the next deadline; returns whether there is one until then.
    pub fn pass_to_deadline(&mut self, until: Instant) -> bool {
        let due = self.machine.deadline().filter(|due| *due <= until);
        due.inspect(|due| self.ring(*due)).is_some()
    }

    /// Rings at that time, however much was due before without a tick.
    pub fn ring(&mut self, at: Instant) {
        self.now = at.max(self.now);
        self.machine.tick(self.time(), &mut self.actions);
        self.note();
    }

    /// Passes an input to the machine, now.
    ///
    /// # Panics
    ///
    /// Panics if the machine uses a stream that is not open, or a server that is no member; if it
    /// lets a server leave that it is connected to; and if it does not count a pool's generations
    /// one by one, or makes a pool ready twice.
    pub fn input(&mut self, input: Input<'_>) {
        match &input {
            Input::Opened { link } => self.set_state(*link, StreamState::Open),
            Input::Closed { link, .. } => self.set_state(*link, StreamState::Closed),
            _ => {}
        }
        self.machine.handle(self.time(), input, &mut self.actions);
        self.note();
    }

    /// Accepts a stream that is being opened.
    pub fn accept(&mut self, link: LinkId) {
        self.input(Input::Opened { link });
    }

    /// Brings bytes over a stream.
    pub fn receive(&mut self, link: LinkId, bytes: &[u8]) {
        self.input(Input::Received { link, bytes });
    }

    /// Ends a stream, or refuses it.
    pub fn close(&mut self, link: LinkId, failure: Failure) {
        self.input(Input::Closed { link, failure });
    }

    /// Answers the last request over a stream.
    ///
    /// # Panics
    ///
    /// Panics if there has never been such a stream.
    pub fn reply(&mut self, link: LinkId, document: &RawDocument) {
        let bytes = self.answer(link, document, Flags::NONE);
        self.receive(link, &bytes);
    }

    /// Returns the bytes of a reply to the last request over a stream, or to the last reply with
    /// [`Flags::MORE_TO_COME`]. They are still to be [brought](Self::receive).
    ///
    /// # Panics
    ///
    /// Panics if there has never been such a stream.
    pub fn answer(&mut self, link: LinkId, document: &RawDocument, flags: Flags) -> Vec<u8> {
        let peer = self.peers.get_mut(&link).expect("a stream that was asked for");
        peer.replies += 1;
        let (number, mut bytes) = (1000 + peer.replies, Vec::new());
        match &peer.request {
            Some(Request { op_code: op_code::OP_QUERY, .. }) => {
                let none = ReplyFlags::NONE;
                write_op_reply(&mut bytes, number, peer.answers, none, document);
            }
            _ => write_op_msg(&mut bytes, number, peer.answers, flags, document),
        }
        peer.is_asked = flags.contains(Flags::MORE_TO_COME);
        if peer.is_asked {
            peer.answers = number;
        }
        bytes
    }

    /// Returns the far end of a stream.
    ///
    /// # Panics
    ///
    /// Panics if there has never been such a stream.
    pub fn peer(&self, link: LinkId) -> &Peer {
        &self.peers[&link]
    }

    /// Returns the far ends of all streams that there have ever been.
    pub fn peers(&self) -> impl DoubleEndedIterator<Item = (LinkId, &Peer)> {
        self.peers.iter().map(|(link, peer)| (*link, peer))
    }

    /// Returns the far ends of the streams that are not closed.
    pub fn connected(&self) -> impl DoubleEndedIterator<Item = (LinkId, &Peer)> {
        self.connected.iter().map(|link| (*link, &self.peers[link]))
    }

    /// Returns the stream to a server (`host:port`) that was asked for last, if one was.
    pub fn last_link(&self, address: &str) -> Option<LinkId> {
        self.peers().rfind(|(_, peer)| peer.address.to_string() == address).map(|(link, _)| link)
    }

    /// Returns a server that has joined, if it has; it may have left since.
    pub fn server(&self, id: ServerId) -> Option<&Member> {
        self.servers.get(&id)
    }

    /// Returns all servers that have ever joined.
    pub fn servers(&self) -> impl Iterator<Item = (ServerId, &Member)> {
        self.servers.iter().map(|(id, member)| (*id, member))
    }

    /// Takes the actions since the last call.
    pub fn take_actions(&mut self) -> Vec<Action> {
        self.noted = 0;
        std::mem::take(&mut self.actions)
    }

    fn time(&self) -> Time {
        Time { judged: self.now, clock: self.clock.max(self.now) }
    }

    fn set_state(&mut self, link: LinkId, state: StreamState) {
        if let Some(peer) = self.peers.get_mut(&link).filter(|it| it.state != StreamState::Closed) {
            peer.state = state;
        }
        if state == StreamState::Closed {
            self.connected.remove(&link);
        }
    }

    fn note(&mut self) {
        self.calls += 1;
        for action in &self.actions[self.noted..] {
            match action {
                Action::Open { link, address } => {
                    let peer = Peer::new(address.clone());
                    assert!(self.peers.insert(*link, peer).is_none(), "{link} is opened twice");
                    self.connected.insert(*link);
                }
                Action::Send { link, bytes } => {
                    let peer = self.peers.get_mut(link).expect("a stream that was asked for");
                    assert_eq!(peer.state, StreamState::Open, "{link} is used when it is not up");
                    peer.ask(request(bytes).expect("a whole request"));
                }
                Action::Close { link } => {
                    let peer = self.peers.get_mut(link).expect("a stream that was asked for");
                    peer.state = StreamState::Closed;
                    assert!(self.connected.remove(link), "{link} is closed twice");
                }
                Action::Join { server, address } => {
                    let member = Member::new(address.clone());
                    assert!(self.servers.insert(*server, member).is_none(), "{server} joins twice");
                }
                Action::Leave { server } => {
                    let member = self.servers.get_mut(server).expect("a member");
                    assert!(!member.has_left, "{server} leaves twice");
                    member.has_left = true;
                    let first = LinkId { server: *server, number: 0 };
                    let own = self.connected.range(first..).next();
                    let is_left = own.is_none_or(|link| link.server() != *server);
                    assert!(is_left, "{server} leaves while it is connected to");
                }
                Action::Pool { server, command } => {
                    let member = self.servers.get_mut(server).filter(|it| !it.has_left);
                    member.expect("a member").apply(*server, command);
                }
                Action::Publish { .. }
                | Action::Wake { .. }
                | Action::Resolve { .. }
                | Action::Emit { .. } => {}
            }
        }
        self.noted = self.actions.len();
    }
}

impl Peer {
    /// Returns the number of the message that the next reply is one to: the last request, or the
    /// last of a stream of replies.
    pub const fn answers(&self) -> i32 {
        self.answers
    }

    fn new(address: ServerAddress) -> Self {
        let state = StreamState::Opening;
        Self { address, state, request: None, is_asked: false, answers: 0, replies: 0 }
    }

    fn ask(&mut self, request: Request) {
        (self.answers, self.is_asked) = (request.number, true);
        self.request = Some(request);
    }
}

impl Member {
    /// Returns the generation of connections to a service, or else to the server.
    pub fn generation_of(&self, service: Option<&ObjectId>) -> Generation {
        match service {
            Some(service) => self.services.get(service).copied().unwrap_or_default(),
            None => self.generation,
        }
    }

    fn new(address: ServerAddress) -> Self {
        let (generation, services) = (Generation::default(), BTreeMap::new());
        Self { address, generation, services, is_ready: false, has_left: false }
    }

    fn apply(&mut self, id: ServerId, command: &Command) {
        match command {
            Command::Ready => {
                assert!(!self.is_ready, "the pool of {id} becomes ready twice");
                self.is_ready = true;
            }
            Command::Clear { to, .. } => {
                let from = std::mem::replace(&mut self.generation, *to);
                assert_eq!(to.number(), from.number() + 1, "generations of {id} count");
                self.is_ready = false;
            }
            Command::ClearService { service, to, .. } => {
                let from = self.services.insert(*service, *to).unwrap_or_default();
                // From the first again if the service was forgotten, because there are too many.
                let counts = [from.number() + 1, 1].contains(&to.number());
                assert!(counts, "generations of {service} behind {id} count, {from} to {to}");
            }
        }
    }
}

/// Reads a request of a monitor; `None` if the bytes are no whole request.
pub fn request(bytes: &[u8]) -> Option<Request> {
    let mut frames = Frames::new();
    frames.extend(bytes);
    let message = frames.next().ok()??;
    let (number, op_code) = (message.header().request_id, message.header().op_code);
    let command = match op_code {
        op_code::OP_QUERY => message.op_query().ok()?.query.to_owned(),
        _ => message.op_msg().ok()?.body.to_owned(),
    };
    Some(Request { number, op_code, command })
}
