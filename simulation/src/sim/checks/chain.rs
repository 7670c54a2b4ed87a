//! Events without gaps: each change begins with what the last one ended with, and no event is about
//! what has not begun, or has ended.

use std::collections::BTreeMap;
use std::sync::Arc;

use sdam_core::config::ServerAddress;
use sdam_core::description::{ServerDescription, ServerType, TopologyDescription};
use sdam_core::id::ServerId;
use sdam_core::pool::PoolEvent;
use sdam_core::topology::EventKind;

use super::{Finding, ensure};

#[cfg(test)]
mod tests;

const CHAIN: &str = "event chains have no gaps";

#[derive(Debug, Default)]
pub(super) struct Chain {
    opened: bool,
    closed: bool,
    topology: Arc<TopologyDescription>,
    /// The last view that was published, until it is compared with the events.
    published: Option<Arc<TopologyDescription>>,
    /// True if every check-out and return has an event.
    lends_aloud: bool,
    /// Servers that are open, and what events last said of them.
    servers: BTreeMap<ServerId, Announced>,
    pools: BTreeMap<ServerId, Pool>,
}

/// The last event of a server.
#[derive(Debug)]
enum Announced {
    /// That it joined.
    Address(ServerAddress),
    Description(Arc<ServerDescription>),
}

#[derive(Debug, Default)]
struct Pool {
    closed: bool,
    /// Connections, and whether they are in use.
    connections: BTreeMap<u64, bool>,
    last: u64,
    /// The number of operations that have asked for a connection, and have not been answered.
    asking: u64,
}

impl Chain {
    pub(super) fn event(&mut self, kind: &EventKind) -> Finding {
        let first = matches!(kind, EventKind::TopologyOpening);
        // Pools that have not ended with the topology may still have events.
        ensure(
            first != self.opened && (!self.closed || matches!(kind, EventKind::Pool { .. })),
            CHAIN,
            || format!("opened {}, closed {}: {kind:?}", self.opened, self.closed),
        )?;
        match kind {
            EventKind::TopologyOpening => self.opened = true,
            EventKind::TopologyClosed => self.closed = true,
            EventKind::TopologyDescriptionChanged { previous, new } => {
                // In the beginning nothing is known, as it was before.
                same(&self.topology, previous)?;
                self.topology = Arc::clone(new);
            }
            EventKind::ServerOpening { server, address } => {
                let told = Announced::Address(address.clone());
                let known = self.servers.insert(*server, told).is_some();
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
                let follows = last.is_followed_by(previous);
                ensure(follows, CHAIN, || format!("{} was {last:?} and now {previous:?}", new.id))?;
                ensure(!previous.same_as(new), CHAIN, || format!("{} does not change", new.id))?;
                *last = Announced::Description(Arc::clone(new));
            }
            EventKind::Pool { server, event, .. } => return self.pool_event(*server, event),
            EventKind::ServerHeartbeatStarted { .. }
            | EventKind::ServerHeartbeatSucceeded { .. }
            | EventKind::ServerHeartbeatFailed { .. }
            | EventKind::Diagnosed { .. }
            | EventKind::SrvHostRefused { .. }
            | EventKind::SrvRescanFailed { .. } => {}
            other => return ensure(false, CHAIN, || format!("an unknown event: {other:?}")),
        }
        Ok(())
    }

    fn pool_event(&mut self, server: ServerId, event: &PoolEvent) -> Finding {
        if let PoolEvent::PoolCreated { .. } = event {
            let known = self.pools.insert(server, Pool::default()).is_some();
            return ensure(!known, CHAIN, || format!("{server} has two pools"));
        }
        let Some(pool) = self.pools.get_mut(&server) else {
            return ensure(false, CHAIN, || format!("{server} has no pool: {event:?}"));
        };
        match event {
            PoolEvent::PoolClosed => {
                ensure(!pool.closed, CHAIN, || format!("{server} closes its pool twice"))?;
                pool.closed = true;
            }
            PoolEvent::ConnectionCreated { connection, .. } => {
                let number = connection.number();
                ensure(number == pool.last + 1 && !pool.closed, CHAIN, || {
                    format!("{server} creates {connection} after {}", pool.last)
                })?;
                pool.last = number;
                pool.connections.insert(number, false);
            }
            PoolEvent::ConnectionReady { connection, .. } => {
                let known = pool.connections.contains_key(&connection.number());
                ensure(known, CHAIN, || format!("{server} has no {connection}"))?;
            }
            PoolEvent::ConnectionClosed { connection, .. } => {
                let known = pool.connections.remove(&connection.number()).is_some();
                ensure(known, CHAIN, || format!("{server} closes {connection}, which is not"))?;
            }
            PoolEvent::ConnectionCheckOutStarted => pool.asking += 1,
            PoolEvent::ConnectionCheckOutFailed { .. } => pool.answer(event)?,
            PoolEvent::ConnectionCheckedOut { connection, .. } => {
                pool.answer(event)?;
                pool.check_out(connection.number(), true, self.lends_aloud)?;
            }
            PoolEvent::ConnectionCheckedIn { connection, .. } => {
                pool.check_out(connection.number(), false, self.lends_aloud)?;
            }
            _ => ensure(!pool.closed, CHAIN, || format!("{server} reports a closed pool"))?,
        }
        Ok(())
    }

    /// Every check-out and return has an event from now on.
    pub(super) const fn lends_aloud(&mut self) {
        self.lends_aloud = true;
    }

    pub(super) fn published(&mut self, view: &Arc<TopologyDescription>) {
        self.published = Some(Arc::clone(view));
    }

    /// A step is over: what the last event said is what views show.
    pub(super) fn after_step(&mut self) -> Finding {
        match self.published.take() {
            Some(view) if self.opened => same(&self.topology, &view),
            _ => Ok(()),
        }
    }

    /// The client was closed.
    pub(super) fn over(&self) -> Finding {
        ensure(self.closed && self.servers.is_empty(), CHAIN, || {
            format!("closed {}, and open servers: {:?}", self.closed, self.servers.keys())
        })?;
        let open = self.pools.iter().find(|(_, pool)| !pool.closed);
        ensure(open.is_none(), CHAIN, || format!("the client is closed, and not {open:?}"))
    }

    /// Everything has ended.
    pub(super) fn ended(&self) -> Finding {
        let rests = |pool: &Pool| pool.connections.is_empty() && pool.asking == 0;
        let left = self.pools.iter().find(|(_, pool)| !rests(pool));
        ensure(left.is_none(), CHAIN, || format!("the end of {left:?} is not reported"))
    }
}

impl Announced {
    /// Returns whether a change may begin with this; a server that has joined is Unknown, and
    /// nothing is wrong with it.
    fn is_followed_by(&self, previous: &ServerDescription) -> bool {
        match self {
            Self::Description(last) => last.same_as(previous),
            Self::Address(address) => {
                previous.address == *address
                    && previous.server_type == ServerType::Unknown
                    && previous.error.is_none()
                    && previous.topology_version.is_none()
            }
        }
    }
}

impl Pool {
    /// Somebody who has asked for a connection is answered.
    fn answer(&mut self, event: &PoolEvent) -> Finding {
        ensure(self.asking > 0, CHAIN, || format!("nothing has asked: {event:?}"))?;
        self.asking -= 1;
        Ok(())
    }

    /// A connection is checked out, or is returned.
    fn check_out(&mut self, connection: u64, checked_out: bool, aloud: bool) -> Finding {
        let Some(was_lent) = self.connections.get_mut(&connection) else {
            return ensure(false, CHAIN, || {
                format!("{connection} is none, and lent: {checked_out}")
            });
        };
        let before = std::mem::replace(was_lent, checked_out);
        ensure(before != checked_out || !aloud, CHAIN, || {
            format!("{connection} is lent twice: {checked_out}")
        })
    }
}

/// Asserts that the last description of the topology is the previous one.
fn same(last: &TopologyDescription, previous: &TopologyDescription) -> Finding {
    let alike = last.topology_type == previous.topology_type
        && last.set_name == previous.set_name
        && last.max_election_id == previous.max_election_id
        && last.max_set_version == previous.max_set_version
        && last.servers().len() == previous.servers().len()
        && last.servers().iter().zip(previous.servers().iter()).all(|(a, b)| a.same_as(b));
    ensure(alike, CHAIN, || format!("the topology was {last:?} and now {previous:?}"))
}
