//! A topology in virtual time, whose servers answer what a case makes them answer, and when.
//!
//! It is driven through its public interface only: bytes, failures and time go in, and what is
//! seen of it are the actions it emits. Servers are polled, and no check ever times out, so that a
//! case decides alone when a check ends and with what.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::config::{MonitoringMode, OpeningHello, Options, OptionsError, ServerAddress};
use crate::description::TopologyDescription;
use crate::failure::{Cause, Failure, Stage};
use crate::id::{Generation, LinkId, ServerId, TopologyId};
use crate::machine::{Lawful, Machine};
use crate::pool::Command;
use crate::selection::Snapshot;
use crate::time::Instant;
use crate::topology::{Action, Event, EventKind, Input, Topology};
use crate::wire::{Flags, Frames, write_op_msg};
use bson::RawDocument;

/// How many deadlines may pass until a server is checked again; each server has but one.
const MAX_DEADLINES: usize = 10_000;

/// Why a case cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum HarnessError {
    /// A case has an answer of a server that the client never asked.
    #[error("{0} is to answer, but the client never connected to it")]
    NeverAsked(ServerAddress),
    /// A case has an error of a server that is not part of the topology.
    #[error("an operation on {0} is to fail, but the client does not know that server")]
    NoSuchServer(ServerAddress),
    /// A server of the topology is not checked any more.
    #[error("{0} is to answer, but the client does not check it again")]
    NotChecked(ServerAddress),
    /// A server that has left answered, and something came of it.
    #[error("{server} has left, but its late answer made the client act: {actions}")]
    LateAnswer {
        /// The server.
        server: ServerAddress,
        /// What the client did.
        actions: String,
    },
}

/// How a server answers a check.
#[derive(Clone, Copy, Debug)]
pub enum Answer<'a> {
    /// With this reply to hello.
    Reply(&'a RawDocument),
    /// By closing the connection.
    NetworkError,
}

/// A topology in virtual time.
pub struct Harness {
    topology: Lawful<Topology>,
    now: Instant,
    snapshot: Arc<Snapshot>,
    events: Vec<Event>,
    links: BTreeMap<LinkId, Far>,
    /// The generation of the pool of every server there has been.
    pools: BTreeMap<ServerId, Generation>,
}

/// The far end of a link.
struct Far {
    address: ServerAddress,
    opened: bool,
    closed: bool,
    /// The number of the request that awaits its answer.
    asked: Option<i32>,
}

impl Harness {
    /// Begins at time zero with the deployment that `uri` names.
    ///
    /// # Errors
    ///
    /// The connection string is refused, or an option is.
    pub fn new(uri: &str, heartbeat: Option<Duration>) -> Result<Self, OptionsError> {
        let mut options = Options::builder()
            .uri(uri)?
            .monitoring_mode(MonitoringMode::Poll)
            .opening_hello(OpeningHello::OpMsg)
            .connect_timeout(Duration::ZERO);
        if let Some(heartbeat) = heartbeat {
            options = options.heartbeat_frequency(heartbeat);
        }
        Ok(Self::with(options.build()?))
    }

    /// Begins at time zero with these options.
    pub fn with(options: Options) -> Self {
        let topology = Topology::new(Arc::new(options), 1);
        let mut harness = Self {
            snapshot: Arc::clone(topology.snapshot()),
            topology: Lawful::new(topology),
            now: Instant::ZERO,
            events: Vec::new(),
            links: BTreeMap::new(),
            pools: BTreeMap::new(),
        };
        harness.tick();
        harness
    }

    /// Returns the last view that was published.
    pub fn view(&self) -> &TopologyDescription {
        self.snapshot.description()
    }

    /// Returns the last view that was published, made for selecting from.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Returns the events since the last call, in order, without those of heartbeats.
    pub fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// Returns the topology's name in events.
    pub const fn id(&self) -> TopologyId {
        self.topology.get().id()
    }

    /// Returns how often the pool of a server was told to clear; 0 for a server without a pool.
    pub fn generation(&self, address: &ServerAddress) -> u32 {
        let server = self.view().server(address);
        let generation = server.and_then(|server| self.pools.get(&server.id));
        generation.copied().unwrap_or_default().number()
    }

    /// Returns the virtual time.
    pub const fn now(&self) -> Instant {
        self.now
    }

    /// Lets time pass until then; every deadline on the way is met exactly.
    pub fn pass(&mut self, until: Instant) {
        while let Some(deadline) = self.topology.deadline().filter(|due| *due <= until) {
            self.now = deadline.max(self.now);
            self.tick();
        }
        self.now = until.max(self.now);
    }

    /// Accepts the connection that the client is opening to a server, if it is opening one.
    ///
    /// # Errors
    ///
    /// The server is not checked any more.
    pub fn accept(&mut self, address: &ServerAddress) -> Result<(), HarnessError> {
        let link = self.check_in_progress(address)?;
        self.open(link);
        Ok(())
    }

    /// Ends the check of a server that is in progress, or the next one as soon as it comes.
    ///
    /// A server that has left answers late, on the link it had, and nothing may come of it.
    ///
    /// # Errors
    ///
    /// The server was never asked, or is not checked any more; or something came of a late answer.
    pub fn answer(
        &mut self,
        address: &ServerAddress,
        answer: Answer<'_>,
    ) -> Result<(), HarnessError> {
        if self.view().server(address).is_none() {
            return self.answer_late(address, answer);
        }
        let link = self.check_in_progress(address)?;
        self.open(link);
        let actions = self.send(link, answer);
        self.digest(actions);
        Ok(())
    }

    /// Lets time pass until a server is being checked, and returns over which link.
    ///
    /// # Errors
    ///
    /// The server is not checked any more.
    pub fn check_in_progress(&mut self, address: &ServerAddress) -> Result<LinkId, HarnessError> {
        for _ in 0..MAX_DEADLINES {
            let asked = |far: &Far| !far.closed && (!far.opened || far.asked.is_some());
            let mut links = self.links.iter().filter(|(_, far)| far.address == *address);
            if let Some((link, _)) = links.find(|(_, far)| asked(far)) {
                return Ok(*link);
            }
            let Some(deadline) = self.topology.deadline() else { break };
            self.pass(deadline);
        }
        Err(HarnessError::NotChecked(address.clone()))
    }

    fn answer_late(
        &mut self,
        address: &ServerAddress,
        answer: Answer<'_>,
    ) -> Result<(), HarnessError> {
        let last = self.links.iter().rfind(|(_, far)| far.address == *address);
        let Some((&link, _)) = last else {
            return Err(HarnessError::NeverAsked(address.clone()));
        };
        let mut actions = self.perform(Input::Opened { link });
        actions.extend(self.send(link, answer));
        match actions.is_empty() {
            true => Ok(()),
            false => {
                let actions = format!("{actions:?}");
                Err(HarnessError::LateAnswer { server: address.clone(), actions })
            }
        }
    }

    fn open(&mut self, link: LinkId) {
        if let Some(far) = self.links.get_mut(&link)
            && !far.opened
        {
            far.opened = true;
            self.input(Input::Opened { link });
        }
    }

    /// Answers what was last asked over a link.
    fn send(&mut self, link: LinkId, answer: Answer<'_>) -> Vec<Action> {
        let far = self.links.get_mut(&link).expect("a link that the client has opened");
        let asked = far.asked.take();
        match answer {
            Answer::Reply(reply) => {
                let mut bytes = Vec::new();
                // A link that was closed before it was up was asked nothing; any number will do.
                write_op_msg(&mut bytes, 1, asked.unwrap_or(1), Flags::NONE, reply);
                self.perform(Input::Received { link, bytes: &bytes })
            }
            Answer::NetworkError => {
                far.closed = true;
                let detail = "the server closed the connection";
                let failure = Failure::new(Stage::Hello, Cause::Closed, detail);
                self.perform(Input::Closed { link, failure })
            }
        }
    }

    fn tick(&mut self) {
        let mut actions = Vec::new();
        self.topology.tick(self.now.into(), &mut actions);
        self.digest(actions);
    }

    /// Hands the client an input now.
    pub fn input(&mut self, input: Input<'_>) {
        let actions = self.perform(input);
        self.digest(actions);
    }

    fn perform(&mut self, input: Input<'_>) -> Vec<Action> {
        let mut actions = Vec::new();
        self.topology.handle(self.now.into(), input, &mut actions);
        actions
    }

    /// Notes what the client did.
    fn digest(&mut self, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Open { link, address } => {
                    let far = Far { address, opened: false, closed: false, asked: None };
                    self.links.insert(link, far);
                }
                Action::Send { link, bytes } => {
                    self.links.entry(link).and_modify(|far| far.asked = Some(request_id(&bytes)));
                }
                Action::Close { link } => {
                    self.links.entry(link).and_modify(|far| far.closed = true);
                }
                Action::Join { server, .. } => {
                    self.pools.insert(server, Generation::default());
                }
                Action::Leave { server } => {
                    self.pools.remove(&server);
                }
                Action::Pool { server, command: Command::Clear { to, .. } } => {
                    self.pools.entry(server).and_modify(|generation| *generation = to);
                }
                Action::Publish { snapshot } => self.snapshot = snapshot,
                Action::Emit { event } if !is_heartbeat(&event.kind) => self.events.push(event),
                _ => {}
            }
        }
    }
}

/// The number of a request that the client sent.
fn request_id(bytes: &[u8]) -> i32 {
    let mut frames = Frames::new();
    frames.extend(bytes);
    let message = frames.next().ok().flatten().expect("the client sends whole messages");
    message.header().request_id
}

const fn is_heartbeat(kind: &EventKind) -> bool {
    matches!(
        kind,
        EventKind::ServerHeartbeatStarted { .. }
            | EventKind::ServerHeartbeatSucceeded { .. }
            | EventKind::ServerHeartbeatFailed { .. }
    )
}
