//! Values at dotted paths, through documents and arrays.

use bson::{Bson, Document};
use sdam_core::bson;

/// The number of levels of documents and arrays that a document of a message may have, and one
/// between the stages of a pipeline.
pub(crate) const MAX_LEVELS: usize = 201;

/// The number of parts that a path may have: each may become a level.
pub(crate) const MAX_PARTS: usize = 200;

/// Returns whether a path has more parts than [`MAX_PARTS`].
pub(crate) fn is_too_long(path: &str) -> bool {
    path.split('.').nth(MAX_PARTS).is_some()
}

/// Returns the values that a query means by a path: of arrays of documents, those of each; `None`
/// stands for a value that is missing.
pub(crate) fn values<'a>(document: &'a Document, path: &str) -> Vec<Option<&'a Bson>> {
    let mut found = Vec::new();
    walk(document, path, &mut found);
    found
}

fn walk<'a>(document: &'a Document, path: &str, found: &mut Vec<Option<&'a Bson>>) {
    let (first, rest) = match path.split_once('.') {
        Some((first, rest)) => (first, Some(rest)),
        None => (path, None),
    };
    let value = document.get(first);
    let (Some(rest), Some(value)) = (rest, value) else {
        return found.push(if rest.is_none() { value } else { None });
    };
    walk_into(value, rest, found);
}

fn walk_into<'a>(value: &'a Bson, path: &str, found: &mut Vec<Option<&'a Bson>>) {
    match value {
        Bson::Document(document) => walk(document, path, found),
        Bson::Array(array) => {
            let documents = array.iter().filter_map(Bson::as_document);
            documents.for_each(|document| walk(document, path, found));
            let (first, rest) = path.split_once('.').map_or((path, None), |(a, b)| (a, Some(b)));
            let indexed = first.parse().ok().and_then(|index: usize| array.get(index));
            match (indexed, rest) {
                (Some(value), Some(rest)) => walk_into(value, rest, found),
                (Some(value), None) => found.push(Some(value)),
                (None, _) => {}
            }
        }
        _ => found.push(None),
    }
}

/// Returns the value that an expression means by a path: of an array, the array of those of its
/// documents.
pub(crate) fn value(document: &Document, path: &str) -> Option<Bson> {
    match path.split_once('.') {
        None => document.get(path).cloned(),
        Some((first, rest)) => value_within(document.get(first)?, rest),
    }
}

/// Returns the value at a path within another value.
pub(crate) fn value_within(within: &Bson, path: &str) -> Option<Bson> {
    match within {
        Bson::Document(document) => value(document, path),
        Bson::Array(array) => {
            let of_each = array.iter().filter_map(|it| value_within(it, path));
            Some(Bson::Array(of_each.collect()))
        }
        _ => None,
    }
}

/// Sets the value at a path, through documents only; what is in the way is replaced.
pub(crate) fn set(document: &mut Document, path: &str, value: Bson) {
    match path.split_once('.') {
        None => drop(document.insert(path, value)),
        Some((first, rest)) => {
            if !matches!(document.get(first), Some(Bson::Document(_))) {
                document.insert(first, Document::new());
            }
            if let Ok(inner) = document.get_document_mut(first) {
                set(inner, rest, value);
            }
        }
    }
}

/// Removes the values at a path, of arrays those of each document.
pub(crate) fn remove(document: &mut Document, path: &str) {
    match path.split_once('.') {
        None => drop(document.remove(path)),
        Some((first, rest)) => match document.get_mut(first) {
            Some(Bson::Document(inner)) => remove(inner, rest),
            Some(Bson::Array(array)) => {
                for element in array {
                    if let Bson::Document(inner) = element {
                        remove(inner, rest);
                    }
                }
            }
            _ => {}
        },
    }
}

/// Returns whether a document has more than so many levels of documents and arrays.
pub(crate) fn is_too_deep(document: &Document, levels: usize) -> bool {
    document.values().any(|value| exceeds(value, levels - 1))
}

/// Returns whether a value has more than so many levels; it recurses no deeper than that.
pub(crate) fn exceeds(value: &Bson, levels: usize) -> bool {
    match value {
        Bson::Document(document) => levels == 0 || is_too_deep(document, levels),
        Bson::JavaScriptCodeWithScope(code) => levels == 0 || is_too_deep(&code.scope, levels),
        Bson::Array(array) => levels == 0 || array.iter().any(|it| exceeds(it, levels - 1)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use bson::{Bson, doc};
    use sdam_core::bson;

    use super::{exceeds, is_too_deep, is_too_long};

    #[test]
    fn levels_and_parts_have_limits() {
        let document = doc! { "a": [{ "b": [] }], "c": 1 };
        assert!(is_too_deep(&document, 3) && !is_too_deep(&document, 4));
        assert!(exceeds(&document.clone().into(), 3) && !exceeds(&document.into(), 4));
        assert!(!exceeds(&Bson::Null, 0) && exceeds(&doc! {}.into(), 0));
        assert!(!is_too_long(&["a"; 200].join(".")) && is_too_long(&["a"; 201].join(".")));
    }
}
