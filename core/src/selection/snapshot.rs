//! An immutable view of the topology, made for selecting from.

use std::sync::Arc;
use std::time::Duration;

use super::choose::{LatencyLimit, Window, choose};
use super::criteria::Criteria;
use super::explain::Explanation;
use super::suitable::{Attempt, Class, IDLE_WRITE_PERIOD, SMALLEST_MAX_STALENESS, is_replica_set};
use crate::config::{Options, ReadMode, ServerAddress};
use crate::description::{
    Incompatibility, ServerDescription, ServerType, TopologyDescription, TopologyType,
};

/// An immutable view of the topology, with what selection needs worked out beforehand.
///
/// ```
/// use std::sync::Arc;
/// use sdam_core::config::Options;
/// use sdam_core::selection::Criteria;
/// use sdam_core::topology::Topology;
///
/// let topology = Topology::new(Arc::new(Options::parse("mongodb://a")?), 1);
/// let chosen = topology.snapshot().select(&Criteria::write(), |_| 0, 7);
/// assert_eq!(chosen, Ok(None), "nothing is known yet");
/// # Ok::<(), sdam_core::config::OptionsError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Snapshot {
    description: Arc<TopologyDescription>,
    local_threshold: Duration,
    heartbeat_frequency: Duration,
    primary: Option<usize>,
    /// The choice of reads that take secondaries.
    secondaries: Window,
    /// The choice of reads that take any server, or of any operation outside replica sets.
    nearest: Window,
}

/// The reason why a selection cannot succeed with this view, however long it waits.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The client and a server share no version of the wire protocol.
    #[error("{0}")]
    Incompatible(Incompatibility),
    /// The maximum of staleness is too small to be measured.
    #[error(
        "maxStalenessSeconds is {} s; at least {} s are needed with this heartbeatFrequencyMS",
        given.as_secs(),
        least.as_secs()
    )]
    MaxStaleness {
        /// The value that was asked for.
        given: Duration,
        /// The least that is allowed.
        least: Duration,
    },
}

impl Snapshot {
    pub(crate) fn new(description: Arc<TopologyDescription>, options: &Options) -> Self {
        let (servers, threshold) = (description.servers(), options.local_threshold());
        let (secondaries, nearest) = window_classes(description.topology_type);
        let window = |class: Option<Class>| {
            class.map(|class| Window::new(servers, class, threshold)).unwrap_or_default()
        };
        Self {
            local_threshold: threshold,
            heartbeat_frequency: options.heartbeat_frequency(),
            primary: primary_in(&description),
            secondaries: window(secondaries),
            nearest: window(nearest),
            description,
        }
    }

    /// Makes the snapshot that follows this one when one server was replaced, and nothing else.
    pub(crate) fn after(
        &self,
        replaced: (usize, &ServerDescription),
        description: Arc<TopologyDescription>,
    ) -> Self {
        let (threshold, servers) = (self.local_threshold, description.servers());
        let classes = window_classes(description.topology_type);
        let same_classes = window_classes(self.description.topology_type) == classes;
        let window = |old: &Window, class: Option<Class>| match class {
            Some(class) if same_classes => old.after(replaced, servers, class, threshold),
            Some(class) => Window::new(servers, class, threshold),
            None => Window::default(),
        };
        Self {
            local_threshold: threshold,
            heartbeat_frequency: self.heartbeat_frequency,
            primary: primary_in(&description),
            secondaries: window(&self.secondaries, classes.0),
            nearest: window(&self.nearest, classes.1),
            description,
        }
    }

    /// Returns whether any server of a replica set suits these criteria.
    pub(super) fn has_suitable(description: &TopologyDescription, criteria: &Criteria) -> bool {
        let without_windows = Self {
            local_threshold: Duration::ZERO,
            heartbeat_frequency: description.heartbeat_frequency,
            primary: None,
            secondaries: Window::default(),
            nearest: Window::default(),
            description: Arc::new(description.clone()),
        };
        Attempt::first_successful(&without_windows, criteria).is_some()
    }

    /// Returns what is known.
    pub const fn description(&self) -> &Arc<TopologyDescription> {
        &self.description
    }

    /// Picks a server inside the latency window, or `None` if the operation must wait.
    ///
    /// Two candidates are drawn with `random`, and the one is kept whose `load`, the number of
    /// operations it is executing, is lower. The result, as the argument of `load`, is a position
    /// in [`servers`](TopologyDescription::servers). Nothing is locked or allocated.
    ///
    /// # Errors
    ///
    /// Fails if no server can be picked however long the operation waits.
    pub fn select(
        &self,
        criteria: &Criteria,
        load: impl Fn(usize) -> u32,
        random: u64,
    ) -> Result<Option<usize>, Refusal> {
        if let Some(incompatibility) = &self.description.incompatibility {
            return Err(Refusal::Incompatible(incompatibility.clone()));
        }
        if let Some(member) = criteria.member() {
            return Ok(self.known_member(member));
        }
        if criteria.is_plain() {
            return Ok(self.select_plain(criteria.mode_in(&self.description), load, random));
        }
        self.check_max_staleness(criteria)?;
        Ok(self.select_any(criteria, load, random))
    }

    /// Returns the position of the member at an address, if something is known of it.
    fn known_member(&self, address: &ServerAddress) -> Option<usize> {
        let servers = self.description.servers();
        let found = servers.position(address).ok()?;
        (servers[found].server_type != ServerType::Unknown).then_some(found)
    }

    /// Explains for every server whether it would be picked, and why not.
    pub fn explain(&self, criteria: &Criteria) -> Explanation {
        Explanation::new(self, criteria)
    }

    /// Nothing but the mode decides: the windows are ready.
    fn select_plain(
        &self,
        mode: ReadMode,
        load: impl Fn(usize) -> u32,
        random: u64,
    ) -> Option<usize> {
        if !is_replica_set(self.description.topology_type) {
            return self.nearest.choose(load, random);
        }
        match mode {
            ReadMode::Primary => self.primary,
            ReadMode::Secondary => self.secondaries.choose(load, random),
            ReadMode::PrimaryPreferred => {
                self.primary.or_else(|| self.secondaries.choose(load, random))
            }
            ReadMode::SecondaryPreferred => self.secondaries.choose(load, random).or(self.primary),
            ReadMode::Nearest => self.nearest.choose(load, random),
        }
    }

    /// Selects by looking at servers one by one, for any criteria.
    fn select_any(
        &self,
        criteria: &Criteria,
        load: impl Fn(usize) -> u32,
        random: u64,
    ) -> Option<usize> {
        let attempt = Attempt::first_successful(self, criteria)?;
        let limit = self.latency_limit(&attempt, criteria);
        let in_window = |(_, server): &(usize, &Arc<ServerDescription>)| {
            self.suits(&attempt, criteria, server) && limit.admits(server)
        };
        let candidates = || self.description.servers().iter().enumerate().filter(in_window);
        let nth = |rank| candidates().nth(rank).map_or(0, |(index, _)| index);
        choose(candidates().count(), nth, load, random)
    }

    /// Returns whether a server is suitable, the application's own condition included.
    pub(super) fn suits(
        &self,
        attempt: &Attempt<'_>,
        criteria: &Criteria,
        server: &ServerDescription,
    ) -> bool {
        attempt.admits(self, criteria, server)
            && criteria.predicate().is_none_or(|predicate| predicate(server))
    }

    /// Returns how far away a server in the latency window of the suitable ones is at most.
    pub(super) fn latency_limit(&self, attempt: &Attempt<'_>, criteria: &Criteria) -> LatencyLimit {
        let servers = self.description.servers().iter();
        let suitable = servers.filter(|server| self.suits(attempt, criteria, server));
        LatencyLimit::of(suitable.map(|server| &**server), self.local_threshold)
    }

    /// "A driver MUST raise an error if the TopologyType is ReplicaSetWithPrimary or
    /// ReplicaSetNoPrimary and" the value is too small.
    pub(super) fn check_max_staleness(&self, criteria: &Criteria) -> Result<(), Refusal> {
        let preference = criteria.preference_in(&self.description);
        let given = preference.and_then(crate::config::ReadPreference::max_staleness);
        let by_heartbeat = self.heartbeat_frequency.saturating_add(IDLE_WRITE_PERIOD);
        let least = SMALLEST_MAX_STALENESS.max(by_heartbeat);
        match given {
            Some(given) if given < least && is_replica_set(self.description.topology_type) => {
                Err(Refusal::MaxStaleness { given, least })
            }
            Some(_) | None => Ok(()),
        }
    }

    pub(super) const fn heartbeat_frequency(&self) -> Duration {
        self.heartbeat_frequency
    }
}

/// Returns the classes in the windows of secondaries and of the nearest.
const fn window_classes(topology: TopologyType) -> (Option<Class>, Option<Class>) {
    match topology {
        TopologyType::Unknown => (None, None),
        TopologyType::ReplicaSetNoPrimary | TopologyType::ReplicaSetWithPrimary => {
            (Some(Class::Secondaries), Some(Class::PrimaryAndSecondaries))
        }
        TopologyType::Single | TopologyType::Sharded | TopologyType::LoadBalanced => {
            (None, Some(Class::Any))
        }
    }
}

/// The position of the primary; only a topology that has one is searched.
fn primary_in(description: &TopologyDescription) -> Option<usize> {
    match description.topology_type {
        TopologyType::ReplicaSetWithPrimary => {
            description.servers().first_of(ServerType::RsPrimary)
        }
        TopologyType::Unknown
        | TopologyType::Single
        | TopologyType::Sharded
        | TopologyType::ReplicaSetNoPrimary
        | TopologyType::LoadBalanced => None,
    }
}
