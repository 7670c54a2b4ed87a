//! What a deployment consists of, and which server version its members imitate.

use std::collections::BTreeSet;
use std::time::Duration;

use bson::raw::CStr;
use sdam_core::address::ServerAddress;
use sdam_core::bson;

/// How many members a replica set may have: as many as may vote.
pub const MAX_MEMBERS: usize = 7;

/// How many mongos a sharded deployment may have.
pub const MAX_MONGOS: usize = 1000;

/// The shortest election timeout that is accepted.
pub const MIN_ELECTION_TIMEOUT: Duration = Duration::from_millis(20);

/// A member of the deployment: its place in [`ClusterOptions::members`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberId(pub usize);

/// The server version that the members imitate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[non_exhaustive]
pub enum ServerVersion {
    /// Legacy hello only, and nothing to wait for.
    V4_2,
    /// `hello`, awaitable and streaming, but no `helloOk`.
    V4_4,
    /// The first with `helloOk`.
    V5_0,
    /// Like 5.0 with a newer wire version.
    #[default]
    V6_0,
}

impl ServerVersion {
    /// Returns the `maxWireVersion` of this version.
    pub const fn max_wire_version(self) -> i32 {
        match self {
            Self::V4_2 => 8,
            Self::V4_4 => 9,
            Self::V5_0 => 13,
            Self::V6_0 => 17,
        }
    }

    /// Returns the major and the minor version number.
    pub const fn number(self) -> (i32, i32) {
        match self {
            Self::V4_2 => (4, 2),
            Self::V4_4 => (4, 4),
            Self::V5_0 => (5, 0),
            Self::V6_0 => (6, 0),
        }
    }

    /// Returns whether there is a `hello` that reports a `topologyVersion` and can wait.
    pub(super) const fn has_awaitable_hello(self) -> bool {
        !matches!(self, Self::V4_2)
    }

    /// Returns whether legacy hello answers `helloOk`.
    pub(super) const fn has_hello_ok(self) -> bool {
        matches!(self, Self::V5_0 | Self::V6_0)
    }
}

/// What the members of a deployment are to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Deployment {
    /// A replica set, which elects a primary.
    #[default]
    ReplicaSet,
    /// Equal mongos in front of a cluster that is not there; no member is ever primary.
    Sharded,
    /// As [`Sharded`](Self::Sharded); whoever says `loadBalanced: true` in hello is given a
    /// `serviceId`, another one for each process.
    LoadBalanced,
}

impl Deployment {
    /// Returns whether the members are mongos.
    pub(super) const fn has_mongos(self) -> bool {
        !matches!(self, Self::ReplicaSet)
    }

    /// Returns how many members there may be.
    pub(super) const fn max_members(self) -> usize {
        if self.has_mongos() { MAX_MONGOS } else { MAX_MEMBERS }
    }
}

/// A member, as the replica set configuration describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberOptions {
    /// Where clients reach the member.
    pub address: ServerAddress,
    /// Its tags, in order; none by default.
    pub tags: Vec<(String, String)>,
}

impl MemberOptions {
    /// Describes a member without tags.
    pub const fn new(address: ServerAddress) -> Self {
        Self { address, tags: Vec::new() }
    }
}

/// What a deployment consists of and how it behaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterOptions {
    /// What the members are to each other.
    pub deployment: Deployment,
    /// The name of the replica set; mongos do not say it.
    pub set_name: String,
    /// The members, of a replica set from one to [`MAX_MEMBERS`], which all vote, and else from one
    /// to [`MAX_MONGOS`].
    pub members: Vec<MemberOptions>,
    /// The server version that all members imitate.
    pub version: ServerVersion,
    /// Determines everything that is random: who wins, after how long, and process ids.
    pub seed: u64,
    /// How long after the loss of a primary an election begins, give or take 15 %.
    ///
    /// Everything else that takes time is a fraction of it: members learn news within a
    /// twentieth, and a primary that steps down is replaced within three twentieths.
    pub election_timeout: Duration,
    /// The wall-clock time at [`Instant::ZERO`](sdam_core::time::Instant::ZERO), in milliseconds
    /// since the Unix epoch.
    pub wall_epoch_millis: i64,
}

impl ClusterOptions {
    /// Describes a replica set of members without tags, of the newest version, with an election
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
            seed: 0,
            election_timeout: Duration::from_secs(2),
            wall_epoch_millis: 1_700_000_000_000,
        }
    }

    pub(super) fn validate(&self) -> Result<(), OptionsError> {
        let count = self.members.len();
        let most = self.deployment.max_members();
        if !(1..=most).contains(&count) {
            return Err(OptionsError::MemberCount { count, most });
        }
        if self.set_name.is_empty() {
            return Err(OptionsError::SetName);
        }
        if self.election_timeout < MIN_ELECTION_TIMEOUT {
            return Err(OptionsError::ElectionTimeout(self.election_timeout));
        }
        let mut addresses = BTreeSet::new();
        for member in &self.members {
            if !addresses.insert(&member.address) {
                return Err(OptionsError::SameAddress(member.address.clone()));
            }
            let key = member.tags.iter().map(|(key, _)| key.as_str());
            if let Some(key) = key.into_iter().find(|key| <&CStr>::try_from(*key).is_err()) {
                return Err(OptionsError::Tag(key.to_owned()));
            }
        }
        Ok(())
    }
}

/// Why options do not describe a deployment.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OptionsError {
    /// No member, or too many.
    #[error("{count} members; from 1 to {most} are allowed")]
    MemberCount {
        /// How many there are.
        count: usize,
        /// How many this kind of deployment may have.
        most: usize,
    },
    /// The replica set has no name.
    #[error("the name of the replica set is empty")]
    SetName,
    /// An election timeout that is too short.
    #[error("an election timeout of {0:?}; at least {MIN_ELECTION_TIMEOUT:?} are needed")]
    ElectionTimeout(Duration),
    /// Two members would share an address.
    #[error("two members have the address {0}; each needs its own")]
    SameAddress(ServerAddress),
    /// The name of a tag contains NUL.
    #[error("the tag {0:?} contains NUL, which no field name may")]
    Tag(String),
}
