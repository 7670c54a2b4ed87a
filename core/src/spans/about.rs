//! The database and the collection that an operation or a command is about.

use bson::{RawBsonRef, RawDocument};

/// The commands whose first value is the name of a collection.
const ON_COLLECTIONS: [&str; 24] = [
    "aggregate",
    "collMod",
    "collStats",
    "compact",
    "convertToCapped",
    "count",
    "create",
    "createIndexes",
    "createSearchIndexes",
    "delete",
    "distinct",
    "drop",
    "dropIndexes",
    "dropSearchIndex",
    "find",
    "findAndModify",
    "insert",
    "killCursors",
    "listIndexes",
    "mapReduce",
    "planCacheClear",
    "update",
    "updateSearchIndex",
    "validate",
];

/// Returns the name of an operation or command with what it is about.
pub(super) fn summary(name: &str, database: &str, collection: Option<&str>) -> String {
    match collection {
        Some(collection) => format!("{name} {database}.{collection}"),
        None => format!("{name} {database}"),
    }
}

/// Returns the collection that a command is about; none of "commands running against `admin`
/// database or commands that do not target a specific collection".
pub(super) fn collection<'a>(database: &str, command: &'a RawDocument) -> Option<&'a str> {
    let (name, value) = command.iter().next()?.ok()?;
    let collection = match (name.as_str(), value) {
        ("explain", RawBsonRef::Document(explained)) => named(explained),
        _ => named(command),
    };
    collection.filter(|_| database != "admin")
}

fn named(command: &RawDocument) -> Option<&str> {
    let (name, value) = command.iter().next()?.ok()?;
    let is = |one: &&str| one.eq_ignore_ascii_case(name.as_str());
    let collection = match value {
        RawBsonRef::String(collection) if ON_COLLECTIONS.iter().any(is) => collection,
        _ if name.as_str() == "getMore" => command.get_str("collection").ok()?,
        _ => return None,
    };
    // Cursors of databases have such names in place of one.
    (!collection.starts_with("$cmd.")).then_some(collection)
}
