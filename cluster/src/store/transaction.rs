//! An open transaction: what it sees, what it has changed, and what others must leave alone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bson::Document;
use sdam_core::bson;
use sdam_core::time::Instant;

use super::{
    catalog::{Change, Store},
    error::StoreError,
};

/// A transaction that is open.
#[derive(Clone, Debug)]
pub(crate) struct Transaction {
    pub(crate) number: i64,
    /// The time of its first command.
    pub(crate) began: Instant,
    /// The time of its last command, and where that came from.
    pub(crate) last: LastUse,
    /// The state that it sees: that of its beginning, and what it has changed.
    pub(crate) store: Store,
    /// The state of its beginning.
    snapshot: Store,
    changes: Vec<Change>,
    /// The documents of that state that it has changed.
    locked: BTreeSet<(Arc<str>, u64)>,
    /// The collections that its commands have named.
    used: BTreeSet<String>,
}

/// The last command of a transaction.
#[derive(Clone, Debug)]
pub(crate) struct LastUse {
    pub(crate) at: Instant,
    /// The number of the connection.
    pub(crate) connection: i32,
    /// The address of the client, and the name of the application.
    pub(crate) client: Option<String>,
    pub(crate) app_name: Option<String>,
}

impl Transaction {
    /// Begins a transaction that sees this state.
    pub(crate) fn begin(number: i64, began: Instant, snapshot: Store) -> Self {
        Self {
            number,
            began,
            last: LastUse { at: began, connection: 0, client: None, app_name: None },
            store: snapshot.clone(),
            snapshot,
            changes: Vec::new(),
            locked: BTreeSet::new(),
            used: BTreeSet::new(),
        }
    }

    /// Returns whether it has created a collection that it sees.
    pub(crate) fn has_created(&self, namespace: &str) -> bool {
        self.snapshot.collection(namespace).is_none() && self.store.collection(namespace).is_some()
    }

    /// Notes that it uses a collection, which cannot be changed or dropped from now on.
    ///
    /// # Errors
    ///
    /// Fails with `SnapshotUnavailable` if the collection is another one than at its beginning.
    pub(crate) fn use_collection(
        &mut self,
        live: &Store,
        namespace: &str,
    ) -> Result<(), StoreError> {
        let is_other = !self.has_created(namespace)
            && uuid(&self.snapshot, namespace) != uuid(live, namespace);
        if is_other {
            let reason = "Unable to read from a snapshot due to pending collection catalog \
                          changes; please retry the operation.";
            return Err(StoreError::new(246, reason));
        }
        self.used.insert(namespace.to_owned());
        Ok(())
    }

    /// Notes what it has changed in the state that it sees.
    ///
    /// # Errors
    ///
    /// Fails with `WriteConflict` if somebody else has changed the same since its beginning, or
    /// is about to.
    pub(crate) fn note(
        &mut self,
        changes: Vec<Change>,
        live: &Store,
        others: &[&Self],
    ) -> Result<(), StoreError> {
        for change in &changes {
            let Change::Document { namespace, record, after, .. } = change else { continue };
            let known = self.document(namespace, *record).map(|_| *record);
            let after = after.as_deref();
            if self.is_outdated(live, namespace, known, after)
                || others.iter().any(|it| it.holds(namespace, known, after))
            {
                return Err(StoreError::write_conflict());
            }
            self.locked.extend(known.map(|record| (Arc::clone(namespace), record)));
        }
        self.changes.extend(changes);
        Ok(())
    }

    /// Returns whether a change that others make to the live state must wait for its end.
    pub(crate) fn blocks(&self, change: &Change) -> bool {
        match change {
            Change::Document { namespace, record, before, after, .. } => {
                let known = before.as_ref().map(|_| *record);
                self.holds(namespace, known, after.as_deref())
            }
            Change::Collection { namespace, before, .. } => {
                before.is_some() && self.used.contains(&**namespace)
            }
            Change::Session { .. } | Change::Definition(_) => false,
        }
    }

    /// Returns what it has changed as steps from the live state.
    ///
    /// # Errors
    ///
    /// Fails with `WriteConflict` if a collection that it has created has come up meanwhile, or if
    /// one that it has written to is another one.
    pub(crate) fn rebased(&self, live: &Store) -> Result<Vec<Change>, StoreError> {
        let mut records = BTreeMap::new();
        let mut next: BTreeMap<Arc<str>, u64> = BTreeMap::new();
        let mut rebased = Vec::with_capacity(self.changes.len());
        for change in &self.changes {
            let mut change = change.clone();
            if let Change::Document { namespace, .. } | Change::Collection { namespace, .. } =
                &change
                && uuid(&self.snapshot, namespace) != uuid(live, namespace)
            {
                return Err(StoreError::write_conflict());
            }
            if let Change::Document { namespace, record, .. } = &mut change
                && let Some(collection) = live.collection(namespace)
                && self.document(namespace, *record).is_none()
            {
                // Others may have given the same number to a document of theirs.
                let key = (Arc::clone(namespace), *record);
                *record = *records.entry(key).or_insert_with(|| {
                    let next = next.entry(Arc::clone(namespace));
                    let next = next.or_insert_with(|| collection.next());
                    *next += 1;
                    *next - 1
                });
            }
            rebased.push(change);
        }
        Ok(rebased)
    }

    /// Returns a document as it was at the beginning.
    fn document(&self, namespace: &str, record: u64) -> Option<&Arc<Document>> {
        self.snapshot.collection(namespace)?.get(record)
    }

    /// Returns whether the live state has, since the beginning, another document in a place, or one
    /// with the same unique keys.
    fn is_outdated(
        &self,
        live: &Store,
        namespace: &str,
        record: Option<u64>,
        after: Option<&Document>,
    ) -> bool {
        let live = live.collection(namespace);
        let is_new = |record| self.differs(namespace, record, live.and_then(|it| it.get(record)));
        let rivals = live.zip(after).map(|(live, document)| live.rivals(document));
        record.into_iter().chain(rivals.unwrap_or_default()).any(is_new)
    }

    /// Returns whether it has changed a document, or has ever put one that has a unique key of
    /// another.
    fn holds(&self, namespace: &str, record: Option<u64>, after: Option<&Document>) -> bool {
        let is_locked = |record| self.locked.contains(&(Arc::from(namespace), record));
        if record.is_some_and(is_locked) {
            return true;
        }
        let own = self.store.collection(namespace);
        let (Some(collection), Some(document)) = (own, after) else { return false };
        self.changes.iter().any(|change| match change {
            Change::Document { namespace: of, after: Some(put), .. } => {
                **of == *namespace && collection.shares_key(put, document)
            }
            _ => false,
        })
    }

    /// Returns whether a document is another one than that of the beginning, in the same place.
    fn differs(&self, namespace: &str, record: u64, other: Option<&Arc<Document>>) -> bool {
        match (self.document(namespace, record), other) {
            (Some(known), Some(other)) => !Arc::ptr_eq(known, other),
            (known, other) => known.is_some() || other.is_some(),
        }
    }
}

/// Returns the id of a collection, which another one of the same name does not have.
fn uuid(store: &Store, namespace: &str) -> Option<[u8; 16]> {
    store.collection(namespace).map(|it| it.uuid)
}
