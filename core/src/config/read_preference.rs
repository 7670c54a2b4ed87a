//! Read preferences: the servers that a read may use.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// The tags that a server must have, all of them; an empty set matches every server.
pub type TagSet = BTreeMap<String, String>;

/// The types of servers that a read may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum ReadMode {
    /// The primary only.
    #[default]
    Primary,
    /// The primary if it is available, else secondaries.
    PrimaryPreferred,
    /// Secondaries only.
    Secondary,
    /// Secondaries if one is eligible, else the primary.
    SecondaryPreferred,
    /// The primary and secondaries alike.
    Nearest,
}

impl ReadMode {
    /// Returns the name that the specification gives this mode.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Primary => "primary",
            Self::PrimaryPreferred => "primaryPreferred",
            Self::Secondary => "secondary",
            Self::SecondaryPreferred => "secondaryPreferred",
            Self::Nearest => "nearest",
        }
    }

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        let all = [
            Self::Primary,
            Self::PrimaryPreferred,
            Self::Secondary,
            Self::SecondaryPreferred,
            Self::Nearest,
        ];
        all.into_iter().find(|mode| mode.name() == name)
    }
}

impl fmt::Display for ReadMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The servers that a read may use (Server Selection, "Read Preference").
///
/// ```
/// use sdam_core::config::{ReadMode, ReadPreference, TagSet};
/// use std::time::Duration;
///
/// let east = TagSet::from([("dc".into(), "east".into())]);
/// let preference = ReadPreference::new(ReadMode::Nearest)
///     .with_tag_sets(vec![east, TagSet::new()])?
///     .with_max_staleness(Duration::from_secs(120))?;
/// assert_eq!(preference.mode(), ReadMode::Nearest);
/// # Ok::<(), sdam_core::config::ReadPreferenceError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct ReadPreference {
    mode: ReadMode,
    tag_sets: Vec<TagSet>,
    max_staleness: Option<Duration>,
    hedge: Option<bool>,
}

/// The reason why a read preference is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadPreferenceError {
    /// Tag sets with mode primary.
    #[error("tag sets are not allowed with mode primary; there is only one primary to choose")]
    TagSetsWithPrimary,
    /// A maximum of staleness with mode primary.
    #[error("maxStalenessSeconds is not allowed with mode primary, which is never stale")]
    MaxStalenessWithPrimary,
    /// Hedged reads with mode primary.
    #[error("hedge is not allowed with mode primary, whose reads go to one server")]
    HedgeWithPrimary,
}

impl ReadPreference {
    /// Asks for a mode, without further conditions.
    pub const fn new(mode: ReadMode) -> Self {
        Self { mode, tag_sets: Vec::new(), max_staleness: None, hedge: None }
    }

    /// Asks for servers with certain tags: the first of these sets that matches any server decides.
    ///
    /// # Errors
    ///
    /// Fails with mode primary, unless every set is empty ("Clients MUST raise an error if a
    /// non-empty tag set is given in tag_sets and the mode field is 'primary'").
    pub fn with_tag_sets(mut self, tag_sets: Vec<TagSet>) -> Result<Self, ReadPreferenceError> {
        if self.mode == ReadMode::Primary && tag_sets.iter().any(|set| !set.is_empty()) {
            return Err(ReadPreferenceError::TagSetsWithPrimary);
        }
        self.tag_sets = tag_sets;
        Ok(self)
    }

    /// Asks for secondaries that are at most this far behind the primary.
    ///
    /// Whether the value is large enough depends on the deployment, and is checked on selection: at
    /// least 90 s, and at least heartbeatFrequencyMS plus 10 s.
    ///
    /// # Errors
    ///
    /// Fails with mode primary.
    pub fn with_max_staleness(mut self, most: Duration) -> Result<Self, ReadPreferenceError> {
        if self.mode == ReadMode::Primary {
            return Err(ReadPreferenceError::MaxStalenessWithPrimary);
        }
        self.max_staleness = Some(most);
        Ok(self)
    }

    /// Asks a mongos to send a read to two members and to take the first answer, or not to.
    ///
    /// Hedged reads are deprecated since MongoDB 8.0; this is passed through.
    ///
    /// # Errors
    ///
    /// Fails with mode primary.
    pub fn with_hedge(mut self, enabled: bool) -> Result<Self, ReadPreferenceError> {
        if self.mode == ReadMode::Primary {
            return Err(ReadPreferenceError::HedgeWithPrimary);
        }
        self.hedge = Some(enabled);
        Ok(self)
    }

    /// Returns which types of servers may be used.
    pub const fn mode(&self) -> ReadMode {
        self.mode
    }

    /// Returns the tag sets, in the order in which they are tried; empty if any server will do.
    pub fn tag_sets(&self) -> &[TagSet] {
        &self.tag_sets
    }

    /// Returns how far a secondary may be behind.
    pub const fn max_staleness(&self) -> Option<Duration> {
        self.max_staleness
    }

    /// Returns whether hedged reads were asked for, or against.
    pub const fn hedge(&self) -> Option<bool> {
        self.hedge
    }
}

impl fmt::Display for ReadPreference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.mode)?;
        if !self.tag_sets.is_empty() {
            write!(f, ", tags {:?}", self.tag_sets)?;
        }
        match self.max_staleness {
            Some(most) => write!(f, ", at most {} s stale", most.as_secs()),
            None => Ok(()),
        }
    }
}
