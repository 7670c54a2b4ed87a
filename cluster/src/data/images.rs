//! The options of a collection that has images of documents kept for change streams (Change
//! Streams, `changeStreamPreAndPostImages`).

use bson::{Bson, Document};
use sdam_core::bson;

use super::fields::{missing, unknown};
use crate::options::ServerVersion;
use crate::store::{PRE_AND_POST_IMAGES, PRE_IMAGES, StoreError, is_true, type_name};
use crate::wire::CommandError;

/// Checks these options of a `create` or a `collMod`.
///
/// # Errors
///
/// Fails as servers of that version do if one is not known to them, is of another type, or is not
/// for the database or the view, and if both are to be on.
pub(super) fn check(
    command: &str,
    database: &str,
    options: &Document,
    version: ServerVersion,
) -> Result<(), CommandError> {
    let options_since =
        [(PRE_AND_POST_IMAGES, ServerVersion::V6_0), (PRE_IMAGES, ServerVersion::V4_4)];
    for (name, since) in options_since {
        if options.contains_key(name) && version < since {
            return Err(not_known(command, name, version));
        }
    }
    let takes_all = command == "collMod" && version < ServerVersion::V5_0;
    let before = options.get(PRE_IMAGES).filter(|_| !takes_all);
    let before = before.map(|it| before_changes(command, it)).transpose()?;
    let both = options.get(PRE_AND_POST_IMAGES).map(|it| both(command, it)).transpose()?;
    let reason = match (before, both) {
        (Some(true), Some(true)) => format!(
            "'{PRE_IMAGES}' and '{PRE_AND_POST_IMAGES}.enabled' can not be set to true \
             simultaneously"
        ),
        (Some(true), _) | (_, Some(true)) if matches!(database, "admin" | "config" | "local") => {
            format!("Images are not supported on the {database} database")
        }
        (_, Some(true)) if options.contains_key("viewOn") => {
            format!("option not supported on a view: {PRE_AND_POST_IMAGES}")
        }
        _ => return Ok(()),
    };
    Err(CommandError::coded(72, reason))
}

fn not_known(command: &str, name: &str, version: ServerVersion) -> CommandError {
    match command == "collMod" && version < ServerVersion::V5_0 {
        true => CommandError::coded(72, format!("unknown option to collMod: {name}")),
        false => unknown(command, name),
    }
}

fn before_changes(command: &str, value: &Bson) -> Result<bool, CommandError> {
    match value {
        Bson::Boolean(_)
        | Bson::Int32(_)
        | Bson::Int64(_)
        | Bson::Double(_)
        | Bson::Decimal128(_) => Ok(is_true(Some(value))),
        _ => {
            let expected = "types '[bool, long, int, decimal, double']";
            Err(wrong_type(&format!("{command}.{PRE_IMAGES}"), value, expected))
        }
    }
}

fn both(command: &str, value: &Bson) -> Result<bool, CommandError> {
    let of = format!("{command}.{PRE_AND_POST_IMAGES}");
    let Bson::Document(fields) = value else {
        return Err(wrong_type(&of, value, "type 'object'"));
    };
    if let Some(name) = fields.keys().find(|it| *it != "enabled") {
        return Err(unknown(&of, name));
    }
    match fields.get("enabled") {
        Some(Bson::Boolean(enabled)) => Ok(*enabled),
        Some(value) => Err(wrong_type(&format!("{of}.enabled"), value, "type 'bool'")),
        None => Err(missing(&of, "enabled")),
    }
}

fn wrong_type(field: &str, value: &Bson, expected: &str) -> CommandError {
    let reason = format!(
        "BSON field '{field}' is the wrong type '{}', expected {expected}",
        type_name(value)
    );
    StoreError::new(14, reason).into()
}
