//! Hello: answered at once, awaited, or streamed.

use std::time::Duration;

use bson::RawDocumentBuf;
use sdam_core::bson;
use sdam_core::time::Instant;
use sdam_core::wire::Flags;

use super::command_error::CommandError;
use super::connection::Then;
use super::election::later;
use super::fail_point::Injection;
use super::model::{Action, Cluster, ConnectionId};
use super::protocol::{Hello, ReplyForm, ReplyTo};
use super::reply;
use super::shutdown::farewell;

/// The shortest time between two replies of a stream, so that a client that waits for no time at
/// all does not get them all at once.
const MIN_STREAM_INTERVAL: Duration = Duration::from_millis(1);

impl Cluster {
    /// Answers a hello, now or when there is something new to say; `fields` go with the answer.
    pub(super) fn greet(
        &mut self,
        now: Instant,
        id: ConnectionId,
        reply_to: ReplyTo,
        hello: Hello,
        fields: RawDocumentBuf,
        out: &mut Vec<Action>,
    ) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.login.greeting = Some(fields);
        }
        let member = self.connections.get(&id).map(|connection| connection.member);
        let Some(process) = member.and_then(|member| self.process(member)) else {
            return;
        };
        let counter = process.counter;
        // One that is shutting down has no time to wait.
        let known = hello.wait.filter(|it| it.process_id == process.process_id);
        let known = known.filter(|_| !process.is_ending());
        match known {
            Some(wait) if wait.counter > counter => {
                let error = CommandError::counter_ahead(wait.counter, counter);
                self.send(now, id, reply_to, Flags::NONE, reply::error(&error), out);
            }
            Some(wait) if wait.counter == counter && !wait.max.is_zero() => {
                self.wait(id, later(now, wait.max), Then::SayHello(reply_to, hello));
            }
            _ => self.say_hello(now, id, reply_to, hello, out),
        }
    }

    pub(super) fn say_hello(
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
        if let Some(farewell) = self.process(connection.member).and_then(|it| farewell(now, it)) {
            self.send(now, id, reply_to, Flags::NONE, farewell, out);
            return;
        }
        let mut document = self.hello_reply(now, connection, &hello);
        let connection = self.connections.get_mut(&id);
        let fields = connection.and_then(|it| it.login.greeting.take()).unwrap_or_default();
        for (name, value) in fields.iter().flatten() {
            document.append(name, value);
        }
        let exhaust = matches!(reply_to.form, ReplyForm::Msg { exhaust: true, .. });
        if hello.wait.is_none() || !exhaust {
            self.send(now, id, reply_to, Flags::NONE, document, out);
            return;
        }
        // OP_MSG, "moreToCome On Responses": each reply answers the one before it.
        let request_id = self.send(now, id, reply_to, Flags::MORE_TO_COME, document, out);
        let reply_to = ReplyTo { request_id, ..reply_to };
        // The next hello of the stream begins, as if the client had asked for it.
        let injection = self.injection(id, hello.command());
        match injection.block {
            Duration::ZERO => self.go_on(now, id, reply_to, hello, injection, out),
            block => self.wait(id, later(now, block), Then::Stream(reply_to, hello, injection)),
        }
    }

    /// Goes on with a stream, unless a fail point ends it.
    pub(super) fn go_on(
        &mut self,
        now: Instant,
        id: ConnectionId,
        reply_to: ReplyTo,
        hello: Hello,
        injection: Injection,
        out: &mut Vec<Action>,
    ) {
        let member = self.connections.get(&id).map(|connection| connection.member);
        match (injection.error, member) {
            _ if injection.close => self.close(id, out),
            (Some(error), Some(member)) => {
                let document = self.error_reply(member, &error);
                self.send(now, id, reply_to, Flags::NONE, document, out);
            }
            _ => {
                let max = hello.wait.map_or(Duration::ZERO, |wait| wait.max);
                let until = later(now, max.max(MIN_STREAM_INTERVAL));
                self.wait(id, until, Then::SayHello(reply_to, hello));
            }
        }
    }
}
