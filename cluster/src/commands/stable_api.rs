//! The version of the API that a command declares: whether its server has that, and whether the
//! command is part of it (Stable API; as 5.0.4 and 6.0.5 judge).
//!
//! Servers know commands that are in version 2 alone, for tests; here a command that is not in
//! version 1 is refused as such, whether there is one or not.

use bson::{RawBsonRef, RawDocument};
use sdam_core::bson;

use crate::options::ServerVersion;
use crate::wire::{CommandError, Request};

use ServerVersion::{V5_0, V6_0, V8_0};

/// The commands of version 1, and the first server that has them in it.
const COMMANDS: [(&str, ServerVersion); 29] = [
    ("abortTransaction", V5_0),
    ("aggregate", V5_0),
    ("authenticate", V5_0),
    ("bulkWrite", V8_0),
    ("collMod", V5_0),
    ("commitTransaction", V5_0),
    ("count", V6_0),
    ("create", V5_0),
    ("createIndexes", V5_0),
    ("delete", V5_0),
    ("drop", V5_0),
    ("dropDatabase", V5_0),
    ("dropIndexes", V5_0),
    ("endSessions", V5_0),
    ("explain", V5_0),
    ("find", V5_0),
    ("findAndModify", V5_0),
    ("getMore", V5_0),
    ("hello", V5_0),
    ("insert", V5_0),
    ("killCursors", V5_0),
    ("listCollections", V5_0),
    ("listDatabases", V5_0),
    ("listIndexes", V5_0),
    ("ping", V5_0),
    ("refreshSessions", V5_0),
    ("saslContinue", V5_0),
    ("saslStart", V5_0),
    ("update", V5_0),
];

/// The fields of these commands that are not in version 1.
const FIELDS: [(&str, &[&str]); 3] = [
    ("aggregate", &["explain"]),
    ("create", &["autoIndexId", "capped", "max", "size", "storageEngine"]),
    (
        "find",
        &["awaitData", "max", "min", "noCursorTimeout", "returnKey", "showRecordId", "tailable"],
    ),
];

/// The stages that are not in version 1.
const STAGES: [&str; 5] =
    ["$currentOp", "$indexStats", "$listLocalSessions", "$listSessions", "$planCacheStats"];

/// Checks what a command declares of the API.
///
/// # Errors
///
/// Fails if the server does not have the version, and if the command is not in it although nothing
/// else may be.
pub(super) fn check(request: &Request<'_>, version: ServerVersion) -> Result<(), CommandError> {
    if version < V5_0 {
        return Ok(());
    }
    let body = request.body;
    let declared = match field(body, "apiVersion") {
        None => None,
        Some(RawBsonRef::String(declared)) => Some(declared),
        Some(_) => return Err(wrong_type("apiVersion", "string")),
    };
    let strict = flag(body, "apiStrict")?;
    let deprecation_errors = flag(body, "apiDeprecationErrors")?;
    match declared {
        None if strict.is_some() || deprecation_errors.is_some() => {
            let reason =
                "Provided apiStrict and/or apiDeprecationErrors without passing apiVersion";
            Err(CommandError::numbered(4_886_600, reason))
        }
        Some("1") if strict == Some(true) => check_strictly(request, version),
        None | Some("1") => Ok(()),
        Some(other) => {
            let shown: String = other.chars().take(64).collect();
            Err(CommandError::coded(322, format!("Cannot accept API version {shown}")))
        }
    }
}

fn field<'a>(body: &'a RawDocument, name: &str) -> Option<RawBsonRef<'a>> {
    body.get(name).ok().flatten()
}

fn flag(body: &RawDocument, name: &str) -> Result<Option<bool>, CommandError> {
    match field(body, name) {
        None => Ok(None),
        Some(RawBsonRef::Boolean(flag)) => Ok(Some(flag)),
        Some(_) => Err(wrong_type(name, "bool")),
    }
}

fn wrong_type(name: &str, expected: &str) -> CommandError {
    let reason = format!(
        "BSON field 'APIParametersFromClient.{name}' is the wrong type, expected type '{expected}'"
    );
    CommandError::coded(14, reason)
}

/// Checks that all of a command is in version 1.
fn check_strictly(request: &Request<'_>, version: ServerVersion) -> Result<(), CommandError> {
    let name = request.command_name();
    let refused = |reason: String| Err(CommandError::coded(323, reason));
    if !COMMANDS.iter().any(|(known, since)| *known == name && version >= *since) {
        return refused(format!(
            "Provided apiStrict:true, but the command {name} is not in API Version 1. Information \
             on supported commands and migrations in API Version 1 can be found at \
             https://dochub.mongodb.org/core/manual-versioned-api"
        ));
    }
    let fields = FIELDS.iter().find(|(of, _)| *of == name).map_or(&[][..], |(_, fields)| *fields);
    if let Some(unstable) = fields.iter().find(|it| field(request.body, it).is_some()) {
        return refused(format!(
            "BSON field '{name}.{unstable}' is not allowed with apiStrict:true."
        ));
    }
    let stages = request.body.get_array("pipeline").ok().filter(|_| name == "aggregate");
    for stage in stages.into_iter().flatten().flatten() {
        let Some((stage, value)) = stage.as_document().and_then(|it| it.iter().next()?.ok()) else {
            continue;
        };
        if STAGES.contains(&stage.as_str()) {
            return refused(format!(
                "{stage} is not allowed with 'apiStrict: true' in API Version 1"
            ));
        }
        let options = value.as_document().filter(|_| stage.as_str() == "$collStats");
        let mut options = options.into_iter().flatten().flatten();
        if options.any(|(option, _)| option.as_str() != "count") {
            let reason = "only the 'count' option to $collStats is supported in API Version 1";
            return refused(reason.to_owned());
        }
    }
    Ok(())
}
