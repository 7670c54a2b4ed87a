//! A topology in virtual time, whose servers answer what a case makes them answer, and when.
//!
//! It is driven through its public interface only: bytes, failures and time go in, and what is
//! seen of it are the actions it emits. Servers are polled, and no check ever times out, so that a
//! case decides alone when a check ends and with what.

mod virtual_topology;

use std::sync::Arc;
use std::time::Duration;

use crate::config::{MonitoringMode, OpeningHello, Options, OptionsError, ServerAddress};
use crate::description::TopologyDescription;
use crate::failure::{Cause, Failure, Stage};
use crate::id::{LinkId, TopologyId};
use crate::machine::Machine;
use crate::selection::Snapshot;
use crate::time::Instant;
use crate::topology::{Action, Event, EventKind, Input};
use bson::RawDocument;
pub use virtual_topology::{Member, Peer, Request, StreamState, VirtualTopology, request};

/// The number of deadlines that may pass until a server is checked again; each server has but one.
const MAX_DEADLINES: usize = 10_000;

/// The reason why a case cannot go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
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
        /// The client's actions.
        actions: String,
    },
}

/// The answer of a server to a check.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum CheckOutcome<'a> {
    /// With this reply to hello.
    Reply(&'a RawDocument),
    /// By closing the connection.
    NetworkError,
}

/// A topology in virtual time.
pub struct Harness {
    topology: VirtualTopology,
    snapshot: Arc<Snapshot>,
    events: Vec<Event>,
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
        let topology = VirtualTopology::open(options, 1);
        let snapshot = Arc::clone(topology.machine.get().snapshot());
        let mut new = Self { topology, snapshot, events: Vec::new() };
        new.note();
        new
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
        self.topology.machine.get().id()
    }

    /// Returns how often the pool of a server was cleared; 0 for a server without a pool.
    pub fn generation(&self, address: &ServerAddress) -> u32 {
        let server = self.view().server(address);
        let member = server.and_then(|server| self.topology.server(server.id));
        member.map(|member| member.generation).unwrap_or_default().number()
    }

    /// Returns the virtual time.
    pub const fn now(&self) -> Instant {
        self.topology.now()
    }

    /// Lets time pass until then; every deadline on the way is met exactly.
    pub fn pass(&mut self, until: Instant) {
        self.topology.pass(until);
        self.note();
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
        answer: CheckOutcome<'_>,
    ) -> Result<(), HarnessError> {
        if self.view().server(address).is_none() {
            return self.answer_late(address, answer);
        }
        let link = self.check_in_progress(address)?;
        self.open(link);
        self.send(link, answer);
        self.note();
        Ok(())
    }

    /// Lets time pass until a server is being checked, and returns over which link.
    ///
    /// # Errors
    ///
    /// The server is not checked any more.
    pub fn check_in_progress(&mut self, address: &ServerAddress) -> Result<LinkId, HarnessError> {
        for _ in 0..MAX_DEADLINES {
            let is_asked = |peer: &Peer| peer.state == StreamState::Opening || peer.is_asked;
            let is_due = |peer: &Peer| peer.address == *address && is_asked(peer);
            let due = self.topology.connected().find(|(_, peer)| is_due(peer));
            if let Some((link, _)) = due {
                return Ok(link);
            }
            let Some(deadline) = self.topology.machine.deadline() else { break };
            self.pass(deadline);
        }
        Err(HarnessError::NotChecked(address.clone()))
    }

    fn answer_late(
        &mut self,
        address: &ServerAddress,
        answer: CheckOutcome<'_>,
    ) -> Result<(), HarnessError> {
        let Some(link) = self.topology.last_link(&address.to_string()) else {
            return Err(HarnessError::NeverAsked(address.clone()));
        };
        self.topology.accept(link);
        self.send(link, answer);
        let actions = self.topology.take_actions();
        match actions.is_empty() {
            true => Ok(()),
            false => {
                let actions = format!("{actions:?}");
                Err(HarnessError::LateAnswer { server: address.clone(), actions })
            }
        }
    }

    fn open(&mut self, link: LinkId) {
        if self.topology.peer(link).state == StreamState::Opening {
            self.input(Input::Opened { link });
        }
    }

    /// Answers what was last asked over a link.
    fn send(&mut self, link: LinkId, answer: CheckOutcome<'_>) {
        match answer {
            CheckOutcome::Reply(reply) => self.topology.reply(link, reply),
            CheckOutcome::NetworkError => {
                let detail = "the server closed the connection";
                self.topology.close(link, Failure::new(Stage::Hello, Cause::Closed, detail));
            }
        }
    }

    /// Hands the client an input now.
    pub fn input(&mut self, input: Input<'_>) {
        self.topology.input(input);
        self.note();
    }

    /// Notes what the client did.
    fn note(&mut self) {
        for action in self.topology.take_actions() {
            match action {
                Action::Publish { snapshot } => self.snapshot = snapshot,
                Action::Emit { event } if !is_heartbeat(&event.kind) => self.events.push(event),
                _ => {}
            }
        }
    }
}

const fn is_heartbeat(kind: &EventKind) -> bool {
    matches!(
        kind,
        EventKind::ServerHeartbeatStarted { .. }
            | EventKind::ServerHeartbeatSucceeded { .. }
            | EventKind::ServerHeartbeatFailed { .. }
    )
}
