//! A runtime in virtual time: what a host asks of it, the simulation performs.
//!
//! Nothing happens in here: streams that are opened, bytes that are sent and times to be woken at
//! are [`Call`]s, which the simulation takes from the [`Desk`] and performs; and tasks run when
//! their [`Executor`] is made to take a step.

mod clock;
mod executor;
mod socket;

use std::collections::{BTreeSet, VecDeque};
use std::fmt::Debug;
use std::future::Future;
use std::ops::RangeBounds;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bson::DateTime;
use sdam_cluster::ScriptedGssapi;
use sdam_core::auth::GssapiProvider;
use sdam_core::config::{Options, ServerAddress};
use sdam_core::dns::DnsError;
use sdam_core::dns::srv::SrvRecord;
use sdam_core::failure::{Cause, Failure, Stage};
use sdam_core::id::{LinkId, ServerId};
use sdam_core::time::Instant;
use sdam_host::{
    ClientError, Connected, Connector, Link, PendingConnection, PoolStep, Rescan, Route, Runtime,
    TopologyStep,
};

pub(in crate::sim) use clock::{Clock, Step};
pub(in crate::sim) use executor::{Executor, Kind, TaskId};
pub use socket::VirtualSocket;
pub(in crate::sim) use socket::{End, Refusal};

use crate::sim::random::Random;

/// The time that a host lets its runtime look at its sockets when its process goes on.
pub(in crate::sim) const LOOK: Duration = Duration::from_millis(10);

/// A call of the simulation.
#[derive(Debug)]
pub(in crate::sim) enum Call {
    /// A stream is to be opened.
    Open { end: Arc<End>, address: ServerAddress },
    /// Bytes were written.
    Send { end: Arc<End>, bytes: Vec<u8> },
    /// The stream is of no more use.
    Close { end: Arc<End> },
    /// A task waits for a time.
    Wake { at: Instant, waker: Waker },
    /// The reader of a stream is to look at the clock.
    Ripen { at: Instant, end: Arc<End> },
    /// The records of the deployment are to be looked up.
    Resolve { lookup: Arc<Lookup> },
}

/// The clients that have something to do, by their numbers: of ten thousand, few have at a time.
#[derive(Debug, Default)]
pub(in crate::sim) struct Restless(Mutex<BTreeSet<usize>>);

impl Restless {
    fn note(&self, client: usize) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(client);
    }

    /// Takes the first one in a range out.
    pub(in crate::sim) fn take(&self, range: impl RangeBounds<usize>) -> Option<usize> {
        let mut clients = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let first = clients.range(range).next().copied()?;
        clients.take(&first)
    }
}

/// The place where a client leaves what it asks for.
#[derive(Debug)]
pub(in crate::sim) struct Desk {
    clock: Arc<Clock>,
    state: Mutex<RuntimeState>,
    /// The list of those that have something to do, and the number in it.
    restless: Option<(Arc<Restless>, usize)>,
}

#[derive(Default)]
struct RuntimeState {
    calls: Vec<Call>,
    alarm: Option<Option<Instant>>,
    spawned: Vec<(Kind, Task)>,
    /// Tasks that were woken: those of the runtime, and those of the application.
    ready: [Vec<TaskId>; 2],
}

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

impl Debug for RuntimeState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RuntimeState").field("ready", &self.ready).finish_non_exhaustive()
    }
}

impl Desk {
    pub(in crate::sim) fn new(clock: Arc<Clock>) -> Arc<Self> {
        Arc::new(Self { clock, state: Mutex::default(), restless: None })
    }

    /// Creates the desk of a client with this number, which is noted when it has something to do.
    pub(in crate::sim) fn noted(
        clock: Arc<Clock>,
        restless: &Arc<Restless>,
        client: usize,
    ) -> Arc<Self> {
        let restless = Some((Arc::clone(restless), client));
        Arc::new(Self { clock, state: Mutex::default(), restless })
    }

    /// Lets go of what was asked for, and of what that asks for as it is dropped.
    fn clear(&self) {
        loop {
            let left = std::mem::take(&mut *self.lock());
            if left.calls.is_empty() && left.spawned.is_empty() {
                return;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, RuntimeState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves something there.
    fn leave(&self, what: impl FnOnce(&mut RuntimeState)) {
        what(&mut self.lock());
        if let Some((restless, client)) = &self.restless {
            restless.note(*client);
        }
    }

    pub(in crate::sim) fn now(&self) -> Instant {
        self.clock.now()
    }

    /// Counts a poll of a task.
    fn polls(&self, kind: Kind, task: TaskId) {
        let client = self.restless.as_ref().map(|(_, client)| *client);
        self.clock.step(Step::Poll(client, kind, task));
    }

    fn call(&self, call: Call) {
        self.leave(|state| state.calls.push(call));
    }

    /// Takes what was asked for since the last time; `calls` is empty, and kept for its memory.
    pub(in crate::sim) fn take_calls(&self, calls: &mut Vec<Call>) {
        std::mem::swap(&mut self.lock().calls, calls);
    }

    /// Returns when the alarm is to ring, if that was said since the last time.
    pub(in crate::sim) fn take_alarm(&self) -> Option<Option<Instant>> {
        self.lock().alarm.take()
    }

    /// Starts a task of the application.
    pub(in crate::sim) fn spawn(
        &self,
        kind: Kind,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        self.leave(|state| state.spawned.push((kind, Box::pin(task))));
    }

    /// Waits for a time, also if another task goes on with that.
    pub(in crate::sim) async fn sleep_until(&self, at: Instant) {
        let mut waits: Option<Waker> = None;
        std::future::poll_fn(|cx: &mut Context<'_>| {
            if self.now() >= at {
                return Poll::Ready(());
            }
            if !waits.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
                waits = Some(cx.waker().clone());
                self.call(Call::Wake { at, waker: cx.waker().clone() });
            }
            Poll::Pending
        })
        .await;
    }
}

/// A lookup of the deployment's records, until it is answered.
#[derive(Debug, Default)]
pub(in crate::sim) struct Lookup(Mutex<(Option<Records>, Option<Waker>)>);

type Records = Result<Vec<SrvRecord>, DnsError>;

impl Lookup {
    pub(in crate::sim) fn answer(&self, records: Records) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.0 = Some(records);
        let waker = state.1.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }

    async fn answered(&self) -> Records {
        std::future::poll_fn(|cx| {
            let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(records) = state.0.take() {
                return Poll::Ready(records);
            }
            state.1 = Some(cx.waker().clone());
            Poll::Pending
        })
        .await
    }
}

/// Looks at every step of a host's machines.
pub trait Observer: Send + Sync + 'static {
    /// A step of the topology.
    fn topology(&self, step: TopologyStep<'_>);

    /// A step of a server's pool.
    fn pool<C: Debug>(&self, server: ServerId, step: PoolStep<'_, C>);
}

/// The runtime of one client.
#[derive(Debug)]
pub struct Virtual<O> {
    desk: Arc<Desk>,
    connector: Connector,
    observer: O,
    /// The source of numbers that are used only once.
    nonces: Arc<Mutex<Random>>,
    /// False if a connection that is refused fails as a lookup does, which is never overload.
    shows_overload: bool,
}

impl<O: Observer> Virtual<O> {
    pub(in crate::sim) fn new(
        options: &Options,
        desk: Arc<Desk>,
        observer: O,
        nonces: Random,
    ) -> Result<Self, ClientError> {
        let (connector, nonces) = (Connector::new(options)?, Arc::new(Mutex::new(nonces)));
        Ok(Self { desk, connector, observer, nonces, shows_overload: true })
    }

    /// Sets whether a connection that is refused may be overload.
    pub(in crate::sim) fn showing_overload(mut self, shows_overload: bool) -> Self {
        self.shows_overload = shows_overload;
        self
    }

    /// Returns what opens a stream.
    fn dial<F: Fn(Stage)>(
        &self,
        address: &ServerAddress,
        link: Option<LinkId>,
        reached: F,
    ) -> impl Future<Output = Result<Connected<VirtualSocket>, Failure>> + use<O, F> {
        let route = self.connector.route(address, &self.connector.filters());
        let (desk, shows_overload) = (Arc::clone(&self.desk), self.shows_overload);
        async move {
            open(desk, route, link, reached).await.map_err(|failure| match shows_overload {
                true => failure,
                false => Failure::new(Stage::Resolve, Cause::LookupFailed, "no answer"),
            })
        }
    }
}

async fn open(
    desk: Arc<Desk>,
    route: Result<Route, Failure>,
    link: Option<LinkId>,
    reached: impl Fn(Stage),
) -> Result<Connected<VirtualSocket>, Failure> {
    let route = route?;
    let socket = VirtualSocket::dial(desk, route.dial().clone(), link);
    reached(Stage::Connect);
    let opened = socket.opened().await;
    route.opened(opened.map(|()| socket))
}

impl<O: Observer> Runtime for Virtual<O> {
    type Socket = VirtualSocket;

    fn now(&self) -> Instant {
        self.desk.now()
    }

    fn open(&self, link: Link<Self>, address: ServerAddress) {
        let dial = self.dial(&address, Some(link.id()), |_| {});
        self.desk.spawn(Kind::Link, link.run(dial));
    }

    fn establish(&self, slot: PendingConnection<Self>, address: ServerAddress) {
        let progress = slot.progress();
        let dial = self.dial(&address, None, move |stage| progress.reached(stage));
        let nonces = Arc::clone(&self.nonces);
        let nonce = move || {
            let (mut nonce, mut random) =
                ([0; 24], nonces.lock().unwrap_or_else(PoisonError::into_inner));
            for part in nonce.chunks_mut(8) {
                part.copy_from_slice(&random.bits().to_le_bytes());
            }
            Ok(nonce)
        };
        self.desk.spawn(Kind::PendingConnection, slot.run(dial, nonce));
    }

    fn resolve(&self, rescan: Rescan<Self>) {
        let lookup = Arc::new(Lookup::default());
        self.desk.call(Call::Resolve { lookup: Arc::clone(&lookup) });
        self.desk.spawn(Kind::Rescan, async move { rescan.ended(lookup.answered().await) });
    }

    fn spawn(&self, task: Task) {
        self.desk.spawn(Kind::Background, task);
    }

    fn gssapi_provider(&self) -> Option<Arc<dyn GssapiProvider>> {
        Some(Arc::new(ScriptedGssapi::default()))
    }

    fn alarm(&self, deadline: Option<Instant>) {
        self.desk.leave(|state| state.alarm = Some(deadline));
    }

    /// That of the members.
    fn wall_clock(&self) -> Option<DateTime> {
        Some(self.desk.clock.wall())
    }

    fn on_topology(&self, step: TopologyStep<'_>) {
        self.observer.topology(step);
    }

    fn on_pool<C: Debug>(&self, server: ServerId, step: PoolStep<'_, C>) {
        self.observer.pool(server, step);
    }
}

/// Lookups in the order in which they were asked for.
pub(in crate::sim) type Lookups = VecDeque<Arc<Lookup>>;
