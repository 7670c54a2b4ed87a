//! The true state of the deployment, as the model says, and since when: clients are to find it out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bson::oid::ObjectId;
use sdam_core::bson;
use sdam_core::config::{ReadMode, ReadPreference, ServerAddress};
use sdam_core::description::{ServerDescription, ServerType, TopologyDescription, TopologyType};
use sdam_core::operation::StateChange;
use sdam_core::selection::Criteria;
use sdam_core::time::Instant;

use super::checks::{ELECTION_ID_FIRST, Violation};
use super::coverage::{Sign, Tally};
use super::plan::ClientPlan;
use sdam_cluster::{Cluster, MemberId, MemberState};

/// Since when a member has been what it is.
#[derive(Clone, Copy, Debug, Default)]
struct Since {
    /// Since when it has answered.
    answers: Instant,
    /// Since when it has answered, had data, and been named.
    has_data: Instant,
    /// Since when it has been named.
    named: Instant,
    /// Since when it has been of its type, been named or not, and, as primary, had its
    /// configuration.
    is_so: Instant,
}

/// The deployment, as it is.
#[derive(Debug)]
pub(super) struct Oracle {
    revision: u64,
    pub(super) current: sdam_cluster::ClusterState,
    since: Vec<Since>,
    pub(super) has_mongos: bool,
    /// The elections that were won, and the configurations of those who had won them.
    pub(super) elections: BTreeSet<Option<ObjectId>>,
    pub(super) configurations: BTreeSet<Option<i64>>,
    /// The last primary.
    primary: Option<MemberId>,
    signs: Tally,
    /// The time when something last changed that clients should see.
    pub(super) changed: Instant,
}

impl Oracle {
    /// The deployment before its first tick.
    pub(super) fn new(cluster: &Cluster, has_mongos: bool) -> Self {
        Self {
            revision: cluster.revision(),
            current: cluster.state(None),
            since: Vec::new(),
            has_mongos,
            elections: BTreeSet::new(),
            configurations: BTreeSet::new(),
            primary: None,
            signs: Tally::default(),
            changed: Instant::ZERO,
        }
    }

    /// Looks again at the model, if something may have changed there.
    pub(super) fn refresh(&mut self, cluster: &Cluster, now: Instant) {
        if self.revision == cluster.revision() {
            return;
        }
        self.revision = cluster.revision();
        let before = std::mem::replace(&mut self.current, cluster.state(None));
        self.since.resize(self.current.members.len(), Since::default());
        for (id, member) in &self.current.members {
            let since = &mut self.since[id.0];
            let was = before.members.get(id);
            let type_was = was.map_or(ServerType::Unknown, |it| it.server_type);
            let named = self.current.known.contains(&member.address);
            let was_named = before.known.contains(&member.address);
            if type_was == ServerType::Unknown {
                since.answers = now;
            }
            if !was_named {
                since.named = now;
            }
            // A member that knew of the newer one has refused it.
            let was_superseded = is_superseded(&before, *id);
            if was_superseded || !(type_was.is_data_bearing() && was_named) {
                since.has_data = now;
            }
            let version_was = was.and_then(primary_version);
            let version = primary_version(member);
            if member.server_type == ServerType::RsPrimary {
                self.elections.insert(member.election_id);
                self.configurations.insert(member.set_version);
            }
            if (type_was, was_named, version_was) != (member.server_type, named, version) {
                since.is_so = now;
            }
        }
        if self.current != before {
            self.changed = now;
            self.look_for_signs();
        }
    }

    /// Returns what was seen of incidents.
    pub(super) const fn signs(&self) -> &Tally {
        &self.signs
    }

    fn look_for_signs(&mut self) {
        let members = &self.current.members;
        let count = |role| members.values().filter(|it| it.server_type == role).count();
        if count(ServerType::Unknown) > 1 {
            self.signs.note(Sign::TwoDown);
        }
        if count(ServerType::RsPrimary) > 1 {
            self.signs.note(Sign::TwoPrimaries);
        }
        let is_primary = |it: &MemberState| it.server_type == ServerType::RsPrimary;
        let Some((id, primary)) = members.iter().find(|(_, it)| is_primary(it)) else { return };
        let last = self.primary.replace(*id).and_then(|last| members.get(&last));
        let last = last.filter(|it| it.server_type != ServerType::Unknown);
        let priority = |it: &MemberState| it.options.as_ref().map(|options| options.priority);
        if last.is_some_and(|last| priority(last) < priority(primary)) {
            self.signs.note(Sign::TakenOver);
        }
    }

    pub(super) fn member(&self, member: usize) -> Option<&MemberState> {
        self.current.members.get(&MemberId(member))
    }

    fn server_type(&self, member: usize) -> ServerType {
        self.member(member).map_or(ServerType::Unknown, |it| it.server_type)
    }

    /// Returns whether clients that know the whole deployment know this member.
    fn is_named(&self, member: usize) -> bool {
        self.member(member).is_some_and(|it| self.current.known.contains(&it.address))
    }

    /// Returns whether a client with this view is to take the primary for a stale one, as a client
    /// does that has heard of a primary whose configuration was lost with it (SDAM,
    /// "updateRSFromPrimary").
    ///
    /// From 6.0 on the electionId decides: a view is ahead of a primary that has not heard of a
    /// later one, which may have stepped down in the meantime. An older primary is judged by its
    /// setVersion, and is ignored until that has grown again: the flaw for which the rule was
    /// changed (specifications#1122). What the view takes for the latest is no excuse unless
    /// somebody has been it.
    pub(super) fn is_taken_for_stale(
        &self,
        member: &MemberState,
        view: &TopologyDescription,
    ) -> bool {
        let older = member.max_wire_version.is_some_and(|it| it < ELECTION_ID_FIRST);
        let (latest, id) = (view.max_set_version, view.max_election_id);
        let knows = view.topology_type != TopologyType::Single && latest.is_some() && id.is_some();
        let is_primary = member.server_type == ServerType::RsPrimary;
        let was_so = self.configurations.contains(&latest) && self.elections.contains(&id);
        let is_ahead = match older {
            true => (latest, id) > (member.set_version, member.election_id),
            false => id > member.election_id,
        };
        knows && is_primary && was_so && is_ahead
    }

    /// Returns since when a member has been suitable for an operation of somebody with this view,
    /// if it is.
    pub(super) fn suitable_since(
        &self,
        member: usize,
        criteria: &Criteria,
        view: &TopologyDescription,
        direct: bool,
    ) -> Option<Instant> {
        let (server_type, since) = (self.server_type(member), self.since.get(member)?);
        if direct || server_type == ServerType::Mongos {
            return (server_type != ServerType::Unknown).then_some(since.answers);
        }
        if !(server_type.is_data_bearing() && self.is_named(member)) {
            return None;
        }
        let is_superseded = is_superseded(&self.current, MemberId(member));
        if is_superseded || self.is_taken_for_stale(self.member(member)?, view) {
            return None;
        }
        let is_primary = server_type == ServerType::RsPrimary;
        match criteria.read_preference().map(ReadPreference::mode) {
            None | Some(ReadMode::Primary) => is_primary.then_some(since.is_so),
            Some(ReadMode::Secondary) => (!is_primary).then_some(since.is_so),
            // A primary may have been taken for stale, and not any more.
            Some(_) if is_primary => Some(since.is_so),
            Some(_) => Some(since.has_data),
        }
    }

    /// Returns since when a member has been named to clients, if it is.
    pub(super) fn named_since(&self, member: usize) -> Option<Instant> {
        self.is_named(member).then(|| self.since.get(member).map(|since| since.named)).flatten()
    }

    /// Returns since when a member has answered that it is something else than primary, if it does.
    pub(super) fn demoted_since(&self, member: usize) -> Option<Instant> {
        match self.server_type(member) {
            ServerType::Unknown | ServerType::RsPrimary | ServerType::Mongos => None,
            _ => self.since.get(member).map(|since| since.is_so.max(since.answers)),
        }
    }

    fn has_primary(&self, view: &TopologyDescription) -> bool {
        let primary = |it: &&MemberState| it.server_type == ServerType::RsPrimary;
        let mut primaries = self.current.members.values().filter(primary);
        primaries.any(|it| !self.is_taken_for_stale(it, view))
    }

    /// Returns the members that a client is to know, and what it is to take the deployment for.
    fn wanted(
        &self,
        view: &TopologyDescription,
        client: &ClientPlan,
    ) -> (Vec<usize>, TopologyType) {
        let all = 0..self.current.members.len();
        match client.direct {
            Some(member) => (vec![member], TopologyType::Single),
            None if self.has_mongos => match client.options.srv() {
                Some(_) => (all.collect(), TopologyType::Sharded),
                None => (client.seeds.clone(), TopologyType::Sharded),
            },
            None => {
                let topology_type = match self.has_primary(view) {
                    true => TopologyType::ReplicaSetWithPrimary,
                    false => TopologyType::ReplicaSetNoPrimary,
                };
                (all.filter(|it| self.is_named(*it)).collect(), topology_type)
            }
        }
    }

    /// Returns whether a client cannot learn of the deployment any more: a member is down for good,
    /// and none of those that it knows can name others.
    ///
    /// Its word for whom it knows counts for nothing if it must know others, who can.
    pub(super) fn is_lost(
        &self,
        view: &TopologyDescription,
        client: &ClientPlan,
        must_know: impl Fn(usize) -> bool,
    ) -> bool {
        let tells = |member: usize| {
            !matches!(self.server_type(member), ServerType::Unknown | ServerType::RsGhost)
        };
        if (0..self.current.members.len()).any(|member| must_know(member) && tells(member)) {
            return false;
        }
        let position = |it: &ServerAddress| client.addresses.iter().position(|known| known == it);
        let mut known = view.servers().iter().filter_map(|it| position(&it.address));
        let down = |it: &MemberState| it.server_type == ServerType::Unknown;
        client.direct.is_none() && self.current.members.values().any(down) && !known.any(tells)
    }

    /// Returns whether a client knows the deployment for what it is, and all its members.
    pub(super) fn is_known(&self, view: &TopologyDescription, client: &ClientPlan) -> bool {
        let (wanted, topology_type) = self.wanted(view, client);
        // Without a primary, nothing says who does not belong to the set.
        let exact = topology_type != TopologyType::ReplicaSetNoPrimary;
        view.topology_type == topology_type
            && !(exact && view.servers().len() != wanted.len())
            && wanted.iter().all(|it| view.server(&client.addresses[*it]).is_some())
    }

    /// Compares the view of a client with what is; it must know some members, and some have just
    /// refused an operation.
    pub(super) fn compare(
        &self,
        view: &TopologyDescription,
        client: &ClientPlan,
        must_know: impl Fn(usize) -> bool,
        refused: impl Fn(&ServerAddress) -> Option<StateChange>,
    ) -> Result<(), Violation> {
        if client.options.load_balanced() {
            return compare_load_balancer(view);
        }
        let mut servers = client.addresses.iter().enumerate();
        let right = servers.all(|(member, address)| {
            view.server(address).is_none_or(|seen| {
                let unknown = seen.server_type == ServerType::Unknown;
                let refused = || refused(address).is_some_and(|it| self.refuses(member, it));
                unknown && refused() || self.agrees(member, seen, view, client)
            })
        });
        if right && (self.is_known(view, client) || self.is_lost(view, client, must_know)) {
            return Ok(());
        }
        let (wanted, topology_type) = self.wanted(view, client);
        let seen: Vec<String> = view.servers().iter().map(described).collect();
        let is = wanted.iter().map(|it| {
            let (address, truth) = (&client.addresses[*it], self.member(*it));
            truth.map_or_else(String::new, |truth| told(address, truth))
        });
        let detail = format!(
            "{} {} is seen, and {topology_type} {} is so",
            view.topology_type,
            seen.join(" "),
            is.collect::<Vec<_>>().join(" ")
        );
        Err(Violation::new("when faults stop, the view becomes the truth", detail))
    }

    /// Returns whether a member, being what it is, refuses operations like this.
    fn refuses(&self, member: usize, change: StateChange) -> bool {
        match change {
            StateChange::NotWritablePrimary => self.demoted_since(member).is_some(),
            StateChange::Recovering => {
                let is_data_bearing = self.server_type(member).is_data_bearing();
                self.demoted_since(member).is_some() && !is_data_bearing
            }
            _ => false,
        }
    }

    /// Returns whom a member names, by the addresses that a client uses.
    fn names<'a>(
        &self,
        member: &MemberState,
        client: &'a ClientPlan,
    ) -> BTreeSet<&'a ServerAddress> {
        let own = self.current.members.values().map(|it| &it.address);
        let all = own.zip(client.addresses.iter());
        all.filter(|(own, _)| member.named.contains(*own)).map(|(_, used)| used).collect()
    }

    /// Returns whether a client sees a member as it is.
    fn agrees(
        &self,
        member: usize,
        seen: &ServerDescription,
        view: &TopologyDescription,
        client: &ClientPlan,
    ) -> bool {
        let Some(truth) = self.member(member) else { return false };
        if self.is_taken_for_stale(truth, view) {
            return seen.server_type == ServerType::Unknown;
        }
        let unknown = truth.server_type == ServerType::Unknown;
        seen.server_type == truth.server_type
            && seen.set_version == truth.set_version
            && seen.election_id == truth.election_id
            && seen.set_name.as_deref() == truth.set_name.as_deref()
            && *seen.tags == truth.tags
            && self.names(truth, client) == named(seen)
            && (unknown || Some(seen.max_wire_version) == truth.max_wire_version)
    }
}

/// Returns whom a server is seen to name.
fn named(seen: &ServerDescription) -> BTreeSet<&ServerAddress> {
    [&seen.hosts, &seen.passives, &seen.arbiters].into_iter().flat_map(|it| it.iter()).collect()
}

/// Returns whether a member claims to be primary, and so does one that was elected later.
fn is_superseded(truth: &sdam_cluster::ClusterState, id: MemberId) -> bool {
    let claims = |it: &&MemberState| it.server_type == ServerType::RsPrimary;
    let primaries = || truth.members.values().filter(claims);
    let Some(own) = truth.members.get(&id).filter(claims) else { return false };
    primaries().any(|it| it.election_id > own.election_id)
}

/// Returns the setVersion of a primary.
fn primary_version(member: &MemberState) -> Option<i64> {
    member.set_version.filter(|_| member.server_type == ServerType::RsPrimary)
}

fn described(seen: &Arc<ServerDescription>) -> String {
    let ServerDescription { address, server_type, set_version, election_id, tags, .. } = &**seen;
    put(address, *server_type, (*set_version, *election_id), tags, named(seen))
}

fn told(address: &ServerAddress, truth: &MemberState) -> String {
    let MemberState { server_type, set_version, election_id, tags, .. } = truth;
    put(address, *server_type, (*set_version, *election_id), tags, truth.named.iter().collect())
}

fn put(
    address: &ServerAddress,
    server_type: ServerType,
    (set_version, election_id): (Option<i64>, Option<ObjectId>),
    tags: &BTreeMap<String, String>,
    named: BTreeSet<&ServerAddress>,
) -> String {
    let mut text = format!("{address}={server_type}");
    text.extend(set_version.map(|it| format!(" v{it}")));
    text.extend(election_id.map(|it| format!(" {}", it.to_hex())));
    text.extend(tags.iter().map(|(key, value)| format!(" {key}:{value}")));
    if !named.is_empty() {
        let named: Vec<String> = named.into_iter().map(ToString::to_string).collect();
        text += &format!(" ({})", named.join(","));
    }
    text
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
