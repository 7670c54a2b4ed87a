//! The concerns that commands above this layer declare.

use std::fmt;
use std::time::Duration;

use bson::{RawDocumentBuf, cstr};
use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize, Serializer};

use super::OptionsError;

/// The number of servers that must have a write, or which.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Acknowledgment {
    /// This many; 0 asks for no acknowledgment.
    Servers(u32),
    /// `majority`, or a mode that the replica set's configuration defines.
    Named(String),
}

impl From<u32> for Acknowledgment {
    fn from(servers: u32) -> Self {
        Self::Servers(servers)
    }
}

impl From<&str> for Acknowledgment {
    fn from(name: &str) -> Self {
        Self::Named(name.to_owned())
    }
}

impl From<String> for Acknowledgment {
    fn from(name: String) -> Self {
        Self::Named(name)
    }
}

/// The condition of a successful write: `w`, `journal` and `wTimeoutMS`; absent parts are not sent.
///
/// Its document is that of commands, `{ w, j, wtimeout }`; read from one, `journal` and
/// `wtimeoutMS` are understood, too.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize)]
#[non_exhaustive]
pub struct WriteConcern {
    /// The members that must have the write: `w`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub w: Option<Acknowledgment>,
    /// True if it must be in the journal: `journal`.
    #[serde(rename = "j", skip_serializing_if = "Option::is_none")]
    pub journal: Option<bool>,
    /// The time that the servers may take, zero for ever: `wTimeoutMS`, deprecated in favour of
    /// `timeoutMS`.
    #[serde(
        rename = "wtimeout",
        skip_serializing_if = "Option::is_none",
        serialize_with = "serialize_timeout"
    )]
    pub timeout: Option<Duration>,
}

/// The data that reads may see: `readConcernLevel`; what is absent is not sent.
///
/// Its document is that of commands, `{ level }`.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct ReadConcern {
    /// `local`, `available`, `majority`, `linearizable` or `snapshot`, or what later servers know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<String>,
}

impl ReadConcern {
    /// Reads what the member has, without a look at others.
    pub fn local() -> Self {
        Self::custom("local")
    }

    /// Reads what the member has, even documents that a shard no longer owns.
    pub fn available() -> Self {
        Self::custom("available")
    }

    /// Reads what a majority of the members has.
    pub fn majority() -> Self {
        Self::custom("majority")
    }

    /// Reads what all successful writes before it have made; on the primary only.
    pub fn linearizable() -> Self {
        Self::custom("linearizable")
    }

    /// Reads what a majority of the members had at one point in time.
    pub fn snapshot() -> Self {
        Self::custom("snapshot")
    }

    /// Declares a level by its name, as one that only later servers know.
    pub fn custom(level: impl Into<String>) -> Self {
        Self { level: Some(level.into()) }
    }

    /// Returns whether the server decides, so that commands need no `readConcern` (Read and Write
    /// Concern, "Server's Default ReadConcern").
    pub const fn is_server_default(&self) -> bool {
        self.level.is_none()
    }

    /// Returns what a command declares as `readConcern`.
    ///
    /// ```
    /// use sdam_core::bson::rawdoc;
    /// use sdam_core::config::ReadConcern;
    ///
    /// assert_eq!(ReadConcern::majority().document(), rawdoc! { "level": "majority" });
    /// ```
    pub fn document(&self) -> RawDocumentBuf {
        let mut document = RawDocumentBuf::new();
        if let Some(level) = &self.level {
            document.append(cstr!("level"), level.as_str());
        }
        document
    }

    /// Replaces [`level`](Self::level).
    #[must_use]
    pub fn with_level(mut self, level: impl Into<Option<String>>) -> Self {
        self.level = level.into();
        self
    }
}

impl WriteConcern {
    /// Asks for the acknowledgment of the majority of the members that hold data and vote.
    ///
    /// ```
    /// use std::time::Duration;
    /// use sdam_core::config::WriteConcern;
    ///
    /// let concern = WriteConcern::majority().with_journal(true);
    /// assert_eq!(concern.with_timeout(Duration::from_secs(5)).journal, Some(true));
    /// ```
    pub fn majority() -> Self {
        Self::custom("majority")
    }

    /// Asks for the acknowledgment of this many members.
    pub fn nodes(count: u32) -> Self {
        Self::default().with_w(Acknowledgment::Servers(count))
    }

    /// Asks for no acknowledgment: nothing is known of such a write.
    pub fn unacknowledged() -> Self {
        Self::nodes(0)
    }

    /// Asks for the acknowledgment that a name stands for: `majority`, or a mode that the replica
    /// set's configuration defines.
    pub fn custom(name: impl Into<String>) -> Self {
        Self::default().with_w(Acknowledgment::Named(name.into()))
    }

    /// Returns whether the server decides, so that commands need no `writeConcern` (Read and Write
    /// Concern, "Server's Default WriteConcern").
    pub const fn is_server_default(&self) -> bool {
        self.w.is_none() && self.journal.is_none() && self.timeout.is_none()
    }

    /// Returns whether the server answers a write that declares this.
    pub const fn is_acknowledged(&self) -> bool {
        !matches!(self.w, Some(Acknowledgment::Servers(0))) || matches!(self.journal, Some(true))
    }

    /// Returns what a command declares as `writeConcern`. Numbers are of 32 bits where they fit.
    ///
    /// ```
    /// use sdam_core::bson::rawdoc;
    /// use sdam_core::config::WriteConcern;
    ///
    /// let concern = WriteConcern::nodes(3).with_journal(true);
    /// assert_eq!(concern.document(), rawdoc! { "w": 3, "j": true });
    /// ```
    pub fn document(&self) -> RawDocumentBuf {
        let mut document = RawDocumentBuf::new();
        match &self.w {
            None => {}
            Some(Acknowledgment::Servers(count)) => match i32::try_from(*count) {
                Ok(count) => document.append(cstr!("w"), count),
                Err(_) => document.append(cstr!("w"), i64::from(*count)),
            },
            Some(Acknowledgment::Named(name)) => document.append(cstr!("w"), name.as_str()),
        }
        if let Some(journal) = self.journal {
            document.append(cstr!("j"), journal);
        }
        if let Some(timeout) = self.timeout {
            document.append(cstr!("wtimeout"), wtimeout(timeout));
        }
        document
    }

    /// Read and Write Concern: what cannot be acknowledged cannot be journaled.
    pub(in crate::config) fn check(&self) -> Result<(), OptionsError> {
        match self.w {
            Some(Acknowledgment::Servers(0)) if self.journal == Some(true) => {
                Err(OptionsError::Conflict { option: "w=0", with: "journal=true" })
            }
            _ => Ok(()),
        }
    }

    /// Replaces [`w`](Self::w).
    #[must_use]
    pub fn with_w(mut self, w: impl Into<Option<Acknowledgment>>) -> Self {
        self.w = w.into();
        self
    }

    /// Replaces [`journal`](Self::journal).
    #[must_use]
    pub fn with_journal(mut self, journal: impl Into<Option<bool>>) -> Self {
        self.journal = journal.into();
        self
    }

    /// Replaces [`timeout`](Self::timeout).
    #[must_use]
    pub fn with_timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.timeout = timeout.into();
        self
    }
}

/// "wtimeout must be a 32-bit integer", says MongoDB 6.0.
fn wtimeout(timeout: Duration) -> i32 {
    i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX)
}

fn serialize_timeout<S: Serializer>(
    timeout: &Option<Duration>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    timeout.map(wtimeout).serialize(serializer)
}

impl Serialize for Acknowledgment {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Servers(count) => match i32::try_from(*count) {
                Ok(count) => serializer.serialize_i32(count),
                Err(_) => serializer.serialize_i64((*count).into()),
            },
            Self::Named(name) => serializer.serialize_str(name),
        }
    }
}

impl<'de> Deserialize<'de> for Acknowledgment {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AcknowledgmentVisitor)
    }
}

struct AcknowledgmentVisitor;

impl Visitor<'_> for AcknowledgmentVisitor {
    type Value = Acknowledgment;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number of servers, `majority`, or the name of a mode")
    }

    fn visit_i64<E: de::Error>(self, count: i64) -> Result<Acknowledgment, E> {
        let servers = u32::try_from(count).map(Acknowledgment::Servers);
        servers.map_err(|_| E::invalid_value(de::Unexpected::Signed(count), &self))
    }

    fn visit_u64<E: de::Error>(self, count: u64) -> Result<Acknowledgment, E> {
        let servers = u32::try_from(count).map(Acknowledgment::Servers);
        servers.map_err(|_| E::invalid_value(de::Unexpected::Unsigned(count), &self))
    }

    fn visit_str<E: de::Error>(self, name: &str) -> Result<Acknowledgment, E> {
        Ok(name.into())
    }
}

impl<'de> Deserialize<'de> for WriteConcern {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let read = WriteConcernDocument::deserialize(deserializer)?;
        let concern =
            Self { w: read.w, journal: read.j, timeout: read.wtimeout.map(Duration::from_millis) };
        concern.check().map_err(de::Error::custom)?;
        Ok(concern)
    }
}

/// The document of a write concern, before its parts are known to go together.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WriteConcernDocument {
    w: Option<Acknowledgment>,
    #[serde(alias = "journal")]
    j: Option<bool>,
    #[serde(alias = "wtimeoutMS", alias = "wTimeoutMS")]
    wtimeout: Option<u64>,
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::{Value, from_value, json, to_value};

    use super::{Acknowledgment, ReadConcern, WriteConcern};

    #[test]
    fn the_document_of_a_concern_is_that_of_commands() {
        let level = json!({ "level": "snapshot" });
        assert_eq!(to_value(ReadConcern::snapshot()).unwrap(), level);
        assert_eq!(from_value::<ReadConcern>(level).unwrap(), ReadConcern::snapshot());
        assert_eq!(from_value::<ReadConcern>(json!({})).unwrap(), ReadConcern::default());
        let nodes = WriteConcern::nodes(2).with_timeout(Duration::from_millis(90));
        for (concern, document) in [
            (WriteConcern::default(), json!({})),
            (WriteConcern::majority(), json!({ "w": "majority" })),
            (WriteConcern::custom("east").with_journal(false), json!({ "w": "east", "j": false })),
            (WriteConcern::unacknowledged(), json!({ "w": 0 })),
            (nodes, json!({ "w": 2, "wtimeout": 90 })),
            (WriteConcern::nodes(u32::MAX), json!({ "w": u32::MAX })),
        ] {
            assert_eq!(to_value(&concern).unwrap(), document);
            assert_eq!(from_value::<WriteConcern>(document).unwrap(), concern);
        }
        let by_options = json!({ "w": "east", "journal": true, "wtimeoutMS": 5 });
        let expected = WriteConcern::custom("east").with_journal(true);
        let expected = expected.with_timeout(Duration::from_millis(5));
        assert_eq!(from_value::<WriteConcern>(by_options).unwrap(), expected);
        assert_eq!(Acknowledgment::from(1), Acknowledgment::Servers(1));
        assert_eq!(Acknowledgment::from("a".to_owned()), "a".into());
    }

    #[test]
    fn what_is_wrong_in_a_document_is_named_with_what_is_allowed() {
        let read = |document: Value| from_value::<ReadConcern>(document).unwrap_err().to_string();
        assert_eq!(read(json!({ "levle": "local" })), "unknown field `levle`, expected `level`");
        let write = |document: Value| from_value::<WriteConcern>(document).unwrap_err().to_string();
        let unknown = write(json!({ "wait": 1 }));
        assert!(unknown.starts_with("unknown field `wait`, expected one of `w`, `j`"), "{unknown}");
        let expected = "expected a number of servers, `majority`, or the name of a mode";
        for w in [json!(-1), json!(1_u64 << 32), json!(true)] {
            let error = write(json!({ "w": w }));
            assert!(error.ends_with(expected), "{error}");
        }
        // Read and Write Concern: what cannot be acknowledged cannot be journaled.
        let conflict = write(json!({ "w": 0, "j": true }));
        assert_eq!(conflict, "w=0 and journal=true cannot be combined; leave out one of them");
    }
}
