//! A topology in virtual time, what is known about it from outside, and what must hold of that.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use arbitrary::{Result, Unstructured};
use bson::oid::ObjectId;
use sdam_core::config::{Options, ReadMode, ReadPreference, ServerAddress};
use sdam_core::id::{Generation, LinkId, ServerId, WaiterId};
use sdam_core::machine::{Lawful, Machine};
use sdam_core::operation::OperationFailure;
use sdam_core::pool::Command;
use sdam_core::selection::{Criteria, Snapshot};
use sdam_core::time::Instant;
use sdam_core::topology::{Action, Input, Topology};
use sdam_core::trace::Recorder;

use super::records;
use super::replies::{self, Age, Request};
use crate::sim::Checks;
use crate::worlds;

/// A link, seen from the server.
#[derive(Debug)]
struct Link {
    address: ServerAddress,
    is_open: bool,
    /// What is to be answered next; after a reply that announces another one, that reply.
    request: Option<Request>,
}

/// A pool, as far as the topology's words on it go.
#[derive(Debug, Default)]
struct Pool {
    generation: Generation,
    services: BTreeMap<ObjectId, Generation>,
    is_ready: bool,
}

/// Somebody who waits for a server.
#[derive(Debug)]
struct Waiter {
    criteria: Arc<Criteria>,
    deadline: Option<Instant>,
}

/// A topology, and what is known about it from outside.
pub(super) struct World {
    topology: Recorder<Lawful<Topology>>,
    checks: Checks,
    age: Age,
    torn: bool,
    now: Instant,
    view: Arc<Snapshot>,
    links: BTreeMap<LinkId, Link>,
    /// All links that there have ever been, of which most are dead.
    opened: BTreeSet<LinkId>,
    pools: BTreeMap<ServerId, Pool>,
    /// All servers that there have ever been.
    servers: BTreeSet<ServerId>,
    waiters: BTreeMap<WaiterId, Waiter>,
    waited: u64,
    replies: i32,
    resolving: bool,
    closed: bool,
}

impl World {
    pub(super) fn new(
        topology: Recorder<Lawful<Topology>>,
        options: &Options,
        age: Age,
        torn: bool,
    ) -> Self {
        let mut world = Self {
            checks: Checks::new(0, options, Arc::default(), Vec::new(), false),
            view: Arc::clone(topology.get().get().snapshot()),
            topology,
            age,
            torn,
            now: Instant::ZERO,
            links: BTreeMap::new(),
            opened: BTreeSet::new(),
            pools: BTreeMap::new(),
            servers: BTreeSet::new(),
            waiters: BTreeMap::new(),
            waited: 0,
            replies: 1000,
            resolving: false,
            closed: false,
        };
        world.tick();
        world.settle();
        world
    }

    /// A stream that is being opened is up.
    pub(super) fn open(&mut self, input: &mut Unstructured<'_>) -> Result<()> {
        if let Some(link) = self.pick(input, |link| !link.is_open)? {
            self.links.entry(link).and_modify(|it| it.is_open = true);
            self.tell(Input::Opened { link });
        }
        Ok(())
    }

    /// A server answers what it was asked, or goes on to.
    pub(super) fn reply(&mut self, input: &mut Unstructured<'_>) -> Result<()> {
        let Some(id) = self.pick(input, |link| link.request.is_some())? else { return Ok(()) };
        let Some(link) = self.links.get_mut(&id) else { return Ok(()) };
        let Some(request) = link.request.take() else { return Ok(()) };
        let address = link.address.clone();
        let more = !request.is_legacy && input.arbitrary()?;
        self.replies += 1;
        let reply = replies::hello(input, self.age, &address)?;
        let bytes = replies::write(request, self.replies, more, &reply);
        if more {
            link.request = Some(Request { number: self.replies, is_legacy: false });
        }
        self.receive(id, &bytes);
        Ok(())
    }

    /// A server says anything.
    pub(super) fn babble(&mut self, input: &mut Unstructured<'_>) -> Result<()> {
        if let Some(link) = self.pick(input, |link| link.is_open)? {
            let length = input.int_in_range(1..=64)?.min(input.len());
            let bytes = input.bytes(length)?;
            self.receive(link, bytes);
        }
        Ok(())
    }

    fn receive(&mut self, link: LinkId, bytes: &[u8]) {
        let part = if self.torn { 7 } else { bytes.len().max(1) };
        for bytes in bytes.chunks(part) {
            self.tell(Input::Received { link, bytes });
        }
    }

    /// A stream ends, or cannot be opened.
    pub(super) fn close(&mut self, input: &mut Unstructured<'_>) -> Result<()> {
        if let Some(link) = self.pick(input, |_| true)? {
            let failure = replies::failure(input)?;
            self.links.remove(&link);
            self.tell(Input::Closed { link, failure });
        }
        Ok(())
    }

    /// Time passes, and the alarm rings at every deadline.
    pub(super) fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        while let Some(due) = self.topology.deadline().filter(|due| *due <= until) {
            self.now = due;
            self.checks.woken(due);
            self.tick();
            self.settle();
        }
        self.now = until;
    }

    /// Time passes while the process is stopped: the alarm rings late.
    pub(super) fn sleep(&mut self, time: Duration) {
        self.now = self.now + time;
        self.checks.resumed(self.now);
        self.tick();
    }

    /// An operation begins to wait.
    pub(super) fn wait(&mut self, input: &mut Unstructured<'_>) -> Result<()> {
        let modes = [ReadMode::Nearest, ReadMode::Secondary, ReadMode::PrimaryPreferred];
        let criteria = Arc::new(match input.int_in_range(0..=3_u8)? {
            0 => Criteria::read(ReadPreference::new(*input.choose(&modes)?)),
            1 => {
                let preference = ReadPreference::new(ReadMode::SecondaryPreferred);
                let seconds = Duration::from_secs(input.int_in_range(80..=100)?);
                let preference = preference.with_max_staleness(seconds);
                Criteria::read(preference.expect("not with primary"))
            }
            _ => Criteria::write(),
        });
        let deadline = match input.arbitrary()? {
            true => Some(self.now + super::millis(input)?),
            false => None,
        };
        self.waited += 1;
        let waiter = WaiterId(self.waited);
        self.waiters.insert(waiter, Waiter { criteria: Arc::clone(&criteria), deadline });
        self.tell(Input::Wait { waiter, criteria, deadline });
        Ok(())
    }

    /// An operation gives up, perhaps one that has been answered.
    pub(super) fn abandon(&mut self, input: &mut Unstructured<'_>) -> Result<()> {
        let waiter = WaiterId(input.int_in_range(0..=self.waited)?);
        self.waiters.remove(&waiter);
        self.tell(Input::Abandon { waiter });
        Ok(())
    }

    pub(super) fn request_check(&mut self) {
        self.tell(Input::RequestCheck);
    }

    /// An operation has failed, perhaps on a server that has left or in a generation that is over.
    pub(super) fn fail_operation(&mut self, input: &mut Unstructured<'_>) -> Result<()> {
        let servers: Vec<ServerId> = self.servers.iter().copied().collect();
        let server = *input.choose(&servers)?;
        let (stale, error) = (input.ratio(1, 4)?, replies::operation_error(input)?);
        let service = match input.arbitrary()? {
            true => Some(ObjectId::from_bytes([input.int_in_range(0..=1)?; 12])),
            false => None,
        };
        let pool = self.pools.get(&server);
        let of_service = |pool: &Pool| match service {
            Some(service) => pool.services.get(&service).copied().unwrap_or_default(),
            None => pool.generation,
        };
        let current = pool.map(of_service).unwrap_or_default().number();
        let stale = stale && current > 0;
        let generation = Generation::new(current - u32::from(stale));
        let max_wire_version = *input.choose(&[0, 8, 17])?;
        let before = Arc::clone(&self.view);
        let failure = OperationFailure { generation, service, max_wire_version, error };
        self.tick();
        self.tell(Input::OperationFailed { server, failure });
        let unchanged = Arc::ptr_eq(&before, &self.view) || !(stale || pool_is_gone(self, server));
        assert!(unchanged, "stale errors change nothing");
        Ok(())
    }

    /// Something comes of a link that is dead.
    pub(super) fn haunt(&mut self, input: &mut Unstructured<'_>) -> Result<()> {
        let dead = self.opened.iter().filter(|link| !self.links.contains_key(link));
        let dead: Vec<LinkId> = dead.copied().collect();
        if dead.is_empty() {
            return Ok(());
        }
        let link = *input.choose(&dead)?;
        let kind = input.int_in_range(0..=2_u8)?;
        let failure = replies::failure(input)?;
        self.tick();
        let mut out = Vec::new();
        let ghost = match kind {
            0 => Input::Opened { link },
            1 => Input::Received { link, bytes: b"boo" },
            _ => Input::Closed { link, failure },
        };
        self.topology.handle(self.now.into(), ghost, &mut out);
        assert!(out.is_empty(), "a dead link makes it do {out:?}");
        Ok(())
    }

    /// A lookup ends, whether it was asked for or not.
    pub(super) fn resolve(&mut self, input: &mut Unstructured<'_>) -> Result<()> {
        let records = records(input)?;
        self.tick();
        self.resolving = false;
        self.checks.resolving();
        let (before, answer) = (Arc::clone(&self.view), records.clone());
        self.tell(Input::Resolved { records });
        self.checks.resolved(self.now, &answer, (&before, &self.view));
        Ok(())
    }

    /// The client is closed: nothing is left. Returns what tells this run from others.
    pub(super) fn shut_down(&mut self) -> u64 {
        self.closed = true;
        self.tell(Input::Shutdown);
        self.settle();
        self.checks.closed(self.topology.deadline(), self.links.len());
        self.judge();
        assert!(self.waiters.is_empty(), "somebody waits for a client that was closed");
        assert!(self.pools.is_empty(), "pools are left: {:?}", self.pools);
        self.checks.digest()
    }

    fn pick(
        &self,
        input: &mut Unstructured<'_>,
        wanted: impl Fn(&Link) -> bool,
    ) -> Result<Option<LinkId>> {
        let links = self.links.iter().filter(|(_, link)| wanted(link)).map(|(id, _)| *id);
        let links: Vec<LinkId> = links.collect();
        if links.is_empty() { Ok(None) } else { input.choose(&links).copied().map(Some) }
    }

    fn tick(&mut self) {
        let mut out = Vec::new();
        self.topology.tick(self.now.into(), &mut out);
        out.into_iter().for_each(|action| self.perform(action));
    }

    fn tell(&mut self, input: Input<'_>) {
        let mut out = Vec::new();
        self.topology.handle(self.now.into(), input, &mut out);
        out.into_iter().for_each(|action| self.perform(action));
    }

    fn perform(&mut self, action: Action) {
        let pools = &self.pools;
        self.checks.action(self.now, &action, |id| pools.get(&id).map(|pool| pool.is_ready));
        match action {
            Action::Open { link, address } => {
                assert!(self.opened.insert(link), "{link} is opened twice");
                self.links.insert(link, Link { address, is_open: false, request: None });
                self.note_measuring(link);
            }
            Action::Send { link, bytes } => {
                let far = self.links.get_mut(&link).expect("a link that is not dead");
                assert!(far.is_open, "{link} is used before it is up");
                let (number, is_legacy, _) = worlds::request(&bytes).expect("a whole request");
                far.request = Some(Request { number, is_legacy });
                self.note_measuring(link);
            }
            Action::Close { link } => {
                assert!(self.links.remove(&link).is_some(), "{link} is closed twice");
            }
            Action::Resolve { .. } => {
                assert!(!std::mem::replace(&mut self.resolving, true), "one lookup at a time");
            }
            Action::Join { server, .. } => {
                assert!(self.servers.insert(server), "{server} joins twice");
                self.pools.insert(server, Pool::default());
            }
            Action::Leave { server } => {
                let linked = self.links.keys().any(|link| link.server() == server);
                assert!(self.pools.remove(&server).is_some() && !linked, "{server} has left");
            }
            Action::Pool { server, command } => self.command(server, &command),
            Action::Publish { snapshot } => self.view = snapshot,
            Action::Wake { waiter, .. } => {
                assert!(self.waiters.remove(&waiter).is_some(), "{waiter:?} was not waiting");
            }
            Action::Emit { event } => assert_eq!(event.at, self.now, "events are of now"),
        }
    }

    /// The second link of a server only measures round trips.
    fn note_measuring(&mut self, link: LinkId) {
        let older = self.links.range(..link).next_back();
        if older.is_some_and(|(older, _)| older.server() == link.server()) {
            self.checks.measures(link.server(), self.now);
        }
    }

    fn command(&mut self, server: ServerId, command: &Command) {
        let pool = self.pools.get_mut(&server).expect("a member");
        match command {
            Command::Ready => {
                assert!(!std::mem::replace(&mut pool.is_ready, true), "{server} is ready twice");
            }
            Command::Clear { to, .. } => {
                let from = std::mem::replace(&mut pool.generation, *to);
                assert_eq!(to.number(), from.number() + 1, "generations count");
                pool.is_ready = false;
            }
            Command::ClearService { service, to, .. } => {
                let from = pool.services.insert(*service, *to).unwrap_or_default();
                assert_eq!(to.number(), from.number() + 1, "generations count");
            }
            other => panic!("{other:?} is not known here"),
        }
    }

    /// A step is over, and everything it brought about is done.
    pub(super) fn settle(&mut self) {
        let wanted = !self.waiters.is_empty();
        let deadline = self.topology.deadline();
        self.checks.after_step(self.now, deadline, self.closed, &self.view, wanted);
        if !self.closed {
            self.checks.audit(self.now);
        }
        self.judge();
        for (id, waiter) in &self.waiters {
            assert!(waiter.deadline.is_none_or(|due| due > self.now), "{id:?} waits too long");
            let found = self.view.select(&waiter.criteria, |_| 0, 0);
            assert_eq!(found, Ok(None), "{id:?} waits for what is there");
        }
    }

    fn judge(&mut self) {
        if let Some(violation) = self.checks.take_violation() {
            panic!("{violation}");
        }
    }
}

fn pool_is_gone(world: &World, server: ServerId) -> bool {
    !world.pools.contains_key(&server)
}
