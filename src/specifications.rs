//! Descriptions of databases and collections by servers (Enumerate Databases, Enumerate
//! Collections).

use std::fmt;

use bson::{Binary, Document};
use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize};

use crate::command::collections::CreateCollectionOptions;
use crate::command::described;
use crate::command::indexes::IndexModel;

/// A database, as `listDatabases` describes it. Fields that are not known here are left out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct DatabaseSpecification {
    /// Its name.
    pub name: String,
    /// The length of its files in bytes; 0 if only names were asked for.
    #[serde(default, deserialize_with = "whole")]
    pub size_on_disk: u64,
    /// True if there is no document in it.
    #[serde(default)]
    pub empty: bool,
    /// Its length on each shard, as a mongos says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shards: Option<Document>,
}

/// A collection, as `listCollections` describes it. Fields that are not known here are left out.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct CollectionSpecification {
    /// Its name.
    pub name: String,
    /// Its kind.
    #[serde(rename = "type")]
    pub collection_type: CollectionType,
    /// The options that it was created with. Those that are not known here are left out, and so
    /// are values that later servers know: `list_collections().with_type::<Document>()` has all.
    #[serde(default, deserialize_with = "options_of_server")]
    pub options: CreateCollectionOptions,
    /// The part that cannot be chosen.
    #[serde(default)]
    pub info: CollectionSpecificationInfo,
    /// The index of `_id`; views have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id_index: Option<IndexModel>,
}

/// The part of a [`CollectionSpecification`] that cannot be chosen.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct CollectionSpecificationInfo {
    /// True if nothing can be written to it, as to a view.
    #[serde(default)]
    pub read_only: bool,
    /// The identity that it keeps when it is renamed; views have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uuid: Option<Binary>,
}

/// A kind of collection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum CollectionType {
    /// A collection that has documents.
    Collection,
    /// A view: what a pipeline makes of other collections.
    View,
    /// A time series.
    Timeseries,
    /// A kind that later servers know.
    #[serde(untagged)]
    Other(String),
}

fn options_of_server<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<CreateCollectionOptions, D::Error> {
    Ok(described::of_server(Document::deserialize(deserializer)?))
}

/// Reads a whole number, which servers also write as a double.
fn whole<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    deserializer.deserialize_any(Whole)
}

struct Whole;

impl Visitor<'_> for Whole {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number that is not negative")
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<u64, E> {
        Ok(value)
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<u64, E> {
        let wrong = |_| E::invalid_value(de::Unexpected::Signed(value), &self);
        value.try_into().map_err(wrong)
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<u64, E> {
        match value >= 0.0 {
            // What is too much becomes the greatest number.
            true => Ok(value as u64),
            false => Err(E::invalid_value(de::Unexpected::Float(value), &self)),
        }
    }
}

#[cfg(test)]
mod tests {
    use bson::{Bson, Document, doc};

    use super::{CollectionSpecification, CollectionType, DatabaseSpecification};
    use crate::options::{Collation, CreateCollectionOptions, ValidationAction};

    fn database(document: Document) -> Result<DatabaseSpecification, bson::error::Error> {
        bson::deserialize_from_document(document)
    }

    fn collection(document: Document) -> CollectionSpecification {
        bson::deserialize_from_document(document).unwrap()
    }

    #[test]
    fn databases_are_read_whatever_servers_add() {
        let document = doc! {
            "name": "a", "sizeOnDisk": 8192_i64, "empty": false, "shards": { "one": 8192 },
        };
        let mut more = document.clone();
        more.insert("later", 1);
        let read = database(more).unwrap();
        assert_eq!((&*read.name, read.size_on_disk, read.empty), ("a", 8192, false));
        assert_eq!(bson::serialize_to_document(&read).unwrap(), document);
        let only_name = database(doc! { "name": "a" }).unwrap();
        assert_eq!((only_name.size_on_disk, only_name.empty, only_name.shards), (0, false, None));
        for size in [Bson::Int32(5), Bson::Int64(5), Bson::Double(5.0)] {
            let read = database(doc! { "name": "a", "sizeOnDisk": size });
            assert_eq!(read.unwrap().size_on_disk, 5);
        }
        for size in [Bson::Int32(-1), Bson::Double(f64::NAN), Bson::Null] {
            let error = database(doc! { "name": "a", "sizeOnDisk": size }).unwrap_err().to_string();
            assert!(error.contains("expected a number that is not negative"), "{error}");
        }
    }

    #[test]
    fn collections_are_read_whatever_servers_add() {
        let uuid = Bson::Binary(bson::Uuid::from_bytes([7; 16]).into());
        let document = doc! {
            "name": "a",
            "type": "collection",
            "options": {
                "capped": true,
                "collation": { "locale": "de" },
                "size": 4096_i64,
                "validationAction": "warn",
            },
            "info": { "readOnly": false, "uuid": uuid },
            "idIndex": { "key": { "_id": 1 }, "name": "_id_", "v": 2 },
        };
        let mut more = document.clone();
        more.insert("later", 1);
        more.get_document_mut("info").unwrap().insert("later", 1);
        let options = more.get_document_mut("options").unwrap();
        options.extend(doc! { "later": 1, "validationLevel": "lax" });
        let read = collection(more);
        assert_eq!(read.collection_type, CollectionType::Collection);
        let options = CreateCollectionOptions::builder()
            .capped(true)
            .collation(Collation::new("de"))
            .size(4096)
            .validation_action(ValidationAction::Warn);
        assert_eq!(read.options, options.build());
        assert!(read.info.uuid.is_some() && !read.info.read_only);
        assert_eq!(read.id_index.as_ref().unwrap().keys(), doc! { "_id": 1 });
        assert_eq!(bson::serialize_to_document(&read).unwrap(), document);
        let view = doc! { "name": "a", "type": "view", "info": { "readOnly": true } };
        let view = collection(view);
        assert_eq!(view.collection_type, CollectionType::View);
        assert_eq!((view.info.read_only, view.info.uuid), (true, None));
        assert_eq!(view.options, CreateCollectionOptions::default());
        let kind = |name: &str| collection(doc! { "name": "a", "type": name }).collection_type;
        assert_eq!(kind("timeseries"), CollectionType::Timeseries);
        assert_eq!(kind("cube"), CollectionType::Other("cube".to_owned()));
        let cube = bson::serialize_to_bson(&kind("cube")).unwrap();
        assert_eq!(cube, Bson::from("cube"));
    }
}
