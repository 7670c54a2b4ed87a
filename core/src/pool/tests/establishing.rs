//! Establishing connections: how many at once, for whom, and what comes of it.

use std::time::Duration;

use super::{CheckOutError, Command, Fixture, Input, Stage, failure, millis};
use crate::id::{ConnectionId, WaiterId};
use crate::machine::Machine;
use crate::operation::OperationError;
use crate::pool::Obstacle;
use crate::time::Time;

fn establishing(notes: &[String]) -> usize {
    notes.iter().filter(|note| note.starts_with("establish ")).count()
}

/// "Rate-limited": at most maxConnecting at once.
#[test]
fn no_more_than_max_connecting_are_established_at_once() {
    let mut fixture = Fixture::ready(|options| options.max_connecting = 2);
    for waiter in 1..=5 {
        fixture.check_out(waiter);
    }
    assert_eq!((establishing(&fixture.notes()), fixture.counts()), (2, [0, 2, 0, 5]));
    fixture.establish(1);
    assert_eq!((establishing(&fixture.notes()), fixture.counts()), (1, [0, 2, 1, 4]));
}

/// A connection on its way is waited for before another one is begun.
#[test]
fn no_more_are_established_than_operations_wait() {
    let mut fixture = Fixture::lending(1, |options| options.max_connecting = 10);
    fixture.check_out(1);
    fixture.check_in(1);
    assert_eq!((establishing(&fixture.notes()), fixture.counts()), (1, [0, 1, 1, 0]));
    fixture.check_out(2);
    assert_eq!((establishing(&fixture.notes()), fixture.counts()), (0, [0, 1, 1, 1]));
    fixture.check_out(3);
    assert_eq!((establishing(&fixture.notes()), fixture.counts()), (1, [0, 2, 1, 2]));
}

/// "connection establishment error": the check-out that the connection was created for fails.
#[test]
fn the_operation_whose_connection_fails_is_told_its_own_error_and_how_far_it_had_come() {
    let mut fixture = Fixture::ready(|_| {});
    fixture.check_out(1);
    fixture.check_out(2);
    fixture.notes();
    for (at, stage) in [(1, Stage::Resolve), (3, Stage::Connect), (8, Stage::Hello)] {
        fixture.at(at);
        fixture.input(Input::Reached { connection: ConnectionId(2), stage });
    }
    fixture.input(Input::Reached { connection: ConnectionId(2), stage: Stage::Connect });
    fixture.at(12);
    fixture.input(Input::Reached { connection: ConnectionId(2), stage: Stage::Hello });
    fixture.at(20);
    fixture.fail(2);
    assert_eq!(
        fixture.notes(),
        ["c2 closed: Error", "failed after 20 ms: connectionError", "refuse 2"]
    );
    let [CheckOutError::Establishing { error, stages, .. }] = &fixture.errors[..] else {
        panic!("{:?}", fixture.errors);
    };
    assert_eq!(*error, OperationError::Stream(failure()));
    let expected =
        [(Stage::Resolve, millis(2)), (Stage::Connect, millis(5)), (Stage::Hello, millis(12))];
    assert_eq!(**stages, expected);
    assert_eq!(fixture.counts(), [0, 1, 0, 1]);
}

/// "Rate-limited": a connection that could not be established is pending no more, however it ended,
/// so that the next operation does not wait for it.
#[test]
fn a_connection_that_could_not_be_established_keeps_nobody_from_the_next_one() {
    let mut fixture = Fixture::new(|config| {
        config.options.max_connecting = 1;
        config.connect_timeout = Some(millis(1000));
    });
    fixture.input(Input::Command(Command::Ready));
    for connection in 1..=6 {
        fixture.notes();
        fixture.check_out(connection);
        assert_eq!((establishing(&fixture.notes()), fixture.counts()), (1, [0, 1, 0, 1]));
        if connection % 2 == 0 {
            fixture.at(1000 * connection);
            assert!(fixture.notes().iter().any(|note| note.starts_with("time out")));
        }
        fixture.fail(connection);
        assert_eq!((fixture.errors.len() as u64, fixture.counts()), (connection, [0, 0, 0, 0]));
    }
    fixture.check_out(7);
    fixture.establish(7);
    assert_eq!(fixture.counts(), [0, 0, 1, 0]);
}

/// An operation whose connection went to another waits for the next; other failures do not end it.
#[test]
fn the_failure_of_another_operations_connection_does_not_end_the_wait() {
    let mut fixture = Fixture::ready(|_| {});
    fixture.check_out(1);
    fixture.check_out(2);
    fixture.establish(2);
    fixture.notes();
    fixture.fail(1);
    let notes = ["c1 closed: Error", "c3 created", "establish c3 of generation 0"];
    assert_eq!((fixture.notes(), fixture.counts()), (notes.map(String::from).into(), [0, 1, 1, 1]));
    fixture.fail(3);
    assert_eq!(fixture.errors.len(), 1, "this one was its own");
}

/// The topology receives the failure first, and may clear the pool because of it.
#[test]
fn whoever_a_failing_connection_was_created_for_learns_of_its_error_and_others_of_the_clear() {
    let mut fixture = Fixture::ready(|options| options.max_connecting = 1);
    fixture.check_out(1);
    fixture.check_out(2);
    fixture.notes();
    fixture.input(Input::Failing { connection: ConnectionId(1) });
    fixture.check_out(3);
    fixture.clear(false);
    fixture.fail(1);
    assert_eq!(establishing(&fixture.notes()), 0);
    assert_eq!(fixture.counts(), [0; 4]);
    let reasons: Vec<bool> = fixture
        .errors
        .iter()
        .map(|error| matches!(error, CheckOutError::Establishing { .. }))
        .collect();
    assert_eq!(reasons, [false, false, true]);
}

/// A pool that is closed in the meantime forgets no waiter.
#[test]
fn closing_a_pool_ends_the_wait_for_a_failing_connection_too() {
    let mut fixture = Fixture::ready(|_| {});
    fixture.check_out(1);
    fixture.input(Input::Failing { connection: ConnectionId(1) });
    fixture.input(Input::Close);
    assert!(matches!(fixture.errors[..], [CheckOutError::PoolClosed { .. }]));
}

/// Others whose connections are failing still are.
#[test]
fn whoever_stops_to_wait_for_a_failing_connection_is_told_no_more() {
    let mut fixture = Fixture::ready(|_| {});
    for number in [1, 2] {
        fixture.check_out(number);
        fixture.input(Input::Failing { connection: ConnectionId(number) });
    }
    fixture.notes();
    fixture.input(Input::Abandon { waiter: WaiterId(1) });
    assert_eq!(fixture.notes(), ["failed after 0 ms: timeout"]);
    fixture.fail(1);
    assert_eq!(fixture.notes()[0], "c1 closed: Error");
    assert!(fixture.errors.is_empty(), "{:?}", fixture.errors);
    fixture.fail(2);
    assert!(matches!(fixture.errors[..], [CheckOutError::Establishing { .. }]));
}

/// "Populating the Pool with a Connection": only while ready, up to minPoolSize.
#[test]
fn the_minimum_is_established_in_the_background_once_ready() {
    let mut fixture = Fixture::new(|config| config.options.min_pool_size = 3);
    fixture.at(1000);
    assert_eq!(fixture.notes().len(), 0);
    fixture.input(Input::Command(Command::Ready));
    let notes = fixture.notes();
    assert_eq!((notes[0].as_str(), establishing(&notes)), ("pool ready", 2));
    fixture.establish(1);
    fixture.establish(2);
    fixture.establish(3);
    assert_eq!(fixture.counts(), [3, 0, 0, 0]);
}

/// An error that may be overload clears nothing, so the pool has to hold back by itself.
#[test]
fn after_a_failure_the_minimum_is_tried_again_half_a_second_later() {
    let mut fixture = Fixture::ready(|options| options.min_pool_size = 1);
    fixture.fail(1);
    fixture.notes();
    fixture.at(499);
    assert_eq!(fixture.notes().len(), 0);
    fixture.at(500);
    assert_eq!(fixture.notes(), ["c2 created", "establish c2 of generation 0"]);
    fixture.fail(2);
    fixture.clear(false);
    fixture.notes();
    fixture.at(600);
    fixture.input(Input::Command(Command::Ready));
    assert_eq!(establishing(&fixture.notes()), 1, "the server has just answered a check");
}

#[test]
fn connections_in_use_and_idle_ones_count_for_the_minimum() {
    let mut fixture = Fixture::lending(2, |options| {
        options.min_pool_size = 2;
        options.max_idle_time = millis(50);
    });
    fixture.check_in(1);
    assert_eq!(fixture.counts(), [1, 0, 1, 0]);
    fixture.notes();
    fixture.at(50);
    let expected = ["c1 closed: Idle", "dispose c1", "c3 created", "establish c3 of generation 0"];
    assert_eq!(fixture.notes(), expected);
}

/// A login asks for credentials at each of its steps, as that of GSSAPI does; what each stage takes
/// is counted together.
#[test]
fn the_stages_of_a_login_that_take_turns_are_counted_together() {
    let mut fixture = Fixture::ready(|_| {});
    fixture.check_out(1);
    let stages = [
        (1, Stage::Hello),
        (3, Stage::Credentials),
        (7, Stage::Authenticate),
        (8, Stage::Credentials),
        (16, Stage::Authenticate),
        (17, Stage::Tls),
    ];
    for (at, stage) in stages {
        fixture.at(at);
        fixture.input(Input::Reached { connection: ConnectionId(1), stage });
    }
    fixture.at(20);
    fixture.fail(1);
    let expected = [
        (Stage::Hello, millis(2)),
        (Stage::Credentials, millis(12)),
        (Stage::Authenticate, millis(5)),
    ];
    let Some(CheckOutError::Establishing { stages, .. }) = fixture.errors.pop() else {
        panic!("it fails with the connection")
    };
    assert_eq!(*stages, expected);
}

/// connectTimeoutMS bounds each establishment; it counts until the runtime has reported the
/// outcome.
#[test]
fn establishing_a_connection_is_given_up_after_connect_timeout() {
    let mut fixture = Fixture::new(|config| config.connect_timeout = Some(millis(100)));
    fixture.input(Input::Command(Command::Ready));
    fixture.check_out(1);
    fixture.input(Input::Reached { connection: ConnectionId(1), stage: Stage::Tls });
    fixture.notes();
    fixture.at(99);
    assert_eq!(fixture.notes().len(), 0);
    fixture.at(200);
    assert_eq!(fixture.notes(), ["time out c1 while TLS: connectTimeoutMS"]);
    assert_eq!(fixture.counts(), [0, 1, 0, 1]);
    fixture.fail(1);
    assert_eq!(fixture.counts(), [0; 4]);
}

/// A caller that reads the peer's answer too late was not there to ask for the next step.
#[test]
fn an_answer_that_is_heard_after_the_limit_and_before_its_judgement_renews_the_time() {
    let mut fixture = Fixture::new(|config| config.connect_timeout = Some(millis(100)));
    fixture.input(Input::Command(Command::Ready));
    fixture.check_out(1);
    for stage in [Stage::Hello, Stage::Authenticate, Stage::Authenticate] {
        fixture.now = fixture.now + millis(5_000);
        let (mut out, connection) = (Vec::new(), ConnectionId(1));
        let in_time = Time::before(fixture.pool.deadline(), fixture.now);
        fixture.pool.handle(in_time, Input::Reached { connection, stage }, &mut out);
        assert!(out.is_empty(), "{out:?}");
        assert_eq!(fixture.pool.deadline(), Some(fixture.now + millis(100)));
    }
    fixture.notes();
    // In time, it renews nothing; nor does it when the limit was judged.
    fixture.at(15_050);
    let again = Input::Reached { connection: ConnectionId(1), stage: Stage::Authenticate };
    fixture.input(again.clone());
    fixture.at(15_100);
    assert_eq!(fixture.notes(), ["time out c1 while authentication: connectTimeoutMS"]);
    fixture.input(again);
    assert_eq!(fixture.pool.deadline(), None);
}

/// A pool that establishes one connection for minPoolSize, with both time-outs.
fn populating(connect: Option<Duration>, handshake: Option<Duration>) -> Fixture {
    let mut fixture = Fixture::new(|config| {
        config.options.min_pool_size = 1;
        (config.connect_timeout, config.handshake_timeout) = (connect, handshake);
    });
    fixture.input(Input::Command(Command::Ready));
    fixture.notes();
    fixture
}

fn ask(fixture: &mut Fixture, stage: Stage) {
    fixture.input(Input::Reached { connection: ConnectionId(1), stage });
    fixture.input(Input::Asked { connection: ConnectionId(1) });
}

/// Client Side Operations Timeout, "Background Connection Pooling": "MUST use `connectTimeoutMS` as
/// the timeout for connection establishment. After the connection is established, if `timeoutMS` is
/// set at the MongoClient level, it MUST be used as the timeout for all commands [...] The timeout
/// MUST be refreshed after each command."
#[test]
fn each_command_of_a_handshake_in_the_background_has_the_time_of_an_operation() {
    for connect in [None, Some(millis(100))] {
        let mut fixture = populating(connect, Some(millis(30)));
        fixture.at(90);
        for time in [90, 119, 148, 177] {
            fixture.at(time);
            ask(&mut fixture, if time < 100 { Stage::Hello } else { Stage::Authenticate });
        }
        // The server goes on with its answer, which is not whole.
        fixture.at(200);
        let connection = ConnectionId(1);
        fixture.input(Input::Reached { connection, stage: Stage::Authenticate });
        fixture.at(206);
        assert!(fixture.notes().is_empty());
        fixture.at(207);
        assert_eq!(fixture.notes(), ["time out c1 while authentication: timeoutMS"]);
        // What was judged stays so.
        ask(&mut fixture, Stage::Authenticate);
        fixture.at(300);
        assert!(fixture.notes().is_empty());
    }
}

/// The same: what the client works out between two commands takes no time of either.
#[test]
fn keys_may_take_longer_to_derive_than_a_command_of_the_handshake_may() {
    for connect in [None, Some(millis(100))] {
        let mut fixture = populating(connect, Some(millis(30)));
        ask(&mut fixture, Stage::Authenticate);
        fixture.at(20);
        fixture.input(Input::Answered { connection: ConnectionId(1) });
        assert_eq!(fixture.pool.deadline(), connect.map(|connect| fixture.now + connect));
        fixture.at(110);
        assert!(fixture.notes().is_empty());
        ask(&mut fixture, Stage::Authenticate);
        fixture.at(140);
        assert_eq!(fixture.notes(), ["time out c1 while authentication: timeoutMS"]);
        fixture.input(Input::Answered { connection: ConnectionId(1) });
        assert_eq!(fixture.pool.deadline(), None, "what was judged stays so");
    }
}

/// Authentication, "OIDC Human Callback": "The timeout duration MUST be 5 minutes. [...] the
/// callback is not subject to CSOT."
#[test]
fn while_a_person_is_asked_no_limit_counts_and_afterwards_the_same_as_before() {
    let asked = Input::PersonAsked { connection: ConnectionId(1) };
    let answered = Input::PersonAnswered { connection: ConnectionId(1) };
    for handshake in [None, Some(millis(30))] {
        let mut fixture = populating(Some(millis(100)), handshake);
        ask(&mut fixture, Stage::Authenticate);
        fixture.input(asked.clone());
        assert_eq!(fixture.pool.deadline(), None);
        fixture.at(300_000);
        assert!(fixture.notes().is_empty());
        fixture.input(answered.clone());
        assert_eq!(fixture.pool.deadline(), Some(fixture.now + millis(100)));
        ask(&mut fixture, Stage::Authenticate);
        let limit = handshake.unwrap_or(millis(100));
        assert_eq!(fixture.pool.deadline(), Some(fixture.now + limit));
    }
    // For an operation, too; and what was judged stays so.
    let mut fixture = Fixture::new(|config| config.connect_timeout = Some(millis(100)));
    fixture.input(Input::Command(Command::Ready));
    fixture.check_out(1);
    fixture.input(asked.clone());
    fixture.at(5_000);
    fixture.input(answered.clone());
    fixture.notes();
    fixture.at(5_100);
    assert_eq!(fixture.notes(), ["time out c1 while connecting: connectTimeoutMS"]);
    fixture.input(asked);
    fixture.input(answered);
    assert_eq!(fixture.pool.deadline(), None);
    // Without connectTimeoutMS there is none before and none afterwards.
    let mut fixture = populating(None, None);
    fixture.input(Input::PersonAsked { connection: ConnectionId(1) });
    fixture.input(Input::PersonAnswered { connection: ConnectionId(1) });
    assert_eq!(fixture.pool.deadline(), None);
}

/// "Background Connection Pooling": until hello is sent, and for an operation, connectTimeoutMS counts; and so it does
/// for ever where timeoutMS is no limit.
#[test]
fn the_time_of_an_operation_limits_neither_the_stream_nor_what_an_operation_waits_for() {
    let mut silent = populating(Some(millis(100)), Some(millis(30)));
    silent.at(100);
    assert_eq!(silent.notes(), ["time out c1 while connecting: connectTimeoutMS"]);
    let mut unlimited = populating(Some(millis(100)), Some(Duration::ZERO));
    let mut of_operation = Fixture::new(|config| {
        (config.connect_timeout, config.handshake_timeout) = (Some(millis(100)), Some(millis(30)));
    });
    of_operation.input(Input::Command(Command::Ready));
    of_operation.check_out(1);
    for fixture in [&mut unlimited, &mut of_operation] {
        ask(fixture, Stage::Hello);
        fixture.at(90);
        ask(fixture, Stage::Authenticate);
        fixture.notes();
        fixture.at(100);
        assert_eq!(fixture.notes(), ["time out c1 while authentication: connectTimeoutMS"]);
    }
}

/// A client that reads the answer late, while that is not judged yet, asks with the whole time.
#[test]
fn an_answer_of_a_handshake_that_is_heard_late_and_in_part_renews_the_time_of_its_command() {
    let mut fixture = populating(Some(millis(100)), Some(millis(30)));
    ask(&mut fixture, Stage::Hello);
    fixture.now = fixture.now + millis(5_000);
    let (mut out, connection) = (Vec::new(), ConnectionId(1));
    let in_time = Time::before(fixture.pool.deadline(), fixture.now);
    fixture.pool.handle(in_time, Input::Reached { connection, stage: Stage::Hello }, &mut out);
    assert!(out.is_empty(), "{out:?}");
    assert_eq!(fixture.pool.deadline(), Some(fixture.now + millis(30)));
}

/// "Timeout aggressively": at once, whatever the connection that is being established.
#[test]
fn an_operation_gives_up_at_its_deadline_or_after_wait_queue_timeout() {
    let mut fixture = Fixture::lending(1, |options| {
        options.max_pool_size = 2;
        options.wait_queue_timeout = Some(millis(80));
    });
    fixture.check_out(1);
    let deadline = Some(super::Instant::from_millis(30));
    fixture.input(Input::CheckOut { waiter: WaiterId(2), deadline });
    fixture.input(Input::Reached { connection: ConnectionId(2), stage: Stage::Hello });
    fixture.notes();
    fixture.at(30);
    assert_eq!(fixture.notes(), ["failed after 30 ms: timeout", "refuse 2"]);
    fixture.at(80);
    assert_eq!(fixture.notes(), ["failed after 80 ms: timeout", "refuse 1"]);
    let obstacles: Vec<Obstacle> = fixture
        .errors
        .iter()
        .map(|error| match error {
            CheckOutError::Timeout { obstacle, .. } => obstacle.clone(),
            other => panic!("{other:?}"),
        })
        .collect();
    let stages = [(Stage::Hello, millis(80))].into();
    let expected =
        [Obstacle::Queued { behind: 1, in_use: 1, pending: 1 }, Obstacle::Establishing { stages }];
    assert_eq!(obstacles, expected);
    fixture.establish(2);
    assert_eq!(fixture.counts(), [1, 0, 1, 0], "a slow connection is not lost");
}

/// CSOT-U: timeoutMS overrides waitQueueTimeoutMS.
#[test]
fn a_deadline_overrides_wait_queue_timeout() {
    let mut fixture = Fixture::lending(1, |options| {
        options.max_pool_size = 1;
        options.wait_queue_timeout = Some(millis(30));
    });
    let deadline = Some(super::Instant::from_millis(80));
    fixture.input(Input::CheckOut { waiter: WaiterId(1), deadline });
    fixture.notes();
    fixture.at(79);
    assert_eq!(fixture.notes(), [""; 0]);
    fixture.at(80);
    assert_eq!(fixture.notes(), ["failed after 80 ms: timeout", "refuse 1"]);
}

#[test]
fn an_operation_whose_deadline_has_passed_takes_what_is_there_or_nothing() {
    let mut fixture = Fixture::lending(1, |_| {});
    fixture.check_in(1);
    fixture.notes();
    let deadline = Some(fixture.now);
    fixture.input(Input::CheckOut { waiter: WaiterId(1), deadline });
    assert_eq!(fixture.notes(), ["started", "c1 checked out after 0 ms", "deliver c1 to 1"]);
    fixture.input(Input::CheckOut { waiter: WaiterId(2), deadline });
    assert_eq!(fixture.notes(), ["started", "failed after 0 ms: timeout", "refuse 2"]);
}

#[test]
fn a_connection_that_nobody_awaits_is_disposed_of() {
    let mut fixture = Fixture::ready(|_| {});
    fixture.establish(7);
    assert_eq!(fixture.notes(), ["dispose c7"]);
    fixture.fail(7);
    assert_eq!((fixture.notes().len(), fixture.counts()), (0, [0; 4]));
}
