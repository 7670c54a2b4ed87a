//! Events without gaps: each change begins with what the last one ended with, and nothing is told
//! of what has not begun, or has ended.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sdam_core::description::{ServerDescription, TopologyDescription};
use sdam_core::event::EventKind;
use sdam_core::id::ServerId;

use super::{Finding, ensure};

const CHAIN: &str = "event chains have no gaps";

#[derive(Debug, Default)]
pub(super) struct Chain {
    opened: bool,
    closed: bool,
    topology: Option<Arc<TopologyDescription>>,
    /// Servers that are open, and what was last told of them.
    servers: BTreeMap<ServerId, Option<Arc<ServerDescription>>>,
    /// Changes that precede the opening of their server.
    pools: BTreeMap<ServerId, Pool>,
}

#[derive(Debug, Default)]
struct Pool {
    closed: bool,
    connections: BTreeSet<u64>,
    last: u64,
}

impl Chain {
    pub(super) fn event(&mut self, kind: &EventKind) -> Finding {
        let first = matches!(kind, EventKind::TopologyOpening);
        // Pools that have not ended with the topology may still tell.
        ensure(first != self.opened && (!self.closed || kind.is_of_pool()), CHAIN, || {
            format!("opened {}, closed {}: {kind:?}", self.opened, self.closed)
        })?;
        match kind {
            EventKind::TopologyOpening => self.opened = true,
            EventKind::TopologyClosed => self.closed = true,
            EventKind::TopologyDescriptionChanged { previous, new } => {
                if let Some(last) = &self.topology {
                    same(last, previous)?;
                }
                self.topology = Some(Arc::clone(new));
            }
            EventKind::ServerOpening { server, .. } => {
                let known = self.servers.insert(*server, None).is_some();
                ensure(!known, CHAIN, || format!("{server} opens twice"))?;
            }
            EventKind::ServerClosed { server, .. } => {
                let known = self.servers.remove(server).is_some();
                ensure(known, CHAIN, || format!("{server} closes without being open"))?;
            }
            EventKind::ServerDescriptionChanged { previous, new } => {
                let Some(last) = self.servers.get_mut(&new.id) else {
                    return ensure(false, CHAIN, || format!("{} changes and is not open", new.id));
                };
                let follows = last.as_ref().is_none_or(|last| last.same_as(previous));
                ensure(follows, CHAIN, || format!("{} was {last:?} and now {previous:?}", new.id))?;
                ensure(!previous.same_as(new), CHAIN, || format!("{} does not change", new.id))?;
                *last = Some(Arc::clone(new));
            }
            kind => return self.pool_event(kind),
        }
        Ok(())
    }

    fn pool_event(&mut self, kind: &EventKind) -> Finding {
        let (EventKind::PoolCreated { server, .. }
        | EventKind::PoolReady { server, .. }
        | EventKind::PoolCleared { server, .. }
        | EventKind::PoolClosed { server, .. }
        | EventKind::ConnectionCreated { server, .. }
        | EventKind::ConnectionReady { server, .. }
        | EventKind::ConnectionClosed { server, .. }) = kind
        else {
            return Ok(());
        };
        if let EventKind::PoolCreated { .. } = kind {
            let known = self.pools.insert(*server, Pool::default()).is_some();
            return ensure(!known, CHAIN, || format!("{server} has two pools"));
        }
        let Some(pool) = self.pools.get_mut(server) else {
            return ensure(false, CHAIN, || format!("{server} has no pool: {kind:?}"));
        };
        match kind {
            EventKind::PoolClosed { .. } => {
                ensure(!pool.closed, CHAIN, || format!("{server} closes its pool twice"))?;
                pool.closed = true;
            }
            EventKind::ConnectionCreated { connection, .. } => {
                let number = connection.number();
                ensure(number == pool.last + 1 && !pool.closed, CHAIN, || {
                    format!("{server} creates {connection} after {}", pool.last)
                })?;
                pool.last = number;
                pool.connections.insert(number);
            }
            EventKind::ConnectionReady { connection, .. } => {
                let known = pool.connections.contains(&connection.number());
                ensure(known, CHAIN, || format!("{server} has no {connection}"))?;
            }
            EventKind::ConnectionClosed { connection, .. } => {
                let known = pool.connections.remove(&connection.number());
                ensure(known, CHAIN, || format!("{server} closes {connection}, which is not"))?;
            }
            _ => ensure(!pool.closed, CHAIN, || format!("{server} tells of a closed pool"))?,
        }
        Ok(())
    }

    /// The client was closed.
    pub(super) fn over(&self) -> Finding {
        ensure(self.closed && self.servers.is_empty(), CHAIN, || {
            format!("closed {}, and open servers: {:?}", self.closed, self.servers.keys())
        })
    }
}

/// What was last told of the topology is what it was before.
fn same(last: &TopologyDescription, previous: &TopologyDescription) -> Finding {
    let alike = last.topology_type == previous.topology_type
        && last.set_name == previous.set_name
        && last.max_election_id == previous.max_election_id
        && last.max_set_version == previous.max_set_version
        && last.servers().len() == previous.servers().len()
        && last.servers().iter().zip(previous.servers().iter()).all(|(a, b)| a.same_as(b));
    ensure(alike, CHAIN, || format!("the topology was {last:?} and now {previous:?}"))
}
