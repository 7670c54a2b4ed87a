//! The reply to a command: what it says, and where it came from.

use std::ops::Deref;

use bson::{RawBsonRef, RawDocument};

use super::cluster_time::Clock;
use super::connection::malformed;
use super::{Runtime, Shared};
use sdam_core::config::ServerAddress;
use sdam_core::failure::{Cause, Failure, Stage};
use sdam_core::hello::ReplyDocument;
use sdam_core::id::ConnectionId;
use sdam_core::operation::{CommandError, OperationError, is_one};
use sdam_core::time::Instant;
use sdam_core::wire::{Flags, Message, WireError};

/// A successful reply: a document, in the memory it was read into, and where it came from.
///
/// A cursor that it opens is continued at the same server, see [`Client::member`]; behind a load
/// balancer over the same connection, which must be on loan for that.
///
/// [`Client::member`]: super::Client::member
#[derive(Clone, Debug)]
pub struct Reply {
    document: ReplyDocument,
    write_concern_error: Option<Box<CommandError>>,
    origin: Origin,
}

/// The place that a reply comes from.
#[derive(Clone, Debug)]
pub(super) struct Origin {
    pub(super) server: ServerAddress,
    pub(super) connection: ConnectionId,
}

impl Reply {
    /// Returns the address of the server that has replied; behind a load balancer, the balancer's.
    pub const fn server(&self) -> &ServerAddress {
        &self.origin.server
    }

    /// Returns the number, in the server's pool, of the connection over which the reply came.
    pub const fn connection_id(&self) -> ConnectionId {
        self.origin.connection
    }

    /// Returns the document.
    pub const fn document(&self) -> &ReplyDocument {
        &self.document
    }

    /// Returns the document alone.
    pub fn into_document(self) -> ReplyDocument {
        self.document
    }

    /// Returns the error of the write concern: the command succeeded, but not to the extent asked
    /// for. The topology was told, if it says something of the server.
    pub fn write_concern_error(&self) -> Option<&CommandError> {
        self.write_concern_error.as_deref()
    }
}

impl Deref for Reply {
    type Target = RawDocument;

    fn deref(&self) -> &RawDocument {
        &self.document
    }
}

/// What a message from the server was.
pub(super) struct Received {
    /// The reply, or the error that the server replied with.
    pub(super) reply: Result<Reply, CommandError>,
    /// The number of the message, if more follow without being asked for.
    pub(super) more: Option<i32>,
}

impl<R: Runtime> Shared<R> {
    /// Returns by when to send or to receive: by the operation's deadline, and if there is none,
    /// within socketTimeoutMS, which timeoutMS overrides (CSOT, "Backwards Breaking
    /// Considerations").
    pub(super) fn limit(&self, deadline: Option<Instant>) -> Option<Instant> {
        let options = &self.options;
        let socket_timeout = options.socket_timeout().filter(|_| options.timeout().is_none());
        deadline.or_else(|| socket_timeout.map(|timeout| self.runtime.now() + timeout))
    }

    /// As [`limit`](Self::limit), but refuses to send what is too late: nobody would wait for the
    /// reply, and the connection would be lost in vain.
    pub(super) fn limit_unless_passed(
        &self,
        deadline: Option<Instant>,
    ) -> Result<Option<Instant>, OperationError> {
        if deadline.is_some_and(|deadline| deadline <= self.runtime.now()) {
            let detail = "the time allowed had passed before the command was sent";
            let failure = Failure::new(Stage::Operate, Cause::Timeout, detail);
            return Err(OperationError::Stream(failure));
        }
        Ok(self.limit(deadline))
    }
}

/// Reads a reply to message `request`, and keeps the cluster time it brings.
pub(super) fn digest(
    message: &Message,
    request: i32,
    clock: &Clock,
    origin: Origin,
) -> Result<Received, Failure> {
    let header = message.header();
    if header.response_to != request {
        let (expected, found) = (request, header.response_to);
        return Err(malformed(WireError::ResponseTo { expected, found }));
    }
    let op_msg = message.op_msg().map_err(malformed)?;
    let (mut ok, mut write_concern) = (false, false);
    for element in op_msg.body {
        let (key, value) = element.map_err(malformed)?;
        match (key.as_str(), value) {
            ("ok", value) => ok = is_one(value),
            ("writeConcernError", RawBsonRef::Document(_)) => write_concern = true,
            ("$clusterTime", RawBsonRef::Document(time)) => clock.advance(time),
            _ => {}
        }
    }
    let error = match ok && !write_concern {
        true => None,
        false => CommandError::in_reply(op_msg.body),
    };
    let more = op_msg.flags.contains(Flags::MORE_TO_COME).then_some(header.request_id);
    let reply = match (ok, error) {
        (true, error) => Ok(Reply {
            document: ReplyDocument::new(message.bytes(), op_msg.body),
            write_concern_error: error.map(Box::new),
            origin,
        }),
        (false, error) => Err(error.unwrap_or_default()),
    };
    Ok(Received { reply, more })
}
