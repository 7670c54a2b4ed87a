//! The log of a member: what it has written, in order, and by which others do the same.

use std::collections::VecDeque;
use std::sync::Arc;

use bson::{DateTime, Timestamp};
use sdam_core::bson;
use sdam_core::time::Instant;

use super::catalog::{Change, Store};

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
    /// The operation time of it, and of the last of its changes.
    pub(crate) timestamp: Timestamp,
    /// The same on the wall clock.
    pub(crate) wall: DateTime,
    pub(crate) changes: Vec<Change>,
}

/// The place of an event among all: its operation time, and its index among those of one
/// transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) time: (u32, u32),
    pub(crate) index: u64,
}

impl Place {
    /// Returns the first place at a time.
    pub(crate) const fn at(time: Timestamp) -> Self {
        Self { time: (time.time, time.increment), index: 0 }
    }

    pub(crate) const fn timestamp(self) -> Timestamp {
        Timestamp { time: self.time.0, increment: self.time.1 }
    }
}

impl Entry {
    /// Returns the id of the session and the number, if it is a transaction.
    pub(crate) fn transaction(&self) -> Option<(&[u8], i64)> {
        self.changes.iter().find_map(|change| match change {
            Change::Session { id, after: Some(after), .. } if after.is_transaction => {
                Some((&**id, after.number))
            }
            _ => None,
        })
    }

    /// Returns the changes that may be events, each with its place: those of a transaction have one
    /// time, the others each its own.
    pub(crate) fn reported(&self) -> impl Iterator<Item = (Place, &Change)> {
        let reported = self.changes.iter().filter(|it| it.is_reported());
        let times = match self.transaction() {
            Some(_) => 1,
            None => u32::try_from(reported.clone().count()).unwrap_or(u32::MAX),
        };
        let (last, is_one) = (Place::at(self.timestamp), times <= 1);
        reported.enumerate().map(move |(index, change)| match is_one {
            true => (Place { index: index as u64, ..last }, change),
            false => {
                let earlier = times - 1 - u32::try_from(index).unwrap_or(times - 1);
                let increment = last.time.1.saturating_sub(earlier);
                (Place { time: (last.time.0, increment), index: 0 }, change)
            }
        })
    }

    /// Returns the number of operation times that such changes take.
    pub(crate) fn times(changes: &[Change]) -> usize {
        let is_transaction = |change: &Change| match change {
            Change::Session { after: Some(after), .. } => after.is_transaction,
            _ => false,
        };
        match changes.iter().any(is_transaction) {
            true => 1,
            false => changes.iter().filter(|it| it.is_reported()).count().max(1),
        }
    }
}

/// The state of a member, and how it came to be.
#[derive(Clone, Debug)]
pub(crate) struct Data {
    pub(crate) store: Store,
    entries: VecDeque<Arc<Entry>>,
    /// The last entry before those that are kept.
    base: Position,
    /// The operation time of that.
    base_time: (u32, u32),
    /// The number of entries that are kept; a member that is further behind copies everything.
    most: usize,
}

impl Data {
    /// Makes the state of a member that keeps so many entries.
    pub(crate) fn new(most: usize) -> Self {
        let (store, entries) = (Store::default(), VecDeque::new());
        Self { store, entries, base: Position::default(), base_time: (0, 0), most }
    }

    /// Returns whether the log has all that was written at the time of a place, and since.
    pub(crate) fn reaches_back_to(&self, place: Place) -> bool {
        self.base == Position::default() || self.base_time < place.time
    }

    /// Returns the entries that have something to report at a place, or after it.
    pub(crate) fn since(&self, place: Place) -> impl Iterator<Item = &Arc<Entry>> {
        let is_before = |it: &Arc<Entry>| Place::at(it.timestamp).time < place.time;
        let first = self.entries.partition_point(is_before);
        self.entries.range(first..)
    }

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
        if self.entries.len() > self.most
            && let Some(oldest) = self.entries.pop_front()
        {
            self.base = oldest.position;
            self.base_time = Place::at(oldest.timestamp).time;
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
