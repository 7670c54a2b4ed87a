//! A topology in virtual time, what is known about it from outside, and what must hold of that.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arbitrary::{Result, Unstructured};
use bson::oid::ObjectId;
use sdam_core::config::{Options, ReadMode, ReadPreference};
use sdam_core::harness::{Peer, StreamState, VirtualTopology};
use sdam_core::id::{Generation, LinkId, ServerId, WaiterId};
use sdam_core::machine::{Lawful, Machine};
use sdam_core::operation::OperationFailure;
use sdam_core::pool::Command;
use sdam_core::selection::{Criteria, Snapshot};
use sdam_core::time::Instant;
use sdam_core::topology::{Action, Input, Topology};
use sdam_core::trace::Recorder;
use sdam_core::wire::{Flags, op_code};

use super::records;
use super::replies::{self, Age};
use crate::sim::Checks;

/// Somebody who waits for a server.
#[derive(Debug)]
struct Waiter {
    criteria: Arc<Criteria>,
    deadline: Option<Instant>,
}

/// A topology, and what is known about it from outside.
pub(super) struct World {
    topology: VirtualTopology<Recorder<Lawful<Topology>>>,
    checks: Checks,
    age: Age,
    torn: bool,
    view: Arc<Snapshot>,
    /// The members, as far as what was done to them was looked at, and whether their pools are
    /// ready.
    ready: BTreeMap<ServerId, bool>,
    waiters: BTreeMap<WaiterId, Waiter>,
    waited: u64,
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
            topology: VirtualTopology::new(topology),
            age,
            torn,
            ready: BTreeMap::new(),
            waiters: BTreeMap::new(),
            waited: 0,
            resolving: false,
            closed: false,
        };
        world.ring(Instant::ZERO);
        world.settle();
        world
    }

    /// A stream that is being opened is up.
    pub(super) fn open(&mut self, input: &mut Unstructured<'_>) -> Result<()> {
        if let Some(link) = self.pick(input, |peer| peer.state == StreamState::Opening)? {
            self.input(Input::Opened { link });
        }
        Ok(())
    }

    /// A server answers what it was asked, or goes on to.
    pub(super) fn reply(&mut self, input: &mut Unstructured<'_>) -> Result<()> {
        let Some(link) = self.pick(input, |peer| peer.is_asked)? else { return Ok(()) };
        let Peer { address, request, .. } = self.topology.peer(link);
        let is_legacy = request.as_ref().is_some_and(|it| it.op_code == op_code::OP_QUERY);
        let more = !is_legacy && input.arbitrary()?;
        let reply = replies::hello(input, self.age, address)?;
        let flags = if more { Flags::MORE_TO_COME } else { Flags::NONE };
        let bytes = self.topology.answer(link, &reply, flags);
        self.receive(link, &bytes);
        Ok(())
    }

    /// A server says anything.
    pub(super) fn babble(&mut self, input: &mut Unstructured<'_>) -> Result<()> {
        if let Some(link) = self.pick(input, |peer| peer.state == StreamState::Open)? {
            let length = input.int_in_range(1..=64)?.min(input.len());
            let bytes = input.bytes(length)?;
            self.receive(link, bytes);
        }
        Ok(())
    }

    fn receive(&mut self, link: LinkId, bytes: &[u8]) {
        let part = if self.torn { 7 } else { bytes.len().max(1) };
        for bytes in bytes.chunks(part) {
            self.input(Input::Received { link, bytes });
        }
    }

    /// A stream ends, or cannot be opened.
    pub(super) fn close(&mut self, input: &mut Unstructured<'_>) -> Result<()> {
        if let Some(link) = self.pick(input, |_| true)? {
            let failure = replies::failure(input)?;
            self.input(Input::Closed { link, failure });
        }
        Ok(())
    }

    /// Time passes, and the alarm rings at every deadline.
    pub(super) fn pass(&mut self, time: Duration) {
        let until = self.topology.now() + time;
        while let Some(due) = self.topology.machine.deadline().filter(|due| *due <= until) {
            self.checks.woken(due);
            self.ring(due);
            self.settle();
        }
        self.topology.pass(until);
    }

    /// Time passes while the process is stopped: the alarm rings late.
    pub(super) fn sleep(&mut self, time: Duration) {
        let now = self.topology.now() + time;
        self.checks.resumed(now);
        self.ring(now);
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
            true => Some(self.topology.now() + super::millis(input)?),
            false => None,
        };
        self.waited += 1;
        let waiter = WaiterId(self.waited);
        self.waiters.insert(waiter, Waiter { criteria: Arc::clone(&criteria), deadline });
        self.input(Input::Wait { waiter, criteria, deadline });
        Ok(())
    }

    /// An operation gives up, perhaps one that has been answered.
    pub(super) fn abandon(&mut self, input: &mut Unstructured<'_>) -> Result<()> {
        let waiter = WaiterId(input.int_in_range(0..=self.waited)?);
        self.waiters.remove(&waiter);
        self.input(Input::Abandon { waiter });
        Ok(())
    }

    pub(super) fn request_check(&mut self) {
        self.input(Input::RequestCheck);
    }

    /// An operation has failed, perhaps on a server that has left or in a generation that is over.
    pub(super) fn fail_operation(&mut self, input: &mut Unstructured<'_>) -> Result<()> {
        let servers: Vec<ServerId> = self.topology.servers().map(|(id, _)| id).collect();
        let server = *input.choose(&servers)?;
        let (stale, error) = (input.ratio(1, 4)?, replies::operation_error(input)?);
        let service = match input.arbitrary()? {
            true => Some(ObjectId::from_bytes([input.int_in_range(0..=1)?; 12])),
            false => None,
        };
        let member = self.topology.server(server).filter(|it| !it.has_left);
        let is_gone = member.is_none();
        let current =
            member.map(|it| it.generation_of(service.as_ref())).unwrap_or_default().number();
        let stale = stale && current > 0;
        let generation = Generation::new(current - u32::from(stale));
        let max_wire_version = *input.choose(&[0, 8, 17])?;
        let before = Arc::clone(&self.view);
        let failure =
            OperationFailure::new(generation, max_wire_version, error).with_service(service);
        self.ring(self.topology.now());
        self.input(Input::OperationFailed { server, failure });
        let unchanged = Arc::ptr_eq(&before, &self.view) || !(stale || is_gone);
        assert!(unchanged, "stale errors change nothing");
        Ok(())
    }

    /// Something comes of a link that is dead.
    pub(super) fn haunt(&mut self, input: &mut Unstructured<'_>) -> Result<()> {
        let dead = self.topology.peers().filter(|(_, peer)| peer.state == StreamState::Closed);
        let dead: Vec<LinkId> = dead.map(|(link, _)| link).collect();
        if dead.is_empty() {
            return Ok(());
        }
        let link = *input.choose(&dead)?;
        let kind = input.int_in_range(0..=2_u8)?;
        let failure = replies::failure(input)?;
        self.ring(self.topology.now());
        let ghost = match kind {
            0 => Input::Opened { link },
            1 => Input::Received { link, bytes: b"boo" },
            _ => Input::Closed { link, failure },
        };
        self.topology.input(ghost);
        let out = self.topology.take_actions();
        assert!(out.is_empty(), "a dead link makes it do {out:?}");
        Ok(())
    }

    /// A lookup ends, whether it was asked for or not.
    pub(super) fn resolve(&mut self, input: &mut Unstructured<'_>) -> Result<()> {
        let records = records(input)?;
        self.ring(self.topology.now());
        self.resolving = false;
        self.checks.resolving();
        let (before, answer) = (Arc::clone(&self.view), records.clone());
        self.input(Input::Resolved { records });
        self.checks.resolved(self.topology.now(), &answer, (&before, &self.view));
        Ok(())
    }

    /// The client is closed: nothing is left. Returns what distinguishes this run from others.
    pub(super) fn shut_down(&mut self) -> u64 {
        self.closed = true;
        self.input(Input::Shutdown);
        self.settle();
        let deadline = self.topology.machine.deadline();
        self.checks.closed(deadline, self.topology.connected().count());
        self.judge();
        assert!(self.waiters.is_empty(), "somebody waits for a client that was closed");
        assert!(self.ready.is_empty(), "pools are left: {:?}", self.ready);
        self.checks.digest()
    }

    fn pick(
        &self,
        input: &mut Unstructured<'_>,
        wanted: impl Fn(&Peer) -> bool,
    ) -> Result<Option<LinkId>> {
        let links = self.topology.connected().filter(|(_, peer)| wanted(peer)).map(|(id, _)| id);
        let links: Vec<LinkId> = links.collect();
        if links.is_empty() { Ok(None) } else { input.choose(&links).copied().map(Some) }
    }

    fn ring(&mut self, at: Instant) {
        self.topology.ring(at);
        self.look();
    }

    fn input(&mut self, input: Input<'_>) {
        self.topology.input(input);
        self.look();
    }

    /// Looks at what was done.
    fn look(&mut self) {
        let now = self.topology.now();
        for action in self.topology.take_actions() {
            self.checks.action(now, &action, |id| self.ready.get(&id).copied());
            match action {
                Action::Open { link, .. } | Action::Send { link, .. } => self.note_measuring(link),
                Action::Resolve { .. } => {
                    assert!(!std::mem::replace(&mut self.resolving, true), "one lookup at a time");
                }
                Action::Join { server, .. } => drop(self.ready.insert(server, false)),
                Action::Leave { server } => drop(self.ready.remove(&server)),
                Action::Pool { server, command: Command::Ready } => {
                    self.ready.insert(server, true);
                }
                Action::Pool { server, command: Command::Clear { .. } } => {
                    self.ready.insert(server, false);
                }
                Action::Publish { snapshot } => self.view = snapshot,
                Action::Wake { waiter, .. } => {
                    let waited = self.waiters.remove(&waiter).is_some();
                    assert!(waited, "{waiter:?} was not waiting");
                }
                Action::Emit { event } => assert_eq!(event.at, now, "events are of now"),
                Action::Close { .. } | Action::Pool { .. } => {}
            }
        }
    }

    /// The second link of a server only measures round trips.
    fn note_measuring(&mut self, link: LinkId) {
        let mut others = self.topology.connected().filter(|(other, _)| *other < link);
        if others.any(|(other, _)| other.server() == link.server()) {
            self.checks.measures(link.server(), self.topology.now());
        }
    }

    /// A step is over, and everything it brought about is done.
    pub(super) fn settle(&mut self) {
        let (now, deadline) = (self.topology.now(), self.topology.machine.deadline());
        let wanted = !self.waiters.is_empty();
        self.checks.after_step(now, deadline, self.closed, &self.view, wanted);
        if !self.closed {
            self.checks.audit(now);
        }
        self.judge();
        for (id, waiter) in &self.waiters {
            assert!(waiter.deadline.is_none_or(|due| due > now), "{id:?} waits too long");
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
