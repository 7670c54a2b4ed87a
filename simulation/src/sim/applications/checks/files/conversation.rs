//! The commands of files, in order, with what they carry.

use std::time::Duration;

use bson::spec::BinarySubtype;
use bson::{Bson, RawBsonRef, RawDocument, RawDocumentBuf};
use sdam_core::bson;
use sdam_core::time::Instant;

use super::super::super::conversation::{Command, Reply, integer, text_of};
use super::{CHUNKS, FILES, File, Files, Finding, ensure};
use crate::sim::tap::Line;

/// The time that a command has taken for whose connection others may wait.
const LONG: Duration = Duration::from_secs(2);

/// The time that a client may have waited for a connection which it does not use.
const ESTABLISHING: Duration = Duration::from_secs(40);

/// A removal of chunks, or of documents of files.
struct Removal {
    /// The uploads under each `_id` that it names.
    uploads: Vec<Vec<usize>>,
    /// The number of the first chunk that is removed, if not all are.
    from: Option<i64>,
}

/// A chunk of a command.
struct Chunk<'a> {
    number: usize,
    n: i64,
    id: String,
    bytes: &'a [u8],
}

/// Returns the collection that a command is of.
fn collection(command: &Command) -> Option<&str> {
    command.body.get_str(&*command.name).ok()
}

/// Returns the documents of a field, in the body or behind it.
fn documents(command: &Command, field: &str) -> Vec<RawDocumentBuf> {
    let within = command.body.get_array(field).into_iter().flatten();
    let within = within.filter_map(|it| Some(it.ok()?.as_document()?.to_owned()));
    let behind = command.documents.iter().filter(|(name, _)| name == field);
    within.chain(behind.map(|(_, document)| document.clone())).collect()
}

fn owned(value: RawBsonRef<'_>) -> Option<Bson> {
    value.try_into().ok()
}

/// Returns the values that a filter allows for a field.
fn values(filter: &RawDocument, field: &str) -> Vec<Bson> {
    let Ok(Some(value)) = filter.get(field) else { return Vec::new() };
    let Some(condition) = value.as_document() else { return owned(value).into_iter().collect() };
    if let Ok(all) = condition.get_array("$in") {
        return all.into_iter().filter_map(|it| owned(it.ok()?)).collect();
    }
    condition.get("$eq").ok().flatten().and_then(owned).into_iter().collect()
}

/// Returns whether a write was carried out and acknowledged, as far as it is no insertion.
fn is_done(reply: &Reply) -> bool {
    let has = |field: &str| reply.body.get(field).is_ok_and(|it| it.is_some());
    reply.is_ok() && !has("writeErrors") && !has("writeConcernError")
}

/// Returns whether a search of chunks asks whose they are, and not for their bytes.
fn asks_whose(command: &Command) -> bool {
    let shown = command.body.get_document("projection");
    shown.is_ok_and(|it| it.get("_id").is_ok_and(|id| id == Some(RawBsonRef::Int32(1))))
}

/// Returns the `_id` of each document that a search has found; `None` if it has failed.
fn found(reply: &Reply) -> Option<Vec<String>> {
    let batch = reply.body.get_document("cursor").ok()?.get_array("firstBatch").ok()?;
    let id = |it: RawBsonRef<'_>| owned(it.as_document()?.get("_id").ok()??);
    let ids = batch.into_iter().filter_map(|it| Some(id(it.ok()?)?.to_string()));
    reply.is_ok().then(|| ids.collect())
}

impl Files {
    /// Reads a chunk.
    fn chunk<'a>(&self, document: &'a RawDocument) -> Option<Chunk<'a>> {
        let files_id = owned(document.get("files_id").ok()??)?;
        let n = integer(document, bson::raw::cstr!("n"))?;
        let data = document.get_binary("data").ok()?;
        let number = self.writer_of(&files_id, n, data.bytes)?;
        let id = owned(document.get("_id").ok()??)?.to_string();
        (data.subtype == BinarySubtype::Generic).then_some(Chunk {
            number,
            n,
            id,
            bytes: data.bytes,
        })
    }

    /// Returns the upload that a document is of: that which it describes, or else the first one.
    fn described(&self, document: &RawDocument) -> Option<usize> {
        let id = document.get("_id").ok().flatten().and_then(owned)?;
        let is_of = |number: &&usize| {
            document.get_str("filename").is_ok_and(|name| name == self.all[**number].name)
        };
        let all = self.candidates(&id);
        all.iter().find(is_of).or(all.first()).copied()
    }

    /// Returns the files that a deletion is of.
    fn removal(&self, command: &Command, field: &str) -> Removal {
        let mut removal = Removal { uploads: Vec::new(), from: None };
        for statement in documents(command, "deletes") {
            let Ok(filter) = statement.get_document("q") else { continue };
            let ids = values(filter, field);
            removal.uploads.extend(ids.iter().map(|id| self.candidates(id).to_vec()));
            let from = filter.get_document("n").ok();
            removal.from = from.and_then(|it| integer(it, bson::raw::cstr!("$gte")));
        }
        removal
    }

    /// A command is sent.
    pub(in super::super) fn sent(&mut self, command: &Command) -> Finding {
        match (command.name.as_str(), collection(command)) {
            ("insert", Some(CHUNKS)) => self.inserts_chunks(command),
            ("insert", Some(FILES)) => {
                let all = documents(command, "documents");
                all.iter().try_for_each(|document| self.inserts_file(command, document))
            }
            ("delete", Some(FILES)) => self.deletes_files(command),
            ("delete", Some(CHUNKS)) => self.deletes_chunks(command),
            _ => Ok(()),
        }
    }

    /// "All chunks except the last one must be exactly 'chunkSizeBytes' long" (GridFS, "File
    /// Upload"), and no more batches are under way than the application allows.
    fn inserts_chunks(&mut self, command: &Command) -> Finding {
        let mut first = None;
        for document in documents(command, "documents") {
            let Some(chunk) = self.chunk(&document) else {
                return ensure(false, "chunks are of a file", || text_of(&command.body));
            };
            let Chunk { number, n, id, bytes } = chunk;
            let file = &mut self.all[number];
            ensure(file.source.is_chunk(n, bytes), "chunks are what was written", || {
                format!("chunk {n} of {} bytes, of {file:?}", bytes.len())
            })?;
            file.inserts.entry(id).or_default();
            first.get_or_insert((number, n));
        }
        let Some((number, n)) = first else { return Ok(()) };
        let file = &mut self.all[number];
        *file.under_way.entry(n).or_default() += 1;
        let is_few = file.under_way.len() <= file.in_flight;
        ensure(is_few, "as many batches are under way as may be", || format!("{file:?}"))
    }

    /// "the files collection document" is inserted last, "after all the chunks have been uploaded".
    fn inserts_file(&mut self, command: &Command, document: &RawDocument) -> Finding {
        let Some(number) = self.described(document) else {
            return ensure(false, "files are those of uploads", || text_of(document));
        };
        let file = &mut self.all[number];
        file.was_sent = true;
        let said = |file: &File| format!("{} of {file:?}", text_of(document));
        ensure(file.is_closing, "only what is closed is stored", || said(file))?;
        let is_whole = file.is_whole() && (file.under_way.is_empty() || file.lives > 1);
        ensure(is_whole, "a file is stored once all chunks are acknowledged", || said(file))?;
        let source = &file.source;
        let is = |field, expected: u64| integer(document, field) == i64::try_from(expected).ok();
        let is_as_written = is(bson::raw::cstr!("length"), source.length)
            && is(bson::raw::cstr!("chunkSize"), source.chunk_size)
            && document.get_str("filename").is_ok_and(|name| name == file.name);
        ensure(is_as_written, "the document says what was written", || said(file))?;
        let is_within = file.is_in_transaction == command.is_of_transaction();
        ensure(is_within, "a file is in the transaction that it was closed in", || said(file))
    }

    /// Only what is to be deleted is.
    fn deletes_files(&mut self, command: &Command) -> Finding {
        for uploads in self.removal(command, "_id").uploads {
            // A rival has no document that could be meant.
            for number in uploads {
                if self.all[number].is_rival {
                    continue;
                }
                let by_name = self.deleted_names.iter().any(|name| self.may_be_named(number, name));
                let file = &mut self.all[number];
                file.is_going = true;
                ensure(by_name || file.is_to_go, "only what is to be deleted is", || {
                    format!("{} of {file:?}", text_of(&command.body))
                })?;
            }
        }
        Ok(())
    }

    /// "delete the files collection document [..] before deleting the chunks" (GridFS, "File
    /// Deletion"); chunks of an upload are removed if it is not stored.
    fn deletes_chunks(&mut self, command: &Command) -> Finding {
        let Removal { uploads, from } = self.removal(command, "files_id");
        for uploads in uploads {
            if let [only] = uploads[..] {
                let (file, said) = (&self.all[only], || text_of(&command.body));
                let is_right = file.are_chunks_free(from);
                ensure(is_right, "chunks go after the document of their file", || {
                    format!("{} of {file:?}", said())
                })?;
                let is_kept = "what was acknowledged is kept for another stream";
                ensure(file.are_chunks_unused(from), is_kept, || {
                    format!("{} of {file:?}", said())
                })?;
            } else {
                self.deletes_shared(command, (&uploads, from))?;
            }
            for number in uploads.into_iter().filter(|_| from.is_none_or(|from| from == 0)) {
                self.all[number].removed = Some(command.at);
            }
        }
        Ok(())
    }

    /// Chunks under the `_id` of several uploads are removed by one of them while no other one has
    /// the first chunk, or with the file that was deleted.
    fn deletes_shared(&self, command: &Command, removal: (&[usize], Option<i64>)) -> Finding {
        let (uploads, from) = removal;
        let all = || uploads.iter().map(|number| &self.all[*number]);
        let is_deleted = from.is_none() && all().any(|it| it.is_gone);
        let may_remove = |file: &File| {
            let is_its_client = file.client == command.line.client || file.lives > 1;
            (is_its_client || file.is_gone) && file.may_remove(from)
        };
        let mut removers = uploads.iter().filter(|it| may_remove(&self.all[**it]));
        let is_right = removers.any(|remover| {
            let mut others = uploads.iter().filter(|it| *it != remover);
            !others.any(|it| self.all[*it].has_first_chunk())
        });
        ensure(is_deleted || is_right, "the chunks of another upload stay", || {
            format!("{} of {:?}", text_of(&command.body), all().collect::<Vec<_>>())
        })
    }

    pub(in super::super) fn replied(&mut self, command: &Command, reply: &Reply) {
        self.takes_long(command, reply.at);
        match (command.name.as_str(), collection(command)) {
            ("insert", Some(CHUNKS)) => self.chunks_answered(command, reply),
            ("insert", Some(FILES)) if is_done(reply) && !command.is_of_transaction() => {
                for document in documents(command, "documents") {
                    if let Some(number) = self.described(&document) {
                        self.all[number].is_stored = true;
                    }
                }
            }
            ("delete", Some(FILES)) if is_done(reply) => {
                for number in self.removal(command, "_id").uploads.into_iter().flatten() {
                    let file = &mut self.all[number];
                    file.is_gone |= file.is_going;
                }
            }
            ("delete", Some(CHUNKS)) if is_done(reply) => self.is_cleaned(command),
            ("delete", Some(CHUNKS)) => self.is_not_cleaned(command, reply.at),
            ("find", Some(FILES)) if !reply.is_ok() => self.is_not_cleaned(command, reply.at),
            ("find", Some(CHUNKS)) if asks_whose(command) => match found(reply).as_deref() {
                Some([]) => self.is_cleaned(command),
                Some([first, ..]) => self.is_first_chunk(command, first),
                None => self.is_not_cleaned(command, reply.at),
            },
            _ => {}
        }
    }

    fn chunks_answered(&mut self, command: &Command, reply: &Reply) {
        let errors = reply.body.get_array("writeErrors").into_iter().flatten();
        let errors = errors.filter_map(|it| Some(it.ok()?.as_document()?.to_owned()));
        let errors: Vec<RawDocumentBuf> = errors.collect();
        let index = |error: &RawDocumentBuf| integer(error, bson::raw::cstr!("index"));
        // Those behind the first error of an ordered bulk are not tried.
        let tried = errors.iter().filter_map(index).min().unwrap_or(i64::MAX);
        let is_duplicate =
            errors.iter().any(|it| it.get_i32("code").is_ok_and(|code| code == 11_000));
        let is_late = reply.body.get("writeConcernError").is_ok_and(|it| it.is_some());
        let is_acknowledged = reply.is_ok() && !is_late;
        let mut first = None;
        for (at, document) in (0..).zip(documents(command, "documents")) {
            let Some(Chunk { number, n, id, .. }) = self.chunk(&document) else { continue };
            let file = &mut self.all[number];
            let insert = file.inserts.entry(id).or_default();
            insert.answered.get_or_insert(reply.at);
            insert.answered_last = Some(reply.at);
            file.is_contested |= is_duplicate;
            if is_acknowledged && at < tried {
                file.acknowledged.insert(n);
                file.began = file.began.max((n == 0).then_some(reply.at));
            }
            first.get_or_insert((number, n));
        }
        self.has_landed(first, reply.at);
    }

    /// A command has no reply. An upload that is dropped or aborted waits for its batches before it
    /// removes chunks, and cancels none.
    pub(in super::super) fn lost(&mut self, now: Instant, command: &Command) -> Finding {
        self.takes_long(command, now);
        match (command.name.as_str(), collection(command)) {
            ("insert", Some(CHUNKS)) => {
                let mut first = None;
                for document in documents(command, "documents") {
                    let Some(Chunk { number, n, id, .. }) = self.chunk(&document) else { continue };
                    self.all[number].inserts.entry(id).or_default().is_lost = true;
                    first.get_or_insert((number, n));
                }
                self.has_landed(first, now);
                let file = first.map(|(number, _)| &self.all[number]);
                // That of an upload whose time is over may be lost then.
                let is_given_up =
                    file.is_some_and(|file| file.given_up == Some(now) && !file.is_limited);
                return ensure(!is_given_up, "batches under way are waited for", || {
                    format!("{file:?}")
                });
            }
            ("delete", Some(CHUNKS)) | ("find", Some(FILES)) => self.is_not_cleaned(command, now),
            ("find", Some(CHUNKS)) if asks_whose(command) => self.is_not_cleaned(command, now),
            _ => {}
        }
        Ok(())
    }

    /// A client has closed a connection that it could not use.
    pub(in super::super) fn unused(&mut self, now: Instant, line: Line) {
        let from = Instant::ZERO + now.since_origin().saturating_sub(ESTABLISHING);
        self.is_troubled(line.client, (from, now));
    }

    /// Notes that others may have waited for the connection of a command.
    fn takes_long(&mut self, command: &Command, now: Instant) {
        if now - command.at >= LONG {
            self.is_troubled(command.line.client, (command.at, now));
        }
    }

    /// A batch is under way no more.
    fn has_landed(&mut self, first: Option<(usize, i64)>, now: Instant) {
        let Some((number, n)) = first else { return };
        let file = &mut self.all[number];
        file.heard = now;
        let left = file.under_way.get(&n).map_or(0, |count| count.saturating_sub(1));
        match left {
            0 => drop(file.under_way.remove(&n)),
            _ => drop(file.under_way.insert(n, left)),
        }
    }

    /// A client has closed a connection at the very time of a reply, which it may not have read.
    pub(in super::super) fn unread(&mut self, now: Instant, command: &Command) {
        match (command.name.as_str(), collection(command)) {
            ("delete", Some(CHUNKS)) | ("find", Some(FILES | CHUNKS)) => {
                self.is_not_cleaned(command, now);
            }
            _ => {}
        }
    }

    /// Returns the files that a part of a removal is of.
    fn to_be_cleaned(&self, command: &Command) -> Vec<usize> {
        let mut numbers = self.removal(command, "files_id").uploads.concat();
        if let Ok(filter) = command.body.get_document("filter") {
            let ids = ["_id", "files_id"].map(|field| values(filter, field)).concat();
            numbers.extend(ids.iter().flat_map(|id| self.candidates(id)));
        }
        numbers
    }

    /// The first chunk under an `_id` is this one.
    fn is_first_chunk(&mut self, command: &Command, chunk: &str) {
        for number in self.to_be_cleaned(command) {
            let file = &mut self.all[number];
            file.has_met_another |= !file.has_first_chunk() && !file.inserts.contains_key(chunk);
        }
    }

    /// The chunks are removed, or there are none; those before a checkpoint stay.
    fn is_cleaned(&mut self, command: &Command) {
        if self.removal(command, "files_id").from.is_some() {
            return;
        }
        for number in self.to_be_cleaned(command) {
            let file = &mut self.all[number];
            file.cleaned = file.cleaned.max(Some(command.at));
        }
    }

    /// The removal of chunks has failed, or the question whether there is a file, or whose the
    /// chunks are.
    fn is_not_cleaned(&mut self, command: &Command, now: Instant) {
        for number in self.to_be_cleaned(command) {
            self.all[number].not_cleaned = Some(now);
        }
    }
}
