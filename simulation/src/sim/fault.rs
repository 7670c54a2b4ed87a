//! The faults of a simulation: their kinds, times, and targets.

use std::fmt;
use std::time::Duration;

use sdam_core::time::Instant;

use super::deployment::capacity;
use super::path::Trouble;
use super::random::Random;
use sdam_cluster::ClusterOptions;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum FaultKind {
    /// Packets take seconds.
    Delay,
    /// Packets are lost and sent again.
    Loss,
    /// Streams are reset.
    Reset,
    /// Connections are refused.
    Refused,
    /// Nothing gets through, in either direction.
    Blackhole,
    /// Nothing gets from clients to members.
    PartitionToServer,
    /// Nothing gets from members to clients.
    PartitionToClient,
    /// Bytes come by the dozen.
    SlowDrip,
    /// Messages come in pieces.
    TornBytes,
    /// A member's name has no address.
    Unresolvable,
    /// A member's name leads to another member.
    Misdirected,
    /// A member's host is gone, and nothing answers where it was, until the member's name leads to
    /// another one.
    Moved,
    /// Streams fall silent for ever, as behind a router that has forgotten them.
    DeadStreams,
    /// A member's process dies, and starts again.
    Kill,
    /// The primary steps down.
    StepDown,
    /// The primary is heard no more, and another one is elected meanwhile.
    Succession,
    /// The primary, or another member, is cut off from the others, and not from clients: there may
    /// be two who claim to be primary.
    Cut,
    /// A member does not answer.
    FrozenMember,
    /// A client's process stops, and goes on.
    FrozenClient,
    /// A client's process forks, and its child starts from scratch.
    Fork,
    /// A member's commands fail, hello among them.
    FailPoint,
    /// A member admits few connections.
    RateLimit,
    /// A mongos vanishes from the deployment's records in DNS.
    DnsChange,
    /// Lookups of the deployment's records fail.
    DnsError,
    /// Lookups take seconds.
    DnsDelay,
    /// Lookups are never answered.
    DnsLoss,
    /// Lookups bring hosts outside of the deployment's domain.
    DnsStrangers,
    /// Lookups bring no records, and no error either.
    DnsEmpty,
    /// A client is closed while it works.
    Close,
    /// A member is asked to end, says so for a while, and starts again.
    Shutdown,
    /// A member's process dies for good.
    Gone,
    /// A member's process dies, and one of another version starts in its place.
    Upgrade,
    /// The configuration of the replica set is changed, and changed back.
    Reconfig,
    /// Logins are refused.
    LoginRefused,
    /// A member, or something in front of it, answers once on each connection and hangs up.
    OneReply,
    /// Replies announce others that were not asked for, and that do not come.
    Announced,
    /// Replies to monitors are followed by others without pause, until their stream ends.
    Flood,
    /// A client's alarm rings early, late, or twice.
    Alarm,
    /// A client's runtime gives up some of the tasks that move bytes.
    TasksDropped,
}

impl FaultKind {
    /// Every kind.
    pub const ALL: [Self; 39] = [
        Self::Delay,
        Self::Loss,
        Self::Reset,
        Self::Refused,
        Self::Blackhole,
        Self::PartitionToServer,
        Self::PartitionToClient,
        Self::SlowDrip,
        Self::TornBytes,
        Self::Unresolvable,
        Self::Misdirected,
        Self::Moved,
        Self::DeadStreams,
        Self::Kill,
        Self::StepDown,
        Self::Succession,
        Self::Cut,
        Self::FrozenMember,
        Self::FrozenClient,
        Self::Fork,
        Self::FailPoint,
        Self::RateLimit,
        Self::DnsChange,
        Self::DnsError,
        Self::DnsDelay,
        Self::DnsLoss,
        Self::DnsStrangers,
        Self::DnsEmpty,
        Self::Close,
        Self::Shutdown,
        Self::Gone,
        Self::Upgrade,
        Self::Reconfig,
        Self::LoginRefused,
        Self::OneReply,
        Self::Announced,
        Self::Flood,
        Self::Alarm,
        Self::TasksDropped,
    ];

    /// Returns whether a process may end, or be taken for another one, and cursors with it.
    pub(super) const fn loses_cursors(self) -> bool {
        matches!(
            self,
            Self::Kill
                | Self::Moved
                | Self::Gone
                | Self::Shutdown
                | Self::Upgrade
                | Self::Reconfig
                | Self::Misdirected
        )
    }

    /// Returns whether a member misbehaves, which it does to everybody.
    pub(super) const fn hits_everybody(self) -> bool {
        matches!(self, Self::FailPoint | Self::RateLimit | Self::LoginRefused)
    }

    /// Returns whether lookups of the deployment's records come to nothing, or to something else.
    pub(super) const fn spoils_lookups(self) -> bool {
        matches!(
            self,
            Self::DnsError | Self::DnsDelay | Self::DnsLoss | Self::DnsStrangers | Self::DnsEmpty
        )
    }

    /// Returns what is wrong with the paths that the fault hits.
    pub(super) const fn troubles(self) -> &'static [Trouble] {
        match self {
            Self::Delay => &[Trouble::Slow],
            Self::Loss => &[Trouble::Lossy],
            Self::Refused => &[Trouble::Refused],
            Self::Blackhole | Self::Moved => &[Trouble::SilentToServer, Trouble::SilentToClient],
            Self::PartitionToServer => &[Trouble::SilentToServer],
            Self::PartitionToClient => &[Trouble::SilentToClient],
            Self::SlowDrip => &[Trouble::Dripping],
            Self::TornBytes => &[Trouble::Torn],
            Self::Unresolvable => &[Trouble::Unresolvable],
            Self::OneReply => &[Trouble::OneReply],
            Self::Announced => &[Trouble::Announced],
            Self::Flood => &[Trouble::Flooding],
            Self::FailPoint | Self::RateLimit | Self::LoginRefused => &[Trouble::Misbehaving],
            Self::Misdirected
            | Self::Reset
            | Self::DeadStreams
            | Self::Kill
            | Self::StepDown
            | Self::Succession
            | Self::Cut
            | Self::FrozenMember
            | Self::FrozenClient
            | Self::Alarm
            | Self::TasksDropped
            | Self::Fork
            | Self::DnsChange
            | Self::DnsError
            | Self::DnsDelay
            | Self::DnsLoss
            | Self::DnsStrangers
            | Self::DnsEmpty
            | Self::Close
            | Self::Shutdown
            | Self::Gone
            | Self::Upgrade
            | Self::Reconfig => &[],
        }
    }
}

/// Something that goes wrong for a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) kind: FaultKind,
    pub(super) begins: Instant,
    pub(super) ends: Instant,
    pub(super) clients: Vec<usize>,
    pub(super) members: Vec<usize>,
    /// Bits for anything else that is to be drawn.
    pub(super) bits: u64,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, begins, ends, clients, members, .. } = self;
        let (begins, ends) =
            (begins.since_origin().as_secs_f64(), ends.since_origin().as_secs_f64());
        write!(
            f,
            "{kind:?}, {begins:.3} s to {ends:.3} s, members {members:?}, clients {clients:?}"
        )
    }
}

impl Fault {
    /// Returns how long it lasts.
    pub(super) fn lasts(&self) -> Duration {
        self.ends - self.begins
    }

    /// Draws a fault that ends before `calm`.
    pub(super) fn draw(
        kind: FaultKind,
        (clients, cluster): (usize, &ClusterOptions),
        calm: Instant,
        random: &mut Random,
    ) -> Self {
        let calm_after = calm.since_origin();
        let begins = random.between(Duration::ZERO, calm_after);
        let lasts = match random.below(10) {
            // A client that looks up does so once a minute.
            _ if kind.spoils_lookups() => random.millis(10_000, 90_000),
            0..4 => random.millis(5, 2_000),
            4..8 => random.millis(2_000, 15_000),
            _ => random.millis(15_000, 40_000),
        };
        let some =
            |all_percent: u64, (one_of, all): (usize, usize), random: &mut Random| match random
                .percent(all_percent)
            {
                true => (0..all).collect(),
                false => vec![random.index(one_of)],
            };
        // Those that join later, too, but not alone: there may be none.
        let members = (cluster.members.len(), capacity(cluster));
        // All members have the same users.
        let all_percent = match kind {
            FaultKind::Gone => 0,
            FaultKind::LoginRefused => 100,
            _ => 15,
        };
        Self {
            kind,
            begins: Instant::ZERO + begins,
            ends: Instant::ZERO + (begins + lasts).min(calm_after),
            clients: some(if kind.hits_everybody() { 100 } else { 50 }, (clients, clients), random),
            members: some(all_percent, members, random),
            bits: random.bits(),
        }
    }
}
