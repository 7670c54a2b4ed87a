//! A world: a client, a deployment, and what is under way between them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use sdam_core::config::{Options, ReadMode, ReadPreference};
use sdam_core::description::TopologyVersion;
use sdam_core::failure::{Cause, Failure, Stage};
use sdam_core::harness::{self, Request};
use sdam_core::id::{LinkId, WaiterId};
use sdam_core::machine::{Lawful, Machine};
use sdam_core::selection::Criteria;
use sdam_core::time::Instant;
use sdam_core::topology::{Action, Input, Topology};
use sdam_core::wire::{Flags, ReplyFlags, op_code, write_op_msg, write_op_reply};

use super::deployment::{Deployment, MEMBERS, NAMES};
use super::digest::digest;
use super::laws::{Finding, Laws, Waiting, ensure};
use super::link::{Arrival, Link};
use super::step::WorldStep;
use crate::sim::Bounds;

/// The time that an operation waits.
const TIMEOUT: Duration = Duration::from_secs(3);

/// The operations that wait: for a primary, and for any server.
const WAITERS: [WaiterId; 2] = [WaiterId(1), WaiterId(2)];

/// More steps than any world takes to come to rest.
const ENDLESS: u32 = 10_000;

/// A client, a deployment, and what is under way between them.
#[derive(Clone, Debug)]
pub(super) struct World {
    options: Arc<Options>,
    pub(super) topology: Lawful<Topology>,
    pub(super) deployment: Deployment,
    pub(super) links: BTreeMap<LinkId, Link>,
    pub(super) laws: Laws,
    pub(super) now: Instant,
    streaming: bool,
    has_waited: bool,
}

impl World {
    /// Begins with a client that knows nothing.
    ///
    /// # Errors
    ///
    /// Says what does not hold.
    pub(super) fn new(options: &Arc<Options>) -> Result<Self, crate::sim::Violation> {
        let mut world = Self {
            streaming: options.streaming(),
            topology: Lawful::new(Topology::new(Arc::clone(options), 1)),
            options: Arc::clone(options),
            deployment: Deployment::new(),
            links: BTreeMap::new(),
            laws: Laws::default(),
            now: Instant::ZERO,
            has_waited: false,
        };
        world.tick()?;
        Ok(world)
    }

    /// Returns what distinguishes this world from others.
    pub(super) fn digest(&self) -> u128 {
        let client = (self.topology.get(), &self.laws, self.has_waited);
        digest(&(client, &self.deployment, &self.links), self.now, self.streaming)
    }

    /// Returns what happens next if everything comes in turn and nothing goes wrong.
    pub(super) fn next(&self) -> WorldStep {
        self.arriving().next().map_or(WorldStep::Time, WorldStep::Arrive)
    }

    /// Returns all that can happen.
    pub(super) fn steps(&self) -> Vec<WorldStep> {
        let mut steps: Vec<WorldStep> = self.arriving().map(WorldStep::Arrive).collect();
        steps.push(WorldStep::Time);
        steps.extend((!self.has_waited).then_some(WorldStep::Wait));
        steps.extend(self.laws.waiting.keys().map(|waiter| WorldStep::Abandon(*waiter)));
        steps.extend(self.faults().into_iter().map(WorldStep::Fault));
        steps
    }

    /// Returns the links on which something is under way.
    fn arriving(&self) -> impl Iterator<Item = LinkId> {
        let under_way = |link: &Link| !link.is_open || !link.arrivals.is_empty();
        self.links.iter().filter(move |(_, link)| under_way(link)).map(|(id, _)| *id)
    }

    /// Lets it happen.
    ///
    /// # Errors
    ///
    /// Says what does not hold then.
    pub(super) fn take(&mut self, step: WorldStep) -> Finding {
        match step {
            WorldStep::Arrive(link) => self.arrive(link)?,
            WorldStep::Time => self.pass_time()?,
            WorldStep::Wait => self.wait()?,
            WorldStep::Abandon(waiter) => {
                self.laws.waiting.remove(&waiter);
                self.input(Input::Abandon { waiter })?;
            }
            WorldStep::Fault(fault) => self.inject(fault)?,
        }
        self.laws.after_step(self.now, self.topology.get().snapshot())
    }

    fn wait(&mut self) -> Finding {
        let (since, until) = (self.now, self.now + TIMEOUT);
        let any = Criteria::read(ReadPreference::new(ReadMode::Nearest));
        self.has_waited = true;
        for (waiter, criteria) in WAITERS.into_iter().zip([Criteria::write(), any]) {
            let criteria = Arc::new(criteria);
            let waiting = Waiting { since, until, criteria: Arc::clone(&criteria) };
            self.laws.waiting.insert(waiter, waiting);
            self.input(Input::Wait { waiter, criteria, deadline: Some(until) })?;
        }
        Ok(())
    }

    fn arrive(&mut self, id: LinkId) -> Finding {
        let Some(link) = self.links.get_mut(&id) else { return Ok(()) };
        if !link.is_open {
            if self.deployment.servers[link.member].is_up {
                link.is_open = true;
                return self.input(Input::Opened { link: id });
            }
            return self.close(id, Stage::Connect, Cause::Refused);
        }
        match link.arrivals.pop_front() {
            None => Ok(()),
            Some(Arrival::End) => self.close(id, Stage::Hello, Cause::Closed),
            Some(Arrival::Reply { hello, more }) => {
                let (mut bytes, document) = (Vec::new(), hello.document(self.streaming));
                let reply_id = 1_000_000 + link.request_id;
                if link.is_legacy {
                    let flags = ReplyFlags::NONE;
                    write_op_reply(&mut bytes, reply_id, link.request_id, flags, &document);
                } else {
                    let flags = if more { Flags::MORE_TO_COME } else { Flags::NONE };
                    write_op_msg(&mut bytes, reply_id, link.request_id, flags, &document);
                }
                if more {
                    link.request_id = reply_id;
                }
                self.input(Input::Received { link: id, bytes: &bytes })
            }
        }
    }

    fn close(&mut self, link: LinkId, stage: Stage, cause: Cause) -> Finding {
        self.links.remove(&link);
        self.laws.lost(link);
        self.input(Input::Closed { link, failure: Failure::new(stage, cause, "it was closed") })
    }

    /// Passes the time until somebody's next timer.
    fn pass_time(&mut self) -> Finding {
        let listening = self.links.values().filter_map(|link| link.listens_until);
        let client = self.topology.deadline().into_iter().chain(self.laws.deadline());
        if let Some(next) = listening.chain(client).min() {
            self.now = self.now.max(next);
        }
        self.speak(self.now);
        match self.topology.deadline() {
            Some(deadline) if deadline <= self.now => self.tick(),
            _ => Ok(()),
        }
    }

    /// Servers send what is new to clients that listen, or that nothing is when the time has come.
    pub(super) fn speak(&mut self, now: Instant) {
        let again = now + self.options.heartbeat_frequency();
        for link in self.links.values_mut() {
            let (Some(until), Some(hello)) =
                (link.listens_until, self.deployment.hello(link.member))
            else {
                continue;
            };
            if until <= now || link.told != Some(hello.version()) {
                link.listens_until = Some(again);
                link.told = Some(hello.version());
                link.arrivals.push_back(Arrival::Reply { hello, more: true });
            }
        }
    }

    fn tick(&mut self) -> Finding {
        let mut out = Vec::new();
        self.topology.tick(self.now.into(), &mut out);
        self.perform(&out)
    }

    pub(super) fn input(&mut self, input: Input<'_>) -> Finding {
        let mut out = Vec::new();
        self.topology.handle(self.now.into(), input, &mut out);
        self.perform(&out)
    }

    fn perform(&mut self, actions: &[Action]) -> Finding {
        for action in actions {
            self.laws.action(action, self.now)?;
            match action {
                Action::Open { link, address } => {
                    let member = NAMES.iter().position(|name| *name == address.host());
                    self.links.insert(*link, Link::new(member.unwrap_or_default()));
                }
                Action::Send { link, bytes } => self.answer(*link, bytes)?,
                Action::Close { link } => drop(self.links.remove(link)),
                _ => {}
            }
        }
        Ok(())
    }

    /// A server takes a request, and answers it or begins to stream.
    fn answer(&mut self, id: LinkId, bytes: &[u8]) -> Finding {
        let request = harness::request(bytes);
        ensure(request.is_some(), "requests are well-formed", || format!("{id}"))?;
        let (Some(Request { number, op_code, command, .. }), Some(link)) =
            (request, self.links.get_mut(&id))
        else {
            return Ok(());
        };
        ensure(link.is_open, "nothing is sent before the stream is up", || format!("{id}"))?;
        (link.request_id, link.listens_until) = (number, None);
        link.is_legacy = op_code == op_code::OP_QUERY;
        let Some(hello) = self.deployment.hello(link.member) else { return Ok(()) };
        if link.has_ended() {
            return Ok(());
        }
        match command.get_document("topologyVersion") {
            Ok(known) => {
                let (Ok(process_id), Ok(counter)) =
                    (known.get_object_id("processId"), known.get_i64("counter"))
                else {
                    return ensure(false, "requests are well-formed", || format!("{id}"));
                };
                link.told = Some(TopologyVersion::new(process_id, counter));
                link.listens_until = Some(self.now + self.options.heartbeat_frequency());
                self.speak(self.now);
            }
            Err(_) => link.arrivals.push_back(Arrival::Reply { hello, more: false }),
        }
        Ok(())
    }

    /// From now on nothing goes wrong: the view becomes the truth.
    ///
    /// # Errors
    ///
    /// Says what does not hold on the way or then.
    pub(super) fn settle(&mut self) -> Finding {
        let until = self.now + self.patience();
        self.heal();
        for _ in 0..ENDLESS {
            let next = self.next();
            if next == WorldStep::Time && self.now >= until {
                return self.compare();
            }
            self.take(next)?;
        }
        ensure(false, "time passes", || format!("it is {:?} for ever", self.now))
    }

    /// The time that the view may take to become the truth.
    pub(super) fn patience(&self) -> Duration {
        let bounds = Bounds::of(&self.options);
        bounds.reachable + bounds.view
    }

    /// From now on nothing goes wrong.
    pub(super) fn heal(&mut self) {
        self.deployment.heal();
        self.speak(self.now);
    }

    /// Compares the view with the truth.
    ///
    /// # Errors
    ///
    /// Says how they differ.
    pub(super) fn compare(&self) -> Finding {
        let view = self.topology.get().description();
        let mut seen = [false; MEMBERS];
        for server in view.servers().iter() {
            let Some(member) = NAMES.iter().position(|name| *name == server.address.host()) else {
                return ensure(false, "the view is the truth", || server.address.to_string());
            };
            seen[member] = true;
            let truth = self.deployment.truth(member);
            ensure(server.server_type == truth, "the view becomes the truth", || {
                format!("{} is {truth}, and seen as {}", NAMES[member], server.server_type)
            })?;
        }
        // Only a primary says who belongs to the set.
        let is_right = |member: usize| seen[member] == self.deployment.is_member(member);
        let complete = self.deployment.primary().is_none() || (0..MEMBERS).all(is_right);
        ensure(complete, "the view names the members", || format!("{seen:?}"))
    }

    /// The client is closed: nothing is left.
    ///
    /// # Errors
    ///
    /// Says what is left.
    pub(super) fn shut_down(&mut self) -> Finding {
        let links: Vec<LinkId> = self.links.keys().copied().collect();
        self.input(Input::Shutdown)?;
        let idle = self.topology.deadline().is_none() && self.links.is_empty();
        ensure(idle, "a client that was closed has nothing to do", || format!("{:?}", self.links))?;
        self.laws.over()?;
        let mut out = Vec::new();
        self.topology.handle(self.now.into(), Input::Shutdown, &mut out);
        for link in links {
            self.topology.handle(self.now.into(), Input::Opened { link }, &mut out);
            let failure = Failure::new(Stage::Hello, Cause::Closed, "it was closed");
            self.topology.handle(self.now.into(), Input::Closed { link, failure }, &mut out);
        }
        ensure(out.is_empty(), "a client that was closed does nothing", || format!("{out:?}"))
    }
}
