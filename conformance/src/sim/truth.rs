//! What the deployment really is, as the model tells: what clients are to find out.

use std::time::Duration;

use sdam_core::address::ServerAddress;
use sdam_core::description::{ServerType, TopologyDescription, TopologyType};
use sdam_core::selection::{Criteria, ReadMode, ReadPreference};
use sdam_core::time::Instant;

use super::checks::Violation;
use super::plan::ClientPlan;
use crate::cluster::{Action, MemberId};

/// A member, as it is.
#[derive(Clone, Copy, Debug, Default)]
struct Member {
    /// Since when it has been answering and has had data, if it does.
    up: Option<Instant>,
    frozen: bool,
    /// When it last became primary or ceased to be it.
    changed: Instant,
}

/// The deployment, as it is.
#[derive(Debug)]
pub(super) struct Truth {
    members: Vec<Member>,
    primary: Option<usize>,
    has_mongos: bool,
    /// How long a member takes to start.
    start: Duration,
    /// When something last changed that clients should see.
    pub(super) changed: Instant,
}

impl Truth {
    pub(super) fn new(members: usize, has_mongos: bool, election_timeout: Duration) -> Self {
        Self {
            members: vec![Member::default(); members],
            primary: None,
            has_mongos,
            start: if has_mongos { Duration::ZERO } else { election_timeout / 20 },
            changed: Instant::ZERO,
        }
    }

    /// Learns from an action of the model.
    pub(super) fn learn(&mut self, action: &Action, now: Instant) {
        match *action {
            Action::Listen { member } => {
                let up = Some(now + self.start);
                self.members[member.0] = Member { up, frozen: false, changed: now };
            }
            Action::Unlisten { member } => {
                self.members[member.0] = Member { up: None, frozen: false, changed: now };
                self.primary.take_if(|primary| *primary == member.0);
            }
            Action::Elected { member, .. } => {
                self.primary = Some(member.0);
                self.members[member.0].changed = now;
            }
            Action::SteppedDown { member } => {
                self.primary = None;
                self.members[member.0].changed = now;
            }
            _ => return,
        }
        self.changed = self.changed.max(now + self.start);
    }

    /// Returns whether there is to be a primary, and is none yet.
    pub(super) const fn awaits_election(&self) -> bool {
        !self.has_mongos && self.primary.is_none()
    }

    pub(super) fn froze(&mut self, member: MemberId) {
        self.members[member.0].frozen = true;
    }

    pub(super) fn thawed(&mut self, member: MemberId, now: Instant) {
        let member = &mut self.members[member.0];
        if std::mem::take(&mut member.frozen) {
            member.up = member.up.map(|up| up.max(now));
        }
        self.changed = self.changed.max(now);
    }

    /// Returns since when a member has been suitable for an operation, if it is.
    pub(super) fn suitable_since(
        &self,
        member: usize,
        criteria: &Criteria,
        direct: bool,
    ) -> Option<Instant> {
        let known = &self.members[member];
        let up = known.up.filter(|_| !known.frozen)?;
        if self.has_mongos || direct {
            return Some(up);
        }
        let is_primary = self.primary == Some(member);
        let suits = match criteria.read_preference().map(ReadPreference::mode) {
            None | Some(ReadMode::Primary) => is_primary,
            Some(ReadMode::Secondary) => !is_primary,
            Some(_) => return Some(up),
        };
        suits.then_some(up.max(known.changed))
    }

    /// Returns since when a member has not been primary, if it is not, and answers or is gone.
    pub(super) fn demoted_since(&self, member: usize) -> Option<Instant> {
        let known = &self.members[member];
        let demoted = !self.has_mongos && self.primary != Some(member) && !known.frozen;
        demoted.then(|| known.changed.max(known.up.unwrap_or(Instant::ZERO)) + self.start)
    }

    fn server_type(&self, member: usize) -> ServerType {
        match (self.has_mongos, self.primary == Some(member)) {
            (true, _) => ServerType::Mongos,
            (false, true) => ServerType::RsPrimary,
            (false, false) => ServerType::RsSecondary,
        }
    }

    /// Compares the view of a client with what is.
    pub(super) fn compare(
        &self,
        view: &TopologyDescription,
        client: &ClientPlan,
        addresses: &[ServerAddress],
    ) -> Result<(), Violation> {
        if client.options.load_balanced() {
            return compare_load_balancer(view);
        }
        let wanted: Vec<usize> = match (client.direct, self.has_mongos) {
            (Some(member), _) => vec![member],
            (None, true) if client.options.srv().is_none() => client.seeds.clone(),
            (None, _) => (0..self.members.len()).collect(),
        };
        let topology_type = match (client.direct, self.has_mongos, self.primary) {
            (Some(_), ..) => TopologyType::Single,
            (None, true, _) => TopologyType::Sharded,
            (None, false, Some(_)) => TopologyType::ReplicaSetWithPrimary,
            (None, false, None) => TopologyType::ReplicaSetNoPrimary,
        };
        let right = view.topology_type == topology_type
            && view.servers().len() == wanted.len()
            && wanted.iter().all(|member| {
                let server = view.server(&addresses[*member]);
                server.is_some_and(|it| it.server_type == self.server_type(*member))
            });
        if right {
            return Ok(());
        }
        let seen = view.servers().iter();
        let seen: Vec<String> =
            seen.map(|it| format!("{}={}", it.address, it.server_type)).collect();
        let is = wanted.iter();
        let is: Vec<String> =
            is.map(|it| format!("{}={}", addresses[*it], self.server_type(*it))).collect();
        let detail = format!(
            "{} {} is seen, and {topology_type} {} is so",
            view.topology_type,
            seen.join(" "),
            is.join(" ")
        );
        Err(Violation::new("when faults stop, the view becomes the truth", detail))
    }
}

/// A load balancer is what the options say it is.
fn compare_load_balancer(view: &TopologyDescription) -> Result<(), Violation> {
    let servers: Vec<ServerType> = view.servers().iter().map(|it| it.server_type).collect();
    match (view.topology_type, servers.as_slice()) {
        (TopologyType::LoadBalanced, [ServerType::LoadBalancer]) => Ok(()),
        (topology, servers) => {
            let detail = format!("{topology} {servers:?} is seen");
            Err(Violation::new("a load balancer is what the options say", detail))
        }
    }
}
