//! A fixture for the machine: a topology in virtual time, and servers that answer when the test
//! says so.
//!
//! Tests read as transcripts. [`Fixture::log`] returns what the machine did since the last call,
//! one short line an action:
//!
//! ```text
//! open a.0                     a stream was asked for: address, and the link's number
//! send a.0 isMaster            a command was sent
//! close a.0                    a stream was dropped
//! publish Single a=Standalone  a view was published
//! started a                    events, in few words
//! ```

mod lines;

use std::sync::Arc;
use std::time::Duration;

use bson::oid::ObjectId;
use bson::{RawDocument, RawDocumentBuf, cstr, rawdoc};
use sdam_core::config::Options;
use sdam_core::description::{ServerDescription, TopologyDescription};
use sdam_core::failure::{Cause, Failure, Stage as Step};
use sdam_core::harness::{Peer, StreamState, VirtualTopology, request};
use sdam_core::id::{LinkId, ServerId};
use sdam_core::machine::Lawful;
use sdam_core::time::Instant;
use sdam_core::topology::{Action, Input, Topology};
use sdam_core::wire::Flags;

use lines::{command_line, event_line, number, summary};

/// A topology in virtual time, whose streams have names.
pub(crate) struct Fixture {
    pub(crate) topology: VirtualTopology,
    logged: usize,
}

impl Fixture {
    /// Begins at time zero with the deployment that `uri` names.
    pub(crate) fn new(uri: &str) -> Self {
        Self::with(Options::parse(uri).unwrap())
    }

    /// Begins at time zero with these options.
    pub(crate) fn with(options: Options) -> Self {
        Self { topology: VirtualTopology::open(options, 1), logged: 0 }
    }

    /// Lets time pass until `millis` after the beginning; every deadline on the way is met exactly.
    pub(crate) fn at(&mut self, millis: u64) -> &mut Self {
        let (now, until) = (self.topology.now(), Instant::from_millis(millis));
        assert!(now <= until, "the stage is at {now:?} already");
        self.topology.pass(until);
        self
    }

    /// Hands the machine an input now.
    pub(crate) fn input(&mut self, input: Input<'_>) -> &mut Self {
        self.topology.input(input);
        self
    }

    /// The stream of that name (`a.0`: the first one to host a) is up.
    pub(crate) fn opened(&mut self, name: &str) -> &mut Self {
        self.topology.accept(self.link(name));
        self
    }

    /// The stream has ended: refused while it was being opened, closed by the server after that.
    pub(crate) fn closed(&mut self, name: &str) -> &mut Self {
        let failure = match self.is_opening(name) {
            true => Failure::new(Step::Connect, Cause::Refused, "connection refused"),
            false => Failure::new(Step::Hello, Cause::Closed, "the server closed the connection"),
        };
        self.topology.close(self.link(name), failure);
        self
    }

    /// Answers the last command on that stream.
    pub(crate) fn reply(&mut self, name: &str, document: &RawDocument) -> &mut Self {
        self.topology.reply(self.link(name), document);
        self
    }

    /// Answers the last command on that stream, or its last answer, with more to come.
    pub(crate) fn stream(&mut self, name: &str, document: &RawDocument) -> &mut Self {
        let bytes = self.answer(name, document, Flags::MORE_TO_COME);
        self.bytes(name, &bytes)
    }

    /// Keeps nothing but the machine.
    pub(crate) fn into_topology(self) -> Lawful<Topology> {
        self.topology.machine
    }

    /// Returns whether the stream is still being opened.
    pub(crate) fn is_opening(&self, name: &str) -> bool {
        self.peer(name).state == StreamState::Opening
    }

    /// Opens the stream and answers its handshake.
    pub(crate) fn greet(&mut self, name: &str, document: &RawDocument) -> &mut Self {
        self.opened(name).reply(name, document)
    }

    /// Returns the bytes that [`reply`](Self::reply) or [`stream`](Self::stream) would send.
    pub(crate) fn answer(&mut self, name: &str, document: &RawDocument, flags: Flags) -> Vec<u8> {
        self.topology.answer(self.link(name), document, flags)
    }

    /// Hands the machine bytes on that stream.
    pub(crate) fn bytes(&mut self, name: &str, bytes: &[u8]) -> &mut Self {
        self.topology.receive(self.link(name), bytes);
        self
    }

    /// Returns the last command that was sent over that stream.
    pub(crate) fn command(&self, name: &str) -> &RawDocument {
        &self.peer(name).request.as_ref().expect("a command").command
    }

    /// Returns the opcode of the last message that was sent over that stream.
    pub(crate) fn op_code(&self, name: &str) -> i32 {
        self.peer(name).request.as_ref().expect("a message").op_code
    }

    /// Returns the names of the streams that are not closed.
    pub(crate) fn links(&self) -> Vec<String> {
        self.topology.connected().map(|(link, _)| self.name(link)).collect()
    }

    /// Returns whether there is a stream of that name that is not closed.
    pub(crate) fn has_link(&self, name: &str) -> bool {
        self.links().iter().any(|link| link == name)
    }

    pub(crate) fn link(&self, name: &str) -> LinkId {
        let found = self.topology.connected().find(|(link, _)| self.name(*link) == name);
        found.unwrap_or_else(|| panic!("no link {name}, only {:?}", self.links())).0
    }

    fn peer(&self, name: &str) -> &Peer {
        self.topology.peer(self.link(name))
    }

    fn name(&self, link: LinkId) -> String {
        format!("{}.{}", self.topology.peer(link).address.host(), number(link))
    }

    /// Returns what is known now.
    pub(crate) fn view(&self) -> Arc<TopologyDescription> {
        Arc::clone(self.topology.machine.get().description())
    }

    /// Returns what is known of the server at `host` on the default port.
    pub(crate) fn server(&self, host: &str) -> Arc<ServerDescription> {
        let address = host.parse().unwrap();
        Arc::clone(self.view().server(&address).unwrap_or_else(|| panic!("{host} is unknown")))
    }

    /// Returns the view in a line, as in `Single a=Standalone`.
    pub(crate) fn summary(&self) -> String {
        summary(&self.view())
    }

    /// Returns a line for each action since the last call, those for pools left out.
    pub(crate) fn log(&mut self) -> Vec<String> {
        self.all().into_iter().filter(|line| !line.starts_with("pool ")).collect()
    }

    /// Returns a line for each event since the last call.
    pub(crate) fn events(&mut self) -> Vec<String> {
        let is_event = |line: &String| {
            !["open ", "send ", "close ", "publish "].iter().any(|prefix| line.starts_with(prefix))
        };
        self.log().into_iter().filter(is_event).collect()
    }

    /// Returns a line for each action since the last call that is about pools and views.
    pub(crate) fn pools(&mut self) -> Vec<String> {
        let wanted = |line: &String| line.starts_with("pool ") || line.starts_with("publish ");
        self.all().into_iter().filter(wanted).collect()
    }

    /// Returns a line for each action since the last call.
    fn all(&mut self) -> Vec<String> {
        let actions = &self.topology.actions;
        let lines = actions[self.logged..].iter().map(|action| self.line(action)).collect();
        self.logged = actions.len();
        lines
    }

    /// Forgets what was logged so far.
    pub(crate) fn quiet(&mut self) -> &mut Self {
        self.logged = self.topology.actions.len();
        self
    }

    fn host(&self, server: ServerId) -> &str {
        self.topology.server(server).expect("it has joined").address.host()
    }

    fn line(&self, action: &Action) -> String {
        match action {
            Action::Open { link, .. } => format!("open {}", self.name(*link)),
            Action::Send { link, bytes } => {
                let command = request(bytes).expect("a whole request").command;
                let name = command.iter().next().unwrap().unwrap().0.to_string();
                let awaits = command.get("maxAwaitTimeMS").unwrap().is_some();
                let awaitable = if awaits { "awaitable " } else { "" };
                format!("send {} {awaitable}{name}", self.name(*link))
            }
            Action::Close { link } => format!("close {}", self.name(*link)),
            Action::Publish { snapshot } => format!("publish {}", summary(snapshot.description())),
            Action::Wake { waiter, outcome: Ok(()) } => format!("wake {}", waiter.0),
            Action::Wake { waiter, outcome: Err(error) } => format!("refuse {}: {error}", waiter.0),
            Action::Join { address, .. } => format!("pool {} joins", address.host()),
            Action::Leave { server } => format!("pool {} leaves", self.host(*server)),
            Action::Pool { server, command } => {
                format!("pool {} {}", self.host(*server), command_line(command))
            }
            Action::Resolve { question } => format!("resolve {}", question.name),
            Action::Emit { event } => event_line(&event.kind),
        }
    }

    /// Frees what was done so far, so that it can go on for ever.
    pub(crate) fn forget(&mut self) {
        self.topology.take_actions();
        self.logged = 0;
    }
}

/// A process of a server; its topologyVersion is made of this and a counter.
pub(crate) const PROCESS: [u8; 12] = [7; 12];

/// The topologyVersion of a server that has seen `counter` changes.
pub(crate) fn version(counter: i64) -> RawDocumentBuf {
    rawdoc! { "processId": ObjectId::from_bytes(PROCESS), "counter": counter }
}

/// Returns the fields that every reply has: `ok`, the wire version of 6.0, and `helloOk`.
pub(crate) fn ok() -> RawDocumentBuf {
    rawdoc! { "ok": 1.0, "helloOk": true, "minWireVersion": 0, "maxWireVersion": 17 }
}

/// A standalone mongod that cannot stream.
pub(crate) fn standalone() -> RawDocumentBuf {
    let mut reply = ok();
    reply.append(cstr!("isWritablePrimary"), true);
    reply
}

/// A mongos.
pub(crate) fn mongos() -> RawDocumentBuf {
    let mut reply = ok();
    reply.append(cstr!("msg"), "isdbgrid");
    reply
}

/// The reply of a member of replica set rs with those hosts.
pub(crate) fn member(me: &str, hosts: &[&str]) -> RawDocumentBuf {
    let mut list = bson::RawArrayBuf::new();
    hosts.iter().for_each(|host| list.push(format!("{host}:27017")));
    let mut reply = ok();
    reply.append(cstr!("setName"), "rs");
    reply.append(cstr!("setVersion"), 1);
    reply.append(cstr!("me"), format!("{me}:27017"));
    reply.append(cstr!("hosts"), list);
    reply
}

/// A primary of replica set rs, elected in the given term.
pub(crate) fn primary(me: &str, hosts: &[&str], term: u8) -> RawDocumentBuf {
    let mut reply = member(me, hosts);
    reply.append(cstr!("isWritablePrimary"), true);
    reply.append(cstr!("electionId"), ObjectId::from_bytes([term; 12]));
    reply
}

/// A secondary of replica set rs.
pub(crate) fn secondary(me: &str, hosts: &[&str]) -> RawDocumentBuf {
    let mut reply = member(me, hosts);
    reply.append(cstr!("isWritablePrimary"), false);
    reply.append(cstr!("secondary"), true);
    reply
}

/// The same reply with a topologyVersion, so from a server that can stream.
pub(crate) fn fresh(mut reply: RawDocumentBuf, counter: i64) -> RawDocumentBuf {
    reply.append(cstr!("topologyVersion"), version(counter));
    reply
}

/// Milliseconds.
pub(crate) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}
