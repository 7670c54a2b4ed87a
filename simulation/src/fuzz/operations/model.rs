//! The naive model: an operation, all its inputs and outputs so far, and what the rules make of
//! that.

use std::collections::BTreeSet;
use std::time::Duration;

use sdam_core::config::ServerAddress;
use sdam_core::machine::{Lawful, Machine};
use sdam_core::operation::{
    Action, ConnectionFacts, Input, MaxTime, NotSent, Operation, OperationKind, OperationOptions,
    Plan, RetryPolicy, SelectedFacts, Sending, SessionUse, Timeout, UNKNOWN_COMMIT_RESULT,
};
use sdam_core::session::TransactionRole;
use sdam_core::time::Instant;

use super::outcome::{Outcome, What};

/// The number of further selections after pools that were cleared.
const CLEARED: usize = 2;

const MILLISECOND: Duration = Duration::from_millis(1);

/// All that decides about an operation besides what it meets.
#[derive(Clone, Debug)]
pub(super) struct Rules {
    pub(super) options: OperationOptions,
    pub(super) policy: RetryPolicy,
    pub(super) session: SessionUse,
    pub(super) timeout: Timeout,
    pub(super) selection: Option<Duration>,
}

impl Rules {
    /// Returns the part that the operation has in a transaction.
    const fn role(&self) -> Option<TransactionRole> {
        match self.session {
            SessionUse::Explicit { transaction, .. } => transaction,
            _ => None,
        }
    }

    /// Returns whether it commits or aborts a transaction, which is sent again "even when
    /// retryWrites has been disabled".
    const fn ends_transaction(&self) -> bool {
        matches!(self.role(), Some(TransactionRole::Commit | TransactionRole::Abort))
    }

    /// Returns whether the operation is a write that has a number wherever that is understood, and
    /// that is not the one of a transaction.
    fn wants_number(&self) -> bool {
        if self.role().is_some() {
            return false;
        }
        let OperationOptions { kind, retryable, acknowledged, .. } = self.options;
        let numbered = kind == OperationKind::Write && retryable && acknowledged;
        numbered && self.policy.writes && self.session != SessionUse::None
    }

    /// "The command is a write and retryWrites is enabled or the command is a read and retryReads
    /// is enabled. To retry `runCommand`, both [...] MUST be enabled."
    fn allows(&self) -> bool {
        let RetryPolicy { reads, writes, .. } = self.policy;
        match self.options.kind {
            OperationKind::Read => reads,
            OperationKind::Write => writes || self.ends_transaction(),
            _ => reads && writes,
        }
    }
}

/// The next thing that the operation has asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Asked {
    /// It waits.
    Nothing,
    Select,
    CheckOut,
    Send,
    Refuse(NotSent),
    /// It has ended.
    Told,
}

/// The consequence that the rules want of the end of an attempt.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Wanted {
    /// The selection is repeated, within its time.
    SelectAgain,
    /// Another attempt begins after this time.
    Retry(Duration),
    /// The caller receives the outcome of this number.
    Tell { number: usize, timed_out: bool },
}

/// The operation, and all that is known about it from outside.
#[derive(Debug)]
pub(super) struct Model {
    operation: Lawful<Operation<Outcome>>,
    rules: Rules,
    now: Instant,
    asked: Asked,
    /// The actions so far, for another run to do, too.
    done: Vec<String>,
    server: SelectedFacts,
    address: Option<ServerAddress>,
    /// By when the selections of this attempt are to end.
    selection: Option<Instant>,
    is_unwritten: bool,
    outcomes: usize,
    /// The outcome that the caller would receive now.
    told: Option<usize>,
    /// The label that each outcome is given for what it means to a transaction, and whether an
    /// operation that ends with it leaves the session unpinned.
    meanings: Vec<(Option<&'static str>, bool)>,
    has_unpinned: bool,
    /// True while an attempt at a commit may have been carried out.
    in_doubt: bool,
    retries: u32,
    overloaded: bool,
    cleared: usize,
    found_dead: bool,
    avoided: BTreeSet<ServerAddress>,
    /// The wire version of the connection that a command was first sent over.
    written_for: Option<i32>,
    /// The commands that were sent: whether each had a number, and whether it was shed.
    sent: Vec<(bool, bool)>,
}

impl Model {
    pub(super) fn new(rules: Rules) -> Self {
        let plan = Plan::new(&rules.options, rules.policy)
            .with_session(rules.session)
            .with_timeouts(rules.timeout, rules.selection);
        Self {
            operation: Lawful::new(Operation::new(plan)),
            rules,
            now: Instant::ZERO,
            asked: Asked::Nothing,
            done: Vec::new(),
            server: SelectedFacts {
                min_round_trip_time: Duration::ZERO,
                sharded: false,
                retryable_writes: false,
                max_wire_version: 0,
            },
            address: None,
            selection: None,
            is_unwritten: true,
            outcomes: 0,
            told: None,
            meanings: Vec::new(),
            has_unpinned: false,
            in_doubt: false,
            retries: 0,
            overloaded: false,
            cleared: 0,
            found_dead: false,
            avoided: BTreeSet::new(),
            written_for: None,
            sent: Vec::new(),
        }
    }

    pub(super) const fn asked(&self) -> Asked {
        self.asked
    }

    /// Returns whether the command may still be written for its server.
    pub(super) const fn is_unwritten(&self) -> bool {
        self.is_unwritten && !self.rules.ends_transaction()
    }

    /// The first attempt begins.
    pub(super) fn begin(&mut self) {
        let refused = match self.rules.session {
            SessionUse::Ended => Some(NotSent::SessionEnded),
            SessionUse::Explicit { .. } if !self.rules.options.acknowledged => {
                Some(NotSent::Unacknowledged)
            }
            _ => None,
        };
        let action = self.tick();
        match refused {
            Some(reason) => self.refuses(action.as_ref(), reason),
            None => self.attempts(action.as_ref()),
        }
    }

    /// Time passes; the alarm rings when it should, or late.
    pub(super) fn pass(&mut self, time: Duration, in_time: bool) {
        let until = self.now + time;
        if let Some(due) = self.operation.deadline() {
            assert_eq!(self.asked, Asked::Nothing, "only who waits is due");
            if due > until {
                self.now = until;
                assert!(self.tick().is_none());
                return;
            }
            self.now = if in_time { due } else { until };
            let action = self.tick();
            self.attempts(action.as_ref());
        }
        self.now = until;
        assert!(self.tick().is_none(), "nothing happens but by an input, or a deadline");
    }

    /// Inputs that answer nothing are ignored (law 5).
    pub(super) fn stray(&mut self, selected: SelectedFacts, connection: ConnectionFacts) {
        if self.asked != Asked::Select {
            assert!(self.input(Input::Selected(selected)).is_none(), "{:?}", self.asked);
        }
        if self.asked != Asked::CheckOut {
            assert!(self.input(Input::CheckedOut(connection, None)).is_none(), "{:?}", self.asked);
        }
        if matches!(self.asked, Asked::Nothing | Asked::Told) {
            let outcome = Outcome::new(0, What::Reply, None);
            assert!(self.input(Input::Ended { outcome, server: None, random: 0 }).is_none());
        }
    }

    pub(super) fn selected(&mut self, facts: SelectedFacts, host: &str) {
        (self.server, self.address) = (facts, Some(host.parse().expect("an address")));
        let action = self.input(Input::Selected(facts));
        let Some(Action::CheckOut { deadline }) = action else { panic!("{action:?}") };
        // "drivers MUST use the remaining computedServerSelectionTimeout value as the timeout for
        // connection checkout", if timeoutMS is set.
        let is_set = self.rules.timeout != Timeout::Unset;
        assert_eq!(deadline, self.selection.filter(|_| is_set));
        self.asked = Asked::CheckOut;
    }

    /// The command is written for its server, which decides about all but its kind.
    pub(super) fn write(&mut self, mut options: OperationOptions) {
        options.kind = self.rules.options.kind;
        self.rules.options = options;
    }

    pub(super) fn checked_out(&mut self, facts: ConnectionFacts) {
        self.is_unwritten = false;
        self.server.max_wire_version = facts.max_wire_version;
        self.server.retryable_writes = facts.retryable_writes;
        let options = self.rules.options.clone();
        let action = self.input(Input::CheckedOut(facts, Some(&options)));
        let wants_number = self.rules.wants_number();
        // "retrying is not possible and drivers MUST raise the retryable error from the previous
        // attempt"
        let cannot_tell = wants_number && !facts.retryable_writes;
        // "MUST NOT retry if the server/wire version dips after server selection and MUST raise the
        // original retryable error"
        let is_older = self.written_for.is_some_and(|version| facts.max_wire_version < version);
        if self.retries > 0 && (cannot_tell || is_older) {
            let number = self.told.expect("an attempt has failed");
            self.tells(action, Wanted::Tell { number, timed_out: false });
            return;
        }
        match self.refusal(facts) {
            Some(reason) => self.refuses(action.as_ref(), reason),
            None => self.sends(action.as_ref(), facts),
        }
    }

    /// Returns why nothing is sent over such a connection, if so.
    fn refusal(&self, facts: ConnectionFacts) -> Option<NotSent> {
        let acknowledged = self.rules.options.acknowledged;
        let is_late = self.rest().is_some_and(|rest| rest < MILLISECOND);
        match self.rules.session {
            SessionUse::Explicit { .. } if !acknowledged => Some(NotSent::Unacknowledged),
            SessionUse::Explicit { .. } if !facts.sessions => Some(NotSent::SessionsUnsupported),
            SessionUse::Explicit { snapshot: true, .. } if facts.max_wire_version < 13 => {
                Some(NotSent::SnapshotsUnsupported)
            }
            _ => is_late.then_some(NotSent::Expired),
        }
    }

    /// Returns "`remaining timeoutMS - minRoundTripTime`", if there is a limit.
    fn rest(&self) -> Option<Duration> {
        let Timeout::At(deadline) = self.rules.timeout else { return None };
        Some((deadline - self.now).saturating_sub(self.server.min_round_trip_time))
    }

    /// A command is sent: by all that was done before, it may be.
    fn sends(&mut self, action: Option<&Action<Outcome>>, facts: ConnectionFacts) {
        let Some(Action::Send(sending)) = action else { panic!("{action:?}, and {facts:?}") };
        let Rules { options, session, timeout, .. } = &self.rules;
        let has_number = self.rules.wants_number() && facts.retryable_writes;
        let max_time = match (options.max_time, self.rest()) {
            (MaxTime::Remaining, rest) => rest,
            (MaxTime::AtMost(time), Some(rest)) => Some(time.min(rest)),
            (MaxTime::AtMost(time), None) => Some(time),
            _ => None,
        };
        let expected = Sending {
            session: *session != SessionUse::None && facts.sessions && options.acknowledged,
            transaction_number: has_number,
            max_time,
            timeout: *timeout,
        };
        assert_eq!(*sending, expected);
        assert!(!has_number || sending.session, "a number is a session's");
        if let Timeout::At(deadline) = timeout {
            assert!(self.now < *deadline, "nothing is sent after the deadline");
        }
        if let Some((had_number, was_shed)) = self.sent.last() {
            let is_read = options.kind == OperationKind::Read;
            let is_within = self.rules.role() == Some(TransactionRole::Within);
            let is_safe = *was_shed
                || (is_read && !is_within)
                || (*had_number && has_number)
                || self.rules.ends_transaction();
            assert!(is_safe, "what may have been carried out is sent again: {:?}", self.sent);
        }
        assert!(has_number || self.sent.iter().all(|it| !it.0), "another attempt has no number");
        self.sent.push((has_number, false));
        self.written_for.get_or_insert(facts.max_wire_version);
        let most = match (self.overloaded, timeout) {
            (true, _) => 1 + self.rules.policy.max_adaptive_retries.max(1) as usize,
            (false, Timeout::Unset) => 2,
            (false, _) => usize::MAX,
        };
        assert!(self.sent.len() <= most, "{} commands are sent", self.sent.len());
        self.asked = Asked::Send;
    }

    /// An attempt ends.
    pub(super) fn ended(&mut self, what: What, base: Option<Duration>, quarters: u64) {
        self.outcomes += 1;
        let outcome = Outcome::new(self.outcomes, what, base);
        if let (Asked::Send, Some(sent)) = (self.asked, self.sent.last_mut()) {
            sent.1 = outcome.what.is_overload();
        }
        let wanted = self.want(&outcome, quarters as u32);
        let server = self.address.clone();
        let random = quarters << 62;
        let input = Input::Ended { outcome, server: server.as_ref(), random };
        let action = self.input(input);
        match wanted {
            Wanted::SelectAgain => self.selects(action.as_ref()),
            Wanted::Retry(Duration::ZERO) => self.attempts(action.as_ref()),
            Wanted::Retry(wait) => {
                assert!(action.is_none(), "{action:?}, and it was to wait for {wait:?}");
                assert_eq!(self.operation.deadline(), Some(self.now + wait));
                let limit = self.rules.timeout.deadline();
                assert!(limit.is_none_or(|limit| self.now + wait < limit), "it waits for too long");
                self.asked = Asked::Nothing;
            }
            Wanted::Tell { .. } => self.tells(action, wanted),
        }
        let avoided = self.operation.get().deprioritized().iter().cloned();
        assert_eq!(avoided.collect::<BTreeSet<_>>(), self.avoided);
        assert_eq!(self.operation.get().retries(), self.retries);
        assert_eq!(self.operation.get().has_unpinned(), self.has_unpinned);
    }

    /// Returns what the rules want after this end of an attempt.
    fn want(&mut self, outcome: &Outcome, quarters: u32) -> Wanted {
        let (what, number) = (&outcome.what, outcome.number);
        self.meanings.push((None, false));
        self.has_unpinned = false;
        if *what == What::Reply {
            return Wanted::Tell { number, timed_out: false };
        }
        if self.selects_again(what) {
            self.avoid(self.server.sharded && self.is_retryable_kind());
            return Wanted::SelectAgain;
        }
        if let Some(role) = self.rules.role() {
            let is_labelled = self.is_retryable_kind() && self.is_labelled(what);
            let label = what.label_in(role, is_labelled);
            let unpins = what.unpins(role, label);
            let mut still_unknown = false;
            if role == TransactionRole::Commit {
                // It is not known what became of an attempt until a server has said that.
                let is_unknown = label.is_some() || what.is_labelled_unknown();
                still_unknown = self.in_doubt && !is_unknown && !what.ends_doubt();
                self.in_doubt = is_unknown || still_unknown;
            }
            let label = label.or(still_unknown.then_some(UNKNOWN_COMMIT_RESULT));
            self.meanings[number - 1] = (label, unpins || still_unknown);
            // A command within that comes again has not failed, and goes to the same mongos.
            self.has_unpinned = unpins && role != TransactionRole::Within;
        }
        // "the most recently encountered error which indicates a write attempt occurred", or else
        // the first one.
        if self.told.is_none() || what.shows_attempt() {
            self.told = Some(number);
        }
        self.overloaded |= what.is_overload();
        let is_set = self.rules.timeout != Timeout::Unset;
        let told = self.told.unwrap_or_default();
        let input = |timed_out| Wanted::Tell { number: told, timed_out: timed_out && is_set };
        let most = match self.overloaded {
            true => self.rules.policy.max_adaptive_retries,
            false if is_set => u32::MAX,
            false => 1,
        };
        if !self.is_to_be_sent_again(what) || self.retries >= most {
            return input(what.is_timeout());
        }
        let wait = self.backoff(what, outcome.base, quarters);
        if self.rules.timeout.deadline().is_some_and(|limit| limit <= self.now + wait) {
            return input(what.is_timeout() || !what.is_overload());
        }
        self.retries += 1;
        self.avoid(
            self.server.sharded || (what.is_overload() && self.rules.policy.overload_retargeting),
        );
        Wanted::Retry(wait)
    }

    fn avoid(&mut self, is_wanted: bool) {
        self.avoided.extend(self.address.clone().filter(|_| is_wanted));
    }

    /// Nothing was sent: another selection may help, within the time of this one.
    fn selects_again(&mut self, what: &What) -> bool {
        if self.selection.is_some_and(|until| until <= self.now) {
            return false;
        }
        match what {
            // It is a transient error, after which the transaction runs again.
            What::Cleared if self.rules.role().is_some() => false,
            What::Cleared => {
                self.cleared += 1;
                self.cleared <= CLEARED
            }
            What::Dead(_) => !std::mem::replace(&mut self.found_dead, true),
            _ => false,
        }
    }

    /// Returns whether Retryable Reads or Retryable Writes support the operation as it is sent.
    fn is_retryable_kind(&self) -> bool {
        // "drivers MUST NOT retry" others in a transaction.
        if self.rules.role().is_some() {
            return self.rules.ends_transaction() && self.server.retryable_writes;
        }
        let OperationOptions { kind, retryable, acknowledged, .. } = self.rules.options;
        match kind {
            OperationKind::Read => retryable && acknowledged && self.rules.policy.reads,
            _ => self.rules.wants_number() && self.server.retryable_writes,
        }
    }

    fn is_to_be_sent_again(&self, what: &What) -> bool {
        let is_shed = what.is_overload() && what.is_labelled_retryable() && self.rules.allows();
        let again = match self.rules.options.kind {
            OperationKind::Read => what.is_of_network() || what.code().is_some_and(is_for_reads),
            OperationKind::Write => what.is_labelled_retryable_write() || self.is_labelled(what),
            _ => false,
        };
        is_shed || (again && self.is_retryable_kind())
    }

    /// Returns whether the client gives an error of a retryable write its label.
    fn is_labelled(&self, what: &What) -> bool {
        // "a pre-4.4 server"
        let is_old = self.server.max_wire_version < 9;
        let by_code = match what {
            What::WriteConcern(error) => error.code.filter(|_| is_old && !self.server.sharded),
            What::Unconnected(_) => what.code(),
            _ => what.code().filter(|_| is_old),
        };
        what.is_of_network() || by_code.is_some_and(is_for_writes)
    }

    /// "`backoff = jitter * min(MAX_BACKOFF, BASE_BACKOFF * 2^attempt)`"
    fn backoff(&self, what: &What, base: Option<Duration>, quarters: u32) -> Duration {
        let doubled = |base: Duration| base * 2_u32.pow((self.retries + 1).min(16));
        let most = |base: Duration| doubled(base).min(Duration::from_secs(10)) / 4 * quarters;
        let hundred = MILLISECOND * 100;
        match what {
            _ if what.is_overload() => most(base.unwrap_or(hundred)),
            _ if self.retries > 0 && !self.overloaded => {
                most(MILLISECOND * 5).min(MILLISECOND * 500)
            }
            _ => Duration::ZERO,
        }
    }
}

impl Model {
    /// Ends the operation, whatever it has met, when it should; returns what was done.
    pub(super) fn end(mut self) -> Vec<String> {
        // An hour is later than any deadline, and a pause.
        self.pass(Duration::from_secs(3600), true);
        match self.asked {
            Asked::Told => {}
            Asked::Nothing => panic!("it waits for ever"),
            Asked::Refuse(reason) => self.ended(What::Refused(reason), None, 0),
            Asked::Select | Asked::CheckOut | Asked::Send => {
                self.ended(What::NoConnection(false), None, 0);
            }
        }
        assert_eq!(self.asked, Asked::Told, "an error that does not come of itself is the last");
        assert_eq!(self.operation.deadline(), None);
        self.done
    }

    fn tick(&mut self) -> Option<Action<Outcome>> {
        let mut out = Vec::new();
        self.operation.tick(self.now.into(), &mut out);
        self.only(out)
    }

    fn input(&mut self, input: Input<'_, Outcome>) -> Option<Action<Outcome>> {
        let mut out = Vec::new();
        self.operation.handle(self.now.into(), input, &mut out);
        self.only(out)
    }

    fn only(&mut self, mut out: Vec<Action<Outcome>>) -> Option<Action<Outcome>> {
        assert!(out.len() < 2, "one action answers one input: {out:?}");
        let action = out.pop();
        self.done.extend(action.iter().map(|action| format!("{:?}: {action:?}", self.now)));
        action
    }

    /// A new attempt begins, with its own time for selections.
    fn attempts(&mut self, action: Option<&Action<Outcome>>) {
        let own = self.rules.selection.map(|time| self.now + time);
        self.selection = own.into_iter().chain(self.rules.timeout.deadline()).min();
        self.selects(action);
    }

    fn selects(&mut self, action: Option<&Action<Outcome>>) {
        let Some(Action::Select { deadline }) = action else { panic!("{action:?}") };
        assert_eq!(*deadline, self.selection);
        self.asked = Asked::Select;
    }

    fn refuses(&mut self, action: Option<&Action<Outcome>>, reason: NotSent) {
        let Some(Action::Refuse(why)) = action else { panic!("{action:?}, and not {reason:?}") };
        assert_eq!(*why, reason);
        self.asked = Asked::Refuse(reason);
    }

    fn tells(&mut self, action: Option<Action<Outcome>>, wanted: Wanted) {
        let Some(Action::Done { outcome, timed_out }) = action else { panic!("{action:?}") };
        assert_eq!(Wanted::Tell { number: outcome.number, timed_out }, wanted);
        let is_write = self.rules.options.kind == OperationKind::Write;
        assert!(!outcome.is_labelled || is_write, "the label is for writes");
        let known = self.meanings.get(outcome.number.wrapping_sub(1));
        let (label, unpins) = known.copied().unwrap_or_default();
        assert_eq!(outcome.transaction_label, label);
        self.has_unpinned |= unpins;
        self.asked = Asked::Told;
    }
}

/// "Determining Retryable Write Errors", for servers before 4.4.
const fn is_for_writes(code: i32) -> bool {
    matches!(code, 11600 | 11602 | 10107 | 13435 | 13436 | 189 | 91 | 7 | 6 | 89 | 9001 | 262)
}

/// Retryable Reads, "Retryable Error".
const fn is_for_reads(code: i32) -> bool {
    is_for_writes(code) || code == 134
}
