//! The exchange over a connection that is checked out: commands and their replies, one or several,
//! logging in once more where the server wants it (Authentication, "Reauthentication"), and raw
//! messages for proxies.

use std::ops::Deref;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use bson::{RawDocument, RawDocumentBuf, rawdoc};
use sdam_core::auth::CredentialRequest;
use sdam_core::command::MonitoredCommand;
use sdam_core::config::{AuthMechanism, ServerAddress};
use sdam_core::description::{ServerType, TopologyType};
use sdam_core::failure::{Cause, Failure, Stage};
use sdam_core::handshake::{ConnectionDescription, Handshake, HandshakeOptions, HandshakeProgress};
use sdam_core::id::ConnectionId;
use sdam_core::operation::{
    CommandError, CommandMessage, InvalidCommand, OperationError, OperationFailure, Overlay,
    ReplyFacts, Timeout, add_labels,
};
use sdam_core::pool::CheckOut;
use sdam_core::selection::read_preference_argument;
use sdam_core::session::ClusterTime;
use sdam_core::time::Instant;
use sdam_core::topology::Topics;
use sdam_core::wire::{
    self, Awaited, Flags, Message, OpMsg, ReplyDocument, WIRE_VERSION_OF_TRACE_CONTEXTS,
};
use zeroize::Zeroizing;

use crate::error::{Error, Repr};
use crate::machines::Shared;
use crate::machines::cluster_time::LatestClusterTime;
use crate::machines::commands::{Running, StartedCommand};
use crate::machines::runtime::Runtime;
use crate::net::socket::Socket;
use crate::net::stream::{Connection, KEPT_LEN, malformed};
use crate::observe::spans::{CommandSpan, Span};
use crate::operations::checked_out::{CheckedOut, ExchangeState};
use crate::operations::establish::{Asked, Login};
use crate::operations::request::Extension;
use crate::operations::timed::TimedCommand;
use crate::sync::lock;

/// A successful reply: a document, in the memory it was read into, and where it came from.
///
/// A cursor that it opens is continued at the same server, see [`Topology::member`]; behind a load
/// balancer over the same connection, which must be in use for that.
///
/// [`Topology::member`]: crate::client::Topology::member
#[derive(Clone, Debug)]
pub struct Reply {
    document: ReplyDocument,
    write_concern_error: Option<Box<CommandError>>,
    origin: Origin,
}

impl Reply {
    /// Gives the error of the write concern a label.
    pub(crate) fn add_label(&mut self, label: &'static str) {
        if let Some(error) = &mut self.write_concern_error {
            add_labels(&mut error.labels, [label]);
        }
    }
}

/// The place that a reply comes from.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    pub(crate) server: ServerAddress,
    pub(crate) connection: ConnectionId,
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
    /// for. The topology knows of it, if it says something of the server. Its labels are those of
    /// the server, and those that the client has added.
    pub fn write_concern_error(&self) -> Option<&CommandError> {
        self.write_concern_error.as_deref()
    }
}

/// A reply is a pointer to the bytes of its document, which it owns or shares.
impl Deref for Reply {
    type Target = RawDocument;

    fn deref(&self) -> &RawDocument {
        &self.document
    }
}

/// A message from the server.
struct Received {
    reply: Result<Reply, Refused>,
    /// The reply that follows without a request, if one does.
    next: Option<Awaited>,
}

/// A reply that is an error.
pub(crate) struct Refused {
    pub(crate) error: CommandError,
    /// The whole reply.
    document: ReplyDocument,
}

/// The error of an exchange.
#[derive(Debug)]
pub(crate) struct ExchangeError {
    pub(crate) error: OperationError,
    /// The whole reply that it comes from, if the server has replied.
    pub(crate) reply: Option<ReplyDocument>,
}

impl From<OperationError> for Box<ExchangeError> {
    fn from(error: OperationError) -> Self {
        Self::new(ExchangeError { error, reply: None })
    }
}

impl From<InvalidCommand> for Box<ExchangeError> {
    fn from(error: InvalidCommand) -> Self {
        OperationError::from(error).into()
    }
}

impl From<Refused> for Box<ExchangeError> {
    fn from(refused: Refused) -> Self {
        let Refused { error, document } = refused;
        let error = OperationError::Reply { stage: Stage::Operate, error };
        Self::new(ExchangeError { error, reply: Some(document) })
    }
}

impl<R: Runtime> Shared<R> {
    /// Returns by when to send or to receive: by the operation's deadline, or within
    /// socketTimeoutMS, if timeoutMS is set neither for the operation nor for the client (CSOT,
    /// "Backwards Breaking Considerations").
    pub(crate) fn limit(&self, timeout: Timeout) -> Option<Instant> {
        let options = &self.options;
        match timeout {
            Timeout::Unset if options.timeout().is_none() => {
                options.socket_timeout().map(|timeout| self.runtime.now() + timeout)
            }
            timeout => timeout.deadline(),
        }
    }

    /// As [`limit`](Self::limit), but refuses to send what is too late: no caller would wait for
    /// the reply, and the connection would be lost for nothing.
    pub(crate) fn limit_unless_passed(
        &self,
        timeout: Timeout,
    ) -> Result<Option<Instant>, OperationError> {
        self.unless_passed(timeout)?;
        Ok(self.limit(timeout))
    }

    /// Returns whether there are subscribers to commands, or spans.
    pub(crate) fn reports_commands(&self) -> bool {
        self.events.wants(Topics::COMMANDS) || self.spans.get().is_some()
    }

    /// Refuses to go on with what is too late already.
    fn unless_passed(&self, timeout: Timeout) -> Result<(), OperationError> {
        if timeout.deadline().is_some_and(|deadline| deadline <= self.runtime.now()) {
            let detail = "the time allowed had passed before the command was sent";
            let failure = Failure::new(Stage::Operate, Cause::Timeout, detail);
            return Err(OperationError::Stream(failure));
        }
        Ok(())
    }
}

/// Reads the reply that is due, and keeps the cluster time it brings.
fn parse_reply(
    message: &Message,
    awaited: Awaited,
    clock: &LatestClusterTime,
    origin: Origin,
) -> Result<Received, Failure> {
    let wire::Reply { document, next, .. } = awaited.read(message).map_err(malformed)?;
    let ReplyFacts { ok, error, cluster_time, .. } =
        ReplyFacts::of(&document).map_err(malformed)?;
    if let Some(time) = cluster_time {
        clock.advance(time);
    }
    let reply = match (ok, error) {
        (true, error) => Ok(Reply { document, write_concern_error: error.map(Box::new), origin }),
        (false, error) => Err(Refused { error: error.unwrap_or_default(), document }),
    };
    Ok(Received { reply, next })
}

/// The part of an exchange that is not the command itself.
#[derive(Clone, Default)]
pub(crate) struct ExchangeContext<'a> {
    /// The fields that an operation adds to the command, beside those of every command.
    pub(crate) overlay: Overlay<'a>,
    /// The cluster time of its session.
    pub(crate) cluster_time: Option<&'a ClusterTime>,
    /// The limit of the exchange.
    pub(crate) timeout: Timeout,
    /// A later limit of the wait for the reply.
    pub(crate) extension: Option<&'a Extension>,
    /// The number that events give the operation; 0 without one.
    pub(crate) number: i64,
    /// The span of the operation, if there are spans.
    pub(crate) span: Option<Arc<dyn Span>>,
}

impl ExchangeContext<'_> {
    /// Returns the limits of the wait for the reply.
    const fn limits(&self) -> (Timeout, Option<&Extension>) {
        (self.timeout, self.extension)
    }
}

/// Returns until when to wait on after a failure, if its cause is a deadline that was put off.
#[cold]
fn later(
    deadline: Option<Instant>,
    extension: Option<&Extension>,
    failure: &Failure,
) -> Option<Instant> {
    extension.filter(|_| failure.cause == Cause::Timeout)?.after(deadline?)
}

/// A command that was sent.
struct Sent<'a, R: Runtime> {
    /// The number of its message.
    id: i32,
    observers: Observers<'a, R>,
}

/// Those who are to hear how a command ends.
struct Observers<'a, R: Runtime> {
    /// Present if its start was published.
    started: Option<StartedCommand<R>>,
    /// Present if its time is counted.
    timed: Option<TimedCommand<'a, R>>,
    /// Present if it has a span.
    span: Option<CommandSpan>,
}

impl<R: Runtime> Observers<'_, R> {
    /// Publishes how the command has ended.
    fn end(self, received: &Result<Received, OperationError>) {
        let reply = match received {
            Ok(Received { reply: Ok(reply), .. }) => Ok(reply),
            Ok(Received { reply: Err(Refused { error, .. }), .. }) => {
                Err(OperationError::Reply { stage: Stage::Operate, error: error.clone() })
            }
            Err(error) => Err(error.clone()),
        };
        if let Some(timed) = self.timed {
            timed.end(reply.as_ref().err());
        }
        if let Some(span) = self.span {
            span.end(reply.as_ref().map(|reply| reply.document()));
        }
        if let Some(started) = self.started {
            started.end(|command, time| match reply {
                Ok(reply) => command.succeeded(time, reply.document()),
                Err(error) => command.failed(time, error),
            });
        }
    }

    /// Publishes that the command was not sent.
    fn fail(self, error: &OperationError) {
        if let Some(timed) = self.timed {
            timed.end(Some(error));
        }
        if let Some(span) = self.span {
            span.end(Err(error));
        }
        if let Some(started) = self.started {
            started.end(|command, time| command.failed(time, error.clone()));
        }
    }

    /// Publishes that the command was sent, to which there is no reply.
    fn end_unacknowledged(self) {
        if let Some(timed) = self.timed {
            timed.end(None);
        }
        if let Some(span) = self.span {
            span.end_unacknowledged();
        }
        if let Some(started) = self.started {
            started.end(MonitoredCommand::unacknowledged);
        }
    }

    /// Returns the same, which may live longer than the request.
    fn into_owned(self) -> Observers<'static, R> {
        let timed = self.timed.map(TimedCommand::into_owned);
        Observers { started: self.started, timed, span: self.span }
    }
}

/// "ReauthenticationRequired"
const REAUTHENTICATION_REQUIRED: i32 = 391;

impl<R: Runtime> CheckedOut<R> {
    /// Runs a command on a database, and returns its reply.
    ///
    /// Attached to a copy of it are `$db`; the read preference that its server was selected with,
    /// as `$readPreference`, where that server needs it; the server API version of the options; and
    /// `$clusterTime`, once a server has sent one. To a server that was not selected but named, as
    /// [`Topology::members`] does, commands say `primaryPreferred`, so that it answers whatever its
    /// role. What is attached takes the place of a field of the same name in the command: do not
    /// rely on such fields.
    ///
    /// What an error says of the server is reported to the topology before this returns. If the
    /// server wants the client to log in once more, as with MONGODB-OIDC when a token has expired,
    /// that is done, and the command sent again.
    ///
    /// [`Topology::members`]: crate::client::Topology::members
    ///
    /// # Errors
    ///
    /// Fails if the command cannot be sent as it is, if the stream fails or the deadline passes,
    /// which closes the connection, and if the server replies with an error.
    pub async fn command(&mut self, database: &str, command: &RawDocument) -> Result<Reply, Error> {
        let (message, context) = (CommandMessage::new(database, command), self.context());
        let reply = self.exchange(&message, &context, Flags::NONE).await;
        reply.map_err(|error| self.failed(*error))
    }

    /// As [`command`](Self::command), with document sequences, each a name and its documents: the
    /// `documents` of an insert, for one.
    ///
    /// # Errors
    ///
    /// Fails as [`command`](Self::command) does, and if two sequences have the same name, or one
    /// has NUL in its name.
    pub async fn command_with_sequences(
        &mut self,
        database: &str,
        command: &RawDocument,
        sequences: &[(&str, &[&RawDocument])],
    ) -> Result<Reply, Error> {
        let message = CommandMessage::new(database, command).with_sequences(sequences);
        let context = self.context();
        let reply = self.exchange(&message, &context, Flags::NONE).await;
        reply.map_err(|error| self.failed(*error))
    }

    /// Sends a command to which the server gives no reply, as for unacknowledged writes.
    ///
    /// The command itself must say so to the server, with `writeConcern: { w: 0 }`.
    ///
    /// # Errors
    ///
    /// Fails if the command cannot be sent; what the server makes of it is not known.
    pub async fn command_unacknowledged(
        &mut self,
        database: &str,
        command: &RawDocument,
    ) -> Result<(), Error> {
        let (message, context) = (CommandMessage::new(database, command), self.context());
        let sent = self.exchange_unacknowledged(&message, &context).await;
        sent.map(drop).map_err(|error| self.error(error))
    }

    /// As [`command_unacknowledged`](Self::command_unacknowledged); the reply says `ok`, and
    /// nothing else.
    pub(crate) async fn exchange_unacknowledged(
        &mut self,
        message: &CommandMessage<'_>,
        context: &ExchangeContext<'_>,
    ) -> Result<Reply, OperationError> {
        let sent = self.send(message, context, Flags::MORE_TO_COME).await?;
        self.state = ExchangeState::Idle;
        sent.observers.end_unacknowledged();
        let (server, connection) = (self.server().clone(), self.connection_id());
        let (document, origin) = (rawdoc! { "ok": 1 }.into(), Origin { server, connection });
        Ok(Reply { document, write_concern_error: None, origin })
    }

    /// Returns an error that names the server, with the whole reply that it comes from.
    pub(crate) fn failed(&self, ExchangeError { error, reply }: ExchangeError) -> Error {
        self.error(error).with_reply(reply)
    }

    /// Returns the context of exchanges that are no operation's.
    pub(crate) fn context(&mut self) -> ExchangeContext<'static> {
        if self.number == 0 && self.shared().reports_commands() {
            self.number = self.shared().commands.next_operation();
        }
        ExchangeContext {
            timeout: self.timeout,
            number: self.number,
            span: self.span.clone(),
            ..ExchangeContext::default()
        }
    }

    /// Returns an error that names the server.
    pub(crate) fn error(&self, error: OperationError) -> Error {
        let verdict = self.pool().judge(&error);
        let server = Some(self.server().clone());
        Error::new(Repr::Operation(error), server, None).judged(verdict)
    }

    /// Sends a command and receives its reply, and once more if the server wants another login: the
    /// time that a person takes for that does not count here, and does for what comes after it.
    ///
    /// With [`Flags::EXHAUST_ALLOWED`] the server may answer with several replies, of which each
    /// call takes one: nothing is sent while one is due. Events report each as the reply to a
    /// request of its own, which there would be without that.
    pub(crate) async fn exchange(
        &mut self,
        message: &CommandMessage<'_>,
        context: &ExchangeContext<'_>,
        flags: Flags,
    ) -> Result<Reply, Box<ExchangeError>> {
        let mut again = None::<ExchangeContext<'_>>;
        loop {
            let context = again.as_ref().unwrap_or(context);
            let Sent { id, observers } = match self.state {
                ExchangeState::Streaming(next) if flags.contains(Flags::EXHAUST_ALLOWED) => {
                    self.go_on(next, message, context)?
                }
                _ => self.send(message, context, flags).await?,
            };
            let awaited = match flags.contains(Flags::EXHAUST_ALLOWED) {
                true => Awaited::stream(id),
                false => Awaited::op_msg(id),
            };
            let received = self.receive_reply(awaited, context.limits()).await;
            observers.end(&received);
            let received = received?;
            self.state = match (received.next.map(Awaited::request), &received.reply) {
                (Some(next), Ok(_)) => ExchangeState::Streaming(next),
                (Some(_), Err(_)) => ExchangeState::Broken,
                (None, _) => ExchangeState::Idle,
            };
            match received.reply {
                Err(refused)
                    if again.is_none() && self.is_idle() && self.must_reauthenticate(&refused) =>
                {
                    let timeout = self.reauthenticate(context.timeout).await?;
                    again = Some(ExchangeContext { timeout, ..context.clone() });
                }
                reply => return self.conclude(reply),
            }
        }
    }

    /// Takes the next reply of a stream for that to a request which need not be sent.
    fn go_on<'a>(
        &mut self,
        next: i32,
        message: &CommandMessage<'a>,
        context: &ExchangeContext<'_>,
    ) -> Result<Sent<'a, R>, OperationError> {
        let shared = Arc::clone(self.shared());
        shared.process.check().map_err(InvalidCommand::from)?;
        shared.limit_unless_passed(context.timeout)?;
        let (unsent, _) = self.write(message, context, Flags::EXHAUST_ALLOWED)?;
        self.state = ExchangeState::Awaiting(next);
        Ok(Sent { id: next, ..unsent })
    }

    /// Returns whether another reply to the last request comes without one. Dropped then, the
    /// check-out closes its connection.
    pub const fn is_streaming(&self) -> bool {
        matches!(self.state, ExchangeState::Streaming(_))
    }

    /// Receives the reply that is due, and keeps the cluster time it brings.
    async fn receive_reply(
        &mut self,
        awaited: Awaited,
        (timeout, extension): (Timeout, Option<&Extension>),
    ) -> Result<Received, OperationError> {
        let (server, connection) = (self.server().clone(), self.connection_id());
        let (origin, mut deadline) = (Origin { server, connection }, self.shared().limit(timeout));
        let connection = self.connection();
        let received = loop {
            match connection.receive(deadline).await {
                Ok(message) => {
                    break connection.decompressor.decompress(message).map_err(malformed);
                }
                Err(failure) => match later(deadline, extension, &failure) {
                    Some(later) => deadline = Some(later),
                    None => break Err(failure),
                },
            }
        };
        let clock = &self.shared().clock;
        let received = received.and_then(|message| parse_reply(&message, awaited, clock, origin));
        received.map_err(|failure| self.broken(failure))
    }

    async fn send<'a>(
        &mut self,
        message: &CommandMessage<'a>,
        context: &ExchangeContext<'_>,
        flags: Flags,
    ) -> Result<Sent<'a, R>, OperationError> {
        self.begin()?;
        self.shared().unless_passed(context.timeout)?;
        let (Sent { id, observers }, name) = self.write(message, context, flags)?;
        self.connection().compress(name);
        // "After wire message construction, drivers MUST check for timeout before writing the
        // message to the server", and return the connection (CSOT, "Command Execution").
        let sent = match self.shared().limit_unless_passed(context.timeout) {
            Ok(deadline) => {
                self.state = ExchangeState::Awaiting(id);
                let sent = self.connection().send(deadline).await;
                sent.map_err(|failure| self.broken(failure))
            }
            Err(late) => Err(late),
        };
        if let Some(large) = self.connection().take_large() {
            self.shared().spare.give(large);
        }
        match sent {
            Ok(()) => Ok(Sent { id, observers }),
            Err(error) => {
                observers.fail(&error);
                Err(error)
            }
        }
    }

    /// Writes a command, with all that is added to it, and publishes that it is about to be sent;
    /// returns its name, too.
    fn write<'a>(
        &mut self,
        message: &CommandMessage<'a>,
        context: &ExchangeContext<'_>,
        flags: Flags,
    ) -> Result<(Sent<'a, R>, &'a str), InvalidCommand> {
        let shared = Arc::clone(self.shared());
        let read_preference = self.read_preference();
        let (id, latest) = (shared.commands.next_request(), shared.clock.now());
        // A standalone has no cluster times, whatever others the application has given the client
        // (Causal Consistency, test 11).
        let cluster_time = match self.has_cluster_times() {
            true => ClusterTime::later(latest.as_deref(), context.cluster_time),
            false => None,
        };
        let overlay = Overlay {
            read_preference: read_preference.as_deref(),
            server_api: shared.options.server_api(),
            cluster_time: cluster_time.map(ClusterTime::document),
            ..context.overlay
        };
        let connection = self.connection();
        let limit = connection.connection_description.max_message_size_bytes;
        if message.sequences_length() > KEPT_LEN {
            connection.outgoing = shared.spare.take();
        }
        let written = overlay.write(message, (id, flags), limit, &mut connection.outgoing);
        if written.is_err()
            && let Some(large) = connection.take_large()
        {
            shared.spare.give(large);
        }
        let name = written?;
        let (started, span) = match shared.reports_commands() {
            true => self.publish_started(id, context),
            false => (None, None),
        };
        let is_counted = shared.meter.is_on();
        let timed = is_counted.then(|| TimedCommand::begin(self.pool(), name));
        Ok((Sent { id, observers: Observers { started, timed, span } }, name))
    }

    /// Returns whether the server gossips cluster times, as replica sets and sharded clusters do.
    pub(crate) fn has_cluster_times(&self) -> bool {
        self.connection_description().server_type != ServerType::Standalone
    }

    /// Publishes to subscribers that the written command is about to be sent.
    fn publish_started(
        &mut self,
        id: i32,
        context: &ExchangeContext<'_>,
    ) -> (Option<StartedCommand<R>>, Option<CommandSpan>) {
        let shared = Arc::clone(self.shared());
        let (is_wanted, spans) = (shared.events.wants(Topics::COMMANDS), shared.spans.get());
        let number = match context.number {
            // The subscription began after the operation.
            0 => shared.commands.next_operation(),
            number => number,
        };
        let (server, address) = (self.pool().id(), self.server().clone());
        let (at, service) = (self.connection_id(), self.check_out.service);
        let connection = self.connection();
        let max_wire_version = connection.connection_description.max_wire_version;
        let takes_trace = max_wire_version >= WIRE_VERSION_OF_TRACE_CONTEXTS;
        let of_server = connection.connection_description.server_connection_id;
        let Ok(message) = OpMsg::read(&connection.outgoing) else { return (None, None) };
        let command =
            MonitoredCommand::new(&message, id, number, at).with_server(of_server, service);
        let (command, since) = (Arc::new(command), shared.runtime.now());
        let span = spans
            .and_then(|spans| spans.command(context.span.as_deref(), &address, &command, &message));
        let traceparent = spans.zip(span.as_ref()).filter(|_| takes_trace);
        let traceparent = traceparent.and_then(|(spans, it)| spans.traceparent(it));
        let running = Running { server, address, command, since };
        let started =
            is_wanted.then(|| StartedCommand::begin(&shared, running, &message)).flatten();
        if let Some(traceparent) = traceparent {
            self.connection().name_trace(&traceparent);
        }
        (started, span)
    }

    /// Returns what commands say of whom they are meant for.
    fn read_preference(&self) -> Option<RawDocumentBuf> {
        match &self.selection {
            Some(selection) => selection.read_preference(),
            // "To ensure that any server type can handle the request": a caller that names a server
            // means it, as one that connects to it directly does.
            None => {
                let (topology, server) =
                    (TopologyType::Single, self.connection_description().server_type);
                read_preference_argument(topology, server, None)
            }
        }
    }

    /// Refuses to begin an exchange while there is one, or in a process that was forked off.
    pub(crate) fn begin(&self) -> Result<(), InvalidCommand> {
        self.shared().process.check()?;
        match self.state {
            ExchangeState::Idle => Ok(()),
            ExchangeState::Awaiting(_)
            | ExchangeState::Streaming(_)
            | ExchangeState::Authenticating => Err(InvalidCommand::Busy),
            ExchangeState::Unreported => Err(InvalidCommand::Unreported),
            ExchangeState::Broken => Err(InvalidCommand::Broken),
        }
    }

    /// Reports to the topology what a reply says of the server.
    fn conclude(&self, reply: Result<Reply, Refused>) -> Result<Reply, Box<ExchangeError>> {
        let error = match &reply {
            Ok(reply) => reply.write_concern_error(),
            Err(refused) => Some(&refused.error),
        };
        if let Some(error) = error.filter(|error| error.state_change().is_some()) {
            let (stage, error) = (Stage::Operate, error.clone());
            self.report_failure(OperationError::Reply { stage, error });
        }
        reply.map_err(Into::into)
    }

    /// The connection is of no more use; reports to the topology why.
    pub(crate) fn broken(&mut self, failure: Failure) -> OperationError {
        self.state = ExchangeState::Broken;
        let error = OperationError::Stream(failure);
        self.broken_by = Some(Box::new(error.clone()));
        self.report_failure(error.clone());
        error
    }

    pub(crate) fn report_failure(&self, error: OperationError) {
        let CheckOut { generation, service, .. } = self.check_out;
        let max_wire_version = self.connection_description().max_wire_version;
        let failure =
            OperationFailure::new(generation, max_wire_version, error).with_service(service);
        self.pool().operation_failed(failure);
    }

    fn must_reauthenticate(&self, refused: &Refused) -> bool {
        refused.error.code == Some(REAUTHENTICATION_REQUIRED)
            && self.connection_description().mechanism == Some(AuthMechanism::Oidc)
    }

    /// Logs in once more over the same connection. If that fails, the connection is closed, and the
    /// topology receives only what the stream says of the server. Returns the limit, put off by the
    /// time that a person has taken.
    async fn reauthenticate(&mut self, timeout: Timeout) -> Result<Timeout, OperationError> {
        self.state = ExchangeState::Authenticating;
        match self.log_in(timeout).await {
            Ok((connection_description, timeout)) => {
                self.connection().connection_description = connection_description;
                self.state = ExchangeState::Idle;
                Ok(timeout)
            }
            Err(Refusal::Stream(failure)) => Err(self.broken(failure)),
            Err(Refusal::Login(error)) => {
                self.state = ExchangeState::Broken;
                self.broken_by = Some(Box::new(error.clone()));
                Err(error)
            }
        }
    }

    async fn log_in(
        &mut self,
        mut timeout: Timeout,
    ) -> Result<(ConnectionDescription, Timeout), Refusal> {
        let shared = Arc::clone(self.shared());
        // MONGODB-OIDC has no nonce.
        let opening = HandshakeOptions::new(RawDocumentBuf::new(), [0; 24])
            .with_credential_cache(lock(&shared.credential_cache).clone())
            .with_encrypted(self.connection().stream.transport().is_encrypted())
            .with_server(Some(self.server().clone()));
        let (mut out, connection_description) =
            (Zeroizing::new(Vec::new()), self.connection_description().clone());
        let (handshake, mut step) =
            Handshake::reauthenticate(&shared.options, opening, connection_description, &mut out)?;
        let mut login = Login::new(&shared, handshake);
        loop {
            let (connection, deadline) = (self.connection(), timeout.deadline());
            let sent = connection.stream.send(&std::mem::take(&mut out), deadline).await;
            sent.map_err(|error| Refusal::Stream(connection.stream.failure(&error)))?;
            step = match step {
                HandshakeProgress::Done(connection_description) => {
                    login.heed_cluster_time();
                    return Ok((*connection_description, timeout));
                }
                HandshakeProgress::Reading => {
                    let message = connection.receive(deadline).await.map_err(Refusal::Stream)?;
                    login.receive(message.bytes(), &mut out)?
                }
                HandshakeProgress::Asking(question) => {
                    let (is_for_person, began) = (question.is_for_person(), login.now());
                    let deadline = deadline.filter(|_| !is_for_person);
                    let step = connection.answer(&mut login, question, deadline, &mut out).await?;
                    // "the callback is not subject to CSOT"
                    if is_for_person {
                        timeout = timeout.later_by(login.now() - began);
                    }
                    step
                }
            };
        }
    }
}

/// The reason why logging in once more has failed.
enum Refusal {
    /// The stream has failed.
    Stream(Failure),
    /// The server refuses the client, or there is no token.
    Login(OperationError),
}

impl From<OperationError> for Refusal {
    fn from(error: OperationError) -> Self {
        Self::Login(error)
    }
}

impl<S: Socket> Connection<S> {
    /// Waits for the answer, but not beyond the deadline, nor on a connection that has ended; a
    /// socket that blocks is left alone meanwhile, for the answer would not reach its thread.
    async fn answer<R: Runtime>(
        &mut self,
        login: &mut Login<R>,
        question: CredentialRequest,
        deadline: Option<Instant>,
        out: &mut Vec<u8>,
    ) -> Result<HandshakeProgress, Refusal> {
        let time = deadline.map(|deadline| deadline - login.now());
        let blocks = self.stream.cancellation.interrupts();
        let mut answer = pin!(login.answer(question, time, out));
        let mut ends = pin!(self.receive(deadline));
        std::future::poll_fn(|cx| match answer.as_mut().poll(cx) {
            Poll::Ready(Ok(progress)) => Poll::Ready(Ok(progress)),
            Poll::Ready(Err(Asked::Unanswered(failure))) => {
                Poll::Ready(Err(Refusal::Login(OperationError::Stream(failure))))
            }
            Poll::Ready(Err(Asked::Failed(error))) => Poll::Ready(Err(Refusal::Login(error))),
            Poll::Pending if blocks => Poll::Pending,
            Poll::Pending => ends.as_mut().poll(cx).map(|ends| {
                let asked = |_| malformed("a message that nothing asked for");
                Err(Refusal::Stream(ends.map_or_else(std::convert::identity, asked)))
            }),
        })
        .await
    }
}

impl<R: Runtime> CheckedOut<R> {
    /// Runs a command that the server may answer with several replies (OP_MSG, "exhaustAllowed").
    /// Events report the first.
    ///
    /// # Errors
    ///
    /// Fails if the command cannot be sent.
    pub async fn command_exhaust(
        &mut self,
        database: &str,
        command: &RawDocument,
    ) -> Result<Exhaust<'_, R>, Error> {
        let (message, context) = (CommandMessage::new(database, command), self.context());
        let sent = self.send(&message, &context, Flags::EXHAUST_ALLOWED).await;
        let Sent { id, observers } = sent.map_err(|error| self.error(error))?;
        let observers = Some(observers.into_owned());
        Ok(Exhaust { checked_out: self, next: Some(id), observers })
    }
}

/// The replies to one command, as they come.
///
/// Dropped before the last, it leaves the exchange unfinished, so that the check-out's connection
/// is closed when the check-out ends.
pub struct Exhaust<'a, R: Runtime> {
    checked_out: &'a mut CheckedOut<R>,
    /// The message that the next reply answers; `None` after the last.
    next: Option<i32>,
    /// Present until the first reply.
    observers: Option<Observers<'static, R>>,
}

impl<R: Runtime> std::fmt::Debug for Exhaust<'_, R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Exhaust")
            .field("checked_out", &self.checked_out)
            .field("next", &self.next)
            .finish_non_exhaustive()
    }
}

impl<R: Runtime> Exhaust<'_, R> {
    /// Waits for the next reply; `None` after the last. Cancelling the wait loses nothing.
    ///
    /// # Errors
    ///
    /// Fails as [`CheckedOut::command`] does; an error is the last reply.
    pub async fn next(&mut self) -> Option<Result<Reply, Error>> {
        let id = self.next?;
        let reply = self.receive(id).await;
        Some(reply.map_err(|error| self.checked_out.failed(*error)))
    }

    /// Waits for the reply that answers `id`.
    async fn receive(&mut self, id: i32) -> Result<Reply, Box<ExchangeError>> {
        if let Err(forked) = self.checked_out.shared().process.check() {
            self.next = None;
            return Err(InvalidCommand::from(forked).into());
        }
        let timeout = self.checked_out.timeout;
        let received = self.checked_out.receive_reply(Awaited::stream(id), (timeout, None)).await;
        if let Some(observers) = self.observers.take() {
            observers.end(&received);
        }
        self.next = None;
        let received = received?;
        let more = received.next.map(Awaited::request);
        self.next = more.filter(|_| received.reply.is_ok());
        self.checked_out.state = match (self.next, more) {
            (Some(id), _) => ExchangeState::Awaiting(id),
            (None, None) => ExchangeState::Idle,
            (None, Some(_)) => ExchangeState::Broken,
        };
        self.checked_out.conclude(received.reply)
    }
}

/// The outcome of an exchange of raw messages.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Outcome {
    /// The reply says nothing of the server, and the connection can be used again.
    Success,
    /// The operation failed: the topology receives that, and the connection is kept only if the
    /// server has replied.
    Failure(OperationError),
    /// The connection is not to be used again; that says nothing of the server.
    Discard,
}

impl Outcome {
    /// Judges a reply: it is a failure if it says that the server is not what it was, also in the
    /// error of its write concern.
    pub fn of_reply(reply: &RawDocument) -> Self {
        match CommandError::in_reply(reply).filter(|error| error.state_change().is_some()) {
            Some(error) => Self::Failure(OperationError::Reply { stage: Stage::Operate, error }),
            None => Self::Success,
        }
    }
}

impl<R: Runtime> CheckedOut<R> {
    /// Sends a message as it is, a header and a body; for proxies.
    ///
    /// The exchange ends with [`report`](Self::report). A check-out that is dropped before that
    /// closes its connection.
    ///
    /// # Errors
    ///
    /// Fails if the message is not exactly one, and if the stream fails.
    pub async fn send_message(&mut self, message: &Message) -> Result<(), Error> {
        let sent = self.send_raw(message).await;
        sent.map_err(|error| self.error(error))
    }

    async fn send_raw(&mut self, message: &Message) -> Result<(), OperationError> {
        self.shared().process.check().map_err(InvalidCommand::from)?;
        if !matches!(self.state, ExchangeState::Unreported) {
            self.begin()?;
        }
        let limit = self.connection_description().max_message_size_bytes;
        if message.bytes().len() > limit {
            let length = message.bytes().len();
            return Err(InvalidCommand::TooLong { length, limit }.into());
        }
        let deadline = self.shared().limit_unless_passed(self.timeout)?;
        self.state = ExchangeState::Awaiting(message.header().request_id);
        let sent = self.connection().stream.send(message.bytes(), deadline).await;
        if let Err(error) = sent {
            let failure = self.connection().stream.failure(&error);
            return Err(self.broken(failure));
        }
        let flags = self.flags(message);
        self.takes_several = flags.contains(Flags::EXHAUST_ALLOWED);
        if flags.contains(Flags::MORE_TO_COME) {
            self.state = ExchangeState::Unreported;
        }
        Ok(())
    }

    /// Returns whether [`receive_message`](Self::receive_message) has something to wait for: not
    /// after a message to which there is no reply, nor after the last of several replies.
    pub const fn is_reply_due(&self) -> bool {
        matches!(self.state, ExchangeState::Awaiting(_))
    }

    /// Receives a message as it is: the reply to the one sent, or the next of several.
    ///
    /// # Errors
    ///
    /// Fails if no reply is due, and if the stream fails or the deadline passes; the topology has
    /// received that then.
    pub async fn receive_message(&mut self) -> Result<Message, Error> {
        let received = self.receive_raw().await;
        received.map_err(|error| self.error(error))
    }

    async fn receive_raw(&mut self) -> Result<Message, OperationError> {
        self.shared().process.check().map_err(InvalidCommand::from)?;
        if !matches!(self.state, ExchangeState::Awaiting(_)) {
            return Err(InvalidCommand::NoReplyDue.into());
        }
        let deadline = self.shared().limit(self.timeout);
        let message = self.connection().receive(deadline).await;
        let message = message.map_err(|failure| self.broken(failure))?;
        // "The server will never produce replies with the moreToCome bit set unless the request has
        // the exhaustAllowed bit set", so that most replies need not be decompressed.
        let more = self.takes_several && self.flags(&message).contains(Flags::MORE_TO_COME);
        self.state = match more {
            true => ExchangeState::Awaiting(message.header().request_id),
            false => ExchangeState::Unreported,
        };
        Ok(message)
    }

    /// Ends an exchange of raw messages: the check-out can be used for the next one, or dropped.
    ///
    /// If replies are still due, or the stream has failed, the connection is of no more use,
    /// whatever the outcome.
    pub fn report(&mut self, outcome: Outcome) {
        let settled = matches!(self.state, ExchangeState::Idle | ExchangeState::Unreported);
        let (usable, error) = match outcome {
            Outcome::Success => (settled, None),
            Outcome::Discard => (false, None),
            Outcome::Failure(error @ OperationError::Reply { .. }) => (settled, Some(error)),
            Outcome::Failure(error) => (false, Some(error)),
        };
        self.state = if usable { ExchangeState::Idle } else { ExchangeState::Broken };
        if let Some(error) = error {
            if !usable {
                self.broken_by = Some(Box::new(error.clone()));
            }
            self.report_failure(error);
        }
    }

    /// Returns the flags of a message that may be compressed; none, if it has none.
    fn flags(&mut self, message: &Message) -> Flags {
        let plain = self.connection().decompressor.decompress(message.clone());
        plain.and_then(|plain| plain.flags()).unwrap_or_default()
    }
}
