//! Sorts: the order in which documents are given.

use std::cmp::Ordering;
use std::sync::Arc;

use bson::{Bson, Document};
use sdam_core::bson;

use super::{
    compare::{Collation, whole},
    error::StoreError,
    path,
};

/// An order of documents.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sort {
    /// Paths, and whether the greatest value comes first.
    keys: Vec<(String, bool)>,
    /// The last document comes first.
    reverses: bool,
}

impl Sort {
    /// Reads an order.
    ///
    /// # Errors
    ///
    /// Fails if a direction is neither 1 nor -1, or if `$natural` has other keys beside it.
    pub(crate) fn parse(sort: &Document) -> Result<Self, StoreError> {
        let mut read = Self::default();
        for (path, direction) in sort {
            let descending = match whole(direction) {
                Some(1) => false,
                Some(-1) => true,
                _ => {
                    let reason =
                        "$sort key ordering must be 1 (for ascending) or -1 (for descending)";
                    return Err(StoreError::new(15975, reason));
                }
            };
            match path.as_str() {
                "$natural" if sort.len() > 1 => {
                    let reason = "$natural sort cannot be set to a value other than -1 or 1";
                    return Err(StoreError::bad_value(reason));
                }
                "$natural" => read.reverses = descending,
                _ => read.keys.push((path.clone(), descending)),
            }
        }
        Ok(read)
    }

    /// Sorts documents; those that compare equal stay as they are.
    pub(crate) fn apply(&self, documents: &mut [Arc<Document>], collation: Collation) {
        self.apply_to(documents, |it| it, collation);
    }

    /// Sorts what has a document.
    pub(crate) fn apply_to<T>(
        &self,
        items: &mut [T],
        document: impl Fn(&T) -> &Document,
        collation: Collation,
    ) {
        if self.reverses {
            items.reverse();
        } else if !self.keys.is_empty() {
            items.sort_by(|a, b| self.compare(document(a), document(b), collation));
        }
    }

    fn compare(&self, a: &Document, b: &Document, collation: Collation) -> Ordering {
        let by_key = self.keys.iter().map(|(path, descending)| {
            let (a, b) =
                (key(a, path, *descending, collation), key(b, path, *descending, collation));
            let order = collation.compare(a, b);
            if *descending { order.reverse() } else { order }
        });
        by_key.fold(Ordering::Equal, Ordering::then)
    }
}

/// Returns the value that a document is sorted by: of an array its least element, or the greatest.
fn key<'a>(document: &'a Document, path: &str, greatest: bool, collation: Collation) -> &'a Bson {
    const NULL: &Bson = &Bson::Null;
    const EMPTY: &Bson = &Bson::Undefined;
    let values = path::values(document, path).into_iter();
    let all = values.flat_map(|value| match value {
        Some(Bson::Array(list)) if list.is_empty() => vec![EMPTY],
        Some(Bson::Array(list)) => list.iter().collect(),
        value => vec![value.unwrap_or(NULL)],
    });
    let chosen = match greatest {
        true => all.max_by(|a, b| collation.compare(a, b)),
        false => all.min_by(|a, b| collation.compare(a, b)),
    };
    chosen.unwrap_or(NULL)
}
