//! A real pool, to which anything may happen: what its events have come to is what it says itself.

use std::collections::BTreeSet;
use std::time::Duration;

use proptest::prelude::*;

use super::pools::counts;
use super::{address, event, failure};
use crate::config::PoolOptions;
use crate::failure::Cause;
use crate::id::{ConnectionId, Generation, ServerId, WaiterId};
use crate::machine::{Lawful, Machine};
use crate::metrics::Metrics;
use crate::operation::OperationError;
use crate::pool::{Action, CheckOut, Command, Established, Input, Pool, PoolConfig};
use crate::topology::EventKind;

/// A pool, whatever it has asked for, and the metrics of its events.
struct Fixture {
    pool: Lawful<Pool<u64>>,
    millis: u64,
    metrics: Metrics,
    pending: BTreeSet<ConnectionId>,
    in_use: Vec<(CheckOut, u64)>,
    waiters: u64,
    generation: u32,
}

impl Fixture {
    fn new() -> Self {
        let options = PoolOptions::default()
            .with_max_pool_size(5)
            .with_min_pool_size(1)
            .with_wait_queue_timeout(Some(Duration::from_millis(300)));
        let pool = Lawful::new(Pool::new(PoolConfig::new(address("h"), options)));
        let mut new = Self {
            pool,
            millis: 0,
            metrics: Metrics::new(),
            pending: BTreeSet::new(),
            in_use: Vec::new(),
            waiters: 0,
            generation: 0,
        };
        new.pass(0);
        new.input(Input::Command(Command::Ready));
        new
    }

    fn pass(&mut self, millis: u64) {
        self.millis += millis;
        let mut out = Vec::new();
        self.pool.tick(super::at(self.millis).into(), &mut out);
        self.perform(out);
    }

    fn input(&mut self, input: Input<u64>) {
        let mut out = Vec::new();
        self.pool.handle(super::at(self.millis).into(), input, &mut out);
        self.perform(out);
    }

    fn perform(&mut self, actions: Vec<Action<u64>>) {
        for action in actions {
            match action {
                Action::Establish { connection, .. } => drop(self.pending.insert(connection)),
                Action::Abort { connection } | Action::TimedOut { connection, .. } => {
                    self.pending.remove(&connection);
                }
                Action::Deliver { outcome: Ok(found), .. } => self.in_use.push(found),
                Action::Deliver { outcome: Err(_), .. }
                | Action::Interrupt { .. }
                | Action::Dispose { .. } => {}
                Action::Emit { at, event: told } => {
                    let (server, address) = (ServerId(3), address("h"));
                    let kind = EventKind::Pool { server, address, event: told };
                    let millis = at.as_nanos() / 1_000_000;
                    self.metrics.note(&event(millis, kind));
                }
            }
        }
    }

    fn happen(&mut self, kind: u8, which: usize) {
        match kind {
            0..=2 => {
                self.waiters += 1;
                self.input(Input::CheckOut { waiter: WaiterId(self.waiters), deadline: None });
            }
            3..=5 if !self.pending.is_empty() => {
                let connection = *self.pending.iter().nth(which % self.pending.len()).unwrap();
                self.pending.remove(&connection);
                let established = Established::new(connection.number(), None);
                let error = || OperationError::Stream(failure(Cause::Closed));
                let outcome = if kind == 5 { Err(error()) } else { Ok(established) };
                self.input(Input::Established { connection, outcome });
            }
            6..=8 if !self.in_use.is_empty() => {
                let (check_out, connection) = self.in_use.remove(which % self.in_use.len());
                let error = || Box::new(OperationError::Stream(failure(Cause::Closed)));
                let outcome = if kind < 8 { Ok(connection) } else { Err(error()) };
                self.input(Input::CheckIn { check_out, outcome });
            }
            9 => self.input(Input::Abandon { waiter: WaiterId(self.waiters) }),
            10 => {
                self.generation += 1;
                let (to, cause) = (Generation::new(self.generation), failure(Cause::Timeout));
                let interrupt = which.is_multiple_of(2);
                self.input(Input::Command(Command::Clear { to, interrupt, cause }));
            }
            11 => self.input(Input::Command(Command::Ready)),
            _ => self.pass(which as u64),
        }
    }
}

proptest! {
    #[test]
    fn connections_by_state_are_those_that_the_pool_counts(
        steps in proptest::collection::vec((0..13_u8, 0..200_usize), 0..120),
        closes in any::<bool>(),
    ) {
        let mut fixture = Fixture::new();
        for (kind, which) in steps {
            fixture.happen(kind, which);
            let told = counts(&fixture.metrics);
            let own = fixture.pool.get().counts();
            let own = [own.pending, own.available, own.in_use].map(|it| it as u64);
            prop_assert_eq!(told, own, "after {}", kind);
        }
        if closes {
            fixture.input(Input::Close);
            while let Some((check_out, connection)) = fixture.in_use.pop() {
                fixture.input(Input::CheckIn { check_out, outcome: Ok(connection) });
            }
            prop_assert_eq!(counts(&fixture.metrics), [0; 3]);
        }
    }
}
