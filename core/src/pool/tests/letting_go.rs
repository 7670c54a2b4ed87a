//! Clearing a pool, and closing it.

use std::time::Duration;

use super::{Command, Input, Instant, Scene, millis};
use crate::machine::Machine;
use crate::pool::CheckOutError;

/// "Clearing a non-load balanced pool": paused, the queue is emptied eagerly, available
/// connections are closed.
#[test]
fn a_clear_pauses_closes_what_is_available_and_turns_away_all_who_wait() {
    let mut scene = Scene::lending(2, |options| options.max_pool_size = 2);
    scene.check_out(1);
    scene.at(7);
    scene.check_out(2);
    scene.notes();
    scene.at(9);
    scene.clear(false);
    let expected = [
        "pool cleared",
        "failed after 9 ms: connectionError",
        "refuse 1",
        "failed after 2 ms: connectionError",
        "refuse 2",
    ];
    assert_eq!((scene.notes(), scene.counts()), (expected.map(String::from).into(), [0, 0, 2, 0]));
}

#[test]
fn options_may_be_the_least_and_the_most_that_there_is() {
    let most = Duration::MAX;
    for (idle, wait) in [(Duration::ZERO, None), (most, Some(most)), (most, None)] {
        for (connecting, min, max) in [(1, 0, 1), (u32::MAX, 2, u32::MAX), (u32::MAX, 0, 0)] {
            let mut scene = Scene::new(|config| {
                config.connect_timeout = wait;
                config.options.max_idle_time = idle;
                config.options.wait_queue_timeout = wait;
                config.options.max_connecting = connecting;
                (config.options.min_pool_size, config.options.max_pool_size) = (min, max);
            });
            scene.tell(Input::Command(Command::Ready));
            scene.check_out(1);
            scene.establish(1);
            scene.check_in(1);
            scene.at(1_000_000_000);
            assert_eq!(scene.counts()[0], 1, "it is idle, and stays");
        }
    }
}

#[test]
fn what_a_clear_does_comes_in_this_order() {
    let mut scene = Scene::lending(2, |options| options.max_pool_size = 2);
    scene.check_in(1);
    scene.notes();
    scene.clear(false);
    assert_eq!(scene.notes(), ["pool cleared", "c1 closed: Stale", "dispose c1"]);
    scene.tell(Input::Command(Command::Ready));
    scene.check_out(1);
    scene.check_out(2);
    scene.notes();
    scene.clear(true);
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
    assert_eq!(scene.notes(), expected);
    assert!(matches!(scene.errors[..], [CheckOutError::PoolCleared { .. }, _]));
}

/// "If the pool is already "paused" when it is cleared, then the pool MUST NOT emit a PoolCleared
/// event"; the generation begins all the same.
#[test]
fn a_paused_pool_is_cleared_silently() {
    let mut scene = Scene::new(|_| {});
    scene.clear(false);
    scene.clear(false);
    assert_eq!((scene.notes().len(), scene.pool.get().generation(None).number()), (0, 2));
    scene.tell(Input::Command(Command::Ready));
    scene.tell(Input::Command(Command::Ready));
    assert_eq!(scene.notes(), ["pool ready"]);
    scene.clear(false);
    scene.generation -= 1;
    scene.clear(false);
    assert_eq!(scene.notes(), ["pool cleared"], "a clear that is told twice is one");
}

/// "If the pool is "closed" or "paused", any attempt to check out a Connection MUST throw".
#[test]
fn a_pool_that_is_not_ready_says_why() {
    let mut scene = Scene::new(|_| {});
    scene.check_out(1);
    scene.tell(Input::Command(Command::Ready));
    scene.clear(false);
    scene.at(40);
    scene.check_out(2);
    scene.tell(Input::Close);
    scene.notes();
    scene.check_out(3);
    assert_eq!(scene.notes(), ["started", "failed after 0 ms: poolClosed", "refuse 3"]);
    assert!(matches!(scene.errors[0], CheckOutError::NotReady { .. }));
    let CheckOutError::PoolCleared { paused, .. } = scene.errors[1] else {
        panic!("{:?}", scene.errors[1]);
    };
    assert_eq!(paused, millis(40));
    assert!(matches!(scene.errors[2], CheckOutError::PoolClosed { .. }));
}

/// "lazily closes them as they are checkedIn"
#[test]
fn stale_connections_are_closed_when_they_are_returned() {
    let mut scene = Scene::lending(1, |_| {});
    scene.clear(false);
    scene.tell(Input::Command(Command::Ready));
    let lease = scene.lease(1);
    assert_eq!(scene.pool.get_mut().try_check_in(Instant::ZERO, lease, 1), Err(1));
    scene.notes();
    scene.check_in(1);
    assert_eq!(scene.notes(), ["c1 checked in", "c1 closed: Stale", "dispose c1"]);
}

/// "MUST only interrupt in-use Connections whose generation is less than or equal", also when an
/// earlier clear did not; and once is enough.
#[test]
fn a_connection_in_use_is_interrupted_once_and_closed_when_it_is_returned() {
    let mut scene = Scene::lending(1, |_| {});
    scene.clear(false);
    scene.notes();
    scene.clear(true);
    assert_eq!(scene.notes(), ["interrupt c1"]);
    scene.clear(true);
    assert_eq!((scene.notes().len(), scene.counts()), (0, [0, 0, 1, 0]));
    let lease = scene.lease(1);
    scene.tell(Input::CheckIn { lease, connection: None });
    assert_eq!(scene.notes(), ["c1 checked in", "c1 closed: Stale"]);
}

/// What was begun before a clear is of no use after it, and of no help to who came after it.
#[test]
fn a_connection_that_was_begun_before_a_clear_is_never_handed_out() {
    let mut scene = Scene::ready(|options| options.max_connecting = 2);
    scene.check_out(1);
    scene.clear(false);
    scene.tell(Input::Command(Command::Ready));
    scene.notes();
    scene.check_out(2);
    assert_eq!(scene.notes(), ["started", "c2 created", "establish c2 of generation 1"]);
    scene.establish(1);
    assert_eq!(scene.notes(), ["c1 closed: Stale", "dispose c1"]);
    scene.establish(2);
    assert_eq!(scene.lent.last().unwrap().1, 2);
}

/// "it MUST first close all available Connections"; PoolClosed follows.
#[test]
fn closing_ends_everything_but_loans() {
    let mut scene = Scene::lending(2, |options| options.max_pool_size = 3);
    scene.check_out(1);
    scene.check_in(2);
    scene.check_in(1);
    scene.notes();
    scene.tell(Input::Close);
    let expected =
        ["c1 closed: PoolClosed", "dispose c1", "abort c3", "c3 closed: PoolClosed", "pool closed"];
    assert_eq!((scene.notes(), scene.counts()), (expected.map(String::from).into(), [0, 0, 1, 0]));
    scene.check_in(2);
    assert_eq!(scene.notes(), ["c2 checked in", "c2 closed: PoolClosed", "dispose c2"]);
    for input in [Input::Command(Command::Ready), Input::Close] {
        scene.tell(input);
    }
    scene.clear(true);
    assert_eq!((scene.notes().len(), scene.pool.deadline()), (0, None), "closed for good");
}

#[test]
fn whoever_waits_when_the_pool_closes_is_told_before_it_has_closed() {
    let mut scene = Scene::lending(1, |options| options.max_pool_size = 1);
    scene.check_out(1);
    scene.notes();
    scene.tell(Input::Close);
    assert_eq!(scene.notes(), ["failed after 0 ms: poolClosed", "refuse 1", "pool closed"]);
}
