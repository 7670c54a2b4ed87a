//! The events of change streams.

use bson::{Bson, DateTime, Document, Timestamp};
use serde::{Deserialize, Serialize};

use super::ResumeToken;

/// A change, as a server reports it; `T` is the type of whole documents. What is not known here is
/// left out: `with_type` of a stream reads events as another type, [`Document`] for one, which
/// leaves out nothing. Read as one of those, too, the parts of events that a pipeline's own
/// `$changeStreamSplitLargeEvent` has split: of each field, one part has it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ChangeStreamEvent<T = Document> {
    /// The place of the event, which another stream goes on behind.
    #[serde(rename = "_id")]
    pub id: ResumeToken,
    /// The kind of the change.
    pub operation_type: OperationType,
    /// The collection or database that has changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ns: Option<ChangeNamespace>,
    /// The kind of a thing that was created, with `show_expanded_events`: `collection`, `view` or
    /// `timeseries` (MongoDB 8.1).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ns_type: Option<String>,
    /// The new name, of a rename.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<ChangeNamespace>,
    /// The `_id` of the document, and its shard key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub document_key: Option<Document>,
    /// The fields that an update has changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update_description: Option<UpdateDescription>,
    /// The time of the change in the history of the servers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_time: Option<Timestamp>,
    /// The time of the change by the server's clock (MongoDB 6.0).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wall_time: Option<DateTime>,
    /// The whole document: that of inserts and replacements; that of updates if it was asked for,
    /// and then perhaps a later one.
    #[serde(default = "none", skip_serializing_if = "Option::is_none")]
    pub full_document: Option<T>,
    /// The document before the change, if that was asked for and is recorded (MongoDB 6.0).
    #[serde(default = "none", skip_serializing_if = "Option::is_none")]
    pub full_document_before_change: Option<T>,
    /// The session of a change in a transaction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lsid: Option<Document>,
    /// The number of its transaction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub txn_number: Option<i64>,
    /// The arguments of the command, with `show_expanded_events`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation_description: Option<Document>,
    /// The id of the collection, with `show_expanded_events`.
    #[serde(default, rename = "collectionUUID", skip_serializing_if = "Option::is_none")]
    pub collection_uuid: Option<Bson>,
    /// The place of the event among the parts of one that was split.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split_event: Option<SplitEvent>,
}

/// Documents have no default, so that the derived code needs this one.
fn none<T>() -> Option<T> {
    None
}

/// The kind of a change. Servers add kinds, which are [`Other`](Self::Other) here.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum OperationType {
    /// A document was inserted.
    Insert,
    /// A document was updated.
    Update,
    /// A document was replaced.
    Replace,
    /// A document was deleted.
    Delete,
    /// A collection was dropped.
    Drop,
    /// A collection was renamed.
    Rename,
    /// A database was dropped.
    DropDatabase,
    /// A collection or a view was created; this and what follows is an event with
    /// `show_expanded_events`.
    Create,
    /// Indexes were created.
    CreateIndexes,
    /// Indexes were dropped.
    DropIndexes,
    /// The options of a collection were changed.
    Modify,
    /// A collection was sharded.
    ShardCollection,
    /// The shard key of a collection has more fields.
    RefineCollectionShardKey,
    /// A collection was sharded by another key.
    ReshardCollection,
    /// The stream has ended: what it watches is gone. It may be begun again after the event, by
    /// `start_after`.
    Invalidate,
    /// Another kind, as the server calls it.
    #[serde(untagged)]
    Other(String),
}

/// The names of what has changed.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ChangeNamespace {
    /// The database.
    pub db: String,
    /// The collection, unless the change is one of the database.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coll: Option<String>,
}

/// The fields that an update has changed.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct UpdateDescription {
    /// The new values, by their paths.
    pub updated_fields: Document,
    /// The paths that are gone.
    pub removed_fields: Vec<String>,
    /// The arrays that have become shorter (MongoDB 4.8).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub truncated_arrays: Option<Vec<TruncatedArray>>,
    /// The paths as arrays, where the texts leave open what they mean (MongoDB 6.1).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disambiguated_paths: Option<Document>,
}

/// An array that has become shorter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct TruncatedArray {
    /// The path of the array.
    pub field: String,
    /// Its length now.
    pub new_size: i32,
}

/// The place of an event among the parts of one that was split, counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SplitEvent {
    /// The number of this part.
    pub fragment: i32,
    /// The number of parts.
    pub of: i32,
}

#[cfg(test)]
mod tests {
    use bson::{Document, doc};

    use super::{ChangeStreamEvent, OperationType};

    fn read(event: Document) -> ChangeStreamEvent {
        bson::deserialize_from_document(event).unwrap()
    }

    /// Change Streams, "ChangeStreamDocument": "MUST NOT throw an exception if any unknown fields
    /// or values are encountered".
    #[test]
    fn unknown_kinds_and_fields_are_no_errors() {
        let event = read(doc! {
            "_id": { "_data": "1" }, "operationType": "somethingNew", "new": { "a": 1 },
            "ns": { "db": "app", "coll": "things", "viewOn": "others" },
        });
        assert_eq!(event.operation_type, OperationType::Other("somethingNew".to_owned()));
        assert_eq!(event.ns.unwrap().coll.as_deref(), Some("things"));
        let created = doc! { "_id": {}, "operationType": "create", "nsType": "view" };
        let event = read(created);
        assert_eq!(event.operation_type, OperationType::Create);
        assert_eq!(event.ns_type.as_deref(), Some("view"));
        let event = read(doc! { "_id": {}, "operationType": "dropDatabase", "ns": { "db": "a" } });
        assert_eq!(event.operation_type, OperationType::DropDatabase);
        assert_eq!(event.ns.unwrap().coll, None);
    }

    #[test]
    fn an_update_says_which_fields_have_changed() {
        let event = read(doc! {
            "_id": {}, "operationType": "update",
            "updateDescription": {
                "updatedFields": { "a.b": 1 }, "removedFields": ["c"],
                "truncatedArrays": [{ "field": "d", "newSize": 2 }],
            },
            "fullDocument": null,
        });
        let update = event.update_description.unwrap();
        assert_eq!(update.updated_fields, doc! { "a.b": 1 });
        assert_eq!(update.removed_fields, ["c"]);
        assert_eq!(update.truncated_arrays.unwrap()[0].new_size, 2);
        assert_eq!(event.full_document, None);
    }
}
