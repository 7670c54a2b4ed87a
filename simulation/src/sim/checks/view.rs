//! Views: at most one primary, (electionId, setVersion) that never goes back, and servers whose
//! pools are there and ready.

use std::collections::BTreeSet;

use bson::oid::ObjectId;
use sdam_core::bson;
use sdam_core::description::{ServerType, TopologyDescription, TopologyType};
use sdam_core::id::{LinkId, ServerId};

use super::{Finding, ensure};

const REMOVED: &str = "nothing of a removed server";

/// electionId and setVersion of the latest primary.
type Latest = (Option<ObjectId>, Option<i64>);

/// From which maxWireVersion on a primary's electionId is compared before its setVersion.
pub(in crate::sim) const ELECTION_ID_FIRST: i32 = 17;

#[derive(Debug, Default)]
pub(super) struct Views {
    joined: BTreeSet<ServerId>,
    /// Those that have ever joined.
    known: BTreeSet<ServerId>,
    latest: Latest,
    /// The number of times that a newer primary had an older configuration.
    pub(super) losses: u64,
}

impl Views {
    pub(super) fn joined(&mut self, server: ServerId) -> Finding {
        self.joined.insert(server);
        ensure(self.known.insert(server), "ids are never reused", || format!("{server} joins"))
    }

    pub(super) fn left(&mut self, server: ServerId) -> Finding {
        ensure(self.joined.remove(&server), REMOVED, || format!("{server} leaves twice"))
    }

    pub(super) fn is_member(&self, server: ServerId) -> bool {
        self.joined.contains(&server)
    }

    /// Only links of members are opened and used.
    pub(super) fn link(&self, link: LinkId) -> Finding {
        ensure(self.is_member(link.server()), REMOVED, || format!("{link} is used"))
    }

    pub(super) fn pool(&self, server: ServerId) -> Finding {
        ensure(self.joined.contains(&server), REMOVED, || format!("a command for {server}"))
    }

    pub(super) fn published(
        &mut self,
        description: &TopologyDescription,
        is_ready: impl Fn(ServerId) -> Option<bool>,
    ) -> Finding {
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
        one_primary(description.topology_type, primaries)?;
        let single = description.topology_type == TopologyType::Single;
        let latest = (description.max_election_id, description.max_set_version);
        let primary = description.primary().filter(|_| !single);
        if let Some(primary) = primary {
            let its = (primary.election_id, primary.set_version);
            ensure(its == latest, "the primary in a view is the latest", || {
                format!("{} has {its:?}, and the latest is {latest:?}", primary.address)
            })?;
        }
        if description.servers().is_empty() {
            // The client was closed, or begins again with its seeds.
            self.latest = latest;
            return Ok(());
        }
        self.follow(latest, primary.map(|it| it.max_wire_version))
    }

    /// "updateRSFromPrimary": how a primary compares with the latest depends on the version of the
    /// one that responds. Each raises the pair in its own order, so that in a set of mixed versions
    /// either half may fall: setVersion when one of 6.0 responds, electionId when an older one does
    /// (specifications#1122). Nothing but a primary moves it at all; one that does not name itself
    /// among its hosts, as when another member's name leads to it, is not in the view after that.
    fn follow(&mut self, latest: Latest, wire_version: Option<i32>) -> Finding {
        let before = std::mem::replace(&mut self.latest, latest);
        let by_election = before <= latest;
        let by_version = (before.1, before.0) <= (latest.1, latest.0);
        self.losses += u64::from(by_election != by_version);
        let grows = match wire_version {
            None => by_election || by_version,
            Some(ELECTION_ID_FIRST..) => by_election,
            Some(_) => by_version,
        };
        ensure(grows, "(electionId, setVersion) never goes back", || {
            format!("{before:?}, then {latest:?} of a primary that speaks {wire_version:?}")
        })
    }
}

/// A topology that has a primary has one, and others have none.
fn one_primary(topology_type: TopologyType, primaries: usize) -> Finding {
    ensure(primaries <= 1, "at most one primary in a view", || format!("there are {primaries}"))?;
    let has = topology_type == TopologyType::ReplicaSetWithPrimary;
    let single = topology_type == TopologyType::Single;
    ensure(single || has == (primaries == 1), "the topology's type follows", || {
        format!("{topology_type} with {primaries} primaries")
    })
}

#[cfg(test)]
mod tests {
    use super::{
        ELECTION_ID_FIRST, ObjectId, REMOVED, ServerId, TopologyDescription, TopologyType, Views,
        one_primary,
    };
    use crate::sim::quiet::{PLAIN, quiet_world};

    /// Returns the view of a replica set with a primary.
    fn seen() -> TopologyDescription {
        TopologyDescription::clone(&quiet_world(PLAIN).clients[0].view())
    }

    /// Returns which check refuses a view whose servers have all joined.
    fn refused(view: &TopologyDescription, is_ready: Option<bool>) -> Option<&'static str> {
        let mut views = Views::default();
        view.servers().iter().for_each(|server| views.joined(server.id).unwrap());
        views.published(view, |_| is_ready).err().map(|violation| violation.check)
    }

    #[test]
    fn views_name_members_with_pools_that_are_ready() {
        let view = seen();
        assert_eq!(refused(&view, Some(true)), None);
        for is_ready in [Some(false), None] {
            assert_eq!(
                refused(&view, is_ready),
                Some("views name servers with pools that are ready")
            );
        }
        let found = Views::default().published(&view, |_| Some(true)).unwrap_err();
        assert_eq!(found.check, REMOVED, "no server has joined");
    }

    #[test]
    fn servers_join_once_and_nothing_is_done_for_one_that_has_left() {
        let (mut views, server): (_, ServerId) = (Views::default(), seen().servers()[0].id);
        assert!(views.pool(server).is_err() && views.left(server).is_err());
        assert!(views.joined(server).is_ok() && views.pool(server).is_ok());
        assert!(views.left(server).is_ok() && views.pool(server).is_err());
        assert!(views.joined(server).is_err(), "ids are never reused");
    }

    /// SDAM, "updateRSFromPrimary".
    #[test]
    fn the_primary_in_a_view_is_the_only_one_and_that_of_the_latest_election() {
        let (with, without) = (TopologyType::ReplicaSetWithPrimary, TopologyType::Sharded);
        assert!(one_primary(with, 1).is_ok() && one_primary(without, 0).is_ok());
        assert!(
            [(with, 0), (with, 2), (without, 1)].iter().all(|it| one_primary(it.0, it.1).is_err())
        );
        assert!(one_primary(TopologyType::Single, 1).is_ok());
        let mut view = seen();
        view.max_election_id = Some(ObjectId::from_bytes([0xff; 12]));
        assert_eq!(refused(&view, Some(true)), Some("the primary in a view is the latest"));
    }

    /// Returns whether a primary of this version may be followed by these, of (term, setVersion).
    fn may_follow(first: (u8, i64), then: (u8, i64), wire_version: Option<i32>) -> bool {
        let latest =
            |(term, version): (u8, i64)| (Some(ObjectId::from_bytes([term; 12])), Some(version));
        let mut views = Views::default();
        views.follow(latest(first), Some(ELECTION_ID_FIRST)).unwrap();
        views.follow(latest(then), wire_version).is_ok()
    }

    /// SDAM, "updateRSFromPrimary".
    #[test]
    fn the_version_of_the_primary_that_responds_decides_what_may_go_back() {
        let (old, new) = (Some(ELECTION_ID_FIRST - 1), Some(ELECTION_ID_FIRST));
        assert!(may_follow((1, 2), (2, 1), new) && !may_follow((1, 2), (2, 1), old));
        assert!(may_follow((2, 1), (1, 2), old) && !may_follow((2, 1), (1, 2), new));
        for version in [old, new] {
            assert!(may_follow((1, 1), (1, 1), version) && may_follow((1, 1), (2, 2), version));
            assert!(!may_follow((2, 2), (1, 1), version));
        }
        for then in [(1, 1), (2, 2), (1, 2), (2, 1)] {
            assert!(may_follow((1, 1), then, None), "of a primary that does not name itself");
        }
        assert!(!may_follow((2, 2), (1, 1), None));
    }
}
