//! Clearing a pool, and closing it.

use std::time::Duration;

use super::{Command, Fixture, Input, Instant, broken, millis};
use crate::machine::Machine;
use crate::pool::CheckOutError;

/// "Clearing a non-load balanced pool": paused, the queue is emptied eagerly, available
/// connections are closed.
#[test]
fn a_clear_pauses_closes_what_is_available_and_turns_away_all_who_wait() {
    let mut fixture = Fixture::lending(2, |options| options.max_pool_size = 2);
    fixture.check_out(1);
    fixture.at(7);
    fixture.check_out(2);
    fixture.notes();
    fixture.at(9);
    fixture.clear(false);
    let expected = [
        "pool cleared",
        "failed after 9 ms: connectionError",
        "refuse 1",
        "failed after 2 ms: connectionError",
        "refuse 2",
    ];
    assert_eq!(
        (fixture.notes(), fixture.counts()),
        (expected.map(String::from).into(), [0, 0, 2, 0])
    );
}

#[test]
fn options_may_be_the_least_and_the_most_that_there_is() {
    let most = Duration::MAX;
    for (idle, wait) in [(Duration::ZERO, None), (most, Some(most)), (most, None)] {
        for (connecting, min, max) in [(1, 0, 1), (u32::MAX, 2, u32::MAX), (u32::MAX, 0, 0)] {
            let mut fixture = Fixture::new(|config| {
                config.connect_timeout = wait;
                config.options.max_idle_time = idle;
                config.options.wait_queue_timeout = wait;
                config.options.max_connecting = connecting;
                (config.options.min_pool_size, config.options.max_pool_size) = (min, max);
            });
            fixture.input(Input::Command(Command::Ready));
            fixture.check_out(1);
            fixture.establish(1);
            fixture.check_in(1);
            fixture.at(1_000_000_000);
            assert_eq!(fixture.counts()[0], 1, "it is idle, and stays");
        }
    }
}

#[test]
fn what_a_clear_does_comes_in_this_order() {
    let mut fixture = Fixture::lending(2, |options| options.max_pool_size = 2);
    fixture.check_in(1);
    fixture.notes();
    fixture.clear(false);
    assert_eq!(fixture.notes(), ["pool cleared", "c1 closed: Stale", "dispose c1"]);
    fixture.input(Input::Command(Command::Ready));
    fixture.check_out(1);
    fixture.check_out(2);
    fixture.notes();
    fixture.clear(true);
    let expected = [
        "pool cleared",
        "abort c3",
        "c3 closed: Stale",
        "interrupt c2",
        "failed after 0 ms: connectionError",
        "refuse 1",
        "failed after 0 ms: connectionError",
        "refuse 2",
    ];
    assert_eq!(fixture.notes(), expected);
    assert!(matches!(fixture.errors[..], [CheckOutError::PoolCleared { .. }, _]));
}

/// "If the pool is already "paused" when it is cleared, then the pool MUST NOT emit a PoolCleared
/// event"; the generation begins all the same.
#[test]
fn a_paused_pool_is_cleared_silently() {
    let mut fixture = Fixture::new(|_| {});
    fixture.clear(false);
    fixture.clear(false);
    assert_eq!((fixture.notes().len(), fixture.pool.get().generation(None).number()), (0, 2));
    fixture.input(Input::Command(Command::Ready));
    fixture.input(Input::Command(Command::Ready));
    assert_eq!(fixture.notes(), ["pool ready"]);
    fixture.clear(false);
    fixture.generation -= 1;
    fixture.clear(false);
    assert_eq!(fixture.notes(), ["pool cleared"], "a clear that is reported twice is one");
}

/// "If the pool is "closed" or "paused", any attempt to check out a Connection MUST throw".
#[test]
fn a_pool_that_is_not_ready_says_why() {
    let mut fixture = Fixture::new(|_| {});
    fixture.check_out(1);
    fixture.input(Input::Command(Command::Ready));
    fixture.clear(false);
    fixture.at(40);
    fixture.check_out(2);
    fixture.input(Input::Close);
    fixture.notes();
    fixture.check_out(3);
    assert_eq!(fixture.notes(), ["started", "failed after 0 ms: poolClosed", "refuse 3"]);
    assert!(matches!(fixture.errors[0], CheckOutError::NotReady { .. }));
    let CheckOutError::PoolCleared { paused, .. } = fixture.errors[1] else {
        panic!("{:?}", fixture.errors[1]);
    };
    assert_eq!(paused, millis(40));
    assert!(matches!(fixture.errors[2], CheckOutError::PoolClosed { .. }));
}

/// "lazily closes them as they are checkedIn"
#[test]
fn stale_connections_are_closed_when_they_are_returned() {
    let mut fixture = Fixture::lending(1, |_| {});
    fixture.clear(false);
    fixture.input(Input::Command(Command::Ready));
    let check_out = fixture.check_out_of(1);
    assert_eq!(fixture.pool.get_mut().try_check_in(Instant::ZERO, check_out, 1), Err(1));
    fixture.notes();
    fixture.check_in(1);
    assert_eq!(fixture.notes(), ["c1 checked in", "c1 closed: Stale", "dispose c1"]);
}

/// "MUST only interrupt in-use Connections whose generation is less than or equal", also when an
/// earlier clear did not; and once is enough.
#[test]
fn a_connection_in_use_is_interrupted_once_and_closed_when_it_is_returned() {
    let mut fixture = Fixture::lending(1, |_| {});
    fixture.clear(false);
    fixture.notes();
    fixture.clear(true);
    assert_eq!(fixture.notes(), ["interrupt c1"]);
    fixture.clear(true);
    assert_eq!((fixture.notes().len(), fixture.counts()), (0, [0, 0, 1, 0]));
    let check_out = fixture.check_out_of(1);
    fixture.input(Input::CheckIn { check_out, outcome: broken() });
    assert_eq!(fixture.notes(), ["c1 checked in", "c1 closed: Stale"]);
}

/// A connection begun before a clear is of no use after it, and does not serve later operations.
#[test]
fn a_connection_that_was_begun_before_a_clear_is_never_handed_out() {
    let mut fixture = Fixture::ready(|options| options.max_connecting = 2);
    fixture.check_out(1);
    fixture.clear(false);
    fixture.input(Input::Command(Command::Ready));
    fixture.notes();
    fixture.check_out(2);
    assert_eq!(fixture.notes(), ["started", "c2 created", "establish c2 of generation 1"]);
    fixture.establish(1);
    assert_eq!(fixture.notes(), ["c1 closed: Stale", "dispose c1"]);
    fixture.establish(2);
    assert_eq!(fixture.checked_out.last().unwrap().1, 2);
}

/// "it MUST first close all available Connections"; PoolClosed follows.
#[test]
fn closing_ends_everything_but_loans() {
    let mut fixture = Fixture::lending(2, |options| options.max_pool_size = 3);
    fixture.check_out(1);
    fixture.check_in(2);
    fixture.check_in(1);
    fixture.notes();
    fixture.input(Input::Close);
    let expected =
        ["c1 closed: PoolClosed", "dispose c1", "abort c3", "c3 closed: PoolClosed", "pool closed"];
    assert_eq!(
        (fixture.notes(), fixture.counts()),
        (expected.map(String::from).into(), [0, 0, 1, 0])
    );
    fixture.check_in(2);
    assert_eq!(fixture.notes(), ["c2 checked in", "c2 closed: PoolClosed", "dispose c2"]);
    for input in [Input::Command(Command::Ready), Input::Close] {
        fixture.input(input);
    }
    fixture.clear(true);
    assert_eq!((fixture.notes().len(), fixture.pool.deadline()), (0, None), "closed for good");
}

#[test]
fn whoever_waits_when_the_pool_closes_is_told_before_it_has_closed() {
    let mut fixture = Fixture::lending(1, |options| options.max_pool_size = 1);
    fixture.check_out(1);
    fixture.notes();
    fixture.input(Input::Close);
    assert_eq!(fixture.notes(), ["failed after 0 ms: poolClosed", "refuse 1", "pool closed"]);
}
