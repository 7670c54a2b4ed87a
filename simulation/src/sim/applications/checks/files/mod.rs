//! A file is stored after its chunks and removed before them, with the bytes that were written, and
//! is there if that was acknowledged, whatever has failed.
//!
//! - [`conversation`]: the order of commands, and what they carry.
//! - Here: the files that a majority of the members has. Each is there with all of its chunks at
//!   any time, and in the end those that were acknowledged are there, and nothing else is.

mod conversation;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bson::{Bson, Document};
use sdam_cluster::{CommittedChange, CommittedChanges};
use sdam_core::bson;
use sdam_core::time::Instant;

use super::{Finding, ensure};
use crate::sim::checks::Violation;

/// The collections of the bucket, in their database.
const FILES: &str = "fs.files";
const CHUNKS: &str = "fs.chunks";

/// The collections of the bucket, as members name them.
const MEMBERS_FILES: &str = "d.fs.files";
const MEMBERS_CHUNKS: &str = "d.fs.chunks";

type Found = Result<(), (usize, Violation)>;

/// The time in which the chunks of an upload that was dropped are removed, and more.
const CLEANING: Duration = Duration::from_secs(20);

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
    fn chunks(&self) -> i64 {
        i64::try_from(self.length.div_ceil(self.chunk_size)).unwrap_or(i64::MAX)
    }

    /// Returns whether these are the bytes of a chunk of it, all of them.
    fn is_chunk(&self, n: i64, bytes: &[u8]) -> bool {
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
struct Insert {
    /// True if a command with it has had no reply: it may be carried out later.
    is_lost: bool,
    /// The time of the first reply.
    answered: Option<Instant>,
}

/// A file, from the beginning of its upload.
#[derive(Debug)]
struct File {
    client: usize,
    source: Source,
    name: String,
    /// The names that it was given since.
    renamed: BTreeSet<String>,
    /// The number of batches that may be under way, of all its streams.
    in_flight: usize,
    /// The number of streams that have written it.
    lives: u32,
    /// The chunks that the last of them has gone on behind.
    resumed: Option<i64>,
    fate: Fate,
    /// True while another stream may go on with it.
    is_kept: bool,
    /// True once its stream was to be closed.
    is_closing: bool,
    /// True if a transaction has its document.
    is_in_transaction: bool,
    /// True once the application has asked for its deletion.
    is_to_go: bool,

    /// The batches that are under way, by their first chunks, and how often each is.
    under_way: BTreeMap<i64, u32>,
    /// The numbers of chunks that were acknowledged.
    acknowledged: BTreeSet<i64>,
    inserts: BTreeMap<String, Insert>,
    /// True if another upload has chunks of the same numbers.
    is_contested: bool,
    /// True once a server has acknowledged the document.
    is_stored: bool,
    /// True once its document was to be sent.
    was_sent: bool,
    /// True once the deletion of the document was sent, and once that was acknowledged.
    is_going: bool,
    is_gone: bool,
    /// The time when the last removal of all chunks was sent that was acknowledged.
    cleaned: Option<Instant>,
    /// The last time when the removal of its chunks has failed, or what is asked before.
    not_cleaned: Option<Instant>,
    /// The time of the last reply to a batch, or of its loss.
    heard: Instant,

    /// The part that a majority has: the name in the document, and the `_id` of each chunk.
    document: Option<String>,
    chunks: BTreeMap<i64, String>,
}

/// All files.
#[derive(Debug, Default)]
pub(in crate::sim::applications) struct Files {
    all: Vec<File>,
    /// The numbers of files by the text of their `_id`.
    numbers: BTreeMap<String, usize>,
    /// The files whose chunks a majority has had, by the text of the chunks' `_id`.
    owners: BTreeMap<String, (usize, i64)>,
    /// The names all of whose files were to be deleted.
    deleted_names: BTreeSet<String>,
    /// The names all of whose files were to have another one, with that.
    renamed_names: Vec<(String, String)>,
    /// The times in which a client may have had no server.
    troubles: BTreeMap<usize, Vec<(Instant, Instant)>>,
    /// The place in the log up to which everything is known.
    until: (i64, u64),
    /// The number of files of several batches so far.
    large: u32,
    /// The number of bytes that were read.
    pub(in crate::sim::applications) read: u64,
}

/// A file that can be asked for.
#[derive(Clone, Debug)]
pub(in crate::sim::applications) struct Known {
    pub(in crate::sim::applications) number: usize,
    pub(in crate::sim::applications) id: Bson,
    pub(in crate::sim::applications) name: String,
    pub(in crate::sim::applications) length: u64,
}

impl File {
    fn new(client: usize, source: Source, name: String, in_flight: usize) -> Self {
        Self {
            client,
            source,
            name,
            renamed: BTreeSet::new(),
            in_flight,
            lives: 1,
            resumed: None,
            fate: Fate::Open,
            is_kept: false,
            is_closing: false,
            is_in_transaction: false,
            is_to_go: false,
            under_way: BTreeMap::new(),
            acknowledged: BTreeSet::new(),
            inserts: BTreeMap::new(),
            is_contested: false,
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
    fn is_whole(&self) -> bool {
        (0..self.source.chunks()).all(|n| self.acknowledged.contains(&n))
    }
}

impl Files {
    /// Returns whether another file of several batches may be written.
    pub(in crate::sim::applications) const fn takes_large(&mut self, most: u32) -> bool {
        self.large += 1;
        self.large <= most
    }

    /// An upload begins; returns the number of the file.
    pub(in crate::sim::applications) fn begin(
        &mut self,
        client: usize,
        source: Source,
        name: &str,
        in_flight: usize,
    ) -> usize {
        self.all.push(File::new(client, source, name.to_owned(), in_flight));
        self.all.len() - 1
    }

    /// A file has its `_id`.
    pub(in crate::sim::applications) fn is_named(&mut self, number: usize, id: &Bson) {
        self.numbers.insert(id.to_string(), number);
    }

    /// Another stream goes on with a file, behind so many bytes.
    pub(in crate::sim::applications) fn resumes(
        &mut self,
        number: usize,
        bytes: u64,
        in_flight: usize,
    ) {
        let file = &mut self.all[number];
        file.lives += 1;
        file.in_flight += in_flight;
        file.resumed = i64::try_from(bytes / file.source.chunk_size).ok();
    }

    /// A stream is to be closed, in a transaction or alone.
    pub(in crate::sim::applications) fn closes(&mut self, number: usize, in_transaction: bool) {
        let file = &mut self.all[number];
        file.is_closing = true;
        file.is_in_transaction |= in_transaction;
    }

    /// An upload has come to an end.
    pub(in crate::sim::applications) fn ends(&mut self, number: usize, fate: Fate) -> Finding {
        let file = &mut self.all[number];
        file.fate = fate;
        let is_stored = file.is_stored || file.is_in_transaction;
        let holds = fate != Fate::Acknowledged || is_stored;
        ensure(holds, "what is acknowledged was stored", || format!("{file:?}"))
    }

    /// An upload is dropped, or an error has ended it, while it was to be closed: its document may
    /// be on its way.
    pub(in crate::sim::applications) fn ends_in_doubt(&mut self, number: usize, otherwise: Fate) {
        let file = &mut self.all[number];
        let may_be_stored = file.is_closing && !file.is_in_transaction;
        let is_in_doubt = may_be_stored && (file.was_sent || file.is_whole());
        file.fate = if is_in_doubt { Fate::Unknown } else { otherwise };
    }

    /// An application is given a checkpoint: "what servers have acknowledged" without a gap.
    pub(in crate::sim::applications) fn is_at(&mut self, number: usize, bytes: u64) -> Finding {
        let file = &mut self.all[number];
        file.is_kept = true;
        let stored = (0..).take_while(|n| file.acknowledged.contains(n)).count() as u64;
        let most = stored * file.source.chunk_size;
        ensure(bytes <= most, "a checkpoint is behind what was acknowledged", || {
            format!("{bytes} bytes, and {most} were acknowledged of {file:?}")
        })
    }

    /// An upload is to be aborted: no other stream goes on with it.
    pub(in crate::sim::applications) fn aborts(&mut self, number: usize) {
        self.all[number].is_kept = false;
    }

    /// A file is to be deleted, or those of a name.
    pub(in crate::sim::applications) fn deletes(&mut self, number: usize) {
        let file = &mut self.all[number];
        (file.is_to_go, file.is_kept) = (true, false);
    }

    pub(in crate::sim::applications) fn deletes_name(&mut self, name: &str) {
        self.deleted_names.insert(name.to_owned());
    }

    /// A file is to have another name, or those of a name.
    pub(in crate::sim::applications) fn renames(&mut self, number: usize, to: &str) {
        self.all[number].renamed.insert(to.to_owned());
    }

    pub(in crate::sim::applications) fn renames_name(&mut self, from: &str, to: &str) {
        self.renamed_names.push((from.to_owned(), to.to_owned()));
    }

    /// A client may have no server, or no connection, in this time.
    pub(in crate::sim::applications) fn is_troubled(
        &mut self,
        client: usize,
        (from, to): (Instant, Instant),
    ) {
        self.troubles.entry(client).or_default().push((from, to));
    }

    /// An application has read bytes of a file from a place on: "exactly the stored bytes".
    pub(in crate::sim::applications) fn reads(
        &mut self,
        number: usize,
        from: u64,
        bytes: &[u8],
    ) -> Finding {
        self.read += bytes.len() as u64;
        let File { source, .. } = &self.all[number];
        let to = from + bytes.len() as u64;
        let is_within = to <= source.length;
        ensure(
            is_within && source.bytes(from, to) == bytes,
            "downloads are what was stored",
            || format!("{} bytes from {from} of file {number}, {source:?}", bytes.len()),
        )
    }

    /// Returns the number of a file, and judges whether it may have been found by a name.
    pub(in crate::sim::applications) fn found(
        &self,
        id: &Bson,
        name: Option<&str>,
    ) -> Result<usize, Violation> {
        let number = self.numbers.get(&id.to_string()).copied();
        let is_its = |number: &usize| name.is_none_or(|name| self.may_be_named(*number, name));
        let found = number.filter(is_its);
        ensure(found.is_some(), "downloads are of the file that was asked for", || {
            format!("{id} is found by {name:?}")
        })?;
        Ok(found.unwrap_or_default())
    }

    /// Returns the files whose upload has come to a certain end, in order.
    pub(in crate::sim::applications) fn known(&self) -> Vec<Known> {
        let is_certain = |file: &File| match file.fate {
            Fate::Acknowledged => true,
            Fate::Failed => !file.was_sent,
            _ => false,
        };
        self.listed(|file| is_certain(file) && !file.is_to_go)
    }

    /// Returns the files that are there in the end.
    pub(in crate::sim::applications) fn there(&self) -> Vec<Known> {
        self.listed(|file| file.document.is_some())
    }

    fn listed(&self, is_listed: impl Fn(&File) -> bool) -> Vec<Known> {
        let ids: BTreeMap<usize, &String> = self.numbers.iter().map(|(id, it)| (*it, id)).collect();
        let all = self.all.iter().enumerate().filter(|(_, file)| is_listed(file));
        let all = all.filter_map(|(number, file)| {
            let name = file.document.clone().unwrap_or_else(|| file.name.clone());
            let id = id_of(ids.get(&number)?)?;
            Some(Known { number, id, name, length: file.source.length })
        });
        all.collect()
    }

    /// Returns whether a file may have a name, by all that was to be renamed.
    fn may_be_named(&self, number: usize, name: &str) -> bool {
        let file = &self.all[number];
        let mut names: BTreeSet<&str> = file.renamed.iter().map(String::as_str).collect();
        names.insert(&file.name);
        loop {
            let before = names.len();
            let also = self.renamed_names.iter().filter(|(from, _)| names.contains(&**from));
            let also: Vec<&str> = also.map(|(_, to)| &**to).collect();
            names.extend(also);
            if names.len() == before {
                return names.contains(name);
            }
        }
    }

    /// Returns the file that an `_id` is of.
    fn number_of(&self, id: &Bson) -> Option<usize> {
        self.numbers.get(&id.to_string()).copied()
    }

    /// Returns the client of a file whose upload goes on, with what is known of that.
    pub(in crate::sim::applications) fn open(&self) -> Option<(usize, String)> {
        let open = self.all.iter().find(|file| file.fate == Fate::Open);
        open.map(|file| (file.client, format!("{file:?}")))
    }

    /// Returns the number of files that were acknowledged.
    pub(in crate::sim::applications) fn count(&self) -> u64 {
        self.all.iter().filter(|file| file.fate == Fate::Acknowledged).count() as u64
    }
}

/// Reads the text of an `_id`: a number, or an `ObjectId`.
fn id_of(text: &str) -> Option<Bson> {
    if let Ok(number) = text.parse::<i64>() {
        return Some(number.into());
    }
    let hex = text.split('"').nth(1)?;
    bson::oid::ObjectId::parse_str(hex).ok().map(Bson::ObjectId)
}

impl Files {
    /// Returns the place in the log up to which everything is known.
    pub(in crate::sim::applications) const fn until(&self) -> (i64, u64) {
        self.until
    }

    /// Takes the changes that a majority has since, and judges what is there after each.
    pub(in crate::sim::applications) fn learn(&mut self, committed: CommittedChanges) -> Found {
        if !committed.is_whole {
            let detail = format!("the log does not go back to {:?}", self.until);
            return Err((0, Violation::new("what a majority has lasts", detail)));
        }
        self.until = committed.until;
        for change in committed.changes {
            let CommittedChange { kind, namespace, id, document, .. } = change;
            let judged = match &*namespace {
                MEMBERS_FILES => self.file_changes(kind, id.as_ref(), document.as_ref()),
                MEMBERS_CHUNKS => self.chunk_changes(kind, id.as_ref(), document.as_ref()),
                _ => Ok(()),
            };
            judged.map_err(|violation| (0, violation))?;
        }
        Ok(())
    }

    fn file_changes(
        &mut self,
        kind: &str,
        id: Option<&Bson>,
        document: Option<&Document>,
    ) -> Finding {
        let number = id.and_then(|id| self.number_of(id));
        let Some(file) = number.and_then(|number| self.all.get_mut(number)) else {
            let is_of_none = kind == "insert";
            return ensure(!is_of_none, "files are those of uploads", || format!("{id:?}"));
        };
        let Some(document) = document else {
            file.document = None;
            return Ok(());
        };
        // Who deletes a file before its upload has succeeded may come before the document does, as
        // that is sent again to a primary that has never had it.
        let was_deleted = file.is_going && file.fate != Fate::Acknowledged;
        let is_whole = (0..file.source.chunks()).eq(file.chunks.keys().copied());
        ensure(is_whole || was_deleted, "no file is without its chunks", || {
            format!("{kind} of {file:?}")
        })?;
        let is_its = kind != "insert" || file.is_closing;
        ensure(is_its, "only what is closed is stored", || format!("{file:?}"))?;
        file.document = Some(document.get_str("filename").unwrap_or_default().to_owned());
        Ok(())
    }

    fn chunk_changes(
        &mut self,
        kind: &str,
        id: Option<&Bson>,
        document: Option<&Document>,
    ) -> Finding {
        let Some(id) = id.map(ToString::to_string) else { return Ok(()) };
        let is_insert = kind == "insert";
        let owner = match (document, is_insert) {
            (Some(document), true) => {
                let number = document.get("files_id").and_then(|id| self.number_of(id));
                number.zip(document.get_i32("n").ok().map(i64::from))
            }
            _ => self.owners.get(&id).copied(),
        };
        let Some((number, n)) = owner else {
            return ensure(false, "chunks are of a file", || format!("{kind} of {id}"));
        };
        self.owners.insert(id.clone(), (number, n));
        let file = &mut self.all[number];
        let is_free = file.document.is_none();
        ensure(is_free, "the chunks of a file that is stored stay", || {
            format!("{kind} of chunk {n} of {file:?}")
        })?;
        if !is_insert {
            file.chunks.remove(&n);
            return Ok(());
        }
        let bytes = document.and_then(|it| it.get_binary_generic("data").ok());
        let is_its = bytes.is_some_and(|bytes| file.source.is_chunk(n, bytes));
        ensure(is_its, "chunks are what was written", || format!("chunk {n} of {file:?}"))?;
        let is_new = file.chunks.insert(n, id).is_none();
        ensure(is_new, "each chunk is there once", || format!("chunk {n} of {file:?}"))
    }

    /// Judges what is there when everything has come to its end.
    pub(in crate::sim::applications) fn finish(&self) -> Found {
        for (number, file) in self.all.iter().enumerate() {
            let judged = self.judge_document(number, file).and_then(|()| self.judge_rest(file));
            judged.map_err(|violation| (file.client, violation))?;
        }
        Ok(())
    }

    fn judge_document(&self, number: usize, file: &File) -> Finding {
        let Some(name) = &file.document else {
            let is_missing = file.fate == Fate::Acknowledged && !file.is_going;
            return ensure(!is_missing, "what was acknowledged is there", || format!("{file:?}"));
        };
        ensure(!file.is_gone, "what was deleted is gone", || format!("{file:?}"))?;
        let may_be_there = matches!(file.fate, Fate::Acknowledged | Fate::Unknown);
        ensure(may_be_there, "what has failed, or was given up, is not stored", || {
            format!("{file:?}")
        })?;
        ensure(self.may_be_named(number, name), "files have the names that they were given", || {
            format!("{name} of {file:?}")
        })
    }

    /// Judges the chunks that are left without a file.
    fn judge_rest(&self, file: &File) -> Finding {
        let is_stored = file.document.is_some();
        let was_aborted = file.fate == Fate::Aborted && !file.inserts.is_empty();
        if is_stored || file.chunks.is_empty() && !was_aborted {
            return Ok(());
        }
        let Some(cleaned) = file.cleaned else {
            ensure(file.fate != Fate::Aborted, "what is aborted is removed", || {
                format!("{file:?}")
            })?;
            let Fate::Dropped { client, at } = file.fate else { return Ok(()) };
            let is_excused = file.is_contested
                || file.not_cleaned.is_some_and(|failed| failed >= at)
                || self.was_troubled(client, at, file.heard.max(at));
            return ensure(is_excused, "what is dropped is removed", || format!("{file:?}"));
        };
        // What was under way then, and has had no reply, may have come later; and so may a batch of
        // a stream that was left for another one.
        let may_be_left = file.lives > 1 || file.fate == Fate::Failed;
        let may_come = |id: &String| {
            file.inserts.get(id).is_some_and(|insert| {
                let is_later = insert.answered.is_none_or(|at| at > cleaned);
                insert.is_lost || may_be_left && is_later
            })
        };
        let left = file.chunks.iter().find(|(_, id)| !may_come(id));
        let is_removed = matches!(file.fate, Fate::Aborted | Fate::Dropped { .. }) || file.is_gone;
        ensure(!is_removed || left.is_none(), "what is removed is gone", || {
            format!("chunk {left:?} of {file:?}")
        })
    }

    /// Returns whether a client may have had no server or no connection while it was to remove
    /// chunks.
    fn was_troubled(&self, client: usize, from: Instant, landed: Instant) -> bool {
        let until = landed + CLEANING;
        let troubles = self.troubles.get(&client).into_iter().flatten();
        troubles.into_iter().any(|(begun, ended)| *begun <= until && *ended >= from)
    }
}

#[cfg(test)]
mod tests;
