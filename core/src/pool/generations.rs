//! Generations: which connections of a pool are stale.

use std::collections::BTreeMap;

use bson::oid::ObjectId;
use serde::{Serialize, Serializer};

use crate::id::Generation;

/// The number of services of a load balancer that are remembered.
const MAX_SERVICES: usize = 10_000;

/// The generations of a pool, as its topology has begun them; both keep them, and forget the same.
///
/// Deviates from "Load Balancer Mode": a service's entry is kept after its last connection has
/// gone. The topology begins generations, and keeps counting; if the pool forgot, the connections
/// it makes next would look stale to the topology, and so would their errors. An entry comes with
/// the first clear of a service, and the generation of all others is 0.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Generations {
    pool: Generation,
    #[serde(serialize_with = "by_service")]
    services: BTreeMap<ObjectId, Generation>,
}

fn by_service<S: Serializer>(
    services: &BTreeMap<ObjectId, Generation>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(services.iter().map(|(service, it)| (service.to_hex(), it)))
}

impl Generations {
    /// Returns the generation that connections made now belong to.
    pub(crate) fn current(&self, service: Option<ObjectId>) -> Generation {
        match service {
            Some(service) => self.services.get(&service).copied().unwrap_or_default(),
            None => self.pool,
        }
    }

    /// Begins a generation; returns whether it is news.
    pub(crate) fn begin(&mut self, to: Generation) -> bool {
        let news = self.pool < to;
        self.pool = self.pool.max(to);
        news
    }

    /// Begins a generation of one service; returns whether it is news.
    pub(crate) fn begin_service(&mut self, service: ObjectId, to: Generation) -> bool {
        if to <= self.current(Some(service)) {
            return false;
        }
        self.services.insert(service, to);
        if self.services.len() > MAX_SERVICES {
            // An id begins with the time when its process started: the oldest one goes.
            self.services.pop_first();
        }
        true
    }
}
