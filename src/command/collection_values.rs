//! The values of options that collections and their indexes have.

use std::time::Duration;

use bson::{Bson, Document, doc};
use serde::{Deserialize, Deserializer, Serialize, de};

use super::arguments::Argument;
use super::fields::Value;

/// The writes that the rules of a collection judge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum ValidationLevel {
    /// None.
    Off,
    /// All; the default of servers.
    Strict,
    /// Insertions, and updates of documents that were valid.
    Moderate,
}

/// The fate of a write that breaks the rules of a collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum ValidationAction {
    /// The server refuses it; the default of servers.
    Error,
    /// The server does it, and logs a warning.
    Warn,
    /// The server refuses it, and logs an error (MongoDB 8.1).
    ErrorAndLog,
}

/// The index by which a clustered collection is ordered, by default that of `_id`.
///
/// It is also read from `true`, as older servers describe it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ClusteredIndex {
    /// The keys, which are `{ _id: 1 }`.
    pub key: Document,
    /// True, as servers have it.
    pub unique: bool,
    /// The name of the index, in the place of the one that its keys give.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The version of the index.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub v: Option<i32>,
}

impl Default for ClusteredIndex {
    fn default() -> Self {
        Self { key: doc! { "_id": 1 }, unique: true, name: None, v: None }
    }
}

impl<'de> Deserialize<'de> for ClusteredIndex {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Fields {
            key: Document,
            unique: bool,
            name: Option<String>,
            v: Option<i32>,
        }
        match Bson::deserialize(deserializer)? {
            Bson::Boolean(true) => Ok(Self::default()),
            value => {
                let Fields { key, unique, name, v } =
                    bson::deserialize_from_bson(value).map_err(de::Error::custom)?;
                Ok(Self { key, unique, name, v })
            }
        }
    }
}

/// The options of indexes that set none.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct IndexOptionDefaults {
    /// Those of the storage engine.
    pub storage_engine: Document,
}

/// The options of a time series.
///
/// ```
/// use std::time::Duration;
/// use bson::{doc, serialize_to_document};
/// use sdam::options::TimeseriesOptions;
///
/// let hour = Duration::from_secs(3600);
/// let options = TimeseriesOptions::new("at");
/// let options = options.meta_field("sensor".to_owned()).bucket_max_span(hour);
/// let expected =
///     doc! { "timeField": "at", "metaField": "sensor", "bucketMaxSpanSeconds": 3600_i64 };
/// assert_eq!(serialize_to_document(&options)?, expected);
/// # Ok::<(), bson::error::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct TimeseriesOptions {
    /// The field that has the time.
    pub time_field: String,
    /// The field that says which series a document belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meta_field: Option<String>,
    /// The time between two measurements, roughly.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub granularity: Option<TimeseriesGranularity>,
    /// The longest time between measurements that are stored together, in whole seconds (MongoDB
    /// 6.3); needs `bucket_rounding`.
    #[serde(rename = "bucketMaxSpanSeconds", with = "seconds", default)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bucket_max_span: Option<Duration>,
    /// The multiples of time at which buckets begin, in whole seconds: as long as the longest time
    /// (MongoDB 6.3).
    #[serde(rename = "bucketRoundingSeconds", with = "seconds", default)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bucket_rounding: Option<Duration>,
}

impl TimeseriesOptions {
    /// Makes a series by the time in a field.
    pub fn new(time_field: impl Into<String>) -> Self {
        Self {
            time_field: time_field.into(),
            meta_field: None,
            granularity: None,
            bucket_max_span: None,
            bucket_rounding: None,
        }
    }

    /// Sets the field that says which series a document belongs to.
    #[must_use]
    pub fn meta_field(mut self, field: impl Into<Option<String>>) -> Self {
        self.meta_field = field.into();
        self
    }

    /// Sets the time between two measurements, roughly.
    #[must_use]
    pub fn granularity(mut self, granularity: impl Into<Option<TimeseriesGranularity>>) -> Self {
        self.granularity = granularity.into();
        self
    }

    /// Sets the longest time between measurements that are stored together (MongoDB 6.3).
    #[must_use]
    pub fn bucket_max_span(mut self, span: impl Into<Option<Duration>>) -> Self {
        self.bucket_max_span = span.into();
        self
    }

    /// Sets the multiples of time at which buckets begin (MongoDB 6.3).
    #[must_use]
    pub fn bucket_rounding(mut self, rounding: impl Into<Option<Duration>>) -> Self {
        self.bucket_rounding = rounding.into();
        self
    }
}

/// The time between two measurements of a series, roughly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum TimeseriesGranularity {
    /// Seconds; the default of servers.
    Seconds,
    /// Minutes.
    Minutes,
    /// Hours.
    Hours,
}

/// The members that must have built indexes before these are used.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CommitQuorum {
    /// This many members that have data and vote.
    Nodes(u32),
    /// All members that have data and vote; the default of servers.
    VotingMembers,
    /// The majority of them.
    Majority,
    /// A mode that the replica set's configuration defines.
    Custom(String),
}

impl From<CommitQuorum> for Bson {
    fn from(quorum: CommitQuorum) -> Self {
        match quorum {
            CommitQuorum::Nodes(count) => match i32::try_from(count) {
                Ok(count) => count.into(),
                Err(_) => i64::from(count).into(),
            },
            CommitQuorum::VotingMembers => "votingMembers".into(),
            CommitQuorum::Majority => "majority".into(),
            CommitQuorum::Custom(mode) => mode.into(),
        }
    }
}

/// The value of an option that may have a quorum.
impl From<CommitQuorum> for Option<Bson> {
    fn from(quorum: CommitQuorum) -> Self {
        Some(quorum.into())
    }
}

/// Reads options from what they are in documents, and writes them so.
macro_rules! as_documents {
    ($($type:ty = $expected:literal)+) => {
        $(impl Argument for $type {
            const EXPECTED: &'static str = $expected;

            fn read(value: Bson) -> Option<Self> {
                bson::deserialize_from_bson(value).ok()
            }
        }

        impl From<$type> for Value {
            fn from(value: $type) -> Self {
                match bson::serialize_to_bson(&value) {
                    Ok(value) => Self::of(value),
                    Err(error) => Self(Err(error)),
                }
            }
        })+
    };
}

as_documents! {
    ValidationLevel = "off, strict or moderate"
    ValidationAction = "error, warn or errorAndLog"
    ClusteredIndex = "a document with key and unique, or true"
    IndexOptionDefaults = "a document with storageEngine"
    TimeseriesOptions = "a document with timeField"
}

mod seconds {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(
        time: &Option<Duration>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let seconds = time.map(|time| i64::try_from(time.as_secs()).unwrap_or(i64::MAX));
        seconds.serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<u64>::deserialize(deserializer)?.map(Duration::from_secs))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bson::{Bson, Document, doc};

    use super::{
        ClusteredIndex, CommitQuorum, IndexOptionDefaults, TimeseriesGranularity,
        TimeseriesOptions, ValidationAction, ValidationLevel,
    };
    use crate::command::collections::{CreateCollection, CreateCollectionOptions};
    use crate::command::indexes::{CreateIndexes, IndexModel};
    use crate::command::testing::{NEW, written};

    fn created(create: CreateCollection) -> Document {
        let mut create = create;
        Document::try_from(&*written(&mut create, NEW).body).unwrap()
    }

    #[test]
    fn options_of_collections_are_the_same_whether_read_or_set() {
        let by_name = doc! {
            "collection": "things",
            "clusteredIndex": { "key": { "_id": 1 }, "unique": true, "name": "by id" },
            "indexOptionDefaults": { "storageEngine": { "wiredTiger": {} } },
            "timeseries": {
                "timeField": "at", "granularity": "hours", "bucketRoundingSeconds": 60_i64,
            },
            "validationAction": "errorAndLog",
            "validationLevel": "moderate",
        };
        let index = ClusteredIndex { name: Some("by id".to_owned()), ..ClusteredIndex::default() };
        let series = TimeseriesOptions::new("at")
            .granularity(TimeseriesGranularity::Hours)
            .meta_field(None)
            .bucket_rounding(Duration::from_secs(60));
        let by_method = CreateCollection::new("things")
            .clustered_index(index)
            .index_option_defaults(IndexOptionDefaults {
                storage_engine: doc! { "wiredTiger": {} },
            })
            .timeseries(series)
            .validation_action(ValidationAction::ErrorAndLog)
            .validation_level(ValidationLevel::Moderate);
        let mut expected = doc! { "create": "things" };
        expected.extend(by_name.clone().into_iter().skip(1));
        assert_eq!(created(by_method), expected);
        assert_eq!(created(CreateCollection::from_document(by_name).unwrap()), expected);
    }

    #[test]
    fn a_clustered_index_may_be_true_and_nothing_else_that_is_no_document() {
        let read =
            |value: Bson| CreateCollectionOptions::from_document(doc! { "clusteredIndex": value });
        let index = read(true.into()).unwrap().clustered_index;
        assert_eq!(index, Some(ClusteredIndex::default()));
        let error = "the argument clusteredIndex must be a document with key and unique, or true";
        for value in [Bson::from(false), 1.into(), doc! { "key": { "_id": 1 } }.into()] {
            assert_eq!(read(value).unwrap_err().to_string(), error);
        }
    }

    #[test]
    fn a_quorum_is_a_number_or_a_name() {
        for (quorum, expected) in [
            (CommitQuorum::Nodes(3), Bson::Int32(3)),
            (CommitQuorum::Nodes(u32::MAX), Bson::Int64(u32::MAX.into())),
            (CommitQuorum::VotingMembers, "votingMembers".into()),
            (CommitQuorum::Majority, "majority".into()),
            (CommitQuorum::Custom("east".to_owned()), "east".into()),
        ] {
            let mut create = CreateIndexes::new([IndexModel::new(doc! { "a": 1 })]);
            create = create.commit_quorum(quorum);
            let body = Document::try_from(&*written(&mut create, NEW).body).unwrap();
            assert_eq!(body.get("commitQuorum"), Some(&expected));
        }
    }
}
