//! Changes of the configuration: who makes them, how members hear of them, and initial sync.

use std::sync::Arc;

use sdam_core::config::ServerAddress;
use sdam_core::time::Instant;

use super::{Action, Cluster, Config, Member, Process, Role, later};
use crate::options::{MemberId, MemberOptions, OptionsError, validate_members};

/// The number of servers that there may ever have been in one deployment whose configuration
/// changes.
pub const MAX_SERVERS: usize = 1000;

/// A change of the configuration of the replica set.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change {
    /// There is one more member. If its address is that of a former one, it is that one, running or
    /// not; else it is a server that starts now, whose id is the next after all others.
    ///
    /// It has no vote until it has its data, since 5.0, and then gets it by another change.
    Add(MemberOptions),
    /// A member leaves the set; its server goes on running. It cannot be the primary.
    Remove(MemberId),
    /// A member gets other tags, another priority, or other horizons, or is hidden or not.
    Set(MemberId, MemberOptions),
}

/// The reason why a change of the configuration is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReconfigError {
    /// Mongos have no configuration.
    #[error("the deployment consists of mongos; only a replica set has a configuration")]
    NotReplicaSet,
    /// Only a primary changes the configuration.
    #[error("there is no primary, which alone changes the configuration")]
    NoPrimary,
    /// No member has this id.
    #[error("{0:?} is not a member of the replica set")]
    NotMember(MemberId),
    /// The primary would not be one any more.
    #[error("{0:?} is the primary, and this change would end that; step it down first")]
    Primary(MemberId),
    /// A member would become another one.
    #[error("{0:?} keeps its address, and is an arbiter or not; remove it and add another")]
    Identity(MemberId),
    /// There were too many servers already.
    #[error("there have been {MAX_SERVERS} servers; more are not allowed")]
    TooManyServers,
    /// The members would not be a replica set.
    #[error(transparent)]
    Options(#[from] OptionsError),
}

impl Cluster {
    /// Says whether [`Input::Reconfig`](super::Input::Reconfig) would be obeyed now.
    ///
    /// # Errors
    ///
    /// Says what is wrong with the changes.
    pub fn check_reconfig(&self, changes: &[Change]) -> Result<(), ReconfigError> {
        self.changed(changes).map(drop)
    }

    /// Returns whether there is a server at this address, whether it still is a member or not.
    pub(crate) fn has_server_at(&self, address: &ServerAddress) -> bool {
        self.members.iter().any(|it| it.address == *address)
    }

    /// Returns the configuration after these changes, and the servers that are new.
    fn changed(&self, changes: &[Change]) -> Result<(Config, Vec<Member>), ReconfigError> {
        if !self.options.deployment.has_set() {
            return Err(ReconfigError::NotReplicaSet);
        }
        let primary = self.primary().ok_or(ReconfigError::NoPrimary)?;
        let (mut config, mut servers) = (self.config.successor(), Vec::new());
        let version = self.process(primary).map_or(self.options.version, |it| it.version);
        for change in changes {
            match change {
                Change::Add(options) => {
                    let mut known = self.members.iter().chain(&servers);
                    let index = known.position(|it| it.address == options.address);
                    let count = self.members.len() + servers.len();
                    let member = MemberId(index.unwrap_or(count));
                    if index.is_none() {
                        let address = options.address.clone();
                        let (version, most) = (self.options.version, self.options.oplog_entries);
                        servers.push(Member::new(address, version, most, None));
                    }
                    if count >= MAX_SERVERS {
                        return Err(ReconfigError::TooManyServers);
                    }
                    if config.contains(member) {
                        let address = options.address.clone();
                        return Err(OptionsError::SameAddress(address).into());
                    }
                    let newly_added = version.has_newly_added() && !options.arbiter;
                    config.add(member, options.clone(), newly_added);
                }
                Change::Remove(member) if config.contains(*member) => config.remove(*member),
                Change::Set(member, options) if config.contains(*member) => {
                    let old = config.get_mut(*member).expect("it was just there");
                    if (&old.address, old.arbiter) != (&options.address, options.arbiter) {
                        return Err(ReconfigError::Identity(*member));
                    }
                    old.clone_from(options);
                }
                Change::Remove(member) | Change::Set(member, _) => {
                    return Err(ReconfigError::NotMember(*member));
                }
            }
        }
        validate_members(self.options.deployment, &config.options())?;
        match config.priority(primary) {
            0 => Err(ReconfigError::Primary(primary)),
            _ => Ok((config, servers)),
        }
    }

    /// Installs another configuration, if it is a valid one.
    pub(super) fn reconfig(&mut self, now: Instant, changes: &[Change], out: &mut Vec<Action>) {
        let Ok((config, servers)) = self.changed(changes) else {
            return;
        };
        let new = self.members.len()..self.members.len() + servers.len();
        self.members.extend(servers);
        self.install(now, config, out);
        new.for_each(|index| self.start(now, MemberId(index), out));
    }

    /// Has the primary adopt a new configuration, of which the others hear soon.
    fn install(&mut self, now: Instant, config: Config, out: &mut Vec<Action>) {
        self.config = Arc::new(config.complete());
        self.revision += 1;
        if let Some(primary) = self.primary() {
            self.adopt(now, primary, out);
            self.bump(now, primary, out);
        }
        self.spread_news(now);
        // Another member may now want to be primary most, or another number be a majority.
        self.takeover = None;
        self.review(now);
    }

    /// A primary dies, and with it a configuration of which no other member has heard: the next
    /// primary goes on from the newest one that the others know.
    pub(super) fn forget_unheard(&mut self, dead: MemberId) {
        let all = self.members.iter().enumerate();
        let others = all.filter(|(index, _)| *index != dead.0);
        let known = others.filter_map(|(_, member)| member.config.as_ref());
        if let Some(newest) = known.max_by_key(|it| it.version)
            && newest.version < self.config.version
        {
            self.config = Arc::clone(newest);
            self.revision += 1;
        }
    }

    /// Has a running member adopt the newest configuration; returns whether that concerns it.
    pub(super) fn adopt(&mut self, now: Instant, id: MemberId, out: &mut Vec<Action>) -> bool {
        let (newest, sync_end) = (Arc::clone(&self.config), self.sync_end(now, id));
        let member = &mut self.members[id.0];
        let Some(process) = &mut member.process else {
            return false;
        };
        let known = member.config.replace(Arc::clone(&newest));
        let was_named = known.as_ref().and_then(|it| it.get(id));
        match (was_named, newest.get(id)) {
            // Another one may have the same version: that which was lost with a primary.
            _ if known.as_ref().is_some_and(|it| *it == newest) => return false,
            (None, None) => return false,
            (Some(_), None) => {
                process.role = Role::Unconfigured;
                process.primary = None;
                process.synced_at = None;
                self.close_clients(id, out);
            }
            (None, named) => {
                process.role = Role::configured(named);
                if process.role == Role::Startup {
                    process.synced_at = sync_end;
                }
                // A server that had never heard of any configuration answers instead.
                if known.is_some() {
                    self.close_awaiting(id, out);
                }
            }
            (Some(old), Some(new)) if old.horizons != new.horizons => {
                self.close_awaiting(id, out);
            }
            (Some(_), Some(_)) => {}
        }
        true
    }

    /// Returns when an initial sync that begins now ends, unless there is none to be made.
    pub(super) fn sync_end(&self, now: Instant, member: MemberId) -> Option<Instant> {
        let delay = self.options.election_timeout;
        later(now, delay).filter(|_| !self.members[member.0].has_data)
    }

    /// The initial sync of a member is over, unless there was no member to sync from.
    pub(super) fn finish_sync(&mut self, now: Instant, member: MemberId, out: &mut Vec<Action>) {
        let source = self.primary().filter(|_| !self.members[member.0].cut_off);
        let (again, primary) = (self.sync_end(now, member), source);
        let Some(process) = self.process_mut(member) else {
            return;
        };
        process.synced_at = again.filter(|_| primary.is_none());
        if primary.is_some() {
            process.role = Role::Secondary;
            process.primary = primary;
            self.members[member.0].has_data = true;
            self.bump(now, member, out);
            self.admit_newly_added(now, out);
            self.consider_takeover(now);
        }
    }

    /// Has the primary, if there is one, give their votes to those that follow with their data.
    pub(super) fn admit_newly_added(&mut self, now: Instant, out: &mut Vec<Action>) {
        let follows = |it: &MemberId| {
            let is_secondary = |process: &Process| process.role == Role::Secondary;
            self.process(*it).is_some_and(is_secondary) && !self.members[it.0].cut_off
        };
        let ready: Vec<MemberId> = self.config.newly_added().filter(follows).collect();
        if !ready.is_empty() && self.primary().is_some() {
            let mut config = self.config.successor();
            ready.into_iter().for_each(|member| config.admit(member));
            self.install(now, config, out);
        }
    }
}
