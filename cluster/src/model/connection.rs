//! The connections of the clients: which request is answered when.

use std::net::SocketAddr;
use std::time::Duration;

use sdam_core::bson::RawDocumentBuf;
use sdam_core::time::Instant;
use sdam_core::wire::{Flags, Frames, Message, ReplyFlags, op_code, write_op_msg, write_op_reply};

use super::fail_point::Injection;
use super::rate_limit::Admission;
use super::{Action, Cluster, ConnectionId, later};
use crate::authentication::Login;
use crate::options::MemberId;
use crate::store::Position;
use crate::wire::{
    ClientName, CommandError, Hello, ReplyForm, ReplyTo, Request, check_length, reply,
};

/// The number of bytes that a client may send that are not answered yet: an unfinished request, or
/// requests behind one that waits. Who sends more is disconnected.
///
/// It is as much as a message may have, as the members say in hello.
pub const MAX_UNREAD_LEN: usize = 48_000_000;

/// The number of bytes that all clients together may send that are not answered yet; above it, a
/// client with more than [`UNREAD_SHARE`] is disconnected.
pub const MAX_UNREAD_IN_ALL: usize = 128 << 20;

/// The number of unanswered bytes that each client may send in any case.
pub const UNREAD_SHARE: usize = 1 << 20;

/// The number of bytes that the name of an application may have (Handshake, "Limitations"); of a
/// longer one nothing is kept.
const MAX_APP_NAME_LEN: usize = 128;

/// The bytes of a message's header that say what it is.
const OP_CODE: std::ops::Range<usize> = 12..16;

/// A client's connection to a member.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    pub(crate) member: MemberId,
    /// The member's own number for it.
    pub(crate) number: i32,
    /// The header of its first message, as far as it has come.
    opening: Vec<u8>,
    frames: Frames,
    /// The number of bytes that `frames` holds.
    unread: usize,
    /// The request that is not answered yet; those behind it wait.
    pub(crate) pending: Option<Pending>,
    /// The name of the client's application, once its hello has said it.
    pub(crate) app_name: Option<String>,
    /// The address of the client, if it came from outside.
    pub(crate) peer: Option<SocketAddr>,
    /// By which host name the client knows the member, if it has said so.
    pub(crate) server_name: Option<String>,
    pub(crate) login: Login,
    /// The client's name, once it has said hello.
    client: Option<ClientName>,
    /// Its first request has come, and the rate limit has been asked.
    admitted: bool,
}

/// A reply that a connection waits for, and its time limit; `None` means for ever.
#[derive(Clone, Debug)]
pub(crate) struct Pending {
    pub(crate) until: Option<Instant>,
    pub(crate) then: Then,
}

/// The step that follows a wait.
#[derive(Clone, Debug)]
pub(crate) enum Then {
    /// A hello is answered, earlier if something changes.
    SayHello(ReplyTo, Hello),
    /// A fail point has blocked the next hello of a stream.
    Stream(ReplyTo, Hello, Injection),
    /// The rate limit admits the connection, and its first request begins.
    Begin(Message),
    /// A fail point has blocked the request.
    Run(Message, Injection),
    /// A read waits for data that is still to come, or a write for the end of a transaction.
    Await(Message, Injection),
    /// A write has been done, and other members are to have it.
    Acknowledge(Message, Box<Done>),
}

/// A command that has been run, or has failed, and is not answered yet.
#[derive(Clone, Debug)]
pub(crate) struct Done {
    pub(crate) injection: Injection,
    pub(crate) replies: Result<Vec<RawDocumentBuf>, CommandError>,
    /// The last entry of the member's log then.
    pub(crate) position: Position,
}

impl Connection {
    /// The time when waiting ends, whatever else happens.
    pub(super) fn resumes_at(&self) -> Option<Instant> {
        self.pending.as_ref()?.until
    }

    /// Returns how many bytes are kept that are not answered yet.
    fn unanswered(&self) -> usize {
        let begun = match self.pending.as_ref().map(|pending| &pending.then) {
            Some(
                Then::Begin(message)
                | Then::Run(message, _)
                | Then::Await(message, _)
                | Then::Acknowledge(message, _),
            ) => message.bytes().len(),
            _ => 0,
        };
        self.unread + begun
    }

    /// Returns whether the connection has begun, with these bytes or before, with a message that
    /// will never be answered, as those of clients that speak TLS or HTTP do; it is useless to wait
    /// for as many bytes as such a message seems to have.
    fn begins_with_nonsense(&mut self, bytes: &[u8]) -> bool {
        let missing = OP_CODE.end - self.opening.len();
        self.opening.extend(bytes.iter().take(missing));
        let code = self.opening.get(OP_CODE).and_then(|code| code.try_into().ok());
        let known = [op_code::OP_MSG, op_code::OP_QUERY];
        code.is_some_and(|code| !known.contains(&i32::from_le_bytes(code)))
    }

    /// Returns whether a hello waits for a change.
    pub(crate) fn awaits_change(&self) -> bool {
        matches!(self.pending, Some(Pending { then: Then::SayHello(..), .. }))
    }
}

impl Cluster {
    /// Records a change that clients should hear of, and answers those who wait for one.
    pub(super) fn bump(&mut self, now: Instant, member: MemberId, out: &mut Vec<Action>) {
        self.revision += 1;
        if let Some(process) = self.process_mut(member) {
            process.counter += 1;
        }
        if !self.is_frozen(member) {
            self.answer_awaiting(now, member, out);
        }
    }

    /// Returns to whom an open connection leads, and what its client says of itself, once it has
    /// said hello.
    pub fn client(&self, connection: ConnectionId) -> Option<(MemberId, &ClientName)> {
        let connection = self.connections.get(&connection)?;
        Some((connection.member, connection.client.as_ref()?))
    }

    /// Answers all who wait for a change, and what is queued behind them.
    pub(super) fn answer_awaiting(
        &mut self,
        now: Instant,
        member: MemberId,
        out: &mut Vec<Action>,
    ) {
        for id in self.connections_of(member) {
            if self.connections.get(&id).is_some_and(Connection::awaits_change) {
                self.resume(now, id, out);
            }
        }
    }

    pub(super) fn close_all(&mut self, member: MemberId, out: &mut Vec<Action>) {
        for connection in self.connections_of(member) {
            self.close(connection, out);
        }
    }

    /// Closes the connections of all clients that have said hello: what the replies said holds no
    /// more.
    pub(super) fn close_clients(&mut self, member: MemberId, out: &mut Vec<Action>) {
        for id in self.connections_of(member) {
            if self.connections.get(&id).is_some_and(|it| it.client.is_some()) {
                self.close(id, out);
            }
        }
    }

    /// Closes the connections that wait for a change, instead of reporting it to them.
    pub(super) fn close_awaiting(&mut self, member: MemberId, out: &mut Vec<Action>) {
        for id in self.connections_of(member) {
            if self.connections.get(&id).is_some_and(Connection::awaits_change) {
                self.close(id, out);
            }
        }
    }

    pub(super) fn connections_of(&self, member: MemberId) -> Vec<ConnectionId> {
        let all = self.connections.iter();
        all.filter(|(_, connection)| connection.member == member).map(|(id, _)| *id).collect()
    }

    pub(super) fn accept(&mut self, id: ConnectionId, member: MemberId, out: &mut Vec<Action>) {
        if self.connections.contains_key(&id) {
            return;
        }
        let most = self.options.max_connections;
        let process = self.process_mut(member).filter(|process| process.connected < most);
        let Some(process) = process else {
            out.push(Action::Close { connection: id });
            return;
        };
        process.connected += 1;
        let connection = Connection {
            member,
            number: process.next_connection(),
            opening: Vec::new(),
            frames: Frames::new(),
            unread: 0,
            pending: None,
            app_name: None,
            peer: None,
            server_name: None,
            login: Login::default(),
            client: None,
            admitted: false,
        };
        self.connections.insert(id, connection);
    }

    /// Notes where a client is.
    pub(super) fn note_peer(&mut self, id: ConnectionId, address: SocketAddr) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.peer = Some(address);
        }
    }

    /// Notes by which name a client knows the member; each hello is answered with the addresses of
    /// the horizon to which that name belongs by then.
    pub(super) fn note_server_name(&mut self, id: ConnectionId, name: &str) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.server_name = Some(name.to_owned());
        }
    }

    pub(super) fn receive(
        &mut self,
        now: Instant,
        id: ConnectionId,
        bytes: &[u8],
        out: &mut Vec<Action>,
    ) {
        if let Some(connection) = self.connections.get_mut(&id) {
            let member = connection.member;
            if connection.begins_with_nonsense(bytes) {
                return self.close(id, out);
            }
            connection.frames.extend(bytes);
            connection.unread += bytes.len();
            if let Some(process) = self.process_mut(member) {
                process.counters.received(bytes.len());
            }
            self.serve(now, id, out);
        }
    }

    /// Answers the requests that have come, up to one that must wait.
    pub(super) fn serve(&mut self, now: Instant, id: ConnectionId, out: &mut Vec<Action>) {
        while let Some(connection) = self.connections.get(&id)
            && connection.pending.is_none()
            && !self.is_frozen(connection.member)
        {
            let connection = self.connections.get_mut(&id).expect("it was just there");
            let message = match connection.frames.next() {
                Ok(Some(message)) => message,
                Ok(None) => break,
                Err(_) => return self.close(id, out),
            };
            connection.unread -= message.bytes().len();
            self.admit(now, id, message, out);
        }
        if self.keeps_too_much(id) {
            self.close(id, out);
        }
    }

    /// Returns whether a connection has sent more bytes than it may leave unanswered.
    fn keeps_too_much(&self, id: ConnectionId) -> bool {
        match self.connections.get(&id).map(Connection::unanswered) {
            None | Some(0..=UNREAD_SHARE) => false,
            Some(unanswered) if unanswered > MAX_UNREAD_LEN => true,
            Some(_) => {
                let all = self.connections.values().map(Connection::unanswered);
                all.sum::<usize>() > MAX_UNREAD_IN_ALL
            }
        }
    }

    /// Asks the rate limit about a connection that has not been served yet.
    fn admit(&mut self, now: Instant, id: ConnectionId, message: Message, out: &mut Vec<Action>) {
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        let (member, admitted) = (connection.member, connection.admitted);
        connection.admitted = true;
        let process = self.process_mut(member).filter(|_| !admitted);
        match process.map_or(Admission::Now, |process| process.rate_limit.admit(now)) {
            Admission::Now => self.begin_request(now, id, message, out),
            Admission::At(at) => self.wait(id, Some(at), Then::Begin(message)),
            Admission::Refused => self.close(id, out),
        }
    }

    /// Begins to serve a request: what a fail point does to it is decided now.
    fn begin_request(
        &mut self,
        now: Instant,
        id: ConnectionId,
        message: Message,
        out: &mut Vec<Action>,
    ) {
        let Ok(request) = Request::parse(&message) else {
            return self.close(id, out);
        };
        if let Some(connection) = self.connections.get_mut(&id)
            && request.is_hello()
        {
            connection.client.get_or_insert_with(|| request.client_name());
            if connection.app_name.is_none() {
                let name = request.app_name().filter(|name| name.len() <= MAX_APP_NAME_LEN);
                connection.app_name = name.map(str::to_owned);
            }
        }
        let injection = self.injection(id, request.command_name());
        match injection.block {
            Duration::ZERO => self.run(now, id, &message, injection, None, out),
            block => self.wait(id, later(now, block), Then::Run(message, injection)),
        }
    }

    /// Puts off what is next on a connection.
    pub(crate) fn wait(&mut self, id: ConnectionId, until: Option<Instant>, then: Then) {
        self.wait_no_more(id);
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.pending = Some(Pending { until, then });
            self.waiting.extend(until.map(|at| (at, id)));
        }
    }

    /// Returns what a connection waits for, which it does no more.
    fn wait_no_more(&mut self, id: ConnectionId) -> Option<Pending> {
        let pending = self.connections.get_mut(&id)?.pending.take()?;
        if let Some(at) = pending.until {
            self.waiting.remove(&(at, id));
        }
        Some(pending)
    }

    /// Goes on with what waits on a connection, and with what is queued behind it.
    pub(crate) fn resume(&mut self, now: Instant, id: ConnectionId, out: &mut Vec<Action>) {
        let Some(Pending { then, until }) = self.wait_no_more(id) else {
            return;
        };
        match then {
            Then::SayHello(reply_to, hello) => self.send_hello(now, id, reply_to, hello, out),
            Then::Stream(reply_to, hello, injection) => {
                self.continue_stream(now, id, reply_to, hello, injection, out);
            }
            Then::Begin(message) => self.begin_request(now, id, message, out),
            Then::Run(message, injection) => self.run(now, id, &message, injection, None, out),
            Then::Await(message, injection) => {
                self.run_again(now, id, &message, (injection, until), out);
            }
            Then::Acknowledge(message, done) => self.acknowledge(now, id, &message, *done, out),
        }
        self.serve(now, id, out);
    }

    /// Sends a reply and returns its `request_id`.
    pub(crate) fn send(
        &mut self,
        now: Instant,
        id: ConnectionId,
        reply_to: ReplyTo,
        flags: Flags,
        mut document: RawDocumentBuf,
        out: &mut Vec<Action>,
    ) -> i32 {
        let member = self.connections.get(&id).map(|connection| connection.member);
        let Some(process) = member.and_then(|member| self.process_mut(member)) else {
            return 0;
        };
        let request_id = process.next_request_id();
        self.append_times(now, &mut document);
        if let Err(error) = check_length(&document) {
            document = reply::error(&error);
            self.append_times(now, &mut document);
        }
        let mut bytes = Vec::new();
        match reply_to.form {
            ReplyForm::Msg { checksum, .. } => {
                let flags = match checksum {
                    true => flags.with(Flags::CHECKSUM_PRESENT),
                    false => flags,
                };
                write_op_msg(&mut bytes, request_id, reply_to.request_id, flags, &document);
            }
            ReplyForm::Reply => {
                let to = reply_to.request_id;
                write_op_reply(&mut bytes, request_id, to, ReplyFlags::AWAIT_CAPABLE, &document);
            }
        }
        self.send_bytes(id, bytes, out);
        request_id
    }

    /// Sends a message, and counts it.
    pub(crate) fn send_bytes(&mut self, id: ConnectionId, bytes: Vec<u8>, out: &mut Vec<Action>) {
        let member = self.connections.get(&id).map(|connection| connection.member);
        if let Some(process) = member.and_then(|member| self.process_mut(member)) {
            process.counters.sent(bytes.len());
        }
        out.push(Action::Send { connection: id, bytes });
    }

    pub(crate) fn close(&mut self, id: ConnectionId, out: &mut Vec<Action>) {
        if self.forget(id).is_some() {
            out.push(Action::Close { connection: id });
        }
    }

    /// Forgets a connection that has ended, or ends.
    pub(super) fn forget(&mut self, id: ConnectionId) -> Option<Connection> {
        self.wait_no_more(id);
        let connection = self.connections.remove(&id)?;
        if let Some(process) = self.process_mut(connection.member) {
            process.connected -= 1;
        }
        Some(connection)
    }
}
