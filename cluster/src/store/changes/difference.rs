//! The difference between two documents, as servers log an update by a pipeline since 5.0: fields
//! that were removed, set and added, and differences within fields.

use bson::{Bson, Document, doc};
use sdam_core::bson;

use super::description::{Description, Path, below};

/// The bytes that an entry of the log has besides the difference itself.
const OVERHEAD: usize = 15;

/// Describes how a document became another one; none if it takes fewer bytes to say all of it.
pub(super) fn between(before: &Document, after: &Document) -> Option<Description> {
    let mut description = Description::default();
    let difference = of_documents(before, after, &mut description, &Path::new())?;
    (length(&difference) + OVERHEAD < length(after)).then_some(description)
}

fn length(document: &Document) -> usize {
    document.to_vec().map_or(0, |it| it.len())
}

/// Returns the difference as it is logged, and describes it; none if it is longer than what came of
/// it, or if fields have changed their places.
fn of_documents(
    before: &Document,
    after: &Document,
    description: &mut Description,
    path: &Path,
) -> Option<Document> {
    let (mut removed, mut set, mut added, mut inner) = (doc! {}, doc! {}, doc! {}, doc! {});
    let mut kept = before.keys().filter(|it| after.contains_key(it)).peekable();
    for name in before.keys().filter(|name| !after.contains_key(name)) {
        removed.insert(name, false);
        description.removed(&below(path, name.as_str()));
    }
    for (name, value) in after {
        let Some(old) = before.get(name) else {
            if kept.peek().is_some() {
                return None;
            }
            added.insert(name, value.clone());
            description.updated(&below(path, name.as_str()), value.clone());
            continue;
        };
        if kept.next() != Some(name) {
            return None;
        }
        if old == value {
            continue;
        }
        let mut deeper = Description::default();
        match within(old, value, &mut deeper, &below(path, name.as_str())) {
            Some(difference) => {
                inner.insert(format!("s{name}"), difference);
                description.extend(deeper);
            }
            None => {
                set.insert(name, value.clone());
                description.updated(&below(path, name.as_str()), value.clone());
            }
        }
    }
    let mut difference = doc! {};
    for (key, part) in [("d", removed), ("u", set), ("i", added)] {
        if !part.is_empty() {
            difference.insert(key, part);
        }
    }
    difference.extend(inner);
    (length(&difference) <= length(after)).then_some(difference)
}

/// Returns the difference within a field, if both values are documents or both arrays.
fn within(
    before: &Bson,
    after: &Bson,
    description: &mut Description,
    path: &Path,
) -> Option<Document> {
    match (before, after) {
        (Bson::Document(before), Bson::Document(after)) => {
            of_documents(before, after, description, path)
        }
        (Bson::Array(before), Bson::Array(after)) => of_arrays(before, after, description, path),
        _ => None,
    }
}

fn of_arrays(
    before: &[Bson],
    after: &[Bson],
    description: &mut Description,
    path: &Path,
) -> Option<Document> {
    let mut difference = doc! { "a": true };
    if after.len() < before.len() {
        let size = i32::try_from(after.len()).unwrap_or(i32::MAX);
        difference.insert("l", size);
        description.truncated(path, size);
    }
    for (index, value) in after.iter().enumerate() {
        let old = before.get(index);
        if old == Some(value) {
            continue;
        }
        let name = below(path, i32::try_from(index).unwrap_or(i32::MAX));
        let mut deeper = Description::default();
        match old.and_then(|old| within(old, value, &mut deeper, &name)) {
            Some(inner) => {
                difference.insert(format!("s{index}"), inner);
                description.extend(deeper);
            }
            None => {
                difference.insert(format!("u{index}"), value.clone());
                description.updated(&name, value.clone());
            }
        }
    }
    let whole = doc! { "": after };
    // The array is counted without the document around it.
    (length(&difference) + 7 <= length(&whole)).then_some(difference)
}

#[cfg(test)]
mod tests {
    use sdam_core::bson::{Document, doc};

    use super::between;

    fn described(before: &Document, after: &Document) -> Option<Document> {
        between(before, after).map(|it| it.document(true, false))
    }

    /// As 6.0.27 says it.
    #[test]
    fn differences_are_said_field_by_field_unless_that_is_longer() {
        let before = doc! { "_id": 1, "z": 1, "arr": [9], "n": { "1": 2 } };
        let q = doc! { "w": 1, "e": 2 };
        let after = doc! { "_id": 1, "z": 1, "arr": [9, 8], "n": { "1": 2 }, "q": q.clone() };
        let expected = doc! {
            "updatedFields": { "arr.1": 8, "q": q },
            "removedFields": [],
            "truncatedArrays": [],
        };
        assert_eq!(described(&before, &after), Some(expected));
        assert_eq!(described(&before, &doc! { "_id": 1, "new": 1 }), None);
        let before = doc! { "_id": 1, "a": [1, 2, 3, 4, 5, 6], "more": "a text of some length" };
        let after = doc! { "_id": 1, "a": [1, 2, 9], "more": "a text of some length" };
        let expected = doc! {
            "updatedFields": { "a.2": 9 },
            "removedFields": [],
            "truncatedArrays": [{ "field": "a", "newSize": 3 }],
        };
        assert_eq!(described(&before, &after), Some(expected));
    }
}
