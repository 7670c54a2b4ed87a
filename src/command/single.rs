//! Operations of one command: all that they have in common, and the rules by which commands are
//! sent.

use std::borrow::Cow;

use bson::raw::{BindRawBsonRef, CStr, cstr};
use bson::{RawBsonRef, RawDocument, RawDocumentBuf};
use sdam_core::operation::OperationKind;
use sdam_core::session::TransactionError;
use sdam_core::wire::ReplyDocument;

use super::fields::Fields;
use super::{Command, Facts, Operation, Progress, Route, Scope, is_left_out};
use crate::cursor::Timing;
use crate::error::Error;
use crate::value::begin_command;

/// An operation of one command. Its name, the rules by which it is sent, its arguments and its
/// outcome are its own; everything else is the same for all.
pub trait SingleCommand {
    /// The outcome.
    type Output;

    /// The name of the command, and of the operation unless [`name`](Self::name) differs.
    const COMMAND: &'static CStr;

    /// The rules by which the command is sent, unless [`rules`](Self::rules) differs.
    const RULES: Rules;

    /// As [`Operation::name`].
    fn name(&self) -> &'static str {
        Self::COMMAND.as_str()
    }

    /// Returns the rules by which the command is sent.
    fn rules(&self) -> Rules {
        Self::RULES
    }

    /// Returns what the command is about.
    fn target(&self) -> Target<'_> {
        Target::Collection
    }

    /// As [`Operation::timing`].
    fn cursor_timing(&self) -> Timing {
        Timing::default()
    }

    /// As [`Operation::check_in_transaction`].
    fn check_in_transaction(&self) -> Result<(), TransactionError> {
        Ok(())
    }

    /// Writes the arguments into the command.
    fn write(&mut self, body: &mut Body<'_>) -> Result<(), Error>;

    /// Returns the document sequences of the command.
    fn sequences(&self) -> Vec<(&'static str, Vec<&RawDocument>)> {
        Vec::new()
    }

    /// Returns the outcome that the reply has.
    fn read(&mut self, scope: &Scope, reply: &ReplyDocument) -> Result<Self::Output, Error>;

    /// Returns the outcome that an error of this code stands for, if it is none for the operation.
    fn read_code(&self, _code: i32) -> Option<Self::Output> {
        None
    }
}

/// The subject of a command, which stands behind its name.
#[non_exhaustive]
pub enum Target<'a> {
    /// The collection of the handle; the number 1 for its database.
    Collection,
    /// A collection that the operation names.
    Named(&'a str),
    /// The database of the handle: the number 1.
    Database,
    /// The deployment: the number 1, on the database `admin`.
    Deployment,
    /// The collection of the handle with its database, on the database `admin`.
    Namespace,
}

/// The document of a command, while it is written for a server.
pub struct Body<'a> {
    document: RawDocumentBuf,
    pub(crate) scope: &'a Scope,
    pub(crate) facts: &'a Facts,
}

impl Body<'_> {
    /// Adds a field.
    pub(crate) fn append(&mut self, name: &CStr, value: impl BindRawBsonRef) {
        self.document.append(name, value);
    }

    /// Adds options, but for these, and those that this server is not sent.
    pub(crate) fn options(&mut self, options: &Fields, but: &[&'static CStr]) -> Result<(), Error> {
        options.write_if(&mut self.document, |option| {
            !but.contains(&option) && !is_left_out(self.scope, self.facts, option)
        })
    }

    /// Adds the field `cursor`, with this size of its batches.
    pub(crate) fn cursor(&mut self, batch_size: Option<RawBsonRef<'_>>) {
        let mut cursor = RawDocumentBuf::new();
        if let Some(size) = batch_size {
            cursor.append(cstr!("batchSize"), size);
        }
        self.document.append(cstr!("cursor"), cursor);
    }
}

impl<T: SingleCommand> Operation for T {
    type Output = T::Output;

    fn name(&self) -> &'static str {
        SingleCommand::name(self)
    }

    fn collection(&self) -> Option<&str> {
        match self.target() {
            Target::Named(name) => Some(name),
            _ => None,
        }
    }

    fn command_name(&self) -> Cow<'static, str> {
        T::COMMAND.as_str().into()
    }

    fn kind(&self) -> OperationKind {
        self.rules().kind
    }

    fn is_retryable(&self) -> bool {
        self.rules().is_retryable
    }

    fn timing(&self) -> Timing {
        self.cursor_timing()
    }

    fn route(&self) -> Route {
        self.rules().route
    }

    fn check_in_transaction(&self) -> Result<(), TransactionError> {
        SingleCommand::check_in_transaction(self)
    }

    fn command(&mut self, scope: &Scope, facts: &Facts) -> Result<Command<'_>, Error> {
        let mut body = Body { document: begin_command(), scope, facts };
        match self.target() {
            Target::Collection if !scope.collection.is_empty() => {
                body.append(T::COMMAND, &*scope.collection);
            }
            Target::Named(name) => body.append(T::COMMAND, name),
            Target::Collection | Target::Database | Target::Deployment => {
                body.append(T::COMMAND, 1);
            }
            Target::Namespace => {
                let namespace = format!("{}.{}", scope.database, scope.collection);
                body.append(T::COMMAND, namespace.as_str());
            }
        }
        self.write(&mut body)?;
        let mut command = self.rules().command(scope, body.document)?;
        if matches!(self.target(), Target::Deployment | Target::Namespace) {
            command.database = "admin".into();
        }
        Ok(Command { sequences: self.sequences(), ..command })
    }

    fn reply(
        &mut self,
        scope: &Scope,
        reply: &ReplyDocument,
    ) -> Result<Progress<T::Output>, Error> {
        self.read(scope, reply).map(Progress::Done)
    }

    fn failed(&mut self, error: Error) -> Result<Progress<T::Output>, Error> {
        let outcome = error.code().and_then(|code| self.read_code(code));
        outcome.map(Progress::Done).ok_or(error)
    }
}

/// The rules by which a command is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    pub(crate) kind: OperationKind,
    pub(crate) route: Route,
    /// True if it may be sent once more after an error that says so.
    pub(crate) is_retryable: bool,
    /// True if it takes the read concern of the handle.
    pub(crate) reads: bool,
    /// True if it takes the write concern of the handle.
    pub(crate) writes: bool,
    /// True if the reply is waited for, whatever the write concern says.
    pub(crate) is_awaited: bool,
    /// As [`Command::takes_cluster_time`].
    pub(crate) takes_cluster_time: bool,
    /// As [`Command::opens_cursor`].
    pub(crate) opens_cursor: bool,
    /// As [`Command::exhausts_cursor`].
    pub(crate) exhausts_cursor: bool,
}

impl Rules {
    /// A command that is sent to a server which takes writes, once, and without concerns.
    pub(crate) const RUN: Self = Self {
        kind: OperationKind::Write,
        route: Route::Write,
        is_retryable: false,
        reads: false,
        writes: false,
        is_awaited: true,
        takes_cluster_time: false,
        opens_cursor: false,
        exhausts_cursor: false,
    };

    /// A command that reads, and may be sent again.
    pub(crate) const READ: Self = Self {
        kind: OperationKind::Read,
        route: Route::Read,
        is_retryable: true,
        reads: true,
        ..Self::RUN
    };

    /// A command that lists what there is on the primary, without a read concern.
    pub(crate) const LIST: Self = Self { route: Route::ReadPrimary, reads: false, ..Self::READ };

    /// A command that writes, and may be sent again.
    pub(crate) const WRITE: Self = Self { is_retryable: true, ..Self::WRITE_ONCE };

    /// A command that writes, and is sent once.
    pub(crate) const WRITE_ONCE: Self =
        Self { writes: true, is_awaited: false, takes_cluster_time: true, ..Self::RUN };

    /// The same for a command that may open a cursor.
    pub(crate) const fn opening(self) -> Self {
        Self { opens_cursor: true, ..self }
    }

    /// The same, and whether it may be sent again.
    pub(crate) const fn retryable(self, is_retryable: bool) -> Self {
        Self { is_retryable, ..self }
    }

    /// Makes a command of its document.
    pub(crate) fn command(
        self,
        scope: &Scope,
        mut body: RawDocumentBuf,
    ) -> Result<Command<'static>, Error> {
        if self.writes {
            scope.declare_write_concern(&mut body)?;
        }
        let acknowledged = self.is_awaited || scope.is_acknowledged();
        Ok(Command {
            database: scope.database.clone(),
            body,
            sequences: Vec::new(),
            acknowledged,
            retryable: self.is_retryable && acknowledged,
            takes_read_concern: self.reads,
            takes_cluster_time: self.takes_cluster_time,
            opens_cursor: self.opens_cursor,
            exhausts_cursor: self.exhausts_cursor,
        })
    }
}
