//! The state of the deployment, for a comparison with a client's view.

use std::collections::{BTreeMap, BTreeSet};

use bson::oid::ObjectId;
use sdam_core::bson;
use sdam_core::config::ServerAddress;
use sdam_core::description::ServerType;

use super::{Cluster, Process, Role};
use crate::options::{MemberId, MemberOptions};
use crate::wire::reply;

/// A deployment at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClusterState {
    /// All servers that there have ever been, also those that are down or have left the set.
    pub members: BTreeMap<MemberId, MemberState>,
    /// The addresses that a client of a replica set knows in the end, if it can reach the members:
    /// those of all that are not hidden. Of mongos, which do not name each other, it is all.
    pub known: BTreeSet<ServerAddress>,
}

/// The condition of a server's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Condition {
    /// There is none.
    Down,
    /// It does not answer.
    Frozen,
    /// It says that it is shutting down.
    Ending,
    /// It answers.
    Answering,
}

/// A server at one moment, as a client that asks it now should see it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemberState {
    /// The address at which clients reach it.
    pub address: ServerAddress,
    /// The condition of its process.
    pub condition: Condition,
    /// True if the other members do not reach it.
    pub cut_off: bool,
    /// The type that it claims; Unknown if it is down, frozen, or shutting down.
    pub server_type: ServerType,
    /// The name of the set that it says.
    pub set_name: Option<String>,
    /// The version of the configuration that it says.
    pub set_version: Option<i64>,
    /// The election that it says it has won.
    pub election_id: Option<ObjectId>,
    /// The newest wire version that it says it speaks.
    pub max_wire_version: Option<i32>,
    /// The addresses that it names.
    pub named: BTreeSet<ServerAddress>,
    /// The tags that it says it has.
    pub tags: BTreeMap<String, String>,
    /// Its options in the newest configuration, if it belongs to the set.
    pub options: Option<MemberOptions>,
}

impl Cluster {
    /// Returns how things are at this moment, as clients of a horizon see it, or, without one or
    /// with one that there is not, those who use the members' own addresses.
    pub fn state(&self, horizon: Option<&str>) -> ClusterState {
        let all = (0..self.members.len()).map(MemberId);
        let members = all.map(|member| (member, self.member_state(member, horizon))).collect();
        let config = &self.config;
        let known = [config.hosts(horizon), config.passives(horizon), config.arbiters(horizon)];
        ClusterState { members, known: known.into_iter().flatten().cloned().collect() }
    }

    /// Returns a number that is another one whenever the [state](Self::state) may be.
    pub const fn revision(&self) -> u64 {
        self.revision
    }

    /// Returns whether nothing but an input is going to change the [state](Self::state).
    ///
    /// That there is no primary is such a state if none can be elected.
    pub fn is_at_rest(&self) -> bool {
        let has_primary = self.primary().is_some();
        let changes = |process: &Process| {
            let syncs = process.synced_at.is_some() && has_primary;
            process.ends_at.is_some() || process.learns_at.is_some() || syncs
        };
        let electable = || self.processes().any(|(id, process)| self.is_candidate(id, process));
        let election = self.election_at.is_some() && (has_primary || electable());
        let moves = election || self.takeover.is_some();
        self.begun && !moves && !self.processes().any(|(_, process)| changes(process))
    }

    /// Returns whether a member without a valid configuration says of which set it has been.
    pub(crate) fn ghost_names_set(&self, member: MemberId, process: &Process) -> bool {
        !process.version.has_awaitable_hello() && self.members[member.0].config.is_some()
    }

    fn member_state(&self, id: MemberId, horizon: Option<&str>) -> MemberState {
        let member = &self.members[id.0];
        let options = self.config.get(id);
        let mut state = MemberState {
            address: options.map_or(&member.address, |it| it.address_under(horizon)).clone(),
            condition: match &member.process {
                None => Condition::Down,
                Some(process) if process.frozen => Condition::Frozen,
                Some(process) if process.is_ending() => Condition::Ending,
                Some(_) => Condition::Answering,
            },
            cut_off: member.cut_off,
            server_type: ServerType::Unknown,
            set_name: None,
            set_version: None,
            election_id: None,
            max_wire_version: None,
            named: BTreeSet::new(),
            tags: BTreeMap::new(),
            options: options.cloned(),
        };
        let answers = state.condition == Condition::Answering;
        let Some(process) = member.process.as_ref().filter(|_| answers) else {
            return state;
        };
        state.max_wire_version = Some(process.version.max_wire_version());
        let hidden = member.config.as_ref().and_then(|it| it.get(id)).is_some_and(|it| it.hidden);
        state.server_type = match process.role {
            Role::Unconfigured => ServerType::RsGhost,
            Role::Mongos => ServerType::Mongos,
            Role::Standalone => ServerType::Standalone,
            Role::Primary { .. } => ServerType::RsPrimary,
            _ if hidden => ServerType::RsOther,
            Role::Startup => ServerType::RsOther,
            Role::Arbiter => ServerType::RsArbiter,
            Role::Secondary => ServerType::RsSecondary,
        };
        let config = member.config.as_ref().filter(|it| it.contains(id));
        if let Some(config) = config.filter(|_| process.role.is_of_set()) {
            let named = [config.hosts(horizon), config.passives(horizon), config.arbiters(horizon)];
            state.named = named.into_iter().flatten().cloned().collect();
            state.set_name = Some(self.options.set_name.clone());
            state.set_version = Some(config.version.into());
            state.tags =
                config.get(id).into_iter().flat_map(|it| it.tags.iter().cloned()).collect();
        }
        if process.role == Role::Unconfigured && self.ghost_names_set(id, process) {
            state.set_name = Some(self.options.set_name.clone());
        }
        if let Role::Primary { term, .. } = process.role {
            state.election_id = Some(reply::election_id(term));
        }
        state
    }
}
