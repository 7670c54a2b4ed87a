//! Types of values by the names that `$type` has for them.

use bson::Bson;

/// The names that `$$type` knows.
const NAMES: &[&str] = &[
    "array",
    "binData",
    "bool",
    "date",
    "dbPointer",
    "decimal",
    "double",
    "int",
    "javascript",
    "javascriptWithScope",
    "long",
    "maxKey",
    "minKey",
    "null",
    "number",
    "object",
    "objectId",
    "regex",
    "string",
    "symbol",
    "timestamp",
    "undefined",
];

/// Returns whether a name is that of a type.
pub(super) fn is_known(name: &str) -> bool {
    NAMES.contains(&name)
}

/// Returns whether a value has the type of this name.
pub(super) fn has(value: &Bson, name: &str) -> bool {
    match name {
        "number" => ["int", "long", "double", "decimal"].contains(&name_of(value)),
        _ => name_of(value) == name,
    }
}

const fn name_of(value: &Bson) -> &'static str {
    match value {
        Bson::Double(_) => "double",
        Bson::String(_) => "string",
        Bson::Array(_) => "array",
        Bson::Document(_) => "object",
        Bson::Boolean(_) => "bool",
        Bson::Null => "null",
        Bson::RegularExpression(_) => "regex",
        Bson::JavaScriptCode(_) => "javascript",
        Bson::JavaScriptCodeWithScope(_) => "javascriptWithScope",
        Bson::Int32(_) => "int",
        Bson::Int64(_) => "long",
        Bson::Timestamp(_) => "timestamp",
        Bson::Binary(_) => "binData",
        Bson::ObjectId(_) => "objectId",
        Bson::DateTime(_) => "date",
        Bson::Symbol(_) => "symbol",
        Bson::Decimal128(_) => "decimal",
        Bson::Undefined => "undefined",
        Bson::MaxKey => "maxKey",
        Bson::MinKey => "minKey",
        Bson::DbPointer(_) => "dbPointer",
    }
}
