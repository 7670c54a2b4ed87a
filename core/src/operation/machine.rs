//! The machine of one operation: it selects, checks out and sends, and does so again where the
//! rules allow it, until there is an outcome.

use std::time::Duration;

use super::labels::UNKNOWN_COMMIT_RESULT;
use super::options::{MaxTime, OperationKind, OperationOptions, RetryPolicy};
use super::retry::{Fault, Judgement, Retry, Situation, judge};
use super::timeout::Timeout;
use crate::config::ServerAddress;
use crate::machine::Machine;
use crate::session::TransactionRole;
use crate::time::{Instant, Time};

/// The number of further selections because the pool of the last server was found cleared.
///
/// A clear says that a server was just found to be of no use, so that one more selection leads to
/// the server that has taken over; two serve where that one falls, too, as in a rolling restart.
/// What is cleared more often than that is an overloaded or a flapping deployment, which is not
/// helped by callers that come again: their error says so, and is labelled `RetryableError`.
const MAX_RESELECTIONS: u32 = 2;

/// The first wire version whose servers read from snapshots outside of transactions: 5.0.
const SNAPSHOT_READS_WIRE_VERSION: i32 = 13;

/// The outcome of one attempt, as the code that performs an operation has it.
pub trait AttemptOutcome {
    /// Returns what went wrong; `None` if it is what the caller waits for.
    fn fault(&self) -> Option<Fault<'_>>;

    /// Returns the [`base_backoff`](super::base_backoff) that the server gives.
    fn base_backoff(&self) -> Option<Duration>;

    /// Gives the error a label.
    fn add_label(&mut self, label: &'static str);
}

/// The use that an operation makes of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SessionUse {
    /// None.
    None,
    /// One that is made for it, where the server has sessions.
    Implicit,
    /// One of the application's.
    Explicit {
        /// True if it reads from a snapshot.
        snapshot: bool,
        /// The part of the command in a transaction, if it has one.
        transaction: Option<TransactionRole>,
    },
    /// One of the application's that has ended.
    Ended,
}

/// The reason why the client itself does not send a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotSent {
    /// The time that is left is less than the least round trip time.
    #[error(
        "the time allowed had passed before the command was sent, or is less than the least round \
         trip time"
    )]
    Expired,
    /// The session is explicit, and the server has none.
    #[error("the command was not sent: the server does not support sessions")]
    SessionsUnsupported,
    /// The session reads from a snapshot, and the server is older than 5.0.
    #[error("the command was not sent: snapshot reads require MongoDB 5.0 or later")]
    SnapshotsUnsupported,
    /// The session is explicit, and the command asks for no reply.
    #[error(
        "the command was not sent: a session cannot be used with writes that are not acknowledged"
    )]
    Unacknowledged,
    /// The session has ended.
    #[error("the command was not sent: the session has ended")]
    SessionEnded,
}

/// The facts of a server that was selected, from the very view that it was selected from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SelectedFacts {
    /// The least round trip time (CSOT, "Command Execution").
    pub min_round_trip_time: Duration,
    /// True if it is one of several mongos.
    pub sharded: bool,
    /// True if it takes transaction numbers: it has sessions, and is no standalone; what is behind
    /// a load balancer does.
    pub retryable_writes: bool,
    /// Its maxWireVersion.
    pub max_wire_version: i32,
}

/// The facts of a connection that was checked out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionFacts {
    /// True if its hello had `logicalSessionTimeoutMinutes`.
    pub sessions: bool,
    /// True if its server takes transaction numbers.
    pub retryable_writes: bool,
    /// The maxWireVersion of its hello.
    pub max_wire_version: i32,
}

/// The events of an operation's life.
#[derive(Debug)]
pub enum Input<'a, O> {
    /// A server was selected.
    Selected(SelectedFacts),
    /// A connection was checked out, and the command is built: its options take the place of those
    /// of the plan, as writes of many statements depend on the limits of their server; `None`
    /// leaves those of the plan.
    CheckedOut(ConnectionFacts, Option<&'a OperationOptions>),
    /// The attempt has ended, at whatever point.
    Ended {
        /// The outcome.
        outcome: O,
        /// The server, if one was selected.
        server: Option<&'a ServerAddress>,
        /// 64 random bits, for the jitter.
        random: u64,
    },
}

/// The next thing to do; every action but the last is answered with one input.
#[derive(Debug)]
pub enum Action<O> {
    /// Select a server, but none of [`Operation::deprioritized`] while there is another.
    Select {
        /// The time when that is over.
        deadline: Option<Instant>,
    },
    /// Check out a connection of that server.
    CheckOut {
        /// The time when that is over; without it, waitQueueTimeoutMS counts.
        deadline: Option<Instant>,
    },
    /// Send the command over that connection, and receive the reply.
    Send(Sending),
    /// End the attempt with an error that says so; nothing is sent, and the connection is as good
    /// as before.
    Refuse(NotSent),
    /// Return the outcome to the caller.
    Done {
        /// The outcome.
        outcome: O,
        /// True if the operation's own time-out is what has ended it.
        timed_out: bool,
    },
}

/// The fields that one attempt adds to the command; others do not change between attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sending {
    /// True if it carries the session's name.
    pub session: bool,
    /// True if it carries a transaction number: that of the attempt before, or the session's next.
    pub transaction_number: bool,
    /// Its `maxTimeMS`.
    pub max_time: Option<Duration>,
    /// The limit of the exchange; unless `timeoutMS` is set, socketTimeoutMS counts.
    pub timeout: Timeout,
}

/// The rules by which an operation is performed, whatever its command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Plan {
    kind: OperationKind,
    retryable: bool,
    acknowledged: bool,
    max_time: MaxTime,
    policy: RetryPolicy,
    session: SessionUse,
    timeout: Timeout,
    selection_timeout: Option<Duration>,
}

impl Plan {
    /// Plans an operation that has neither a session nor a time-out.
    pub const fn new(options: &OperationOptions, policy: RetryPolicy) -> Self {
        let OperationOptions { kind, retryable, acknowledged, max_time, .. } = *options;
        let (session, timeout, selection_timeout) = (SessionUse::None, Timeout::Unset, None);
        Self {
            kind,
            retryable,
            acknowledged,
            max_time,
            policy,
            session,
            timeout,
            selection_timeout,
        }
    }

    /// Has it use a session.
    #[must_use]
    pub const fn with_session(mut self, session: SessionUse) -> Self {
        self.session = session;
        self
    }

    /// Sets the limit of everything, and that of each selection: `timeoutMS` and
    /// `serverSelectionTimeoutMS`.
    #[must_use]
    pub const fn with_timeouts(mut self, timeout: Timeout, selection: Option<Duration>) -> Self {
        self.timeout = timeout;
        self.selection_timeout = selection;
        self
    }
}

/// One operation of an application, from its selection to its outcome.
///
/// It is generic in what an attempt comes to, of which it keeps the one that the caller receives.
///
/// [`start`](Self::start), [`step`](Self::step) and [`wake`](Self::wake) are its contract for who
/// performs one action after the other, as every input has one action for an answer, or a time to
/// wait for; as a [`Machine`] it does the same.
#[derive(Clone, Debug)]
pub struct Operation<O> {
    plan: Plan,
    phase: Phase,
    selected: SelectedFacts,
    selection_deadline: Option<Instant>,
    retries: u32,
    overloaded: bool,
    reselections: u32,
    found_dead: bool,
    has_unpinned: bool,
    deprioritized: Vec<ServerAddress>,
    /// The wire version of the connection that the command was first sent over, for which it was
    /// written.
    written_for: Option<i32>,
    /// The error that the caller receives unless there is something better.
    kept: Option<Kept<O>>,
    /// True while an attempt at a commit may have been carried out.
    in_doubt: bool,
}

/// The outcome of an attempt that has failed.
#[derive(Clone, Debug)]
struct Kept<O> {
    outcome: O,
    /// True if the session of a transaction is not pinned any more when the operation ends so.
    unpins: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    New,
    Selecting,
    CheckingOut,
    /// The command is being exchanged, or refused.
    Sending,
    Waiting(Instant),
    Done,
}

impl<O: AttemptOutcome> Operation<O> {
    /// Makes an operation; nothing happens before it is started.
    pub const fn new(plan: Plan) -> Self {
        let selected = SelectedFacts {
            min_round_trip_time: Duration::ZERO,
            sharded: false,
            retryable_writes: false,
            max_wire_version: 0,
        };
        Self {
            plan,
            phase: Phase::New,
            selected,
            selection_deadline: None,
            retries: 0,
            overloaded: false,
            reselections: 0,
            found_dead: false,
            has_unpinned: false,
            deprioritized: Vec::new(),
            written_for: None,
            kept: None,
            in_doubt: false,
        }
    }

    /// Returns the servers to avoid while any other is suitable.
    pub fn deprioritized(&self) -> &[ServerAddress] {
        &self.deprioritized
    }

    /// Returns how many times the operation was retried.
    pub const fn retries(&self) -> u32 {
        self.retries
    }

    /// Returns whether the session of a transaction is not pinned to a server any more after the
    /// attempt that has ended last, by the error that the operation ends with or is retried after.
    ///
    /// A command within a transaction that comes again, after an overload, goes to the same mongos:
    /// the operation has not failed (Transactions, "When to unpin").
    pub const fn has_unpinned(&self) -> bool {
        self.has_unpinned
    }

    /// Begins the first attempt.
    pub fn start(&mut self, now: Instant) -> Action<O> {
        match (self.plan.session, self.plan.acknowledged) {
            (SessionUse::Ended, _) => self.refuse(NotSent::SessionEnded),
            (SessionUse::Explicit { .. }, false) => self.refuse(NotSent::Unacknowledged),
            _ => self.attempt(now),
        }
    }

    /// Takes an input, and returns what is to be done next; `None` if that is to wait until
    /// [`Machine::deadline`], or if the input answers nothing that was asked for.
    pub fn step(&mut self, now: Instant, input: Input<'_, O>) -> Option<Action<O>> {
        match (self.phase, input) {
            (Phase::Selecting, Input::Selected(facts)) => {
                self.selected = facts;
                self.phase = Phase::CheckingOut;
                // "drivers MUST use the remaining computedServerSelectionTimeout value as the
                // timeout for connection checkout" (CSOT), if timeoutMS is set.
                let deadline = self.selection_deadline.filter(|_| self.plan.timeout.is_set());
                Some(Action::CheckOut { deadline })
            }
            (Phase::CheckingOut, Input::CheckedOut(facts, options)) => {
                if let Some(options) = options {
                    let OperationOptions { kind, retryable, acknowledged, max_time, .. } = *options;
                    self.plan = Plan { kind, retryable, acknowledged, max_time, ..self.plan };
                }
                Some(self.checked_out(now, facts))
            }
            (
                Phase::Selecting | Phase::CheckingOut | Phase::Sending,
                Input::Ended { outcome, server, random },
            ) => self.ended(now, outcome, server, random),
            _ => None,
        }
    }

    /// Begins the next attempt if the time for it has come.
    pub fn wake(&mut self, now: Time) -> Option<Action<O>> {
        match self.phase {
            Phase::New => Some(self.start(now.clock)),
            Phase::Waiting(until) if until <= now.judged => Some(self.attempt(now.clock)),
            _ => None,
        }
    }

    fn attempt(&mut self, now: Instant) -> Action<O> {
        let by_selection = self.plan.selection_timeout.map(|timeout| now + timeout);
        let limits = [by_selection, self.plan.timeout.deadline()];
        self.selection_deadline = limits.into_iter().flatten().min();
        self.select()
    }

    fn select(&mut self) -> Action<O> {
        self.phase = Phase::Selecting;
        Action::Select { deadline: self.selection_deadline }
    }

    fn refuse(&mut self, reason: NotSent) -> Action<O> {
        self.phase = Phase::Sending;
        Action::Refuse(reason)
    }

    fn checked_out(&mut self, now: Instant, facts: ConnectionFacts) -> Action<O> {
        let (wire_version, is_retry) = (facts.max_wire_version, self.retries > 0);
        self.selected.max_wire_version = wire_version;
        self.selected.retryable_writes = facts.retryable_writes;
        // "If [...] the selected server does not support retryable writes, retrying is not possible
        // and drivers MUST raise the retryable error from the previous attempt"
        let needs_number = self.plan.kind == OperationKind::Write
            && self.is_retryable_kind()
            && self.transaction().is_none();
        let cannot_tell = needs_number && !facts.retryable_writes;
        // "if a driver chooses not to recreate the command [...] then a driver MUST NOT retry if
        // the server/wire version dips after server selection and MUST raise the original retryable
        // error" (Retryable Reads, "Executing Retryable Read Commands").
        let is_older = self.written_for.is_some_and(|written_for| wire_version < written_for);
        if is_retry
            && (cannot_tell || is_older)
            && let Some(kept) = self.kept.take()
        {
            return self.fail(kept, false);
        }
        match self.plan.session {
            SessionUse::Explicit { .. } if !self.plan.acknowledged => {
                return self.refuse(NotSent::Unacknowledged);
            }
            SessionUse::Explicit { .. } if !facts.sessions => {
                return self.refuse(NotSent::SessionsUnsupported);
            }
            SessionUse::Explicit { snapshot: true, .. }
                if wire_version < SNAPSHOT_READS_WIRE_VERSION =>
            {
                return self.refuse(NotSent::SnapshotsUnsupported);
            }
            _ => {}
        }
        let round_trip = self.selected.min_round_trip_time;
        let Ok(max_time) = self.plan.timeout.max_time(now, round_trip, self.plan.max_time) else {
            return self.refuse(NotSent::Expired);
        };
        self.phase = Phase::Sending;
        self.written_for.get_or_insert(wire_version);
        let has_session = self.plan.session != SessionUse::None;
        Action::Send(Sending {
            session: has_session && facts.sessions && self.plan.acknowledged,
            transaction_number: needs_number && facts.retryable_writes,
            max_time,
            timeout: self.plan.timeout,
        })
    }

    /// Returns whether the options and the session let the operation be sent again, whatever the
    /// server.
    ///
    /// "drivers MUST NOT retry write commands within transactions", nor reads, and "MUST retry the
    /// commitTransaction and abortTransaction commands even when retryWrites has been disabled"
    /// (Transactions).
    const fn is_retryable_kind(&self) -> bool {
        let Plan { kind, retryable, acknowledged, policy, session, .. } = &self.plan;
        if let Some(role) = self.transaction() {
            return !matches!(role, TransactionRole::Within);
        }
        let allowed = match kind {
            OperationKind::Read => policy.reads,
            OperationKind::Write => policy.writes && !matches!(session, SessionUse::None),
            OperationKind::Command => false,
        };
        *retryable && *acknowledged && allowed
    }

    /// Returns the part that it has in a transaction.
    const fn transaction(&self) -> Option<TransactionRole> {
        match self.plan.session {
            SessionUse::Explicit { transaction, .. } => transaction,
            _ => None,
        }
    }

    fn ended(
        &mut self,
        now: Instant,
        mut outcome: O,
        server: Option<&ServerAddress>,
        random: u64,
    ) -> Option<Action<O>> {
        self.has_unpinned = false;
        let Some(fault) = outcome.fault() else { return Some(self.done(outcome, false)) };
        let (situation, timed_out) = (self.situation(), fault.is_timeout());
        let judgement = judge(&situation, &fault, outcome.base_backoff(), random);
        // "pool cleared" is a transient error of a transaction, which runs again as a whole.
        let is_before_sending = match fault {
            Fault::PoolCleared => situation.transaction.is_none(),
            Fault::IdleConnection(_) => true,
            _ => false,
        };
        if is_before_sending && self.reselects(now, matches!(fault, Fault::PoolCleared)) {
            self.avoid(situation.sharded && situation.retryable, server);
            return Some(self.select());
        }
        let ends = situation.transaction.is_some_and(|role| role != TransactionRole::Within);
        self.has_unpinned = ends && judgement.unpins;
        let still_unknown = self.label_of_doubt(&fault, &judgement);
        let labels = [judgement.adds_label, judgement.adds_transaction_label, still_unknown];
        labels.into_iter().flatten().for_each(|label| outcome.add_label(label));
        if self.kept.is_none() || judgement.shows_attempt {
            let unpins = judgement.unpins || still_unknown.is_some();
            self.kept = Some(Kept { outcome, unpins });
        }
        self.overloaded |= judgement.is_overload;
        let Some(until) = self.next_attempt(now, &judgement) else {
            let kept = self.kept.take()?;
            // "Once the timeout expires, a timeout error MUST be raised."
            let wanted = judgement.retry != Retry::No && !judgement.is_overload;
            let timed_out = timed_out || wanted;
            return Some(self.fail(kept, timed_out && self.plan.timeout.is_set()));
        };
        self.retries += 1;
        self.avoid(judgement.avoids_server, server);
        match until <= now {
            true => Some(self.attempt(now)),
            false => {
                self.phase = Phase::Waiting(until);
                None
            }
        }
    }

    /// Takes note of what an error of a commit leaves open; returns the label of one that says
    /// nothing of an earlier attempt, which may have been carried out.
    fn label_of_doubt(&mut self, fault: &Fault<'_>, judgement: &Judgement) -> Option<&'static str> {
        if self.transaction() != Some(TransactionRole::Commit) {
            return None;
        }
        let is_unknown =
            judgement.adds_transaction_label.is_some() || fault.has_label(UNKNOWN_COMMIT_RESULT);
        let still_unknown = self.in_doubt && !is_unknown && !fault.ends_doubt();
        self.in_doubt = is_unknown || still_unknown;
        still_unknown.then_some(UNKNOWN_COMMIT_RESULT)
    }

    fn situation(&self) -> Situation {
        let SelectedFacts { sharded, retryable_writes, max_wire_version, .. } = self.selected;
        let takes_number = self.plan.kind != OperationKind::Write || retryable_writes;
        let transaction = self.transaction();
        let ends_transaction =
            matches!(transaction, Some(TransactionRole::Commit | TransactionRole::Abort));
        let RetryPolicy { writes, .. } = self.plan.policy;
        let policy = RetryPolicy { writes: writes || ends_transaction, ..self.plan.policy };
        Situation {
            retries: self.retries,
            overloaded: self.overloaded,
            has_timeout: self.plan.timeout.is_set(),
            sharded,
            max_wire_version,
            transaction,
            ..Situation::new(self.plan.kind, self.is_retryable_kind() && takes_number, policy)
        }
    }

    /// Says whether to select once more after an error that comes before anything is sent.
    fn reselects(&mut self, now: Instant, cleared: bool) -> bool {
        if self.selection_deadline.is_some_and(|deadline| deadline <= now) {
            return false;
        }
        match cleared {
            true => {
                self.reselections += 1;
                self.reselections <= MAX_RESELECTIONS
            }
            // "attempt once more to select a server"
            false => !std::mem::replace(&mut self.found_dead, true),
        }
    }

    /// Returns when the next attempt begins; `None` if there is none, or no time for it.
    fn next_attempt(&self, now: Instant, judgement: &Judgement) -> Option<Instant> {
        let until = match judgement.retry {
            Retry::No => return None,
            Retry::Now => now,
            Retry::After(backoff) => now + backoff,
        };
        self.plan.timeout.deadline().is_none_or(|deadline| until < deadline).then_some(until)
    }

    fn avoid(&mut self, avoids: bool, server: Option<&ServerAddress>) {
        if let Some(server) = server.filter(|_| avoids)
            && !self.deprioritized.contains(server)
        {
            self.deprioritized.push(server.clone());
        }
    }

    fn fail(&mut self, kept: Kept<O>, timed_out: bool) -> Action<O> {
        self.has_unpinned |= kept.unpins;
        self.done(kept.outcome, timed_out)
    }

    fn done(&mut self, outcome: O, timed_out: bool) -> Action<O> {
        self.phase = Phase::Done;
        Action::Done { outcome, timed_out }
    }
}

impl<O: AttemptOutcome> Machine for Operation<O> {
    type Input<'a> = Input<'a, O>;
    type Action = Action<O>;

    fn handle(&mut self, now: Time, input: Self::Input<'_>, out: &mut Vec<Self::Action>) {
        self.tick(now, out);
        out.extend(self.step(now.clock, input));
    }

    fn tick(&mut self, now: Time, out: &mut Vec<Self::Action>) {
        out.extend(self.wake(now));
    }

    fn deadline(&self) -> Option<Instant> {
        match self.phase {
            Phase::New => Some(Instant::ZERO),
            Phase::Waiting(until) => Some(until),
            Phase::Selecting | Phase::CheckingOut | Phase::Sending | Phase::Done => None,
        }
    }
}

#[cfg(test)]
mod tests;
