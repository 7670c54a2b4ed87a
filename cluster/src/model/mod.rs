//! The model of the deployment as a machine: its inputs, its actions, and its timers.

mod cluster_time;
mod config;
mod connection;
mod counters;
mod election;
mod event;
pub(crate) mod fail_point;
mod freeze;
mod member;
mod partition;
pub(crate) mod rate_limit;
mod reconfig;
mod shutdown;
mod state;
mod takeover;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use sdam_core::machine::Machine;
use sdam_core::rng::Rng;
use sdam_core::time::{Instant, Time};

use self::cluster_time::ClusterClock;
pub(crate) use self::config::{Config, Lists};
pub(crate) use self::connection::{Connection, Done, Then};
pub use self::connection::{MAX_UNREAD_IN_ALL, MAX_UNREAD_LEN, UNREAD_SHARE};
pub(crate) use self::election::{NOOP_INTERVAL, later};
pub use self::event::{ClusterEvent, MAX_UNREAD_EVENTS};
pub(crate) use self::member::{Member, OpTime, Process, Role};
pub use self::reconfig::{Change, MAX_SERVERS, ReconfigError};
pub(crate) use self::shutdown::shutdown_reply;
pub use self::state::{ClusterState, Condition, MemberState};
use crate::authentication::Account;
use crate::options::{ClusterOptions, MemberId, OptionsError, ServerVersion, User};

/// A connection of a client; the caller numbers them and never reuses a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnectionId(pub u64);

/// An input of the deployment: a change, bytes, or the end of a connection.
///
/// The enum is exhaustive on purpose: code that drives the model, by sockets or in a simulation,
/// must know all inputs, so that a new one is a breaking change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input<'a> {
    /// A client has connected to a member; one that is down, or has as many connections as it may
    /// have, closes the connection.
    Accepted {
        /// The new connection.
        connection: ConnectionId,
        /// The member that it leads to.
        member: MemberId,
    },
    /// A client says, in the opening of TLS, by which host name it knows the member, which chooses
    /// the horizon whose addresses it receives; any other name chooses the members' own addresses.
    ServerName {
        /// On this connection, before its first request.
        connection: ConnectionId,
        /// The host name, without a port.
        name: &'a str,
    },
    /// The address that a connection comes from, for commands that ask.
    Peer {
        /// On this connection.
        connection: ConnectionId,
        /// The address of the client.
        address: SocketAddr,
    },
    /// A connection belongs to the deployment itself, as those among members do: its other end may
    /// do everything without a login.
    Trusted {
        /// On this connection.
        connection: ConnectionId,
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
    /// The member is asked to end: it steps down, says for a while to everybody that it is
    /// shutting down, and dies.
    ///
    /// Before 5.0 it dies at once.
    Shutdown {
        /// The member; ignored if it is down or shutting down.
        member: MemberId,
    },
    /// The member's process starts.
    Start {
        /// The member; ignored if it is up.
        member: MemberId,
    },
    /// The member has another version from its next start on.
    Upgrade {
        /// The member, up or down.
        member: MemberId,
        /// The version that it imitates from then on; older ones are allowed too.
        version: ServerVersion,
    },
    /// The member stops answering, though its connections stay and new ones are accepted.
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
    /// The other members do not reach the member any more, nor it them; clients reach all.
    ///
    /// The others miss it after an election timeout. A primary takes itself for one for half as
    /// long again, and by then they have elected another.
    Cut {
        /// The member, up or down; ignored if it is a mongos, or if no other member votes.
        member: MemberId,
    },
    /// The other members reach the member again.
    Heal {
        /// The member; ignored if it is not cut off.
        member: MemberId,
    },
    /// The member takes longer to answer each hello, as if it were far away.
    ///
    /// Replies to an awaitable hello that report a change come at once.
    HelloLatency {
        /// The member, up or down.
        member: MemberId,
        /// The delay from now on, zero at the beginning.
        latency: Duration,
    },
    /// The primary becomes a secondary, and another member primary.
    StepDown {
        /// The member; ignored if it is not primary.
        member: MemberId,
    },
    /// The primary installs another configuration, of which the others hear soon.
    Reconfig {
        /// The changes; ignored if [`Cluster::check_reconfig`] refuses them.
        changes: &'a [Change],
    },
    /// The users are these and no others from now on.
    ///
    /// A connection that is logged in stays so unless its user is gone, and a login that has begun
    /// goes on with the password of its beginning; both are so on real servers.
    Users {
        /// All users; ignored if [`Cluster::check_users`] refuses them.
        users: &'a [User],
    },
}

/// An action to be performed for the deployment.
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
        /// A member whose process has ended.
        member: MemberId,
    },
    /// Nothing to be done: publishes something that no other action reports.
    Publish {
        /// The event.
        event: ClusterEvent,
    },
}

/// A deployment: a machine that speaks the server side of the wire protocol.
#[derive(Clone, Debug)]
pub struct Cluster {
    pub(crate) options: ClusterOptions,
    /// The newest configuration.
    pub(crate) config: Arc<Config>,
    /// All servers that there have ever been; who belongs to the set is in `config`.
    pub(crate) members: Vec<Member>,
    pub(crate) term: i64,
    /// The time when the next election is held, if one is due.
    pub(crate) election_at: Option<Instant>,
    /// The takeover by a member of higher priority than the primary.
    pub(crate) takeover: Option<(Instant, MemberId)>,
    /// The primary that stepped down, until there is another.
    pub(crate) stood_down: Option<MemberId>,
    pub(crate) rng: Rng,
    /// Draws what data needs, so that elections are the same with data and without.
    pub(crate) data_rng: Rng,
    /// Something was written, and those that wait for it were not answered yet.
    pub(crate) data_is_new: bool,
    /// The users as they are stored.
    pub(crate) accounts: Vec<Account>,
    pub(crate) clock: ClusterClock,
    pub(crate) connections: BTreeMap<ConnectionId, Connection>,
    /// The connections that wait for a time, in the order of that: thousands may.
    pub(crate) waiting: BTreeSet<(Instant, ConnectionId)>,
    /// The timer that is due next, as of the last input or tick.
    due: Option<(Instant, Timer)>,
    /// The number of changes so far that clients should see.
    pub(crate) revision: u64,
    pub(crate) begun: bool,
}

/// A timer; at the same instant, changes come before replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    Election,
    Takeover(MemberId),
    End(MemberId),
    News(MemberId),
    Synced(MemberId),
    Replication,
    Expiry,
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
        let config = Arc::new(Config::new(&options.members));
        let members = options.members.iter().enumerate().map(|(index, it)| {
            let version = options.versions.get(&MemberId(index)).copied();
            let version = version.unwrap_or(options.version);
            let (address, most) = (it.address.clone(), options.oplog_entries);
            Member::new(address, version, most, Some(Arc::clone(&config)))
        });
        let mut rng = Rng::new(options.seed);
        let accounts = options.users.iter().map(|it| Account::new(it.clone(), &mut rng)).collect();
        Ok(Self {
            members: members.collect(),
            config,
            term: 0,
            election_at: None,
            takeover: None,
            stood_down: None,
            rng,
            data_rng: Rng::new(!options.seed),
            data_is_new: false,
            accounts,
            clock: ClusterClock::default(),
            connections: BTreeMap::new(),
            waiting: BTreeSet::new(),
            due: None,
            revision: 0,
            begun: false,
            options,
        })
    }

    /// Returns whether the member is up.
    pub fn is_running(&self, member: MemberId) -> bool {
        self.process(member).is_some()
    }

    /// Returns the version that the member has from its next start on, if there is such a member.
    pub fn version(&self, member: MemberId) -> Option<ServerVersion> {
        self.members.get(member.0).map(|it| it.version)
    }

    fn upgrade(&mut self, member: MemberId, version: ServerVersion) {
        if let Some(member) = self.members.get_mut(member.0) {
            member.version = version;
        }
    }

    fn delay_hello(&mut self, member: MemberId, latency: Duration) {
        if let Some(member) = self.members.get_mut(member.0) {
            member.hello_latency = latency;
        }
    }

    pub(crate) fn process(&self, member: MemberId) -> Option<&Process> {
        self.members.get(member.0)?.process.as_ref()
    }

    pub(crate) fn process_mut(&mut self, member: MemberId) -> Option<&mut Process> {
        self.members.get_mut(member.0)?.process.as_mut()
    }

    pub(crate) fn processes(&self) -> impl Iterator<Item = (MemberId, &Process)> {
        let all = self.members.iter().enumerate();
        all.filter_map(|(index, member)| Some((MemberId(index), member.process.as_ref()?)))
    }

    /// Does what is due.
    fn catch_up_with(&mut self, now: Instant, out: &mut Vec<Action>) {
        if !self.begun {
            self.begun = true;
            self.begin(now, out);
            self.due = self.next_timer();
        }
        while let Some((_, timer)) = self.due.filter(|(at, _)| *at <= now) {
            match timer {
                Timer::Election => self.hold_election(now, out),
                Timer::Takeover(member) => self.take_over(now, member, out),
                Timer::End(member) => self.kill(now, member, out),
                Timer::News(member) => self.learn(now, member, out),
                Timer::Synced(member) => self.finish_sync(now, member, out),
                Timer::Replication => self.replicate(now),
                Timer::Expiry => self.expire_transactions(now),
                Timer::Pending(connection) => self.resume(now, connection, out),
            }
            self.settle_data(now, out);
            self.due = self.next_timer();
        }
    }

    fn next_timer(&self) -> Option<(Instant, Timer)> {
        let processes = self.processes().flat_map(|(member, process)| {
            let at = |at: Option<Instant>, timer| Some((at?, timer));
            [
                at(process.ends_at, Timer::End(member)),
                at(process.learns_at, Timer::News(member)),
                at(process.synced_at, Timer::Synced(member)),
            ]
        });
        let pending = self.waiting.iter().find(|(_, id)| {
            let connection = self.connections.get(id);
            connection.is_some_and(|it| !self.is_frozen(it.member))
        });
        let pending = pending.map(|(at, id)| (*at, Timer::Pending(*id)));
        let election = self.election_at.map(|at| (at, Timer::Election));
        let takeover = self.takeover.map(|(at, member)| (at, Timer::Takeover(member)));
        let replication = self.replicates_at().map(|at| (at, Timer::Replication));
        let expiry = self.transaction_ends_at().map(|at| (at, Timer::Expiry));
        let of_set = election.into_iter().chain(takeover).chain(replication).chain(expiry);
        of_set.chain(processes.flatten()).chain(pending).min()
    }
}

impl Machine for Cluster {
    type Input<'a> = Input<'a>;
    type Action = Action;

    fn handle(&mut self, now: Time, input: Input<'_>, out: &mut Vec<Action>) {
        let now = now.judged;
        self.catch_up_with(now, out);
        match input {
            Input::Accepted { connection, member } => self.accept(connection, member, out),
            Input::ServerName { connection, name } => self.note_server_name(connection, name),
            Input::Peer { connection, address } => self.note_peer(connection, address),
            Input::Trusted { connection } => self.trust(connection),
            Input::Received { connection, bytes } => self.receive(now, connection, bytes, out),
            Input::Disconnected { connection } => drop(self.forget(connection)),
            Input::Kill { member } => self.kill(now, member, out),
            Input::Shutdown { member } => self.shut_down(now, member, out),
            Input::Start { member } => self.start(now, member, out),
            Input::Upgrade { member, version } => self.upgrade(member, version),
            Input::Freeze { member } => self.freeze(member),
            Input::Thaw { member } => self.thaw(now, member, out),
            Input::Cut { member } => self.cut(now, member),
            Input::Heal { member } => self.heal(now, member),
            Input::HelloLatency { member, latency } => self.delay_hello(member, latency),
            Input::StepDown { member } => self.step_down(now, member, out),
            Input::Reconfig { changes } => self.reconfig(now, changes, out),
            Input::Users { users } => self.change_users(users),
        }
        self.settle_data(now, out);
        self.due = self.next_timer();
    }

    fn tick(&mut self, now: Time, out: &mut Vec<Action>) {
        self.catch_up_with(now.judged, out);
    }

    fn deadline(&self) -> Option<Instant> {
        match self.begun {
            true => self.due.map(|(at, _)| at),
            false => Some(Instant::ZERO),
        }
    }
}
