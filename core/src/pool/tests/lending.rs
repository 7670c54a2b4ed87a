//! Checking out, the queue, and checking in.

use super::{Input, Instant, Lease, Scene, millis};
use crate::id::{ConnectionId, WaiterId};
use crate::machine::Machine;
use crate::time::Time;

/// "Checking Out a Connection": created, established, marked as in use, returned.
#[test]
fn the_first_check_out_establishes_a_connection() {
    let mut scene = Scene::ready(|_| {});
    scene.at(10);
    scene.check_out(1);
    assert_eq!(scene.notes(), ["started", "c1 created", "establish c1 of generation 0"]);
    assert_eq!(scene.counts(), [0, 1, 0, 1]);
    scene.at(25);
    scene.establish(1);
    assert_eq!(scene.notes(), ["c1 ready", "c1 checked out after 15 ms", "deliver c1 to 1"]);
    assert_eq!(scene.counts(), [0, 0, 1, 0]);
}

/// "Checking In a Connection" marks it as available; the next check-out takes it.
#[test]
fn a_returned_connection_is_used_again() {
    let mut scene = Scene::lending(1, |_| {});
    scene.check_in(1);
    assert_eq!((scene.notes(), scene.counts()), (vec!["c1 checked in".into()], [1, 0, 0, 0]));
    scene.check_out(2);
    assert_eq!(scene.notes(), ["started", "c1 checked out after 0 ms", "deliver c1 to 2"]);
}

/// The one that was returned last is the warmest, and the others may become idle.
#[test]
fn the_connection_that_was_returned_last_goes_first() {
    let mut scene = Scene::lending(3, |_| {});
    for connection in [2, 3, 1] {
        scene.check_in(connection);
    }
    for waiter in 1..=3 {
        scene.check_out(waiter);
    }
    let order: Vec<u64> = scene.lent[3..].iter().map(|(_, connection)| *connection).collect();
    assert_eq!(order, [1, 3, 2]);
}

/// "Ordered/Fair": whoever came first is served first, whatever becomes available.
#[test]
fn those_who_wait_are_served_in_the_order_in_which_they_came() {
    let mut scene = Scene::lending(1, |options| options.max_pool_size = 3);
    for waiter in 1..=4 {
        scene.check_out(waiter);
    }
    scene.notes();
    // The second one's connection goes to the first, one that is returned to the second.
    scene.establish(3);
    scene.check_in(1);
    scene.establish(2);
    let mut notes = scene.notes();
    notes.retain(|note| note.starts_with("deliver"));
    assert_eq!(notes, ["deliver c3 to 1", "deliver c1 to 2", "deliver c2 to 3"]);
    assert_eq!(scene.counts(), [0, 0, 3, 1]);
}

/// "Capped": never more connections than maxPoolSize, pending ones included.
#[test]
fn a_capped_pool_lets_those_beyond_wait() {
    let mut scene = Scene::lending(2, |options| options.max_pool_size = 2);
    scene.check_out(1);
    assert_eq!((scene.notes(), scene.counts()), (vec!["started".into()], [0, 0, 2, 1]));
    scene.tell(Input::CheckIn { lease: scene.lease(2), connection: None });
    let expected =
        ["c2 checked in", "c2 closed: Error", "c3 created", "establish c3 of generation 0"];
    assert_eq!(scene.notes(), expected);
}

#[test]
fn a_pool_without_a_cap_has_none() {
    let scene = Scene::lending(250, |options| options.max_pool_size = 0);
    assert_eq!(scene.counts(), [0, 0, 250, 0]);
}

/// "Monotonically Increasing ID"; and a number of a slot says nothing of its next owner.
#[test]
fn a_lease_that_has_ended_is_dead_also_when_its_slot_is_used_again() {
    let mut scene = Scene::lending(1, |_| {});
    let dead = scene.lease(1);
    scene.tell(Input::CheckIn { lease: dead, connection: None });
    scene.check_out(2);
    scene.establish(2);
    assert_eq!(scene.lease(2).slot, dead.slot);
    scene.notes();
    scene.tell(Input::CheckIn { lease: dead, connection: Some(1) });
    assert_eq!((scene.notes(), scene.counts()), (vec!["dispose c1".into()], [0, 0, 1, 0]));
    assert_eq!(scene.pool.get_mut().try_check_in(Instant::ZERO, dead, 1), Err(1));
    scene.check_in(2);
    scene.check_in(2);
    assert_eq!(scene.notes(), ["c2 checked in", "dispose c2"]);
    let earlier = scene.lease(2);
    scene.check_out(3);
    scene.notes();
    scene.tell(Input::CheckIn { lease: earlier, connection: Some(2) });
    assert_eq!((scene.notes(), scene.counts()), (vec!["dispose c2".into()], [0, 0, 1, 0]));
    scene.check_in(2);
    scene.notes();
    let unknown = Lease { connection: ConnectionId(7), slot: 99, ..dead };
    scene.tell(Input::CheckIn { lease: unknown, connection: None });
    assert_eq!((scene.notes().len(), scene.counts()), (0, [1, 0, 0, 0]));
}

/// A waiter that gives up costs nobody its connection: it becomes available.
#[test]
fn the_connection_of_an_operation_that_has_stopped_waiting_becomes_available() {
    let mut scene = Scene::ready(|_| {});
    scene.check_out(1);
    scene.tell(Input::Abandon { waiter: WaiterId(1) });
    scene.tell(Input::Abandon { waiter: WaiterId(9) });
    scene.establish(1);
    assert_eq!(scene.counts(), [1, 0, 0, 0]);
}

#[test]
fn ten_thousand_wait_leave_and_give_up_and_the_others_are_served() {
    let mut scene = Scene::lending(1, |options| options.max_pool_size = 1);
    for waiter in 1..=10_000 {
        let deadline = (waiter % 3 == 0).then(|| Instant::from_millis(10));
        scene.tell(Input::CheckOut { waiter: WaiterId(waiter), deadline });
    }
    for waiter in (1..=10_000).rev().filter(|waiter| waiter % 3 == 1) {
        scene.tell(Input::Abandon { waiter: WaiterId(waiter) });
    }
    scene.at(10);
    assert_eq!((scene.errors.len(), scene.counts()[3]), (3333, 3333));
    scene.notes();
    for waiter in (1..=10_000).filter(|waiter| waiter % 3 == 2) {
        scene.check_in(1);
        assert_eq!(scene.notes().pop(), Some(format!("deliver c1 to {waiter}")));
    }
    assert_eq!(scene.counts(), [0, 0, 1, 0]);
}

#[test]
fn an_operation_that_asks_twice_waits_once() {
    let mut scene = Scene::ready(|_| {});
    scene.check_out(1);
    scene.notes();
    scene.check_out(1);
    assert_eq!((scene.notes().len(), scene.counts()), (0, [0, 1, 0, 1]));
}

/// "Idle": available for longer than maxIdleTimeMS; the oldest go first.
#[test]
fn idle_connections_are_closed_in_the_background() {
    let mut scene = Scene::lending(2, |options| options.max_idle_time = millis(100));
    scene.at(10);
    scene.check_in(2);
    scene.at(50);
    scene.check_in(1);
    scene.notes();
    scene.at(109);
    assert_eq!(scene.notes().len(), 0);
    scene.at(110);
    assert_eq!(scene.notes(), ["c2 closed: Idle", "dispose c2"]);
    scene.at(200);
    assert_eq!(scene.notes(), ["c1 closed: Idle", "dispose c1"]);
}

/// "If a perished Connection is encountered, such a Connection MUST be closed", by whichever path.
#[test]
fn idle_connections_are_not_handed_out_when_the_alarm_is_late() {
    let mut scene = Scene::lending(1, |options| options.max_idle_time = millis(100));
    scene.check_in(1);
    scene.notes();
    scene.now = Instant::from_millis(100);
    let pool = scene.pool.get_mut();
    assert!(pool.tells_time() && pool.try_check_out(scene.now).is_none());
    scene.check_out(2);
    let expected =
        ["c1 closed: Idle", "dispose c1", "started", "c2 created", "establish c2 of generation 0"];
    assert_eq!(scene.notes(), expected);
}

/// Where nobody rings between two operations, in the single-threaded mode.
#[test]
fn idle_connections_are_not_handed_out_before_the_alarm_was_heard() {
    let mut scene = Scene::lending(1, |options| options.max_idle_time = millis(100));
    scene.check_in(1);
    scene.notes();
    scene.now = Instant::from_millis(3000);
    let (mut out, in_time) = (Vec::new(), Time::before(scene.pool.deadline(), scene.now));
    let check_out = Input::CheckOut { waiter: WaiterId(2), deadline: None };
    scene.pool.handle(in_time, check_out, &mut out);
    scene.note(out);
    let expected =
        ["started", "c1 closed: Idle", "dispose c1", "c2 created", "establish c2 of generation 0"];
    assert_eq!(scene.notes(), expected);
}

#[test]
fn the_hot_path_lends_and_keeps_without_allocating() {
    let mut scene = Scene::lending(5, |options| options.max_idle_time = millis(100));
    let leases: Vec<Lease> = (1..=5).map(|connection| scene.lease(connection)).collect();
    let (now, pool) = (scene.now, scene.pool.get_mut());
    let info = allocation_counter::measure(|| {
        for (lease, connection) in leases.iter().zip(1..) {
            assert_eq!(pool.try_check_in(now, *lease, connection), Ok(()));
        }
        for connection in (1..=5).rev() {
            let (lease, lent) = pool.try_check_out(now).unwrap();
            assert_eq!((lease.connection.0, lent), (connection, connection));
        }
    });
    assert_eq!(info.count_total, 0);
    assert_eq!(scene.counts(), [0, 0, 5, 0]);
}

/// "The Pool MUST NOT service any newer checkOut requests before fulfilling the original one".
#[test]
fn the_hot_path_overtakes_nobody() {
    let mut scene = Scene::lending(1, |options| options.max_pool_size = 1);
    scene.check_out(1);
    let lease = scene.lease(1);
    let pool = scene.pool.get_mut();
    assert_eq!(pool.try_check_in(Instant::ZERO, lease, 1), Err(1), "somebody waits for it");
    scene.notes();
    scene.check_in(1);
    assert_eq!(scene.notes(), ["c1 checked in", "c1 checked out after 0 ms", "deliver c1 to 1"]);
    assert!(scene.pool.get_mut().try_check_out(Instant::ZERO).is_none());
}
