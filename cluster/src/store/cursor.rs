//! Cursors over a store: what a client has still to ask for.

use std::collections::VecDeque;
use std::sync::Arc;

use bson::Document;
use sdam_core::bson;
use sdam_core::time::Instant;

use super::{Context, Documents, Filter, Projection, Store, StoreError};

/// The session that a cursor belongs to, and the number of the transaction that it was opened in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) session: Option<Vec<u8>>,
    pub(crate) transaction: Option<i64>,
}

/// Documents that a client has still to ask for.
#[derive(Clone, Debug)]
pub(crate) struct Cursor {
    pub(crate) namespace: String,
    pub(crate) rest: VecDeque<Arc<Document>>,
    /// The documents that it goes on with when there are no more.
    pub(crate) tail: Option<Tail>,
    pub(crate) owner: Owner,
    /// The time that it reads at, if its replies say so.
    pub(crate) at_cluster_time: Option<bson::Timestamp>,
}

/// The end of a capped collection, to which documents are added.
#[derive(Clone, Debug)]
pub(crate) struct Tail {
    /// The number of the next document.
    pub(crate) next: u64,
    pub(crate) filter: Filter,
    pub(crate) projection: Option<Projection>,
    pub(crate) context: Context,
    /// It waits for a document before it answers that there is none.
    pub(crate) awaits: bool,
    /// The end of the wait of the present `getMore`.
    pub(crate) until: Option<Instant>,
}

impl Tail {
    /// Returns the documents that have been added.
    pub(crate) fn advance(
        &mut self,
        namespace: &str,
        store: &Store,
    ) -> Result<Documents, StoreError> {
        let Some(collection) = store.collection(namespace) else { return Ok(Vec::new()) };
        let mut found = Vec::new();
        for (record, document) in collection.since(self.next) {
            if self.filter.matches(document, &self.context)? {
                found.push(match &self.projection {
                    Some(it) => Arc::new(it.apply(document, &self.context)?),
                    None => Arc::clone(document),
                });
            }
            self.next = record + 1;
        }
        Ok(found)
    }
}
