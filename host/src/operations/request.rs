//! Requests: what an operation sends, where to, and by which rules.

use std::borrow::Cow;
use std::sync::Arc;

use bson::{RawDocument, RawDocumentBuf};
use sdam_core::config::ServerAddress;
use sdam_core::handshake::ConnectionDescription;
use sdam_core::operation::{CommandMessage, OperationOptions, Timeout};
use sdam_core::selection::Criteria;

use crate::machines::runtime::Runtime;
use crate::observe::spans::OperationSpan;
use crate::operations::checked_out::CheckedOut;
use crate::operations::exchange::Reply;
use crate::operations::session::ClientSession;

/// An operation that is to be performed: its command, and what is to be known of it.
#[derive(Debug)]
#[non_exhaustive]
pub struct Request<'a, R: Runtime> {
    /// The command. What the driver adds to it is not in there: `lsid`, `txnNumber`, `readConcern`
    /// and `maxTimeMS` by what is said below.
    pub message: Message<'a>,
    /// The rules by which it is sent, or those that hold before it is written.
    pub options: &'a OperationOptions,
    /// The server that it goes to.
    pub target: Target<'a, R>,
    /// The session, `None` to send none; [`Client::implicit_session`] is for operations that were
    /// given none.
    ///
    /// [`Client::implicit_session`]: crate::Client::implicit_session
    pub session: Option<&'a mut ClientSession<R>>,
    /// The limit of everything.
    pub timeout: Timeout,
    /// The span of the operation that this is a part of; `None` if it is one by itself, which is
    /// named after its command. A command that is still to be written has no name by itself.
    pub span: Option<&'a OperationSpan>,
    /// True if the metrics count it as an operation; a part of one that is
    /// [counted](crate::Client::counted_operation) as a whole is none.
    pub counted: bool,
    /// True if the server may answer with several replies, each of which takes a request like this
    /// one, over the same connection: while one is due, that is waited for, and nothing is sent
    /// (OP_MSG, "exhaustAllowed"). Servers do so for `getMore` alone, and the connection has to be
    /// one [in use](Target::Connection).
    pub exhaust: bool,
    /// The place for replies that another attempt is made after, as after one whose write concern
    /// was not met; `None` to forget them. A cursor that such a reply has opened is to be closed.
    pub superseded: Option<&'a mut Vec<Reply>>,
}

/// The command of an operation: one that is known, or one that depends on the server.
#[derive(Debug)]
#[non_exhaustive]
pub enum Message<'a> {
    /// This one.
    Known(CommandMessage<'a>),
    /// One that is written for the first connection that is checked out for it. Further attempts
    /// send it as it is.
    ToWrite(ToWrite<'a>),
}

impl<'a> From<CommandMessage<'a>> for Message<'a> {
    fn from(message: CommandMessage<'a>) -> Self {
        Self::Known(message)
    }
}

impl<'a> Message<'a> {
    /// Leaves the command to be written by `write`, once the connection is known; `name` is what
    /// the log calls the operation before.
    ///
    /// If `write` returns `None`, the operation ends with
    /// [`NotWritten`](sdam_core::operation::InvalidCommand::NotWritten).
    pub fn to_write(
        name: impl Into<Cow<'a, str>>,
        write: impl FnOnce(&ConnectionDescription) -> Option<WrittenCommand<'a>> + Send + 'a,
    ) -> Self {
        let name = name.into();
        Self::ToWrite(ToWrite { name, write: Some(Box::new(write)), written: None })
    }

    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Known(message) => message.name(),
            Self::ToWrite(to_write) => &to_write.name,
        }
    }
}

/// A command that depends on the server: see [`Message::to_write`].
pub struct ToWrite<'a> {
    name: Cow<'a, str>,
    pub(crate) write: Option<Write<'a>>,
    pub(crate) written: Option<WrittenCommand<'a>>,
}

pub(crate) type Write<'a> =
    Box<dyn FnOnce(&ConnectionDescription) -> Option<WrittenCommand<'a>> + Send + 'a>;

impl std::fmt::Debug for ToWrite<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ToWrite")
            .field("name", &self.name)
            .field("written", &self.written)
            .finish_non_exhaustive()
    }
}

/// A command that was written for a server, and the rules by which it is sent.
///
/// Printed, it is its name and its length: the documents may be secret.
#[derive(Clone)]
#[non_exhaustive]
pub struct WrittenCommand<'a> {
    /// The database.
    pub database: Arc<str>,
    /// The command, whose first field is its name.
    pub body: RawDocumentBuf,
    /// The document sequences, each a name and its documents.
    pub sequences: Vec<(&'a str, Vec<&'a RawDocument>)>,
    /// The rules by which it is sent.
    pub options: OperationOptions,
}

impl std::fmt::Debug for WrittenCommand<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WrittenCommand")
            .field("message", &CommandMessage::new(&self.database, &self.body))
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl<'a> WrittenCommand<'a> {
    /// Describes a command without document sequences.
    pub const fn new(database: Arc<str>, body: RawDocumentBuf, options: OperationOptions) -> Self {
        Self { database, body, sequences: Vec::new(), options }
    }

    /// Replaces [`sequences`](Self::sequences).
    #[must_use]
    pub fn with_sequences(mut self, sequences: Vec<(&'a str, Vec<&'a RawDocument>)>) -> Self {
        self.sequences = sequences;
        self
    }
}

/// The server that an operation goes to.
#[derive(Debug)]
#[non_exhaustive]
pub enum Target<'a, R: Runtime> {
    /// One that is selected.
    Select(Arc<Criteria>),
    /// The member at this address, where a cursor was opened; it is told the read preference of the
    /// criteria. If nothing is known of it now, it is waited for as servers that are selected are.
    Member(&'a ServerAddress, Arc<Criteria>),
    /// The server of a connection in use, over that very connection, as for a cursor behind a load
    /// balancer.
    Connection(&'a mut CheckedOut<R>),
}

impl<'a, R: Runtime> Request<'a, R> {
    /// Describes an operation by itself without session and time-out.
    pub fn new(
        message: impl Into<Message<'a>>,
        options: &'a OperationOptions,
        target: Target<'a, R>,
    ) -> Self {
        let (message, timeout) = (message.into(), Timeout::Unset);
        Self {
            message,
            options,
            target,
            session: None,
            timeout,
            span: None,
            counted: true,
            exhaust: false,
            superseded: None,
        }
    }

    /// Replaces [`session`](Self::session).
    #[must_use]
    pub fn with_session(mut self, session: Option<&'a mut ClientSession<R>>) -> Self {
        self.session = session;
        self
    }

    /// Replaces [`timeout`](Self::timeout).
    #[must_use]
    pub const fn with_timeout(mut self, timeout: Timeout) -> Self {
        self.timeout = timeout;
        self
    }

    /// Replaces [`span`](Self::span).
    #[must_use]
    pub const fn with_span(mut self, span: Option<&'a OperationSpan>) -> Self {
        self.span = span;
        self
    }

    /// Replaces [`counted`](Self::counted).
    #[must_use]
    pub const fn with_counted(mut self, counted: bool) -> Self {
        self.counted = counted;
        self
    }

    /// Replaces [`superseded`](Self::superseded).
    #[must_use]
    pub fn with_superseded(mut self, superseded: Option<&'a mut Vec<Reply>>) -> Self {
        self.superseded = superseded;
        self
    }

    /// Replaces [`exhaust`](Self::exhaust).
    #[must_use]
    pub const fn with_exhaust(mut self, exhaust: bool) -> Self {
        self.exhaust = exhaust;
        self
    }
}

#[cfg(test)]
mod tests {
    use sdam_core::bson::rawdoc;
    use sdam_core::operation::{CommandMessage, OperationOptions};

    use super::{Message, WrittenCommand};

    /// Command Logging and Monitoring, "Security": a password is in no text.
    #[test]
    fn what_is_printed_of_a_command_has_no_document() {
        let command = rawdoc! { "createUser": "a", "pwd": "swordfish" };
        let document = rawdoc! { "a": "swordfish" };
        let sequences: [(&str, &[&bson::RawDocument]); 1] = [("documents", &[&document])];
        let known = CommandMessage::new("admin", &command).with_sequences(&sequences);
        let written =
            WrittenCommand::new("admin".into(), command.clone(), OperationOptions::command())
                .with_sequences(vec![("documents", vec![&*document])]);
        let bytes: String = b"swordfish".iter().map(|byte| format!("{byte:02x}")).collect();
        let known = format!("{:?}", Message::from(known));
        for text in [known, format!("{written:?}")] {
            assert!(text.contains("createUser") && text.contains("admin"), "{text}");
            assert!(!text.contains("swordfish") && !text.contains(&bytes), "{text}");
        }
    }
}
