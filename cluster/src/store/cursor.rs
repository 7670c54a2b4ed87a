//! Cursors over a store: what a client has still to ask for.

use std::collections::VecDeque;
use std::sync::Arc;

use bson::Document;
use sdam_core::bson;

use super::{ChangeStream, Context, Documents, Filter, Projection, Store, StoreError};

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
    /// The change stream that it hands out.
    pub(crate) stream: Option<Box<ChangeStream>>,
    pub(crate) owner: Owner,
    /// The time that it reads at, if its replies say so.
    pub(crate) at_cluster_time: Option<bson::Timestamp>,
    /// It was killed while a `getMore` has waited.
    pub(crate) is_killed: bool,
}

impl Cursor {
    /// Makes a cursor over documents.
    pub(crate) const fn over(
        namespace: String,
        rest: VecDeque<Arc<Document>>,
        owner: Owner,
    ) -> Self {
        Self {
            namespace,
            rest,
            tail: None,
            stream: None,
            owner,
            at_cluster_time: None,
            is_killed: false,
        }
    }

    /// Returns whether more may come after a batch. That of a stream with its last event is
    /// followed by another one, if it was full.
    pub(crate) fn goes_on(&self, has_room: bool) -> bool {
        let is_over = |stream: &ChangeStream| stream.is_over() && has_room;
        !self.rest.is_empty()
            || self.tail.is_some()
            || self.stream.as_ref().is_some_and(|it| !is_over(it))
    }
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
