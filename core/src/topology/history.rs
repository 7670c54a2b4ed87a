//! What errors tell of the past.

use std::sync::Arc;

use crate::description::{ServerDescription, ServerType, TopologyDescription, TopologyType};
use crate::time::Instant;

/// What errors tell of the past.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    /// Whether any server has ever answered.
    pub(super) any_answered: bool,
    /// Whether there is a primary.
    had_primary: bool,
    /// When there last was one, or the topology was opened.
    pub(super) primary_seen: Instant,
    /// The name of another replica set, because of which a server was removed.
    pub(super) found_set: Option<Arc<str>>,
    /// Why the last server was removed, until a server has answered that stays.
    pub(super) emptied: Option<Arc<str>>,
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
        for server in removed {
            if server.set_name.is_some() && server.set_name != description.set_name {
                self.found_set.clone_from(&server.set_name);
            }
        }
        let answers = |server: &&Arc<ServerDescription>| server.server_type != ServerType::Unknown;
        let (is_empty, was_emptied) = (description.servers().is_empty(), self.emptied.is_some());
        // Others may have left with the one that answered.
        let found = removed.iter().find(answers);
        let reason = found.or(removed.last().filter(|_| is_empty));
        if was_emptied && description.servers().iter().any(|it| answers(&it)) {
            (self.emptied, self.found_set) = (None, None);
        } else if let Some(server) = reason.filter(|_| is_empty || was_emptied) {
            self.emptied = Some(why_removed(server, description).into());
            let name = server.set_name.clone();
            self.found_set = name.filter(|name| Some(name) != description.set_name.as_ref());
        }
    }
}

/// Says why a server is no member of a deployment, as far as the server itself has told.
fn why_removed(server: &ServerDescription, description: &TopologyDescription) -> String {
    let (address, server_type) = (&server.address, server.server_type);
    match (&server.set_name, &server.me) {
        (Some(found), _) if Some(found) != description.set_name.as_ref() => {
            format!("{address} is in replica set {found:?}")
        }
        (_, Some(me)) if me != address => format!("{address} calls itself {me}"),
        _ => format!("{address} is {server_type}, and none that belongs here"),
    }
}
