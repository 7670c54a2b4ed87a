//! The description of a deployment: its members, their version, its users.

mod setters;
mod user;
mod version;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bson::raw::CStr;
use sdam_core::bson;
use sdam_core::config::{Secret, ServerAddress};

pub(crate) use self::setters::setters;
pub(crate) use self::user::validate_users;
pub use self::user::{MAX_USERS, ScramMechanism, User, UserError};
pub use self::version::ServerVersion;

/// The number of members that a replica set may have: as many as may vote.
pub const MAX_MEMBERS: usize = 7;

/// The highest priority that a member may have.
pub const MAX_PRIORITY: u16 = 1000;

/// The number of mongos that a sharded deployment may have.
pub const MAX_MONGOS: usize = 1000;

/// The shortest election timeout that is accepted.
pub const MIN_ELECTION_TIMEOUT: Duration = Duration::from_millis(20);

/// The number of statements that one write may have, unless options say otherwise: that of real
/// servers.
pub const MAX_WRITE_BATCH_SIZE: i32 = 100_000;

/// The number of entries that the log of a member keeps by default.
pub const MAX_OPLOG_ENTRIES: usize = 4096;

/// The number of connections that a member takes by default.
pub const MAX_CONNECTIONS: usize = 4096;

/// A member of the deployment: its place in [`ClusterOptions::members`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberId(pub usize);

/// The kind of a deployment: the relation of its members to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Deployment {
    /// A replica set, which elects a primary.
    #[default]
    ReplicaSet,
    /// Equal mongos in front of a cluster that is not there; no member is ever primary.
    Sharded,
    /// As [`Sharded`](Self::Sharded); a client that says `loadBalanced: true` in hello receives a
    /// `serviceId`, another one for each process.
    LoadBalanced,
    /// A server of its own, which is no member of a replica set: it has no sessions of writes that
    /// are sent twice, and no logical clock.
    Standalone,
}

impl Deployment {
    /// Returns whether the members are mongos.
    pub(crate) const fn has_mongos(self) -> bool {
        matches!(self, Self::Sharded | Self::LoadBalanced)
    }

    /// Returns whether the members are those of a replica set.
    pub(crate) const fn has_set(self) -> bool {
        matches!(self, Self::ReplicaSet)
    }

    /// Returns how many members there may be.
    pub(crate) const fn max_members(self) -> usize {
        match self {
            Self::ReplicaSet => MAX_MEMBERS,
            Self::Sharded | Self::LoadBalanced => MAX_MONGOS,
            Self::Standalone => 1,
        }
    }
}

/// A member, as the replica set configuration describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemberOptions {
    /// The address at which clients reach the member.
    pub address: ServerAddress,
    /// Its tags, in order; none by default.
    pub tags: Vec<(String, String)>,
    /// The member's priority, 1 by default and [`MAX_PRIORITY`] at most; with 0, and as
    /// an arbiter, it never is.
    pub priority: u16,
    /// True if no reply names it; its priority must then be 0.
    pub hidden: bool,
    /// True if it votes but holds no data.
    pub arbiter: bool,
    /// The names of its horizons, and where clients reach it under each of them: none by default,
    /// and the same names for all members.
    ///
    /// [`Input::ServerName`](crate::Input::ServerName) chooses the horizon of a connection.
    pub horizons: BTreeMap<String, ServerAddress>,
}

impl MemberOptions {
    /// Describes a member with data, priority 1, and no tags.
    pub const fn new(address: ServerAddress) -> Self {
        Self {
            address,
            tags: Vec::new(),
            priority: 1,
            hidden: false,
            arbiter: false,
            horizons: BTreeMap::new(),
        }
    }

    /// Returns whether it may become primary.
    pub const fn is_electable(&self) -> bool {
        self.priority > 0 && !self.arbiter
    }

    setters! {
        with_tags: tags Vec<(String, String)>,
        with_priority: priority u16,
        with_hidden: hidden bool,
        with_arbiter: arbiter bool,
        with_horizons: horizons BTreeMap<String, ServerAddress>,
    }
}

/// The members of a deployment and its behaviour.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClusterOptions {
    /// The kind of the deployment.
    pub deployment: Deployment,
    /// The name of the replica set; mongos do not say it.
    pub set_name: String,
    /// The members, of a replica set from one to [`MAX_MEMBERS`], which all vote, and else from one
    /// to [`MAX_MONGOS`].
    pub members: Vec<MemberOptions>,
    /// The server version that members imitate.
    pub version: ServerVersion,
    /// The members that imitate another version; none by default.
    pub versions: BTreeMap<MemberId, ServerVersion>,
    /// The users, who may do everything; none by default, and then no login is needed.
    ///
    /// Their passwords are hashed when the deployment is made, which takes some milliseconds each
    /// with the default iterations.
    pub users: Vec<User>,
    /// The tokens by which a user of `$external` logs in with MONGODB-OIDC, who may do everything;
    /// none by default, and then the mechanism is not offered. Servers have it since 7.0.
    pub oidc_tokens: Vec<Secret>,
    /// The users of `$external` who log in with GSSAPI by the script of
    /// [`ScriptedGssapi`](crate::ScriptedGssapi), and may do everything; none by default, and then
    /// the mechanism is not offered.
    pub gssapi_users: Vec<String>,
    /// Determines everything that is random: who wins, after how long, process ids, salts, nonces.
    pub seed: u64,
    /// The time from the loss of a primary until an election begins, give or take 15 %.
    ///
    /// Everything else that takes time follows it: members learn news within a twentieth, a
    /// primary that steps down is replaced within three twentieths, the member that wants to be
    /// primary most takes over from another after as long as an election, a member gets its data
    /// in once that time, and one that shuts down says so for one and a half of it.
    pub election_timeout: Duration,
    /// The number of connections that each member takes, [`MAX_CONNECTIONS`] by default; further
    /// ones are closed at once.
    pub max_connections: usize,
    /// The number of statements that one write may have, [`MAX_WRITE_BATCH_SIZE`] by default, which
    /// is that of real servers: with a small one, clients cut writes into several commands.
    pub max_write_batch_size: i32,
    /// True if the members keep what is written; false by default: then every write succeeds and
    /// changes nothing, which costs less.
    ///
    /// Operators, stages and options that are not known are refused by name: among them JavaScript,
    /// texts, places, regular expressions, `$jsonSchema`, `$lookup`, projections of some elements
    /// of an array, time series and clustered collections.
    pub keeps_data: bool,
    /// The time after which secondaries have what the primary writes, zero by default; it matters
    /// only to members that keep data.
    pub replication_lag: Duration,
    /// The number of entries that the log of a member keeps, [`MAX_OPLOG_ENTRIES`] by default; it
    /// matters only to members that keep data. A change stream that resumes before them has lost
    /// its history, and a member that is further behind copies everything.
    pub oplog_entries: usize,
    /// The wall-clock time at [`Instant::ZERO`](sdam_core::time::Instant::ZERO), in milliseconds
    /// since the Unix epoch.
    pub wall_epoch_millis: i64,
}

impl ClusterOptions {
    /// Describes a replica set of members without tags, of version 6.0, with an election
    /// timeout of 2 s, seed 0, and a clock that starts in 2023.
    pub fn new(
        set_name: impl Into<String>,
        addresses: impl IntoIterator<Item = ServerAddress>,
    ) -> Self {
        Self {
            deployment: Deployment::default(),
            set_name: set_name.into(),
            members: addresses.into_iter().map(MemberOptions::new).collect(),
            version: ServerVersion::default(),
            versions: BTreeMap::new(),
            users: Vec::new(),
            oidc_tokens: Vec::new(),
            gssapi_users: Vec::new(),
            seed: 0,
            election_timeout: Duration::from_secs(2),
            max_connections: MAX_CONNECTIONS,
            max_write_batch_size: MAX_WRITE_BATCH_SIZE,
            keeps_data: false,
            replication_lag: Duration::ZERO,
            oplog_entries: MAX_OPLOG_ENTRIES,
            wall_epoch_millis: 1_700_000_000_000,
        }
    }

    pub(crate) fn validate(&self) -> Result<(), OptionsError> {
        if self.set_name.is_empty() {
            return Err(OptionsError::SetName);
        }
        if self.election_timeout < MIN_ELECTION_TIMEOUT {
            return Err(OptionsError::ElectionTimeout(self.election_timeout));
        }
        validate_users(&self.users)?;
        validate_members(self.deployment, &self.members.iter().collect::<Vec<_>>())
    }

    setters! {
        with_deployment: deployment Deployment,
        with_keeps_data: keeps_data bool,
        with_replication_lag: replication_lag Duration,
        with_oplog_entries: oplog_entries usize,
        with_members: members Vec<MemberOptions>,
        with_version: version ServerVersion,
        with_versions: versions BTreeMap<MemberId, ServerVersion>,
        with_users: users Vec<User>,
        with_oidc_tokens: oidc_tokens Vec<Secret>,
        with_gssapi_users: gssapi_users Vec<String>,
        with_seed: seed u64,
        with_election_timeout: election_timeout Duration,
        with_max_connections: max_connections usize,
        with_max_write_batch_size: max_write_batch_size i32,
        with_wall_epoch_millis: wall_epoch_millis i64,
    }
}

/// Checks what a configuration says of its members.
pub(crate) fn validate_members(
    deployment: Deployment,
    members: &[&MemberOptions],
) -> Result<(), OptionsError> {
    let (count, most) = (members.len(), deployment.max_members());
    if !(1..=most).contains(&count) {
        return Err(OptionsError::MemberCount { count, most });
    }
    let mut addresses = BTreeSet::new();
    for member in members {
        for address in std::iter::once(&member.address).chain(member.horizons.values()) {
            if !addresses.insert(address) {
                return Err(OptionsError::SameAddress(address.clone()));
            }
        }
        let key = member.tags.iter().map(|(key, _)| key.as_str());
        if let Some(key) = key.into_iter().find(|key| <&CStr>::try_from(*key).is_err()) {
            return Err(OptionsError::Tag(key.to_owned()));
        }
        if member.priority > MAX_PRIORITY || (member.hidden && member.is_electable()) {
            let (address, priority) = (member.address.clone(), member.priority);
            return Err(OptionsError::Priority { address, priority });
        }
        if !member.horizons.keys().eq(members[0].horizons.keys()) {
            return Err(OptionsError::Horizons(member.address.clone()));
        }
    }
    match members.iter().any(|member| member.is_electable()) {
        true => Ok(()),
        false => Err(OptionsError::NobodyElectable),
    }
}

/// The reason why options do not describe a deployment.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OptionsError {
    /// No member, or too many.
    #[error("{count} members; from 1 to {most} are allowed")]
    MemberCount {
        /// Their number.
        count: usize,
        /// The number that this kind of deployment may have.
        most: usize,
    },
    /// The replica set has no name.
    #[error("the name of the replica set is empty")]
    SetName,
    /// An election timeout that is too short.
    #[error("an election timeout of {0:?}; at least {MIN_ELECTION_TIMEOUT:?} are needed")]
    ElectionTimeout(Duration),
    /// Two members, or two horizons, would share an address.
    #[error("two members or horizons have the address {0}; each needs its own")]
    SameAddress(ServerAddress),
    /// The name of a tag contains NUL.
    #[error("the tag {0:?} contains NUL, which no field name may")]
    Tag(String),
    /// A priority that is too high, or one that a hidden member cannot have.
    #[error(
        "{address} has priority {priority}; up to {MAX_PRIORITY} is allowed, and 0 if it is hidden"
    )]
    Priority {
        /// The member that has it.
        address: ServerAddress,
        /// The priority.
        priority: u16,
    },
    /// No member may become primary.
    #[error("no member may become primary; one needs a priority above 0 and must hold data")]
    NobodyElectable,
    /// A member has other horizons than the first.
    #[error("{0} has other horizons than the first member; all must have the same names")]
    Horizons(ServerAddress),
    /// The users cannot be so.
    #[error(transparent)]
    Users(#[from] UserError),
}
