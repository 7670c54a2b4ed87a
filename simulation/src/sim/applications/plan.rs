//! The plan of a simulation of applications: a deployment, clients, and what goes wrong.

use std::time::Duration;

use sdam_core::time::Instant;

use crate::sim::deployment::{SET_NAME, address};
use crate::sim::fault::{Fault, FaultKind};
use crate::sim::random::Random;
use crate::sim::reduction::Reduction;
use crate::sim::run::Part;
use sdam_cluster::{
    ClusterOptions, Deployment, MAX_OPLOG_ENTRIES, MAX_WRITE_BATCH_SIZE, ServerVersion,
};

/// The kinds of fault that are drawn: more often those that have operations sent again.
const KINDS: [FaultKind; 10] = [
    FaultKind::FailPoint,
    FaultKind::FailPoint,
    FaultKind::FailPoint,
    FaultKind::FailPoint,
    FaultKind::Reset,
    FaultKind::Blackhole,
    FaultKind::Kill,
    FaultKind::Shutdown,
    FaultKind::StepDown,
    FaultKind::FrozenMember,
];

/// The kinds of fault that are drawn for transactions: more often those that leave it open what
/// has become of a commit.
const KINDS_OF_TRANSACTIONS: [FaultKind; 18] = [
    FaultKind::FailPoint,
    FaultKind::FailPoint,
    FaultKind::FailPoint,
    FaultKind::Reset,
    FaultKind::Reset,
    FaultKind::Blackhole,
    FaultKind::PartitionToServer,
    FaultKind::PartitionToClient,
    FaultKind::PartitionToClient,
    FaultKind::SlowDrip,
    FaultKind::TornBytes,
    FaultKind::Delay,
    FaultKind::Kill,
    FaultKind::Shutdown,
    FaultKind::StepDown,
    FaultKind::StepDown,
    FaultKind::FrozenMember,
    FaultKind::Cut,
];

/// The kinds of fault that are drawn for change streams: more often those after which a stream
/// begins again, and those by which a primary loses what it has written.
const KINDS_OF_CHANGES: [FaultKind; 18] = [
    FaultKind::FailPoint,
    FaultKind::FailPoint,
    FaultKind::FailPoint,
    FaultKind::FailPoint,
    FaultKind::Reset,
    FaultKind::Reset,
    FaultKind::Blackhole,
    FaultKind::PartitionToServer,
    FaultKind::PartitionToClient,
    FaultKind::SlowDrip,
    FaultKind::TornBytes,
    FaultKind::Delay,
    FaultKind::Kill,
    FaultKind::Shutdown,
    FaultKind::StepDown,
    FaultKind::FrozenMember,
    FaultKind::Cut,
    FaultKind::Cut,
];

/// The kinds of fault that are drawn for files: those of change streams, but none that makes the
/// way of many bytes endless.
const KINDS_OF_FILES: [FaultKind; 18] = [
    FaultKind::FailPoint,
    FaultKind::FailPoint,
    FaultKind::FailPoint,
    FaultKind::FailPoint,
    FaultKind::Reset,
    FaultKind::Reset,
    FaultKind::Blackhole,
    FaultKind::PartitionToServer,
    FaultKind::PartitionToClient,
    FaultKind::TornBytes,
    FaultKind::Delay,
    FaultKind::Kill,
    FaultKind::Shutdown,
    FaultKind::StepDown,
    FaultKind::StepDown,
    FaultKind::FrozenMember,
    FaultKind::Cut,
    FaultKind::Cut,
];

/// A client, and the application that uses it.
#[derive(Clone, Debug)]
pub(super) struct ClientPlan {
    /// The number of tasks that use it at a time.
    pub(super) tasks: u64,
    /// The time between two operations of a task, on average.
    pub(super) interval: Duration,
    /// Options that only it has, as in a connection string.
    pub(super) options: String,
}

/// The plan of a simulation.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) cluster: ClusterOptions,
    /// The things that applications do.
    pub(super) part: Part,
    /// Options that all clients have.
    pub(super) options: String,
    pub(super) max_adaptive_retries: u32,
    pub(super) retargets: bool,
    /// True if the clients have one set of monitors.
    pub(super) shares_monitors: bool,
    pub(super) clients: Vec<ClientPlan>,
    pub(super) faults: Vec<Fault>,
    /// From when on applications begin operations, and until when.
    pub(super) work: (Instant, Instant),
    /// The time when all faults have ended.
    pub(super) calm: Instant,
    /// True if applications then do little for more than an hour.
    pub(super) idles: bool,
    /// The parts of this that are left out.
    pub(super) reduction: Reduction,
}

impl Plan {
    /// Draws everything.
    pub(super) fn draw(part: Part, random: &mut Random, reduction: &Reduction) -> Self {
        let calm = Instant::ZERO + random.millis(8_000, 40_000);
        let cluster = draw_cluster(part, random);
        let count = 1 + random.index(3);
        let max_adaptive_retries = random.pick(&[0, 1, 2, 2, 4, 6]);
        let retargets = random.percent(50);
        let heartbeat = random.pick(&[500, 2_000, 10_000]);
        let mut options = format!(
            "localThresholdMS=1000&heartbeatFrequencyMS={heartbeat}\
             &maxAdaptiveRetries={max_adaptive_retries}&enableOverloadRetargeting={retargets}"
        );
        if part != Part::Applications {
            let selection = random.pick(&[1_000, 5_000, 30_000]);
            options.push_str(&format!("&serverSelectionTimeoutMS={selection}"));
        }
        let shares_monitors = random.percent(50);
        let clients = (0..count).map(|_| ClientPlan::draw(random)).collect();
        let times = if random.percent(20) { 0 } else { 1 + random.below(6) };
        let draw = |_| {
            let kind = match part {
                Part::Transactions => random.pick(&KINDS_OF_TRANSACTIONS),
                Part::Changes => random.pick(&KINDS_OF_CHANGES),
                Part::Files => random.pick(&KINDS_OF_FILES),
                Part::Clients | Part::Applications | Part::Revocation => random.pick(&KINDS),
            };
            let mut fault = Fault::draw(kind, (count, &cluster), calm, random);
            if part == Part::Files && kind == FaultKind::FailPoint && random.percent(50) {
                fault.members = (0..cluster.members.len()).collect();
            }
            // None joins later.
            fault.members.retain(|member| *member < cluster.members.len());
            fault
        };
        let mut faults: Vec<Fault> = (0..times).map(draw).collect();
        reduction.apply_to(&mut faults);
        let work = reduction.work.map_or((Instant::ZERO, calm), |(from, to)| {
            let at = |millis| Instant::ZERO + Duration::from_millis(millis);
            (at(from), calm.min(at(to)))
        });
        let calm = reduction.calm(calm);
        let idles = random.percent(15);
        let reduction = reduction.clone();
        Self {
            cluster,
            part,
            options,
            max_adaptive_retries,
            retargets,
            shares_monitors,
            clients,
            faults,
            work,
            calm,
            idles,
            reduction,
        }
    }

    pub(super) fn is_sharded(&self) -> bool {
        self.cluster.deployment == Deployment::Sharded
    }

    /// Returns whether members forget so soon what they have written that streams may miss it.
    pub(super) const fn forgets(&self) -> bool {
        self.cluster.oplog_entries < MAX_OPLOG_ENTRIES
    }

    /// Returns whether streams have the connections of a client for so long, as any of them may be
    /// read by it, that killCursors may get none in its time: it is given up after
    /// serverSelectionTimeoutMS, as all operations are. That may be a second, and a getMore may
    /// take as long.
    pub(super) fn keeps_waiting(&self, client: usize) -> bool {
        let few = ["maxPoolSize=1", "maxPoolSize=2"];
        let client = self.clients.get(client).filter(|_| self.part == Part::Changes);
        client.is_some_and(|client| few.contains(&&*client.options))
    }

    /// Returns whether all that there is stays there, and answers.
    pub(super) fn is_undisturbed(&self) -> bool {
        (0..self.faults.len()).all(|fault| !self.reduction.has_fault(fault))
    }
}

impl ClientPlan {
    fn draw(random: &mut Random) -> Self {
        let pool = random.pick(&[0, 0, 1, 2, 10]);
        Self {
            tasks: 1 + random.below(4),
            interval: random.pick(&[100, 400, 400, 1_500].map(Duration::from_millis)),
            options: format!("maxPoolSize={pool}"),
        }
    }
}

fn draw_cluster(part: Part, random: &mut Random) -> ClusterOptions {
    let (deployment, count) = match (random.percent(60), part != Part::Applications) {
        (true, true) => (Deployment::ReplicaSet, 3),
        (true, false) => (Deployment::ReplicaSet, random.pick(&[1, 3, 3, 3, 5])),
        (false, true) => (Deployment::Sharded, 2),
        (false, false) => (Deployment::Sharded, random.pick(&[1, 2, 3, 3, 4])),
    };
    let version = match random.percent(60) {
        true => ServerVersion::V8_0,
        false => random.pick(&[
            ServerVersion::V4_4,
            ServerVersion::V5_0,
            ServerVersion::V6_0,
            ServerVersion::V7_0,
        ]),
    };
    let lag = random.pick(&[0, 0, 20, 300].map(Duration::from_millis));
    let cluster = ClusterOptions::new(SET_NAME, (0..count).map(address))
        .with_deployment(deployment)
        .with_version(version)
        .with_keeps_data(true)
        .with_replication_lag(lag)
        .with_max_write_batch_size(random.pick(&[2, 3, MAX_WRITE_BATCH_SIZE]))
        .with_seed(random.bits())
        .with_election_timeout(random.pick(&[500, 2_000].map(Duration::from_millis)));
    match part {
        Part::Changes if random.percent(25) => {
            let entries = random.pick(&[25, 40, 80]);
            cluster.with_oplog_entries(entries)
        }
        _ => cluster,
    }
}
