//! The pool at work: a fixture that passes inputs and notes what it does, and its rules.

mod errors;
mod establishing;
mod lending;
mod letting_go;
mod load_balancer;

use std::time::Duration;

use super::{
    Action, CheckOut, CheckOutError, Command, Established, Generation, Input, Pool, PoolConfig,
    PoolEvent,
};
use crate::config::PoolOptions;
use crate::failure::{Cause, Failure, Stage};
use crate::id::{ConnectionId, WaiterId};
use crate::machine::{Lawful, Machine};
use crate::operation::OperationError;
use crate::time::Instant;

/// A pool whose connections are the numbers of their ids, and what it did.
struct Fixture {
    pool: Lawful<Pool<u64>>,
    now: Instant,
    generation: u32,
    notes: Vec<String>,
    checked_out: Vec<(CheckOut, u64)>,
    errors: Vec<CheckOutError>,
}

impl Fixture {
    fn new(change: impl FnOnce(&mut PoolConfig)) -> Self {
        let mut config = PoolConfig {
            address: "h".parse().unwrap(),
            options: PoolOptions::default(),
            connect_timeout: None,
            handshake_timeout: None,
            load_balanced: false,
        };
        change(&mut config);
        let (pool, now) = (Lawful::new(Pool::new(config)), Instant::ZERO);
        let (notes, checked_out, errors) = (Vec::new(), Vec::new(), Vec::new());
        let mut new = Self { pool, now, generation: 0, notes, checked_out, errors };
        new.at(0);
        assert_eq!(new.notes(), ["pool created"]);
        new
    }

    /// A pool that was made ready.
    fn ready(change: impl FnOnce(&mut PoolOptions)) -> Self {
        let mut new = Self::new(|config| change(&mut config.options));
        new.input(Input::Command(Command::Ready));
        new.notes.retain(|note| note != "pool ready");
        new
    }

    /// A ready pool with that many connections, all of them in use.
    fn lending(count: u64, change: impl FnOnce(&mut PoolOptions)) -> Self {
        let mut new = Self::ready(change);
        for connection in 1..=count {
            new.check_out(1_000_000 + connection);
            new.establish(connection);
        }
        assert_eq!(new.checked_out.len() as u64, count);
        new.notes.clear();
        new
    }

    /// Lets time pass; every deadline on the way is met exactly.
    fn at(&mut self, millis: u64) {
        let until = Instant::from_millis(millis);
        while let Some(due) = self.pool.deadline().filter(|due| *due <= until) {
            self.now = due;
            let mut out = Vec::new();
            self.pool.tick(due.into(), &mut out);
            self.note(out);
        }
        self.now = until;
    }

    fn input(&mut self, input: Input<u64>) {
        let mut out = Vec::new();
        self.pool.handle(self.now.into(), input, &mut out);
        self.note(out);
    }

    fn check_out(&mut self, waiter: u64) {
        self.input(Input::CheckOut { waiter: WaiterId(waiter), deadline: None });
    }

    fn establish(&mut self, connection: u64) {
        let outcome = Ok(Established { connection, service: None });
        self.input(Input::Established { connection: ConnectionId(connection), outcome });
    }

    fn fail(&mut self, connection: u64) {
        let outcome = Err(OperationError::Stream(failure()));
        self.input(Input::Established { connection: ConnectionId(connection), outcome });
    }

    fn check_in(&mut self, connection: u64) {
        let check_out = self.check_out_of(connection);
        self.input(Input::CheckIn { check_out, outcome: Ok(connection) });
    }

    fn check_out_of(&self, connection: u64) -> CheckOut {
        self.checked_out
            .iter()
            .rfind(|(_, checked_out)| *checked_out == connection)
            .expect("it was checked out")
            .0
    }

    fn clear(&mut self, interrupt: bool) {
        self.generation += 1;
        let to = Generation::new(self.generation);
        self.input(Input::Command(Command::Clear { to, interrupt, cause: failure() }));
    }

    fn counts(&self) -> [usize; 4] {
        let counts = self.pool.get().counts();
        [counts.available, counts.pending, counts.in_use, counts.waiting]
    }

    /// Returns the actions of the pool since the last call.
    fn notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    fn note(&mut self, actions: Vec<Action<u64>>) {
        for action in actions {
            let note = match action {
                Action::Establish { connection, generation } => {
                    format!("establish {connection} of generation {generation}")
                }
                Action::Abort { connection } => format!("abort {connection}"),
                Action::Interrupt { connection } => format!("interrupt {connection}"),
                Action::Dispose { id, connection } => {
                    assert_eq!(id.0, connection);
                    format!("dispose {id}")
                }
                Action::TimedOut { connection, stage, option } => {
                    format!("time out {connection} while {}: {option}", stage.words())
                }
                Action::Deliver { waiter, outcome: Ok((check_out, connection)) } => {
                    assert_eq!(check_out.connection.0, connection);
                    self.checked_out.push((check_out, connection));
                    format!("deliver {} to {}", check_out.connection, waiter.0)
                }
                Action::Deliver { waiter, outcome: Err(error) } => {
                    self.errors.push(*error);
                    format!("refuse {}", waiter.0)
                }
                Action::Emit { at, event } => {
                    assert_eq!(at, self.now);
                    told(&event)
                }
            };
            self.notes.push(note);
        }
    }
}

/// An event in a few words.
fn told(event: &PoolEvent) -> String {
    match event {
        PoolEvent::PoolCreated { .. } => "pool created".into(),
        PoolEvent::PoolReady => "pool ready".into(),
        PoolEvent::PoolCleared { .. } => "pool cleared".into(),
        PoolEvent::PoolClosed => "pool closed".into(),
        PoolEvent::ConnectionCreated { connection, .. } => format!("{connection} created"),
        PoolEvent::ConnectionReady { connection, .. } => format!("{connection} ready"),
        PoolEvent::ConnectionClosed { connection, reason, .. } => {
            format!("{connection} closed: {reason:?}")
        }
        PoolEvent::ConnectionCheckOutStarted => "started".into(),
        PoolEvent::ConnectionCheckOutFailed { error, duration, .. } => {
            format!("failed after {} ms: {}", duration.as_millis(), error.reason())
        }
        PoolEvent::ConnectionCheckedOut { connection, duration, .. } => {
            format!("{connection} checked out after {} ms", duration.as_millis())
        }
        PoolEvent::ConnectionCheckedIn { connection, .. } => format!("{connection} checked in"),
    }
}

/// A connection that is of no more use.
fn broken() -> Result<u64, Box<OperationError>> {
    Err(Box::new(OperationError::Stream(failure())))
}

fn failure() -> Failure {
    Failure::new(Stage::Hello, Cause::Closed, "the server closed the connection")
}

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}
