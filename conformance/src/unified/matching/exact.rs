//! Equality that permits keys in another order, and nothing else.

use bson::{Bson, Document};

/// Returns whether two values are the same, whatever the order of keys in their documents.
pub fn same(one: &Bson, other: &Bson) -> bool {
    match (one, other) {
        (Bson::Document(one), Bson::Document(other)) => same_documents(one, other),
        (Bson::Array(one), Bson::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same(one, other))
        }
        (Bson::JavaScriptCodeWithScope(one), Bson::JavaScriptCodeWithScope(other)) => {
            one.code == other.code && same_documents(&one.scope, &other.scope)
        }
        _ => one == other,
    }
}

fn same_documents(one: &Document, other: &Document) -> bool {
    let has =
        |(key, value): (&String, &Bson)| other.get(key).is_some_and(|found| same(value, found));
    one.len() == other.len() && one.iter().all(has)
}
