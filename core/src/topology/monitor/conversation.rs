//! One link's succession of hello commands and replies, for checks and for RTT measurements alike.

use std::num::NonZeroI64;
use std::sync::Arc;
use std::time::Duration;

use bson::{RawDocument, RawDocumentBuf, cstr};
use serde::Serialize;

use super::{Context, Identity};
use crate::config::OpeningHello;
use crate::description::{ServerDescription, TopologyVersion};
use crate::failure::{Cause, Failure, Stage};
use crate::hello::{self, HelloReply, KnownReply, Repetition};
use crate::id::LinkId;
use crate::operation::unreadable;
use crate::time::Instant;
use crate::topology::{Action, MonitoringConnection};
use crate::wire::{
    self, Awaited, Flags, Frames, MAX_HELLO_LEN, ReplyDocument, RequestIds, WireError,
    write_op_msg, write_op_query,
};

/// One link's succession of hello commands and replies.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Conversation {
    link: LinkId,
    state: ConversationState,
    #[serde(skip)]
    frames: Frames,
    request_id: RequestIds,
    /// True if the server knows the hello command.
    hello_ok: bool,
    /// The server's name for the connection.
    #[serde(skip)]
    server_connection_id: Option<NonZeroI64>,
    /// True if the reply that is due may have come a while before it is read.
    is_left_alone: bool,
}

#[derive(Clone, Copy, Debug, Serialize)]
enum ConversationState {
    /// The stream is being opened, and has come to that stage at that time.
    Opening { stage: Stage, since: Option<Instant> },
    /// Nothing is asked.
    Idle,
    /// A reply is due, or a stream of them.
    Asked { awaited: Awaited, at: Instant },
}

/// A reply that says `ok: 1`.
#[derive(Clone, Debug)]
pub(super) struct CheckReply {
    said: ReplyContent,
    pub(super) document: ReplyDocument,
    /// True if another reply follows without a request.
    pub(super) more_to_come: bool,
    /// The time when the command was sent, or the previous of a stream of replies received.
    pub(super) asked_at: Instant,
}

/// The content of a reply.
#[derive(Clone, Debug)]
enum ReplyContent {
    /// Something new, and whether it is the first reply of the server.
    News(Box<HelloReply>, bool),
    Again(Repetition, Known),
}

/// A reply to a check, and the description that was made of it.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Known {
    pub(super) description: Arc<ServerDescription>,
    /// By what a repetition is known: from the second reply on, as there may be no second.
    #[serde(skip)]
    reply: Option<Arc<KnownReply>>,
}

impl CheckReply {
    /// Returns the freshness that the server claims.
    pub(super) const fn topology_version(&self) -> Option<TopologyVersion> {
        match &self.said {
            ReplyContent::News(hello, _) => hello.topology_version,
            ReplyContent::Again(repetition, _) => repetition.topology_version,
        }
    }

    /// Describes the server that sent this reply; `complete` adds times.
    pub(super) fn describe(
        self,
        identity: &Identity,
        complete: impl FnOnce(&mut ServerDescription),
    ) -> Known {
        let (mut description, reply) = match self.said {
            ReplyContent::News(hello, is_first) => {
                let reply = (!is_first).then(|| KnownReply::new(&self.document, hello.hello_ok));
                let description = hello.into_description(identity.server, identity.address.clone());
                (description, reply.map(Arc::new))
            }
            ReplyContent::Again(Repetition { topology_version, last_write_date }, known) => {
                let known_description = ServerDescription::clone(&known.description);
                let description =
                    ServerDescription { topology_version, last_write_date, ..known_description };
                (description, known.reply)
            }
        };
        complete(&mut description);
        Known { description: Arc::new(description), reply }
    }
}

impl Conversation {
    /// Begins with a link that is being opened.
    pub(super) fn new(link: LinkId) -> Self {
        let state = ConversationState::Opening { stage: Stage::Connect, since: None };
        let frames = Frames::with_limit(MAX_HELLO_LEN);
        Self {
            link,
            state,
            frames,
            request_id: RequestIds::default(),
            hello_ok: false,
            server_connection_id: None,
            is_left_alone: false,
        }
    }

    pub(super) const fn link(&self) -> LinkId {
        self.link
    }

    /// Returns what both sides call the connection.
    pub(super) const fn connection(&self) -> MonitoringConnection {
        MonitoringConnection::new(self.link, self.server_connection_id)
    }

    pub(super) const fn is_opening(&self) -> bool {
        matches!(self.state, ConversationState::Opening { .. })
    }

    /// Takes note that the stream has come that far; returns how long its name was looked up, if
    /// that is over now.
    pub(super) fn reached(&mut self, now_at: Stage, now: Instant) -> Option<Duration> {
        let ConversationState::Opening { stage, since } = &mut self.state else { return None };
        if *stage == now_at {
            return None;
        }
        let (before, began) = (*stage, *since);
        (*stage, *since) = (now_at, Some(now));
        (before == Stage::Resolve).then(|| now - began.unwrap_or(now))
    }

    /// Returns whether the connection is open and the server has answered over it.
    pub(super) const fn is_established(&self) -> bool {
        !self.is_opening() && !self.is_unanswered()
    }

    /// Returns whether the server was greeted, and has not answered.
    pub(super) const fn is_unanswered(&self) -> bool {
        self.request_id.last() == 1 && matches!(self.state, ConversationState::Asked { .. })
    }

    /// Returns how far it has come.
    pub(super) const fn stage(&self) -> Stage {
        match self.state {
            ConversationState::Opening { stage, .. } => stage,
            ConversationState::Idle | ConversationState::Asked { .. } => Stage::Hello,
        }
    }

    /// The reply that is due may have come a while before it is read.
    pub(super) const fn leave_alone(&mut self) {
        self.is_left_alone |= matches!(self.state, ConversationState::Asked { .. });
    }

    /// Returns whether there was a reply, of which it is not known how long it has taken.
    pub(super) const fn is_void(&self) -> bool {
        self.is_left_alone && matches!(self.state, ConversationState::Idle)
    }

    /// Asks once more if how long the reply has taken is not known, as soon as somebody reads what
    /// comes; returns whether it is not.
    pub(super) fn asks_again(&mut self, ctx: &mut Context<'_>) -> bool {
        let is_left_alone = self.is_left_alone;
        if is_left_alone && ctx.attended {
            self.ask(None, ctx);
        }
        is_left_alone
    }

    /// Sends the handshake, and returns whether it was due.
    ///
    /// Legacy hello may go by OP_QUERY; hello never does ("Connection handshake").
    pub(super) fn send_hello(&mut self, ctx: &mut Context<'_>) -> bool {
        if !self.is_opening() {
            return false;
        }
        let options = ctx.options;
        self.hello_ok = hello::opens_with_hello(options);
        let command = hello::handshake(options, ctx.client);
        if options.opening_hello() == OpeningHello::OpQuery && !self.hello_ok {
            let (id, mut bytes) = (self.request_id.next_id(), Vec::new());
            write_op_query(&mut bytes, id, "admin", &command);
            self.send(Awaited::op_reply(id), bytes, ctx);
        } else {
            self.send_op_msg(command, Flags::NONE, ctx);
        }
        true
    }

    /// Sends a check; with `awaitable`, one that the server may answer with a stream of replies.
    pub(super) fn ask(
        &mut self,
        awaitable: Option<(&TopologyVersion, Duration)>,
        ctx: &mut Context<'_>,
    ) {
        let flags = if awaitable.is_some() { Flags::EXHAUST_ALLOWED } else { Flags::NONE };
        self.send_op_msg(hello::check(ctx.options, self.hello_ok, awaitable), flags, ctx);
    }

    /// Takes bytes that came over the link.
    pub(super) fn receive(&mut self, bytes: &[u8]) {
        self.frames.extend(bytes);
    }

    /// Returns the next reply, or `None` if it is not complete yet.
    ///
    /// Fails if what came is not the reply that is due, or is an error; the link is then of no more
    /// use.
    ///
    /// A reply that repeats the `known` one is not read again; what another one has in common with
    /// it is not built again.
    pub(super) fn next_reply(
        &mut self,
        known: Option<&Known>,
    ) -> Result<Option<CheckReply>, Failure> {
        let malformed = |error: WireError| unreadable(Stage::Hello, &error);
        let Some(message) = self.frames.next().map_err(malformed)? else {
            return Ok(None);
        };
        let ConversationState::Asked { awaited, at } = self.state else {
            return Err(self::malformed("the server sent a message that nothing asked for"));
        };
        let wire::Reply { document, next } = awaited.read(&message).map_err(malformed)?;
        let (said, hello_ok) = read(&document, known)?;
        // What one reply has promised holds for the whole connection; the server API implies it.
        self.hello_ok |= hello_ok;
        self.server_connection_id = self.server_connection_id.or_else(|| document.connection_id());
        self.state = next
            .map_or(ConversationState::Idle, |awaited| ConversationState::Asked { awaited, at });
        let more_to_come = next.is_some();
        Ok(Some(CheckReply { said, document, more_to_come, asked_at: at }))
    }

    fn send_op_msg(&mut self, mut command: RawDocumentBuf, flags: Flags, ctx: &mut Context<'_>) {
        command.append(cstr!("$db"), "admin");
        let (id, mut bytes) = (self.request_id.next_id(), Vec::new());
        write_op_msg(&mut bytes, id, 0, flags, &command);
        let awaited = match flags.contains(Flags::EXHAUST_ALLOWED) {
            true => Awaited::stream(id),
            false => Awaited::op_msg(id),
        };
        self.send(awaited, bytes, ctx);
    }

    fn send(&mut self, awaited: Awaited, bytes: Vec<u8>, ctx: &mut Context<'_>) {
        self.state = ConversationState::Asked { awaited, at: ctx.now.clock };
        self.is_left_alone = !ctx.attended;
        ctx.out.push(Action::Send { link: self.link, bytes });
    }
}

/// Reads a reply, and whether it says that the server knows the hello command.
fn read(document: &RawDocument, known: Option<&Known>) -> Result<(ReplyContent, bool), Failure> {
    let malformed = |error| malformed(&format!("a reply to hello in which {error}"));
    if let Some(known) = known
        && let Some(reply) = &known.reply
        && let Some(repetition) = reply.repeated(document).map_err(malformed)?
    {
        return Ok((ReplyContent::Again(repetition, known.clone()), reply.hello_ok));
    }
    let hello = HelloReply::parse(document, known.map(|known| &*known.description));
    let hello = hello.map_err(malformed)?;
    if !hello.ok {
        return Err(hello.refusal());
    }
    let hello_ok = hello.hello_ok;
    Ok((ReplyContent::News(Box::new(hello), known.is_none()), hello_ok))
}

fn malformed(detail: &str) -> Failure {
    Failure::new(Stage::Hello, Cause::Malformed, format!("malformed reply: {detail}"))
}
