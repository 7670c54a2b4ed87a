//! A stage for the machine: a topology in virtual time, and servers that answer when told to.
//!
//! Tests read as transcripts. [`Stage::log`] returns what the machine did since the last call, one
//! short line an action:
//!
//! ```text
//! open a.0                     a stream was asked for: address, and the link's number
//! send a.0 isMaster            a command was sent
//! close a.0                    a stream was dropped
//! publish Single a=Standalone  a view was published
//! started a                    events, in few words
//! ```

mod lines;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bson::oid::ObjectId;
use bson::{RawDocument, RawDocumentBuf, cstr, rawdoc};
use sdam_core::config::Options;
use sdam_core::description::{ServerDescription, TopologyDescription};
use sdam_core::failure::{Cause, Failure, Stage as Step};
use sdam_core::id::{LinkId, ServerId};
use sdam_core::machine::{Lawful, Machine};
use sdam_core::time::{Instant, Time};
use sdam_core::topology::{Action, Input, Topology};
use sdam_core::wire::{Flags, Frames, ReplyFlags, op_code, write_op_msg, write_op_reply};

use lines::{command_line, event_line, number, summary};

/// A topology in virtual time, and the far ends of its links.
pub(crate) struct Stage {
    pub(crate) topology: Lawful<Topology>,
    now: Instant,
    /// What the clock shows, if that is later: deadlines that have passed are still to be judged.
    pub(crate) clock: Instant,
    /// Every action so far.
    pub(crate) actions: Vec<Action>,
    logged: usize,
    digested: usize,
    links: BTreeMap<LinkId, Far>,
    /// What every link was called, closed ones too.
    names: BTreeMap<LinkId, String>,
    /// The hosts of all servers that ever joined.
    pools: BTreeMap<ServerId, String>,
    /// How often the machine was called.
    pub(crate) calls: usize,
}

/// The far end of a link.
struct Far {
    name: String,
    open: bool,
    /// The number of the last request, or of the last reply of a stream, and its opcode.
    last: (i32, i32),
    command: RawDocumentBuf,
    replies: i32,
}

impl Stage {
    /// Begins at time zero with the deployment that `uri` names.
    pub(crate) fn new(uri: &str) -> Self {
        Self::with(Options::parse(uri).unwrap())
    }

    /// Begins at time zero with these options.
    pub(crate) fn with(options: Options) -> Self {
        let topology = Lawful::new(Topology::new(Arc::new(options), 1));
        let mut stage = Self {
            topology,
            now: Instant::ZERO,
            clock: Instant::ZERO,
            actions: Vec::new(),
            logged: 0,
            digested: 0,
            links: BTreeMap::new(),
            names: BTreeMap::new(),
            pools: BTreeMap::new(),
            calls: 0,
        };
        stage.at(0);
        stage
    }

    /// Lets time pass until `millis` after the beginning; every deadline on the way is met exactly.
    pub(crate) fn at(&mut self, millis: u64) -> &mut Self {
        let until = Instant::from_millis(millis);
        assert!(self.now <= until, "the stage is at {:?} already", self.now);
        while let Some(deadline) = self.topology.deadline().filter(|due| *due <= until) {
            self.now = deadline.max(self.now);
            self.topology.tick(self.time(), &mut self.actions);
            self.calls += 1;
            self.digest();
        }
        self.now = until;
        self
    }

    /// What the machine is told of the time.
    fn time(&self) -> Time {
        Time { judged: self.now, clock: self.clock.max(self.now) }
    }

    /// Hands the machine an input now.
    pub(crate) fn input(&mut self, input: Input<'_>) -> &mut Self {
        self.topology.handle(self.time(), input, &mut self.actions);
        self.calls += 1;
        self.digest();
        self
    }

    /// The stream of that name (`a.0`: the first one to host a) is up.
    pub(crate) fn opened(&mut self, name: &str) -> &mut Self {
        let link = self.link(name);
        self.links.get_mut(&link).unwrap().open = true;
        self.input(Input::Opened { link })
    }

    /// The stream has ended: refused while it was being opened, closed by the server after that.
    pub(crate) fn closed(&mut self, name: &str) -> &mut Self {
        let link = self.link(name);
        let far = self.links.remove(&link).unwrap();
        let failure = match far.open {
            false => Failure::new(Step::Connect, Cause::Refused, "connection refused"),
            true => Failure::new(Step::Hello, Cause::Closed, "the server closed the connection"),
        };
        self.input(Input::Closed { link, failure })
    }

    /// Answers the last command on that stream.
    pub(crate) fn reply(&mut self, name: &str, document: &RawDocument) -> &mut Self {
        let bytes = self.answer(name, document, Flags::NONE);
        self.bytes(name, &bytes)
    }

    /// Answers the last command on that stream, or its last answer, with more to come.
    pub(crate) fn stream(&mut self, name: &str, document: &RawDocument) -> &mut Self {
        let bytes = self.answer(name, document, Flags::MORE_TO_COME);
        self.bytes(name, &bytes)
    }

    /// Keeps nothing but the machine.
    pub(crate) fn into_topology(self) -> Lawful<Topology> {
        self.topology
    }

    /// Returns whether the stream is still being opened.
    pub(crate) fn is_opening(&self, name: &str) -> bool {
        !self.links[&self.link(name)].open
    }

    /// Opens the stream and answers its handshake.
    pub(crate) fn greet(&mut self, name: &str, document: &RawDocument) -> &mut Self {
        self.opened(name).reply(name, document)
    }

    /// Returns the bytes that [`reply`](Self::reply) or [`stream`](Self::stream) would send.
    pub(crate) fn answer(&mut self, name: &str, document: &RawDocument, flags: Flags) -> Vec<u8> {
        let link = self.link(name);
        let far = self.links.get_mut(&link).unwrap();
        let (response_to, op_code) = far.last;
        far.replies += 1;
        let (request_id, mut bytes) = (1000 + far.replies, Vec::new());
        if op_code == op_code::OP_QUERY {
            write_op_reply(&mut bytes, request_id, response_to, ReplyFlags::NONE, document);
        } else {
            write_op_msg(&mut bytes, request_id, response_to, flags, document);
        }
        if flags.contains(Flags::MORE_TO_COME) {
            far.last.0 = request_id;
        }
        bytes
    }

    /// Hands the machine bytes on that stream.
    pub(crate) fn bytes(&mut self, name: &str, bytes: &[u8]) -> &mut Self {
        let link = self.link(name);
        self.input(Input::Received { link, bytes })
    }

    /// Returns the last command that was sent over that stream.
    pub(crate) fn command(&self, name: &str) -> &RawDocument {
        &self.links[&self.link(name)].command
    }

    /// Returns the opcode of the last message that was sent over that stream.
    pub(crate) fn op_code(&self, name: &str) -> i32 {
        self.links[&self.link(name)].last.1
    }

    /// Returns the names of the streams that are not closed.
    pub(crate) fn links(&self) -> Vec<&str> {
        self.links.values().map(|far| far.name.as_str()).collect()
    }

    pub(crate) fn link(&self, name: &str) -> LinkId {
        let found = self.links.iter().find(|(_, far)| far.name == name);
        *found.unwrap_or_else(|| panic!("no link {name}, only {:?}", self.links())).0
    }

    /// Returns what is known now.
    pub(crate) fn view(&self) -> Arc<TopologyDescription> {
        Arc::clone(self.topology.get().description())
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
        let lines = self.actions[self.logged..].iter().map(|action| self.line(action)).collect();
        self.logged = self.actions.len();
        lines
    }

    /// Forgets what was logged so far.
    pub(crate) fn quiet(&mut self) -> &mut Self {
        self.logged = self.actions.len();
        self
    }

    fn line(&self, action: &Action) -> String {
        match action {
            Action::Open { link, .. } => format!("open {}", self.names[link]),
            Action::Send { link, bytes } => {
                let (_, _, command) = request(bytes);
                let name = command.iter().next().unwrap().unwrap().0.to_string();
                let awaits = command.get("maxAwaitTimeMS").unwrap().is_some();
                let awaitable = if awaits { "awaitable " } else { "" };
                format!("send {} {awaitable}{name}", self.names[link])
            }
            Action::Close { link } => format!("close {}", self.names[link]),
            Action::Publish { snapshot } => format!("publish {}", summary(snapshot.description())),
            Action::Wake { waiter, outcome: Ok(()) } => format!("wake {}", waiter.0),
            Action::Wake { waiter, outcome: Err(error) } => format!("refuse {}: {error}", waiter.0),
            Action::Join { address, .. } => format!("pool {} joins", address.host()),
            Action::Leave { server } => format!("pool {} leaves", self.pools[server]),
            Action::Pool { server, command } => {
                format!("pool {} {}", self.pools[server], command_line(command))
            }
            Action::Resolve { question } => format!("resolve {}", question.name),
            Action::Emit { event } => event_line(&event.kind),
        }
    }

    /// Frees what was done so far, so that it can go on for ever.
    pub(crate) fn forget(&mut self) {
        self.actions.clear();
        (self.logged, self.digested) = (0, 0);
    }

    /// Notes what became of the links.
    fn digest(&mut self) {
        for action in &self.actions[self.digested..] {
            match action {
                Action::Open { link, address } => {
                    let (name, command) =
                        (format!("{}.{}", address.host(), number(*link)), RawDocumentBuf::new());
                    self.names.insert(*link, name.clone());
                    let far = Far { name, open: false, last: (0, 0), command, replies: 0 };
                    self.links.insert(*link, far);
                }
                Action::Send { link, bytes } => {
                    let far = self.links.get_mut(link).expect("sent over an open link");
                    assert!(far.open, "sent before the stream was up");
                    let (id, op_code, command) = request(bytes);
                    (far.last, far.command) = ((id, op_code), command);
                }
                Action::Close { link } => {
                    self.links.remove(link);
                }
                Action::Join { server, address } => {
                    self.pools.insert(*server, address.host().to_owned());
                }
                Action::Publish { .. }
                | Action::Wake { .. }
                | Action::Leave { .. }
                | Action::Pool { .. }
                | Action::Resolve { .. }
                | Action::Emit { .. } => {}
            }
        }
        self.digested = self.actions.len();
    }
}

fn request(bytes: &[u8]) -> (i32, i32, RawDocumentBuf) {
    let mut frames = Frames::new();
    frames.extend(bytes);
    let message = frames.next().unwrap().expect("a whole message");
    let (id, op_code) = (message.header().request_id, message.header().op_code);
    let command = match op_code {
        op_code::OP_QUERY => message.op_query().unwrap().query.to_owned(),
        _ => message.op_msg().unwrap().body.to_owned(),
    };
    (id, op_code, command)
}

/// A process of a server; its topologyVersion is made of this and a counter.
pub(crate) const PROCESS: [u8; 12] = [7; 12];

/// The topologyVersion of a server that has seen `counter` changes.
pub(crate) fn version(counter: i64) -> RawDocumentBuf {
    rawdoc! { "processId": ObjectId::from_bytes(PROCESS), "counter": counter }
}

/// What every reply has: `ok`, the wire version of 6.0, and `helloOk`.
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
