//! A process that forks while its client works: the child is one more client, and starts from
//! scratch.
//!
//! The child has copies of its parent's streams and of all that its parent's machines know, and
//! uses none of it: with fresh machines, made of the same options and of the members that its
//! parent knew, it finds everything as any client does. That it closes a copied stream, or keeps
//! it, sends nothing, and the parent shuts its own down, even if others hold them: there is nothing
//! to do here for either, and the parent goes on as if nothing had happened. The child is on the
//! same machine, with the same way to each member, and whatever is wrong with that.
//!
//! It forks where a lock is held: while a machine is at work, when some of what that demands is
//! done, and some is not. There is one thread here, which never waits for a lock: how threads
//! interleave over the locks of `sdam_host` is tested in `host/src/tests/interleavings`, and that a
//! child takes none of them, which a thread of its parent may have held, is what
//! `runtime-blocking/src/process.rs` is for, and `runtime-blocking/tests/fork.rs` tests it with
//! real processes and busy threads.

use std::sync::Arc;

use sdam_core::config::Options;

use super::client::Client;
use super::fault::FaultKind;
use super::plan::ClientPlan;
use super::random::Random;
use super::trace::Trace;
use super::world::{Event, World};

/// The number of clients that there may be before no process forks any more.
const MAX_CLIENTS: usize = 8;

impl World {
    /// A client's process has forked; its child begins, unless there are too many. `bits` decides
    /// what it is like.
    pub(super) fn fork(&mut self, parent: usize, options: Arc<Options>, bits: u64) {
        let (child, client) = (self.clients.len(), &self.clients[parent]);
        if child >= MAX_CLIENTS {
            return;
        }
        let plan = ClientPlan { options, ..client.plan.clone() };
        let mut random = Random::new(bits ^ parent as u64);
        self.network.fork(parent, random.fork());
        self.share_faults((parent, child), &mut random);
        let delay = random.between(plan.interval / 2, plan.interval);
        self.network.plan(delay, Event::Operate { client: child });
        let places = (Arc::clone(&plan.addresses), self.network.latencies(child));
        let (now, trace) = (self.network.now, Trace::of(child, self.observed));
        self.plan.clients.push(plan.clone());
        let kept = (trace, Arc::clone(&self.clock));
        let mut client = Client::new(child, plan, places, random, kept).born(now);
        if self.plan.faults.iter().any(|it| it.kind == FaultKind::Flood) {
            client.is_flooded();
        }
        self.clients.push(client);
    }

    /// Shares a parent's faults with its child; of those still to come, it is drawn.
    fn share_faults(&mut self, (parent, child): (usize, usize), random: &mut Random) {
        for fault in &mut self.plan.faults {
            let hits_parent = fault.clients.contains(&parent);
            let has_begun = fault.begins <= self.network.now;
            let hits_child = random.percent(50) || has_begun || fault.kind.hits_everybody();
            if hits_parent && hits_child {
                fault.clients.push(child);
            }
        }
    }
}

impl Client {
    /// Another thread of the process is going to fork it as soon as a machine is at work, unless
    /// the process does not run: what a lock would protect is in the middle of a change then.
    /// `bits` decides what the child is like.
    pub(super) fn fork(&mut self, bits: u64) {
        let forks = (!self.closed && !self.is_frozen()).then_some(bits);
        self.ledger().forks = forks;
    }
}
