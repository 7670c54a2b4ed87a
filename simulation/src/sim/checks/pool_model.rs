//! A pool's ledgers: who waits, which connections there are, and what may be handed out.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Debug;
use std::time::Duration;

use bson::oid::ObjectId;
use sdam_core::bson;
use sdam_core::config::{MIN_HEARTBEAT_FREQUENCY, PoolOptions};
use sdam_core::id::{ConnectionId, WaiterId};
use sdam_core::pool::{Action, CheckOut, CheckOutError, Command, Counts, Established, Input};
use sdam_core::time::Instant;

#[cfg(test)]
mod limits;
#[cfg(test)]
mod tests;

/// The finding of a check: nothing, or which check fails and how.
type Finding = Result<(), (&'static str, String)>;

const ARITHMETIC: &str = "pool arithmetic";

/// All that is known of a pool from outside.
#[derive(Debug)]
pub(in crate::sim) struct PoolModel {
    options: PoolOptions,
    ready: bool,
    closed: bool,
    generation: u32,
    /// Behind a load balancer, the generations of services that were cleared.
    services: BTreeMap<ObjectId, u32>,
    /// The service that is being cleared.
    clearing: Option<ObjectId>,
    /// True if the pool is being cleared, and the users of its connections interrupted.
    interrupting: bool,
    queue: VecDeque<(WaiterId, Option<Instant>)>,
    /// Connections that are being established, and their generations.
    pending: BTreeMap<ConnectionId, u32>,
    /// Idle connections, and their services.
    available: BTreeMap<ConnectionId, Option<ObjectId>>,
    /// The time when they were last used.
    used: BTreeMap<ConnectionId, Instant>,
    /// Connections in use, and whether they are interrupted.
    in_use: BTreeMap<ConnectionId, bool>,
    created: u64,
    /// Connections that are failing; who waited for one of them has left the queue.
    failing: BTreeSet<ConnectionId>,
    /// Since when there have been fewer connections than minPoolSize, and nothing has failed
    /// although more are allowed, if that is so.
    short_since: Option<Instant>,
    /// The time when a connection last could not be established, unless the pool was cleared since
    /// then.
    failed: Option<Instant>,
}

impl PoolModel {
    pub(in crate::sim) const fn new(options: PoolOptions) -> Self {
        Self {
            options,
            ready: false,
            closed: false,
            generation: 0,
            services: BTreeMap::new(),
            clearing: None,
            interrupting: false,
            queue: VecDeque::new(),
            pending: BTreeMap::new(),
            available: BTreeMap::new(),
            used: BTreeMap::new(),
            in_use: BTreeMap::new(),
            created: 0,
            failing: BTreeSet::new(),
            short_since: None,
            failed: None,
        }
    }

    pub(in crate::sim) const fn is_ready(&self) -> bool {
        self.ready
    }

    /// Returns the generation that the topology has begun, behind a load balancer of a service.
    pub(in crate::sim) fn generation(&self, service: Option<ObjectId>) -> u32 {
        service.map_or(self.generation, |it| self.services.get(&it).copied().unwrap_or_default())
    }

    /// The pool is about to take an input; what is due was done.
    pub(in crate::sim) fn input<C>(&mut self, now: Instant, input: &Input<C>) {
        match input {
            Input::CheckOut { waiter, deadline } => {
                let patience = self.options.wait_queue_timeout.map(|wait| now + wait);
                self.queue.push_back((*waiter, deadline.or(patience)));
            }
            Input::Abandon { waiter } => self.queue.retain(|(queued, _)| queued != waiter),
            Input::Command(Command::Ready) => {
                self.failed = self.failed.filter(|_| self.ready);
                self.ready = !self.closed;
            }
            Input::Command(Command::Clear { to, interrupt, .. }) if !self.closed => {
                self.ready = false;
                self.generation = to.number();
                self.interrupting = *interrupt;
            }
            Input::Command(Command::ClearService { service, to, .. }) if !self.closed => {
                self.services.insert(*service, to.number());
                self.clearing = Some(*service);
            }
            Input::Close => (self.ready, self.closed) = (false, true),
            Input::Failing { connection } => drop(self.failing.insert(*connection)),
            Input::Established { connection, outcome } => {
                self.failing.remove(connection);
                let generation = self.pending.remove(connection);
                // One that was established at last, when it had been given up, has not failed.
                if outcome.is_err() && generation.is_some() {
                    self.failed = Some(now);
                }
                if let Ok(Established { service, .. }) = outcome
                    && generation == Some(self.generation)
                    && !self.closed
                {
                    self.rests(*connection, *service, now);
                } else {
                    self.short_since = None;
                }
            }
            Input::CheckIn { check_out, outcome } => {
                let interrupted = self.in_use.remove(&check_out.connection).unwrap_or(true);
                let fresh = check_out.generation.number() == self.generation(check_out.service);
                if outcome.is_ok() && !interrupted && fresh && !self.closed {
                    self.rests(check_out.connection, check_out.service, now);
                }
            }
            _ => {}
        }
    }

    /// Returns how many connections are being established.
    pub(in crate::sim) fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Returns whether there is nothing in it.
    pub(in crate::sim) fn is_empty(&self) -> bool {
        let connections = self.available.len() + self.pending.len() + self.in_use.len();
        connections == 0 && self.queue.is_empty()
    }

    /// Returns whether an idle connection can be checked out at once.
    pub(in crate::sim) fn may_lend(&self, now: Instant) -> bool {
        let limit = self.options.max_idle_time;
        let is_fresh = |used: &Instant| limit.is_zero() || now - *used < limit;
        self.ready && self.queue.is_empty() && self.used.values().any(is_fresh)
    }

    /// A connection is checked out without having been waited for.
    pub(in crate::sim) fn checked_out(&mut self, now: Instant, check_out: &CheckOut) -> Finding {
        if !self.queue.is_empty() || !self.ready {
            return Err(("first come, first served", format!("{check_out:?} is lent out of turn")));
        }
        self.check_out(now, check_out)
    }

    /// A connection was returned without an input to the pool; there is nothing else to do with it.
    pub(in crate::sim) fn kept(&mut self, now: Instant, check_out: &CheckOut) -> Finding {
        let interrupted = self.in_use.remove(&check_out.connection);
        let fresh = check_out.generation.number() == self.generation(check_out.service);
        if interrupted != Some(false) || !fresh || self.closed || !self.queue.is_empty() {
            let what =
                format!("{check_out:?} is kept, interrupted: {interrupted:?}, fresh: {fresh}");
            return Err((ARITHMETIC, what));
        }
        self.rests(check_out.connection, check_out.service, now);
        Ok(())
    }

    /// A connection is idle, for any waiter.
    fn rests(&mut self, connection: ConnectionId, service: Option<ObjectId>, now: Instant) {
        self.available.insert(connection, service);
        self.used.insert(connection, now);
    }

    fn check_out(&mut self, now: Instant, check_out: &CheckOut) -> Finding {
        let generation = self.generation(check_out.service);
        if check_out.generation.number() != generation {
            let what = format!("{check_out:?} in generation {generation} at {now:?}");
            return Err(("nothing is handed out from before a clear", what));
        }
        if self.available.remove(&check_out.connection).is_none() {
            return Err((ARITHMETIC, format!("{} is not available", check_out.connection)));
        }
        let idle =
            self.used.remove(&check_out.connection).map_or(Duration::ZERO, |used| now - used);
        let limit = self.options.max_idle_time;
        if limit > Duration::ZERO && idle > limit {
            let what = format!("{} has been idle for {idle:?}", check_out.connection);
            return Err(("nothing is handed out that was idle for maxIdleTimeMS", what));
        }
        self.in_use.insert(check_out.connection, false);
        Ok(())
    }

    /// The pool has handled its input; a service that was cleared has no idle connection left, and
    /// a clear that interrupts has interrupted every user.
    pub(in crate::sim) fn cleared(&mut self) -> Finding {
        let undisturbed = self.in_use.iter().find(|(_, interrupted)| !**interrupted);
        if let Some((left, _)) = undisturbed.filter(|_| self.interrupting) {
            // Connection Monitoring and Pooling, "Clearing a non-load balanced pool"
            let what = format!("{left} is on loan, and is not interrupted");
            return Err(("a clear that interrupts spares no connection", what));
        }
        self.interrupting = false;
        let Some(cleared) = self.clearing.take() else { return Ok(()) };
        match self.available.iter().find(|(_, service)| **service == Some(cleared)) {
            None => Ok(()),
            Some((left, _)) => {
                Err(("a clear closes what nothing uses", format!("{left} of {cleared} is open")))
            }
        }
    }

    /// The pool asks for something.
    pub(in crate::sim) fn action<C: Debug>(&mut self, now: Instant, action: &Action<C>) -> Finding {
        match action {
            Action::Establish { connection, generation } => {
                self.unhurried(now)?;
                self.created += 1;
                self.pending.insert(*connection, generation.number());
                let right = self.ready && connection.number() == self.created;
                if right { Ok(()) } else { Err((ARITHMETIC, format!("{action:?}"))) }
            }
            Action::Abort { connection } => match self.pending.remove(connection) {
                Some(_) => Ok(()),
                None => Err((ARITHMETIC, format!("{connection} is aborted and was not pending"))),
            },
            Action::Interrupt { connection } => match self.in_use.get_mut(connection) {
                Some(interrupted) if !*interrupted => {
                    *interrupted = true;
                    Ok(())
                }
                _ => Err((ARITHMETIC, format!("{connection} is interrupted and not on loan"))),
            },
            Action::Deliver { waiter, outcome: Ok((check_out, _)) } => match self.queue.pop_front()
            {
                Some((first, _)) if first == *waiter => self.check_out(now, check_out),
                first => {
                    let what = format!("{waiter:?} is served, and first was {first:?}");
                    Err(("first come, first served", what))
                }
            },
            Action::Deliver { waiter, outcome: Err(error) } => self.refused(*waiter, error, now),
            Action::Dispose { id, .. } => {
                let service = self.available.remove(id).flatten();
                self.used.remove(id);
                let other = service.filter(|_| self.clearing.is_some_and(|it| Some(it) != service));
                match other {
                    None => Ok(()),
                    Some(other) => {
                        let what = format!("{id} of {other} is closed with {:?}", self.clearing);
                        Err(("clears of one service leave others alone", what))
                    }
                }
            }
            _ => Ok(()),
        }
    }

    /// A connection that only minPoolSize asks for is not begun less than 500 ms after another one
    /// could not be established: a server that refuses it would be asked without end.
    fn unhurried(&self, now: Instant) -> Finding {
        let fresh = self.pending.values().filter(|it| **it == self.generation).count();
        let wanted = self.queue.len() > fresh;
        match self.failed.filter(|failed| !wanted && now < *failed + MIN_HEARTBEAT_FREQUENCY) {
            None => Ok(()),
            Some(failed) => {
                let what = format!("one is begun at {now:?}, and one has failed at {failed:?}");
                Err(("minPoolSize pauses after a failure", what))
            }
        }
    }

    /// The pool has done all that was due at this time.
    pub(in crate::sim) fn settled(&mut self, now: Instant) {
        let PoolOptions { max_pool_size, max_connecting, min_pool_size, .. } = self.options;
        let total = self.available.len() + self.pending.len() + self.in_use.len();
        let has_room = self.pending.len() < max_connecting.max(1) as usize
            && (max_pool_size == 0 || total < max_pool_size as usize);
        if self.ready && has_room && total < min_pool_size as usize {
            self.short_since.get_or_insert(now);
        } else {
            self.short_since = None;
        }
    }

    /// A pool that is ready comes to minPoolSize at once, or a pause after something has failed
    /// (Connection Monitoring and Pooling, "Populating the Pool with a Connection"); its client has
    /// been running since then, and its alarm may ring so late.
    pub(in crate::sim) fn audit(
        &self,
        now: Instant,
        (running_since, late): (Instant, Duration),
    ) -> Finding {
        let Some(since) = self.short_since else { return Ok(()) };
        match now > since.max(running_since) + MIN_HEARTBEAT_FREQUENCY + late {
            false => Ok(()),
            true => {
                let what = format!("there have been too few connections since {since:?}");
                Err(("a pool that is ready comes to minPoolSize", what))
            }
        }
    }

    fn refused(&mut self, waiter: WaiterId, error: &CheckOutError, now: Instant) -> Finding {
        let Some(index) = self.queue.iter().position(|(queued, _)| *queued == waiter) else {
            return Err((ARITHMETIC, format!("{waiter:?} is answered and does not wait")));
        };
        let limit = self.queue.remove(index).and_then(|(_, limit)| limit);
        let right = match error {
            CheckOutError::PoolClosed { .. } => self.closed,
            CheckOutError::PoolCleared { .. } | CheckOutError::NotReady { .. } => !self.ready,
            CheckOutError::Timeout { .. } => limit.is_some_and(|limit| limit <= now),
            _ => true,
        };
        match right {
            true => Ok(()),
            false => Err(("refusals say what is so", format!("{waiter:?}: {error}"))),
        }
    }

    /// Compares the pool's figures with these, and both with the options.
    pub(in crate::sim) fn compare(&self, counts: Counts) -> Result<(), String> {
        let queued = self.queue.len();
        let mut expected = Counts::default();
        expected.available = self.available.len();
        expected.pending = self.pending.len();
        expected.in_use = self.in_use.len();
        expected.waiting = counts.waiting.clamp(queued.saturating_sub(self.failing.len()), queued);
        if counts != expected {
            return Err(format!("{counts:?}, and the model of the pool has {expected:?}"));
        }
        let most = self.options.max_pool_size as usize;
        if most > 0 && counts.total() > most {
            return Err(format!("{counts:?} exceeds maxPoolSize {most}"));
        }
        if counts.pending > self.options.max_connecting as usize {
            return Err(format!("{counts:?} exceeds maxConnecting"));
        }
        // A waiter for one of those that are being established, which is of an old generation,
        // needs another one.
        let fresh = self.pending.values().filter(|it| **it == self.generation).count();
        let has_room = counts.pending < self.options.max_connecting.max(1) as usize
            && (most == 0 || counts.total() < most);
        if self.ready && has_room && counts.waiting > fresh {
            return Err(format!("{counts:?}, and nothing connects for all who wait"));
        }
        let idle_while_waiting = counts.waiting > 0 && (counts.available > 0 || !self.ready);
        if idle_while_waiting || counts.available > 0 && !self.ready {
            return Err(format!("{counts:?}, ready {}", self.ready));
        }
        Ok(())
    }
}
