//! The one place where operations meet a client: each command of one is performed by the client's
//! operation machine, with the session and within the time of the operation.

use std::sync::Arc;
use std::time::Duration;

use bson::RawDocument;
use sdam_core::config::{ReadConcern, ReadMode, ReadPreference, WriteConcern};
use sdam_core::handshake::ConnectionDescription;
use sdam_core::operation::{
    CommandMessage, MaxTime, OperationKind, OperationOptions, Timeout, add_labels,
};
use sdam_core::selection::Criteria;
use sdam_core::wire::ReplyDocument;
use sdam_host::{
    CountedOperation, Message, OperationSpan, Pinned, Reply, Request, Runtime, Target,
    WrittenCommand,
};

use super::kill_cursors::{CursorToKill, kill_superseded};
use super::session::{ClientSession, Lent};
use super::span;
use crate::command::{Command, Facts, Operation, Progress, Route, Scope, check_name};
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

/// The outcome of an operation, and what goes on with a cursor that it may have opened.
pub(crate) struct Response<R: Runtime, T> {
    pub(crate) outcome: T,
    /// The server of the last reply, if a command had one.
    pub(crate) pin: Option<Pinned<R>>,
    pub(crate) session: ClientSession<R>,
    pub(crate) timeout: Timeout,
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
    held: Option<Pinned<R>>,
    /// Replies that another attempt was made after.
    superseded: &'a mut Vec<Reply>,
    /// The labels of all errors of write concerns, with those that the client has added.
    labels: Vec<String>,
}

/// An operation, whatever becomes of it: cursors that it leaves open are killed in the background.
struct Attempted<'a, R: Runtime, O: Operation> {
    handle: &'a Handle<R>,
    operation: &'a mut O,
    pin: Option<Pinned<R>>,
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
    ) -> Result<Response<R, O::Output>, Error> {
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
    ) -> Result<Response<R, O::Output>, Error> {
        let timeout = self.timeout();
        let limit = self.concerns.timeout.or(self.client.host().options().timeout());
        operation.timing().check(limit).map_err(ArgumentError::from)?;
        let implicit = || ClientSession::of(self.client.implicit_session());
        let session = self.session.clone().unwrap_or_else(implicit);
        let mut attempted = Attempted::new(self, operation, session);
        let Attempted { operation, pin, session, superseded, .. } = &mut attempted;
        let session = session.as_ref().expect("it is there until the operation has succeeded");
        let lent = session.lend(&self.client, timeout).await?;
        let (held, labels) = (None, Vec::new());
        let mut whole = Whole { session: lent, timeout, span, counted, held, superseded, labels };
        let outcome = loop {
            let answer = self.exchange(scope, *operation, &mut whole, pin).await;
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
        let (pin, session) = attempted.end();
        Ok(Response { outcome, pin, session, timeout })
    }

    /// Has the next command of an operation be written and performed, and returns its reply: an
    /// empty one, if none was asked for.
    async fn exchange<O: Operation + Send>(
        &self,
        scope: &Scope,
        operation: &mut O,
        whole: &mut Whole<'_, R>,
        pin: &mut Option<Pinned<R>>,
    ) -> Result<ReplyDocument, Unanswered> {
        if !operation.continues_cursor() {
            *pin = None;
        }
        let (name, options) = (operation.name(), options(operation));
        let criteria = Arc::new(self.criteria(operation));
        let target = match pin.as_mut().or(whole.held.as_mut()) {
            Some(pin) => pin.target(),
            None => Target::Select(Arc::clone(&criteria)),
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
                let server = reply.server().clone();
                let new = match kept {
                    Some(kept) if !is_acknowledged => {
                        whole.held = Some(Pinned::to_connection(kept, Arc::clone(&criteria)));
                        Pinned::to_server(server, criteria)
                    }
                    Some(kept) if opens => Pinned::to_origin(kept, criteria, exhausts),
                    _ => Pinned::to_server(server, criteria),
                };
                pin.get_or_insert(new);
                whole.superseded.retain(|earlier| !is_same_cursor(earlier, &reply));
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
        pin: &mut Pinned<R>,
        session: &ClientSession<R>,
        (database, body): (&str, &RawDocument),
        limits: Limits,
    ) -> Result<ReplyDocument, Error> {
        let mut lent = session.lend(&self.client, limits.timeout).await?;
        let options = OperationOptions::continuing().with_max_time(limits.max_time);
        let message = CommandMessage::new(database, body);
        let is_streamed = pin.is_streamed();
        let request = Request::new(message, &options, pin.target())
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
        Self { handle, operation, pin: None, session, superseded: Vec::new() }
    }

    /// Takes what a cursor needs that is the outcome.
    fn end(mut self) -> (Option<Pinned<R>>, ClientSession<R>) {
        kill_superseded(self.handle, self.session.as_ref(), &mut self.superseded);
        let session = self.session.take().expect("it is there until the operation has succeeded");
        (self.pin.take(), session)
    }
}

impl<R: Runtime, O: Operation> Drop for Attempted<'_, R, O> {
    fn drop(&mut self) {
        if self.session.is_none() {
            return;
        }
        kill_superseded(self.handle, self.session.as_ref(), &mut self.superseded);
        if let Some(mut cursor) = self.operation.take_cursor() {
            let (pin, session) = (self.pin.take(), self.session.take());
            let timeout = self.handle.timeout_of_operations();
            if let Some(open) = CursorToKill::of(&mut cursor, pin, session, timeout) {
                open.kill_in_background(&self.handle.client);
            }
        }
    }
}

/// Returns whether two replies are of the same cursor.
fn is_same_cursor(one: &Reply, other: &Reply) -> bool {
    let id = |reply: &Reply| reply.get_document("cursor").ok()?.get_i64("id").ok();
    one.server() == other.server() && id(one) == id(other)
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
