//! The model of the deployment as a machine: its inputs, its actions, and its timers.

use std::collections::BTreeMap;

use sdam_core::machine::Machine;
use sdam_core::rng::Rng;
use sdam_core::time::Instant;

use super::cluster_time::ClusterClock;
use super::connection::Connection;
use super::member::{Member, Process};
use super::options::{ClusterOptions, MemberId, OptionsError};

/// A connection of a client; the caller numbers them and never reuses a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

/// What happens to the deployment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input<'a> {
    /// A client has connected to a member; a member that is down closes the connection.
    Accepted {
        /// The new connection.
        connection: ConnectionId,
        /// Whom it leads to.
        member: MemberId,
    },
    /// A client has sent bytes.
    Received {
        /// On this connection.
        connection: ConnectionId,
        /// Any part of its stream.
        bytes: &'a [u8],
    },
    /// A connection has ended; there is no need to close it.
    Disconnected {
        /// The one that has ended.
        connection: ConnectionId,
    },
    /// The member's process dies.
    Kill {
        /// The member; ignored if it is down.
        member: MemberId,
    },
    /// The member's process starts.
    Start {
        /// The member; ignored if it is up.
        member: MemberId,
    },
    /// The member answers nobody any more, though its connections stay and new ones are accepted.
    ///
    /// Elections do not notice: it is the network of its clients that fails.
    Freeze {
        /// The member; ignored if it is down.
        member: MemberId,
    },
    /// The member answers again, also what it was asked meanwhile.
    Thaw {
        /// The member; ignored if it is not frozen.
        member: MemberId,
    },
    /// The primary becomes a secondary, and another member primary.
    StepDown {
        /// The member; ignored if it is not primary.
        member: MemberId,
    },
}

/// What must be done for the deployment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action {
    /// Send bytes to a client.
    Send {
        /// On this connection.
        connection: ConnectionId,
        /// One whole message.
        bytes: Vec<u8>,
    },
    /// Close a connection; nothing more is accepted from it or sent to it.
    Close {
        /// The one to close.
        connection: ConnectionId,
    },
    /// Accept connections at the member's address.
    Listen {
        /// A member that has started.
        member: MemberId,
    },
    /// Refuse connections at the member's address.
    Unlisten {
        /// A member that was killed.
        member: MemberId,
    },
    /// Nothing to be done; a member has become primary.
    Elected {
        /// The new primary.
        member: MemberId,
        /// Its term, which no other primary has.
        term: i64,
    },
    /// Nothing to be done; the primary has become a secondary.
    SteppedDown {
        /// The former primary.
        member: MemberId,
    },
}

/// A deployment: a machine that speaks the server side of the wire protocol.
#[derive(Clone, Debug)]
pub struct Cluster {
    pub(super) options: ClusterOptions,
    pub(super) members: Vec<Member>,
    pub(super) term: i64,
    /// When the next election is held, if one is due.
    pub(super) election_at: Option<Instant>,
    /// The primary that stepped down, until there is another.
    pub(super) stood_down: Option<MemberId>,
    pub(super) rng: Rng,
    pub(super) clock: ClusterClock,
    pub(super) connections: BTreeMap<ConnectionId, Connection>,
    begun: bool,
}

/// What is due at a deadline; at the same instant, changes come before replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    Election,
    News(MemberId),
    Pending(ConnectionId),
}

impl Cluster {
    /// Creates a deployment whose members all start at the first tick.
    ///
    /// # Errors
    ///
    /// Says which option is wrong and what is allowed.
    pub fn new(options: ClusterOptions) -> Result<Self, OptionsError> {
        options.validate()?;
        Ok(Self {
            members: options.members.iter().map(|_| Member::new()).collect(),
            term: 0,
            election_at: None,
            stood_down: None,
            rng: Rng::new(options.seed),
            clock: ClusterClock::default(),
            connections: BTreeMap::new(),
            begun: false,
            options,
        })
    }

    /// Returns whether the member is up.
    pub fn is_running(&self, member: MemberId) -> bool {
        self.process(member).is_some()
    }

    pub(super) fn process(&self, member: MemberId) -> Option<&Process> {
        self.members.get(member.0)?.process.as_ref()
    }

    pub(super) fn process_mut(&mut self, member: MemberId) -> Option<&mut Process> {
        self.members.get_mut(member.0)?.process.as_mut()
    }

    pub(super) fn processes(&self) -> impl Iterator<Item = (MemberId, &Process)> {
        let all = self.members.iter().enumerate();
        all.filter_map(|(index, member)| Some((MemberId(index), member.process.as_ref()?)))
    }

    fn next_timer(&self) -> Option<(Instant, Timer)> {
        let news = self.processes().filter_map(|(member, process)| {
            let at = process.learns_at?;
            Some((at, Timer::News(member)))
        });
        let pending = self.connections.iter().filter_map(|(id, connection)| {
            let at = connection.resumes_at().filter(|_| !self.is_frozen(connection.member))?;
            Some((at, Timer::Pending(*id)))
        });
        let election = self.election_at.map(|at| (at, Timer::Election));
        election.into_iter().chain(news).chain(pending).min()
    }
}

impl Machine for Cluster {
    type Input<'a> = Input<'a>;
    type Action = Action;

    fn handle(&mut self, now: Instant, input: Input<'_>, out: &mut Vec<Action>) {
        self.tick(now, out);
        match input {
            Input::Accepted { connection, member } => self.accept(connection, member, out),
            Input::Received { connection, bytes } => self.receive(now, connection, bytes, out),
            Input::Disconnected { connection } => drop(self.connections.remove(&connection)),
            Input::Kill { member } => self.kill(now, member, out),
            Input::Start { member } => self.start(now, member, out),
            Input::Freeze { member } => self.freeze(member),
            Input::Thaw { member } => self.thaw(now, member, out),
            Input::StepDown { member } => self.step_down(now, member, out),
        }
    }

    fn tick(&mut self, now: Instant, out: &mut Vec<Action>) {
        if !self.begun {
            self.begun = true;
            self.begin(now, out);
        }
        while let Some((_, timer)) = self.next_timer().filter(|(at, _)| *at <= now) {
            match timer {
                Timer::Election => self.hold_election(now, out),
                Timer::News(member) => self.learn(now, member, out),
                Timer::Pending(connection) => self.resume(now, connection, out),
            }
        }
    }

    fn deadline(&self) -> Option<Instant> {
        match self.begun {
            true => self.next_timer().map(|(at, _)| at),
            false => Some(Instant::ZERO),
        }
    }
}
