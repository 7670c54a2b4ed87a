//! Contents of collections, and options of databases and collections.

use bson::Document;

use super::error::FormatError;
use super::object::Node;

/// The contents of a collection (Unified Test Format, "collectionData").
#[derive(Clone, Debug)]
pub struct CollectionData {
    /// The collection.
    pub collection: String,
    /// The database that it is in.
    pub database: String,
    /// Options with which the collection is created.
    pub create_options: Option<Document>,
    /// The documents.
    pub documents: Vec<Document>,
}

/// The options of a database or a collection (Unified Test Format, "collectionOrDatabaseOptions").
#[derive(Clone, Debug, Default)]
pub struct CollectionOptions {
    /// The read concern.
    pub read_concern: Option<Document>,
    /// The read preference.
    pub read_preference: Option<Document>,
    /// The write concern.
    pub write_concern: Option<Document>,
    /// The limit of each operation, in milliseconds.
    pub timeout_ms: Option<i64>,
}

pub(super) fn collection_data(node: Node) -> Result<CollectionData, FormatError> {
    let mut object = node.object()?;
    let data = CollectionData {
        collection: object.required("collectionName", Node::string)?,
        database: object.required("databaseName", Node::string)?,
        create_options: object.optional("createOptions", Node::document)?,
        documents: object.required("documents", |node| node.list(Node::document))?,
    };
    object.finish()?;
    Ok(data)
}

pub(super) fn collection_options(node: Node) -> Result<CollectionOptions, FormatError> {
    let mut object = node.object()?;
    let options = CollectionOptions {
        read_concern: object.optional("readConcern", Node::document)?,
        read_preference: object.optional("readPreference", Node::document)?,
        write_concern: object.optional("writeConcern", Node::document)?,
        timeout_ms: object.optional("timeoutMS", Node::integer)?,
    };
    object.finish()?;
    Ok(options)
}
