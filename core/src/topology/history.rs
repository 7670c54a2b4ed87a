//! The past, as errors report it.

use std::sync::Arc;

use crate::description::{
    Removal, RemovalReason, ServerDescription, ServerType, TopologyDescription, TopologyType,
};
use crate::diagnosis::Staleness;
use crate::time::Instant;

use super::notices::Stall;

/// The past, as errors report it.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    /// True if there is a primary.
    had_primary: bool,
    /// The time when there last was one, or the topology was opened.
    pub(super) primary_seen: Instant,
    /// The name of another replica set, because of which a server was removed.
    pub(super) found_set: Option<Arc<str>>,
    /// The reason why the last server was removed, until a server has answered that stays.
    pub(super) emptied: Option<Removal>,
    /// A member of the right replica set that was removed, because its set lists other addresses
    /// only; until a server has answered that stays.
    pub(super) guide: Option<Arc<ServerDescription>>,
    /// The last server that claimed to be primary after another one was elected, until there is a
    /// primary.
    pub(super) stale: Option<Staleness>,
    /// The last time that the process did not run.
    pub(super) gap: Option<Stall>,
}

impl History {
    /// Learns from a description that is being published.
    pub(super) fn learn(
        &mut self,
        description: &TopologyDescription,
        removed: &[Arc<ServerDescription>],
        now: Instant,
    ) {
        // While there is a primary, the last moment is that of the publication.
        if self.had_primary {
            self.primary_seen = now;
        }
        self.had_primary = description.topology_type == TopologyType::ReplicaSetWithPrimary;
        if self.had_primary {
            self.stale = None;
        }
        self.learn_guide(description, removed);
        let (is_empty, was_emptied) = (description.servers().is_empty(), self.emptied.is_some());
        // Others may have left with the one that answered.
        let found = removed.iter().find(|server| answers(server));
        let reason = found.or(removed.last().filter(|_| is_empty));
        if was_emptied && description.servers().iter().any(|server| answers(server)) {
            (self.emptied, self.found_set) = (None, None);
        } else if let Some(server) = reason.filter(|_| is_empty || was_emptied) {
            let removal_reason = RemovalReason::infer(server, description);
            self.emptied = Some(Removal { address: server.address.clone(), removal_reason });
            let name = server.set_name.clone();
            self.found_set = name.filter(|name| Some(name) != description.set_name.as_ref());
        }
    }

    fn learn_guide(
        &mut self,
        description: &TopologyDescription,
        removed: &[Arc<ServerDescription>],
    ) {
        // A server that an address leads to, and that is in no set, is not the one that was meant.
        let stays = |server: &Arc<ServerDescription>| {
            answers(server) && server.server_type != ServerType::RsGhost
        };
        if self.guide.is_some() && description.servers().iter().any(stays) {
            self.guide = None;
        }
        let is_guide = |server: &&Arc<ServerDescription>| {
            let mut members = server.members().peekable();
            server.set_name.is_some()
                && server.set_name == description.set_name
                && members.peek().is_some()
                && members.all(|member| *member != server.address)
        };
        let Some(server) = removed.iter().find(is_guide) else { return };
        // What a guide leads to is no better one.
        let leads_here = |guide: &Arc<ServerDescription>| {
            guide.members().any(|member| *member == server.address)
        };
        if !self.guide.as_ref().is_some_and(leads_here) {
            self.guide = Some(Arc::clone(server));
        }
    }
}

fn answers(server: &ServerDescription) -> bool {
    server.server_type != ServerType::Unknown
}
