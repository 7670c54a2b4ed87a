//! Views: at most one primary, (electionId, setVersion) that never goes back, and servers whose
//! pools are there and ready.

use std::collections::BTreeSet;

use bson::oid::ObjectId;
use sdam_core::bson;
use sdam_core::description::{ServerType, TopologyType};
use sdam_core::id::ServerId;
use sdam_core::selection::Snapshot;

use super::{Finding, ensure};

const REMOVED: &str = "nothing of a removed server";

#[derive(Debug)]
pub(super) struct Views {
    /// Whether electionId is compared before setVersion, as since 6.0.
    election_id_first: bool,
    joined: BTreeSet<ServerId>,
    latest: (Option<ObjectId>, Option<i64>),
}

impl Views {
    pub(super) const fn new(election_id_first: bool) -> Self {
        Self { election_id_first, joined: BTreeSet::new(), latest: (None, None) }
    }

    pub(super) fn joined(&mut self, server: ServerId) -> Finding {
        let greatest = self.joined.last().is_none_or(|last| *last < server);
        self.joined.insert(server);
        ensure(greatest, "ids are never reused", || format!("{server} joins"))
    }

    pub(super) fn left(&mut self, server: ServerId) -> Finding {
        ensure(self.joined.remove(&server), REMOVED, || format!("{server} leaves twice"))
    }

    pub(super) fn is_member(&self, server: ServerId) -> bool {
        self.joined.contains(&server)
    }

    pub(super) fn pool(&self, server: ServerId) -> Finding {
        ensure(self.joined.contains(&server), REMOVED, || format!("a command for {server}"))
    }

    pub(super) fn published(
        &mut self,
        snapshot: &Snapshot,
        is_ready: impl Fn(ServerId) -> Option<bool>,
    ) -> Finding {
        let description = snapshot.description();
        let mut primaries = 0;
        for server in description.servers().iter() {
            ensure(self.joined.contains(&server.id), REMOVED, || {
                format!("{} is published and has not joined", server.id)
            })?;
            primaries += usize::from(server.server_type == ServerType::RsPrimary);
            let single = description.topology_type == TopologyType::Single;
            let usable = server.server_type.is_data_bearing()
                || single && server.server_type != ServerType::Unknown;
            let ready = is_ready(server.id).unwrap_or(false);
            ensure(!usable || ready, "views name servers with pools that are ready", || {
                format!("{} is {} and its pool is paused", server.id, server.server_type)
            })?;
        }
        ensure(primaries <= 1, "at most one primary in a view", || {
            format!("{primaries} of {}", description.servers().len())
        })?;
        let has = description.topology_type == TopologyType::ReplicaSetWithPrimary;
        let single = description.topology_type == TopologyType::Single;
        ensure(single || has == (primaries == 1), "the topology's type follows", || {
            format!("{} with {primaries} primaries", description.topology_type)
        })?;
        let latest = (description.max_election_id, description.max_set_version);
        if let Some(primary) = description.primary().filter(|_| !single) {
            let its = (primary.election_id, primary.set_version);
            ensure(its == latest, "the primary in a view is the latest", || {
                format!("{} has {its:?}, and the latest is {latest:?}", primary.address)
            })?;
        }
        self.follow(latest.0, latest.1)
    }

    fn follow(&mut self, id: Option<ObjectId>, version: Option<i64>) -> Finding {
        // The client was closed, and knows nothing any more.
        if (id, version) == (None, None) {
            return Ok(());
        }
        let before = std::mem::replace(&mut self.latest, (id, version));
        let grows = match self.election_id_first {
            true => before <= (id, version),
            false => (before.1, before.0) <= (version, id),
        };
        ensure(grows, "(electionId, setVersion) never goes back", || {
            format!("{before:?}, then {:?}", (id, version))
        })
    }
}
