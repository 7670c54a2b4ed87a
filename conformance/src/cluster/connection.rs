//! The connections of the clients: which request is answered when.

use std::time::Duration;

use sdam_core::bson::RawDocument;
use sdam_core::time::Instant;
use sdam_core::wire::{Flags, Frames, ReplyFlags, write_op_msg, write_op_reply};

use super::election::later;
use super::model::{Action, Cluster, ConnectionId};
use super::options::MemberId;
use super::protocol::{CommandError, Hello, ReplyForm, ReplyTo, Request};
use super::reply;

/// How many bytes a client may send that are not answered yet, in bytes: an unfinished request,
/// or requests behind an awaitable hello. Who sends more is disconnected.
///
/// Real servers take messages of 48 MB; these members store no data, and so need no large ones.
pub const MAX_UNREAD_LEN: usize = 1 << 20;

/// The shortest time between two replies of a stream, so that a client that waits for no time at
/// all does not get them all at once.
const MIN_STREAM_INTERVAL: Duration = Duration::from_millis(1);

/// A client's connection to a member.
#[derive(Clone, Debug)]
pub(super) struct Connection {
    member: MemberId,
    /// The member's own number for it.
    number: i32,
    frames: Frames,
    /// How many bytes `frames` holds.
    unread: usize,
    /// The hello that is not answered yet; requests behind it wait.
    awaiting: Option<Awaiting>,
}

#[derive(Clone, Copy, Debug)]
struct Awaiting {
    reply_to: ReplyTo,
    hello: Hello,
    /// When to answer though nothing has changed; `None` means never.
    until: Option<Instant>,
}

impl Connection {
    /// When the hello that waits is answered though nothing has changed.
    pub(super) fn answers_at(&self) -> Option<Instant> {
        self.awaiting?.until
    }
}

impl Cluster {
    /// Records a change that clients should hear of, and answers those who wait for one.
    pub(super) fn bump(&mut self, now: Instant, member: MemberId, out: &mut Vec<Action>) {
        if let Some(process) = self.process_mut(member) {
            process.counter += 1;
        }
        for connection in self.connections_of(member) {
            self.answer_awaiting(now, connection, out);
        }
    }

    pub(super) fn close_all(&mut self, member: MemberId, out: &mut Vec<Action>) {
        for connection in self.connections_of(member) {
            self.close(connection, out);
        }
    }

    fn connections_of(&self, member: MemberId) -> Vec<ConnectionId> {
        let all = self.connections.iter();
        all.filter(|(_, connection)| connection.member == member).map(|(id, _)| *id).collect()
    }

    pub(super) fn accept(&mut self, id: ConnectionId, member: MemberId, out: &mut Vec<Action>) {
        if self.connections.contains_key(&id) {
            return;
        }
        let Some(process) = self.process_mut(member) else {
            out.push(Action::Close { connection: id });
            return;
        };
        let connection = Connection {
            member,
            number: process.next_connection(),
            frames: Frames::new(),
            unread: 0,
            awaiting: None,
        };
        self.connections.insert(id, connection);
    }

    pub(super) fn receive(
        &mut self,
        now: Instant,
        id: ConnectionId,
        bytes: &[u8],
        out: &mut Vec<Action>,
    ) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.frames.extend(bytes);
            connection.unread += bytes.len();
            self.serve(now, id, out);
        }
    }

    /// Answers the requests that have come, up to one that must wait.
    fn serve(&mut self, now: Instant, id: ConnectionId, out: &mut Vec<Action>) {
        while let Some(connection) = self.connections.get_mut(&id)
            && connection.awaiting.is_none()
        {
            let message = match connection.frames.next() {
                Ok(Some(message)) if message.bytes().len() <= MAX_UNREAD_LEN => message,
                Ok(None) => break,
                Ok(Some(_)) | Err(_) => return self.close(id, out),
            };
            connection.unread -= message.bytes().len();
            match Request::parse(&message) {
                Ok(request) => self.answer(now, id, &request, out),
                Err(_) => self.close(id, out),
            }
        }
        let unread = self.connections.get(&id).map(|it| it.unread);
        if unread.is_some_and(|unread| unread > MAX_UNREAD_LEN) {
            self.close(id, out);
        }
    }

    fn answer(
        &mut self,
        now: Instant,
        id: ConnectionId,
        request: &Request<'_>,
        out: &mut Vec<Action>,
    ) {
        // Nothing here has an effect besides its reply, so there is no more to a silent request.
        if request.silent {
            return;
        }
        let version = self.options.version;
        let result = match request.command {
            _ if !request.names_database() => Err(CommandError::no_database()),
            "hello" if !version.has_awaitable_hello() => Err(CommandError::not_found("hello")),
            "hello" | "isMaster" | "ismaster" => match Hello::parse(request, version) {
                Ok(hello) => return self.greet(now, id, request.reply_to, hello, out),
                Err(error) => Err(error),
            },
            "ping" | "endSessions" => Ok(reply::ok()),
            "buildInfo" | "buildinfo" => Ok(reply::build_info(version)),
            unknown => Err(CommandError::not_found(unknown)),
        };
        let document = result.unwrap_or_else(|error| reply::error(&error));
        self.send(id, request.reply_to, Flags::NONE, &document, out);
    }

    /// Answers a hello, now or when there is something new to say.
    fn greet(
        &mut self,
        now: Instant,
        id: ConnectionId,
        reply_to: ReplyTo,
        hello: Hello,
        out: &mut Vec<Action>,
    ) {
        let Some(connection) = self.connections.get(&id) else {
            return;
        };
        let Some(process) = self.process(connection.member) else {
            return;
        };
        let counter = process.counter;
        let known = hello.wait.filter(|it| it.process_id == process.process_id);
        match known {
            Some(wait) if wait.counter > counter => {
                let error = CommandError::counter_ahead(wait.counter, counter);
                self.send(id, reply_to, Flags::NONE, &reply::error(&error), out);
            }
            Some(wait) if wait.counter == counter && !wait.max.is_zero() => {
                let until = later(now, wait.max);
                self.set_awaiting(id, Some(Awaiting { reply_to, hello, until }));
            }
            _ => self.say_hello(now, id, reply_to, hello, out),
        }
    }

    /// Answers the hello that waits on this connection, if one does, and what is queued behind it.
    pub(super) fn answer_awaiting(
        &mut self,
        now: Instant,
        id: ConnectionId,
        out: &mut Vec<Action>,
    ) {
        let awaiting = self.connections.get_mut(&id).and_then(|it| it.awaiting.take());
        if let Some(Awaiting { reply_to, hello, .. }) = awaiting {
            self.say_hello(now, id, reply_to, hello, out);
            self.serve(now, id, out);
        }
    }

    fn say_hello(
        &mut self,
        now: Instant,
        id: ConnectionId,
        reply_to: ReplyTo,
        hello: Hello,
        out: &mut Vec<Action>,
    ) {
        let Some(&Connection { member, number, .. }) = self.connections.get(&id) else {
            return;
        };
        let document = self.hello_reply(now, member, number, &hello);
        let exhaust = matches!(reply_to.form, ReplyForm::Msg { exhaust: true, .. });
        let Some(wait) = hello.wait.filter(|_| exhaust) else {
            self.send(id, reply_to, Flags::NONE, &document, out);
            return;
        };
        // OP_MSG, "moreToCome On Responses": each reply answers the one before it.
        let request_id = self.send(id, reply_to, Flags::MORE_TO_COME, &document, out);
        let reply_to = ReplyTo { request_id, ..reply_to };
        let until = later(now, wait.max.max(MIN_STREAM_INTERVAL));
        self.set_awaiting(id, Some(Awaiting { reply_to, hello, until }));
    }

    fn set_awaiting(&mut self, id: ConnectionId, awaiting: Option<Awaiting>) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.awaiting = awaiting;
        }
    }

    /// Sends a reply and returns its `request_id`.
    fn send(
        &mut self,
        id: ConnectionId,
        reply_to: ReplyTo,
        flags: Flags,
        document: &RawDocument,
        out: &mut Vec<Action>,
    ) -> i32 {
        let member = self.connections.get(&id).map(|connection| connection.member);
        let Some(process) = member.and_then(|member| self.process_mut(member)) else {
            return 0;
        };
        let request_id = process.next_request_id();
        let mut bytes = Vec::new();
        match reply_to.form {
            ReplyForm::Msg { checksum, .. } => {
                let flags = match checksum {
                    true => flags.with(Flags::CHECKSUM_PRESENT),
                    false => flags,
                };
                write_op_msg(&mut bytes, request_id, reply_to.request_id, flags, document);
            }
            ReplyForm::Reply => {
                let to = reply_to.request_id;
                write_op_reply(&mut bytes, request_id, to, ReplyFlags::NONE, document);
            }
        }
        out.push(Action::Send { connection: id, bytes });
        request_id
    }

    fn close(&mut self, id: ConnectionId, out: &mut Vec<Action>) {
        if self.connections.remove(&id).is_some() {
            out.push(Action::Close { connection: id });
        }
    }
}
