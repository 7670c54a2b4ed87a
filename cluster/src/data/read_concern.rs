//! The read concern of a command: the levels that it takes (Read and Write Concern, "Read
//! Concern"; Snapshot Reads, "Sessions spec").

use bson::{RawBsonRef, RawDocument};
use sdam_core::bson;

use crate::options::ServerVersion;
use crate::wire::CommandError;

/// The fields of a read concern.
const FIELDS: [&str; 5] =
    ["level", "afterClusterTime", "atClusterTime", "afterOpTime", "provenance"];

/// The levels that there are.
const LEVELS: [&str; 5] = ["local", "majority", "linearizable", "available", "snapshot"];

/// The commands that take other levels than "local".
const READS: [&str; 4] = ["find", "aggregate", "count", "distinct"];

/// Checks that a command takes the read concern that it has.
///
/// # Errors
///
/// Fails as servers do if the read concern is none, or if the command does not take its level.
pub(crate) fn check(
    command: &str,
    body: &RawDocument,
    version: ServerVersion,
) -> Result<(), CommandError> {
    let concern = match body.get("readConcern").ok().flatten() {
        None => return Ok(()),
        Some(RawBsonRef::Document(concern)) => concern,
        Some(_) => return Err(CommandError::coded(9, "readConcern field should be an object")),
    };
    for (name, _) in concern.iter().flatten() {
        if !FIELDS.contains(&name.as_str()) {
            let reason = format!("Unrecognized option in readConcern: {name}");
            return Err(CommandError::coded(72, reason));
        }
    }
    let level = match concern.get("level").ok().flatten() {
        None => return Ok(()),
        Some(RawBsonRef::String(level)) => level,
        Some(_) => {
            return Err(CommandError::coded(14, "\"level\" had the wrong type. Expected string"));
        }
    };
    if !LEVELS.contains(&level) {
        let reason = "readConcern.level must be either 'local', 'majority', 'linearizable', \
                      'available', or 'snapshot'";
        return Err(CommandError::coded(9, reason));
    }
    let is_taken = match level {
        "local" => true,
        // A transaction has levels of its own.
        _ if body.get("autocommit").is_ok_and(|it| it.is_some()) => true,
        "snapshot" => {
            READS.contains(&command) && command != "count" && version >= ServerVersion::V5_0
        }
        _ => READS.contains(&command),
    };
    match is_taken {
        true => Ok(()),
        false => {
            let reason = format!(
                "Command {command} does not support {{ readConcern: {{ level: \"{level}\" }} }} :: \
                 caused by :: read concern not supported"
            );
            Err(CommandError::coded(72, reason))
        }
    }
}
