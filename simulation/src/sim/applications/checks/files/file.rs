//! A file, from the beginning of its upload: its bytes, and what is known of it.

use std::collections::{BTreeMap, BTreeSet};

use sdam_core::time::Instant;

/// The bytes of a file: they follow from a number, so that nothing keeps them.
#[derive(Clone, Copy, Debug)]
pub(in crate::sim::applications) struct Source {
    pub(in crate::sim::applications) seed: u64,
    pub(in crate::sim::applications) length: u64,
    pub(in crate::sim::applications) chunk_size: u64,
}

impl Source {
    /// Returns the bytes from one to before another.
    pub(in crate::sim::applications) fn bytes(&self, from: u64, to: u64) -> Vec<u8> {
        let to = to.max(from);
        let (first, skipped) = (from / 8, usize::try_from(from % 8).unwrap_or_default());
        let words = (first..to.div_ceil(8)).flat_map(|word| {
            let mixed = (self.seed ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            (mixed ^ (mixed >> 29)).to_le_bytes()
        });
        let length = usize::try_from(to - from).unwrap_or_default();
        words.skip(skipped).take(length).collect()
    }

    /// Returns the number of its chunks.
    pub(super) fn chunks(&self) -> i64 {
        i64::try_from(self.length.div_ceil(self.chunk_size)).unwrap_or(i64::MAX)
    }

    /// Returns whether these are the bytes of a chunk of it, all of them.
    pub(super) fn is_chunk(&self, n: i64, bytes: &[u8]) -> bool {
        let Ok(number) = u64::try_from(n) else { return false };
        let start = number.saturating_mul(self.chunk_size);
        start < self.length && self.bytes(start, self.length.min(start + self.chunk_size)) == bytes
    }
}

/// The end that an upload has come to, as far as its application knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::sim::applications) enum Fate {
    /// It goes on, or another stream may go on with it.
    Open,
    /// The file is stored, as a majority has acknowledged.
    Acknowledged,
    /// The file is stored whole, or not at all.
    Unknown,
    /// It has failed: there is no file, and its chunks are left where they are.
    Failed,
    /// It was dropped by a client at a time: there is no file, and its chunks are removed.
    Dropped { client: usize, at: Instant },
    /// It was aborted, and its chunks were removed.
    Aborted,
}

/// A chunk that was to be inserted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Insert {
    /// True if a command with it has had no reply: it may be carried out later.
    pub(super) is_lost: bool,
    /// The time of the first reply, and of the last one.
    pub(super) answered: Option<Instant>,
    pub(super) answered_last: Option<Instant>,
}

/// A file, from the beginning of its upload.
#[derive(Debug)]
pub(super) struct File {
    pub(super) client: usize,
    pub(super) source: Source,
    pub(super) name: String,
    /// The other uploads under its `_id`.
    pub(super) rivals: Vec<usize>,
    /// True if it is an upload beside that of the file, which never stores one.
    pub(super) is_rival: bool,
    /// True if its time has a limit.
    pub(super) is_limited: bool,
    /// The names that it was given since.
    pub(super) renamed: BTreeSet<String>,
    /// The number of batches that may be under way, of all its streams.
    pub(super) in_flight: usize,
    /// The number of streams that have written it.
    pub(super) lives: u32,
    /// The chunks that the last of them has gone on behind.
    pub(super) resumed: Option<i64>,
    pub(super) fate: Fate,
    /// True while another stream may go on with it.
    pub(super) is_kept: bool,
    /// True once it may be dropped or aborted, so that its chunks are removed.
    pub(super) may_be_given_up: bool,
    /// The time when its only stream was dropped or aborted that had not failed.
    pub(super) given_up: Option<Instant>,
    /// True once its stream was to be closed.
    pub(super) is_closing: bool,
    /// True if a transaction has its document.
    pub(super) is_in_transaction: bool,
    /// True once the application has asked for its deletion.
    pub(super) is_to_go: bool,

    /// The batches that are under way, by their first chunks, and how often each is.
    pub(super) under_way: BTreeMap<i64, u32>,
    /// The numbers of chunks that were acknowledged.
    pub(super) acknowledged: BTreeSet<i64>,
    pub(super) inserts: BTreeMap<String, Insert>,
    /// True if another upload has chunks of the same numbers.
    pub(super) is_contested: bool,
    /// True once the first chunk under its `_id` was seen to be that of another upload.
    pub(super) has_met_another: bool,
    /// The time when its first chunk was acknowledged.
    pub(super) began: Option<Instant>,
    /// The time when the last removal of chunks was sent that may be its own first one.
    pub(super) removed: Option<Instant>,
    /// True once a server has acknowledged the document.
    pub(super) is_stored: bool,
    /// True once its document was to be sent.
    pub(super) was_sent: bool,
    /// True once the deletion of the document was sent, and once that was acknowledged.
    pub(super) is_going: bool,
    pub(super) is_gone: bool,
    /// The time when the last removal of all chunks was sent that was acknowledged.
    pub(super) cleaned: Option<Instant>,
    /// The last time when the removal of its chunks has failed, or what is asked before.
    pub(super) not_cleaned: Option<Instant>,
    /// The time of the last reply to a batch, or of its loss.
    pub(super) heard: Instant,

    /// The part that a majority has: the name in the document, and the `_id` of each chunk.
    pub(super) document: Option<String>,
    pub(super) chunks: BTreeMap<i64, String>,
}

impl File {
    pub(super) fn new(client: usize, source: Source, name: String, in_flight: usize) -> Self {
        Self {
            client,
            source,
            name,
            rivals: Vec::new(),
            is_rival: false,
            is_limited: false,
            renamed: BTreeSet::new(),
            in_flight,
            lives: 1,
            resumed: None,
            fate: Fate::Open,
            is_kept: false,
            may_be_given_up: false,
            given_up: None,
            is_closing: false,
            is_in_transaction: false,
            is_to_go: false,
            under_way: BTreeMap::new(),
            acknowledged: BTreeSet::new(),
            inserts: BTreeMap::new(),
            is_contested: false,
            has_met_another: false,
            began: None,
            removed: None,
            is_stored: false,
            was_sent: false,
            is_going: false,
            is_gone: false,
            cleaned: None,
            not_cleaned: None,
            heard: Instant::ZERO,
            document: None,
            chunks: BTreeMap::new(),
        }
    }

    /// Returns whether all of its chunks were acknowledged.
    pub(super) fn is_whole(&self) -> bool {
        (0..self.source.chunks()).all(|n| self.acknowledged.contains(&n))
    }

    /// Returns whether its first chunk is there: it was acknowledged, and no removal was sent
    /// since. No other upload can have one.
    pub(super) fn has_first_chunk(&self) -> bool {
        self.began.is_some_and(|began| self.removed.is_none_or(|removed| removed < began))
    }

    /// Returns whether chunks may be removed as those of a file that is not stored, or is gone.
    pub(super) fn are_chunks_free(&self, from: Option<i64>) -> bool {
        let is_stored = self.is_stored || self.fate == Fate::Acknowledged;
        !is_stored || self.is_gone && from.is_none()
    }

    /// Returns whether all chunks that are removed are behind those that another stream needs.
    pub(super) fn are_chunks_unused(&self, from: Option<i64>) -> bool {
        let is_behind = from.is_none() || from == self.resumed;
        is_behind && (from.is_some() || !self.is_kept || self.is_gone)
    }

    /// Returns whether its own upload may remove chunks, while there are others under its `_id`.
    pub(super) fn may_remove(&self, from: Option<i64>) -> bool {
        let is_over = from.is_some() || self.may_be_given_up || self.is_gone;
        is_over && self.are_chunks_free(from) && self.are_chunks_unused(from)
    }

    /// Returns whether a chunk of it is there that has not come late: it is to be none beside those
    /// of a file under its `_id`.
    pub(super) fn is_beside_a_file(&self) -> bool {
        let is_lost = |id: &String| self.inserts.get(id).is_some_and(|insert| insert.is_lost);
        self.lives == 1 && !self.chunks.values().all(is_lost)
    }

    /// Returns a chunk that a majority has though all were removed, and whether it has come since:
    /// then that removal was another upload's.
    ///
    /// Whatever was under way at the removal, and has had no reply, may have come later; and so may
    /// a batch of a stream that was left for another one.
    pub(super) fn left(&self, cleaned: Instant) -> Option<(i64, bool)> {
        let may_be_left = self.lives > 1 || self.fate == Fate::Failed;
        let judge = |(n, id): (&i64, &String)| {
            let insert = self.inserts.get(id).copied().unwrap_or_default();
            let is_later = insert.answered.is_none_or(|at| at > cleaned);
            let may_come =
                self.inserts.contains_key(id) && (insert.is_lost || may_be_left && is_later);
            let has_come_since = insert.answered_last.is_some_and(|at| at > cleaned);
            (!may_come).then_some((*n, has_come_since && !self.rivals.is_empty()))
        };
        self.chunks.iter().filter_map(judge).min_by_key(|(_, has_come_since)| *has_come_since)
    }
}
