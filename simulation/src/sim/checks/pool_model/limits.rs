//! Pools that keep connections for too long, or too few, or interrupt no user, are found.

use sdam_core::failure::{Cause, Failure, Stage};
use sdam_core::machine::Machine;
use sdam_core::pool::{Pool, PoolConfig};

use super::*;

const IDLE: &str = "nothing is handed out that was idle for maxIdleTimeMS";
const SHORT: &str = "a pool that is ready comes to minPoolSize";
const PAUSES: &str = "minPoolSize pauses after a failure";
const SPARED: &str = "a clear that interrupts spares no connection";

const fn at(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

fn check(finding: Finding) -> Option<&'static str> {
    finding.err().map(|(check, _)| check)
}

/// A pool and its model, which get the same inputs at the origin of time.
struct Ledgers {
    pool: Pool<()>,
    pool_model: PoolModel,
}

impl Ledgers {
    fn new(options: PoolOptions) -> Self {
        let pool = Pool::new(PoolConfig::new("a".parse().unwrap(), options.clone()));
        let mut ledgers = Self { pool, pool_model: PoolModel::new(options) };
        ledgers.input(Input::Command(Command::Ready));
        ledgers
    }

    fn input(&mut self, input: Input<()>) -> Vec<Action<()>> {
        self.pool_model.input(at(0), &input);
        let mut actions = Vec::new();
        self.pool.handle(at(0).into(), input, &mut actions);
        actions.iter().for_each(|action| self.pool_model.action(at(0), action).unwrap());
        self.pool_model.settled(at(0));
        actions
    }

    /// Somebody has a connection.
    fn check_out(&mut self) -> CheckOut {
        self.input(Input::CheckOut { waiter: WaiterId(1), deadline: None });
        let established = Established::new((), None);
        let connection = self.pool.newest();
        let actions = self.input(Input::Established { connection, outcome: Ok(established) });
        let check_out = actions.iter().find_map(|action| match action {
            Action::Deliver { outcome: Ok((check_out, ())), .. } => Some(*check_out),
            _ => None,
        });
        check_out.expect("it was waited for")
    }

    fn clear(&self, interrupt: bool) -> Input<()> {
        let cause = Failure::new(Stage::Hello, Cause::Timeout, "no reply");
        let to = sdam_core::id::Generation::new(self.pool.generation(None).number() + 1);
        Input::Command(Command::Clear { to, interrupt, cause })
    }
}

/// "maxIdleTimeMS"
#[test]
fn a_connection_that_was_idle_for_too_long_is_not_to_be_handed_out() {
    for (max_idle, idle, expected) in [(500, 500, None), (500, 501, Some(IDLE)), (0, 9999, None)] {
        let max_idle_time = Duration::from_millis(max_idle);
        let mut ledgers = Ledgers::new(PoolOptions::default().with_max_idle_time(max_idle_time));
        let check_out = ledgers.check_out();
        ledgers.pool_model.kept(at(1), &check_out).unwrap();
        assert_eq!(
            check(ledgers.pool_model.checked_out(at(1 + idle), &check_out)),
            expected,
            "{idle} ms"
        );
    }
}

/// The greatest delay of most clients' alarms.
const PUNCTUAL: Duration = Duration::ZERO;

/// "minPoolSize"
#[test]
fn a_pool_that_stays_too_small_is_found_unless_something_fails() {
    let mut pool_model = PoolModel::new(PoolOptions::default().with_min_pool_size(1));
    pool_model.settled(at(0));
    assert_eq!(check(pool_model.audit(at(9000), (at(0), PUNCTUAL))), None, "it is not ready");
    pool_model.input::<()>(at(9000), &Input::Command(Command::Ready));
    pool_model.settled(at(9000));
    pool_model.settled(at(9400));
    assert_eq!(check(pool_model.audit(at(9500), (at(0), PUNCTUAL))), None);
    assert_eq!(check(pool_model.audit(at(9501), (at(0), PUNCTUAL))), Some(SHORT));
    assert_eq!(check(pool_model.audit(at(9501), (at(9400), PUNCTUAL))), None, "it did not run");
    // Its alarm may not have rung yet (found by seed 1012136).
    let late = Duration::from_millis(250);
    assert_eq!(check(pool_model.audit(at(9750), (at(0), late))), None);
    assert_eq!(check(pool_model.audit(at(9751), (at(0), late))), Some(SHORT));
    let connection = Ledgers::new(PoolOptions::default()).pool.newest();
    let error = sdam_core::operation::OperationError::Stream(Failure::new(
        Stage::Connect,
        Cause::Refused,
        "there is no listener",
    ));
    pool_model.input::<()>(at(9501), &Input::Established { connection, outcome: Err(error) });
    pool_model.settled(at(9501));
    assert_eq!(check(pool_model.audit(at(10_001), (at(0), PUNCTUAL))), None, "a pause follows");
    assert_eq!(check(pool_model.audit(at(10_002), (at(0), PUNCTUAL))), Some(SHORT));
    // A real pool does not wait.
    let ledgers = Ledgers::new(PoolOptions::default().with_min_pool_size(1));
    assert_eq!(check(ledgers.pool_model.audit(at(9000), (at(0), PUNCTUAL))), None);
}

/// "Populating the Pool with a Connection"
#[test]
fn a_pool_that_does_not_pause_after_a_failure_is_found_unless_somebody_waits() {
    let options = PoolOptions::default().with_min_pool_size(1);
    let begins = |waits: bool, cleared: bool, millis: u64| {
        let mut ledgers = Ledgers::new(options.clone());
        let connection = ledgers.pool.newest();
        let generation = ledgers.pool.generation(None);
        let refused = Failure::new(Stage::Connect, Cause::Refused, "there is no listener");
        let outcome = Err(sdam_core::operation::OperationError::Stream(refused));
        ledgers.input(Input::Established { connection, outcome });
        if cleared {
            let clear = ledgers.clear(false);
            ledgers.pool_model.input(at(0), &clear);
            ledgers.pool_model.input::<()>(at(0), &Input::Command(Command::Ready));
        }
        if waits {
            let asks = Input::CheckOut { waiter: WaiterId(1), deadline: None };
            ledgers.pool_model.input::<()>(at(0), &asks);
        }
        let begins = Action::<()>::Establish { connection, generation };
        let found = check(ledgers.pool_model.action(at(millis), &begins));
        found.filter(|check| *check == PAUSES)
    };
    assert_eq!((begins(false, false, 499), begins(false, false, 500)), (Some(PAUSES), None));
    assert_eq!((begins(true, false, 0), begins(false, true, 0)), (None, None));
}

/// "interruptInUseConnections"
#[test]
fn a_clear_that_is_to_interrupt_and_does_not_is_found() {
    for (interrupt, does, expected) in
        [(true, true, None), (true, false, Some(SPARED)), (false, false, None)]
    {
        let mut ledgers = Ledgers::new(PoolOptions::default());
        ledgers.check_out();
        let input = ledgers.clear(interrupt);
        ledgers.pool_model.input(at(0), &input);
        let mut actions = Vec::new();
        ledgers.pool.handle(at(0).into(), input, &mut actions);
        actions.retain(|action| does || !matches!(action, Action::Interrupt { .. }));
        actions.iter().for_each(|action| ledgers.pool_model.action(at(0), action).unwrap());
        assert_eq!(check(ledgers.pool_model.cleared()), expected, "{interrupt} {does}");
    }
}

#[test]
fn a_connection_is_kept_only_by_whoever_has_it_on_loan() {
    let mut ledgers = Ledgers::new(PoolOptions::default());
    let check_out = ledgers.check_out();
    assert_eq!(check(ledgers.pool_model.kept(at(1), &check_out)), None);
    assert_eq!(
        check(ledgers.pool_model.kept(at(2), &check_out)),
        Some(ARITHMETIC),
        "it was returned"
    );
    let mut ledgers = Ledgers::new(PoolOptions::default());
    let (check_out, clear) = (ledgers.check_out(), ledgers.clear(true));
    ledgers.input(clear);
    assert_eq!(
        check(ledgers.pool_model.kept(at(1), &check_out)),
        Some(ARITHMETIC),
        "it is interrupted"
    );
    let mut ledgers = Ledgers::new(PoolOptions::default());
    let (check_out, clear) = (ledgers.check_out(), ledgers.clear(false));
    ledgers.input(clear);
    assert_eq!(
        check(ledgers.pool_model.kept(at(1), &check_out)),
        Some(ARITHMETIC),
        "it is of the past"
    );
}
