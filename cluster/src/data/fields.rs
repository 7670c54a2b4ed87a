//! The fields of commands and of their statements: each version knows its own, and none is ignored.

use bson::{Bson, Document};
use sdam_core::bson;

use crate::options::ServerVersion;
use crate::store::parse_stages;
use crate::wire::CommandError;

use ServerVersion::{V4_2, V4_4, V5_0, V7_0, V8_0, V8_2};

/// A field, and the first version that knows it.
type Field = (&'static str, ServerVersion);

/// The fields that every command has.
const OF_ALL: [Field; 18] = [
    ("$db", V4_2),
    ("$clusterTime", V4_2),
    ("$readPreference", V4_2),
    // The users, for the log of audits; a mongos attaches it.
    ("$audit", V4_2),
    ("lsid", V4_2),
    ("txnNumber", V4_2),
    ("stmtId", V4_2),
    ("stmtIds", V4_2),
    ("autocommit", V4_2),
    ("startTransaction", V4_2),
    ("readConcern", V4_2),
    ("writeConcern", V4_2),
    ("maxTimeMS", V4_2),
    ("comment", V4_4),
    ("apiVersion", V5_0),
    ("apiStrict", V5_0),
    ("apiDeprecationErrors", V5_0),
    ("rawData", V8_2),
];

const OF_FIND: [Field; 21] = [
    ("filter", V4_2),
    ("projection", V4_2),
    ("sort", V4_2),
    ("hint", V4_2),
    ("skip", V4_2),
    ("limit", V4_2),
    ("batchSize", V4_2),
    ("singleBatch", V4_2),
    ("comment", V4_2),
    ("min", V4_2),
    ("max", V4_2),
    ("returnKey", V4_2),
    ("showRecordId", V4_2),
    ("tailable", V4_2),
    ("awaitData", V4_2),
    ("oplogReplay", V4_2),
    ("noCursorTimeout", V4_2),
    ("allowPartialResults", V4_2),
    ("collation", V4_2),
    ("allowDiskUse", V4_4),
    ("let", V5_0),
];

const OF_AGGREGATE: [Field; 9] = [
    ("pipeline", V4_2),
    ("explain", V4_2),
    ("cursor", V4_2),
    ("allowDiskUse", V4_2),
    ("bypassDocumentValidation", V4_2),
    ("collation", V4_2),
    ("hint", V4_2),
    ("comment", V4_2),
    ("let", V5_0),
];

const OF_COUNT: [Field; 6] = [
    ("query", V4_2),
    ("limit", V4_2),
    ("skip", V4_2),
    ("hint", V4_2),
    ("collation", V4_2),
    ("fields", V4_2),
];

const OF_DISTINCT: [Field; 4] =
    [("key", V4_2), ("query", V4_2), ("collation", V4_2), ("hint", V7_0)];

const OF_INSERT: [Field; 3] =
    [("documents", V4_2), ("ordered", V4_2), ("bypassDocumentValidation", V4_2)];

const OF_UPDATE: [Field; 4] =
    [("updates", V4_2), ("ordered", V4_2), ("bypassDocumentValidation", V4_2), ("let", V5_0)];

const OF_DELETE: [Field; 3] = [("deletes", V4_2), ("ordered", V4_2), ("let", V5_0)];

const OF_FIND_AND_MODIFY: [Field; 12] = [
    ("query", V4_2),
    ("fields", V4_2),
    ("sort", V4_2),
    ("remove", V4_2),
    ("update", V4_2),
    ("new", V4_2),
    ("upsert", V4_2),
    ("arrayFilters", V4_2),
    ("bypassDocumentValidation", V4_2),
    ("collation", V4_2),
    ("hint", V4_4),
    ("let", V5_0),
];

const OF_BULK_WRITE: [Field; 7] = [
    ("ops", V8_0),
    ("nsInfo", V8_0),
    ("ordered", V8_0),
    ("errorsOnly", V8_0),
    ("bypassDocumentValidation", V8_0),
    ("let", V8_0),
    ("cursor", V8_0),
];

const OF_UPDATES: [Field; 9] = [
    ("q", V4_2),
    ("u", V4_2),
    ("c", V4_2),
    ("multi", V4_2),
    ("upsert", V4_2),
    ("arrayFilters", V4_2),
    ("collation", V4_2),
    ("hint", V4_2),
    ("sort", V8_0),
];

const OF_DELETES: [Field; 4] = [("q", V4_2), ("limit", V4_2), ("collation", V4_2), ("hint", V4_4)];

/// The fields of the commands that end a transaction.
const OF_END: [Field; 1] = [("recoveryToken", V4_2)];

/// The fields of the operations of a `bulkWrite`, besides that which names the operation.
const OF_OPERATIONS: [(&str, &[&str]); 3] = [
    ("insert", &["document"]),
    (
        "update",
        &[
            "filter",
            "updateMods",
            "multi",
            "upsert",
            "arrayFilters",
            "collation",
            "hint",
            "constants",
            "sort",
        ],
    ),
    ("delete", &["filter", "multi", "collation", "hint"]),
];

/// Checks that an operation of a `bulkWrite` has no field that servers do not know.
///
/// # Errors
///
/// Fails with code 40415.
pub(super) fn check_operation(name: &str, operation: &Document) -> Result<(), CommandError> {
    let known = OF_OPERATIONS.iter().find(|(it, _)| *it == name).map_or(&[][..], |it| it.1);
    match operation.keys().skip(1).find(|it| !known.contains(&it.as_str())) {
        Some(field) => Err(unknown(&format!("bulkWrite.ops.{name}"), field)),
        None => check_statement(operation),
    }
}

/// Checks that a command has no field that its server does not know.
///
/// # Errors
///
/// Fails with code 40415, or with the number that older servers have for it.
pub(super) fn check(
    command: &str,
    body: &Document,
    version: ServerVersion,
) -> Result<(), CommandError> {
    let own: &[Field] = match command {
        "find" => &OF_FIND,
        "aggregate" => &OF_AGGREGATE,
        "count" => &OF_COUNT,
        "distinct" => &OF_DISTINCT,
        "insert" => &OF_INSERT,
        "update" => &OF_UPDATE,
        "delete" => &OF_DELETE,
        "findAndModify" => &OF_FIND_AND_MODIFY,
        "bulkWrite" => &OF_BULK_WRITE,
        "commitTransaction" | "abortTransaction" => &OF_END,
        _ => return Ok(()),
    };
    let is_known = |name: &str| {
        let mut all = own.iter().chain(&OF_ALL);
        all.any(|(known, since)| *known == name && version >= *since)
    };
    // The first one names the command.
    match body.keys().skip(1).find(|name| !is_known(name)) {
        Some(name) => Err(unknown(command, name)),
        None => Ok(()),
    }
}

pub(super) fn unknown(of: &str, name: &str) -> CommandError {
    CommandError::numbered(40415, format!("BSON field '{of}.{name}' is an unknown field."))
}

pub(super) fn missing(of: &str, name: &str) -> CommandError {
    let reason = format!("BSON field '{of}.{name}' is missing but a required field");
    CommandError::numbered(40414, reason)
}

/// Checks what servers check of all statements before they do the first one.
///
/// # Errors
///
/// Fails as servers do if a statement has a field that is not known, or lacks one that it needs,
/// or if an update is none.
pub(super) fn check_statements(
    command: &str,
    statements: &[Document],
    version: ServerVersion,
) -> Result<(), CommandError> {
    let (of, known, needed): (_, &[Field], _) = match command {
        "update" => ("update.updates", &OF_UPDATES, ["q", "u"]),
        "delete" => ("delete.deletes", &OF_DELETES, ["q", "limit"]),
        _ => return Ok(()),
    };
    for statement in statements {
        let is_known = |name: &str| known.iter().any(|it| it.0 == name && version >= it.1);
        if let Some(name) = statement.keys().find(|name| !is_known(name)) {
            return Err(unknown(of, name));
        }
        if let Some(name) = needed.into_iter().find(|name| !statement.contains_key(name)) {
            return Err(missing(of, name));
        }
        check_statement(statement)?;
    }
    Ok(())
}

/// Checks the stages of an update: if there is none of that name, the command fails from this
/// statement on.
///
/// # Errors
///
/// Fails with the codes of a pipeline that cannot be read.
pub(super) fn check_stages(statement: &Document) -> Result<(), CommandError> {
    match statement.get("u") {
        Some(Bson::Array(stages)) => Ok(parse_stages(stages).map(drop)?),
        _ => Ok(()),
    }
}

fn check_statement(statement: &Document) -> Result<(), CommandError> {
    let wrong = |reason: String| Err(CommandError::coded(9, reason));
    if let Some(limit) = statement.get("limit")
        && !matches!(crate::store::whole(limit), Some(0 | 1))
    {
        return wrong(format!("The limit field in delete objects must be 0 or 1. Got {limit}"));
    }
    if statement.contains_key("sort") && super::arguments::flag(statement, "multi") {
        return wrong("Cannot specify sort with multi=true".to_owned());
    }
    match statement.get("u") {
        None | Some(Bson::Document(_) | Bson::Array(_)) => Ok(()),
        Some(_) => wrong("Update argument must be either an object or an array".to_owned()),
    }
}
