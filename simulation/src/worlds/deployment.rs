//! Three servers, as small as they can be: what they are, and what they say of it.

use bson::oid::ObjectId;
use bson::{RawArrayBuf, RawDocumentBuf, cstr, rawdoc};
use sdam_core::description::{ServerType, TopologyVersion};
use serde::Serialize;

/// The number of servers that there are.
pub(super) const MEMBERS: usize = 3;

/// Their names.
pub(super) const NAMES: [&str; MEMBERS] = ["a", "b", "c"];

/// The member that leaves the configuration and returns to it.
pub(super) const GUEST: usize = 2;

/// A server.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Server {
    pub(super) is_up: bool,
    /// The election that it believes to have won, if it believes to be primary.
    pub(super) elected: Option<u8>,
    process: u8,
    changes: i64,
    /// The configuration that it knows.
    set_version: i32,
    has_guest: bool,
}

/// The hello reply of a server.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Hello {
    pub(super) member: usize,
    server: Server,
}

/// The replica set.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Deployment {
    pub(super) servers: [Server; MEMBERS],
    pub(super) has_guest: bool,
    set_version: i32,
    term: u8,
}

impl Deployment {
    /// Begins with a primary.
    pub(super) fn new() -> Self {
        let server = Server {
            is_up: true,
            elected: None,
            process: 1,
            changes: 0,
            set_version: 1,
            has_guest: true,
        };
        let mut servers = [server; MEMBERS];
        servers[0].elected = Some(1);
        Self { servers, has_guest: true, set_version: 1, term: 1 }
    }

    /// Returns whether that server is a member of the set.
    pub(super) const fn is_member(&self, member: usize) -> bool {
        self.has_guest || member != GUEST
    }

    /// Returns the primary that was elected last, if it is one still.
    pub(super) fn primary(&self) -> Option<usize> {
        self.servers.iter().position(|it| it.is_up && it.elected == Some(self.term))
    }

    /// Returns whether that server could be elected.
    pub(super) fn is_electable(&self, member: usize) -> bool {
        let server = &self.servers[member];
        server.is_up && self.is_member(member) && server.elected.is_none()
    }

    /// A server ends, or begins again as a secondary that knows the configuration.
    pub(super) fn toggle(&mut self, member: usize) {
        let (set_version, has_guest) = (self.set_version, self.has_guest);
        let server = &mut self.servers[member];
        server.is_up = !server.is_up;
        if server.is_up {
            let process = server.process + 1;
            let changes = 0;
            *server =
                Server { is_up: true, elected: None, process, changes, set_version, has_guest };
        }
    }

    /// A server ceases to be primary.
    pub(super) fn step_down(&mut self, member: usize) {
        let server = &mut self.servers[member];
        server.elected = None;
        server.changes += 1;
    }

    /// A server is elected; a primary that was does not learn of it yet.
    pub(super) fn elect(&mut self, member: usize) {
        self.term += 1;
        let server = &mut self.servers[member];
        server.elected = Some(self.term);
        server.changes += 1;
    }

    /// The guest leaves the configuration or returns to it, as all servers that are up learn.
    pub(super) fn reconfigure(&mut self) {
        self.has_guest = !self.has_guest;
        self.set_version += 1;
        let (set_version, has_guest) = (self.set_version, self.has_guest);
        for server in self.servers.iter_mut().filter(|server| server.is_up) {
            server.changes += 1;
            (server.set_version, server.has_guest) = (set_version, has_guest);
        }
    }

    /// Primaries that were learn of it, and if there is none, the first that can be is elected.
    pub(super) fn heal(&mut self) {
        for member in 0..MEMBERS {
            let server = self.servers[member];
            if server.is_up && server.elected.is_some_and(|term| term != self.term) {
                self.step_down(member);
            }
        }
        if self.primary().is_none()
            && let Some(member) = (0..MEMBERS).find(|member| self.is_electable(*member))
        {
            self.elect(member);
        }
    }

    /// Returns what that server says now, `None` if it is down.
    pub(super) fn hello(&self, member: usize) -> Option<Hello> {
        let server = self.servers[member];
        server.is_up.then_some(Hello { member, server })
    }

    /// Returns what a client is to find out about that server, if it is in its view.
    pub(super) fn truth(&self, member: usize) -> ServerType {
        match self.servers[member] {
            Server { is_up: false, .. } => ServerType::Unknown,
            _ if !self.is_member(member) => ServerType::RsGhost,
            Server { elected: Some(_), .. } => ServerType::RsPrimary,
            Server { elected: None, .. } => ServerType::RsSecondary,
        }
    }
}

impl Hello {
    /// Returns how fresh this is.
    pub(super) fn version(&self) -> TopologyVersion {
        let process_id = ObjectId::from_bytes([self.server.process; 12]);
        TopologyVersion::new(process_id, self.server.changes)
    }

    /// Returns the reply; with `streaming`, that of a server that can stream.
    pub(super) fn document(&self, streaming: bool) -> RawDocumentBuf {
        let Server { elected, set_version, has_guest, .. } = self.server;
        let mut reply =
            rawdoc! { "ok": 1.0, "helloOk": true, "minWireVersion": 0, "maxWireVersion": 17 };
        if streaming {
            let TopologyVersion { process_id, counter, .. } = self.version();
            let version = rawdoc! { "processId": process_id, "counter": counter };
            reply.append(cstr!("topologyVersion"), version);
        }
        reply.append(cstr!("isWritablePrimary"), elected.is_some());
        if !has_guest && self.member == GUEST {
            reply.append(cstr!("isreplicaset"), true);
            return reply;
        }
        let hosts: RawArrayBuf = NAMES
            .iter()
            .take(if has_guest { MEMBERS } else { GUEST })
            .map(|name| format!("{name}:27017"))
            .collect();
        reply.append(cstr!("setName"), "rs");
        reply.append(cstr!("setVersion"), set_version);
        reply.append(cstr!("me"), format!("{}:27017", NAMES[self.member]));
        reply.append(cstr!("hosts"), hosts);
        match elected {
            Some(term) => reply.append(cstr!("electionId"), ObjectId::from_bytes([term; 12])),
            None => reply.append(cstr!("secondary"), true),
        }
        reply
    }
}
