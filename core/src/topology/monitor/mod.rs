//! One server's heartbeats: the polling and the streaming protocol.
//!
//! Implements the Server Monitoring specification. A monitor is no machine of its own but a part of
//! [`Topology`](crate::topology::Topology): its effects are appended to the topology's actions, and
//! the outcome of a check is returned.
//!
//! ```text
//!              ┌────────── request, or time is up ──────────┐
//!              │                                            ▼
//!          Sleeping ◀── settle: polling, or failed ── Checking ◀─┐
//!              ▲                                        │        │ settle: streaming, or a retry
//!              └───────────── cancel ────────────────── ┤        │ after a network error
//!                                                       ▼        │
//!                                  outcome returned ── Ended ────┘
//! ```
//!
//! In the single-threaded mode it sleeps until the topology's scan wants a check.

mod context;
mod conversation;
mod follow_up;
mod idle_cutoff;
mod pinger;
mod round_trip;

use std::sync::Arc;
use std::time::Duration;

use context::Identity;
pub(crate) use context::{Circumstances, Context};
use conversation::{CheckReply, Conversation, Known};
use follow_up::Next;
use idle_cutoff::IdleCutoff;
pub(super) use pinger::CROWD;
use pinger::Pinger;
use round_trip::RoundTripTime;

use crate::config::ServerAddress;
use crate::description::{ServerDescription, TopologyVersion};
use crate::failure::{Cause, Failure, Stage};
use crate::id::{LinkId, ServerId};
use crate::time::Instant;
use crate::topology::{Action, EventKind, MonitoringConnection};

/// The outcome of a check: a description of the server, or why there is none.
pub(crate) type Outcome = Result<Arc<ServerDescription>, Failure>;

/// The heartbeats of one server.
#[derive(Clone, Debug, serde::Serialize)]
pub(crate) struct Monitor {
    identity: Identity,
    phase: Phase,
    /// The dedicated connection, kept between checks.
    conversation: Option<Conversation>,
    /// The second connection, while the first one is streaming.
    pinger: Option<Pinger>,
    round_trip: RoundTripTime,
    /// The reply to the last successful check.
    known: Option<Known>,
    /// The time when the last check ended.
    ended: Option<Instant>,
    /// The time when a network error was last followed by another check at once, or will be.
    retried: Option<Instant>,
    /// Since when every connection was refused, if the last one was.
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<Instant>,
    #[serde(skip)]
    idle_cutoff: IdleCutoff,
}

#[derive(Clone, Debug, serde::Serialize)]
enum Phase {
    /// The next check begins at that time, or earlier on request; without one, on request only.
    Sleeping { until: Option<Instant> },
    /// A check is in progress.
    Checking {
        started: Instant,
        deadline: Option<Instant>,
        awaited: bool,
        #[serde(skip)]
        connection: MonitoringConnection,
    },
    /// A check has ended, and its outcome is being processed.
    Ended { next: Next },
}

impl Monitor {
    /// Creates a monitor with the time of its first check, of a server that was last checked then,
    /// if it was, by another one.
    pub(crate) fn new(
        server: ServerId,
        address: ServerAddress,
        first: Option<Instant>,
        checked: Option<Instant>,
    ) -> Self {
        Self {
            identity: Identity::new(server, address),
            phase: Phase::Sleeping { until: first },
            conversation: None,
            pinger: None,
            round_trip: RoundTripTime::default(),
            known: None,
            ended: checked,
            retried: None,
            refused: None,
            idle_cutoff: IdleCutoff::default(),
        }
    }

    /// Returns when [`fire`](Self::fire) is next due.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let own = match self.phase {
            Phase::Sleeping { until } => until,
            Phase::Checking { deadline, .. } => deadline,
            Phase::Ended { .. } => None,
        };
        let ping = self.pinger.as_ref().and_then(Pinger::deadline);
        own.into_iter().chain(ping).min()
    }

    /// Returns when the next check begins, `None` while one is in progress and in the
    /// single-threaded mode.
    pub(crate) const fn next_check(&self) -> Option<Instant> {
        match self.phase {
            Phase::Sleeping { until } => until,
            Phase::Checking { .. } | Phase::Ended { .. } => None,
        }
    }

    /// Returns whether no check is in progress.
    pub(crate) const fn is_sleeping(&self) -> bool {
        matches!(self.phase, Phase::Sleeping { .. })
    }

    /// Returns since when a check has been in progress, if one is, and how far it has come.
    pub(crate) fn progress(&self) -> Option<(Instant, Stage)> {
        let Phase::Checking { started, .. } = self.phase else { return None };
        let stage = self.conversation.as_ref().map_or(Stage::Hello, Conversation::stage);
        Some((started, stage))
    }

    /// Returns when the last check ended, if there was one.
    pub(crate) const fn last_check(&self) -> Option<Instant> {
        self.ended
    }

    /// Begins a check unless one is in progress.
    pub(crate) fn check(&mut self, ctx: &mut Context<'_>) {
        if self.is_sleeping() {
            self.begin(None, ctx);
        }
    }

    /// Does what is due: begins a check, or gives one up.
    pub(crate) fn fire(&mut self, ctx: &mut Context<'_>) -> Option<Outcome> {
        if let Some(pinger) = &mut self.pinger {
            pinger.fire(&mut self.identity, ctx);
        }
        match self.phase {
            Phase::Sleeping { until: Some(until) } if until <= ctx.now.judged => {
                self.begin(None, ctx);
                None
            }
            Phase::Checking { deadline: Some(deadline), awaited, .. }
                if deadline <= ctx.now.judged =>
            {
                let stage = self.conversation.as_ref().map_or(Stage::Hello, Conversation::stage);
                let failure = ctx.timeout(awaited, stage);
                self.hang_up(ctx);
                Some(self.fail(failure, ctx))
            }
            Phase::Sleeping { .. } | Phase::Checking { .. } | Phase::Ended { .. } => None,
        }
    }

    /// The stream is up.
    pub(crate) fn opened(&mut self, link: LinkId, ctx: &mut Context<'_>) {
        if let Some(conversation) = self.conversation_of(link) {
            if conversation.send_hello(ctx)
                && let Phase::Checking { deadline, .. } = &mut self.phase
            {
                *deadline = ctx.connect_deadline();
            }
        } else if let Some(pinger) = &mut self.pinger {
            pinger.opened(link, ctx);
        }
    }

    /// The stream is being opened, and has come that far; returns how long its name was looked up,
    /// if that is over now.
    pub(crate) fn reached(&mut self, link: LinkId, stage: Stage, now: Instant) -> Option<Duration> {
        let Phase::Checking { .. } = self.phase else { return None };
        self.conversation_of(link)?.reached(stage, now)
    }

    /// Returns the connections that were closed in a row while they waited for news.
    pub(crate) const fn idle_cutoff(&self) -> IdleCutoff {
        self.idle_cutoff
    }

    /// Returns how many connections are open over which the server has answered.
    pub(crate) fn open_connections(&self) -> usize {
        let own = self.conversation.as_ref().is_some_and(Conversation::is_established);
        let other = self.pinger.as_ref().is_some_and(Pinger::is_established);
        usize::from(own) + usize::from(other)
    }

    /// Bytes have come; returns the outcome of the check that they have ended, if they have.
    ///
    /// [`settle`](Self::settle) is to be called before [`next_outcome`](Self::next_outcome) says
    /// what the bytes behind that amount to.
    pub(crate) fn received(
        &mut self,
        link: LinkId,
        bytes: &[u8],
        ctx: &mut Context<'_>,
    ) -> Option<Outcome> {
        if let Some(conversation) = self.conversation_of(link) {
            conversation.receive(bytes);
            return self.next_outcome(ctx);
        }
        let Self { pinger, round_trip, known, .. } = self;
        pinger.as_mut()?.received(link, bytes, (known.as_ref(), round_trip), ctx);
        None
    }

    /// Returns the outcome of the check that the bytes received so far have ended, if they have.
    pub(crate) fn next_outcome(&mut self, ctx: &mut Context<'_>) -> Option<Outcome> {
        let conversation = self.conversation.as_mut()?;
        let reply = conversation.next_reply(self.known.as_ref());
        let connection = conversation.connection();
        if matches!(reply, Ok(Some(_))) && self.asks_again(ctx) {
            return None;
        }
        match (reply, &self.phase) {
            (Ok(None), _) => None,
            (Ok(Some(reply)), Phase::Checking { started, awaited, .. }) => {
                let (started, awaited) = (*started, *awaited);
                Some(Ok(self.succeed(reply, started, awaited, connection, ctx)))
            }
            (Err(failure), Phase::Checking { .. }) => {
                self.hang_up(ctx);
                Some(self.fail(failure, ctx))
            }
            // Between checks nothing was asked, so whatever came is nonsense: start afresh.
            (Ok(Some(_)) | Err(_), Phase::Sleeping { .. } | Phase::Ended { .. }) => {
                self.hang_up(ctx);
                self.request_check(ctx.now.judged);
                None
            }
        }
    }

    /// The stream is gone.
    pub(crate) fn closed(
        &mut self,
        link: LinkId,
        failure: Failure,
        ctx: &mut Context<'_>,
    ) -> Option<Outcome> {
        if self.conversation_of(link).is_none() {
            if let Some(pinger) = &mut self.pinger {
                pinger.closed(link, ctx);
            }
            return None;
        }
        let hung_up = self.conversation.take().is_some_and(|it| it.is_unanswered());
        match self.phase {
            Phase::Checking { .. } => {
                let failure = match hung_up {
                    true => ctx.hung_up(failure, self.known.is_some()),
                    false => failure,
                };
                Some(self.fail(failure, ctx))
            }
            // The server hung up between two checks. The next one will show why.
            Phase::Sleeping { .. } | Phase::Ended { .. } => {
                self.request_check(ctx.now.judged);
                None
            }
        }
    }

    /// "hello or legacy hello Cancellation": closes the monitoring connections; a check in progress
    /// is abandoned and a pause begins, but who sleeps already sleeps no longer.
    pub(crate) fn cancel_check(&mut self, ctx: &mut Context<'_>) {
        self.stop(Failure::new(Stage::Hello, Cause::Canceled, "the check was abandoned"), ctx);
        self.forget_round_trip_time();
        if let Phase::Ended { .. } = self.phase {
            self.pause(ctx);
        }
    }

    /// Ends everything this monitor has going on; a check in progress fails for the reason given.
    pub(crate) fn stop(&mut self, reason: Failure, ctx: &mut Context<'_>) {
        self.hang_up(ctx);
        if let Phase::Checking { .. } = self.phase {
            let _reported = self.fail(reason, ctx);
        }
        self.stop_pinger(ctx);
    }

    fn conversation_of(&mut self, link: LinkId) -> Option<&mut Conversation> {
        self.conversation.as_mut().filter(|conversation| conversation.link() == link)
    }

    /// Begins a check: on the connection there is, or on a new one.
    fn begin(&mut self, newer_than: Option<TopologyVersion>, ctx: &mut Context<'_>) {
        let awaited = newer_than.is_some() && self.conversation.is_some();
        self.start_heartbeat(awaited, ctx);
        match (&mut self.conversation, &newer_than) {
            (Some(conversation), Some(version)) => {
                let max_await_time = ctx.options.heartbeat_frequency();
                conversation.ask(Some((version, max_await_time)), ctx);
                self.start_pinger(ctx);
            }
            (Some(conversation), None) => {
                conversation.ask(None, ctx);
                self.stop_pinger(ctx);
            }
            (None, _) => self.conversation = Some(self.identity.open(ctx)),
        }
    }

    /// Begins to wait for the next of a stream of replies.
    fn listen(&mut self, ctx: &mut Context<'_>) {
        self.start_heartbeat(true, ctx);
        self.start_pinger(ctx);
    }

    fn start_heartbeat(&mut self, awaited: bool, ctx: &mut Context<'_>) {
        let deadline = if awaited { ctx.await_deadline() } else { ctx.connect_deadline() };
        let connection = match &self.conversation {
            Some(conversation) => conversation.connection(),
            None => MonitoringConnection::new(self.identity.next_link(), None),
        };
        self.phase = Phase::Checking { started: ctx.now.clock, deadline, awaited, connection };
        let Identity { server, ref address, .. } = self.identity;
        let address = address.clone();
        ctx.emit(EventKind::ServerHeartbeatStarted { server, address, awaited, connection });
    }

    fn succeed(
        &mut self,
        reply: CheckReply,
        started: Instant,
        awaited: bool,
        connection: MonitoringConnection,
        ctx: &mut Context<'_>,
    ) -> Arc<ServerDescription> {
        let asked = if awaited { started } else { reply.asked_at };
        let answered = ctx.answered_at(asked);
        let duration = answered - asked;
        match awaited {
            true => self.idle_cutoff.survived(duration),
            false => self.round_trip.add(duration),
        }
        let next = match reply.topology_version() {
            _ if reply.more_to_come => Next::Listen,
            Some(version) if ctx.options.streaming() => Next::Await { version },
            Some(_) | None => Next::Pause,
        };
        self.ended = Some(ctx.now.clock);
        self.refused = None;
        self.phase = Phase::Ended { next };
        let Identity { server, ref address, .. } = self.identity;
        ctx.emit(EventKind::ServerHeartbeatSucceeded {
            server,
            address: address.clone(),
            awaited,
            connection,
            duration,
            reply: reply.document.abridged(),
        });
        let known = reply.describe(&self.identity, |description| {
            description.round_trip_time = self.round_trip.average();
            description.min_round_trip_time = self.round_trip.minimum();
            description.last_update_time = Some(answered);
        });
        let description = Arc::clone(&known.description);
        self.known = Some(known);
        description
    }

    /// Ends the check in progress as failed; its connection is gone already.
    fn fail(&mut self, failure: Failure, ctx: &mut Context<'_>) -> Outcome {
        let Phase::Checking { started, awaited, connection, .. } = self.phase else {
            unreachable!("only a check in progress can fail")
        };
        self.stop_pinger(ctx);
        self.round_trip.reset();
        let duration = ctx.answered_at(started) - started;
        match failure.cause {
            Cause::Closed if awaited => self.idle_cutoff.closed(duration),
            Cause::Canceled => {}
            _ => self.idle_cutoff = IdleCutoff::default(),
        }
        self.ended = Some(ctx.now.clock);
        self.refused = match (failure.stage, &failure.cause) {
            (Stage::Connect, Cause::Refused) => self.refused.or(self.ended),
            _ => None,
        };
        let next = if failure.is_network_error() { Next::RetryIfKnown } else { Next::Pause };
        self.phase = Phase::Ended { next };
        let Identity { server, ref address, .. } = self.identity;
        let failure = ctx.options.address_map().explain(address, failure);
        ctx.emit(EventKind::ServerHeartbeatFailed {
            server,
            address: address.clone(),
            awaited,
            connection,
            duration,
            failure: failure.clone(),
        });
        Err(failure)
    }

    fn hang_up(&mut self, ctx: &mut Context<'_>) {
        if let Some(conversation) = self.conversation.take() {
            ctx.out.push(Action::Close { link: conversation.link() });
        }
    }

    fn start_pinger(&mut self, ctx: &mut Context<'_>) {
        if self.pinger.is_none() {
            self.pinger = Some(Pinger::start(&mut self.identity, ctx));
        }
    }

    fn stop_pinger(&mut self, ctx: &mut Context<'_>) {
        if let Some(pinger) = self.pinger.take() {
            pinger.stop(ctx);
        }
    }

    /// The server has become Unknown though no check has failed: the next sample is the average
    /// again (Server Selection, "Calculation of Average Round Trip Times"). A reply that is
    /// streamed before that is no sample, and makes the server known; it would be taken for a near
    /// one if nothing were known of how far away it is.
    pub(crate) fn forget_round_trip_time(&mut self) {
        self.round_trip.restart();
    }

    // In the single-threaded mode nothing reads a reply between two calls, so that the time it has
    // taken says nothing of the round trip.

    /// The reply that is due may have come a while before it is read.
    pub(crate) fn leave_alone(&mut self) {
        self.conversation.iter_mut().for_each(Conversation::leave_alone);
    }

    /// Asks once more, with all the time that a check has, if a reply comes to one that was left
    /// alone, or when somebody waits again; returns whether the reply is void.
    pub(super) fn asks_again(&mut self, ctx: &mut Context<'_>) -> bool {
        let is_void = self.conversation.as_mut().is_some_and(|asked| asked.asks_again(ctx));
        if is_void && let Phase::Checking { deadline, .. } = &mut self.phase {
            *deadline = ctx.connect_deadline().filter(|_| ctx.attended);
        }
        is_void
    }

    /// Somebody waits again: what was to be asked once more is asked.
    pub(crate) fn attend(&mut self, ctx: &mut Context<'_>) {
        if !self.is_sleeping() && self.conversation.as_ref().is_some_and(Conversation::is_void) {
            self.asks_again(ctx);
        }
    }
}
