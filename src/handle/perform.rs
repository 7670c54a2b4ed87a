//! The one place where operations meet a client: each command of one is performed by the client's
//! operation machine, with the session and within the time of the operation.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use sdam_core::config::{ReadConcern, ReadMode, ReadPreference, ServerAddress, WriteConcern};
use sdam_core::handshake::ConnectionDescription;
use sdam_core::operation::{OperationKind, OperationOptions, Timeout, add_labels};
use sdam_core::selection::Criteria;
use sdam_core::session::TransactionError;
use sdam_core::wire::ReplyDocument;
use sdam_host::driver::{
    BuildCommand, BuiltCommand, DriverSession, DriverTopology, Extension, ObservedOperation,
    Pinned, Request, SessionGuard, Target,
};
use sdam_host::{ClientSession, Reply, Runtime};

use super::kill_cursors::{CursorToKill, kill_superseded};
use super::observed;
use crate::command::get_more::GetMore;
use crate::command::{Facts, Operation, Progress, Route, Scope, check_name};
use crate::error::{ArgumentError, DriverError as _, Error};

/// The part that all handles have: the client, and the concerns of their operations.
pub(crate) struct Handle<R: Runtime> {
    /// The session of the application's; without one, each operation has one for itself. It is
    /// dropped before the client, which ends the sessions that it has then.
    pub(crate) session: Option<ClientSession<R>>,
    pub(crate) client: sdam_host::Topology<R>,
    pub(crate) concerns: Arc<Concerns>,
}

/// The concerns of a handle; each takes over those of the one it comes from.
#[derive(Clone, Debug, Default)]
pub(crate) struct Concerns {
    pub(crate) read_preference: ReadPreference,
    /// That of the action alone, which goes before one that the operation has.
    pub(crate) read_preference_of_action: Option<ReadPreference>,
    pub(crate) read_concern: ReadConcern,
    pub(crate) write_concern: WriteConcern,
    /// `timeoutMS`, where it is not that of the client.
    pub(crate) timeout: Option<Duration>,
    /// Those that the action alone has set.
    pub(crate) of_action: OfAction,
    /// The only server that reads may go to; `None` for any that is suitable.
    pub(crate) member: Option<ServerAddress>,
    /// True of a change stream, whose times were checked before it is opened in what is left of the
    /// time of a call.
    pub(crate) has_checked_times: bool,
}

/// The concerns that an action has set, and not its handle: a transaction has its own, and allows
/// none of these.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OfAction {
    pub(crate) read_concern: bool,
    pub(crate) write_concern: bool,
    pub(crate) timeout: bool,
}

/// The outcome of an operation, and what goes on with a cursor that it may have opened.
pub(crate) struct Response<R: Runtime, T> {
    pub(crate) outcome: T,
    /// The place that a cursor is continued at, if a command may have opened one.
    pub(crate) pin: Option<Pinned<R>>,
    pub(crate) session: ClientSession<R>,
    pub(crate) timeout: Timeout,
}

/// The next command of an operation, which the host has built once it knows the connection.
struct NextCommand<'a, O> {
    operation: &'a mut O,
    scope: &'a Scope,
}

/// An operation while its commands are sent, one after the other. Cursors that it leaves open are
/// killed in the background, whatever becomes of it.
struct RunningOperation<'a, R: Runtime, O: Operation> {
    handle: &'a Handle<R>,
    scope: Cow<'a, Scope>,
    operation: &'a mut O,
    /// Present until it has ended.
    session: Option<ClientSession<R>>,
    guard: Option<SessionGuard<R>>,
    timeout: Timeout,
    /// A later limit of the wait for a reply, if one may come.
    extension: Option<&'a Extension>,
    /// The place that a cursor which was opened is continued at.
    pin: Option<Pinned<R>>,
    /// The connection of commands that are not acknowledged: over another one, a command could
    /// overtake the one before it.
    held: Option<Pinned<R>>,
    /// Replies that another attempt was made after.
    superseded: Vec<Reply>,
    /// The labels of all errors of write concerns, with those that the client has added.
    labels: Vec<String>,
}

/// The reason why a command of an operation has no reply.
enum AttemptError {
    /// The operation refuses to build it.
    Refused(Error),
    Failed(sdam_host::Error),
}

impl From<sdam_host::Error> for AttemptError {
    fn from(error: sdam_host::Error) -> Self {
        Self::Failed(error)
    }
}

impl<R: Runtime> Handle<R> {
    pub(crate) fn new(client: sdam_host::Topology<R>) -> Self {
        let options = client.options();
        let concerns = Concerns {
            read_preference: options.read_preference().clone(),
            read_preference_of_action: None,
            read_concern: ReadConcern::default()
                .with_level(options.read_concern_level().map(ToOwned::to_owned)),
            write_concern: options.write_concern().clone(),
            timeout: None,
            of_action: OfAction::default(),
            member: None,
            has_checked_times: false,
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
            has_timeout: self.client.has_timeout(self.concerns.timeout),
        })
    }

    /// Returns the scope of an operation in a transaction, which has concerns of its own; those of
    /// databases and collections do not count (Transactions, "TransactionOptions").
    ///
    /// # Errors
    ///
    /// Fails if the action has concerns of its own, or would read from another member than the
    /// primary: `preference` is that of the transaction.
    fn scope_in_transaction(
        &self,
        scope: &Scope,
        operation: &impl Operation,
        preference: Option<&ReadPreference>,
    ) -> Result<Scope, TransactionError> {
        let of_action = self.concerns.of_action;
        if of_action.read_concern {
            return Err(TransactionError::ReadConcern);
        }
        if of_action.write_concern {
            return Err(TransactionError::WriteConcern);
        }
        operation.check_in_transaction()?;
        let own = self.concerns.read_preference_of_action.as_ref();
        // Of a command of the application's, too, which is for the primary where it says nothing.
        let mut preferences = [own, operation.read_preference(), preference].into_iter().flatten();
        let is_elsewhere = preferences.any(|it| it.mode() != ReadMode::Primary);
        if operation.kind() != OperationKind::Write && is_elsewhere {
            return Err(TransactionError::ReadPreference);
        }
        let (read_concern, write_concern) = (ReadConcern::default(), WriteConcern::default());
        Ok(Scope { read_concern, write_concern, ..scope.clone() })
    }

    /// Returns `timeoutMS` of its operations, if it is not that of the client.
    pub(crate) fn timeout_of_operations(&self) -> Option<Duration> {
        self.concerns.timeout
    }

    /// Returns the limit of an operation that begins now: that of the transaction which is run as a
    /// whole in its session, if there is one.
    fn timeout(&self) -> Result<Timeout, ArgumentError> {
        match self.session.as_ref().and_then(ClientSession::deadline) {
            None => Ok(self.client.timeout(self.concerns.timeout)),
            Some(_) if self.concerns.of_action.timeout => {
                Err(ArgumentError::Transaction(TransactionError::Timeout))
            }
            Some(deadline) => Ok(Timeout::At(deadline)),
        }
    }

    /// Checks that the times of an operation go with the limit that it has.
    pub(crate) fn check_times(&self, operation: &impl Operation) -> Result<(), ArgumentError> {
        let limit = self.concerns.timeout.or(self.client.options().timeout());
        Ok(operation.timing().check(limit)?)
    }

    /// Returns a handle whose operations all end within the time of one that begins now.
    ///
    /// # Errors
    ///
    /// Fails if the session has a limit, and the action one of its own.
    pub(crate) fn limited(&self) -> Result<Self, ArgumentError> {
        let Some(deadline) = self.timeout()?.deadline() else { return Ok(self.clone()) };
        let limited = self.with(|concerns| {
            concerns.timeout = None;
            concerns.of_action.timeout = false;
        });
        Ok(Self { client: self.client.with_deadline(deadline), ..limited })
    }

    /// Runs an operation; returns besides its outcome what a cursor needs that was opened.
    ///
    /// All commands have one session, and one limit of their time.
    pub(crate) async fn run<O: Operation + Send>(
        &self,
        scope: &Scope,
        operation: &mut O,
    ) -> Result<Response<R, O::Output>, Error> {
        let mut observed = observed::begin(&self.client, self.session.as_ref(), scope, operation);
        let outcome = async {
            let timeout = self.timeout()?;
            if !self.concerns.has_checked_times {
                self.check_times(operation)?;
            }
            let implicit = || ClientSession::implicit(self.client.host());
            let session = self.session.clone().unwrap_or_else(implicit);
            let mut running =
                RunningOperation::begin(self, scope, operation, (session, timeout)).await?;
            let outcome = running.send_all(&mut observed).await?;
            let (pin, session) = running.end();
            Ok(Response { outcome, pin, session, timeout })
        }
        .await;
        observed::end(observed, &outcome);
        outcome
    }

    /// Sends the next command of a cursor, to where that is pinned.
    pub(crate) async fn get_more(
        &self,
        operation: &mut GetMore,
        pin: &mut Option<Pinned<R>>,
        session: &ClientSession<R>,
        (timeout, extension): (Timeout, Option<&Extension>),
    ) -> Result<ReplyDocument, Error> {
        let scope = operation.scope();
        let with = (session.clone(), timeout);
        let mut running = RunningOperation::begin(self, &scope, operation, with).await?;
        (running.extension, running.pin) = (extension, pin.take());
        let mut observed = observed::begin(&self.client, Some(session), &scope, running.operation);
        let outcome = running.send_all(&mut observed).await;
        *pin = running.pin.take();
        // The session is free before the operation has ended for those who observe it.
        drop(running);
        observed::end(observed, &outcome);
        outcome
    }
}

impl<'a, R: Runtime, O: Operation> RunningOperation<'a, R, O> {
    /// Begins an operation as soon as it has its session to itself.
    async fn begin(
        handle: &'a Handle<R>,
        scope: &'a Scope,
        operation: &'a mut O,
        (session, timeout): (ClientSession<R>, Timeout),
    ) -> Result<Self, Error> {
        let guard = session.acquire(handle.client.host(), timeout).await?;
        let scope = match guard.transaction().is_active() {
            true => {
                let preference = guard.transaction().options().read_preference.as_ref();
                Cow::Owned(handle.scope_in_transaction(scope, operation, preference)?)
            }
            false => Cow::Borrowed(scope),
        };
        Ok(Self {
            handle,
            scope,
            operation,
            session: Some(session),
            guard: Some(guard),
            timeout,
            extension: None,
            pin: None,
            held: None,
            superseded: Vec::new(),
            labels: Vec::new(),
        })
    }

    /// Takes what a cursor needs that is the outcome.
    fn end(mut self) -> (Option<Pinned<R>>, ClientSession<R>) {
        self.guard = None;
        kill_superseded(self.handle, self.session.as_ref(), &mut self.superseded);
        let session = self.session.take().expect("it is there until the operation has ended");
        (self.pin.take(), session)
    }
}

impl<R: Runtime, O: Operation> Drop for RunningOperation<'_, R, O> {
    fn drop(&mut self) {
        if self.session.is_none() {
            return;
        }
        self.guard = None;
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

impl<R: Runtime, O: Operation + Send> RunningOperation<'_, R, O> {
    /// Sends one command after the other, until there is an outcome.
    async fn send_all(&mut self, observed: &mut ObservedOperation<R>) -> Result<O::Output, Error> {
        loop {
            let progress = match self.send_next(observed).await {
                Ok(reply) => self.operation.reply(&self.scope, &reply),
                Err(AttemptError::Refused(error)) => Err(error),
                Err(AttemptError::Failed(error)) => self.operation.failed(error),
            };
            match progress {
                Ok(Progress::Next) => {}
                Ok(Progress::Done(outcome)) => return Ok(outcome),
                Err(error) => return Err(self.explain(error.with_labels(&self.labels))),
            }
        }
    }

    /// Adds to an error where the transaction stands that the operation belongs to.
    fn explain(&self, error: Error) -> Error {
        match &self.guard {
            Some(guard) => {
                let command = self.operation.command_name();
                guard.explain(self.handle.client.host(), &command, error)
            }
            None => error,
        }
    }

    /// Builds and sends the next command, and returns its reply: an empty one, if none was asked
    /// for.
    async fn send_next(
        &mut self,
        observed: &mut ObservedOperation<R>,
    ) -> Result<ReplyDocument, AttemptError> {
        if !self.operation.continues_cursor() {
            self.pin = None;
        }
        let is_in_transaction =
            self.guard.as_ref().is_some_and(|guard| guard.transaction().is_active());
        let concerns = &self.handle.concerns;
        let of_action = concerns.read_preference_of_action.as_ref();
        let preference = of_action.or_else(|| self.operation.read_preference());
        let preference = preference.unwrap_or(&concerns.read_preference);
        let target =
            Target::of(self.pin.as_mut().or(self.held.as_mut()), || match self.operation.route() {
                _ if is_in_transaction => Criteria::write(),
                Route::Write => Criteria::write(),
                Route::Read => match &concerns.member {
                    Some(member) => Criteria::read(preference.clone()).at(member.clone()),
                    None => Criteria::read(preference.clone()),
                },
                Route::ReadPrimary => Criteria::read(ReadPreference::new(ReadMode::Primary)),
                Route::ReadSince(version) => Criteria::read_since(preference.clone(), version),
            });
        let (begins_elsewhere, awaits) =
            (self.operation.begins_elsewhere(), self.operation.awaits());
        let mut next = NextCommand { operation: self.operation, scope: &self.scope };
        let request = Request::<R, AttemptError>::building(&mut next, target)
            .with_session(self.guard.as_mut())
            .with_timeout(self.timeout)
            .with_extension(self.extension)
            .with_operation(Some(observed))
            .with_begins_elsewhere(begins_elsewhere)
            .with_awaits(awaits)
            .with_superseded(Some(&mut self.superseded));
        let response = self.handle.client.host().execute(request).await?;
        match response.acknowledged {
            true => self.pin = response.pin.or(self.pin.take()),
            false => self.held = response.pin.or(self.held.take()),
        }
        let reply = response.reply;
        self.superseded.retain(|earlier| !is_same_cursor(earlier, &reply));
        if let Some(error) = reply.write_concern_error() {
            add_labels(&mut self.labels, error.labels.iter().map(String::as_str));
        }
        Ok(reply.into_document())
    }
}

/// Returns whether two replies are of the same cursor.
fn is_same_cursor(one: &Reply, other: &Reply) -> bool {
    let id = |reply: &Reply| reply.get_document("cursor").ok()?.get_i64("id").ok();
    one.server() == other.server() && id(one) == id(other)
}

impl<O: Operation + Send> BuildCommand<AttemptError> for NextCommand<'_, O> {
    fn name(&self) -> Cow<'static, str> {
        self.operation.command_name()
    }

    fn options(&self) -> OperationOptions {
        let timing = self.operation.timing();
        if self.operation.continues_cursor() {
            return OperationOptions::continuing().with_max_time(timing.of_next());
        }
        let options = match self.operation.kind() {
            OperationKind::Write => OperationOptions::write(),
            OperationKind::Command => OperationOptions::command(),
            _ => OperationOptions::read(),
        };
        options.with_retryable(self.operation.is_retryable()).with_max_time(timing.of_first())
    }

    /// A command that the server refuses for its length is refused here if there is no reply that
    /// would say so.
    fn build(
        &mut self,
        connection: &ConnectionDescription,
    ) -> Result<BuiltCommand<'_>, AttemptError> {
        let (options, facts) = (self.options(), Facts::of(connection));
        let command = self.operation.command(self.scope, &facts).map_err(AttemptError::Refused)?;
        let (length, limit) = (command.body.as_bytes().len(), facts.max_sent_len());
        if length > limit && !command.acknowledged {
            let error = ArgumentError::CommandTooLong { length, limit };
            return Err(AttemptError::Refused(error.into()));
        }
        let read_concern = command.read_concern(self.scope);
        let options = options
            .with_acknowledged(command.acknowledged)
            .with_retryable(command.retryable)
            .with_read_concern(read_concern);
        Ok(BuiltCommand::new(command.database, command.body, options)
            .with_sequences(command.sequences)
            .with_cursor(command.opens_cursor, command.exhausts_cursor))
    }
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
