//! Pools that keep connections for too long, or too few, or interrupt nobody, are found.

use sdam_core::failure::{Cause, Failure, Stage};
use sdam_core::machine::Machine;
use sdam_core::pool::{Pool, PoolConfig};

use super::*;

const IDLE: &str = "nothing is handed out that was idle for maxIdleTimeMS";
const SHORT: &str = "a pool that is ready comes to minPoolSize";
const PAUSES: &str = "minPoolSize pauses after a failure";
const SPARED: &str = "a clear that interrupts spares nobody";

const fn at(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

fn check(finding: Finding) -> Option<&'static str> {
    finding.err().map(|(check, _)| check)
}

/// A pool and its ledger, which are told the same at the origin of time.
struct Books {
    pool: Pool<()>,
    ledger: Ledger,
}

impl Books {
    fn new(options: PoolOptions) -> Self {
        let pool = Pool::new(PoolConfig {
            address: "a".parse().unwrap(),
            options: options.clone(),
            connect_timeout: None,
            load_balanced: false,
        });
        let mut books = Self { pool, ledger: Ledger::new(options) };
        books.tell(Input::Command(Command::Ready));
        books
    }

    fn tell(&mut self, input: Input<()>) -> Vec<Action<()>> {
        self.ledger.input(at(0), &input);
        let mut actions = Vec::new();
        self.pool.handle(at(0).into(), input, &mut actions);
        actions.iter().for_each(|action| self.ledger.action(at(0), action).unwrap());
        self.ledger.settled(at(0));
        actions
    }

    /// Somebody has a connection.
    fn lend(&mut self) -> Lease {
        self.tell(Input::CheckOut { waiter: WaiterId(1), deadline: None });
        let established = Established { connection: (), service: None };
        let connection = self.pool.newest();
        let actions = self.tell(Input::Established { connection, outcome: Ok(established) });
        let lease = actions.iter().find_map(|action| match action {
            Action::Deliver { outcome: Ok((lease, ())), .. } => Some(*lease),
            _ => None,
        });
        lease.expect("it was waited for")
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
        let mut books = Books::new(PoolOptions { max_idle_time, ..PoolOptions::default() });
        let lease = books.lend();
        books.ledger.kept(at(1), &lease).unwrap();
        assert_eq!(check(books.ledger.lent(at(1 + idle), &lease)), expected, "{idle} ms");
    }
}

/// How late the alarm of most clients may ring.
const PUNCTUAL: Duration = Duration::ZERO;

/// "minPoolSize"
#[test]
fn a_pool_that_stays_too_small_is_found_unless_something_fails() {
    let mut ledger = Ledger::new(PoolOptions { min_pool_size: 1, ..PoolOptions::default() });
    ledger.settled(at(0));
    assert_eq!(check(ledger.audit(at(9000), (at(0), PUNCTUAL))), None, "it is not ready");
    ledger.input::<()>(at(9000), &Input::Command(Command::Ready));
    ledger.settled(at(9000));
    ledger.settled(at(9400));
    assert_eq!(check(ledger.audit(at(9500), (at(0), PUNCTUAL))), None);
    assert_eq!(check(ledger.audit(at(9501), (at(0), PUNCTUAL))), Some(SHORT));
    assert_eq!(check(ledger.audit(at(9501), (at(9400), PUNCTUAL))), None, "it did not run");
    // Its alarm may not have rung yet (found by seed 1012136).
    let late = Duration::from_millis(250);
    assert_eq!(check(ledger.audit(at(9750), (at(0), late))), None);
    assert_eq!(check(ledger.audit(at(9751), (at(0), late))), Some(SHORT));
    let connection = Books::new(PoolOptions::default()).pool.newest();
    let error = sdam_core::operation::OperationError::Stream(Failure::new(
        Stage::Connect,
        Cause::Refused,
        "nobody listens",
    ));
    ledger.input::<()>(at(9501), &Input::Established { connection, outcome: Err(error) });
    ledger.settled(at(9501));
    assert_eq!(check(ledger.audit(at(10_001), (at(0), PUNCTUAL))), None, "a pause follows");
    assert_eq!(check(ledger.audit(at(10_002), (at(0), PUNCTUAL))), Some(SHORT));
    // A real pool does not wait.
    let books = Books::new(PoolOptions { min_pool_size: 1, ..PoolOptions::default() });
    assert_eq!(check(books.ledger.audit(at(9000), (at(0), PUNCTUAL))), None);
}

/// "Populating the Pool with a Connection"
#[test]
fn a_pool_that_does_not_pause_after_a_failure_is_found_unless_somebody_waits() {
    let options = PoolOptions { min_pool_size: 1, ..PoolOptions::default() };
    let begins = |waits: bool, cleared: bool, millis: u64| {
        let mut books = Books::new(options.clone());
        let connection = books.pool.newest();
        let generation = books.pool.generation(None);
        let refused = Failure::new(Stage::Connect, Cause::Refused, "nobody listens");
        let outcome = Err(sdam_core::operation::OperationError::Stream(refused));
        books.tell(Input::Established { connection, outcome });
        if cleared {
            let clear = books.clear(false);
            books.ledger.input(at(0), &clear);
            books.ledger.input::<()>(at(0), &Input::Command(Command::Ready));
        }
        if waits {
            let asks = Input::CheckOut { waiter: WaiterId(1), deadline: None };
            books.ledger.input::<()>(at(0), &asks);
        }
        let begins = Action::<()>::Establish { connection, generation };
        let found = check(books.ledger.action(at(millis), &begins));
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
        let mut books = Books::new(PoolOptions::default());
        books.lend();
        let input = books.clear(interrupt);
        books.ledger.input(at(0), &input);
        let mut actions = Vec::new();
        books.pool.handle(at(0).into(), input, &mut actions);
        actions.retain(|action| does || !matches!(action, Action::Interrupt { .. }));
        actions.iter().for_each(|action| books.ledger.action(at(0), action).unwrap());
        assert_eq!(check(books.ledger.cleared()), expected, "{interrupt} {does}");
    }
}

#[test]
fn a_connection_is_kept_only_by_whoever_has_it_on_loan() {
    let mut books = Books::new(PoolOptions::default());
    let lease = books.lend();
    assert_eq!(check(books.ledger.kept(at(1), &lease)), None);
    assert_eq!(check(books.ledger.kept(at(2), &lease)), Some(ARITHMETIC), "it was returned");
    let mut books = Books::new(PoolOptions::default());
    let (lease, clear) = (books.lend(), books.clear(true));
    books.tell(clear);
    assert_eq!(check(books.ledger.kept(at(1), &lease)), Some(ARITHMETIC), "it is interrupted");
    let mut books = Books::new(PoolOptions::default());
    let (lease, clear) = (books.lend(), books.clear(false));
    books.tell(clear);
    assert_eq!(check(books.ledger.kept(at(1), &lease)), Some(ARITHMETIC), "it is of the past");
}
