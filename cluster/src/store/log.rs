//! The log of a member: what it has written, in order, and by which others do the same.

use std::collections::VecDeque;
use std::sync::Arc;

use bson::Timestamp;
use sdam_core::bson;
use sdam_core::time::Instant;

use super::catalog::{Change, Store};

/// The number of entries that a member keeps; one that is further behind copies everything.
pub(crate) const MAX_ENTRIES: usize = 1024;

/// The place of an entry in the log: that of a later term is never before one of an earlier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position {
    pub(crate) term: i64,
    pub(crate) index: u64,
}

/// Writes that belong together.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) position: Position,
    /// The time when the primary has written it.
    pub(crate) at: Instant,
    /// The operation time of it.
    pub(crate) timestamp: Timestamp,
    pub(crate) changes: Vec<Change>,
}

/// The state of a member, and how it came to be.
#[derive(Clone, Debug, Default)]
pub(crate) struct Data {
    pub(crate) store: Store,
    entries: VecDeque<Arc<Entry>>,
    /// The last entry before those that are kept.
    base: Position,
}

impl Data {
    /// Returns the place of the last entry.
    pub(crate) fn last(&self) -> Position {
        self.entries.back().map_or(self.base, |it| it.position)
    }

    pub(crate) fn entries(
        &self,
    ) -> impl DoubleEndedIterator<Item = &Arc<Entry>> + ExactSizeIterator {
        self.entries.iter()
    }

    /// Adds an entry whose changes have been made.
    pub(crate) fn note(&mut self, entry: Arc<Entry>) {
        self.entries.push_back(entry);
        if self.entries.len() > MAX_ENTRIES
            && let Some(oldest) = self.entries.pop_front()
        {
            self.base = oldest.position;
        }
    }

    /// Returns whether an entry is in the log.
    pub(crate) fn has(&self, position: Position) -> bool {
        let found = self.entries.binary_search_by_key(&position, |it| it.position);
        position == self.base || found.is_ok()
    }

    /// Takes back the last entry.
    fn take_back(&mut self) -> Option<Arc<Entry>> {
        let last = self.entries.pop_back()?;
        last.changes.iter().rev().for_each(|change| self.store.take(change, false));
        Some(last)
    }

    /// Takes back what another does not have, and returns what that was; one that has nothing in
    /// common with the other any more becomes the same.
    pub(crate) fn roll_back_to(&mut self, source: &Self) -> Vec<Arc<Entry>> {
        let mut lost = Vec::new();
        while !source.has(self.last()) {
            match self.take_back() {
                Some(entry) => lost.push(entry),
                None => {
                    *self = source.clone();
                    break;
                }
            }
        }
        lost
    }

    /// Returns the next entry that another has and this does not, if this is the other's past.
    pub(crate) fn next_of(&self, source: &Self) -> Option<Arc<Entry>> {
        let last = self.last();
        let at = source.entries.partition_point(|it| it.position <= last);
        source.entries.get(at).cloned()
    }

    /// Does what an entry says.
    pub(crate) fn apply(&mut self, entry: Arc<Entry>) {
        entry.changes.iter().for_each(|change| self.store.take(change, true));
        self.note(entry);
    }

    /// Returns the state up to a place in the log, as far back as the log goes.
    pub(crate) fn until(&self, is_meant: impl Fn(&Entry) -> bool) -> Store {
        let mut store = self.store.clone();
        for entry in self.entries.iter().rev().take_while(|it| !is_meant(it)) {
            entry.changes.iter().rev().for_each(|change| store.take(change, false));
        }
        store
    }
}
