//! The machine in virtual time, its laws asserted at every step.

use std::time::Duration;

use bson::rawdoc;

use super::{
    Action, AttemptOutcome, ConnectionFacts, Input, NotSent, Operation, Plan, SelectedFacts,
    Sending, SessionUse,
};
use crate::config::{Options, ServerAddress};
use crate::failure::{Cause, Failure, Stage};
use crate::machine::{Lawful, Machine};
use crate::operation::{
    CommandError, Fault, MaxTime, OperationError, OperationOptions, RetryPolicy, Timeout,
};
use crate::session::TransactionRole;
use crate::time::Instant;

/// The outcome of an attempt.
#[derive(Clone, Debug, PartialEq)]
enum Outcome {
    Reply(u32),
    NoServer,
    Cleared(u32),
    Dead(OperationError),
    Unconnected(OperationError),
    Exchange(u32, OperationError),
    Labelled(Box<Outcome>),
    Refused(NotSent),
}

impl AttemptOutcome for Outcome {
    fn fault(&self) -> Option<Fault<'_>> {
        match self {
            Self::Reply(_) => None,
            Self::NoServer => Some(Fault::Selection(true)),
            Self::Cleared(_) => Some(Fault::PoolCleared),
            Self::Dead(error) => Some(Fault::IdleConnection(error)),
            Self::Unconnected(error) => Some(Fault::Establishing(error)),
            Self::Exchange(_, error) => Some(Fault::Exchange(error)),
            Self::Labelled(outcome) => outcome.fault(),
            Self::Refused(reason) => Some(Fault::Refused(*reason == NotSent::Expired)),
        }
    }

    fn base_backoff(&self) -> Option<Duration> {
        None
    }

    fn add_label(&mut self, _: &'static str) {
        *self = Self::Labelled(Box::new(self.clone()));
    }
}

fn lost(number: u32) -> Outcome {
    let failure = Failure::new(Stage::Operate, Cause::Closed, "gone");
    Outcome::Exchange(number, OperationError::Stream(failure))
}

fn refused(number: u32, code: i32, labels: &[&str]) -> Outcome {
    let error = CommandError {
        labels: labels.iter().map(|&label| label.to_owned()).collect(),
        ..CommandError::in_reply(&rawdoc! { "ok": 0, "code": code }).unwrap()
    };
    Outcome::Exchange(number, OperationError::Reply { stage: Stage::Operate, error })
}

fn overloaded(number: u32) -> Outcome {
    refused(number, 462, &["SystemOverloadedError", "RetryableError"])
}

fn labelled(outcome: Outcome) -> Outcome {
    Outcome::Labelled(Box::new(outcome))
}

const SET: SelectedFacts = SelectedFacts {
    min_round_trip_time: Duration::from_millis(10),
    sharded: false,
    retryable_writes: true,
    max_wire_version: 17,
};

const CONNECTION: ConnectionFacts =
    ConnectionFacts { sessions: true, retryable_writes: true, max_wire_version: 17 };

/// An operation in virtual time, whose every attempt but for its exchange succeeds at once.
struct Scene {
    operation: Lawful<Operation<Outcome>>,
    now: Instant,
    selected: SelectedFacts,
    connection: ConnectionFacts,
    out: Vec<Action<Outcome>>,
}

impl Scene {
    fn new(plan: Plan) -> Self {
        let operation = Lawful::new(Operation::new(plan));
        let out = Vec::new();
        Self { operation, now: Instant::ZERO, selected: SET, connection: CONNECTION, out }
    }

    fn of(options: &OperationOptions, uri_options: &str) -> Self {
        let session = SessionUse::Implicit;
        Self::new(plan(options, uri_options).with_session(session))
    }

    fn action(&mut self) -> Option<Action<Outcome>> {
        assert!(self.out.len() < 2, "one action answers one input: {:?}", self.out);
        self.out.pop()
    }

    fn input(&mut self, input: Input<'_, Outcome>) {
        self.operation.handle(self.now.into(), input, &mut self.out);
    }

    /// Goes on until a command is to be sent, or to the end.
    fn until_sent(&mut self) -> Action<Outcome> {
        self.operation.tick(self.now.into(), &mut self.out);
        loop {
            match self.action() {
                Some(Action::Select { .. }) => self.input(Input::Selected(self.selected)),
                Some(Action::CheckOut { .. }) => {
                    self.input(Input::CheckedOut(self.connection, None));
                }
                Some(Action::Refuse(reason)) => self.end(Outcome::Refused(reason)),
                Some(action) => return action,
                None => {
                    self.now = self.operation.deadline().expect("it waits for something");
                    self.operation.tick(self.now.into(), &mut self.out);
                }
            }
        }
    }

    fn sending(&mut self) -> Sending {
        match self.until_sent() {
            Action::Send(sending) => sending,
            other => panic!("{other:?}"),
        }
    }

    fn end(&mut self, outcome: Outcome) {
        self.end_at("a", outcome);
    }

    fn end_at(&mut self, server: &str, outcome: Outcome) {
        let server: ServerAddress = server.parse().unwrap();
        self.input(Input::Ended { outcome, server: Some(&server), random: 1 << 63 });
    }

    /// Sends, and has it end so.
    fn exchange(&mut self, outcome: Outcome) -> Sending {
        let sending = self.sending();
        self.end(outcome);
        sending
    }

    fn outcome(&mut self) -> Outcome {
        match self.until_sent() {
            Action::Done { outcome, .. } => outcome,
            other => panic!("{other:?}"),
        }
    }

    fn timed_out(&mut self) -> bool {
        match self.until_sent() {
            Action::Done { timed_out, .. } => timed_out,
            other => panic!("{other:?}"),
        }
    }
}

fn plan(options: &OperationOptions, uri_options: &str) -> Plan {
    let uri = format!("mongodb://a/?{uri_options}");
    Plan::new(options, RetryPolicy::of(&Options::parse(&uri).unwrap()))
}

fn retryable_write() -> OperationOptions {
    OperationOptions::write().with_retryable(true)
}

fn timed(options: &OperationOptions, session: SessionUse, millis: u64) -> Plan {
    let timeout = Timeout::At(Instant::from_millis(millis));
    let selection = Some(Duration::from_secs(30));
    plan(options, "").with_session(session).with_timeouts(timeout, selection)
}

#[test]
fn an_operation_selects_checks_out_sends_and_ends() {
    let mut scene = Scene::of(&retryable_write(), "");
    let sending = scene.exchange(Outcome::Reply(1));
    let expected = Sending {
        session: true,
        transaction_number: true,
        max_time: None,
        timeout: Timeout::Unset,
    };
    assert_eq!(sending, expected);
    assert_eq!(scene.outcome(), Outcome::Reply(1));
    scene.end(Outcome::Reply(2));
    assert!(scene.action().is_none(), "what comes after the end is ignored");
}

/// Retryable Writes, "Executing Retryable Write Commands".
#[test]
fn a_write_is_sent_again_once_with_its_number() {
    let mut scene = Scene::of(&retryable_write(), "");
    assert!(scene.exchange(lost(1)).transaction_number);
    assert!(scene.exchange(Outcome::Reply(2)).transaction_number);
    assert_eq!(scene.outcome(), Outcome::Reply(2));
    let mut scene = Scene::of(&retryable_write(), "");
    scene.exchange(lost(1));
    assert_eq!(scene.operation.get().retries(), 1);
    scene.exchange(lost(2));
    assert_eq!(scene.outcome(), labelled(lost(2)), "the most recent one");
}

/// "If the server selected for the first attempt of a retryable write operation does not support
/// retryable writes, drivers MUST execute the write as if retryable writes were not enabled."
#[test]
fn a_write_to_a_standalone_has_no_number_and_is_sent_once() {
    let mut scene = Scene::of(&retryable_write(), "");
    scene.selected.retryable_writes = false;
    scene.connection.retryable_writes = false;
    let sending = scene.exchange(lost(1));
    assert_eq!((sending.session, sending.transaction_number), (true, false));
    assert_eq!(scene.outcome(), lost(1), "without the label");
}

/// "or the selected server does not support retryable writes, retrying is not possible".
#[test]
fn a_write_is_not_sent_again_to_a_server_that_cannot_tell() {
    let mut scene = Scene::of(&retryable_write(), "");
    scene.exchange(lost(1));
    scene.connection.retryable_writes = false;
    assert_eq!(scene.outcome(), labelled(lost(1)));
}

/// Retryable Reads, "Executing Retryable Read Commands": "MUST NOT retry if the server/wire version
/// dips after server selection and MUST raise the original retryable error".
#[test]
fn a_command_is_not_sent_again_to_an_older_server_than_it_was_written_for() {
    for (version, expected) in [(16, lost(1)), (17, Outcome::Reply(2)), (18, Outcome::Reply(2))] {
        let read = OperationOptions::read().with_retryable(true);
        let mut scene = Scene::of(&read, "");
        scene.exchange(lost(1));
        scene.connection.max_wire_version = version;
        match scene.until_sent() {
            Action::Done { outcome, timed_out } => {
                assert_eq!((outcome, timed_out), (expected, false));
            }
            Action::Send(_) => {
                scene.end(Outcome::Reply(2));
                assert_eq!(scene.outcome(), expected, "{version}");
            }
            other => panic!("{other:?}"),
        }
    }
}

/// "Drivers MUST NOT add a transaction ID to any write command with an unacknowledged write
/// concern"; Driver Sessions, "When using unacknowledged writes".
#[test]
fn unacknowledged_writes_have_neither_number_nor_session() {
    let options = retryable_write().with_acknowledged(false);
    let mut scene = Scene::of(&options, "");
    let sending = scene.exchange(lost(1));
    assert_eq!((sending.session, sending.transaction_number), (false, false));
    assert_eq!(scene.outcome(), lost(1), "and are sent once");
    let explicit = SessionUse::Explicit { snapshot: false, transaction: None };
    let mut scene = Scene::new(plan(&options, "").with_session(explicit));
    scene.operation.tick(scene.now.into(), &mut scene.out);
    let refused = scene.action();
    assert!(matches!(refused, Some(Action::Refuse(NotSent::Unacknowledged))), "{refused:?}");
}

/// Retryable Writes, "Supported Write Operations": a number is one of a session, and without one a
/// write is sent once, as with `retryWrites=false`.
#[test]
fn a_write_without_a_session_or_that_is_not_to_be_sent_again_is_sent_once() {
    let without = Scene::new(plan(&retryable_write(), ""));
    for mut scene in [without, Scene::of(&retryable_write(), "retryWrites=false")] {
        assert!(!scene.exchange(lost(1)).transaction_number);
        assert_eq!(scene.outcome(), lost(1));
        assert_eq!(scene.operation.get().retries(), 0);
    }
}

/// A bulk write: which statements its next command has depends on the limits of the server.
#[test]
fn a_command_that_is_written_for_its_server_says_then_what_it_is() {
    let sent = |options: OperationOptions, session| {
        let mut operation =
            Operation::<Outcome>::new(plan(&retryable_write(), "").with_session(session));
        operation.start(Instant::ZERO);
        operation.step(Instant::ZERO, Input::Selected(SET));
        operation.step(Instant::ZERO, Input::CheckedOut(CONNECTION, Some(&options))).unwrap()
    };
    let Action::Send(sending) = sent(OperationOptions::write(), SessionUse::Implicit) else {
        panic!()
    };
    assert_eq!((sending.session, sending.transaction_number), (true, false));
    let unacknowledged = OperationOptions::write().with_acknowledged(false);
    let refused = sent(unacknowledged, SessionUse::Explicit { snapshot: false, transaction: None });
    assert!(matches!(refused, Action::Refuse(NotSent::Unacknowledged)), "{refused:?}");
}

/// Driver Sessions, "How to Tell Whether a Connection Supports Sessions", and "endSession".
#[test]
fn sessions_need_servers_that_have_them() {
    let options = OperationOptions::read();
    let mut scene = Scene::of(&options, "");
    scene.connection.sessions = false;
    assert!(!scene.sending().session, "an implicit session is ignored");
    let explicit = |snapshot| {
        let plan =
            plan(&options, "").with_session(SessionUse::Explicit { snapshot, transaction: None });
        Scene::new(plan)
    };
    let mut scene = explicit(false);
    scene.connection.sessions = false;
    assert_eq!(scene.outcome(), Outcome::Refused(NotSent::SessionsUnsupported));
    let mut scene = explicit(true);
    scene.connection.max_wire_version = 12;
    assert_eq!(scene.outcome(), Outcome::Refused(NotSent::SnapshotsUnsupported));
    let mut scene = explicit(true);
    scene.connection.max_wire_version = 13;
    assert!(scene.sending().session, "servers have snapshots from 5.0 on");
    assert!(explicit(true).sending().session);
    let mut scene = Scene::new(plan(&options, "").with_session(SessionUse::Ended));
    assert_eq!(scene.outcome(), Outcome::Refused(NotSent::SessionEnded));
    let mut scene = Scene::new(plan(&options, ""));
    assert!(!scene.sending().session, "no session was given");
}

/// "the most recently encountered error which indicates a write attempt occurred must be returned",
/// and the other two rules.
#[test]
fn the_error_that_tells_most_is_returned() {
    let unwritten = |number| refused(number, 91, &["RetryableWriteError", "NoWritesPerformed"]);
    let written = |number| refused(number, 91, &["RetryableWriteError"]);
    for (first, second, expected) in [
        (written(1), written(2), written(2)),
        (unwritten(1), unwritten(2), unwritten(1)),
        (written(1), unwritten(2), written(1)),
        (unwritten(1), written(2), written(2)),
        (written(1), Outcome::NoServer, written(1)),
        (written(1), refused(2, 11000, &[]), refused(2, 11000, &[])),
    ] {
        let mut scene = Scene::of(&retryable_write(), "");
        scene.exchange(first.clone());
        scene.exchange(second.clone());
        assert_eq!(scene.outcome(), expected, "{first:?}, then {second:?}");
    }
}

/// Retryable Reads: once; and not for `getMore`, nor for a command whose nature is not known.
#[test]
fn reads_are_sent_again_once_and_commands_never() {
    let mut scene = Scene::of(&OperationOptions::read(), "");
    scene.exchange(lost(1));
    assert!(!scene.exchange(lost(2)).transaction_number);
    assert_eq!(scene.outcome(), lost(2));
    for options in [
        OperationOptions::read().with_retryable(false),
        OperationOptions::command(),
        OperationOptions::write(),
    ] {
        let mut scene = Scene::of(&options, "");
        scene.exchange(lost(1));
        assert_eq!(scene.outcome(), lost(1));
    }
}

/// While nothing was sent, another selection may lead to the server that has taken over.
#[test]
fn cleared_pools_lead_to_further_selections() {
    let mut scene = Scene::of(&OperationOptions::command(), "");
    for number in 1..=3 {
        scene.exchange(Outcome::Cleared(number));
    }
    assert_eq!(scene.outcome(), Outcome::Cleared(3), "two more, and no others");
    let gone = Failure::new(Stage::Operate, Cause::Closed, "gone");
    let dead = Outcome::Dead(OperationError::Stream(gone));
    let mut scene = Scene::of(&OperationOptions::command(), "");
    scene.exchange(dead.clone());
    scene.exchange(dead.clone());
    assert_eq!(scene.outcome(), dead, "\"attempt once more to select a server\"");
}

/// Client Backpressure, prose test 1: the delays, in virtual time.
#[test]
fn bp_p1_overload_is_waited_for() {
    let mut scene = Scene::of(&OperationOptions::command(), "");
    scene.exchange(overloaded(1));
    assert_eq!(scene.now, Instant::ZERO);
    scene.exchange(overloaded(2));
    assert_eq!(scene.now, Instant::from_millis(100), "half of 200 ms");
    scene.exchange(overloaded(3));
    assert_eq!(scene.now, Instant::from_millis(300), "and half of 400 ms");
    assert_eq!(scene.outcome(), overloaded(3), "maxAdaptiveRetries is 2");
}

/// Client Backpressure, pseudocode: "If the delay exceeds the deadline, bail early."
#[test]
fn nothing_is_waited_for_beyond_the_deadline() {
    let mut scene = Scene::new(timed(&OperationOptions::read(), SessionUse::Implicit, 100));
    scene.exchange(overloaded(1));
    assert_eq!(scene.outcome(), overloaded(1));
    assert_eq!(scene.now, Instant::ZERO);
}

#[test]
fn servers_are_avoided_where_the_rules_want_it() {
    let avoided = |scene: &mut Scene, outcome| {
        scene.exchange(outcome);
        scene.sending();
        scene.operation.get().deprioritized().len()
    };
    let read = OperationOptions::read();
    assert_eq!(avoided(&mut Scene::of(&read, ""), lost(1)), 0);
    assert_eq!(avoided(&mut Scene::of(&read, ""), overloaded(1)), 0);
    let retargeting = "enableOverloadRetargeting=true";
    assert_eq!(avoided(&mut Scene::of(&read, retargeting), overloaded(1)), 1);
    let mut sharded = Scene::of(&read, "");
    sharded.selected.sharded = true;
    assert_eq!(avoided(&mut sharded, lost(1)), 1);
    // "the server address MUST be added", also where nothing was sent and another selection
    // follows.
    for (options, count) in [(read, 1), (OperationOptions::command(), 0)] {
        let mut sharded = Scene::of(&options, "");
        sharded.selected.sharded = true;
        assert_eq!(avoided(&mut sharded, Outcome::Cleared(1)), count, "{options:?}");
    }
}

/// "the server address MUST be added to the list of deprioritized servers" (Retryable Reads): one
/// server after the other joins the list, and none leaves it.
#[test]
fn all_servers_that_have_refused_are_avoided() {
    let mut scene = Scene::of(&OperationOptions::read(), "maxAdaptiveRetries=4");
    scene.selected.sharded = true;
    scene.sending();
    for (server, avoided) in [("a", &["a"][..]), ("b", &["a", "b"]), ("a", &["a", "b"])] {
        scene.end_at(server, overloaded(1));
        scene.sending();
        let avoided: Vec<ServerAddress> = avoided.iter().map(|it| it.parse().unwrap()).collect();
        assert_eq!(scene.operation.get().deprioritized(), avoided);
    }
}

/// CSOT, "Command Execution".
#[test]
fn max_time_and_deadline_come_of_one_time_out() {
    let write = retryable_write();
    let mut scene = Scene::new(timed(&write, SessionUse::Implicit, 100));
    scene.now = Instant::from_millis(40);
    let sending = scene.sending();
    assert_eq!(sending.max_time, Some(Duration::from_millis(50)));
    assert_eq!(sending.timeout, Timeout::At(Instant::from_millis(100)));
    let never = write.with_max_time(MaxTime::Never);
    let mut scene = Scene::new(timed(&never, SessionUse::Implicit, 100));
    assert_eq!(scene.sending().max_time, None);
    let mut scene = Scene::new(timed(&never, SessionUse::Implicit, 100));
    scene.now = Instant::from_millis(95);
    assert!(scene.timed_out(), "the round trip takes longer: nothing is sent");
}

/// CSOT, "Server Selection": `min(serverSelectionTimeoutMS, remaining timeoutMS)` for the selection
/// and, if timeoutMS is set, for the check-out.
#[test]
fn selections_and_check_outs_have_their_deadlines() {
    let deadlines = |timeout: Option<u64>, selection: u64| {
        let timeout = timeout.map_or(Timeout::Unset, |by| Timeout::At(Instant::from_millis(by)));
        let selection = Some(Duration::from_millis(selection));
        let plan = plan(&OperationOptions::read(), "").with_timeouts(timeout, selection);
        let mut operation = Operation::<Outcome>::new(plan);
        let Action::Select { deadline } = operation.start(Instant::ZERO) else { panic!() };
        let check_out = operation.step(Instant::ZERO, Input::Selected(SET));
        let Some(Action::CheckOut { deadline: check_out }) = check_out else { panic!() };
        [deadline, check_out].map(|at| at.map(|at| at.since_origin().as_millis()))
    };
    assert_eq!(deadlines(Some(100), 30), [Some(30), Some(30)]);
    assert_eq!(deadlines(Some(20), 30), [Some(20), Some(20)]);
    assert_eq!(deadlines(None, 30), [Some(30), None]);
}

/// Server Selection, "serverSelectionTimeoutMS": the time of one selection, so that the next
/// attempt has all of it; within an attempt, further selections have what is left.
#[test]
fn each_attempt_has_the_time_of_a_selection() {
    let second = Some(Duration::from_secs(1));
    let plan = plan(&OperationOptions::read(), "").with_timeouts(Timeout::Unset, second);
    let mut operation = Operation::<Outcome>::new(plan);
    let server: ServerAddress = "a".parse().unwrap();
    let mut at = Instant::ZERO;
    let mut action = operation.start(at);
    for (outcome, deadline) in
        [(Outcome::Cleared(1), 1000), (lost(2), 1000), (Outcome::Reply(3), 1600)]
    {
        let Action::Select { deadline: until } = action else { panic!("{action:?}") };
        assert_eq!(until, Some(Instant::from_millis(deadline)), "before {outcome:?}");
        at = at + Duration::from_millis(300);
        operation.step(at, Input::Selected(SET));
        operation.step(at, Input::CheckedOut(CONNECTION, None));
        let ended = Input::Ended { outcome, server: Some(&server), random: 0 };
        action = operation.step(at, ended).unwrap();
    }
    assert!(matches!(action, Action::Done { outcome: Outcome::Reply(3), .. }), "{action:?}");
}

/// Client Backpressure: "MAX_RETRIES" counts for all attempts once a server has said that it is
/// overloaded, whatever the errors that follow, also where `timeoutMS` is set.
#[test]
fn overload_limits_the_attempts_also_after_another_error_and_with_a_time_out() {
    let mut scene = Scene::new(timed(&retryable_write(), SessionUse::Implicit, 20_000));
    scene.exchange(overloaded(1));
    scene.exchange(lost(2));
    scene.exchange(lost(3));
    assert_eq!(scene.outcome(), labelled(lost(3)), "two retries, and no more");
}

/// CSOT, "Retryability": as many times as possible, and then an error of lack of time.
#[test]
fn with_a_time_out_attempts_are_not_counted() {
    let mut scene = Scene::new(timed(&retryable_write(), SessionUse::Implicit, 20_000));
    for number in 1..=20 {
        scene.exchange(lost(number));
    }
    scene.sending();
    scene.now = Instant::from_millis(20_000);
    scene.end(lost(21));
    let Action::Done { outcome, timed_out } = scene.until_sent() else { panic!() };
    assert_eq!((outcome, timed_out), (labelled(lost(21)), true));
}

/// A load balancer that cannot be found is never Unknown, nor is a secondary to which a client
/// connects directly: nothing but a pause keeps from trying without end.
#[test]
fn further_attempts_pause_until_the_time_is_up() {
    let failure = Failure::new(Stage::Resolve, Cause::NotResolved, "no such host");
    let unconnected = Outcome::Unconnected(OperationError::Stream(failure));
    for outcome in [unconnected, refused(1, 10107, &["RetryableWriteError"])] {
        let mut scene = Scene::new(timed(&retryable_write(), SessionUse::Implicit, 45));
        scene.exchange(outcome.clone());
        scene.exchange(outcome.clone());
        assert_eq!(scene.now, Instant::ZERO, "the first further attempt is made at once");
        scene.exchange(outcome.clone());
        assert_eq!(scene.now, Instant::from_millis(10));
        scene.exchange(outcome);
        assert_eq!(scene.now, Instant::from_millis(30));
        assert!(scene.timed_out(), "the next pause is longer than what is left");
    }
}

/// CSOT, "Error Transformations": `MaxTimeMSExpired`, but only if timeoutMS is set.
#[test]
fn the_servers_own_limit_tells_of_lack_of_time() {
    let read = OperationOptions::read();
    let mut scene = Scene::new(timed(&read, SessionUse::None, 100));
    scene.exchange(refused(1, 50, &[]));
    assert!(scene.timed_out());
    let mut scene = Scene::of(&read, "");
    scene.exchange(refused(1, 50, &[]));
    assert!(!scene.timed_out());
}

/// CSOT: only where `timeoutMS` is set is what took too long an error of that.
#[test]
fn an_error_for_lack_of_time_is_one_of_the_operation_where_that_has_a_time_out() {
    for (plan, expected) in [
        (plan(&OperationOptions::read(), ""), false),
        (timed(&OperationOptions::read(), SessionUse::Implicit, 1000), true),
    ] {
        let mut scene = Scene::new(plan);
        scene.operation.tick(scene.now.into(), &mut scene.out);
        assert!(matches!(scene.action(), Some(Action::Select { .. })));
        scene.end(Outcome::NoServer);
        assert_eq!(scene.timed_out(), expected);
    }
}

/// Retryable Reads, "Sharded clusters deprioritize on all retryable errors": a server whose pool
/// was cleared is avoided if it is a mongos and the operation may be sent again.
#[test]
fn a_server_whose_pool_was_cleared_is_avoided_if_another_one_will_do() {
    let continuing = OperationOptions::continuing();
    for (sharded, options, avoids) in [
        (true, OperationOptions::read(), true),
        (false, OperationOptions::read(), false),
        (true, continuing, false),
    ] {
        let mut scene = Scene::of(&options, "");
        scene.selected.sharded = sharded;
        scene.operation.tick(scene.now.into(), &mut scene.out);
        assert!(matches!(scene.action(), Some(Action::Select { .. })));
        scene.input(Input::Selected(scene.selected));
        assert!(matches!(scene.action(), Some(Action::CheckOut { .. })));
        scene.end_at("a", Outcome::Cleared(1));
        assert_eq!(scene.operation.get().deprioritized().is_empty(), !avoids, "{sharded}");
    }
}

/// Until the time to select a server is over, and not any more then: the next attempt is a retry.
#[test]
fn another_server_is_selected_while_there_is_time_for_it() {
    for (millis, selects) in [(999, true), (1000, false)] {
        let selection = Some(Duration::from_secs(1));
        let options = OperationOptions::read().with_retryable(false);
        let plan = plan(&options, "").with_session(SessionUse::Implicit);
        let mut scene = Scene::new(plan.with_timeouts(Timeout::Unset, selection));
        scene.operation.tick(scene.now.into(), &mut scene.out);
        assert!(matches!(scene.action(), Some(Action::Select { .. })));
        scene.now = Instant::from_millis(millis);
        scene.end(Outcome::Cleared(1));
        let action = scene.action();
        assert_eq!(matches!(action, Some(Action::Select { .. })), selects, "{action:?}");
        assert_eq!(matches!(action, Some(Action::Done { .. })), !selects, "{action:?}");
    }
}

fn in_transaction(options: &OperationOptions, uri: &str, role: TransactionRole) -> Scene {
    let session = SessionUse::Explicit { snapshot: false, transaction: Some(role) };
    Scene::new(plan(options, uri).with_session(session))
}

/// Transactions, "Interaction with Retryable Writes" and "Interaction with Retryable Reads": what
/// is within is never sent again, but after an overload.
#[test]
fn a_command_within_a_transaction_is_sent_once() {
    for options in [OperationOptions::read(), retryable_write()] {
        let mut scene = in_transaction(&options, "", TransactionRole::Within);
        let sending = scene.exchange(lost(1));
        assert!(sending.session && !sending.transaction_number, "the number is the transaction's");
        assert!(matches!(
            scene.until_sent(),
            Action::Done { outcome: Outcome::Labelled(_), timed_out: false }
        ));
        assert!(scene.operation.get().has_unpinned());
        let mut scene = in_transaction(&options, "", TransactionRole::Within);
        scene.exchange(overloaded(1));
        scene.exchange(Outcome::Reply(2));
        assert!(!scene.operation.get().has_unpinned());
    }
    let mut scene = in_transaction(&retryable_write(), "", TransactionRole::Within);
    let Some(Action::Select { .. }) = ({
        scene.operation.tick(scene.now.into(), &mut scene.out);
        scene.action()
    }) else {
        panic!("it selects first")
    };
    scene.input(Input::Selected(scene.selected));
    scene.action();
    scene.end(Outcome::Cleared(1));
    assert!(matches!(scene.action(), Some(Action::Done { .. })), "it runs again as a whole");
}

/// Transactions, "Mongos Pinning": "Drivers MUST send all commands for a single transaction to the
/// same mongos", and "When to unpin": an operation that comes again has not failed.
#[test]
fn a_command_within_a_transaction_comes_again_where_it_was() {
    let begin = || {
        let mut scene = in_transaction(&retryable_write(), "", TransactionRole::Within);
        scene.operation.tick(scene.now.into(), &mut scene.out);
        assert!(matches!(scene.action(), Some(Action::Select { .. })));
        scene.input(Input::Selected(scene.selected));
        scene.action();
        let failure = Failure::new(Stage::Hello, Cause::Closed, "shed");
        scene.end(Outcome::Unconnected(OperationError::Stream(failure)));
        assert!(!scene.operation.get().has_unpinned(), "it comes again");
        scene
    };
    let mut scene = begin();
    scene.exchange(Outcome::Reply(1));
    assert!(!scene.operation.get().has_unpinned(), "it has not failed");
    let mut scene = begin();
    scene.exchange(lost(1));
    assert!(scene.operation.get().has_unpinned(), "it has failed");
    let mut scene = begin();
    scene.exchange(refused(1, 11000, &[]));
    assert!(!scene.operation.get().has_unpinned(), "the error of its caller says nothing of that");
    let mut scene = begin();
    scene.sending();
    scene.end(Outcome::Refused(NotSent::SessionEnded));
    assert!(scene.operation.get().has_unpinned(), "its caller gets the first error");
}

/// Transactions, "commitTransaction" and "abortTransaction": "regardless of whether retryWrites is
/// set".
#[test]
fn the_end_of_a_transaction_is_sent_once_more_whatever_retry_writes_says() {
    for role in [TransactionRole::Commit, TransactionRole::Abort] {
        for uri in ["", "retryWrites=false"] {
            let mut scene = in_transaction(&retryable_write(), uri, role);
            let sending = scene.exchange(lost(1));
            assert!(!sending.transaction_number);
            assert!(scene.operation.get().has_unpinned(), "before the selection for the retry");
            scene.exchange(lost(2));
            assert!(matches!(scene.until_sent(), Action::Done { .. }), "once");
        }
    }
}
