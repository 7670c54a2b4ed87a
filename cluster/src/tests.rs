//! The model in virtual time, every law asserted, and the deployment on real sockets.

use std::time::Duration;

use bson::{RawDocument, RawDocumentBuf, rawdoc};
use sdam_core::bson;
use sdam_core::config::ServerAddress;
use sdam_core::machine::{Lawful, Machine};
use sdam_core::time::Instant;
use sdam_core::wire::{Flags, Frames, Message, write_op_msg};

use super::{
    Action, Change, Cluster, ClusterOptions, ConnectionId, Input, MemberId, MemberOptions,
    ServerVersion,
};

mod administration;
mod aggregate;
mod authentication;
mod commands;
mod data;
mod diagnostics;
mod fail_point;
mod failover;
mod freeze;
mod gssapi;
mod hello;
mod horizons;
mod laws;
mod limits;
mod members;
mod mongos;
mod oidc;
mod partition;
mod protocol;
mod rate_limit;
mod reconfig;
mod sasl;
mod search;
mod shutdown;
mod sockets;
mod stable_api;
mod standalone;
mod state;
mod takeover;
mod upgrade;
mod versions;
mod writes;

const SECOND: Duration = Duration::from_secs(1);

/// The versions from the first one with `topologyVersion` on.
const AWAITABLE: [ServerVersion; 7] = [
    ServerVersion::V4_4,
    ServerVersion::V5_0,
    ServerVersion::V6_0,
    ServerVersion::V7_0,
    ServerVersion::V8_0,
    ServerVersion::V8_2,
    ServerVersion::V9_0,
];

fn options(version: ServerVersion) -> ClusterOptions {
    let addresses = ["a:1", "b:2", "c:3"].map(|it| it.parse::<ServerAddress>().unwrap());
    ClusterOptions { version, ..ClusterOptions::new("rs", addresses) }
}

fn member(address: &str) -> MemberOptions {
    MemberOptions::new(address.parse().unwrap())
}

/// A data-bearing member that never becomes primary.
fn passive(address: &str) -> MemberOptions {
    MemberOptions { priority: 0, ..member(address) }
}

fn hidden(address: &str) -> MemberOptions {
    MemberOptions { hidden: true, ..passive(address) }
}

fn arbiter(address: &str) -> MemberOptions {
    MemberOptions { arbiter: true, ..member(address) }
}

/// A deployment in virtual time, and all that it has done.
#[derive(Clone)]
struct World {
    model: Lawful<Cluster>,
    now: Instant,
    log: Vec<(Instant, Action)>,
    last_connection: u64,
    last_request_id: i32,
}

impl World {
    fn new(options: ClusterOptions) -> Self {
        let mut world = Self {
            model: Lawful::new(Cluster::new(options).unwrap()),
            now: Instant::ZERO,
            log: Vec::new(),
            last_connection: 0,
            last_request_id: 100,
        };
        world.advance(Duration::ZERO);
        world
    }

    /// A deployment that has elected its first primary, and all members know it.
    fn settled(version: ServerVersion) -> Self {
        let mut world = Self::new(options(version));
        world.advance(SECOND);
        assert!(world.primary().is_some());
        world
    }

    /// A set of these members that has elected its first primary.
    fn of(version: ServerVersion, members: &[MemberOptions]) -> Self {
        let members = members.to_vec();
        let mut world = Self::new(ClusterOptions { members, ..options(version) });
        world.advance(SECOND);
        assert!(world.primary().is_some());
        world
    }

    /// Changes the configuration, which must be allowed.
    fn reconfig(&mut self, changes: &[Change]) {
        self.model.get().check_reconfig(changes).unwrap();
        self.handle(Input::Reconfig { changes });
    }

    fn primary(&self) -> Option<MemberId> {
        self.model.get().primary()
    }

    /// A running member that is not primary.
    fn secondary(&self) -> MemberId {
        let all = (0..3).map(MemberId);
        let mut others = all.filter(|member| Some(*member) != self.primary());
        others.find(|member| self.model.get().is_running(*member)).unwrap()
    }

    /// Lets time pass and ticks at each deadline, to the nanosecond.
    fn advance(&mut self, duration: Duration) {
        let end = self.now + duration;
        while let Some(at) = self.model.deadline().filter(|at| *at <= end) {
            self.now = at.max(self.now);
            let mut out = Vec::new();
            self.model.tick(self.now.into(), &mut out);
            self.note(out);
        }
        self.now = end;
    }

    fn handle(&mut self, input: Input<'_>) {
        let mut out = Vec::new();
        self.model.handle(self.now.into(), input, &mut out);
        self.note(out);
    }

    fn note(&mut self, actions: Vec<Action>) {
        self.log.extend(actions.into_iter().map(|action| (self.now, action)));
    }

    fn connect(&mut self, member: MemberId) -> ConnectionId {
        self.last_connection += 1;
        let connection = ConnectionId(self.last_connection);
        self.handle(Input::Accepted { connection, member });
        connection
    }

    fn receive(&mut self, connection: ConnectionId, bytes: &[u8]) {
        self.handle(Input::Received { connection, bytes });
    }

    /// Sends a command as OP_MSG and returns its request id.
    fn request(&mut self, connection: ConnectionId, flags: Flags, command: &RawDocument) -> i32 {
        self.last_request_id += 1;
        let mut bytes = Vec::new();
        write_op_msg(&mut bytes, self.last_request_id, 0, flags, command);
        self.receive(connection, &bytes);
        self.last_request_id
    }

    /// Returns what the connection has received and when, each message once.
    fn replies(&mut self, connection: ConnectionId) -> Vec<(Instant, Message)> {
        let mut replies = Vec::new();
        self.log.retain(|(at, action)| match action {
            Action::Send { connection: to, bytes } if *to == connection => {
                let mut frames = Frames::new();
                frames.extend(bytes);
                replies.push((*at, frames.next().unwrap().expect("whole messages")));
                assert!(frames.is_empty(), "one message for each action");
                false
            }
            _ => true,
        });
        replies
    }

    /// Sends a command that is answered at once and returns the answer.
    fn ask(&mut self, connection: ConnectionId, command: &RawDocument) -> RawDocumentBuf {
        let request_id = self.request(connection, Flags::NONE, command);
        let replies = self.replies(connection);
        assert_eq!(replies.len(), 1, "one reply, and at once");
        assert_eq!(replies[0].1.header().response_to, request_id);
        body(&replies[0].1)
    }

    fn hello(&mut self, member: MemberId) -> RawDocumentBuf {
        let connection = self.connect(member);
        self.ask(connection, &rawdoc! { "hello": 1, "$db": "admin" })
    }

    fn is_closed(&self, connection: ConnectionId) -> bool {
        let close = Action::Close { connection };
        self.log.iter().any(|(_, action)| *action == close)
    }
}

fn body(message: &Message) -> RawDocumentBuf {
    message.op_msg().unwrap().body.to_owned()
}

/// A hello that waits for a change since `seen`, a reply of the same member.
fn awaitable(seen: &RawDocument, max_await: Duration) -> RawDocumentBuf {
    let version = seen.get_document("topologyVersion").unwrap();
    rawdoc! {
        "hello": 1,
        "topologyVersion": version.to_owned(),
        "maxAwaitTimeMS": i64::try_from(max_await.as_millis()).unwrap(),
        "$db": "admin",
    }
}

fn counter(reply: &RawDocument) -> i64 {
    let version = reply.get_document("topologyVersion").unwrap();
    version.get_i64("counter").unwrap()
}

/// The addresses in a list of a reply, or none if there is no such list.
fn addresses(reply: &RawDocument, list: &str) -> Vec<String> {
    let list = reply.get_array(list).into_iter().flatten();
    list.map(|it| it.unwrap().as_str().unwrap().to_owned()).collect()
}

fn is(reply: &RawDocument, flag: &str) -> bool {
    reply.get_bool(flag).unwrap_or(false)
}
