//! Scenarios: incidents that users of other drivers had, each with what must not happen again.
//!
//! A scenario says what is unusual; all that must hold in any simulation is checked as well, and
//! what a scenario leaves open is drawn from its seed.

use std::sync::Arc;
use std::time::Duration;

use sdam_core::config::{Options, SrvOptions};
use sdam_core::time::Instant;

use super::checks::Violation;
use super::client::Client;
use super::coverage::Sign;
use super::deployment::{SET_NAME, addresses, load_balancer, member};
use super::dns::HOSTNAME;
use super::fault::{Fault, FaultKind};
use super::logins::{user, user_info};
use super::plan::{ClientPlan, Plan};
use super::random::Random;
use super::reconfig::Reconfig;
use super::reduction::Reduction;
use super::run::Statistics;
use sdam_cluster::{ClusterOptions, Deployment, ServerVersion};

pub use super::incidents::SCENARIOS;

/// The number of members that there are.
const MEMBERS: usize = 3;

/// The number of clients that there are.
const CLIENTS: usize = 2;

/// An incident, and what must not happen again.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Scenario {
    /// Its name, by which it is run.
    pub name: &'static str,
    /// The story of the incident, in a sentence.
    pub story: &'static str,
    /// The members' version in the beginning.
    pub(super) version: ServerVersion,
    /// The priorities of the members.
    pub(super) priorities: [u16; MEMBERS],
    /// In seconds.
    pub(super) election_timeout: u64,
    /// Options of the clients, as in a connection string.
    pub(super) options: &'static str,
    /// The time between two operations, in milliseconds.
    pub(super) interval: u64,
    /// The longest that an operation may take, in milliseconds.
    pub(super) patience: u64,
    /// The percentage of operations that the application drops.
    pub(super) cancelled_percent: u64,
    /// The percentage that take their time between looking for a server and waiting for one.
    pub(super) hesitating_percent: u64,
    /// The least distances of members one way, in paths that nothing is ever wrong with; drawn
    /// if there is nothing about it.
    pub(super) distances: &'static [Duration],
    /// The percentage of reads that come in batches.
    pub(super) cursor_percent: u64,
    /// True if the members are mongos behind a load balancer.
    pub(super) load_balanced: bool,
    /// True if the members are mongos that DNS names.
    pub(super) in_dns: bool,
    pub(super) single_threaded: bool,
    /// True if clients log in.
    pub(super) logs_in: bool,
    pub(super) faults: &'static [Incident],
    /// The signs that are seen, and their least numbers, if the incident takes place.
    pub(super) coverage: &'static [(Sign, u64)],
    /// In how many of a hundred simulations it takes place at least.
    pub often: u64,
    pub(super) demand: Demand,
}

/// A fault of a scenario.
#[derive(Clone, Copy, Debug)]
pub(super) struct Incident {
    pub(super) kind: FaultKind,
    /// From when to when, in seconds.
    pub(super) during: (u64, u64),
    pub(super) members: &'static [usize],
    /// The commands that fail, and their errors.
    pub(super) bits: u64,
}

/// The demand of a scenario besides the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Demand {
    /// Nothing.
    Rules,
    /// No pool is cleared.
    NothingCleared,
    /// So many of a hundred operations succeed.
    Succeed(u64),
    /// No pool is cleared, and so many of a hundred operations of each client succeed, also of
    /// those that were forked off.
    NobodyIsDisturbed(u64),
}

/// The scenario from which others differ.
pub(super) const USUAL: Scenario = Scenario {
    name: "",
    story: "",
    version: ServerVersion::V6_0,
    priorities: [1; MEMBERS],
    election_timeout: 2,
    options: "heartbeatFrequencyMS=10000",
    interval: 500,
    patience: 30_000,
    cancelled_percent: 0,
    hesitating_percent: 0,
    distances: &[],
    cursor_percent: 0,
    load_balanced: false,
    in_dns: false,
    single_threaded: false,
    logs_in: false,
    faults: &[],
    coverage: &[],
    often: 40,
    demand: Demand::Rules,
};

impl Scenario {
    /// Draws what the scenario leaves open.
    pub(super) fn plan(&self, random: &mut Random) -> Plan {
        let cluster = self.cluster(random);
        let hosts: Vec<String> = cluster.members.iter().map(|it| it.address.to_string()).collect();
        let (hosts, deployment) = match self.deployment() {
            Deployment::ReplicaSet => (hosts.join(","), format!("replicaSet={SET_NAME}")),
            Deployment::LoadBalanced => {
                (load_balancer().to_string(), "loadBalanced=true".to_owned())
            }
            _ => (hosts.join(","), "tls=false".to_owned()),
        };
        let user = user_info(self.logs_in);
        let uri = format!("mongodb://{user}{hosts}/?{deployment}&{}", self.options);
        let options = Options::builder().uri(&uri).expect("options that make sense");
        let options = options.single_threaded(self.single_threaded);
        let options = match self.in_dns {
            false => options.build(),
            true => {
                let options = options.srv(SrvOptions::new(HOSTNAME)).build();
                options.and_then(|it| it.resolved(addresses(&cluster, false).to_vec(), ""))
            }
        };
        let last = self.faults.iter().map(|incident| incident.during.1).max();
        let calm = Instant::ZERO + Duration::from_secs(last.unwrap_or_default().max(30));
        let client = ClientPlan {
            options: Arc::new(options.expect("options that make sense")),
            direct: None,
            seeds: (0..MEMBERS).collect(),
            outside: false,
            addresses: addresses(&cluster, false),
            always_listens: !random.percent(50),
            hesitating_percent: self.hesitating_percent,
            retries: true,
            steady: !self.distances.is_empty(),
            faulty: self.faults.iter().any(|it| it.kind == FaultKind::FailPoint),
            interval: Duration::from_millis(self.interval),
            patience: Duration::from_millis(self.patience),
            cancelled_percent: self.cancelled_percent,
            documents_percent: 0,
            cursor_percent: self.cursor_percent,
            loses_cursors: true,
            workload_begins: Instant::ZERO,
            workload_ends: calm + Duration::from_secs(20),
        };
        let timers_first = random.percent(50);
        let faults = self.faults.iter().map(|incident| incident.fault(random)).collect();
        let clients = vec![client; CLIENTS];
        let (distances, reduction) = (self.distances, Reduction::default());
        Plan { cluster, clients, faults, distances, calm, timers_first, reduction }
    }

    const fn deployment(&self) -> Deployment {
        match (self.load_balanced, self.in_dns) {
            (true, _) => Deployment::LoadBalanced,
            (false, true) => Deployment::Sharded,
            (false, false) => Deployment::ReplicaSet,
        }
    }

    fn cluster(&self, random: &mut Random) -> ClusterOptions {
        let members = self.priorities.iter().enumerate();
        let members =
            members.map(|(index, priority)| member(index, false).with_priority(*priority));
        ClusterOptions::new(SET_NAME, [])
            .with_deployment(self.deployment())
            .with_members(members.collect())
            .with_users(if self.logs_in { vec![user("secret")] } else { Vec::new() })
            .with_version(self.version)
            .with_seed(random.bits())
            .with_election_timeout(Duration::from_secs(self.election_timeout))
    }

    /// Returns whether the incident took place in a simulation.
    pub fn took_place(&self, statistics: &Statistics) -> bool {
        statistics.signs.has(self.coverage)
    }

    /// Says whether the scenario's own demand is met.
    pub(super) fn judge(
        &self,
        statistics: &Statistics,
        clients: &[Client],
    ) -> Result<(), Violation> {
        let Statistics { begun, operations, clears, .. } = *statistics;
        match self.demand {
            Demand::Rules => Ok(()),
            Demand::NothingCleared => nothing_cleared(clears),
            Demand::Succeed(percent) => succeed(percent, operations, begun),
            Demand::NobodyIsDisturbed(percent) => {
                nothing_cleared(clears)?;
                let mut clients = clients.iter();
                clients.try_for_each(|it| {
                    let (succeeded, begun) = it.ledger().operations_counted();
                    succeed(percent, succeeded, begun)
                })
            }
        }
    }
}

fn nothing_cleared(clears: u64) -> Result<(), Violation> {
    match clears {
        0 => Ok(()),
        _ => {
            let detail = format!("{clears} pools were cleared");
            Err(Violation::new("nothing is a reason to clear a pool", detail))
        }
    }
}

fn succeed(percent: u64, succeeded: u64, begun: u64) -> Result<(), Violation> {
    match succeeded * 100 < begun * percent {
        false => Ok(()),
        true => {
            let detail = format!("{succeeded} of {begun} operations succeed");
            Err(Violation::new("operations succeed nevertheless", detail))
        }
    }
}

/// Every member.
pub(super) const ALL: &[usize] = &[0, 1, 2];

/// A change of the configuration, from when to when.
pub(super) const fn reconfig(
    change: Reconfig,
    during: (u64, u64),
    members: &'static [usize],
) -> Incident {
    Incident { bits: change.bits(), ..incident(FaultKind::Reconfig, during, members) }
}

/// A fail point at all members.
pub(super) const fn failing(bits: u64, during: (u64, u64)) -> Incident {
    Incident { bits, ..incident(FaultKind::FailPoint, during, ALL) }
}

/// Something that goes wrong with these members, or with the primary, from when to when.
pub(super) const fn incident(
    kind: FaultKind,
    during: (u64, u64),
    members: &'static [usize],
) -> Incident {
    Incident { kind, during, members, bits: 0 }
}

impl Incident {
    /// Begins a little later than it says, as the seed decides, unless that is the beginning.
    fn fault(&self, random: &mut Random) -> Fault {
        let (begins, ends) = self.during;
        let later = if begins == 0 { Duration::ZERO } else { random.millis(0, 1000) };
        Fault {
            kind: self.kind,
            begins: Instant::ZERO + Duration::from_secs(begins) + later,
            ends: Instant::ZERO + Duration::from_secs(ends),
            clients: (0..CLIENTS).collect(),
            members: self.members.to_vec(),
            bits: self.bits,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Demand, Scenario, Statistics, USUAL};

    /// Returns which of its demands a scenario finds not to be met when so many of a hundred
    /// operations succeed, and pools are cleared so many times.
    fn unmet(demand: Demand, operations: u64, clears: u64) -> Option<&'static str> {
        let statistics = Statistics { begun: 100, operations, clears, ..Statistics::default() };
        let judged = Scenario { demand, ..USUAL }.judge(&statistics, &[]);
        judged.err().map(|violation| violation.check)
    }

    #[test]
    fn a_demand_of_a_scenario_that_is_not_met_is_found() {
        assert_eq!(unmet(Demand::Rules, 0, 1), None);
        let (fail, clear) =
            (Some("operations succeed nevertheless"), Some("nothing is a reason to clear a pool"));
        assert_eq!(
            (unmet(Demand::Succeed(90), 90, 1), unmet(Demand::Succeed(90), 89, 0)),
            (None, fail)
        );
        for demand in [Demand::NothingCleared, Demand::NobodyIsDisturbed(0)] {
            assert_eq!((unmet(demand, 0, 0), unmet(demand, 100, 1)), (None, clear));
        }
    }
}
