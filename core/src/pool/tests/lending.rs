//! Checking out, the queue, and checking in.

use super::{CheckOut, Fixture, Input, Instant, broken, millis};
use crate::id::{ConnectionId, WaiterId};
use crate::machine::Machine;
use crate::time::Time;

/// "Checking Out a Connection": created, established, marked as in use, returned.
#[test]
fn the_first_check_out_establishes_a_connection() {
    let mut fixture = Fixture::ready(|_| {});
    fixture.at(10);
    fixture.check_out(1);
    assert_eq!(fixture.notes(), ["started", "c1 created", "establish c1 of generation 0"]);
    assert_eq!(fixture.counts(), [0, 1, 0, 1]);
    fixture.at(25);
    fixture.establish(1);
    assert_eq!(fixture.notes(), ["c1 ready", "c1 checked out after 15 ms", "deliver c1 to 1"]);
    assert_eq!(fixture.counts(), [0, 0, 1, 0]);
}

/// "Checking In a Connection" marks it as available; the next check-out takes it.
#[test]
fn a_returned_connection_is_used_again() {
    let mut fixture = Fixture::lending(1, |_| {});
    fixture.check_in(1);
    assert_eq!((fixture.notes(), fixture.counts()), (vec!["c1 checked in".into()], [1, 0, 0, 0]));
    fixture.check_out(2);
    assert_eq!(fixture.notes(), ["started", "c1 checked out after 0 ms", "deliver c1 to 2"]);
}

/// The one that was returned last is the warmest, and the others may become idle.
#[test]
fn the_connection_that_was_returned_last_goes_first() {
    let mut fixture = Fixture::lending(3, |_| {});
    for connection in [2, 3, 1] {
        fixture.check_in(connection);
    }
    for waiter in 1..=3 {
        fixture.check_out(waiter);
    }
    let order: Vec<u64> =
        fixture.checked_out[3..].iter().map(|(_, connection)| *connection).collect();
    assert_eq!(order, [1, 3, 2]);
}

/// "Ordered/Fair": the operation that came first is served first, whatever becomes available.
#[test]
fn those_who_wait_are_served_in_the_order_in_which_they_came() {
    let mut fixture = Fixture::lending(1, |options| options.max_pool_size = 3);
    for waiter in 1..=4 {
        fixture.check_out(waiter);
    }
    fixture.notes();
    // The second one's connection goes to the first, one that is returned to the second.
    fixture.establish(3);
    fixture.check_in(1);
    fixture.establish(2);
    let mut notes = fixture.notes();
    notes.retain(|note| note.starts_with("deliver"));
    assert_eq!(notes, ["deliver c3 to 1", "deliver c1 to 2", "deliver c2 to 3"]);
    assert_eq!(fixture.counts(), [0, 0, 3, 1]);
}

/// "Capped": never more connections than maxPoolSize, pending ones included.
#[test]
fn a_capped_pool_lets_those_beyond_wait() {
    let mut fixture = Fixture::lending(2, |options| options.max_pool_size = 2);
    fixture.check_out(1);
    assert_eq!((fixture.notes(), fixture.counts()), (vec!["started".into()], [0, 0, 2, 1]));
    fixture.input(Input::CheckIn { check_out: fixture.check_out_of(2), outcome: broken() });
    let expected =
        ["c2 checked in", "c2 closed: Error", "c3 created", "establish c3 of generation 0"];
    assert_eq!(fixture.notes(), expected);
}

#[test]
fn a_pool_without_a_cap_has_none() {
    let fixture = Fixture::lending(250, |options| options.max_pool_size = 0);
    assert_eq!(fixture.counts(), [0, 0, 250, 0]);
}

/// "Monotonically Increasing ID"; and a number of a slot says nothing of its next owner.
#[test]
fn a_lease_that_has_ended_is_dead_also_when_its_slot_is_used_again() {
    let mut fixture = Fixture::lending(1, |_| {});
    let dead = fixture.check_out_of(1);
    fixture.input(Input::CheckIn { check_out: dead, outcome: broken() });
    fixture.check_out(2);
    fixture.establish(2);
    assert_eq!(fixture.check_out_of(2).slot, dead.slot);
    fixture.notes();
    fixture.input(Input::CheckIn { check_out: dead, outcome: Ok(1) });
    assert_eq!((fixture.notes(), fixture.counts()), (vec!["dispose c1".into()], [0, 0, 1, 0]));
    assert_eq!(fixture.pool.get_mut().try_check_in(Instant::ZERO, dead, 1), Err(1));
    fixture.check_in(2);
    fixture.check_in(2);
    assert_eq!(fixture.notes(), ["c2 checked in", "dispose c2"]);
    let earlier = fixture.check_out_of(2);
    fixture.check_out(3);
    fixture.notes();
    fixture.input(Input::CheckIn { check_out: earlier, outcome: Ok(2) });
    assert_eq!((fixture.notes(), fixture.counts()), (vec!["dispose c2".into()], [0, 0, 1, 0]));
    fixture.check_in(2);
    fixture.notes();
    let unknown = CheckOut { connection: ConnectionId(7), slot: 99, ..dead };
    fixture.input(Input::CheckIn { check_out: unknown, outcome: broken() });
    assert_eq!((fixture.notes().len(), fixture.counts()), (0, [1, 0, 0, 0]));
}

/// A waiter that gives up does not cost its connection: it becomes available.
#[test]
fn the_connection_of_an_operation_that_has_stopped_waiting_becomes_available() {
    let mut fixture = Fixture::ready(|_| {});
    fixture.check_out(1);
    fixture.notes();
    fixture.now = Instant::from_millis(7);
    fixture.input(Input::Abandon { waiter: WaiterId(1) });
    assert_eq!(fixture.notes(), ["failed after 7 ms: timeout"]);
    fixture.input(Input::Abandon { waiter: WaiterId(9) });
    fixture.input(Input::Abandon { waiter: WaiterId(1) });
    assert!(fixture.notes().is_empty());
    fixture.establish(1);
    assert_eq!(fixture.counts(), [1, 0, 0, 0]);
}

#[test]
fn ten_thousand_wait_leave_and_give_up_and_the_others_are_served() {
    let mut fixture = Fixture::lending(1, |options| options.max_pool_size = 1);
    for waiter in 1..=10_000 {
        let deadline = (waiter % 3 == 0).then(|| Instant::from_millis(10));
        fixture.input(Input::CheckOut { waiter: WaiterId(waiter), deadline });
    }
    for waiter in (1..=10_000).rev().filter(|waiter| waiter % 3 == 1) {
        fixture.input(Input::Abandon { waiter: WaiterId(waiter) });
    }
    fixture.at(10);
    assert_eq!((fixture.errors.len(), fixture.counts()[3]), (3333, 3333));
    fixture.notes();
    for waiter in (1..=10_000).filter(|waiter| waiter % 3 == 2) {
        fixture.check_in(1);
        assert_eq!(fixture.notes().pop(), Some(format!("deliver c1 to {waiter}")));
    }
    assert_eq!(fixture.counts(), [0, 0, 1, 0]);
}

#[test]
fn an_operation_that_asks_twice_waits_once() {
    let mut fixture = Fixture::ready(|_| {});
    fixture.check_out(1);
    fixture.notes();
    fixture.check_out(1);
    assert_eq!((fixture.notes().len(), fixture.counts()), (0, [0, 1, 0, 1]));
}

/// "Idle": available for longer than maxIdleTimeMS; the oldest go first.
#[test]
fn idle_connections_are_closed_in_the_background() {
    let mut fixture = Fixture::lending(2, |options| options.max_idle_time = millis(100));
    fixture.at(10);
    fixture.check_in(2);
    fixture.at(50);
    fixture.check_in(1);
    fixture.notes();
    fixture.at(109);
    assert_eq!(fixture.notes().len(), 0);
    fixture.at(110);
    assert_eq!(fixture.notes(), ["c2 closed: Idle", "dispose c2"]);
    fixture.at(200);
    assert_eq!(fixture.notes(), ["c1 closed: Idle", "dispose c1"]);
}

/// "If a perished Connection is encountered, such a Connection MUST be closed", by whichever path.
#[test]
fn idle_connections_are_not_handed_out_when_the_alarm_is_late() {
    let mut fixture = Fixture::lending(1, |options| options.max_idle_time = millis(100));
    fixture.check_in(1);
    fixture.notes();
    fixture.now = Instant::from_millis(100);
    let pool = fixture.pool.get_mut();
    assert!(pool.needs_time() && pool.try_check_out(fixture.now).is_none());
    fixture.check_out(2);
    let expected =
        ["c1 closed: Idle", "dispose c1", "started", "c2 created", "establish c2 of generation 0"];
    assert_eq!(fixture.notes(), expected);
}

/// An alarm is due between two operations, and rings late, as in the single-threaded mode.
#[test]
fn idle_connections_are_not_handed_out_before_the_alarm_was_heard() {
    let mut fixture = Fixture::lending(1, |options| options.max_idle_time = millis(100));
    fixture.check_in(1);
    fixture.notes();
    fixture.now = Instant::from_millis(3000);
    let (mut out, in_time) = (Vec::new(), Time::before(fixture.pool.deadline(), fixture.now));
    let check_out = Input::CheckOut { waiter: WaiterId(2), deadline: None };
    fixture.pool.handle(in_time, check_out, &mut out);
    fixture.note(out);
    let expected =
        ["started", "c1 closed: Idle", "dispose c1", "c2 created", "establish c2 of generation 0"];
    assert_eq!(fixture.notes(), expected);
}

#[test]
fn the_hot_path_lends_and_keeps_without_allocating() {
    let mut fixture = Fixture::lending(5, |options| options.max_idle_time = millis(100));
    let check_outs: Vec<CheckOut> =
        (1..=5).map(|connection| fixture.check_out_of(connection)).collect();
    let (now, pool) = (fixture.now, fixture.pool.get_mut());
    let info = allocation_counter::measure(|| {
        for (check_out, connection) in check_outs.iter().zip(1..) {
            assert_eq!(pool.try_check_in(now, *check_out, connection), Ok(()));
        }
        for connection in (1..=5).rev() {
            let (check_out, checked_out) = pool.try_check_out(now).unwrap();
            assert_eq!((check_out.connection.0, checked_out), (connection, connection));
        }
    });
    assert_eq!(info.count_total, 0);
    assert_eq!(fixture.counts(), [0, 0, 5, 0]);
}

/// "The Pool MUST NOT service any newer checkOut requests before fulfilling the original one".
#[test]
fn the_hot_path_overtakes_nobody() {
    let mut fixture = Fixture::lending(1, |options| options.max_pool_size = 1);
    fixture.check_out(1);
    let check_out = fixture.check_out_of(1);
    let pool = fixture.pool.get_mut();
    assert_eq!(pool.try_check_in(Instant::ZERO, check_out, 1), Err(1), "somebody waits for it");
    fixture.notes();
    fixture.check_in(1);
    assert_eq!(fixture.notes(), ["c1 checked in", "c1 checked out after 0 ms", "deliver c1 to 1"]);
    assert!(fixture.pool.get_mut().try_check_out(Instant::ZERO).is_none());
}
