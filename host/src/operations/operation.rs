//! Operations from selection to outcome: the machine of core decides, and its actions are performed
//! here, one after the other. Nothing else in this crate selects, checks out and sends in one go.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::Guard;
use bson::{RawDocument, RawDocumentBuf};
use sdam_core::config::{ReadConcern, ServerAddress};
use sdam_core::description::{ServerType, TopologyType};
use sdam_core::diagnosis::SelectionError;
use sdam_core::failure::Cause;
use sdam_core::handshake::ConnectionDescription;
use sdam_core::id::WaiterId;
use sdam_core::machine::Machine;
use sdam_core::operation::{
    Action, AttemptOutcome, CommandMessage, ConnectionFacts, Fault, Input, InvalidCommand, NotSent,
    Operation, OperationError, OperationOptions, Overlay, Plan, RetryPolicy, SelectedFacts,
    Sending, SessionUse, Timeout, base_backoff,
};
use sdam_core::pool::CheckOutError;
use sdam_core::selection::Criteria;
use sdam_core::session::{ClusterTime, Session, TransactionRole};
use sdam_core::spans::SpanStart;
use sdam_core::time::Instant;
use sdam_core::topology;
use sdam_core::trace::AttemptComment;
use sdam_core::wire::Flags;

use crate::error::{Error, Repr, Spent};
use crate::machines::log::SelectionLogger;
use crate::machines::runtime::Runtime;
use crate::machines::sleep::sleep_until;
use crate::machines::topology::{Deferred, SelectionAnswer, TopologyState};
use crate::machines::{Host, View};
use crate::operations::checked_out::{CheckedOut, ExchangeState};
use crate::operations::exchange::{ExchangeContext, ExchangeError, Reply};
use crate::operations::observed::ObservedOperation;
use crate::operations::pinned::Pinned;
use crate::operations::request::{BuildCommand, BuiltCommand, Extension, Message, Request, Target};
use crate::operations::selected_server::SelectedServer;
use crate::operations::session::SessionGuard;
use crate::sync::atomic::Ordering;
use crate::sync::channel::{Answers, Channel, Wait};
use crate::sync::wake_all;

/// The outcome of one attempt.
struct Attempt {
    result: Result<Reply, Error>,
    /// True if no server was selected in time.
    late: bool,
}

impl From<Result<Reply, Error>> for Attempt {
    fn from(result: Result<Reply, Error>) -> Self {
        Self { result, late: false }
    }
}

impl AttemptOutcome for Attempt {
    fn fault(&self) -> Option<Fault<'_>> {
        let error = match &self.result {
            Ok(reply) => return reply.write_concern_error().map(Fault::WriteConcern),
            Err(error) => error,
        };
        Some(match error.repr() {
            Repr::Client(_) | Repr::Reported(_) => Fault::Refused(false),
            Repr::NotSent(reason) => Fault::Refused(*reason == NotSent::Expired),
            // A client that was closed selects none, however often that is tried.
            _ if error.is_end_of_client() => Fault::Refused(false),
            Repr::Selection(_) => Fault::Selection(self.late),
            // A server that a session or a cursor is pinned to, and that is no member any more, or
            // is not waited for.
            Repr::Operation(OperationError::Invalid(
                InvalidCommand::NotAMember(_) | InvalidCommand::UnknownServer(_),
            )) => Fault::Selection(false),
            Repr::Operation(error) => Fault::Exchange(error),
            Repr::CheckOut(error) => match error {
                CheckOutError::PoolCleared { .. } | CheckOutError::NotReady { .. } => {
                    Fault::PoolCleared
                }
                CheckOutError::IdleConnection { error, .. } => Fault::IdleConnection(error),
                CheckOutError::Establishing { error, .. } => Fault::Establishing(error),
                CheckOutError::Timeout { .. } => Fault::CheckOut(true),
                _ => Fault::CheckOut(false),
            },
        })
    }

    fn base_backoff(&self) -> Option<Duration> {
        base_backoff(self.result.as_ref().err()?.reply_document()?)
    }

    fn add_label(&mut self, label: &'static str) {
        match &mut self.result {
            Ok(reply) => reply.add_label(label),
            Err(error) => error.add_label(label),
        }
    }
}

impl<R: Runtime> Host<R> {
    /// Performs an operation, and returns its reply.
    ///
    /// It is sent again by the rules of Retryable Reads, Retryable Writes and Client Backpressure;
    /// of several errors, the most informative one is returned.
    ///
    /// # Errors
    ///
    /// Fails if no server is suitable, if no connection is to be had, if the exchange fails, and if
    /// the server replies with an error, each in time; the error says where the time went.
    pub async fn operate(&self, request: Request<'_, R>) -> Result<Reply, Error> {
        self.execute(request).await.map(|response| response.reply)
    }

    /// As [`operate`](Self::operate), for operations that build their command, too, with the place
    /// where what follows goes: see [`Pinned`].
    ///
    /// # Errors
    ///
    /// Fails as [`operate`](Self::operate) does, and if the command cannot be built.
    pub async fn execute<E: From<Error>>(
        &self,
        request: Request<'_, R, E>,
    ) -> Result<Response<R>, E> {
        let (mut performer, mut unbuilt) = Performer::new(self, request);
        if performer.parts.session.as_deref().is_some_and(|session| !session.is_of(self)) {
            return Ok(performer.refuse(InvalidCommand::ForeignSession)?);
        }
        let mut action = Some(performer.machine.start(self.runtime().now()));
        loop {
            if performer.machine.has_unpinned() {
                performer.pin = None;
            }
            action = match action {
                Some(Action::Done { outcome, timed_out }) => {
                    return Ok(performer.done(outcome, timed_out)?);
                }
                Some(Action::Select { deadline }) => match performer.select(deadline).await {
                    Ok(facts) => {
                        performer.machine.step(self.runtime().now(), Input::Selected(facts))
                    }
                    Err(outcome) => performer.end_attempt(outcome),
                },
                Some(Action::CheckOut { deadline }) => match performer.check_out(deadline).await {
                    Ok(()) => {
                        let description = performer.connection().connection_description();
                        let facts = connection_facts(description);
                        if let Some(operation) = unbuilt.take() {
                            let built = operation.build(description)?;
                            performer.parts.command = Some(Command::Built(built));
                        }
                        let command = performer.parts.command.as_ref();
                        let input = Input::CheckedOut(facts, command.map(Command::options));
                        performer.machine.step(self.runtime().now(), input)
                    }
                    Err(error) => performer.end_attempt(Err(error).into()),
                },
                Some(Action::Send(sending)) => {
                    let result = performer.exchange(sending).await;
                    performer.end_attempt(result.into())
                }
                Some(Action::Refuse(reason)) => {
                    let error = Error::from(Repr::NotSent(reason));
                    performer.end_attempt(Err(error).into())
                }
                None => {
                    let until = performer.wait(performer.machine.deadline()).await;
                    performer.machine.wake(until.into())
                }
            };
        }
    }

    /// Returns why nothing more is sent, if an exchange has ended because the client was closed.
    fn ended_by(&self, error: &OperationError) -> Option<Error> {
        let was_ended = matches!(error, OperationError::Stream(it) if it.cause == Cause::Canceled);
        was_ended.then(|| self.why_ended()).flatten()
    }

    /// "when serverSelectionTryOnce is true, server selection timeouts have no effect"
    fn selection_timeout(&self) -> Option<Duration> {
        let options = self.options();
        let once = options.is_single_threaded() && options.server_selection_try_once();
        (!once).then(|| options.server_selection_timeout())
    }
}

/// A reply, and where what follows goes.
#[non_exhaustive]
pub struct Response<R: Runtime> {
    /// The reply.
    pub reply: Reply,
    /// The place for the commands that follow, if the server was selected: after a command that may
    /// have [opened a cursor](crate::driver::BuiltCommand::opens_cursor), that of the cursor; after
    /// one without a reply, the connection, over which those that follow keep their order.
    pub pin: Option<Pinned<R>>,
    /// False if the command asked for no reply.
    pub acknowledged: bool,
}

impl<R: Runtime> std::fmt::Debug for Response<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Response")
            .field("reply", &self.reply)
            .field("pin", &self.pin)
            .finish_non_exhaustive()
    }
}

/// A command that can be sent.
enum Command<'a> {
    Known(CommandMessage<'a>, &'a OperationOptions),
    Built(BuiltCommand<'a>),
}

impl Command<'_> {
    const fn options(&self) -> &OperationOptions {
        match self {
            Self::Known(_, options) => options,
            Self::Built(command) => &command.options,
        }
    }
}

/// The parts of a request that its attempts share.
struct Parts<'a, R: Runtime> {
    name: Cow<'a, str>,
    /// Present once it is built.
    command: Option<Command<'a>>,
    target: Target<'a, R>,
    session: Option<&'a mut SessionGuard<R>>,
    extension: Option<&'a Extension>,
    superseded: Option<&'a mut Vec<Reply>>,
    /// True if it does not wait for a member while another server can be selected.
    begins_elsewhere: bool,
    /// True if its server waits for something to happen.
    awaits: bool,
    /// The operation that it is a part of, if it is none by itself.
    operation: Option<&'a mut ObservedOperation<R>>,
}

/// Returns the connection that a command goes over: that of the target, or that which the session
/// is pinned to, or else the one that was checked out.
fn connection<'a, R: Runtime>(
    target: &'a mut Target<'_, R>,
    pin: &'a mut Option<Pinned<R>>,
    checked_out: &'a mut Option<CheckedOut<R>>,
) -> &'a mut CheckedOut<R> {
    let of_session = pin.as_mut().and_then(Pinned::connection_mut);
    match (target, of_session) {
        (Target::Connection(checked_out) | Target::Stream(checked_out), _) => checked_out,
        (_, Some(checked_out)) => checked_out,
        (Target::Select(_) | Target::Member(..), None) => {
            checked_out.as_mut().expect("a connection is checked out first")
        }
    }
}

/// The way of the next attempt to a server.
enum Way<'a, R: Runtime> {
    Select(&'a Arc<Criteria>),
    Member(&'a ServerAddress, &'a Arc<Criteria>),
    Connection(&'a CheckedOut<R>),
}

/// The part of an operation that the log has; it may select more than once.
#[derive(Default)]
struct LoggedOperation {
    /// Its number; 0 before it has one.
    number: i64,
    has_waited: bool,
}

/// An operation that builds its command, which is still to be built.
type Unbuilt<'a, E> = Option<&'a mut dyn BuildCommand<E>>;

/// The performer of the actions of one operation, with what it has at hand meanwhile.
struct Performer<'a, 'b, R: Runtime> {
    host: &'a Host<R>,
    machine: Operation<Attempt>,
    parts: Parts<'b, R>,
    /// The operation that it is by itself.
    own: ObservedOperation<R>,
    clock: StopWatch,
    logged: LoggedOperation,
    transaction_number: Option<i64>,
    /// The place that the session's transaction is pinned to, if it is.
    pin: Option<Pinned<R>>,
    selected: Option<SelectedServer<R>>,
    checked_out: Option<CheckedOut<R>>,
    /// True while a command is with a server, and names the session.
    is_underway: bool,
}

/// The session keeps its place, whatever becomes of the operation.
impl<R: Runtime> Drop for Performer<'_, '_, R> {
    fn drop(&mut self) {
        if let Some(session) = self.parts.session.as_deref_mut() {
            if self.is_underway {
                session.given_up();
            }
            session.pin = self.pin.take().filter(Pinned::is_usable);
        }
    }
}

impl<'a, 'b, R: Runtime> Performer<'a, 'b, R> {
    fn new<E>(host: &'a Host<R>, request: Request<'b, R, E>) -> (Self, Unbuilt<'b, E>) {
        let Request { message, target, mut session, timeout, .. } = request;
        let Request { operation, extension, superseded, begins_elsewhere, awaits, .. } = request;
        let (name, command, options, unbuilt) = match message {
            Message::Known(message, options) => {
                let command = Some(Command::Known(message, options));
                (Cow::Borrowed(message.name()), command, Cow::Borrowed(options), None)
            }
            Message::ToBuild(operation) => {
                (operation.name(), None, Cow::Owned(operation.options()), Some(operation))
            }
        };
        let own = match (&operation, &command) {
            (None, Some(Command::Known(message, _))) => {
                let session = session.as_deref().map(SessionGuard::home);
                ObservedOperation::of_command(host, session, message)
            }
            _ => ObservedOperation::NONE,
        };
        let pin = session.as_deref_mut().and_then(SessionGuard::begin_command);
        let use_of_session = match session.as_deref() {
            None => SessionUse::None,
            Some(session) if session.has_ended() => SessionUse::Ended,
            Some(session) if session.is_implicit() => SessionUse::Implicit,
            Some(session) => SessionUse::Explicit {
                snapshot: session.options().snapshot,
                transaction: session.transaction().role(),
            },
        };
        let plan = Plan::new(&options, RetryPolicy::of(host.options()))
            .with_session(use_of_session)
            .with_timeouts(timeout, host.selection_timeout());
        let performer = Self {
            host,
            machine: Operation::new(plan),
            parts: Parts {
                name,
                command,
                target,
                session,
                extension,
                superseded,
                begins_elsewhere,
                awaits,
                operation,
            },
            own,
            clock: StopWatch { at: host.runtime().now(), spent: Spent::default() },
            logged: LoggedOperation::default(),
            transaction_number: None,
            pin,
            selected: None,
            checked_out: None,
            is_underway: false,
        };
        (performer, unbuilt)
    }

    /// Returns the operation as it is observed.
    fn observed(&mut self) -> &mut ObservedOperation<R> {
        self.parts.operation.as_deref_mut().unwrap_or(&mut self.own)
    }

    /// Waits until a time, and returns what the clock shows then; if the client is closed
    /// meanwhile, it is taken to be that time, so that the next selection says so.
    async fn wait(&mut self, until: Option<Instant>) -> Instant {
        let until = until.unwrap_or(Instant::ZERO);
        sleep_until(&self.host.shared, until).await;
        let now = self.host.runtime().now();
        self.clock.lap(now, |spent| &mut spent.waiting);
        now.max(until)
    }

    async fn select(&mut self, deadline: Option<Instant>) -> Result<SelectedFacts, Attempt> {
        let found = match self.way() {
            Way::Connection(checked_out) => {
                let may_have_ended = self.host.awaiting.have_ended(self.host.shared.process);
                if let Some(closed) = may_have_ended.then(|| self.host.why_ended()).flatten() {
                    return Err(Attempt { result: Err(closed), late: false });
                }
                let (facts, pool) =
                    (self.host.facts_of(checked_out), Arc::clone(checked_out.pool()));
                self.observed().goes_to(&pool);
                return Ok(facts);
            }
            Way::Member(address, criteria) => {
                let waits = !self.parts.begins_elsewhere;
                self.host.known_member(address, (criteria, waits), deadline).await
            }
            Way::Select(criteria) => {
                let criteria = match self.machine.deprioritized() {
                    [] => Arc::clone(criteria),
                    avoided => Arc::new((**criteria).clone().deprioritize(avoided.iter().cloned())),
                };
                match self.host.select_now(criteria) {
                    Ok(selected) => Ok(selected),
                    Err(criteria) => {
                        let operation = (&*self.parts.name, &mut self.logged);
                        let found = self.host.find(&criteria, deadline, operation).await;
                        found.map_err(Error::from)
                    }
                }
            }
        };
        let now = self.host.runtime().now();
        self.clock.lap(now, |spent| &mut spent.selecting);
        match found {
            Ok(selected) => {
                let facts = selected_facts(&selected);
                self.observed().goes_to(selected.server());
                self.selected = Some(selected);
                Ok(facts)
            }
            Err(error) => {
                let late = deadline.is_some_and(|deadline| deadline <= now);
                Err(Attempt { result: Err(error), late })
            }
        }
    }

    async fn check_out(&mut self, deadline: Option<Instant>) -> Result<(), Error> {
        let selected = match (self.way(), &self.selected) {
            (Way::Connection(_), _) => return Ok(()),
            (_, Some(selected)) => selected,
            (_, None) => unreachable!("a server is selected first"),
        };
        let checked_out = selected.server().check_out(selected.selection(), deadline).await;
        self.clock.lap(self.host.runtime().now(), |spent| &mut spent.checking_out);
        let checked_out = checked_out.map_err(|error| selected.server().check_out_error(*error))?;
        // That of a check of the connection, if the operation has none.
        if self.logged.number == 0 {
            self.logged.number = checked_out.number;
        }
        self.checked_out = Some(checked_out);
        self.pin_transaction();
        Ok(())
    }

    /// Pins the session if the command is the first one of a transaction through a mongos.
    fn pin_transaction(&mut self) {
        let session = self.parts.session.as_deref();
        let role = session.and_then(|session| session.transaction().role());
        let (Target::Select(criteria), Some(selected)) = (&self.parts.target, &self.selected)
        else {
            return;
        };
        let is_pinned = self.pin.is_some() || role != Some(TransactionRole::Within);
        if !is_pinned && is_through_mongos(selected.topology_type()) {
            let (server, criteria) = (selected.address(), Arc::clone(criteria));
            self.pin = Some(Pinned::of_transaction(&mut self.checked_out, server, criteria));
        }
    }

    /// Returns the way of the next attempt.
    fn way(&self) -> Way<'_, R> {
        match (&self.parts.target, &self.pin) {
            (Target::Connection(checked_out) | Target::Stream(checked_out), _) => {
                Way::Connection(checked_out)
            }
            (_, Some(pin)) => match pin.connection() {
                Some(connection) => Way::Connection(connection),
                None => Way::Member(pin.server(), pin.criteria()),
            },
            (Target::Member(address, criteria), None) => Way::Member(address, criteria),
            (Target::Select(criteria), None) => Way::Select(criteria),
        }
    }

    fn connection(&mut self) -> &CheckedOut<R> {
        connection(&mut self.parts.target, &mut self.pin, &mut self.checked_out)
    }

    /// Sends the command with its session, and receives the reply.
    async fn exchange(&mut self, sending: Sending) -> Result<Reply, Error> {
        let Parts { command, target, session, extension, operation, awaits, .. } = &mut self.parts;
        let sequences: Vec<(&str, &[&RawDocument])>;
        let (message, options) = match command.as_ref().expect("it is built at the check-out") {
            Command::Known(message, options) => (*message, *options),
            Command::Built(built) => {
                let all = built.sequences.iter();
                sequences = all.map(|(name, documents)| (*name, documents.as_slice())).collect();
                let message = CommandMessage::new(&built.database, &built.body);
                (message.with_sequences(&sequences), &built.options)
            }
        };
        let is_streamed = matches!(target, Target::Stream(_));
        let checked_out = connection(target, &mut self.pin, &mut self.checked_out);
        let mut session = session.as_deref_mut();
        if let Some(session) = session.as_deref_mut().filter(|_| sending.session) {
            session.attach(self.host, sending, &mut self.transaction_number)?;
            let now = || self.host.runtime().now();
            session.transaction_mut().goes_to(checked_out.server(), now);
        }
        self.is_underway = sending.session;
        let has_cluster_times = checked_out.has_cluster_times();
        let (name, concern) = (message.name(), options.read_concern.as_ref());
        let read_concern = read_concern(name, session.as_deref(), concern, has_cluster_times);
        let known: Option<&Session> = session.as_deref().map(|it| &**it);
        let known = known.filter(|_| sending.session);
        let transaction = known.and_then(|it| it.transaction().fields(sending.timeout.is_set()));
        let mut overlay = transaction.as_ref().map(Overlay::in_transaction).unwrap_or_default();
        overlay.lsid = known.and_then(Session::server_session).map(|it| it.id().document());
        overlay.read_concern = read_concern.as_deref();
        overlay.max_time = sending.max_time.or(overlay.max_time);
        if sending.transaction_number {
            overlay.transaction_number = self.transaction_number;
        }
        let cluster_time: Option<&ClusterTime> = known.and_then(Session::cluster_time);
        if self.logged.number == 0 && self.host.shared.reports_commands() {
            self.logged.number = self.host.shared.commands.next_operation();
        }
        let operation = operation.as_deref().unwrap_or(&self.own);
        let (number, span) = (self.logged.number, operation.span().shared());
        let (timeout, extension) = (sending.timeout, *extension);
        let context = ExchangeContext { overlay, cluster_time, timeout, extension, number, span };
        let token = awaits.then(|| Arc::clone(&checked_out.connection().stream.cancellation));
        let awaited = token.map(|it| self.host.awaiting.begin(&it, self.host.shared.process));
        let flags = if is_streamed { Flags::EXHAUST_ALLOWED } else { Flags::NONE };
        let result = match options.acknowledged {
            true => checked_out.exchange(&message, &context, flags).await,
            false => {
                let sent = checked_out.exchange_unacknowledged(&message, &context).await;
                sent.map_err(Into::into)
            }
        };
        drop(awaited);
        self.is_underway = false;
        self.clock.lap(self.host.runtime().now(), |spent| &mut spent.exchanging);
        let learns = |session: &&mut SessionGuard<R>| {
            sending.session && (result.is_err() || !session.is_implicit())
        };
        if let Some(session) = session.filter(learns) {
            session.learn(&message, &result, checked_out.state != ExchangeState::Idle);
        }
        result.map_err(|failed| match self.host.ended_by(&failed.error) {
            Some(closed) => closed,
            None => {
                let error = explained(failed.error, sending.transaction_number);
                checked_out.failed(ExchangeError { error, ..*failed })
            }
        })
    }

    /// Passes the outcome of an attempt to the machine, and records one that has failed.
    fn end_attempt(&mut self, outcome: Attempt) -> Option<Action<Attempt>> {
        let (host, now) = (self.host, self.host.runtime().now());
        let is_fault = outcome.fault().is_some();
        let recording = host.shared.tracing.recording();
        let attempt = recording.and_then(|recording| {
            let server = match self.way() {
                Way::Connection(checked_out) => Some(checked_out.pool().address()),
                _ => self.selected.as_ref().map(SelectedServer::address),
            };
            let attempt = (&*self.parts.name, server);
            Some((recording, AttemptComment::new(now, attempt, &outcome.fault()?)))
        });
        // A reply may have opened a cursor, whatever became of its write concern.
        let is_reply = outcome.result.is_ok();
        let reply = match self.parts.superseded {
            Some(_) if is_fault => outcome.result.as_ref().ok().cloned(),
            _ => None,
        };
        // Without a reply, the connection goes back at once.
        if !is_reply {
            self.checked_out = None;
        }
        let random = if is_fault { host.shared.random_bits() } else { 0 };
        let server = self.selected.as_ref().map(SelectedServer::address);
        let next = self.machine.step(now, Input::Ended { outcome, server, random });
        if is_reply && !matches!(next, Some(Action::Done { .. })) {
            self.checked_out = None;
            if let Some(superseded) = &mut self.parts.superseded {
                superseded.extend(reply);
            }
        }
        if let Some((recording, comment)) = attempt {
            recording
                .put_attempt(now, &comment.followed_by(next.as_ref(), self.machine.deadline()));
            wake_all(recording.take_wakers());
        }
        next
    }

    /// Ends the operation with its outcome.
    fn done(mut self, outcome: Attempt, timed_out: bool) -> Result<Response<R>, Error> {
        let outcome = match outcome.result {
            Ok(reply) => {
                let command = self.parts.command.as_ref();
                let acknowledged = command.is_none_or(|it| it.options().acknowledged);
                Ok(Response { pin: self.pin(&reply, acknowledged), reply, acknowledged })
            }
            Err(error) => {
                let error = self.clock.stop(error);
                let error = if timed_out { error.timed_out() } else { error };
                Err(match self.parts.session.as_deref() {
                    Some(session) => session.explain(self.host, &self.parts.name, error),
                    None => error,
                })
            }
        };
        std::mem::replace(&mut self.own, ObservedOperation::NONE).end(&outcome);
        outcome
    }

    /// Ends the operation before it begins.
    fn refuse(mut self, reason: InvalidCommand) -> Result<Response<R>, Error> {
        let refused = Err(reason.into());
        std::mem::replace(&mut self.own, ObservedOperation::NONE).end(&refused);
        refused
    }

    /// Returns where the commands go that follow, if the server was selected.
    fn pin(&mut self, reply: &Reply, acknowledged: bool) -> Option<Pinned<R>> {
        let (opens_cursor, exhausts_cursor) = match &self.parts.command {
            Some(Command::Built(built)) => (built.opens_cursor, built.exhausts_cursor),
            _ => (false, false),
        };
        let Target::Select(criteria) = &self.parts.target else { return None };
        if acknowledged && !opens_cursor {
            return None;
        }
        let criteria = Arc::clone(criteria);
        // The outcome may be that of an attempt before, perhaps at another server.
        let place = (reply.server(), reply.connection_id());
        let is_its = |it: &CheckedOut<R>| (it.server(), it.connection_id()) == place;
        match self.checked_out.take().filter(is_its) {
            Some(connection) if !acknowledged => Some(Pinned::to_connection(connection, criteria)),
            Some(connection) => Some(Pinned::to_origin(connection, criteria, exhausts_cursor)),
            None => opens_cursor.then(|| Pinned::to_server(reply.server().clone(), criteria)),
        }
    }
}

impl<R: Runtime> Host<R> {
    /// Finds a member once something is known of it: its pool gives no connection before. Whether
    /// it is suitable for another operation does not matter. Unless it `waits`, it fails as soon as
    /// another server can be selected.
    async fn known_member(
        &self,
        address: &ServerAddress,
        (criteria, waits): (&Arc<Criteria>, bool),
        deadline: Option<Instant>,
    ) -> Result<SelectedServer<R>, Error> {
        let (begun, mut at) = (self.runtime().now(), None);
        loop {
            let mut member = self.member(address);
            let is_known =
                |it: &mut SelectedServer<R>| it.description().server_type != ServerType::Unknown;
            if let Some(mut known) = member.take_if(is_known) {
                known.criteria = Some(Arc::clone(criteria));
                return Ok(known);
            }
            if !waits && member.is_some() && self.try_select(criteria).is_some() {
                return Err(InvalidCommand::UnknownServer(address.clone()).into());
            }
            let criteria = || match waits {
                true => Arc::new((**criteria).clone().at(address.clone())),
                // The member itself, as soon as it is suitable again, or any other.
                false => Arc::clone(criteria),
            };
            let at = at.get_or_insert_with(criteria);
            self.unless_forked(at)?;
            // A client that is closed has no members, and says so where it is waited for one.
            if member.is_none() && !self.is_closed() {
                return Err(InvalidCommand::NotAMember(address.clone()).into());
            }
            self.wait_by(at, begun, deadline).await?;
        }
    }

    /// Returns what is known of the server of a connection in use.
    fn facts_of(&self, checked_out: &CheckedOut<R>) -> SelectedFacts {
        let member = self.member(checked_out.server());
        let ConnectionFacts { retryable_writes, max_wire_version, .. } =
            connection_facts(checked_out.connection_description());
        let none = SelectedFacts {
            min_round_trip_time: Duration::ZERO,
            sharded: false,
            retryable_writes,
            max_wire_version,
        };
        member.as_ref().map_or(none, selected_facts)
    }
}

/// "IllegalOperation (code 20) with errmsg starting with "Transaction numbers" MUST be re-raised
/// with an actionable error message" (Retryable Writes).
fn explained(error: OperationError, numbered: bool) -> OperationError {
    match error {
        OperationError::Reply { stage, mut error }
            if numbered
                && error.code == Some(20)
                && error.message.starts_with("Transaction numbers") =>
        {
            error.message =
                "This MongoDB deployment does not support retryable writes. Please add \
                             retryWrites=false to your connection string."
                    .to_owned();
            OperationError::Reply { stage, error }
        }
        error => error,
    }
}

/// Returns the read concern of a command: that of its session, or else its own, unless it is the
/// server's default. What goes on with a cursor takes none, not even that of a snapshot.
fn read_concern<R: Runtime>(
    command: &str,
    session: Option<&SessionGuard<R>>,
    concern: Option<&ReadConcern>,
    has_cluster_times: bool,
) -> Option<RawDocumentBuf> {
    match session {
        _ if matches!(command, "getMore" | "killCursors") => None,
        Some(session) => session.read_concern(concern, has_cluster_times),
        None => concern.filter(|concern| !concern.is_server_default()).map(ReadConcern::document),
    }
}

/// Returns whether servers are reached through mongos, of which each has transactions of its own.
const fn is_through_mongos(topology: TopologyType) -> bool {
    matches!(topology, TopologyType::Sharded | TopologyType::LoadBalanced)
}

/// Returns what an operation has to know of a server, from the view that it was selected from.
fn selected_facts<R: Runtime>(selected: &SelectedServer<R>) -> SelectedFacts {
    let server = selected.description();
    // Behind a load balancer are mongos of today, of which nothing is monitored.
    let is_balancer = server.server_type == ServerType::LoadBalancer;
    let has_sessions = server.logical_session_timeout_minutes.is_some();
    let is_standalone = server.server_type == ServerType::Standalone;
    SelectedFacts {
        min_round_trip_time: server.min_round_trip_time,
        sharded: selected.topology_type() == TopologyType::Sharded,
        retryable_writes: is_balancer || (has_sessions && !is_standalone),
        max_wire_version: server.max_wire_version,
    }
}

fn connection_facts(description: &ConnectionDescription) -> ConnectionFacts {
    ConnectionFacts {
        sessions: description.has_sessions,
        retryable_writes: description.has_sessions
            && description.server_type != ServerType::Standalone,
        max_wire_version: description.max_wire_version,
    }
}

struct StopWatch {
    at: Instant,
    spent: Spent,
}

impl StopWatch {
    /// Books the time since the last lap.
    fn lap(&mut self, now: Instant, part: impl Fn(&mut Spent) -> &mut Duration) {
        *part(&mut self.spent) += now - std::mem::replace(&mut self.at, now);
    }

    fn stop(&self, error: Error) -> Error {
        error.after(self.spent)
    }
}

impl<R: Runtime> Host<R> {
    /// Runs any command, without a session, see [`operate`](Self::operate): all of
    /// it by `timeout`.
    ///
    /// Once it may have been carried out, it is not sent again ("All commands executed via
    /// RunCommand are non-retryable operations"), unless the server says that it is overloaded and
    /// has done nothing.
    ///
    /// # Errors
    ///
    /// Fails as [`operate`](Self::operate) does.
    pub async fn run_command(
        &self,
        database: &str,
        command: &RawDocument,
        criteria: Arc<Criteria>,
        timeout: Timeout,
    ) -> Result<Reply, Error> {
        self.run_command_as("runCommand", (database, command), criteria, timeout).await
    }

    /// As [`run_command`](Self::run_command), by the name of an operation.
    pub(crate) async fn run_command_as(
        &self,
        name: &str,
        (database, command): (&str, &RawDocument),
        criteria: Arc<Criteria>,
        timeout: Timeout,
    ) -> Result<Reply, Error> {
        let (message, target) = (CommandMessage::new(database, command), Target::Select(criteria));
        let options = OperationOptions::command();
        let counted_name = || message.name().to_owned().into();
        let start = || SpanStart::of_operation(name, database, None);
        let mut operation = ObservedOperation::begin(self, None, counted_name, start);
        let request = Request::new(message, &options, target).with_timeout(timeout);
        let outcome = self.operate(request.with_operation(Some(&mut operation))).await;
        operation.end(&outcome);
        outcome
    }
}

impl<R: Runtime> Host<R> {
    /// Selects a server, waiting only if there is none in the view of now, and until `deadline` at
    /// most.
    ///
    /// In the single-threaded mode, it waits for a scan of the servers whenever one is due, which
    /// the caller's thread has to drive: see [`OptionsBuilder::single_threaded`].
    ///
    /// [`OptionsBuilder::single_threaded`]: sdam_core::config::OptionsBuilder::single_threaded
    ///
    /// Picks two suitable servers at random, and returns the one with fewer operations. Dropping
    /// the future cancels the wait.
    ///
    /// # Errors
    ///
    /// Fails when the deadline has passed, at once if waiting cannot help, and when the client is
    /// closed; the error says why there was no server.
    pub async fn select(
        &self,
        criteria: &Arc<Criteria>,
        deadline: Option<Instant>,
    ) -> Result<SelectedServer<R>, Error> {
        let operation = ("selectServer", &mut LoggedOperation::default());
        Ok(self.find(criteria, deadline, operation).await?)
    }

    /// Selects a server for an operation that the log calls by its name (Server Selection,
    /// "Logging"), and by the same number each time that it selects one.
    async fn find(
        &self,
        criteria: &Arc<Criteria>,
        deadline: Option<Instant>,
        (operation, logged): (&str, &mut LoggedOperation),
    ) -> Result<SelectedServer<R>, Box<SelectionError>> {
        self.unless_forked(criteria)?;
        let LoggedOperation { number, has_waited } = logged;
        let number = || {
            if *number == 0 {
                *number = self.shared.commands.next_operation();
            }
            *number
        };
        let logger = self.shared.logger.get();
        let log = logger
            .and_then(|logger| logger.selection(self.runtime(), (operation, number), criteria));
        let Some(log) = log else {
            return self.find_quietly(criteria, deadline, None).await;
        };
        log.write(|log| log.started(&self.view()));
        let mut found = self.find_quietly(criteria, deadline, Some((&log, has_waited))).await;
        match &mut found {
            Ok(selected) => {
                selected.number = log.number;
                log.write(|log| log.succeeded(&self.view(), selected.address()));
            }
            Err(error) => log.write(|log| log.failed(&self.view(), error)),
        }
        found
    }

    async fn find_quietly(
        &self,
        criteria: &Arc<Criteria>,
        deadline: Option<Instant>,
        mut log: Option<(&SelectionLogger<'_, R>, &mut bool)>,
    ) -> Result<SelectedServer<R>, Box<SelectionError>> {
        let begun = self.runtime().now();
        if self.options().is_single_threaded() {
            // "Before each operation, the client checks if heartbeatFrequencyMS has passed"
            self.wait_by(criteria, begun, deadline).await?;
        }
        loop {
            if let Some(selected) = self.try_select(criteria) {
                return Ok(selected);
            }
            // "the driver MUST take care to only emit this message once per operation"
            if let Some((log, has_waited)) = log.take()
                && !std::mem::replace(has_waited, true)
            {
                let remaining = deadline.map(|deadline| deadline - self.runtime().now());
                log.write(|log| log.waiting(&self.view(), remaining));
            }
            self.wait_by(criteria, begun, deadline).await?;
        }
    }

    /// Waits until the view has changed, or a scan is over; the error says which option has set the
    /// deadline.
    async fn wait_by(
        &self,
        criteria: &Arc<Criteria>,
        begun: Instant,
        deadline: Option<Instant>,
    ) -> Result<(), Box<SelectionError>> {
        let waited = self.wait(Arc::clone(criteria), deadline).await;
        waited.map_err(|error| match deadline.filter(|by| *by <= self.runtime().now()) {
            Some(deadline) => Box::new((*error).limited(deadline - begun, self.options())),
            None => error,
        })
    }

    /// Waits until the view has changed, or a scan is over; dropping this cancels the wait.
    fn wait(&self, criteria: Arc<Criteria>, deadline: Option<Instant>) -> Wait<'_, Self> {
        let waiter = WaiterId(self.root().next_waiter.fetch_add(1, Ordering::Relaxed));
        let wait = Wait::new(self, waiter);
        let answer = Arc::clone(wait.answer());
        self.with_topology(|state| state.waiters.insert(waiter, answer));
        self.handle(topology::Input::Wait { waiter, criteria, deadline });
        wait
    }

    /// Says why an operation would find no server now, without waiting and without asking for
    /// checks; `None` if it would find one.
    ///
    /// # Panics
    ///
    /// Panics if the application's predicate does.
    pub fn diagnose(&self, criteria: &Criteria) -> Option<Box<SelectionError>> {
        if let Err(forked) = self.unless_forked(criteria) {
            return Some(forked);
        }
        // No predicate is called under the lock.
        let now = self.shared.runtime.now();
        let is_closed = self.with_topology(|state| state.closed);
        let evidence = |state: &mut TopologyState<R>| {
            state.topology().map(|topology| match is_closed {
                true => topology.evidence_of_closed(),
                false => topology.evidence(now),
            })
        };
        self.root().with_topology(evidence)?.diagnose(criteria)
    }

    /// Says why nothing more is sent, if the client was closed, or is another process's.
    pub fn why_ended(&self) -> Option<Error> {
        self.diagnose(&Criteria::write()).map(Error::from).filter(Error::is_end_of_client)
    }

    /// Refuses a process that was forked off, where no answer would ever come.
    fn unless_forked(&self, criteria: &Criteria) -> Result<(), Box<SelectionError>> {
        self.shared.process.check().map_err(|forked| {
            let topology_type = self.view.load().snapshot.description().topology_type;
            Box::new(SelectionError::forked(forked, criteria, topology_type))
        })
    }

    /// Selects a server from the view of now, if nothing else is to be done for that; it takes no
    /// lock, and asks neither the clock nor the system.
    ///
    /// # Errors
    ///
    /// Returns the criteria if there is no suitable server now, and if a selection is more than a
    /// look at the view: in the single-threaded mode, with a log, and in a process that was forked
    /// off. [`select`](Self::select) knows what to do then.
    ///
    /// # Panics
    ///
    /// Panics if the application's predicate does.
    pub fn select_now(&self, criteria: Arc<Criteria>) -> Result<SelectedServer<R>, Arc<Criteria>> {
        let shared = &self.shared;
        let is_plain = !shared.options.is_single_threaded()
            && shared.logger.get().is_none()
            && shared.process.is_current();
        let view = is_plain.then(|| self.view.load());
        match view.and_then(|view| Some((self.choose(&view, &criteria)?, view))) {
            Some((chosen, view)) => {
                Ok(SelectedServer::new(Guard::into_inner(view), chosen, Some(criteria)))
            }
            None => Err(criteria),
        }
    }

    /// As [`select_now`](Self::select_now), whatever else is to be done.
    fn try_select(&self, criteria: &Arc<Criteria>) -> Option<SelectedServer<R>> {
        let view = self.view.load();
        let chosen = self.choose(&view, criteria)?;
        Some(SelectedServer::new(Guard::into_inner(view), chosen, Some(Arc::clone(criteria))))
    }

    /// Returns the place of a suitable server in a view.
    fn choose(&self, view: &View<R>, criteria: &Criteria) -> Option<usize> {
        let servers = &view.servers;
        let load = |index: usize| servers.get(index).map_or(0, |server| server.operation_count());
        // The machine has the better error, so that a refusal is left to it too.
        // One server is the only choice.
        let random = if servers.len() > 1 { self.shared.random_bits() } else { 0 };
        let chosen = view.snapshot.select(criteria, load, random).ok()??;
        (chosen < servers.len()).then_some(chosen)
    }

    /// Returns every server of the deployment, those included that are never selected. As nothing
    /// was selected, commands to them may be answered in any role, see
    /// [`CheckedOut::command`](crate::CheckedOut::command).
    pub fn members(&self) -> Vec<SelectedServer<R>> {
        let view = self.view.load_full();
        let count = view.snapshot.description().servers().len().min(view.servers.len());
        (0..count).map(|index| SelectedServer::new(Arc::clone(&view), index, None)).collect()
    }

    /// Returns the one of [`members`](Self::members) that has this address, without a look at the
    /// others.
    pub fn member(&self, address: &ServerAddress) -> Option<SelectedServer<R>> {
        let view = self.view.load_full();
        let index = view.snapshot.description().servers().position(address).ok()?;
        (index < view.servers.len()).then(|| SelectedServer::new(view, index, None))
    }
}

impl<R: Runtime> Answers for Host<R> {
    type Answer = SelectionAnswer;

    fn give_up(&self, waiter: WaiterId, _: &Channel<SelectionAnswer>) {
        if self.shared.process.is_current() {
            // A woken task may end the wait under this very lock.
            self.defer(Deferred::Abandoned(waiter));
            self.drain();
        }
    }
}
