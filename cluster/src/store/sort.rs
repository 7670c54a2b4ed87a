//! Sorts: the order in which documents are given.

use std::cmp::Ordering;
use std::sync::Arc;

use bson::{Bson, Document};
use sdam_core::bson;

use super::compare::{Collation, whole};
use super::error::StoreError;
use super::path;

/// An order of documents: paths, and whether the greatest comes first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sort(Vec<(String, bool)>);

impl Sort {
    /// Reads an order.
    ///
    /// # Errors
    ///
    /// Fails if a direction is neither 1 nor -1.
    pub(crate) fn parse(sort: &Document) -> Result<Self, StoreError> {
        let keys = sort.iter().map(|(path, direction)| match whole(direction) {
            Some(1) => Ok((path.clone(), false)),
            Some(-1) => Ok((path.clone(), true)),
            _ => {
                let reason = "$sort key ordering must be 1 (for ascending) or -1 (for descending)";
                Err(StoreError::new(15975, reason))
            }
        });
        Ok(Self(keys.collect::<Result<_, _>>()?))
    }

    /// Sorts documents; those that compare equal stay as they are.
    pub(crate) fn apply(&self, documents: &mut [Arc<Document>], collation: Collation) {
        if !self.0.is_empty() {
            documents.sort_by(|a, b| self.compare(a, b, collation));
        }
    }

    fn compare(&self, a: &Document, b: &Document, collation: Collation) -> Ordering {
        let by_key = self.0.iter().map(|(path, descending)| {
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
