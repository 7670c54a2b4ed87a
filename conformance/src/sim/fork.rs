//! A process that forks while its client works: the child is one more client, and begins anew.
//!
//! The child has copies of its parent's streams and of all that its parent's machines know, and
//! uses none of it: with fresh machines, made of the same options and of the members that its
//! parent knew, it finds everything as any client does. That it closes a copied stream, or keeps
//! it, sends nothing, and the parent shuts its own down, whoever else holds them: there is nothing
//! to do here for either, and the parent goes on as if nothing had happened. The child is on the
//! same machine, with the same way to each member, and whatever is wrong with that.
//!
//! It forks where a lock would be held: while a machine is at work, when some of what that demands
//! is done, and some is not. Machines have no locks; those that there are belong to hosts: how
//! threads interleave over the locks of `sdam_core::host` is tested in
//! `core/src/host/tests/interleavings`, and that a child takes none of them, which a thread of its
//! parent may have held, is what `runtime-blocking/src/process.rs` is for, and
//! `runtime-blocking/tests/fork.rs` tests it with real processes and busy threads.

use std::sync::Arc;

use sdam_core::description::TopologyType;
use sdam_core::options::Options;

use super::client::Client;
use super::plan::ClientPlan;
use super::trace::Trace;
use super::witness::Sign;
use super::world::{Event, World};

/// How many clients there may be before no process forks any more.
const MAX_CLIENTS: usize = 8;

impl World {
    /// A client's process has forked; its child begins, unless there are too many.
    pub(super) fn fork(&mut self, parent: usize, options: Arc<Options>) {
        let (child, client) = (self.clients.len(), &self.clients[parent]);
        if child >= MAX_CLIENTS {
            return;
        }
        let plan = ClientPlan { options, ..client.plan.clone() };
        self.network.fork(parent);
        self.share_faults(parent, child);
        let delay = self.random.between(plan.interval / 2, plan.interval);
        self.network.plan(delay, Event::Operate { client: child });
        let places = (Arc::clone(&plan.addresses), self.network.latencies(child));
        let trace = Trace::new(self.traced == Some(child));
        let (now, random) = (self.network.now, self.random.fork());
        self.plan.clients.push(plan.clone());
        self.clients.push(Client::new(child, plan, places, random, trace).born(now));
    }

    /// What goes wrong for a parent does so for its child; of what is still to come, it is drawn.
    fn share_faults(&mut self, parent: usize, child: usize) {
        for fault in &mut self.plan.faults {
            let hits_parent = fault.clients.contains(&parent);
            let has_begun = fault.begins <= self.network.now;
            if hits_parent && (has_begun || fault.kind.hits_everybody() || self.random.percent(50))
            {
                fault.clients.push(child);
            }
        }
    }
}

impl Client {
    /// Another thread of the process is going to fork it as soon as a machine is at work, unless
    /// the process does not run: what a lock would protect is in the middle of a change then.
    pub(super) fn fork(&mut self) {
        self.forks = !self.closed && !self.is_frozen();
    }

    /// The process forks now, if it is to: of what its machine demands some is done.
    pub(super) fn fork_in_the_middle(&mut self) {
        if std::mem::take(&mut self.forks) && !self.closed {
            self.forked = Some(inherited_options(self));
            self.checks.note(Sign::ForkedInTheMiddle);
            if self.has_waiters() {
                self.checks.note(Sign::ForkedWhileWanted);
            }
        }
    }
}

/// Returns the options of a child: its parent's, with the members that its parent knows for seeds,
/// the primary first, if there can be several.
fn inherited_options(parent: &Client) -> Arc<Options> {
    use TopologyType::{ReplicaSetNoPrimary, ReplicaSetWithPrimary, Sharded};

    let (known, options) = (parent.view().description(), &parent.options);
    let (ReplicaSetNoPrimary | ReplicaSetWithPrimary | Sharded) = known.topology_type else {
        return Arc::clone(options);
    };
    let servers = known.primary().into_iter().chain(known.servers().iter());
    let hints = servers.map(|server| server.address.clone());
    let seeds = hints.chain(options.seeds().to_vec());
    Arc::new(options.with_seeds(seeds).expect("options that make sense"))
}
