//! Read preferences: the servers that a read may use.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::de::{self, Deserializer};
use serde::{Deserialize, Serialize, Serializer};

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
    const ALL: [Self; 5] = [
        Self::Primary,
        Self::PrimaryPreferred,
        Self::Secondary,
        Self::SecondaryPreferred,
        Self::Nearest,
    ];

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
        Self::ALL.into_iter().find(|mode| mode.name() == name)
    }
}

impl fmt::Display for ReadMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Serialize for ReadMode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for ReadMode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        const NAMES: &[&str] =
            &["primary", "primaryPreferred", "secondary", "secondaryPreferred", "nearest"];
        let name = String::deserialize(deserializer)?;
        Self::from_name(&name).ok_or_else(|| de::Error::unknown_variant(&name, NAMES))
    }
}

/// The servers that a read may use (Server Selection, "Read Preference").
///
/// Its document is that of commands, `{ mode, tags, maxStalenessSeconds, hedge }`; read from one,
/// `tagSets` is understood, too.
///
/// ```
/// use sdam_core::config::{ReadMode, ReadPreference, TagSet};
/// use std::time::Duration;
///
/// let east = TagSet::from([("dc".into(), "east".into())]);
/// let preference = ReadPreference::nearest()
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

    /// Asks for the primary.
    pub const fn primary() -> Self {
        Self::new(ReadMode::Primary)
    }

    /// Asks for the primary if it is available, else for secondaries.
    pub const fn primary_preferred() -> Self {
        Self::new(ReadMode::PrimaryPreferred)
    }

    /// Asks for secondaries.
    pub const fn secondary() -> Self {
        Self::new(ReadMode::Secondary)
    }

    /// Asks for secondaries if one is eligible, else for the primary.
    pub const fn secondary_preferred() -> Self {
        Self::new(ReadMode::SecondaryPreferred)
    }

    /// Asks for the primary and secondaries alike.
    pub const fn nearest() -> Self {
        Self::new(ReadMode::Nearest)
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

impl From<ReadMode> for ReadPreference {
    fn from(mode: ReadMode) -> Self {
        Self::new(mode)
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

/// The document of a read preference (Server Selection, "Document structure").
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ReadPreferenceDocument {
    mode: ReadMode,
    #[serde(default, alias = "tagSets", skip_serializing_if = "Vec::is_empty")]
    tags: Vec<TagSet>,
    #[serde(rename = "maxStalenessSeconds", default, skip_serializing_if = "Option::is_none")]
    max_staleness: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hedge: Option<Hedge>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Hedge {
    enabled: bool,
}

impl Serialize for ReadPreference {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let seconds = |most: Duration| i64::try_from(most.as_secs()).unwrap_or(i64::MAX);
        let document = ReadPreferenceDocument {
            mode: self.mode,
            tags: self.tag_sets.clone(),
            max_staleness: self.max_staleness.map(seconds),
            hedge: self.hedge.map(|enabled| Hedge { enabled }),
        };
        document.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for ReadPreference {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let read = ReadPreferenceDocument::deserialize(deserializer)?;
        let mut preference = Self::new(read.mode);
        preference = preference.with_tag_sets(read.tags).map_err(de::Error::custom)?;
        // Max Staleness, "API": -1 is no maximum.
        if let Some(seconds) = read.max_staleness.filter(|seconds| *seconds != -1) {
            let allowed = "-1 or a whole number from 1 on";
            let wrong = || de::Error::invalid_value(de::Unexpected::Signed(seconds), &allowed);
            let most = u64::try_from(seconds).ok().filter(|most| *most > 0).ok_or_else(wrong)?;
            let most = Duration::from_secs(most);
            preference = preference.with_max_staleness(most).map_err(de::Error::custom)?;
        }
        match read.hedge {
            Some(Hedge { enabled }) => preference.with_hedge(enabled).map_err(de::Error::custom),
            None => Ok(preference),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, from_value, json, to_value};

    use super::{ReadMode, ReadPreference, TagSet};

    #[test]
    fn the_document_of_a_read_preference_is_that_of_commands() {
        let east = TagSet::from([("dc".to_owned(), "east".to_owned())]);
        let tagged = ReadPreference::nearest().with_tag_sets(vec![east, TagSet::new()]).unwrap();
        let stale = ReadPreference::secondary().with_max_staleness(Duration::from_secs(90));
        for (preference, document) in [
            (ReadPreference::primary(), json!({ "mode": "primary" })),
            (ReadMode::PrimaryPreferred.into(), json!({ "mode": "primaryPreferred" })),
            (tagged.clone(), json!({ "mode": "nearest", "tags": [{ "dc": "east" }, {}] })),
            (stale.unwrap(), json!({ "mode": "secondary", "maxStalenessSeconds": 90 })),
            (
                ReadPreference::secondary_preferred().with_hedge(true).unwrap(),
                json!({ "mode": "secondaryPreferred", "hedge": { "enabled": true } }),
            ),
        ] {
            assert_eq!(to_value(&preference).unwrap(), document);
            assert_eq!(from_value::<ReadPreference>(document).unwrap(), preference);
        }
        let by_option = json!({ "mode": "nearest", "tagSets": [{ "dc": "east" }, {}] });
        assert_eq!(from_value::<ReadPreference>(by_option).unwrap(), tagged);
        let unlimited = json!({ "mode": "secondary", "maxStalenessSeconds": -1 });
        let unlimited = from_value::<ReadPreference>(unlimited).unwrap();
        assert_eq!(unlimited, ReadPreference::secondary());
    }

    #[test]
    fn what_is_wrong_in_a_document_is_named_with_what_is_allowed() {
        let error =
            |document: Value| from_value::<ReadPreference>(document).unwrap_err().to_string();
        let mode = error(json!({ "mode": "primray" }));
        assert!(mode.starts_with("unknown variant `primray`, expected one of `primary`, "));
        let field = error(json!({ "mode": "nearest", "tag": [] }));
        assert!(field.starts_with("unknown field `tag`, expected one of "), "{field}");
        for known in ["`mode`", "`tags`", "`maxStalenessSeconds`", "`hedge`"] {
            assert!(field.contains(known), "{field}");
        }
        assert_eq!(error(json!({})), "missing field `mode`");
        for seconds in [0, -2] {
            let error = error(json!({ "mode": "nearest", "maxStalenessSeconds": seconds }));
            assert!(error.ends_with("expected -1 or a whole number from 1 on"), "{error}");
        }
        for (name, value) in [
            ("tags", json!([{ "dc": "east" }])),
            ("maxStalenessSeconds", json!(90)),
            ("hedge", json!({ "enabled": true })),
        ] {
            let error = error(json!({ "mode": "primary", name: value }));
            assert!(error.contains("with mode primary"), "{error}");
        }
    }
}
