//! The plan of a simulation: a deployment, clients with their options and workloads, and faults.

use std::sync::Arc;
use std::time::Duration;

use sdam_core::config::{
    MonitoringMode, OpeningHello, Options, PoolOptions, ServerAddress, SrvOptions,
};
use sdam_core::time::Instant;

use super::deployment::{self, SET_NAME, addresses, has_horizons, load_balancer};
use super::dns::HOSTNAME;
use super::fault::{Fault, FaultKind};
use super::logins::user_info;
use super::random::Random;
use super::reduction::Reduction;
use sdam_cluster::{ClusterOptions, Deployment};

/// The maximum number of members lost for good: with all of them lost nothing happens any more.
const MOST_GONE: u32 = 2;

/// A client: its options, and what it does.
#[derive(Clone, Debug)]
pub(super) struct ClientPlan {
    pub(super) options: Arc<Options>,
    /// The only member that it talks to, if it connects directly.
    pub(super) direct: Option<usize>,
    /// The members that it starts from.
    pub(super) seeds: Vec<usize>,
    /// True if it reaches members by the addresses that they have outside.
    pub(super) outside: bool,
    /// The addresses by which it knows all servers that there may ever be.
    pub(super) addresses: Arc<[ServerAddress]>,
    /// True if it listens to events all the time, and not now and then.
    pub(super) always_listens: bool,
    /// The percentage of operations that take their time between looking and waiting for a server.
    pub(super) hesitating_percent: u64,
    /// True if an operation that fails, or gets no connection, is tried once more.
    pub(super) retries: bool,
    /// True if nothing is ever wrong with its paths.
    pub(super) steady: bool,
    /// True if commands may fail by themselves.
    pub(super) faulty: bool,
    /// The time between two operations, on average.
    pub(super) interval: Duration,
    /// The longest that an operation may take.
    pub(super) patience: Duration,
    pub(super) cancelled_percent: u64,
    /// The percentage of beginnings at which it writes and reads documents, if members keep them.
    pub(super) documents_percent: u64,
    /// The percentage of reads that come in batches.
    pub(super) cursor_percent: u64,
    /// True if a member's process may end, or its name lead to another, and cursors with it.
    pub(super) loses_cursors: bool,
    /// From when on it reads and writes, and until when.
    pub(super) workload_begins: Instant,
    pub(super) workload_ends: Instant,
}

/// The plan of a simulation.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) cluster: ClusterOptions,
    pub(super) clients: Vec<ClientPlan>,
    pub(super) faults: Vec<Fault>,
    /// The least distances of members one way; of those not mentioned it is drawn.
    pub(super) distances: &'static [Duration],
    /// The time when all faults have ended.
    pub(super) calm: Instant,
    /// True if deadlines come before what arrives at the same instant.
    pub(super) timers_first: bool,
    /// The parts of this that are left out.
    pub(super) reduction: Reduction,
}

/// The threads that do a client's work between operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Threads {
    Background,
    /// Nothing: the client is single-threaded.
    Single,
}

impl Threads {
    /// Draws heartbeatFrequencyMS.
    fn heartbeat(self, random: &mut Random) -> u64 {
        match self {
            Self::Single => random.pick(&[500, 2_000, 10_000, 60_000]),
            Self::Background => random.pick(&[500, 1_000, 2_000, 10_000, 10_000, 10_000]),
        }
    }
}

impl Plan {
    /// Draws everything.
    pub(super) fn draw(random: &mut Random) -> Self {
        let calm = Instant::ZERO + random.millis(20_000, 150_000);
        // A stream of its own, so that whatever else a seed draws does not depend on it.
        let mut of_documents = random.clone().fork();
        let cluster = deployment::draw(random);
        let cluster = deployment::with_documents(cluster, &mut of_documents);
        let kinds: Vec<FaultKind> =
            FaultKind::ALL.into_iter().filter(|_| random.percent(30)).collect();
        // Older versions know nothing of load balancers, and only mongos are looked up in DNS.
        let balanced = cluster.deployment == Deployment::LoadBalanced;
        let sharded = cluster.deployment == Deployment::Sharded;
        let makes_sense = |it: &FaultKind| {
            !(balanced && *it == FaultKind::Upgrade || !sharded && it.spoils_lookups())
        };
        let kinds: Vec<_> = kinds.into_iter().filter(makes_sense).collect();
        let count = 1 + random.index(3);
        let kind = if random.percent(15) { Threads::Single } else { Threads::Background };
        let clients =
            (0..count).map(|_| ClientPlan::draw(&cluster, kind, calm, (random, &mut of_documents)));
        let mut clients: Vec<_> = clients.collect();
        let times = if kinds.is_empty() { 0 } else { random.below(16) };
        let mut left = MOST_GONE;
        let faults: Vec<_> = (0..times)
            .map(|_| Fault::draw(random.pick(&kinds), (count, &cluster), calm, random))
            .filter(|it| {
                it.kind != FaultKind::Gone || {
                    let may = left > 0;
                    left = left.saturating_sub(1);
                    may
                }
            })
            .collect();
        for client in &mut clients {
            client.faulty = faults.iter().any(|it| it.kind == FaultKind::FailPoint);
            client.loses_cursors = faults.iter().any(|it| it.kind.loses_cursors());
        }
        let timers_first = random.percent(50);
        let reduction = Reduction::default();
        Self { cluster, clients, faults, distances: &[], calm, timers_first, reduction }
    }
}

impl ClientPlan {
    fn draw(
        cluster: &ClusterOptions,
        threads: Threads,
        calm: Instant,
        (random, of_documents): (&mut Random, &mut Random),
    ) -> Self {
        let documents = Documents::draw(cluster, of_documents);
        let members = cluster.members.len();
        let outside = has_horizons(cluster) && random.percent(50);
        let addresses = addresses(cluster, outside);
        let sharded = cluster.deployment == Deployment::Sharded;
        let balanced = cluster.deployment == Deployment::LoadBalanced;
        let direct = (!balanced && random.percent(10)).then(|| random.index(members));
        let logs_in = !cluster.users.is_empty();
        // An arbiter has no users: a client that logs in to it finds it Unknown again and again.
        let direct = direct.filter(|it| !(logs_in && cluster.members[*it].arbiter));
        let from_dns = sharded && direct.is_none() && random.percent(50);
        let seeds = match direct {
            Some(member) => vec![member],
            None if from_dns || random.percent(60) => (0..members).collect(),
            None => vec![random.index(members)],
        };
        let of_seeds = seeds.iter().map(|seed| addresses[*seed].clone());
        let single = threads == Threads::Single;
        let heartbeat = threads.heartbeat(random);
        let connect = random.pick(&[1_000, 2_000, 5_000, 10_000, 10_000]);
        let modes = [MonitoringMode::Auto, MonitoringMode::Stream, MonitoringMode::Poll];
        let try_once = match single {
            true => format!("?serverSelectionTryOnce={}", random.percent(50)),
            false => String::new(),
        };
        let uri = format!("mongodb://{}unused/{try_once}", user_info(logs_in));
        let mut options = Options::builder()
            .uri(&uri)
            .expect("it makes sense")
            .single_threaded(single)
            .direct_connection(direct.is_some())
            .heartbeat_frequency(Duration::from_millis(heartbeat))
            .connect_timeout(Duration::from_millis(connect))
            // Not drawn, so that seeds show what they have shown before there was this option.
            .eager_checks(connect == 5_000)
            .monitoring_mode(random.pick(&modes))
            .opening_hello(random.pick(&[OpeningHello::OpMsg, OpeningHello::OpQuery]))
            .retry_writes(documents.retry_writes)
            .pool(draw_pool(random));
        if !sharded && !balanced && direct.is_none() && random.percent(70) {
            options = options.replica_set(SET_NAME);
        }
        let options = match from_dns {
            true => {
                let options = options.srv(SrvOptions::new(HOSTNAME)).tls(false);
                options.build().and_then(|it| it.resolved(of_seeds.collect(), ""))
            }
            false if balanced => options.seeds([load_balancer()]).load_balanced(true).build(),
            false => options.seeds(of_seeds).build(),
        };
        Self {
            options: Arc::new(options.expect("options that make sense")),
            direct,
            seeds,
            outside,
            addresses,
            always_listens: !random.percent(50),
            hesitating_percent: if single { 0 } else { random.pick(&[0, 0, 50]) },
            retries: random.percent(50),
            steady: false,
            faulty: false,
            interval: random.pick(&[200, 1_000, 3_000, 10_000].map(Duration::from_millis)),
            patience: random.pick(&[1_000, 5_000, 30_000, 60_000].map(Duration::from_millis)),
            cancelled_percent: random.pick(&[0, 5, 30]),
            documents_percent: documents.percent,
            cursor_percent: random.pick(&[0, 0, 20, 60]),
            loses_cursors: false,
            workload_begins: Instant::ZERO,
            workload_ends: calm + random.millis(0, 60_000),
        }
    }
}

/// The share of documents in a client's work, and whether writes are sent again.
struct Documents {
    percent: u64,
    retry_writes: bool,
}

impl Documents {
    fn draw(cluster: &ClusterOptions, random: &mut Random) -> Self {
        let (percent, retry_writes) = (random.pick(&[15, 30]), !random.percent(20));
        match cluster.keeps_data {
            true => Self { percent, retry_writes },
            false => Self { percent: 0, retry_writes: true },
        }
    }
}

fn draw_pool(random: &mut Random) -> PoolOptions {
    let max_pool_size = random.pick(&[1, 2, 5, 100, 100]);
    PoolOptions::default()
        .with_max_pool_size(max_pool_size)
        .with_min_pool_size(random.pick(&[0, 0, 0, 1, 3]).min(max_pool_size))
        .with_max_connecting(random.pick(&[1, 2, 2, 5]))
        .with_max_idle_time(random.pick(&[0, 0, 500, 20_000].map(Duration::from_millis)))
}
