//! Pools whose ledgers do not balance: the model receives what a real pool does with something
//! wrong.

use sdam_core::failure::{Cause, Failure, Stage};
use sdam_core::id::Generation;
use sdam_core::machine::Machine;
use sdam_core::pool::{Pool, PoolConfig};

use super::*;

const NOW: Instant = Instant::ZERO;

/// A service behind a load balancer.
const SERVICE: ObjectId = ObjectId::from_bytes([1; 12]);

/// A pool and its model.
struct Kept {
    pool: Pool<()>,
    pool_model: PoolModel,
}

fn options() -> PoolOptions {
    PoolOptions::default().with_max_pool_size(2).with_max_connecting(1)
}

impl Kept {
    /// A pool that is ready.
    fn new(load_balanced: bool) -> Self {
        let pool = Pool::new(
            PoolConfig::new("a:27017".parse().unwrap(), options())
                .with_load_balanced(load_balanced),
        );
        let mut kept = Self { pool, pool_model: PoolModel::new(options()) };
        kept.input(Input::Command(Command::Ready));
        kept
    }

    /// Both get the input, and what the pool does is right.
    fn input(&mut self, input: Input<()>) -> Vec<Action<()>> {
        self.pool_model.input(NOW, &input);
        let mut actions = Vec::new();
        self.pool.handle(NOW.into(), input, &mut actions);
        actions.iter().for_each(|action| self.pool_model.action(NOW, action).unwrap());
        self.pool_model.cleared().unwrap();
        self.pool_model.compare(self.pool.counts()).unwrap();
        actions
    }

    /// An operation asks for a connection; returns the one that is established for it.
    fn ask(&mut self, waiter: u64) -> ConnectionId {
        let input = Input::CheckOut { waiter: WaiterId(waiter), deadline: None };
        let actions = self.input(input);
        let connection = actions.iter().find_map(|action| match action {
            Action::Establish { connection, .. } => Some(*connection),
            _ => None,
        });
        connection.unwrap_or_else(|| self.pool.newest())
    }

    /// An operation gets a new connection, behind a load balancer to a service.
    fn check_out(&mut self, waiter: u64, service: Option<ObjectId>) -> CheckOut {
        let connection = self.ask(waiter);
        let outcome = Ok(Established::new((), service));
        let actions = self.input(Input::Established { connection, outcome });
        let check_out = actions.iter().find_map(|action| match action {
            Action::Deliver { outcome: Ok((check_out, ())), .. } => Some(*check_out),
            _ => None,
        });
        check_out.expect("there is a connection")
    }

    /// An operation has got a connection, and returned it.
    fn returned(&mut self, waiter: u64, service: Option<ObjectId>) -> CheckOut {
        let check_out = self.check_out(waiter, service);
        self.input(Input::CheckIn { check_out, outcome: Ok(()) });
        check_out
    }
}

fn cause() -> Failure {
    Failure::new(Stage::Operate, Cause::Closed, "made up")
}

/// Returns which rule is broken.
fn broken(finding: Finding) -> Option<&'static str> {
    finding.err().map(|(check, _)| check)
}

/// Connection Monitoring and Pooling, "WaitQueue".
#[test]
fn whoever_came_first_is_served_first() {
    let in_turn = Some("first come, first served");
    let mut kept = Kept::new(false);
    let check_out = kept.returned(1, None);
    kept.pool_model.queue.extend([(WaiterId(2), None), (WaiterId(3), None)]);
    let deliver = Action::Deliver { waiter: WaiterId(3), outcome: Ok((check_out, ())) };
    assert_eq!(broken(kept.pool_model.checked_out(NOW, &check_out)), in_turn, "others wait");
    assert_eq!(broken(kept.pool_model.action(NOW, &deliver)), in_turn, "another one was first");
    assert_eq!(
        broken(kept.pool_model.action(NOW, &deliver)),
        None,
        "and now it is this one's turn"
    );
}

#[test]
fn nothing_is_handed_out_from_before_a_clear() {
    let mut kept = Kept::new(false);
    let check_out = kept.returned(1, None);
    let (to, interrupt) = (Generation::new(1), false);
    kept.pool_model
        .input::<()>(NOW, &Input::Command(Command::Clear { to, interrupt, cause: cause() }));
    assert_eq!(
        broken(kept.pool_model.checked_out(NOW, &check_out)),
        Some("first come, first served"),
        "paused"
    );
    kept.pool_model.input::<()>(NOW, &Input::Command(Command::Ready));
    let found = broken(kept.pool_model.checked_out(NOW, &check_out));
    assert_eq!(found, Some("nothing is handed out from before a clear"));
}

#[test]
fn a_connection_is_lent_ended_and_interrupted_once_and_only_if_it_is_there() {
    let arithmetic = Some(ARITHMETIC);
    let mut kept = Kept::new(false);
    let check_out = kept.check_out(1, None);
    let connection = check_out.connection;
    assert_eq!(broken(kept.pool_model.checked_out(NOW, &check_out)), arithmetic, "it is on loan");
    let interrupt = Action::<()>::Interrupt { connection };
    assert_eq!(broken(kept.pool_model.action(NOW, &interrupt)), None);
    assert_eq!(broken(kept.pool_model.action(NOW, &interrupt)), arithmetic, "it was already");
    let abort = Action::<()>::Abort { connection };
    assert_eq!(broken(kept.pool_model.action(NOW, &abort)), arithmetic, "it is established");
    let again = Action::<()>::Establish { connection, generation: Generation::new(0) };
    assert_eq!(
        broken(kept.pool_model.action(NOW, &again)),
        arithmetic,
        "the number was used before"
    );
}

#[test]
fn whoever_gets_no_connection_has_waited_and_is_told_why() {
    let refused = |ready: bool, error: CheckOutError| {
        let mut pool_model = PoolModel::new(options());
        if ready {
            pool_model.input::<()>(NOW, &Input::Command(Command::Ready));
        }
        let (waiter, deadline) = (WaiterId(1), Some(Instant::from_millis(100)));
        pool_model.input::<()>(NOW, &Input::CheckOut { waiter, deadline });
        let deliver = Action::<()>::Deliver { waiter, outcome: Err(Box::new(error)) };
        [(); 2].map(|()| broken(pool_model.action(NOW, &deliver)))
    };
    let address: sdam_core::config::ServerAddress = "a:27017".parse().unwrap();
    let not_ready = CheckOutError::NotReady { address: address.clone() };
    let closed = CheckOutError::PoolClosed { address: address.clone() };
    let obstacle = sdam_core::pool::Obstacle::Queued { behind: 0, in_use: 0, pending: 0 };
    let waited = std::time::Duration::ZERO;
    let timeout = CheckOutError::Timeout { address, waited, obstacle, in_use: None, verdict: None };
    let wrong = Some("refusals say what is so");
    assert_eq!(refused(false, not_ready.clone()), [None, Some(ARITHMETIC)], "it waits no more");
    assert_eq!(refused(true, not_ready)[0], wrong, "it is");
    assert_eq!(refused(true, closed)[0], wrong, "it is not");
    assert_eq!(refused(true, timeout)[0], wrong, "there is time left");
}

/// Load Balancer Support, "Error handling".
#[test]
fn a_clear_of_a_service_closes_its_connections_and_no_others() {
    let mut kept = Kept::new(true);
    let (check_out, other) = (kept.returned(1, Some(SERVICE)), ObjectId::from_bytes([2; 12]));
    let clear = |service| {
        let to = Generation::new(1);
        Input::<()>::Command(Command::ClearService { service, to, cause: cause() })
    };
    let dispose = Action::Dispose { id: check_out.connection, connection: () };
    kept.pool_model.input(NOW, &clear(SERVICE));
    assert_eq!(broken(kept.pool_model.cleared()), Some("a clear closes what nothing uses"));
    kept.pool_model.input(NOW, &clear(other));
    let closed = broken(kept.pool_model.action(NOW, &dispose));
    assert_eq!(closed, Some("clears of one service leave others alone"));
}

#[test]
fn a_pool_counts_as_its_model_does() {
    let mut kept = Kept::new(false);
    kept.returned(1, None);
    let counts = kept.pool.counts();
    assert!(kept.pool_model.compare(counts).is_ok());
    let wrong: [fn(&mut Counts); 4] = [
        |counts| counts.available = 0,
        |counts| counts.in_use = 1,
        |counts| counts.pending = 1,
        |counts| counts.waiting = 1,
    ];
    for change in wrong {
        let mut wrong = counts;
        change(&mut wrong);
        assert!(kept.pool_model.compare(wrong).is_err(), "{wrong:?}");
    }
}

/// Connection Monitoring and Pooling, "Connection Pool Options".
#[test]
fn a_pool_keeps_to_its_options_and_works_for_whoever_waits() {
    let of = |ready, (available, pending, in_use): (u64, u64, u64), waiting: u64| {
        let connections: Vec<ConnectionId> = {
            let mut kept = Kept::new(false);
            let first = kept.check_out(1, None).connection;
            let second = kept.check_out(2, None).connection;
            let ids = [first, second, first, second];
            ids[..(available + pending + in_use) as usize].to_vec()
        };
        let mut pool_model = PoolModel { ready, ..PoolModel::new(options()) };
        pool_model.queue.extend((0..waiting).map(|waiter| (WaiterId(waiter), None)));
        let mut ids = connections.into_iter();
        pool_model.available.extend(ids.by_ref().take(available as usize).map(|id| (id, None)));
        pool_model.pending.extend(ids.by_ref().take(pending as usize).map(|id| (id, 0)));
        pool_model.in_use.extend(ids.map(|id| (id, false)));
        let mut counts = Counts::default();
        counts.available = pool_model.available.len();
        counts.pending = pool_model.pending.len();
        counts.in_use = pool_model.in_use.len();
        counts.waiting = pool_model.queue.len();
        pool_model.compare(counts).err().unwrap_or_default()
    };
    assert_eq!(of(true, (0, 1, 1), 1), "");
    assert_eq!(of(true, (1, 0, 1), 0), "");
    assert!(of(true, (1, 0, 2), 0).contains("maxPoolSize"));
    assert!(of(true, (0, 2, 0), 2).contains("maxConnecting"));
    assert!(of(true, (0, 0, 1), 1).contains("nothing connects for all who wait"));
    assert!(of(true, (1, 0, 1), 1).contains("ready true"), "one could have it");
    assert!(of(false, (1, 0, 0), 0).contains("ready false"), "a paused pool keeps nothing");
    assert!(of(false, (0, 0, 0), 1).contains("ready false"), "nor does anybody wait for it");
}
