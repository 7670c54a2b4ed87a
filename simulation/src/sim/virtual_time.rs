//! Applications in virtual time: their own tasks, with real clients inside, against an embedded
//! replica set on a network that a seed draws.
//!
//! A [`Simulation`] is one replica set, the machines of the application, and time. Nothing happens
//! but while it [runs](Simulation::run_for), on the caller's thread, and waiting takes no time: the
//! clock jumps to whatever is due next. How long packets take, which task runs next, and what
//! clients draw come from the seed, so that the same seed shows the same run. A simulation panics
//! if so much happens at one instant that something goes round, as a task that wakes itself.
//!
//! ```
//! use std::time::Duration;
//!
//! use sdam_core::bson::rawdoc;
//! use sdam_core::config::Options;
//! use sdam_simulation::virtual_time::Simulation;
//!
//! let mut simulation = Simulation::new(7);
//! let topology = simulation.topology(Options::parse(simulation.uri())?)?;
//! let time = simulation.time();
//! simulation.spawn(async move {
//!     let reply = topology.run_command("admin", &rawdoc! { "ping": 1 }).await;
//!     time.log(format_args!("the first command succeeds: {}", reply.is_ok()));
//! });
//! simulation.run(Duration::from_secs(60));
//! assert!(simulation.log().iter().any(|line| line.contains("the first command succeeds: true")));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use bson::raw::cstr;
use bson::{RawDocument, RawDocumentBuf};
use sdam_cluster::{
    Action, Cluster, ClusterOptions, ClusterState, CommittedChanges, Input, MemberId, OptionsError,
};
use sdam_core::config::{Options, ServerAddress};
use sdam_core::id::ServerId;
use sdam_core::machine::Machine;
use sdam_core::pool::PoolEvent;
use sdam_core::time::{Instant, Time};
use sdam_core::topology::EventKind;
use sdam_core::wire::{Flags, Frames, write_op_msg};
use sdam_host::driver::DriverTopology;
use sdam_host::{ClientError, Events, Host, PoolStep, TopologyStep};

use super::deployment::{SET_NAME, address};
use super::listen_backlog::{Admission, Arrivals, Delivery, ListenBacklog, ListenBacklogs};
use super::network::{Network, Packet, Side, StreamId};
use super::random::Random;
use super::runtime::{
    Call, Clock, Desk, End, Executor, Kind, Observer, Refusal, Restless, Step, Virtual,
};
use super::tap::{Line, Overheard, Tap};
use super::world::Event;

/// The number of members that the replica set of [`Simulation::new`] has.
const MEMBERS: usize = 3;

/// The number of the application among clients: behind all.
const APPLICATION: usize = usize::MAX;

/// The runtime of clients in virtual time.
pub type Runtime = Virtual<Unobserved>;

/// A topology in virtual time, with all that it has on any runtime; clients are made of it.
pub type Topology = sdam_host::Topology<Runtime>;

/// An observer that looks at no step of a machine.
#[derive(Clone, Copy, Debug)]
pub struct Unobserved;

impl Observer for Unobserved {
    fn topology(&self, _: TopologyStep<'_>) {}

    fn pool<C: fmt::Debug>(&self, _: ServerId, _: PoolStep<'_, C>) {}
}

/// The log, line by line.
#[derive(Clone, Debug, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    fn say(&self, now: Instant, who: impl fmt::Display, what: impl fmt::Display) {
        let line = format!("{:>12.6} {who}: {what}", now.since_origin().as_secs_f64());
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(line);
    }
}

/// The time of a simulation, as its tasks have it.
#[derive(Clone, Debug)]
pub struct VirtualTime {
    desk: Arc<Desk>,
    log: Log,
}

impl VirtualTime {
    /// Returns how long the simulation has taken so far.
    pub fn elapsed(&self) -> Duration {
        self.desk.now().since_origin()
    }

    /// Waits for so long.
    pub async fn sleep(&self, time: Duration) {
        self.desk.sleep_until(self.desk.now() + time).await;
    }

    /// Starts another task.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.desk.spawn(Kind::Application(0), task);
    }

    /// Writes a line of the application's own into the log.
    pub fn log(&self, line: impl fmt::Display) {
        self.log.say(self.desk.now(), "application", line);
    }
}

/// The simulation's share of one client, which belongs to the application.
#[derive(Debug)]
struct Peer {
    host: Weak<Host<Virtual<Unobserved>>>,
    desk: Arc<Desk>,
    executor: Executor,
    /// The time when it wants to be rung.
    alarm: Option<Instant>,
    /// The source of the log, if there is one.
    events: Option<Events>,
    /// The streams that it holds.
    ends: BTreeMap<StreamId, Arc<End>>,
}

/// A replica set, an application, the network between them, and time.
#[derive(Debug)]
pub struct Simulation {
    clock: Arc<Clock>,
    network: Network,
    cluster: Cluster,
    cluster_deadline: Option<Instant>,
    addresses: Vec<ServerAddress>,
    uri: String,
    peers: Vec<Peer>,
    /// The clients that want to be rung, in the order of time.
    alarms: BTreeSet<(Instant, usize)>,
    restless: Arc<Restless>,
    desk: Arc<Desk>,
    executor: Executor,
    log: Log,
    /// True if the log has what clients find out.
    listens: bool,
    /// True if clients see a connection that is refused as overload.
    shows_overload: bool,
    random: Random,
    /// The least time of a packet, if that is not drawn.
    latency: Option<Duration>,
    /// The number of commands that were run at members.
    commands: u64,
    /// The limits of new connections, if there are any.
    backlogs: Option<ListenBacklogs>,
    arrivals: Arrivals,
    /// Hears what is said on connections that operations use, if anything does.
    tap: Option<Arc<dyn Tap>>,
    /// Answers commands in the place of members, if anything does.
    #[cfg(feature = "fuzz")]
    script: Option<Arc<dyn super::Script>>,
}

impl Simulation {
    /// Begins with a replica set of three members, at the origin of time.
    ///
    /// # Panics
    ///
    /// Never: three members make sense.
    pub fn new(seed: u64) -> Self {
        let options = ClusterOptions::new(SET_NAME, (0..MEMBERS).map(address));
        Self::of(options, seed).expect("three members make sense")
    }

    /// Begins with this deployment, whose own seed is drawn from that of the simulation.
    ///
    /// # Errors
    ///
    /// Fails if these options do not describe a deployment.
    pub fn of(options: ClusterOptions, seed: u64) -> Result<Self, OptionsError> {
        let mut random = Random::new(seed);
        let addresses: Vec<_> = options.members.iter().map(|it| it.address.clone()).collect();
        let hosts: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        let set = match options.deployment {
            sdam_cluster::Deployment::ReplicaSet => format!("?replicaSet={}", options.set_name),
            sdam_cluster::Deployment::LoadBalanced => "?loadBalanced=true".to_owned(),
            _ => String::new(),
        };
        let clock = Arc::new(Clock::new(options.wall_epoch_millis));
        let cluster = Cluster::new(options.with_seed(random.bits()))?;
        let restless = Arc::new(Restless::default());
        let desk = Desk::noted(Arc::clone(&clock), &restless, APPLICATION);
        Ok(Self {
            network: Network::new(0, 0, &[], random.fork()),
            cluster,
            cluster_deadline: Some(Instant::ZERO),
            uri: format!("mongodb://{}/{set}", hosts.join(",")),
            addresses,
            peers: Vec::new(),
            alarms: BTreeSet::new(),
            restless,
            executor: Executor::new(Arc::clone(&desk), random.fork()),
            desk,
            log: Log::default(),
            listens: true,
            shows_overload: true,
            random,
            clock,
            latency: None,
            commands: 0,
            backlogs: None,
            arrivals: Arrivals::default(),
            tap: None,
            #[cfg(feature = "fuzz")]
            script: None,
        })
    }

    /// Sets how long a packet takes one way between a member and a client that is created from now
    /// on: so long, and twice that at most. By default, both lie between 0.1 ms and 60 ms.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use sdam_simulation::virtual_time::Simulation;
    ///
    /// let simulation = Simulation::new(7).with_latency(Duration::from_micros(100));
    /// # let _ = simulation;
    /// ```
    #[must_use]
    pub const fn with_latency(mut self, latency: Duration) -> Self {
        self.latency = Some(latency);
        self
    }

    /// Leaves what clients find out, from now on, out of the log: that of thousands takes memory,
    /// and time.
    ///
    /// ```
    /// use sdam_core::config::Options;
    /// use sdam_simulation::virtual_time::Simulation;
    ///
    /// let mut simulation = Simulation::new(7).without_log();
    /// let topology = simulation.topology(Options::parse(simulation.uri())?)?;
    /// simulation.run_for(std::time::Duration::from_secs(30));
    /// assert!(simulation.log().is_empty());
    /// # drop(topology);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub const fn without_log(mut self) -> Self {
        self.listens = false;
        self
    }

    /// Has clients that are created from now on know nothing of overload when a connection is
    /// refused, as those from before Client Backpressure: to them it looks as if a lookup had
    /// failed, which is a network error like any other.
    pub(super) const fn hide_overload(&mut self) {
        self.shows_overload = false;
    }

    /// Limits the new connections of each member from now on; `None` removes the limit, as in the
    /// beginning. Connections that waited before are closed.
    pub fn set_listen_backlog(&mut self, backlog: Option<ListenBacklog>) {
        let members = self.addresses.len();
        let backlogs = backlog.map(|backlog| ListenBacklogs::new(backlog, members));
        let before = std::mem::replace(&mut self.backlogs, backlogs);
        for connection in before.map(ListenBacklogs::into_waiting).unwrap_or_default() {
            self.input(Input::Disconnected { connection });
            self.network.close_server(connection);
        }
        self.settle();
    }

    /// Has all that clients and members say from now on be heard, but what monitors do.
    pub(super) fn set_tap(&mut self, tap: Arc<dyn Tap>) {
        self.tap = Some(tap);
    }

    /// Has a script answer commands in the place of members.
    #[cfg(feature = "fuzz")]
    pub(crate) fn set_script(&mut self, script: Arc<dyn super::Script>) {
        self.script = Some(script);
    }

    /// Returns the number of the next client.
    pub(super) const fn next_client(&self) -> usize {
        self.peers.len()
    }

    /// Returns the network between all of them.
    pub(super) const fn network(&mut self) -> &mut Network {
        &mut self.network
    }

    /// Returns whether a member is up.
    pub(super) fn is_running(&self, member: MemberId) -> bool {
        self.cluster.is_running(member)
    }

    /// Returns the changes that a majority of the members has, behind a place in their log.
    pub(super) fn committed_changes(&self, after: (i64, u64)) -> CommittedChanges {
        self.cluster.committed_changes(after)
    }

    /// Returns the newest primary, if there is one.
    pub(super) fn primary(&self) -> Option<MemberId> {
        self.cluster.primary()
    }

    fn overhear(&self, stream: StreamId, end: &End, what: Overheard<'_>) {
        let Some(tap) = self.tap.as_deref().filter(|_| end.link().is_none()) else { return };
        if let Some((client, member)) = self.network.dialled(stream) {
            tap.hear(self.network.now, Line { client, member, stream }, what);
        }
    }

    /// Returns how many connections were wanted, and what became of them, since the beginning or
    /// since this was last asked.
    pub fn take_arrivals(&mut self) -> Arrivals {
        std::mem::take(&mut self.arrivals)
    }

    /// Returns a connection string that names all members.
    pub fn uri(&self) -> &str {
        &self.uri
    }

    /// Returns what is so of the deployment now: who is primary, who is down.
    pub fn cluster_state(&self) -> ClusterState {
        self.cluster.state(None)
    }

    /// Returns what tasks look at the clock with, wait, and write lines.
    pub fn time(&self) -> VirtualTime {
        VirtualTime { desk: Arc::clone(&self.desk), log: self.log.clone() }
    }

    /// Creates a topology, on a machine of its own.
    ///
    /// # Errors
    ///
    /// Fails as topologies of any runtime do; and if the servers are named in DNS, which there is
    /// none of here.
    pub fn topology(&mut self, options: Options) -> Result<Topology, ClientError> {
        self.host(options, |options, seed, runtime| Ok(Host::new(options, seed, runtime)))
            .map(Topology::from_host)
    }

    /// Creates monitors that clients with such options can share, on a machine of their own; they
    /// end when the last of those clients does.
    ///
    /// # Errors
    ///
    /// Fails as [`topology`](Self::topology) does.
    pub fn monitors(&mut self, options: Options) -> Result<Arc<Host<Runtime>>, ClientError> {
        self.host(options, |options, seed, runtime| Ok(Host::for_sharing(options, seed, runtime)))
    }

    /// Creates a topology that shares these monitors, on a machine of its own.
    ///
    /// # Errors
    ///
    /// Fails as [`topology`](Self::topology) does, and if the options are such that it cannot share
    /// them, or the monitors have ended.
    pub fn sharing_topology(
        &mut self,
        monitors: &Arc<Host<Runtime>>,
        options: Options,
    ) -> Result<Topology, Box<dyn std::error::Error>> {
        let leader = Arc::clone(monitors);
        let share = |options, seed, runtime| {
            Host::sharing(leader, options, seed, runtime)
                .map_err(Box::<dyn std::error::Error>::from)
        };
        self.host(options, share).map(Topology::from_host)
    }

    /// Has `make` make a host on a machine of its own.
    fn host<E: From<ClientError>>(
        &mut self,
        options: Options,
        make: impl FnOnce(Arc<Options>, u64, Runtime) -> Result<Arc<Host<Runtime>>, E>,
    ) -> Result<Arc<Host<Runtime>>, E> {
        if let Some(srv) = options.srv() {
            return Err(ClientError::Unresolved(srv.hostname.clone()).into());
        }
        let index = self.peers.len();
        self.clock.shared();
        let desk = Desk::noted(Arc::clone(&self.clock), &self.restless, index);
        let executor = Executor::new(Arc::clone(&desk), self.random.fork());
        let nonces = self.random.fork();
        let runtime = Virtual::new(&options, Arc::clone(&desk), Unobserved, nonces)?;
        let runtime = runtime.showing_overload(self.shows_overload);
        let host = make(Arc::new(options), self.random.bits(), runtime)?;
        self.network.join(self.addresses.len(), self.latency, self.random.fork());
        self.peers.push(Peer {
            host: Arc::downgrade(&host),
            events: self.listens.then(|| host.subscribe()),
            alarm: None,
            desk,
            executor,
            ends: BTreeMap::new(),
        });
        self.set_alarm(index, Some(self.network.now));
        Ok(host)
    }

    /// Starts a task of the application.
    pub fn spawn(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.desk.spawn(Kind::Application(0), task);
    }

    /// Does something to the deployment: kills a member, cuts it off, changes who its members are.
    pub fn inject(&mut self, input: Input<'_>) {
        self.log.say(self.network.now, "deployment", format_args!("{input:?}"));
        self.input(input);
        self.settle();
    }

    /// Runs a command at a member at once, over a connection of the member's own machine that needs
    /// no login: sets a fail point, or reads what is stored there. Returns the reply, or `None` if
    /// the member is down or has to wait for something.
    ///
    /// ```
    /// use sdam_cluster::MemberId;
    /// use sdam_core::bson::rawdoc;
    /// use sdam_simulation::virtual_time::Simulation;
    ///
    /// let mut simulation = Simulation::new(7);
    /// simulation.run_for(std::time::Duration::from_secs(30));
    /// let reply = simulation.command(MemberId(0), "admin", &rawdoc! { "ping": 1 });
    /// assert_eq!(reply.unwrap().get_f64("ok")?, 1.0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn command(
        &mut self,
        member: MemberId,
        database: &str,
        command: &RawDocument,
    ) -> Option<RawDocumentBuf> {
        if !self.cluster.is_running(member) {
            return None;
        }
        let mut body = command.to_owned();
        body.append(cstr!("$db"), database);
        let mut bytes = Vec::new();
        write_op_msg(&mut bytes, 1, 0, Flags::NONE, &body);
        // Those of clients are counted from the other end.
        let connection = StreamId(u64::MAX - self.commands);
        self.commands += 1;
        let inputs = [
            Input::Accepted { connection, member },
            Input::Trusted { connection },
            Input::Received { connection, bytes: &bytes },
            Input::Disconnected { connection },
        ];
        let (mut frames, mut reply) = (Frames::new(), None);
        for input in inputs {
            let mut actions = Vec::new();
            self.cluster.handle(self.network.now.into(), input, &mut actions);
            for action in actions {
                match action {
                    Action::Send { connection: to, bytes } if to == connection => {
                        frames.extend(&bytes);
                        let message = frames.next().ok().flatten();
                        reply = message.and_then(|it| Some(it.op_msg().ok()?.body.to_owned()));
                    }
                    Action::Close { connection: closed } if closed == connection => {}
                    action => self.perform_action(action),
                }
            }
        }
        self.cluster_deadline = self.cluster.deadline();
        self.settle();
        reply
    }

    /// Has the primary step down, so that another member is elected; returns who was primary.
    pub fn step_down(&mut self) -> Option<MemberId> {
        let is_primary = |(_, it): &(&MemberId, &sdam_cluster::MemberState)| {
            it.server_type == sdam_core::description::ServerType::RsPrimary
        };
        let primary =
            self.cluster_state().members.iter().find(is_primary).map(|(member, _)| *member)?;
        self.inject(Input::StepDown { member: primary });
        Some(primary)
    }

    /// Lets everything happen that is due before so much time has passed.
    pub fn run_for(&mut self, time: Duration) {
        let until = self.network.now + time;
        self.run_while(until, |_| true);
        self.set_time(until);
    }

    /// Lets everything happen until all tasks of the application have ended, or so much time has
    /// passed; returns whether they have ended.
    pub fn run(&mut self, limit: Duration) -> bool {
        let until = self.network.now + limit;
        self.settle();
        self.run_while(until, |it| it.executor.len() > 0);
        self.executor.len() == 0
    }

    /// Lets the next thing happen if it is due before so much time has passed, and else lets that
    /// time pass; returns whether anything has happened.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use sdam_simulation::virtual_time::Simulation;
    ///
    /// let mut simulation = Simulation::new(7);
    /// assert!(simulation.step(Duration::from_secs(30)), "members begin to talk");
    /// assert!(simulation.time().elapsed() < Duration::from_secs(30));
    /// ```
    pub fn step(&mut self, limit: Duration) -> bool {
        let until = self.network.now + limit;
        self.settle();
        let has_happened = self.happen_next(until);
        if !has_happened {
            self.set_time(until);
        }
        has_happened
    }

    /// Returns what has happened so far, in the order of time: what was injected, what clients have
    /// found out, and what tasks have written.
    pub fn log(&self) -> Vec<String> {
        self.log.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_time(&mut self, at: Instant) {
        self.network.now = at;
        self.clock.set(at);
    }

    fn run_while(&mut self, until: Instant, goes_on: impl Fn(&Self) -> bool) {
        self.settle();
        while goes_on(self) && self.happen_next(until) {}
    }

    /// Lets the next thing happen, if it is due by then; returns whether it was.
    fn happen_next(&mut self, until: Instant) -> bool {
        let event = self.network.events.next_at();
        let alarm = self.alarms.first().map(|(at, _)| *at);
        let next = event.into_iter().chain(alarm).chain(self.cluster_deadline).min();
        let Some(at) = next.filter(|at| *at <= until) else { return false };
        self.set_time(at.max(self.network.now));
        if event == Some(at) {
            self.clock.step(Step::Event);
            self.network.events.pop().into_iter().for_each(|event| self.happen(event));
        } else if self.cluster_deadline == Some(at) {
            self.clock.step(Step::Deployment);
            self.run_cluster(Machine::tick);
        } else {
            self.clock.step(Step::Alarm);
            while let Some((_, index)) = self.alarms.first().copied().filter(|(due, _)| *due <= at)
            {
                self.set_alarm(index, None);
                self.peers[index].host.upgrade().into_iter().for_each(|host| host.ring());
            }
        }
        self.settle();
        true
    }

    /// Sets when a client wants to be rung.
    fn set_alarm(&mut self, index: usize, alarm: Option<Instant>) {
        let before = std::mem::replace(&mut self.peers[index].alarm, alarm);
        if let Some(before) = before {
            self.alarms.remove(&(before, index));
        }
        self.alarms.extend(alarm.map(|at| (at, index)));
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Arrival { stream, to: Side::Client, packet } => {
                let client = self.network.reached_client(stream);
                let end = client.and_then(|client| self.peers[client].ends.get(&stream));
                if let Some(end) = end {
                    if let Packet::Bytes(bytes) = &packet {
                        self.overhear(stream, end, Overheard::Came(bytes));
                    }
                    end.arrived(&packet);
                }
            }
            Event::Arrival { stream, to: Side::Server, packet } => self.arrive(stream, packet),
            Event::Wake { waker, .. } => waker.wake(),
            Event::Ripen { end, .. } => end.ripen(),
            Event::Accept(member) => self.accept(member),
            Event::LogIn(member) => self.log_in(member),
            _ => {}
        }
    }

    /// A packet arrives at a member.
    fn arrive(&mut self, stream: StreamId, packet: Packet) {
        let Some((host, accepted)) = self.network.reached_member(stream, &packet) else { return };
        let member = MemberId(host);
        match packet {
            Packet::Syn => self.dialled(stream, member),
            Packet::Bytes(bytes) if accepted => self.received(stream, member, bytes),
            Packet::Fin => {
                self.network.hung_up(stream);
                let waits = self.backlogs.as_mut().is_some_and(|backlogs| backlogs.leave(stream));
                if accepted && !waits {
                    self.input(Input::Disconnected { connection: stream });
                }
            }
            _ => {}
        }
    }

    /// A client wants a connection.
    fn dialled(&mut self, stream: StreamId, member: MemberId) {
        let admission = match self.cluster.is_running(member) {
            true => self.backlogs.as_mut().map(|backlogs| backlogs.admit(stream, member)),
            false => Some(Admission::Refused),
        };
        match admission {
            Some(Admission::Refused) => {
                self.arrivals.refused += 1;
                self.network.send(stream, Side::Client, Packet::Refused);
            }
            Some(Admission::Lost(wait)) => {
                self.arrivals.lost += 1;
                let again = Event::Arrival { stream, to: Side::Server, packet: Packet::Syn };
                self.network.plan(wait, again);
            }
            Some(Admission::Queued) if self.network.accept(stream) => {
                self.network.send(stream, Side::Client, Packet::SynAck);
                let now = self.network.now;
                let backlogs = self.backlogs.as_mut();
                if let Some(at) = backlogs.and_then(|it| it.queue(now, stream, member)) {
                    self.network.events.plan(at, Event::Accept(member));
                }
            }
            None if self.network.accept(stream) => {
                self.arrivals.accepted += 1;
                self.input(Input::Accepted { connection: stream, member });
                self.network.send(stream, Side::Client, Packet::SynAck);
            }
            Some(Admission::Queued) | None => {}
        }
    }

    /// A member accepts the connection that has waited longest, be its client still there or not.
    fn accept(&mut self, member: MemberId) {
        let (now, backlogs) = (self.network.now, self.backlogs.as_mut());
        let Some((stream, said, next)) = backlogs.and_then(|it| it.accept(now, member)) else {
            return;
        };
        if let Some(at) = next {
            self.network.events.plan(at, Event::Accept(member));
        }
        let Some(said) = said else {
            self.arrivals.abandoned += 1;
            return;
        };
        if !self.cluster.is_running(member) {
            return self.network.close_server(stream);
        }
        self.arrivals.accepted += 1;
        self.input(Input::Accepted { connection: stream, member });
        if !said.is_empty() {
            self.received(stream, member, said);
        }
    }

    /// A member receives what a client has sent.
    fn received(&mut self, stream: StreamId, member: MemberId, bytes: Vec<u8>) {
        #[cfg(feature = "fuzz")]
        if let Some(script) = &self.script
            && let Some(reply) = super::script::answer(&**script, &bytes)
        {
            return self.network.send(stream, Side::Client, Packet::Bytes(reply));
        }
        let Some(backlogs) = &mut self.backlogs else {
            return self.input(Input::Received { connection: stream, bytes: &bytes });
        };
        match backlogs.received(self.network.now, stream, member, bytes) {
            Delivery::Now(bytes) => {
                self.input(Input::Received { connection: stream, bytes: &bytes });
            }
            Delivery::LogsIn(None) | Delivery::Kept => {}
            Delivery::LogsIn(Some(at)) => self.network.events.plan(at, Event::LogIn(member)),
            Delivery::Refused => {
                self.arrivals.refused_logins += 1;
                self.input(Input::Disconnected { connection: stream });
                self.network.close_server(stream);
            }
        }
    }

    /// A member goes on with the login that has waited longest.
    fn log_in(&mut self, member: MemberId) {
        let (now, backlogs) = (self.network.now, self.backlogs.as_mut());
        let Some((stream, bytes, next)) = backlogs.and_then(|it| it.log_in(now, member)) else {
            return;
        };
        if let Some(at) = next {
            self.network.events.plan(at, Event::LogIn(member));
        }
        self.arrivals.logins += 1;
        // Of a client that is gone, the model knows nothing any more.
        self.input(Input::Received { connection: stream, bytes: &bytes });
    }

    fn input(&mut self, input: Input<'_>) {
        self.run_cluster(|cluster, now, out| cluster.handle(now, input, out));
    }

    fn run_cluster(&mut self, act: impl FnOnce(&mut Cluster, Time, &mut Vec<Action>)) {
        let mut actions = Vec::new();
        act(&mut self.cluster, self.network.now.into(), &mut actions);
        self.cluster_deadline = self.cluster.deadline();
        actions.into_iter().for_each(|action| self.perform_action(action));
    }

    fn perform_action(&mut self, action: Action) {
        match action {
            Action::Send { connection, bytes } => {
                self.network.send(connection, Side::Client, Packet::Bytes(bytes));
            }
            Action::Close { connection } => {
                self.arrivals.closed += 1;
                self.network.close_server(connection);
            }
            _ => {}
        }
    }

    /// Lets all tasks do what they can now.
    fn settle(&mut self) {
        loop {
            // Whose tasks come first is drawn, too.
            let (mut any, first) = (false, self.random.index(self.peers.len() + 1));
            let first = if first == self.peers.len() { APPLICATION } else { first };
            let mut from = first;
            while let Some(index) = self.restless.take(from..) {
                any |= self.act(index);
                let Some(next) = index.checked_add(1) else { break };
                from = next;
            }
            from = 0;
            while let Some(index) = self.restless.take(from..first) {
                any |= self.act(index);
                from = index + 1;
            }
            if !any {
                break;
            }
        }
        if self.listens {
            self.hear();
        }
    }

    /// Lets the tasks of a client, or those of the application, do what they can; returns whether
    /// there was anything to do.
    fn act(&mut self, index: usize) -> bool {
        let executor = match self.peers.get_mut(index) {
            Some(peer) => &mut peer.executor,
            None => &mut self.executor,
        };
        let mut any = false;
        while executor.step(true) {
            any = true;
        }
        self.perform(index) || any
    }

    /// Performs what the tasks of a client, or those of the application, have asked for; returns
    /// whether there was anything.
    fn perform(&mut self, index: usize) -> bool {
        let desk = self.peers.get(index).map_or(&self.desk, |peer| &peer.desk);
        let (mut calls, alarm) = (Vec::new(), desk.take_alarm());
        desk.take_calls(&mut calls);
        let any = !calls.is_empty();
        if let Some(alarm) = alarm.filter(|_| index < self.peers.len()) {
            self.set_alarm(index, alarm.map(|due| due.max(self.network.now)));
        }
        for call in calls {
            match call {
                Call::Open { end, address } => self.open(index, end, &address),
                Call::Send { end, bytes } => {
                    if let Some(stream) = end.stream() {
                        self.overhear(stream, &end, Overheard::Sent(&bytes));
                        self.network.send(stream, Side::Server, Packet::Bytes(bytes));
                    }
                }
                Call::Close { end } => {
                    if let Some(stream) = end.stream() {
                        self.overhear(stream, &end, Overheard::Closed);
                        self.peers[index].ends.remove(&stream);
                        self.network.close(stream);
                    }
                }
                Call::Wake { at, waker } => {
                    self.network.events.plan(at, Event::Wake { client: index, waker });
                }
                Call::Ripen { at, end } => {
                    self.network.events.plan(at, Event::Ripen { client: index, end });
                }
                // Whose servers are named in DNS is no client here.
                Call::Resolve { .. } => {}
            }
        }
        any
    }

    fn open(&mut self, index: usize, end: Arc<End>, address: &ServerAddress) {
        let member = self.addresses.iter().position(|known| known == address);
        let Some(member) = member else { return end.open(Err(Refusal::NotResolved)) };
        self.arrivals.wanted(self.network.now, end.link().is_some());
        let stream = self.network.open(index, member);
        end.set_stream(stream);
        self.peers[index].ends.insert(stream, end);
    }

    /// Writes down what clients have found out.
    fn hear(&mut self) {
        for (index, peer) in self.peers.iter_mut().enumerate() {
            while let Some(event) = peer.events.as_mut().and_then(Events::try_next) {
                if let Some(line) = line(&event.kind) {
                    self.log.say(self.network.now, format_args!("client {index}"), line);
                }
            }
        }
    }
}

/// Returns the line of an event, unless it is one of those that come all the time.
fn line(kind: &EventKind) -> Option<String> {
    match kind {
        EventKind::TopologyDescriptionChanged { previous, new }
            if previous.topology_type != new.topology_type =>
        {
            Some(format!("the topology is {}", new.topology_type))
        }
        EventKind::ServerDescriptionChanged { previous, new } => {
            Some(format!("{} was {} and is {}", new.address, previous.server_type, new.server_type))
        }
        EventKind::ServerHeartbeatFailed { address, failure, .. } => {
            Some(format!("a check of {address} has failed: {failure}"))
        }
        EventKind::Pool { event, .. } if is_frequent(event) => None,
        EventKind::Pool { address, event, .. } => {
            let text = format!("{event:?}");
            let name = text.split([' ', '{', '(']).next().unwrap_or_default();
            Some(format!("{name} of {address}"))
        }
        _ => None,
    }
}

/// Returns whether an event comes with every operation that goes well.
const fn is_frequent(event: &PoolEvent) -> bool {
    matches!(
        event,
        PoolEvent::ConnectionCheckOutStarted
            | PoolEvent::ConnectionCheckedOut { .. }
            | PoolEvent::ConnectionCheckedIn { .. }
    )
}
