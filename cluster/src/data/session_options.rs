//! The fields by which a command belongs to a transaction, and what may be in one (Transactions,
//! "Constructing Commands Within a Transaction").

use bson::{Document, RawBsonRef, RawDocument};
use sdam_core::bson;

use super::is_write;
use crate::options::ServerVersion;
use crate::wire::{CommandError, Request};

/// The commands that end a transaction.
const ENDS: [&str; 2] = ["commitTransaction", "abortTransaction"];

/// The commands that a transaction may consist of.
const WITHIN: [&str; 9] = [
    "find",
    "getMore",
    "killCursors",
    "distinct",
    "aggregate",
    "insert",
    "update",
    "delete",
    "findAndModify",
];

/// The commands that may be sent once more under the same number.
const RETRYABLE: [&str; 5] = ["insert", "update", "delete", "findAndModify", "bulkWrite"];

/// The levels of a read concern that a transaction may have (Transactions, "readConcern").
const LEVELS: [&str; 3] = ["local", "majority", "snapshot"];

/// The stages that a pipeline of a transaction may not have.
const NO_STAGES: [&str; 7] = [
    "$out",
    "$merge",
    "$collStats",
    "$changeStream",
    "$currentOp",
    "$listLocalSessions",
    "$listSessions",
];

/// Returns whether a command ends a transaction.
pub(crate) fn ends_transaction(command: &str) -> bool {
    ENDS.contains(&command)
}

fn wrong(reason: impl Into<String>) -> CommandError {
    CommandError::coded(72, reason)
}

fn not_supported(reason: impl Into<String>) -> CommandError {
    CommandError::coded(263, reason)
}

/// Checks that the fields of a command that are about a number and a transaction fit together.
///
/// # Errors
///
/// Fails as servers do, with `InvalidOptions` mostly.
pub(super) fn check(request: &Request<'_>) -> Result<(), CommandError> {
    let (body, name) = (request.body, request.command_name());
    let has = |field| body.get(field).is_ok_and(|it| it.is_some());
    match body.get("txnNumber").ok().flatten() {
        None => {}
        Some(_) if body.get_document("lsid").is_err() => {
            return Err(wrong("Transaction number requires a session ID to also be specified"));
        }
        Some(RawBsonRef::Int64(0..)) => {}
        Some(RawBsonRef::Int64(_)) => return Err(wrong("Transaction number cannot be negative")),
        Some(_) => {
            let reason = "BSON field 'OperationSessionInfo.txnNumber' is the wrong type, expected \
                          type 'long'";
            return Err(CommandError::coded(14, reason));
        }
    }
    check_flags(body, has("txnNumber"))?;
    if ends_transaction(name) && request.database != Some("admin") {
        let reason = format!("{name} may only be run against the admin database.");
        return Err(CommandError::coded(13, reason));
    }
    let is_alone = has("txnNumber") && !has("autocommit");
    if is_alone && !RETRYABLE.contains(&name) {
        let reason = format!(
            "txnNumber may only be provided for multi-document transactions and retryable write \
             commands. autocommit:false was not provided, and {name} is not a retryable write \
             command."
        );
        let code = if is_of_session(name) { 50768 } else { 50889 };
        return Err(CommandError::numbered(code, reason));
    }
    if ends_transaction(name) && !has("autocommit") {
        let reason = format!("{name} must be run within a transaction");
        return Err(CommandError::coded(125, reason));
    }
    Ok(())
}

/// Checks the flags of a command of a transaction.
fn check_flags(body: &RawDocument, has_number: bool) -> Result<(), CommandError> {
    let flag = |name| body.get(name).ok().flatten().map(RawBsonRef::as_bool);
    let starts = flag("startTransaction");
    match flag("autocommit") {
        None if starts.is_some() => {
            let reason =
                "'startTransaction' field requires 'autocommit' field to also be specified";
            return Err(wrong(reason));
        }
        None => return Ok(()),
        Some(_) if !has_number => {
            let reason = "'autocommit' field requires a transaction number to also be specified";
            return Err(wrong(reason));
        }
        Some(Some(false)) => {}
        Some(Some(true)) => return Err(wrong("Specifying autocommit=true is not allowed.")),
        Some(None) => return Err(CommandError::coded(14, "'autocommit' is a boolean")),
    }
    match starts {
        None | Some(Some(true)) => Ok(()),
        Some(Some(false)) => Err(wrong("Specifying startTransaction=false is not allowed.")),
        Some(None) => Err(CommandError::coded(14, "'startTransaction' is a boolean")),
    }
}

/// Returns whether servers let a command have a session.
fn is_of_session(name: &str) -> bool {
    super::READS.contains(&name)
        || is_write(name)
        || WITHIN.contains(&name)
        || ends_transaction(name)
}

/// Checks that a command may be in a transaction; one that is refused leaves the transaction as it
/// was.
///
/// # Errors
///
/// Fails with `OperationNotSupportedInTransaction`, or with `InvalidOptions` for a concern.
pub(super) fn check_within(
    request: &Request<'_>,
    body: &Document,
    version: ServerVersion,
) -> Result<(), CommandError> {
    let (name, database) = (request.command_name(), request.database.unwrap_or_default());
    check_command(name, version)?;
    let ends = ends_transaction(name);
    let is_old = version < ServerVersion::V5_0 && !ends;
    if matches!(database, "local" | "config") || (database == "admin" && is_old) {
        let reason =
            format!("Cannot run command against the '{database}' database in a transaction.");
        return Err(not_supported(reason));
    }
    let starts = body.contains_key("startTransaction");
    if starts && ends {
        let verb = if name == "commitTransaction" { "a commit" } else { "an abort" };
        return Err(not_supported(format!("Cannot start a transaction with {verb}")));
    }
    if starts && name == "getMore" && version < ServerVersion::V4_4 {
        return Err(not_supported(
            "Command is not supported as the first command in a transaction",
        ));
    }
    let concern = |name: &str| body.get_document(name).ok().filter(|it| !it.is_empty());
    if !ends && concern("writeConcern").is_some() {
        return Err(wrong("writeConcern is not allowed within a multi-statement transaction"));
    }
    match concern("readConcern") {
        Some(concern) => check_read_concern(concern, starts),
        None => Ok(()),
    }
}

fn check_command(name: &str, version: ServerVersion) -> Result<(), CommandError> {
    let is_allowed = match name {
        "create" | "createIndexes" => version >= ServerVersion::V4_4,
        "bulkWrite" => version >= ServerVersion::V8_0,
        name => WITHIN.contains(&name) || ends_transaction(name),
    };
    let advice = match name {
        "count" => {
            " Please see http://dochub.mongodb.org/core/transaction-count for a recommended \
                    alternative."
        }
        _ => "",
    };
    match is_allowed {
        true => Ok(()),
        false => Err(not_supported(format!(
            "Cannot run '{name}' in a multi-document transaction.{advice}"
        ))),
    }
}

fn check_read_concern(concern: &Document, starts: bool) -> Result<(), CommandError> {
    let level = concern.get_str("level").unwrap_or("local");
    if concern.contains_key("atClusterTime") && level != "snapshot" {
        return Err(wrong("atClusterTime field can be set only if level is equal to snapshot"));
    }
    if !starts {
        let reason = "Only the first command in a transaction may specify a readConcern";
        return Err(wrong(reason));
    }
    match LEVELS.contains(&level) {
        true => Ok(()),
        false => {
            let reason = "The readConcern level must be either 'local' (default), 'majority' or \
                          'snapshot' in order to run in a transaction";
            Err(wrong(reason))
        }
    }
}

/// Checks what a command of a transaction wants; one that wants something else ends it.
///
/// # Errors
///
/// Fails as servers do.
pub(super) fn check_wishes(name: &str, body: &Document) -> Result<(), CommandError> {
    let flag = |name| super::arguments::flag(body, name);
    match name {
        "killCursors" if body.contains_key("startTransaction") => {
            let reason = "Cannot run killCursors as the first operation in a multi-document \
                          transaction.";
            Err(not_supported(reason))
        }
        "find" if flag("tailable") => {
            Err(wrong("It is illegal to open a tailable cursor in a transaction"))
        }
        "aggregate" if flag("explain") => {
            let reason = "Operation not permitted in transaction :: caused by :: Explain for the \
                          aggregate command cannot run within a multi-document transaction";
            Err(not_supported(reason))
        }
        "aggregate" => {
            let stages = body.get_array("pipeline").into_iter().flatten();
            let mut names = stages.filter_map(|it| it.as_document()?.keys().next());
            match names.find(|it| NO_STAGES.contains(&it.as_str())) {
                Some(name) => Err(not_supported(format!("{name} cannot be used in a transaction"))),
                None => Ok(()),
            }
        }
        name if is_write(name) => {
            let collection = body.get_str(name).unwrap_or_default();
            match collection.starts_with("system.") {
                true => {
                    let reason = format!(
                        "Cannot write to system collection {collection} within a transaction."
                    );
                    Err(CommandError::numbered(50791, reason))
                }
                false => Ok(()),
            }
        }
        _ => Ok(()),
    }
}
