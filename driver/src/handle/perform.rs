//! The one place where operations meet a client: each command of one is performed by the client's
//! operation machine, with the session and within the time of the operation.

use std::sync::Arc;
use std::time::Duration;

use bson::raw::cstr;
use bson::{RawDocument, RawDocumentBuf};
use sdam_core::config::{ReadConcern, ReadMode, ReadPreference, ServerAddress, WriteConcern};
use sdam_core::description::ServerType;
use sdam_core::handshake::ConnectionDescription;
use sdam_core::operation::{
    AbandonedCursor, CommandMessage, MaxTime, OperationKind, OperationOptions, Timeout, add_labels,
};
use sdam_core::pool::Purpose;
use sdam_core::selection::Criteria;
use sdam_core::wire::ReplyDocument;
use sdam_host::{
    CheckedOut, CountedOperation, Message, OperationSpan, Reply, Request, Runtime, Target,
    WrittenCommand,
};

use super::session::{ClientSession, Lent};
use super::span;
use crate::command::{Command, Facts, Operation, Progress, Route, Scope, check_name};
use crate::cursor::{CursorState, Settings};
use crate::error::{ArgumentError, Error};

/// The part that all handles have: the client, and the concerns of their operations.
pub(crate) struct Handle<R: Runtime> {
    /// The session of the application's; without one, each operation has one for itself. It is
    /// dropped before the client, which ends the sessions that it has then.
    pub(crate) session: Option<ClientSession<R>>,
    pub(crate) client: sdam_host::Client<R>,
    pub(crate) concerns: Arc<Concerns>,
}

/// The concerns of a handle; each takes over those of the one it comes from.
#[derive(Clone, Debug, Default)]
pub(crate) struct Concerns {
    pub(crate) read_preference: ReadPreference,
    pub(crate) read_concern: ReadConcern,
    pub(crate) write_concern: WriteConcern,
    /// `timeoutMS`, where it is not that of the client.
    pub(crate) timeout: Option<Duration>,
}

/// The place that a reply has come from, as far as a cursor needs to know.
pub(crate) struct Origin<R: Runtime> {
    server: ServerAddress,
    /// The selection of the server, which may have to be told its read preference again.
    criteria: Arc<Criteria>,
    /// The very connection, behind a load balancer, or of a cursor that is streamed.
    pinned: Option<CheckedOut<R>>,
    /// True if the server may send one batch after the other.
    is_streamed: bool,
}

/// The outcome of an operation, and what goes on with a cursor that it may have opened.
pub(crate) struct Opened<R: Runtime, T> {
    pub(crate) outcome: T,
    /// Present if a command had a reply.
    pub(crate) origin: Option<Origin<R>>,
    pub(crate) session: ClientSession<R>,
    pub(crate) timeout: Timeout,
}

/// A cursor that nobody reads any more, and the command that closes it.
pub(crate) struct Dropped<R: Runtime> {
    origin: Origin<R>,
    session: ClientSession<R>,
    database: Arc<str>,
    collection: Arc<str>,
    id: i64,
    kill: RawDocumentBuf,
}

/// The limits of a command that goes on with a cursor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) timeout: Timeout,
    pub(crate) max_time: MaxTime,
}

/// The part of all commands of an operation: its session, its limit, and what tells of it.
struct Whole<'a, R: Runtime> {
    session: Lent<'a, R>,
    timeout: Timeout,
    span: &'a OperationSpan,
    counted: &'a mut CountedOperation<R>,
    /// The connection of commands that are not acknowledged: over another one, a command could
    /// overtake the one before it.
    held: Option<CheckedOut<R>>,
    /// Replies that another attempt was made after.
    superseded: &'a mut Vec<Reply>,
    /// The labels of all errors of write concerns, with those that the client has added.
    labels: Vec<String>,
}

/// An operation, whatever becomes of it: cursors that it leaves open are closed in the background.
struct Attempted<'a, R: Runtime, O: Operation> {
    handle: &'a Handle<R>,
    operation: &'a mut O,
    origin: Option<Origin<R>>,
    /// Present until it has succeeded.
    session: Option<ClientSession<R>>,
    superseded: Vec<Reply>,
}

/// The reason why a command of an operation has no reply.
enum Unanswered {
    /// It was not written.
    NotWritten(Error),
    Failed(Error),
}

impl<R: Runtime> Handle<R> {
    pub(crate) fn new(client: sdam_host::Client<R>) -> Self {
        let options = client.host().options();
        let concerns = Concerns {
            read_preference: options.read_preference().clone(),
            read_concern: ReadConcern::default()
                .with_level(options.read_concern_level().map(ToOwned::to_owned)),
            write_concern: options.write_concern().clone(),
            timeout: None,
        };
        Self { client, concerns: Arc::new(concerns), session: None }
    }

    /// Returns a handle with other concerns.
    pub(crate) fn with(&self, change: impl FnOnce(&mut Concerns)) -> Self {
        let mut concerns = (*self.concerns).clone();
        change(&mut concerns);
        Self { concerns: Arc::new(concerns), ..self.clone() }
    }

    /// Returns a handle whose operations are run with a session.
    pub(crate) fn with_session(&self, session: &ClientSession<R>) -> Self {
        Self { session: Some(session.clone()), ..self.clone() }
    }

    /// Returns the scope of an operation on a collection, or on a database if `collection` is
    /// empty.
    ///
    /// # Errors
    ///
    /// Fails if no server takes the name of the database.
    pub(crate) fn scope(
        &self,
        database: &Arc<str>,
        collection: &Arc<str>,
    ) -> Result<Scope, ArgumentError> {
        check_name(database)?;
        Ok(Scope {
            database: Arc::clone(database),
            collection: Arc::clone(collection),
            read_concern: self.concerns.read_concern.clone(),
            write_concern: self.concerns.write_concern.clone(),
            has_timeout: self.timeout().is_set(),
        })
    }

    /// Returns the limit of an operation that begins now.
    pub(crate) fn timeout(&self) -> Timeout {
        self.client.timeout(self.concerns.timeout)
    }

    /// Returns `timeoutMS` of its operations, if it is not that of the client.
    pub(crate) fn timeout_of_operations(&self) -> Option<Duration> {
        self.concerns.timeout
    }

    /// Runs an operation, and returns its outcome.
    pub(crate) async fn run<O: Operation + Send>(
        &self,
        scope: &Scope,
        mut operation: O,
    ) -> Result<O::Output, Error> {
        Ok(self.open(scope, &mut operation).await?.outcome)
    }

    /// As [`run`](Self::run); returns besides what a cursor needs that was opened.
    ///
    /// All commands have one session, and one limit of their time.
    pub(crate) async fn open<O: Operation + Send>(
        &self,
        scope: &Scope,
        operation: &mut O,
    ) -> Result<Opened<R, O::Output>, Error> {
        let span = span::begin(&self.client, scope, operation);
        let mut counted = self.client.counted_operation(operation.covered_name());
        let outcome = self.perform((&span, &mut counted), scope, operation).await;
        counted.end_with(|| outcome.as_ref().err().map(Error::error_type));
        span::end(span, &outcome);
        outcome
    }

    async fn perform<O: Operation + Send>(
        &self,
        (span, counted): (&OperationSpan, &mut CountedOperation<R>),
        scope: &Scope,
        operation: &mut O,
    ) -> Result<Opened<R, O::Output>, Error> {
        let timeout = self.timeout();
        let limit = self.concerns.timeout.or(self.client.host().options().timeout());
        operation.timing().check(limit).map_err(ArgumentError::from)?;
        let implicit = || ClientSession::of(self.client.implicit_session());
        let session = self.session.clone().unwrap_or_else(implicit);
        let mut attempted = Attempted::new(self, operation, session);
        let Attempted { operation, origin, session, superseded, .. } = &mut attempted;
        let session = session.as_ref().expect("it is there until the operation has succeeded");
        let lent = session.lend(&self.client, timeout).await?;
        let (held, labels) = (None, Vec::new());
        let mut whole = Whole { session: lent, timeout, span, counted, held, superseded, labels };
        let outcome = loop {
            let answer = self.exchange(scope, *operation, &mut whole, origin).await;
            let progress = match answer {
                Ok(reply) => operation.reply(scope, &reply),
                Err(Unanswered::NotWritten(error)) => Err(error),
                Err(Unanswered::Failed(error)) => operation.failed(error),
            };
            match progress {
                Ok(Progress::Next) => {}
                Ok(Progress::Done(outcome)) => break outcome,
                Err(error) => return Err(error.with_labels(&whole.labels)),
            }
        };
        drop(whole);
        let (origin, session) = attempted.end();
        Ok(Opened { outcome, origin, session, timeout })
    }

    /// Has the next command of an operation be written and performed, and returns its reply: an
    /// empty one, if none was asked for.
    async fn exchange<O: Operation + Send>(
        &self,
        scope: &Scope,
        operation: &mut O,
        whole: &mut Whole<'_, R>,
        origin: &mut Option<Origin<R>>,
    ) -> Result<ReplyDocument, Unanswered> {
        if !operation.continues_cursor() {
            *origin = None;
        }
        let (name, options) = (operation.name(), options(operation));
        let criteria = Arc::new(self.criteria(operation));
        let target = match (origin.as_mut(), &mut whole.held) {
            (Some(origin), _) => origin.target(),
            (None, Some(held)) => Target::Connection(held),
            (None, None) => Target::Select(Arc::clone(&criteria)),
        };
        let (mut cursor, mut is_acknowledged, mut refused) = ((false, false), true, None);
        let (opened, refusal, rules) = (&mut cursor, &mut refused, options.clone());
        let acknowledged = &mut is_acknowledged;
        let write = move |connection: &ConnectionDescription| match write(
            operation,
            scope,
            &Facts::of(connection),
        ) {
            Ok(command) => {
                *opened = (command.opens_cursor, command.exhausts_cursor);
                *acknowledged = command.acknowledged;
                Some(written(scope, rules, command))
            }
            Err(error) => {
                *refusal = Some(error);
                None
            }
        };
        let request = Request::new(Message::to_write(name, write), &options, target)
            .with_session(Some(&mut whole.session))
            .with_timeout(whole.timeout)
            .with_span(Some(whole.span))
            .with_superseded(Some(&mut *whole.superseded))
            .with_counted(false);
        let answer = self.client.operate_and_keep(request).await;
        match (answer, refused) {
            (Ok((reply, kept)), _) => {
                whole.counted.answered_by(reply.server());
                let (opens, exhausts) = cursor;
                let kept = match is_acknowledged {
                    true => kept.filter(|_| opens),
                    false => {
                        whole.held = kept.or(whole.held.take());
                        None
                    }
                };
                whole.superseded.retain(|earlier| !is_same_cursor(earlier, &reply));
                origin.get_or_insert_with(|| Origin::new(reply.server(), criteria, kept, exhausts));
                if let Some(error) = reply.write_concern_error() {
                    add_labels(&mut whole.labels, error.labels.iter().map(String::as_str));
                }
                Ok(reply.into_document())
            }
            (Err(_), Some(refused)) => Err(Unanswered::NotWritten(refused)),
            (Err(error), None) => {
                whole.counted.failed(&error);
                Err(Unanswered::Failed(error.into()))
            }
        }
    }

    /// Sends the next command of a cursor to where it was opened.
    pub(crate) async fn go_on(
        &self,
        origin: &mut Origin<R>,
        session: &ClientSession<R>,
        (database, body): (&str, &RawDocument),
        limits: Limits,
    ) -> Result<ReplyDocument, Error> {
        let mut lent = session.lend(&self.client, limits.timeout).await?;
        let options = OperationOptions::continuing().with_max_time(limits.max_time);
        let message = CommandMessage::new(database, body);
        let is_streamed = origin.is_streamed;
        let request = Request::new(message, &options, origin.target())
            .with_session(Some(&mut lent))
            .with_exhaust(is_streamed)
            .with_timeout(limits.timeout);
        Ok(self.client.operate(request).await?.into_document())
    }

    /// Returns which servers an operation may use.
    fn criteria(&self, operation: &impl Operation) -> Criteria {
        let preference = operation.read_preference();
        let preference = preference.unwrap_or(&self.concerns.read_preference);
        match operation.route() {
            Route::Write => Criteria::write(),
            Route::Read => Criteria::read(preference.clone()),
            Route::ReadPrimary => Criteria::read(ReadPreference::new(ReadMode::Primary)),
            Route::ReadSince(version) => Criteria::read_since(preference.clone(), version),
        }
    }
}

impl<'a, R: Runtime, O: Operation> Attempted<'a, R, O> {
    const fn new(handle: &'a Handle<R>, operation: &'a mut O, session: ClientSession<R>) -> Self {
        let session = Some(session);
        Self { handle, operation, origin: None, session, superseded: Vec::new() }
    }

    /// Takes what a cursor needs that is the outcome.
    fn end(mut self) -> (Option<Origin<R>>, ClientSession<R>) {
        self.bury_superseded();
        let session = self.session.take().expect("it is there until the operation has succeeded");
        (self.origin.take(), session)
    }

    /// Closes the cursors of attempts that others were made after. Behind a load balancer they are
    /// left to time: their connections are gone, which those others may have needed.
    fn bury_superseded(&mut self) {
        let Handle { client, .. } = self.handle;
        let (session, timeout) = (self.session.as_ref(), self.handle.timeout_of_operations());
        for reply in self.superseded.drain(..) {
            let cursor = CursorState::open("cursor", reply.document(), Settings::default());
            let cursor = cursor.ok().filter(|cursor| cursor.id() != 0);
            let Some(cursor) = cursor.filter(|_| !client.host().options().load_balanced()) else {
                continue;
            };
            let (database, collection) = cursor.namespace();
            let namespace = (Arc::clone(database), Arc::clone(collection));
            let cursor = AbandonedCursor::new(reply.server().clone(), namespace, cursor.id())
                .with_session(session.and_then(ClientSession::id))
                .with_timeout(timeout);
            client.abandon_cursor(cursor);
        }
    }
}

impl<R: Runtime, O: Operation> Drop for Attempted<'_, R, O> {
    fn drop(&mut self) {
        if self.session.is_none() {
            return;
        }
        self.bury_superseded();
        if let Some(mut cursor) = self.operation.take_cursor()
            && let Some(open) = Dropped::of(&mut cursor, self.origin.take(), self.session.take())
        {
            open.bury(&self.handle.client, self.handle.timeout_of_operations());
        }
    }
}

/// Returns whether two replies are of the same cursor.
fn is_same_cursor(one: &Reply, other: &Reply) -> bool {
    let id = |reply: &Reply| reply.get_document("cursor").ok()?.get_i64("id").ok();
    one.server() == other.server() && id(one) == id(other)
}

impl<R: Runtime> Origin<R> {
    fn new(
        server: &ServerAddress,
        criteria: Arc<Criteria>,
        connection: Option<CheckedOut<R>>,
        exhausts: bool,
    ) -> Self {
        let is_balanced =
            |connection: &CheckedOut<R>| connection.connection_description().service.is_some();
        // "Drivers MAY fallback to a non-exhaust cursor": mongos streams none before 7.1.
        let streams = |connection: &CheckedOut<R>| {
            let is_mongos = connection.connection_description().server_type == ServerType::Mongos;
            exhausts && !is_mongos && !is_balanced(connection)
        };
        let is_streamed = connection.as_ref().is_some_and(streams);
        let pinned = connection.filter(|connection| is_streamed || is_balanced(connection));
        if let Some(connection) = &pinned {
            connection.pin(Purpose::Cursor);
        }
        Self { server: server.clone(), criteria, pinned, is_streamed }
    }

    fn target(&mut self) -> Target<'_, R> {
        match &mut self.pinned {
            Some(connection) => Target::Connection(connection),
            None => Target::Member(&self.server, Arc::clone(&self.criteria)),
        }
    }

    /// Returns whether a cursor is bound to a connection.
    pub(crate) const fn is_pinned(&self) -> bool {
        self.pinned.is_some() && !self.is_streamed
    }

    /// Closes the connection if further batches come over it without being asked for; the server is
    /// then to be reached over another one.
    fn without_stream(self) -> Self {
        match self.pinned.as_ref().is_some_and(CheckedOut::is_streaming) {
            true => Self { pinned: None, is_streamed: false, ..self },
            false => self,
        }
    }

    /// Returns another way to the server, unless the cursor is pinned to its connection.
    pub(crate) fn other(&self) -> Option<Self> {
        let (server, criteria) = (self.server.clone(), Arc::clone(&self.criteria));
        let other = Self { server, criteria, pinned: None, is_streamed: false };
        (!self.is_pinned()).then_some(other)
    }
}

impl<R: Runtime> Dropped<R> {
    /// Takes a cursor for closed; returns what closes it at its server, if it is open there.
    pub(crate) fn of(
        cursor: &mut CursorState,
        origin: Option<Origin<R>>,
        session: Option<ClientSession<R>>,
    ) -> Option<Self> {
        // "The client MUST either consume all messages with the moreToCome flag set or close the
        // connection" (OP_MSG); before 4.4, the server does not close the cursor with that.
        let origin = origin.map(Origin::without_stream);
        let (id, collection) = (cursor.id(), Arc::clone(cursor.namespace().1));
        let (database, kill) = cursor.kill()?;
        Some(Self { origin: origin?, session: session?, database, collection, id, kill })
    }

    /// Closes the cursor at its server; whether that succeeds is not told: "the result of the
    /// operation SHOULD be ignored" (Run Command, "Iteration and Destruction").
    pub(crate) async fn kill(self, client: &sdam_host::Client<R>, limits: Limits) {
        let Self { mut origin, session, database, mut kill, .. } = self;
        // An operation of the application's may use its session at any time.
        let mut lent = match session.id().filter(|_| !session.is_last()) {
            Some(id) => {
                kill.append(cstr!("lsid"), id);
                None
            }
            None => session.try_lend(),
        };
        let options = OperationOptions::continuing().with_max_time(limits.max_time);
        let request =
            Request::new(CommandMessage::new(&database, &kill), &options, origin.target())
                .with_session(lent.as_deref_mut())
                .with_timeout(limits.timeout);
        let _ = client.operate(request).await;
    }

    /// Has a task of the runtime's close the cursor; nothing waits for that. Its time begins with
    /// the task, which of a client without threads is when the client is used next.
    pub(crate) fn bury(self, client: &sdam_host::Client<R>, timeout: Option<Duration>) {
        if self.origin.is_pinned() {
            // It has a connection already, so that there cannot be too many.
            return client.spawn(move |client| async move {
                let limits = Limits::of_kill(&client, timeout);
                self.kill(&client, limits).await;
            });
        }
        let Self { origin, session, database, collection, id, .. } = self;
        let cursor = AbandonedCursor::new(origin.server, (database, collection), id)
            .with_session(session.id())
            .with_timeout(timeout);
        // A session of its own goes back first, so that the command may be sent with it.
        drop(session);
        client.abandon_cursor(cursor);
    }
}

impl Limits {
    /// Limits the closing of a cursor that the application has not asked for: with `timeoutMS`, it
    /// has that time anew (CSOT, "Cursors").
    pub(crate) fn of_kill<R: Runtime>(
        client: &sdam_host::Client<R>,
        timeout: Option<Duration>,
    ) -> Self {
        let (timeout, max_time) = client.closing_timeout(timeout);
        Self { timeout, max_time }
    }
}

/// Returns the rules by which the next command of an operation is sent, as far as they are known
/// before it is written.
fn options(operation: &impl Operation) -> OperationOptions {
    let options = match operation.kind() {
        OperationKind::Write => OperationOptions::write(),
        OperationKind::Command => OperationOptions::command(),
        _ => OperationOptions::read(),
    };
    match operation.continues_cursor() {
        true => OperationOptions::continuing(),
        false => options
            .with_retryable(operation.is_retryable())
            .with_max_time(operation.timing().of_first()),
    }
}

/// Writes the next command of an operation. One that the server refuses for its length is refused
/// here if there is no reply that would say so.
fn write<'a>(
    operation: &'a mut impl Operation,
    scope: &Scope,
    facts: &Facts,
) -> Result<Command<'a>, Error> {
    let command = operation.command(scope, facts)?;
    let (length, limit) = (command.body.as_bytes().len(), facts.max_sent_len());
    match length > limit && !command.acknowledged {
        true => Err(ArgumentError::CommandTooLong { length, limit }.into()),
        false => Ok(command),
    }
}

/// Hands a command over, with the rules by which it is sent.
fn written<'a>(scope: &Scope, rules: OperationOptions, command: Command<'a>) -> WrittenCommand<'a> {
    let read_concern = command.read_concern(scope);
    let Command { database, body, sequences, acknowledged, retryable, .. } = command;
    let options = rules
        .with_acknowledged(acknowledged)
        .with_retryable(retryable)
        .with_read_concern(read_concern);
    WrittenCommand::new(database, body, options).with_sequences(sequences)
}

impl Facts {
    /// Takes what the server of a connection has said.
    fn of(connection: &ConnectionDescription) -> Self {
        Self {
            max_message_size_bytes: connection.max_message_size_bytes,
            max_write_batch_size: connection.max_write_batch_size,
            max_bson_object_size: connection.max_bson_object_size,
            ..Self::of_wire_version(connection.max_wire_version)
        }
    }
}

impl<R: Runtime> Clone for Handle<R> {
    fn clone(&self) -> Self {
        Self {
            client: self.client.clone(),
            concerns: Arc::clone(&self.concerns),
            session: self.session.clone(),
        }
    }
}
