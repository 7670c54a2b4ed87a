//! The reason why a document is not of the type which the application reads.

use bson::{RawBson, RawDocument, rawdoc};
use sdam_core::logging::extended_json;

/// A document of the server that is not of the type which the application reads.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{}", self.sentence())]
#[non_exhaustive]
pub struct DeserializeError {
    /// The reason.
    pub reason: bson::error::Error,
    /// The place, as `tags.1.name`: the names of fields and the indexes of elements from the
    /// outermost on, with dots between them; of a field that is missing, the document that lacks
    /// it. Empty if that is the whole document, or not known.
    pub path: String,
    /// The `_id` of the document, if it has one of at most 1,024 bytes; of an event of a change
    /// stream, that of the document which it is about, if it has the `documentKey`.
    pub id: Option<RawBson>,
}

impl DeserializeError {
    /// The maximum length of an `_id` that is kept, in bytes, and of a path.
    const MAX_KEPT_LEN: usize = 1024;

    /// The maximum length of an `_id` in a text, in characters.
    const MAX_SHOWN_LEN: usize = 100;

    /// Takes what is kept of the document; and of the path, its first 1,024 bytes.
    pub fn new(reason: bson::error::Error, document: &RawDocument, mut path: String) -> Self {
        let end =
            (0..=Self::MAX_KEPT_LEN.min(path.len())).rev().find(|at| path.is_char_boundary(*at));
        path.truncate(end.unwrap_or_default());
        let id = document.get("_id").ok().flatten().map(|id| rawdoc! { "_id": id });
        let id = id.filter(|id| id.as_bytes().len() <= Self::MAX_KEPT_LEN);
        let id = id.and_then(|id| Some(id.get("_id").ok()??.into()));
        Self { reason, path, id }
    }

    fn sentence(&self) -> String {
        let id = self.id.as_ref().map_or_else(String::new, |id| {
            let id = rawdoc! { "_id": id.as_raw_bson_ref() };
            format!(" {}", extended_json(&id, Self::MAX_SHOWN_LEN))
        });
        let reason = match (&self.reason.kind, &self.reason.message) {
            (bson::error::ErrorKind::Deserialization { .. }, Some(message)) => message.clone(),
            _ => self.reason.to_string(),
        };
        let place = match self.path.as_str() {
            "" => String::new(),
            path => format!("at {path}, "),
        };
        format!(
            "the server's document{id} cannot be read as the application's type: {place}{reason}"
        )
    }
}
