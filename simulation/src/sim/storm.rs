//! A storm of restarts: thousands of clients that lose one member at once, and come back at once.
//!
//! All clients are real ones, each on a machine of its own, with a user and some tasks that read.
//! They have one member, a mongos: no other member could help, and no election takes its share of
//! the time. The member's process dies, is down for a while, and starts again. Behind its
//! [`ListenBacklog`] it accepts so many connections in a second and logs in so many; a [`Shedding`]
//! says what it does about more, and [`Storm::with_overload_hidden`] takes from clients what they
//! know of overload. A [`Report`] says how long the clients took to read again, and what that cost.
//!
//! ```
//! use sdam_simulation::storm::{Shedding, Storm};
//!
//! let report = Storm::new(20).with_shedding(Shedding::AtConnect).run();
//! assert_eq!(report.recovered.len(), 20);
//! println!("all read again after {:?}", report.after(1.0));
//! ```

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bson::rawdoc;
use sdam_cluster::{ClusterOptions, Deployment, Input, MemberId, ServerVersion};
use sdam_core::config::{Options, ReadMode, ReadPreference};
use sdam_core::operation::{CommandMessage, OperationOptions};
use sdam_core::pool::PoolEvent;
use sdam_core::selection::Criteria;
use sdam_core::topology::{EventKind, Topics};
use sdam_host::Events;
use sdam_host::driver::{DriverTopology, Request, Target};

use super::deployment::{SET_NAME, address};
use super::listen_backlog::{Arrivals, ListenBacklog, WhenFull};
use super::logins::{user, user_info};
use super::random::Random;
use super::virtual_time::{Simulation, Topology, VirtualTime};

/// The member.
const MEMBER: MemberId = MemberId(0);

/// The time in which clients read for the first time, and that in which all is well before the
/// member dies.
const WARM_UP: Duration = Duration::from_secs(20);
const CALM: Duration = Duration::from_secs(15);

/// The time in which all tasks begin to read once the member is dead.
const ARRIVE_WITHIN: Duration = Duration::from_secs(1);

/// The longest pause of a task after a read that failed.
const PAUSE: Duration = Duration::from_millis(200);

/// The interval at which events are read.
const LOOK: Duration = Duration::from_secs(1);

/// The conduct of a member with more connections than it can log in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Shedding {
    /// It refuses connections while as many logins wait as it can do in a second: a client takes
    /// that for overload.
    AtConnect,
    /// Its own limit of new connections, which is that of logins, closes them when they say hello,
    /// as MongoDB 8.2 can: overload, too.
    AtHello,
    /// It closes connections when they go on with their logins, while as many wait as it can do in
    /// a second: to a client, a failure like any other.
    AtLogin,
    /// Nothing: they wait.
    Never,
}

impl fmt::Display for Shedding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AtConnect => "refuses connections",
            Self::AtHello => "closes at hello",
            Self::AtLogin => "closes at login",
            Self::Never => "lets all wait",
        })
    }
}

/// A storm: who comes back, and to what.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Storm {
    /// The number of clients.
    pub clients: u32,
    /// The number of tasks of each client, which each read until a read succeeds; 4 by default.
    pub tasks: u32,
    /// The limits of the member: by default, connections of half of the clients in a second, logins
    /// of a tenth, and a listen queue for two fifths.
    pub backlog: ListenBacklog,
    /// Its conduct beyond them, [`Shedding::AtConnect`] by default.
    pub shedding: Shedding,
    /// True if clients take a connection that is refused for a failure like any other.
    pub hides_overload: bool,
    /// Options of the clients beyond the default, as a connection string has them: none by default.
    pub options: String,
    /// The time that the member is down, 5 s by default.
    pub down: Duration,
    /// The time that all clients are waited for, 10 minutes by default.
    pub limit: Duration,
    /// Decides everything that is random.
    pub seed: u64,
}

impl Storm {
    /// Describes a storm of so many clients.
    pub fn new(clients: u32) -> Self {
        let share = |parts: u32| clients.div_ceil(parts).max(1);
        let backlog = usize::try_from(u64::from(share(5)) * 2).unwrap_or(usize::MAX);
        Self {
            clients,
            tasks: 4,
            backlog: ListenBacklog::new(share(2), share(10)).with_backlog(backlog),
            shedding: Shedding::AtConnect,
            hides_overload: false,
            options: String::new(),
            down: Duration::from_secs(5),
            limit: Duration::from_secs(600),
            seed: 1,
        }
    }

    /// Replaces [`tasks`](Self::tasks).
    #[must_use]
    pub const fn with_tasks(mut self, tasks: u32) -> Self {
        self.tasks = tasks;
        self
    }

    /// Replaces [`shedding`](Self::shedding).
    #[must_use]
    pub const fn with_shedding(mut self, shedding: Shedding) -> Self {
        self.shedding = shedding;
        self
    }

    /// Sets [`hides_overload`](Self::hides_overload).
    #[must_use]
    pub const fn with_overload_hidden(mut self) -> Self {
        self.hides_overload = true;
        self
    }

    /// Replaces [`options`](Self::options).
    #[must_use]
    pub fn with_options(mut self, options: impl Into<String>) -> Self {
        self.options = options.into();
        self
    }

    /// Replaces [`seed`](Self::seed).
    #[must_use]
    pub const fn with_seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Returns this storm, and what it is compared with: clients to which overload is a failure
    /// like any other, clients that do not send again what was refused for overload, clients that
    /// establish more connections at a time, and members that shed elsewhere, or nothing.
    pub fn and_its_like(self) -> Vec<Self> {
        let with = |options: &str| self.clone().with_options(options);
        let (no_retries, at_once) =
            (with("maxAdaptiveRetries=0"), with(&format!("maxConnecting={}", self.tasks.max(3))));
        let hidden = self.clone().with_overload_hidden();
        let [at_hello, at_login, never] = [Shedding::AtHello, Shedding::AtLogin, Shedding::Never]
            .map(|it| self.clone().with_shedding(it));
        vec![self, hidden, no_retries, at_once, at_hello, at_login, never]
    }

    /// Lets it happen.
    ///
    /// # Panics
    ///
    /// If [`options`](Self::options) are none that a client can have.
    pub fn run(&self) -> Report {
        let mut stage = Stage::new(self);
        let simulation = &mut stage.simulation;
        simulation.inject(Input::Kill { member: MEMBER });
        drop(simulation.take_arrivals());
        stage.begin(self.tasks);
        stage.pass(self.down);
        let while_down = stage.simulation.take_arrivals();
        stage.restart(self);
        while stage.tally.left.load(Ordering::Relaxed) > 0 && stage.since_restart() < self.limit {
            stage.pass(LOOK);
        }
        let mut recovered: Vec<Duration> =
            lock(&stage.tally.recovered).iter().copied().flatten().collect();
        recovered.sort();
        Report {
            storm: self.clone(),
            while_down,
            arrivals: stage.simulation.take_arrivals(),
            recovered,
            failed: stage.tally.failed.load(Ordering::Relaxed),
            pools_cleared: stage.pools_cleared,
        }
    }
}

/// The outcome of a storm.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// The storm.
    pub storm: Storm,
    /// The connections that were wanted while the member was down.
    pub while_down: Arrivals,
    /// Those that were wanted from its restart until all tasks had read, or until the limit.
    pub arrivals: Arrivals,
    /// The times from the restart until each client has read for the first time, in order; clients
    /// that have not within the limit are left out.
    pub recovered: Vec<Duration>,
    /// The number of reads that failed, from the end of the member on.
    pub failed: u64,
    /// The number of times that a pool was cleared, from the end of the member on.
    pub pools_cleared: u64,
}

impl Report {
    /// Returns the headline of a table of reports, each of which is a row.
    pub fn headline() -> String {
        let columns = [
            format!("{:42} {:>7} {:>7} {:>7}", "", "half", "99 %", "all"),
            format!("{:>7} {:>7} {:>7}", "while", "after", "most in"),
            format!("{:>7} {:>7} {:>7} {:>7} {:>7}", "lost", "refused", "closed", "reads", "pools"),
        ];
        let units = [
            format!("{:42} {:>7} {:>7} {:>7}", "member, options of clients", "s", "s", "s"),
            format!("{:>7} {:>7} {:>7}", "down", "that", "1 s"),
            format!("{:>7} {:>7} {:>7} {:>7} {:>7}", "", "", "", "failed", "cleared"),
        ];
        format!("{}\n{}", columns.join(" "), units.join(" "))
    }

    /// Returns how long after the restart such a share of all clients has read again, `None` if
    /// fewer have.
    pub fn after(&self, share: f64) -> Option<Duration> {
        let count = (share * f64::from(self.storm.clients)).ceil();
        let nth = (1..=self.storm.clients).find(|it| f64::from(*it) >= count)?;
        self.recovered.get(usize::try_from(nth).ok()? - 1).copied()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = |share| match self.after(share) {
            Some(after) => format!("{:.1}", after.as_secs_f64()),
            None => "never".to_owned(),
        };
        let Self { storm, while_down, arrivals, failed, pools_cleared, .. } = self;
        let mut what = storm.shedding.to_string();
        if storm.hides_overload {
            what += ", overload hidden";
        }
        if !storm.options.is_empty() {
            what += &format!(", {}", storm.options);
        }
        write!(
            f,
            "{what:<42} {:>7} {:>7} {:>7} {:>7} {:>7} {:>7} {:>7} {:>7} {:>7} {failed:>7} \
             {pools_cleared:>7}",
            seconds(0.5),
            seconds(0.99),
            seconds(1.0),
            while_down.attempts(),
            arrivals.attempts(),
            arrivals.peak(),
            arrivals.lost,
            arrivals.refused,
            arrivals.closed + arrivals.refused_logins,
        )
    }
}

/// The progress of all tasks.
#[derive(Debug, Default)]
struct Tally {
    /// The time from the restart until each client has read for the first time.
    recovered: Mutex<Vec<Option<Duration>>>,
    /// The time of the restart.
    restarted: Mutex<Option<Duration>>,
    failed: AtomicU64,
    /// The number of tasks that have not read.
    left: AtomicU64,
}

/// A simulation with all clients, of which each has read once.
struct Stage {
    simulation: Simulation,
    clients: Vec<(Topology, Events)>,
    tally: Arc<Tally>,
    random: Random,
    pools_cleared: u64,
}

impl Stage {
    fn new(storm: &Storm) -> Self {
        let cluster = ClusterOptions::new(SET_NAME, [address(0)])
            .with_deployment(Deployment::Sharded)
            .with_version(ServerVersion::V8_0)
            .with_users(vec![user("secret")])
            .with_max_connections(usize::MAX);
        let mut random = Random::new(storm.seed);
        let simulation = Simulation::of(cluster, random.bits()).expect("a mongos makes sense");
        let mut simulation = simulation.without_log();
        if storm.hides_overload {
            simulation.hide_overload();
        }
        let members = simulation.uri().replace("mongodb://", "");
        let uri = format!("mongodb://{}{members}?{}", user_info(true), storm.options);
        let options = Options::parse(&uri).unwrap_or_else(|error| panic!("{uri}: {error}"));
        let create = |_| {
            let client = simulation.topology(options.clone()).expect("a client");
            let events = client.subscribe_to(Topics::POOLS);
            (client, events)
        };
        let clients: Vec<_> = (0..storm.clients).map(create).collect();
        let tally = Arc::new(Tally::default());
        lock(&tally.recovered).resize(clients.len(), None);
        let mut stage = Self { simulation, clients, tally, random, pools_cleared: 0 };
        for index in 0..stage.clients.len() {
            let (client, time) = (stage.clients[index].0.clone(), stage.simulation.time());
            let begins = stage.random.between(Duration::ZERO, WARM_UP);
            stage.simulation.spawn(async move {
                time.sleep(begins).await;
                read(&client).await;
            });
        }
        stage.pass(WARM_UP + CALM);
        stage.pools_cleared = 0;
        stage
    }

    /// Has all tasks begin to read.
    fn begin(&mut self, tasks: u32) {
        self.tally.left.store(self.clients.len() as u64 * u64::from(tasks), Ordering::Relaxed);
        for (index, (client, _)) in self.clients.iter().enumerate() {
            for _ in 0..tasks {
                let (client, time) = (client.clone(), self.simulation.time());
                let (tally, mut random) = (Arc::clone(&self.tally), self.random.fork());
                self.simulation.spawn(async move {
                    time.sleep(random.between(Duration::ZERO, ARRIVE_WITHIN)).await;
                    recover(&client, &time, &mut random, (&tally, index)).await;
                });
            }
        }
    }

    /// Starts the member again, behind its backlog.
    fn restart(&mut self, storm: &Storm) {
        let (logins, simulation) = (storm.backlog.logins_per_second, &mut self.simulation);
        let waiting = usize::try_from(logins).unwrap_or(usize::MAX);
        simulation.set_listen_backlog(Some(match storm.shedding {
            Shedding::AtConnect => {
                storm.backlog.with_waiting_logins(waiting, WhenFull::RefuseConnections)
            }
            Shedding::AtLogin => storm.backlog.with_waiting_logins(waiting, WhenFull::CloseLogins),
            Shedding::AtHello | Shedding::Never => storm.backlog,
        }));
        simulation.inject(Input::Start { member: MEMBER });
        if storm.shedding == Shedding::AtHello {
            let limit = rawdoc! {
                "setParameter": 1,
                "ingressConnectionEstablishmentRateLimiterEnabled": true,
                "ingressConnectionEstablishmentRatePerSec": f64::from(logins),
                "ingressConnectionEstablishmentBurstCapacitySecs": 1.0,
                "ingressConnectionEstablishmentMaxQueueDepth": i64::from(logins),
            };
            drop(simulation.command(MEMBER, "admin", &limit).expect("it is up"));
        }
        *lock(&self.tally.restarted) = Some(simulation.time().elapsed());
    }

    fn since_restart(&self) -> Duration {
        let restarted = lock(&self.tally.restarted).unwrap_or_default();
        self.simulation.time().elapsed().saturating_sub(restarted)
    }

    /// Lets so much time pass, and looks at the events of clients since.
    fn pass(&mut self, time: Duration) {
        self.simulation.run_for(time);
        for (_, events) in &mut self.clients {
            while let Some(event) = events.try_next() {
                let EventKind::Pool { event, .. } = event.kind else { continue };
                self.pools_cleared += u64::from(matches!(event, PoolEvent::PoolCleared { .. }));
            }
        }
    }
}

/// Reads until a read has succeeded, with a pause after each that has not.
async fn recover(
    client: &Topology,
    time: &VirtualTime,
    random: &mut Random,
    (tally, index): (&Tally, usize),
) {
    while !read(client).await {
        tally.failed.fetch_add(1, Ordering::Relaxed);
        time.sleep(random.between(Duration::ZERO, PAUSE)).await;
    }
    tally.left.fetch_sub(1, Ordering::Relaxed);
    let restarted = lock(&tally.restarted).unwrap_or_default();
    let after = time.elapsed().saturating_sub(restarted);
    if let Some(first) = lock(&tally.recovered).get_mut(index) {
        first.get_or_insert(after);
    }
}

/// Reads once; returns whether that has succeeded.
async fn read(client: &Topology) -> bool {
    let command = rawdoc! { "find": "things", "filter": { "_id": 1 } };
    let options = OperationOptions::read();
    let criteria = Arc::new(Criteria::read(ReadPreference::new(ReadMode::Primary)));
    let message = CommandMessage::new("app", &command);
    let request = Request::new(message, &options, Target::Select(criteria));
    client.host().operate(request.with_timeout(client.timeout(None))).await.is_ok()
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
