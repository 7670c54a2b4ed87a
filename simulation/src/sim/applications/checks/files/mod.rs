//! A file is stored after its chunks and removed before them, with the bytes that were written, and
//! is there if that was acknowledged, whatever has failed.
//!
//! - [`conversation`]: the order of commands, and what they carry.
//! - [`failure`]: an abort fails for a reason.
//! - [`file`]: one file, from the beginning of its upload.
//! - Here: the files that a majority of the members has. Each is there with all of its chunks at
//!   any time, and in the end those that were acknowledged are there, and nothing else is.

mod conversation;
mod failure;
mod file;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bson::{Bson, Document};
use sdam_cluster::{CommittedChange, CommittedChanges};
use sdam_core::bson;
use sdam_core::time::Instant;

use super::{Finding, ensure};
use crate::sim::checks::Violation;

pub(in crate::sim::applications) use failure::FailedAbort;
pub(in crate::sim::applications) use file::{Fate, Source};

use file::File;

/// The collections of the bucket, in their database.
const FILES: &str = "fs.files";
const CHUNKS: &str = "fs.chunks";

/// The collections of the bucket, as members name them.
const MEMBERS_FILES: &str = "d.fs.files";
const MEMBERS_CHUNKS: &str = "d.fs.chunks";

type Found = Result<(), (usize, Violation)>;

/// The time in which the chunks of an upload that was dropped are removed, and more.
const CLEANING: Duration = Duration::from_secs(20);

/// All files.
#[derive(Debug, Default)]
pub(in crate::sim::applications) struct Files {
    all: Vec<File>,
    /// The numbers of files by the text of their `_id`, behind each those of its rivals.
    numbers: BTreeMap<String, Vec<usize>>,
    /// The files whose chunks a majority has had, by the text of the chunks' `_id`.
    owners: BTreeMap<String, (usize, i64)>,
    /// The names all of whose files were to be deleted.
    deleted_names: BTreeSet<String>,
    /// The names all of whose files were to have another one, with that.
    renamed_names: Vec<(String, String)>,
    /// The times in which a client may have had no server.
    troubles: BTreeMap<usize, Vec<(Instant, Instant)>>,
    /// The aborts that have failed, and whose reasons are to be looked for.
    failed_aborts: Vec<FailedAbort>,
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

    /// An upload begins under the `_id` of another one; returns its number.
    pub(in crate::sim::applications) fn begin_rival(
        &mut self,
        of: usize,
        id: &Bson,
        (client, source): (usize, Source),
        (name, in_flight): (&str, usize),
    ) -> usize {
        let number = self.begin(client, source, name, in_flight);
        (self.all[number].is_rival, self.all[number].rivals) = (true, vec![of]);
        self.all[of].rivals.push(number);
        self.is_named(number, id);
        number
    }

    /// The time of an upload has a limit.
    pub(in crate::sim::applications) fn limits(&mut self, number: usize) {
        self.all[number].is_limited = true;
    }

    /// A file has its `_id`.
    pub(in crate::sim::applications) fn is_named(&mut self, number: usize, id: &Bson) {
        self.numbers.entry(id.to_string()).or_default().push(number);
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

    /// A stream cannot go on with a file, as that is stored.
    pub(in crate::sim::applications) fn is_said_to_be_stored(&self, number: usize) -> Finding {
        let file = &self.all[number];
        ensure(file.was_sent, "what is said to be stored was sent", || format!("{file:?}"))
    }

    /// A stream is to be closed, in a transaction or alone.
    pub(in crate::sim::applications) fn closes(&mut self, number: usize, in_transaction: bool) {
        let file = &mut self.all[number];
        file.is_closing = true;
        file.is_in_transaction |= in_transaction;
    }

    /// An upload has come to an end.
    pub(in crate::sim::applications) fn ends(&mut self, number: usize, fate: Fate) -> Finding {
        if let Fate::Dropped { at, .. } = fate {
            self.is_given_up(number, at);
        }
        let file = &mut self.all[number];
        file.fate = fate;
        let is_stored = file.is_stored || file.is_in_transaction;
        let holds = fate != Fate::Acknowledged || is_stored;
        ensure(holds, "what is acknowledged was stored", || format!("{file:?}"))
    }

    /// An upload is dropped, or an error has ended it, while it was to be closed: its document may
    /// be on its way.
    pub(in crate::sim::applications) fn ends_in_doubt(&mut self, number: usize, otherwise: Fate) {
        if let Fate::Dropped { at, .. } = otherwise {
            self.is_given_up(number, at);
        }
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

    /// An upload may be dropped or aborted from now on, wherever it is.
    pub(in crate::sim::applications) fn may_be_given_up(&mut self, number: usize) {
        self.all[number].may_be_given_up = true;
    }

    /// An upload is dropped or aborted.
    pub(in crate::sim::applications) fn is_given_up(&mut self, number: usize, at: Instant) {
        let file = &mut self.all[number];
        file.may_be_given_up = true;
        let goes_on = file.fate == Fate::Open && file.lives == 1;
        file.given_up = file.given_up.or(goes_on.then_some(at));
    }

    /// An upload is to be aborted: no other stream goes on with it.
    pub(in crate::sim::applications) fn aborts(&mut self, number: usize) {
        let file = &mut self.all[number];
        (file.is_kept, file.may_be_given_up) = (false, true);
    }

    /// An abort has failed; "its chunks are in use" is judged by what is known by now.
    pub(in crate::sim::applications) fn fails_to_abort(&mut self, failed: FailedAbort) -> Finding {
        let file = &self.all[failed.number];
        let may_have_chunks = |it: &File| it.source.length > 0 || file.inserts.is_empty();
        let was_sent_of = |it: &File| it.was_sent && may_have_chunks(it);
        let was_sent = was_sent_of(file) || self.rivals_of(file).any(was_sent_of);
        failed.judge_refusal(file, was_sent)?;
        self.failed_aborts.push(failed);
        Ok(())
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
        let number = self.number_of(id);
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
        self.listed(|file| is_certain(file) && !file.is_to_go && !file.is_rival)
    }

    /// Returns whether a file may have more chunks than its length says: a batch of another upload
    /// under its `_id` has come late.
    pub(in crate::sim::applications) fn has_more_chunks(&self, number: usize) -> bool {
        let file = &self.all[number];
        file.source.length > 0 && self.rivals_of(file).any(|rival| !rival.chunks.is_empty())
    }

    /// Returns the files that are there in the end.
    pub(in crate::sim::applications) fn there(&self) -> Vec<Known> {
        self.listed(|file| file.document.is_some())
    }

    fn listed(&self, is_listed: impl Fn(&File) -> bool) -> Vec<Known> {
        let named = self.numbers.iter();
        let ids: BTreeMap<usize, &String> =
            named.flat_map(|(id, all)| all.iter().map(move |number| (*number, id))).collect();
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

    /// Returns the uploads under an `_id`, that of the file first.
    fn candidates(&self, id: &Bson) -> &[usize] {
        self.numbers.get(&id.to_string()).map_or(&[], Vec::as_slice)
    }

    /// Returns the file that an `_id` is of.
    fn number_of(&self, id: &Bson) -> Option<usize> {
        self.candidates(id).first().copied()
    }

    /// Returns the upload under an `_id` that has a chunk: the contents of two differ in each.
    fn writer_of(&self, id: &Bson, n: i64, bytes: &[u8]) -> Option<usize> {
        let all = self.candidates(id);
        let is_its =
            |number: &&usize| all.len() > 1 && self.all[**number].source.is_chunk(n, bytes);
        all.iter().find(is_its).or(all.first()).copied()
    }

    /// Returns the other uploads under the `_id` of one.
    fn rivals_of<'a>(&'a self, file: &'a File) -> impl Iterator<Item = &'a File> {
        file.rivals.iter().map(|number| &self.all[*number])
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
                let n = document.get_i32("n").ok().map(i64::from);
                let bytes = document.get_binary_generic("data").map_or(&[][..], Vec::as_slice);
                let of = document.get("files_id").zip(n);
                of.and_then(|(id, n)| self.writer_of(id, n, bytes)).zip(n)
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
        for failed in &self.failed_aborts {
            let was_troubled = self.was_troubled(failed.client, failed.from, failed.to);
            let judged = failed.judge(&self.all[failed.number], was_troubled);
            judged.map_err(|violation| (failed.client, violation))?;
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
        if is_stored {
            let mut rivals = self.rivals_of(file).filter(|_| file.source.length > 0);
            let other = rivals.find(|rival| rival.is_beside_a_file());
            return ensure(other.is_none(), "a file has no chunks of another upload", || {
                format!("{other:?} beside {file:?}")
            });
        }
        if file.chunks.is_empty() && !was_aborted {
            return Ok(());
        }
        let left = file.cleaned.and_then(|cleaned| file.left(cleaned));
        let is_removed = matches!(file.fate, Fate::Aborted | Fate::Dropped { .. }) || file.is_gone;
        if file.cleaned.is_some() && !left.is_some_and(|(_, has_come_since)| has_come_since) {
            return ensure(!is_removed || left.is_none(), "what is removed is gone", || {
                format!("chunk {left:?} of {file:?}")
            });
        }
        ensure(file.fate != Fate::Aborted, "what is aborted is removed", || format!("{file:?}"))?;
        let Fate::Dropped { client, at } = file.fate else { return Ok(()) };
        let is_excused = file.is_contested
            || file.has_met_another
            || self.rivals_of(file).any(|it| it.was_sent && it.source.length > 0)
            || file.not_cleaned.is_some_and(|failed| failed >= at)
            || self.was_troubled(client, at, file.heard.max(at) + CLEANING);
        ensure(is_excused, "what is dropped is removed", || format!("{file:?}"))
    }

    /// Returns whether a client may have had no server or no connection in this time.
    fn was_troubled(&self, client: usize, from: Instant, until: Instant) -> bool {
        let troubles = self.troubles.get(&client).into_iter().flatten();
        troubles.into_iter().any(|(begun, ended)| *begun <= until && *ended >= from)
    }
}

#[cfg(test)]
mod tests;
