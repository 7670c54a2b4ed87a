//! The effect of one server's new description on that of the topology.
//!
//! To be read beside "Updating the TopologyDescription" of the SDAM specification, in its order:
//! [`Update::apply`] is the TopologyType table, and each of the specification's actions is a method
//! of the same name.

use std::collections::BTreeSet;
use std::sync::Arc;

use bson::oid::ObjectId;

use crate::config::{Options, ServerAddress};
use crate::description::{
    Replaced, ServerDescription, ServerType, TopologyDescription, TopologyType,
};
use crate::diagnosis::Staleness;
use crate::failure::{Cause, Failure, Stage};
use crate::id::ServerId;
use crate::time::Instant;

/// From 6.0 on, electionId is compared before setVersion.
const ELECTION_ID_FIRST_WIRE_VERSION: i32 = 17;

/// Describes the deployment that `options` name, before anything was heard of it.
pub(super) fn initial_description(options: &Options) -> TopologyDescription {
    TopologyDescription::of_seeds(
        initial_type(options),
        options.replica_set().cloned(),
        options.heartbeat_frequency(),
        options.seeds(),
    )
}

/// Returns the type a client starts with (SDAM: "Initial TopologyType").
fn initial_type(options: &Options) -> TopologyType {
    if options.load_balanced() {
        TopologyType::LoadBalanced
    } else if options.direct_connection() {
        TopologyType::Single
    } else if options.replica_set().is_some() {
        TopologyType::ReplicaSetNoPrimary
    } else {
        TopologyType::Unknown
    }
}

/// An update of a topology in progress, and what it has done so far.
#[derive(Debug)]
pub(super) struct Update<'a> {
    options: &'a Options,
    now: Instant,
    /// The server whose description is new, if a server's is.
    pub(super) server: Option<ServerId>,
    /// The description as it is becoming.
    pub(super) topology: TopologyDescription,
    /// Descriptions replaced by others that are not the same: old and new, in order.
    pub(super) changed: Vec<Replaced>,
    /// Servers that joined, in order.
    pub(super) added: Vec<Arc<ServerDescription>>,
    /// Servers that left, in order.
    pub(super) removed: Vec<Arc<ServerDescription>>,
    /// The replaced server and its place, if that is all that was done to the servers.
    pub(super) sole: Option<(usize, Arc<ServerDescription>)>,
    replacements: usize,
    /// Servers to check as soon as possible.
    pub(super) recheck: Vec<ServerId>,
    /// The server, if it claims to be primary and another one was elected since.
    pub(super) stale: Option<Staleness>,
}

impl<'a> Update<'a> {
    /// Replaces the description of one server and does what the TopologyType table asks for.
    ///
    /// Returns `None` if the new description must be ignored: its server has left, or it is staler
    /// than what is known (SDAM: "topologyVersion Comparison").
    pub(super) fn new(
        topology: &TopologyDescription,
        options: &'a Options,
        now: Instant,
        server: Arc<ServerDescription>,
    ) -> Option<Self> {
        let current = topology.server(&server.address).filter(|known| known.id == server.id)?;
        if let (Some(new), Some(known)) = (&server.topology_version, &current.topology_version)
            && new.is_older_than(known)
        {
            return None;
        }
        let mut update = Self::begin(topology, options, now, Some(server.id));
        update.apply(server);
        update.summarise();
        Some(update)
    }

    /// Adds and removes hosts as a seed list has changed (Polling SRV Records).
    pub(super) fn of_hosts(
        topology: &TopologyDescription,
        options: &'a Options,
        now: Instant,
        added: &[ServerAddress],
        removed: &[ServerAddress],
    ) -> Self {
        let mut update = Self::begin(topology, options, now, None);
        let removed: BTreeSet<&ServerAddress> = removed.iter().collect();
        update.retain(|known| !removed.contains(&known.address));
        update.added = update.topology.add(added);
        update.summarise();
        update
    }

    fn begin(
        topology: &TopologyDescription,
        options: &'a Options,
        now: Instant,
        server: Option<ServerId>,
    ) -> Self {
        Self {
            options,
            now,
            server,
            topology: topology.clone(),
            changed: Vec::new(),
            added: Vec::new(),
            removed: Vec::new(),
            sole: None,
            replacements: 0,
            recheck: Vec::new(),
            stale: None,
        }
    }

    fn summarise(&mut self) {
        if self.has_changed_servers() {
            self.topology.summarise();
        }
        if !(self.added.is_empty() && self.removed.is_empty()) {
            self.sole = None;
        }
    }

    fn has_changed_servers(&self) -> bool {
        !(self.changed.is_empty() && self.added.is_empty() && self.removed.is_empty())
    }

    /// Returns whether anything has changed that events report.
    pub(super) fn is_news(&self, previous: &TopologyDescription) -> bool {
        self.has_changed_servers() || !self.topology.differs_in_servers_only(previous)
    }

    /// The TopologyType table: the new server's type by the current topology's type.
    fn apply(&mut self, server: Arc<ServerDescription>) {
        use TopologyType as T;
        match (self.topology.topology_type, server.server_type) {
            (T::Single, _) => self.single(server),
            (T::LoadBalanced, _) => {
                self.replace(server);
            }
            (T::ReplicaSetWithPrimary | T::ReplicaSetNoPrimary, ServerType::RsPrimary) => {
                self.update_rs_from_primary(server);
            }
            (T::Unknown, ServerType::RsPrimary) => {
                self.topology.topology_type = T::ReplicaSetWithPrimary;
                self.update_rs_from_primary(server);
            }
            (topology_type, _) => {
                let server = self.replace(server);
                match topology_type {
                    T::Unknown => self.unknown(&server),
                    T::Sharded => self.sharded(&server),
                    T::ReplicaSetNoPrimary => self.replica_set_no_primary(&server),
                    T::ReplicaSetWithPrimary => self.replica_set_with_primary(&server),
                    T::Single | T::LoadBalanced => {}
                }
            }
        }
    }

    /// "TopologyType Single", with "Verifying setName with TopologyType Single".
    fn single(&mut self, server: Arc<ServerDescription>) {
        let wanted = self.topology.set_name.clone();
        match wanted.filter(|_| server.server_type != ServerType::Unknown) {
            Some(wanted) if server.set_name.as_ref() != Some(&wanted) => {
                let detail = match &server.set_name {
                    Some(found) => {
                        format!("the server is in replica set {found:?}, not {wanted:?}")
                    }
                    None => {
                        format!("the server is in no replica set, and {wanted:?} was asked for")
                    }
                };
                let failure = Failure::new(Stage::Hello, Cause::WrongSetName, detail);
                self.replace(Arc::new(server.failed(self.now, failure)));
            }
            _ => {
                self.replace(server);
            }
        }
    }

    fn unknown(&mut self, server: &ServerDescription) {
        match server.server_type {
            ServerType::Unknown | ServerType::RsGhost | ServerType::LoadBalancer => {}
            ServerType::Standalone => self.update_unknown_with_standalone(server),
            ServerType::Mongos => self.topology.topology_type = TopologyType::Sharded,
            ServerType::RsSecondary | ServerType::RsArbiter | ServerType::RsOther => {
                self.topology.topology_type = TopologyType::ReplicaSetNoPrimary;
                self.update_rs_without_primary(server);
            }
            ServerType::RsPrimary => unreachable!("apply() has seen to it"),
        }
    }

    fn sharded(&mut self, server: &ServerDescription) {
        match server.server_type {
            ServerType::Unknown | ServerType::Mongos | ServerType::LoadBalancer => {}
            ServerType::Standalone
            | ServerType::RsPrimary
            | ServerType::RsSecondary
            | ServerType::RsArbiter
            | ServerType::RsOther
            | ServerType::RsGhost => self.remove(&server.address),
        }
    }

    fn replica_set_no_primary(&mut self, server: &ServerDescription) {
        match server.server_type {
            ServerType::Unknown | ServerType::RsGhost | ServerType::LoadBalancer => {}
            ServerType::Standalone | ServerType::Mongos => self.remove(&server.address),
            ServerType::RsSecondary | ServerType::RsArbiter | ServerType::RsOther => {
                self.update_rs_without_primary(server);
            }
            ServerType::RsPrimary => unreachable!("apply() has seen to it"),
        }
    }

    fn replica_set_with_primary(&mut self, server: &ServerDescription) {
        match server.server_type {
            ServerType::Unknown | ServerType::RsGhost | ServerType::LoadBalancer => {
                self.check_if_has_primary();
            }
            ServerType::Standalone | ServerType::Mongos => {
                self.remove(&server.address);
                self.check_if_has_primary();
            }
            ServerType::RsSecondary | ServerType::RsArbiter | ServerType::RsOther => {
                self.update_rs_with_primary_from_member(server);
            }
            ServerType::RsPrimary => unreachable!("apply() has seen to it"),
        }
    }

    fn update_unknown_with_standalone(&mut self, server: &ServerDescription) {
        // Of a sole initial seed, DNS may have made several hosts since; "Single" is one server.
        if self.options.seeds().len() == 1 && self.topology.servers().len() == 1 {
            self.topology.topology_type = TopologyType::Single;
        } else {
            self.remove(&server.address);
        }
    }

    fn update_rs_without_primary(&mut self, server: &ServerDescription) {
        match &self.topology.set_name {
            None => self.topology.set_name.clone_from(&server.set_name),
            Some(name) if Some(name) != server.set_name.as_ref() => {
                return self.remove(&server.address);
            }
            Some(_) => {}
        }
        self.add_members_of(server);
        if is_known_by_another_name(server) {
            self.remove(&server.address);
        }
    }

    fn update_rs_with_primary_from_member(&mut self, server: &ServerDescription) {
        if self.topology.set_name != server.set_name || is_known_by_another_name(server) {
            self.remove(&server.address);
        }
        self.check_if_has_primary();
    }

    fn update_rs_from_primary(&mut self, server: Arc<ServerDescription>) {
        match &self.topology.set_name {
            None => self.topology.set_name.clone_from(&server.set_name),
            Some(name) if Some(name) != server.set_name.as_ref() => {
                let server = self.replace(server);
                self.remove(&server.address);
                return self.check_if_has_primary();
            }
            Some(_) => {}
        }
        if let Err(staleness) = self.judge_staleness(&server) {
            let failure = staleness.failure();
            self.stale = Some(staleness);
            self.replace(Arc::new(server.failed(self.now, failure)));
            return self.check_if_has_primary();
        }
        let server = self.replace(server);
        self.invalidate_other_primaries(&server);
        self.add_members_of(&server);
        let members: BTreeSet<&ServerAddress> = server.members().collect();
        self.retain(|known| members.contains(&known.address));
        self.check_if_has_primary();
    }

    /// "Using electionId and setVersion to detect stale primaries": raises the maxima, or says why
    /// the primary is stale.
    fn judge_staleness(&mut self, server: &ServerDescription) -> Result<(), Staleness> {
        let (election_id, set_version) = (server.election_id, server.set_version);
        let (max_id, max_version) = (self.topology.max_election_id, self.topology.max_set_version);
        if server.max_wire_version >= ELECTION_ID_FIRST_WIRE_VERSION {
            // `None` sorts first, as the specification asks for null.
            if (election_id, set_version) < (max_id, max_version) {
                return Err(stale(server, (max_id, max_version)));
            }
            self.topology.max_election_id = election_id;
            self.topology.max_set_version = set_version;
            return Ok(());
        }
        if let (Some(id), Some(version)) = (election_id, set_version) {
            if let (Some(max_id), Some(max_version)) = (max_id, max_version)
                && (max_version, max_id) > (version, id)
            {
                return Err(stale(server, (Some(max_id), Some(max_version))));
            }
            self.topology.max_election_id = election_id;
        }
        self.topology.max_set_version = max_version.max(set_version);
        Ok(())
    }

    /// "A note on invalidating the old primary".
    fn invalidate_other_primaries(&mut self, primary: &ServerDescription) {
        let others: Vec<Arc<ServerDescription>> = self
            .topology
            .servers
            .iter()
            .filter(|server| server.server_type == ServerType::RsPrimary)
            .filter(|server| server.address != primary.address)
            .cloned()
            .collect();
        for other in others {
            let detail = format!(
                "primary marked stale due to discovery of newer primary {}",
                primary.address
            );
            let failure = Failure::new(Stage::Hello, Cause::NewerPrimary, detail);
            self.recheck.push(other.id);
            self.replace(Arc::new(other.failed(self.now, failure)));
        }
    }

    fn check_if_has_primary(&mut self) {
        self.topology.topology_type = match self.topology.primary() {
            Some(_) => TopologyType::ReplicaSetWithPrimary,
            None => TopologyType::ReplicaSetNoPrimary,
        };
    }

    /// Puts a description in the place of the one with the same address, if there is one.
    fn replace(&mut self, server: Arc<ServerDescription>) -> Arc<ServerDescription> {
        if let Ok(index) = self.topology.servers.position(&server.address) {
            let previous = self.topology.servers.replace(index, Arc::clone(&server));
            if !previous.same_as(&server) {
                self.changed.push((Arc::clone(&previous), Arc::clone(&server)));
            }
            self.replacements += 1;
            self.sole = (self.replacements == 1).then_some((index, previous));
        }
        server
    }

    fn add_members_of(&mut self, server: &ServerDescription) {
        self.added.extend(self.topology.add(server.members()));
    }

    fn remove(&mut self, address: &ServerAddress) {
        self.retain(|known| known.address != *address);
    }

    fn retain(&mut self, keep: impl Fn(&ServerDescription) -> bool) {
        self.removed.extend(self.topology.servers.retain(keep));
    }
}

/// A server whose configuration calls it something else is reached, and monitored, by that name.
///
/// A server that does not say what it is called stays.
fn is_known_by_another_name(server: &ServerDescription) -> bool {
    server.me.as_ref().is_some_and(|me| *me != server.address)
}

fn stale(server: &ServerDescription, newest: (Option<ObjectId>, Option<i64>)) -> Staleness {
    let tuple = |(id, version): (Option<ObjectId>, Option<i64>)| {
        let id = id.map_or_else(|| "none".to_owned(), |id| id.to_string());
        let version = version.map_or_else(|| "none".to_owned(), |version| version.to_string());
        format!("({id}, {version})")
    };
    let claim = tuple((server.election_id, server.set_version));
    Staleness { server: server.address.clone(), claim, newest: tuple(newest) }
}

impl Staleness {
    /// Returns the error that the server's description has, in the words of the specification.
    fn failure(&self) -> Failure {
        let Self { claim, newest, .. } = self;
        let detail = format!(
            "primary marked stale due to electionId/setVersion mismatch, {claim} is stale compared \
             to {newest}"
        );
        Failure::new(Stage::Hello, Cause::StalePrimary, detail)
    }
}
