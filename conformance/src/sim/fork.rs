//! A process that forks while its client works: the child is another client, and begins anew.
//!
//! The child has copies of its parent's streams, and closes them: that sends nothing, so that here
//! there is nothing to do, and the parent goes on as if nothing had happened. With fresh machines,
//! made of the same options and of the members that the parent knew, it finds everything as any
//! client does.

use std::sync::Arc;

use sdam_core::description::TopologyType;

use super::client::Client;
use super::plan::ClientPlan;
use super::trace::Trace;
use super::world::{Event, World};

/// How many clients there may be before no process forks any more.
const MAX_CLIENTS: usize = 8;

impl World {
    /// A client's process forks, unless it is stopped.
    pub(super) fn fork(&mut self, parent: usize) {
        let child = self.clients.len();
        let client = &self.clients[parent];
        if client.closed || client.is_frozen() || child >= MAX_CLIENTS {
            return;
        }
        let plan = heir(client);
        self.network.add_client();
        let places = (Arc::clone(&self.plan.addresses), self.network.latencies(child));
        let delay = self.random.between(plan.interval / 2, plan.interval);
        self.network.plan(delay, Event::Operate { client: child });
        let trace = Trace::new(self.traced == Some(child));
        let (now, random) = (self.network.now, self.random.fork());
        self.clients.push(Client::new(child, plan, places, random, trace).born(now));
    }
}

/// Returns what a child is to do: the same, from the members that its parent knows.
fn heir(parent: &Client) -> ClientPlan {
    use TopologyType::{ReplicaSetNoPrimary, ReplicaSetWithPrimary, Sharded};

    let known = parent.view().description();
    let mut plan = parent.plan.clone();
    if let ReplicaSetNoPrimary | ReplicaSetWithPrimary | Sharded = known.topology_type {
        let members = known.servers().iter().map(|server| server.address.clone());
        let seeds = members.chain(plan.options.seeds().to_vec());
        plan.options = Arc::new(plan.options.with_seeds(seeds).expect("a few seeds more"));
    }
    plan
}
