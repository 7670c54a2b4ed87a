//! The stories of change streams: what each has handed out, through all its lives, beside what a
//! majority of the members has committed.
//!
//! Implements what Change Streams promises ("Resume Process"): each change once and in order. A
//! story is judged as it goes on: its next event must be the next change of those that it watches,
//! and where another life begins, it says from where.

use std::collections::BTreeMap;

use bson::{Bson, Document, Timestamp};
use sdam_cluster::{CommittedChange, CommittedChanges};
use sdam_core::bson;
use sdam_core::time::Instant;

use super::work::{CHANGED, COPIES, OTHER};
use crate::sim::checks::{Finding, Violation};

/// The things that a stream watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Watched {
    Collection,
    /// Its database, alone or among all.
    Database,
}

/// An event, as far as changes differ.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Seen {
    time: Timestamp,
    kind: String,
    id: Option<Bson>,
}

/// A change that a majority has.
#[derive(Clone, Debug)]
struct Known {
    at: Instant,
    /// The index of its entry in the log.
    entry: u64,
    seen: Seen,
}

/// The place where a life of a stream begins.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum From {
    /// At the present of the servers: all that is written later than this is to come.
    Now(Instant),
    /// Perhaps behind a token that a store was given before its opening was given up, or failed, at
    /// this time.
    Left(Instant),
    /// Behind the last event that was handed out.
    Behind,
    /// With the first event of a time.
    At(Timestamp),
    /// Behind the last event or that before it, or, if a save may come late, some event before.
    Stored { may_be_late: bool },
}

/// Something that happens to a stream.
#[derive(Clone, Debug)]
enum Deed {
    Begins(From),
    HandsOut(Seen),
    /// Its servers say that its history is lost.
    IsLost,
}

/// The place of a story among the changes that it watches.
#[derive(Clone, Copy, Debug)]
enum Next {
    /// It has not begun.
    Nowhere,
    /// The first that was written later than this, or one before.
    After(Instant),
    /// That of this index or a later one, as history was lost: a transaction may have been under
    /// way then. Once another life has begun, it misses nothing that was written later than this.
    Lost { first: usize, begun: Option<Instant> },
    /// That of this index, or one of so many before.
    Index { index: usize, back: usize },
}

/// A stream, through all its lives.
#[derive(Debug)]
struct Story {
    client: usize,
    watched: Watched,
    deeds: Vec<Deed>,
    /// The place of the next event.
    next: Next,
    /// The place behind the last event that was handed out.
    last: Option<usize>,
    /// True if each event is copied, together with the token.
    is_copied: bool,
    /// The place of the next copy.
    copied: Next,
}

/// All streams, and what there is to see.
#[derive(Debug, Default)]
pub(super) struct Stories {
    until: (i64, u64),
    changes: BTreeMap<Watched, Vec<Known>>,
    all: Vec<Story>,
    copies: Vec<(Instant, Document)>,
    /// The number of tasks that write.
    pub(super) writers: usize,
    /// The last number of a document.
    documents: i64,
    /// True once all that there is to see is known.
    pub(super) is_final: bool,
    pub(super) handed_out: u64,
}

impl Seen {
    pub(super) const fn new(time: Timestamp, kind: String, id: Option<Bson>) -> Self {
        Self { time, kind, id }
    }

    /// Reads an event of a stream.
    pub(super) fn of_event(event: &Document) -> Option<Self> {
        let key = event.get_document("documentKey").ok();
        Some(Self {
            time: event.get_timestamp("clusterTime").ok()?,
            kind: event.get_str("operationType").ok()?.to_owned(),
            id: key.and_then(|key| key.get("_id")).cloned(),
        })
    }

    /// Returns it as the fields of a copy.
    pub(super) fn to_copy(&self, story: usize, number: i64) -> Document {
        let story = i64::try_from(story).unwrap_or_default();
        bson::doc! {
            "_id": number, "story": story, "time": self.time, "kind": &self.kind,
            "id": self.id.clone().unwrap_or(Bson::Null),
        }
    }

    fn of_copy(copy: &Document) -> Option<(usize, Self)> {
        let story = copy.get_i64("story").ok()?.try_into().ok()?;
        let id = copy.get("id").filter(|id| **id != Bson::Null).cloned();
        let (time, kind) = (copy.get_timestamp("time").ok()?, copy.get_str("kind").ok()?);
        Some((story, Self { time, kind: kind.to_owned(), id }))
    }

    pub(super) const fn time(&self) -> Timestamp {
        self.time
    }

    pub(super) fn invalidates(&self) -> bool {
        self.kind == "invalidate"
    }
}

impl Next {
    /// Moves behind an event, if it is one that may come next.
    fn take(self, changes: &[Known], seen: &Seen) -> Result<usize, String> {
        let first = match self {
            Self::Nowhere => return Err("the stream has not begun".to_owned()),
            Self::After(_) => 0,
            Self::Lost { first, .. } => first,
            Self::Index { index, back } => index.saturating_sub(back),
        };
        let found = changes.iter().skip(first).position(|it| it.seen == *seen);
        let Some(index) = found.map(|it| it + first) else {
            let is_known = changes.iter().any(|it| it.seen == *seen);
            let why = if is_known { "it came before" } else { "no majority has it" };
            return Err(why.to_owned());
        };
        let missed = match self {
            Self::Nowhere => None,
            Self::After(time) => changes[..index].iter().find(|it| it.at > time),
            Self::Lost { begun, .. } => {
                begun.and_then(|begun| changes[first..index].iter().find(|it| it.at > begun))
            }
            Self::Index { index: most, .. } => changes.get(most..index).and_then(|it| it.first()),
        };
        match missed {
            Some(missed) => Err(format!("{:?} was to come before", missed.seen)),
            None => Ok(index + 1),
        }
    }

    /// Returns whether nothing is to come any more.
    fn is_end(self, changes: &[Known]) -> bool {
        match self {
            Self::Nowhere => false,
            Self::After(time) => changes.iter().all(|it| it.at <= time),
            Self::Lost { first, begun } => {
                begun.is_some_and(|begun| changes.iter().skip(first).all(|it| it.at <= begun))
            }
            Self::Index { index, .. } => index >= changes.len(),
        }
    }

    /// Returns the place of the next copy once history is lost.
    const fn lost(self) -> Self {
        let first = match self {
            Self::Nowhere | Self::After(_) => 0,
            Self::Lost { first, .. } | Self::Index { index: first, .. } => first,
        };
        Self::Lost { first, begun: None }
    }

    /// Returns the place of the next copy once a life has begun, perhaps, without a token.
    const fn begun(self, at: Instant) -> Self {
        match self {
            Self::Nowhere | Self::After(_) => Self::After(at),
            Self::Lost { first, .. } => Self::Lost { first, begun: Some(at) },
            Self::Index { .. } => self,
        }
    }

    /// Returns the place of the next copy, behind that which has moved to an index.
    fn copied(self, changes: &[Known], index: usize) -> Self {
        match self {
            Self::Lost { begun, .. }
                if begun.is_none_or(|begun| changes[index - 1].at <= begun) =>
            {
                Self::Lost { first: index, begun }
            }
            _ => Self::Index { index, back: 0 },
        }
    }
}

impl Story {
    /// Judges something that has happened to it.
    fn judge(&mut self, deed: Deed, changes: &[Known]) -> Finding {
        let exactly = |index| Next::Index { index, back: 0 };
        match deed {
            Deed::IsLost => {
                (self.next, self.last, self.copied) = (Next::Nowhere, None, self.copied.lost());
            }
            Deed::Begins(From::Now(opened)) => {
                if self.last.is_some() {
                    let detail =
                        "one begins with the present that has handed out events".to_owned();
                    return Err(Violation::new("streams go on where they have ended", detail));
                }
                (self.next, self.copied) = (Next::After(opened), self.copied.begun(opened));
            }
            Deed::Begins(From::Left(left)) => {
                if !matches!(self.next, Next::Index { .. }) {
                    (self.next, self.copied) = (Next::After(left), self.copied.begun(left));
                }
            }
            Deed::Begins(From::Behind) => self.next = self.last.map_or(self.next, exactly),
            Deed::Begins(From::At(time)) => {
                let of = |time: Timestamp| (time.time, time.increment);
                self.next = exactly(changes.partition_point(|it| of(it.seen.time) < of(time)));
            }
            Deed::Begins(From::Stored { may_be_late }) => {
                if let Some(index) = self.last {
                    let back = if may_be_late { index } else { 1 };
                    self.next = Next::Index { index, back };
                }
            }
            Deed::HandsOut(seen) => {
                let index = self.next.take(changes, &seen).map_err(|why| {
                    let detail = format!("{self:?} hands out {seen:?}: {why}");
                    Violation::new("streams hand out each change once and in order", detail)
                })?;
                (self.next, self.last) = (exactly(index), Some(index));
            }
        }
        Ok(())
    }
}

impl Stories {
    /// A stream is to be read.
    pub(super) fn begin(&mut self, client: usize, watched: Watched, is_copied: bool) -> usize {
        let (deeds, next, last) = (Vec::new(), Next::Nowhere, None);
        self.all.push(Story { client, watched, deeds, next, last, is_copied, copied: next });
        self.all.len() - 1
    }

    /// Returns the number of a document that nothing else has.
    pub(super) const fn next_document(&mut self) -> i64 {
        self.documents += 1;
        self.documents
    }

    pub(super) const fn documents(&self) -> i64 {
        self.documents
    }

    /// A life of a stream begins.
    pub(super) fn begins(&mut self, story: usize, from: From) {
        self.all[story].deeds.push(Deed::Begins(from));
    }

    pub(super) fn hands_out(&mut self, story: usize, seen: Seen) {
        self.handed_out += 1;
        self.all[story].deeds.push(Deed::HandsOut(seen));
    }

    /// A stream has failed with an error that says that its history is lost.
    pub(super) fn is_lost(&mut self, story: usize) {
        self.all[story].deeds.push(Deed::IsLost);
    }

    /// Returns the place in the log up to which everything is known.
    pub(super) const fn until(&self) -> (i64, u64) {
        self.until
    }

    /// Returns how many entries the log has at least behind the last event that a stream is known
    /// to have handed out: all, if there is none.
    pub(super) fn unread(&self, story: usize) -> u64 {
        let Story { watched, last, .. } = &self.all[story];
        let read = last.and_then(|last| self.changes.get(watched)?.get(last.checked_sub(1)?));
        self.until.1 - read.map_or(0, |read| read.entry)
    }

    /// Takes the changes that a majority has since, and judges all streams.
    pub(super) fn learn(&mut self, committed: CommittedChanges) -> Result<(), (usize, Violation)> {
        if !committed.is_whole {
            let detail = format!("the log does not go back to {:?}", self.until);
            return Err((0, Violation::new("what a majority has lasts", detail)));
        }
        self.until = committed.until;
        committed.changes.into_iter().for_each(|change| self.add(change));
        let Self { all, changes, .. } = self;
        for story in all {
            let changes = changes.get(&story.watched).map(Vec::as_slice).unwrap_or_default();
            for deed in std::mem::take(&mut story.deeds) {
                story.judge(deed, changes).map_err(|violation| (story.client, violation))?;
            }
        }
        self.judge_copies()
    }

    fn add(&mut self, change: CommittedChange) {
        let CommittedChange { at, time, index, kind, namespace, id, document, .. } = change;
        let entry = index;
        if namespace == COPIES
            && let Some(document) = document
        {
            return self.copies.push((at, document));
        }
        let seen = Seen::new(time, kind.to_owned(), id);
        if namespace == CHANGED {
            let of_collection = self.changes.entry(Watched::Collection).or_default();
            of_collection.push(Known { at, entry, seen: seen.clone() });
            if kind == "drop" {
                let seen = Seen::new(time, "invalidate".to_owned(), None);
                of_collection.push(Known { at, entry, seen });
            }
        }
        if [CHANGED, OTHER].contains(&&*namespace) {
            self.changes.entry(Watched::Database).or_default().push(Known { at, entry, seen });
        }
    }

    /// Judges the copies: each event is there once, and in order.
    fn judge_copies(&mut self) -> Result<(), (usize, Violation)> {
        for (_, copy) in std::mem::take(&mut self.copies) {
            let Some((story, seen)) = Seen::of_copy(&copy) else { continue };
            let Some(story) = self.all.get_mut(story) else { continue };
            let changes = self.changes.get(&story.watched);
            let changes = changes.map(Vec::as_slice).unwrap_or_default();
            let index = story.copied.take(changes, &seen).map_err(|why| {
                let detail = format!("{story:?} copies {seen:?}: {why}");
                let check = "what is written together with the token is written once";
                (story.client, Violation::new(check, detail))
            })?;
            story.copied = story.copied.copied(changes, index);
        }
        Ok(())
    }

    /// Returns whether a stream has handed out all that it is to hand out, and whether it is known
    /// what that is.
    pub(super) fn is_done(&self, story: usize) -> bool {
        let story = &self.all[story];
        let changes = self.changes.get(&story.watched);
        let changes = changes.map(Vec::as_slice).unwrap_or_default();
        let is_judged = self.is_final && story.deeds.is_empty();
        let is_copied = !story.is_copied || story.copied.is_end(changes);
        is_judged && is_copied && story.next.is_end(changes)
    }

    /// Judges what is there when everything has come to its end.
    pub(super) fn finish(&self) -> Result<(), (usize, Violation)> {
        for (number, story) in self.all.iter().enumerate() {
            if !self.is_done(number) {
                let count = self.changes.get(&story.watched).map_or(0, Vec::len);
                let detail = format!("{story:?} ends before {count} changes do");
                let check = "streams hand out all changes in the end";
                return Err((story.client, Violation::new(check, detail)));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
