//! Requests: what an operation sends, where to, and by which rules.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bson::{RawDocument, RawDocumentBuf};
use sdam_core::config::ServerAddress;
use sdam_core::handshake::ConnectionDescription;
use sdam_core::operation::{CommandMessage, OperationOptions, Timeout};
use sdam_core::selection::Criteria;
use sdam_core::time::Instant;

use crate::error::Error;
use crate::machines::runtime::Runtime;
use crate::operations::checked_out::CheckedOut;
use crate::operations::exchange::Reply;
use crate::operations::observed::ObservedOperation;
use crate::operations::pinned::Pinned;
use crate::operations::session::SessionGuard;

/// An operation that is to be performed: its command, and what is to be known of it. `E` is the
/// error of one that builds its command.
#[non_exhaustive]
pub struct Request<'a, R: Runtime, E = Error> {
    /// The command. What the driver adds to it is not in there: `lsid`, `txnNumber`, `readConcern`
    /// and `maxTimeMS` by what is said below.
    pub message: Message<'a, E>,
    /// The server that it goes to.
    pub target: Target<'a, R>,
    /// The session, `None` to send none; [`ClientSession::implicit`] is for operations that were
    /// given none.
    ///
    /// [`ClientSession::implicit`]: crate::driver::DriverSession::implicit
    pub session: Option<&'a mut SessionGuard<R>>,
    /// The limit of everything.
    pub timeout: Timeout,
    /// The operation that this is a part of, which has a span and is counted as a whole; `None` if
    /// it is one by itself, which is named after its command. One that builds its command has no
    /// name by itself.
    pub operation: Option<&'a mut ObservedOperation<R>>,
    /// A limit of the wait for the reply that may be put off meanwhile, beside
    /// [`timeout`](Self::timeout): the later of the two counts.
    pub extension: Option<&'a Extension>,
    /// The place for replies that another attempt is made after, as after one whose write concern
    /// was not met; `None` to forget them. Kill the cursor that such a reply has opened.
    pub superseded: Option<&'a mut Vec<Reply>>,
    /// True if the caller begins again at another server rather than wait for a
    /// [member](Target::Member) of which nothing is known: it fails as soon as another one can be
    /// selected.
    pub begins_elsewhere: bool,
    /// True if its server waits for something to happen before it replies: it fails when the client
    /// is closed meanwhile.
    pub awaits: bool,
}

impl<R: Runtime, E> fmt::Debug for Request<'_, R, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("message", &self.message)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

/// The command of an operation.
#[non_exhaustive]
pub enum Message<'a, E = Error> {
    /// One that is known, and the rules by which it is sent.
    Known(CommandMessage<'a>, &'a OperationOptions),
    /// One that the operation builds for the first connection that is checked out for it. Further
    /// attempts send it as it is.
    ToBuild(&'a mut dyn BuildCommand<E>),
}

impl<E> fmt::Debug for Message<'_, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known(message, options) => {
                f.debug_tuple("Known").field(message).field(options).finish()
            }
            Self::ToBuild(operation) => f.debug_tuple("ToBuild").field(&operation.name()).finish(),
        }
    }
}

/// An operation whose command depends on the server.
pub trait BuildCommand<E>: Send {
    /// Returns the name by which the log calls the operation.
    fn name(&self) -> Cow<'static, str>;

    /// Returns the rules by which the command is sent, as far as they are known before it is built.
    fn options(&self) -> OperationOptions;

    /// Builds the command for the server of this connection.
    ///
    /// # Errors
    ///
    /// Fails if it cannot be built for this server, which ends the operation.
    fn build(&mut self, connection: &ConnectionDescription) -> Result<BuiltCommand<'_>, E>;
}

/// A command that was built for a server, and the rules by which it is sent.
///
/// Printed, it is its name and its length: the documents may be secret.
#[derive(Clone)]
#[non_exhaustive]
pub struct BuiltCommand<'a> {
    /// The database.
    pub database: Arc<str>,
    /// The command, whose first field is its name.
    pub body: RawDocumentBuf,
    /// The document sequences, each a name and its documents.
    pub sequences: Vec<(&'a str, Vec<&'a RawDocument>)>,
    /// The rules by which it is sent.
    pub options: OperationOptions,
    /// True if it may open a cursor, which behind a load balancer keeps its connection.
    pub opens_cursor: bool,
    /// True if the cursor is to be read in a stream of replies, which takes a connection for itself
    /// (find, getMore and killCursors, "Exhaust").
    pub exhausts_cursor: bool,
}

impl fmt::Debug for BuiltCommand<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BuiltCommand")
            .field("message", &CommandMessage::new(&self.database, &self.body))
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl<'a> BuiltCommand<'a> {
    /// Describes a command without document sequences, which opens no cursor.
    pub const fn new(database: Arc<str>, body: RawDocumentBuf, options: OperationOptions) -> Self {
        let (opens_cursor, exhausts_cursor) = (false, false);
        Self { database, body, sequences: Vec::new(), options, opens_cursor, exhausts_cursor }
    }

    /// Replaces [`sequences`](Self::sequences).
    #[must_use]
    pub fn with_sequences(mut self, sequences: Vec<(&'a str, Vec<&'a RawDocument>)>) -> Self {
        self.sequences = sequences;
        self
    }

    /// Replaces [`opens_cursor`](Self::opens_cursor) and
    /// [`exhausts_cursor`](Self::exhausts_cursor).
    #[must_use]
    pub const fn with_cursor(mut self, opens: bool, exhausts: bool) -> Self {
        self.opens_cursor = opens;
        self.exhausts_cursor = exhausts;
        self
    }
}

/// The time by which the reply to a request is awaited at the latest, which its caller puts off
/// while it waits: one who comes later waits for the reply, too, and has a time of its own.
#[derive(Debug, Default)]
pub struct Extension(AtomicU64);

impl Extension {
    /// Waits until this time, unless it waits longer already.
    pub fn extend(&self, until: Instant) {
        self.0.fetch_max(until.as_nanos(), Ordering::Relaxed);
    }

    /// Returns until when to wait, if that is after `deadline`.
    pub(crate) fn after(&self, deadline: Instant) -> Option<Instant> {
        let until = Instant::from_nanos(self.0.load(Ordering::Relaxed));
        (until > deadline).then_some(until)
    }
}

/// The server that an operation goes to.
#[derive(Debug)]
#[non_exhaustive]
pub enum Target<'a, R: Runtime> {
    /// One that is selected.
    Select(Arc<Criteria>),
    /// The member at this address, where a cursor was opened; it receives the read preference of
    /// the criteria. If nothing is known of it now, it is waited for as servers that are selected
    /// are.
    Member(&'a ServerAddress, Arc<Criteria>),
    /// The server of a connection in use, over that very connection, as for a cursor behind a load
    /// balancer.
    Connection(&'a mut CheckedOut<R>),
    /// The same, where the server may answer with several replies, each of which takes a request
    /// like this one: while one is due, that is waited for, and nothing is sent (OP_MSG,
    /// "exhaustAllowed"). Servers do so for `getMore` alone.
    Stream(&'a mut CheckedOut<R>),
}

impl<'a, R: Runtime> Target<'a, R> {
    /// Returns where an operation goes: to what it is pinned to, or else to a server that is
    /// selected.
    pub fn of(pin: Option<&'a mut Pinned<R>>, criteria: impl FnOnce() -> Criteria) -> Self {
        match pin {
            Some(pin) => pin.target(),
            None => Self::Select(Arc::new(criteria())),
        }
    }
}

impl<'a, R: Runtime> Request<'a, R> {
    /// Describes an operation by itself, whose command is known, without session and time-out.
    pub const fn new(
        message: CommandMessage<'a>,
        options: &'a OperationOptions,
        target: Target<'a, R>,
    ) -> Self {
        Self::of(Message::Known(message, options), target)
    }
}

impl<'a, R: Runtime, E> Request<'a, R, E> {
    /// Describes an operation that builds its command, without session and time-out.
    pub const fn building(operation: &'a mut dyn BuildCommand<E>, target: Target<'a, R>) -> Self {
        Self::of(Message::ToBuild(operation), target)
    }

    const fn of(message: Message<'a, E>, target: Target<'a, R>) -> Self {
        Self {
            message,
            target,
            session: None,
            timeout: Timeout::Unset,
            operation: None,
            extension: None,
            superseded: None,
            begins_elsewhere: false,
            awaits: false,
        }
    }

    /// Replaces [`session`](Self::session).
    #[must_use]
    pub fn with_session(mut self, session: Option<&'a mut SessionGuard<R>>) -> Self {
        self.session = session;
        self
    }

    /// Replaces [`timeout`](Self::timeout).
    #[must_use]
    pub const fn with_timeout(mut self, timeout: Timeout) -> Self {
        self.timeout = timeout;
        self
    }

    /// Replaces [`operation`](Self::operation).
    #[must_use]
    pub fn with_operation(mut self, operation: Option<&'a mut ObservedOperation<R>>) -> Self {
        self.operation = operation;
        self
    }

    /// Replaces [`superseded`](Self::superseded).
    #[must_use]
    pub fn with_superseded(mut self, superseded: Option<&'a mut Vec<Reply>>) -> Self {
        self.superseded = superseded;
        self
    }

    /// Replaces [`begins_elsewhere`](Self::begins_elsewhere).
    #[must_use]
    pub const fn with_begins_elsewhere(mut self, begins_elsewhere: bool) -> Self {
        self.begins_elsewhere = begins_elsewhere;
        self
    }

    /// Replaces [`awaits`](Self::awaits).
    #[must_use]
    pub const fn with_awaits(mut self, awaits: bool) -> Self {
        self.awaits = awaits;
        self
    }

    /// Replaces [`extension`](Self::extension).
    #[must_use]
    pub const fn with_extension(mut self, extension: Option<&'a Extension>) -> Self {
        self.extension = extension;
        self
    }
}

#[cfg(test)]
mod tests {
    use sdam_core::bson::rawdoc;
    use sdam_core::operation::{CommandMessage, OperationOptions};

    use super::{BuiltCommand, Message};

    /// Command Logging and Monitoring, "Security": a password is in no text.
    #[test]
    fn what_is_printed_of_a_command_has_no_document() {
        let command = rawdoc! { "createUser": "a", "pwd": "swordfish" };
        let document = rawdoc! { "a": "swordfish" };
        let sequences: [(&str, &[&bson::RawDocument]); 1] = [("documents", &[&document])];
        let known = CommandMessage::new("admin", &command).with_sequences(&sequences);
        let written =
            BuiltCommand::new("admin".into(), command.clone(), OperationOptions::command())
                .with_sequences(vec![("documents", vec![&*document])]);
        let bytes: String = b"swordfish".iter().map(|byte| format!("{byte:02x}")).collect();
        let options = OperationOptions::command();
        let known = format!("{:?}", <Message<'_>>::Known(known, &options));
        for text in [known, format!("{written:?}")] {
            assert!(text.contains("createUser") && text.contains("admin"), "{text}");
            assert!(!text.contains("swordfish") && !text.contains(&bytes), "{text}");
        }
    }
}
