//! The reason why a file is refused.

use bson::error::Error;

use crate::mongod::Version;

/// The reason why a file is refused.
#[derive(Debug, thiserror::Error)]
pub enum FormatError {
    /// The text is no JSON.
    #[error("the file is not JSON: {0}")]
    Json(serde_json::Error),
    /// The JSON is no Extended JSON.
    #[error("the file is not Extended JSON: {0}")]
    ExtendedJson(Error),
    /// The file has a schema version that is not read.
    #[error(
        "the file has schema version {0}; read are those from 1.0.0 to {newest}",
        newest = super::NEWEST
    )]
    Unsupported(Version),
    /// The file breaks a rule of the format.
    #[error("{place} {rule}")]
    Broken {
        /// The place in the file, as in `tests[0].operations[2].name`.
        place: String,
        /// The rule that it breaks, as in `is 0, and must be a string`.
        rule: String,
    },
}
