//! The reason why a store refuses something, as servers number and word it.

use bson::{Bson, Document, doc};
use sdam_core::bson;

/// The reason why a store refuses something.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct StoreError {
    /// The number of the error, as servers have it.
    pub(crate) code: i32,
    /// The message, as servers word it where tests look at it.
    pub(crate) message: String,
    /// The fields that stand beside code and message.
    pub(crate) details: Box<Document>,
}

impl StoreError {
    pub(crate) fn new(code: i32, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), details: Box::default() }
    }

    /// A value of the wrong kind.
    pub(crate) fn bad_value(message: impl Into<String>) -> Self {
        Self::new(2, message)
    }

    /// An operator, a stage or an option that is not known here, though servers may know it.
    pub(crate) fn not_implemented(what: &str) -> Self {
        Self::new(238, format!("{what} is not known here"))
    }

    /// Somebody else has changed the same, or is about to.
    pub(crate) fn write_conflict() -> Self {
        let reason = "WriteConflict error: this operation conflicted with another operation. \
                      Please retry your operation or multi-document transaction.";
        Self::new(112, reason)
    }

    /// A transaction may not do this.
    pub(crate) fn not_in_transaction(reason: impl Into<String>) -> Self {
        Self::new(263, reason)
    }

    /// A document has more levels than servers allow.
    pub(crate) fn too_deep(levels: usize) -> Self {
        Self::new(15, format!("the document exceeds {levels} levels of nesting"))
    }

    /// Two documents have the same key in a unique index.
    pub(crate) fn duplicate(
        namespace: &str,
        index: &str,
        keys: &Document,
        values: &Document,
    ) -> Self {
        let shown: Vec<String> =
            values.iter().map(|(name, value)| format!("{name}: {}", shown(value))).collect();
        let message = format!(
            "E11000 duplicate key error collection: {namespace} index: {index} dup key: {{ {} }}",
            shown.join(", ")
        );
        let details = Box::new(doc! { "keyPattern": keys.clone(), "keyValue": values.clone() });
        Self { code: 11000, message, details }
    }
}

/// Writes a value as servers do in messages.
fn shown(value: &Bson) -> String {
    let joined = |parts: Vec<String>| parts.join(", ");
    match value {
        Bson::Double(number) if number.fract() == 0.0 => format!("{number:.1}"),
        Bson::Document(inner) if inner.is_empty() => "{}".to_owned(),
        Bson::Document(inner) => {
            let fields = inner.iter().map(|(name, value)| format!("{name}: {}", shown(value)));
            format!("{{ {} }}", joined(fields.collect()))
        }
        Bson::Array(list) => format!("[ {} ]", joined(list.iter().map(shown).collect())),
        Bson::ObjectId(id) => format!("ObjectId('{id}')"),
        other => other.to_string(),
    }
}
