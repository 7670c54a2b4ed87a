//! The steps of a look at a bucket, over one connection.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sdam_core::bson::oid::ObjectId;
use sdam_core::bson::spec::BinarySubtype;
use sdam_core::bson::{Bson, RawBinaryRef, RawBson, RawBsonRef, RawDocument, RawDocumentBuf, cstr};
use sdam_host::{Error, Reply};
use sdam_tokio::CheckedOut;
use tokio::time::timeout;

use super::commands::{self, FILES, batch, cursor};
use super::tally::{Described, SECOND_LENGTH, Tally, whole};
use super::{Bucket, Means};
use crate::doctor::evidence::{
    BucketEnd, BucketSeen, DamagedFile, FileFault, IndexFault, MAX_DESCRIBED, NotRemoved, Orphan,
};
use crate::doctor::probe::way;
use crate::duration::rfc_3339;
use crate::text::shortened;

/// The codes by which servers refuse what a user may not do, have no such collection, and have had
/// no more time.
const UNAUTHORIZED: i32 = 13;
const NAMESPACE_NOT_FOUND: i32 = 26;
const MAX_TIME_EXPIRED: i32 = 50;

/// The time in which a majority of the members is to have removed what the primary has.
const REPLICATED_WITHIN: Duration = Duration::from_secs(10);

/// The longest text of an `_id` or a name, in characters.
const MAX_TEXT: usize = 200;

/// A look at a bucket.
pub(super) struct Looking<'a> {
    connection: CheckedOut,
    means: &'a Means,
    bucket: &'a Bucket,
    files: String,
    chunks: String,
    seen: BucketSeen,
    note: &'a (dyn Fn(&BucketSeen) + Sync),
    /// True if chunks have the index on their files and numbers.
    has_index: bool,
    /// True if there is the document of a file, as far as is known.
    has_files: bool,
    /// The time from which on chunks may be of an upload under way, in seconds since 1970.
    recent: u32,
}

/// The outcome of a removal.
enum Removal {
    /// So many chunks are gone.
    Done(u64),
    /// There is a file now, or new chunks.
    Alive,
    /// It was refused.
    Refused,
}

impl<'a> Looking<'a> {
    pub(super) fn new(
        connection: CheckedOut,
        means: &'a Means,
        bucket: &'a Bucket,
        seen: BucketSeen,
        note: &'a (dyn Fn(&BucketSeen) + Sync),
    ) -> Self {
        let (files, chunks) = (format!("{}.files", bucket.name), format!("{}.chunks", bucket.name));
        let (has_index, has_files, recent) = (false, true, 0);
        Self { connection, means, bucket, files, chunks, seen, note, has_index, has_files, recent }
    }

    /// Returns what was seen.
    pub(super) fn seen(self) -> BucketSeen {
        self.seen
    }

    /// Looks at everything.
    pub(super) async fn all(&mut self) -> Result<(), BucketEnd> {
        let (files, chunks) = (self.files.clone(), self.chunks.clone());
        let of_files = self.indexes(&files).await?;
        let of_chunks = self.indexes(&chunks).await?;
        if of_files.is_none() && of_chunks.is_none() {
            return Err(BucketEnd::Missing);
        }
        if let Some(indexes) = of_files {
            let fault = IndexFault {
                collection: files,
                keys: "{ filename: 1, uploadDate: 1 }",
                unique: false,
                is_there: false,
            };
            self.judge_index(&indexes, ["filename", "uploadDate"], fault);
        }
        if let Some(indexes) = of_chunks {
            let fault = IndexFault {
                collection: chunks,
                keys: "{ files_id: 1, n: 1 }",
                unique: true,
                is_there: false,
            };
            self.has_index = self.judge_index(&indexes, ["files_id", "n"], fault);
        }
        self.recent = self.now().await?.saturating_sub(seconds(self.bucket.grace));
        if self.bucket.removes {
            let any = commands::any(&self.files);
            self.has_files = !batch(&self.run("find", &any).await?).is_empty();
        }
        self.look_at_chunks().await?;
        self.look_at_files().await
    }

    /// Runs a command within the time that is left.
    async fn run(&mut self, name: &'static str, command: &RawDocument) -> Result<Reply, BucketEnd> {
        self.answered(command).await?.map_err(|error| failed(name, &error))
    }

    /// Runs a command within the time that is left, which may be answered with an error.
    async fn answered(&mut self, command: &RawDocument) -> Result<Result<Reply, Error>, BucketEnd> {
        let left = self.means.left();
        match timeout(left, self.connection.command(&self.bucket.database, command)).await {
            Ok(outcome) => Ok(outcome),
            Err(_) => Err(BucketEnd::Late),
        }
    }

    /// Has the server stop, too, when time is over.
    fn limited(&self, mut command: RawDocumentBuf) -> RawDocumentBuf {
        let left = i64::try_from(self.means.left().as_millis()).unwrap_or(i64::MAX);
        command.append(cstr!("maxTimeMS"), left.clamp(1, i64::from(i32::MAX)));
        command
    }

    /// Hands each document of a search or an aggregation over, batch by batch.
    async fn each(
        &mut self,
        (name, command, collection): (&'static str, RawDocumentBuf, &str),
        mut take: impl FnMut(&RawDocument),
    ) -> Result<(), BucketEnd> {
        let command = self.limited(command);
        let mut reply = self.run(name, &command).await?;
        loop {
            batch(&reply).into_iter().for_each(&mut take);
            let Some(cursor) = cursor(&reply) else { return Ok(()) };
            reply = self.run("getMore", &commands::get_more(cursor, collection)).await?;
        }
    }

    /// Returns the indexes of a collection, unless there is no such collection.
    async fn indexes(
        &mut self,
        collection: &str,
    ) -> Result<Option<Vec<RawDocumentBuf>>, BucketEnd> {
        let reply = match self.answered(&commands::list_indexes(collection)).await? {
            Ok(reply) => reply,
            Err(error) if code(&error) == Some(NAMESPACE_NOT_FOUND) => return Ok(None),
            Err(error) => return Err(failed("listIndexes", &error)),
        };
        // A collection has 64 of them, and a first batch 101.
        Ok(Some(batch(&reply).into_iter().map(RawDocument::to_owned).collect()))
    }

    /// Notes the index that is missing or of another kind; returns whether there is one of its
    /// keys.
    fn judge_index(
        &mut self,
        indexes: &[RawDocumentBuf],
        keys: [&str; 2],
        fault: IndexFault,
    ) -> bool {
        let index = indexes.iter().find(|index| has_keys(index, keys));
        let is_unique = index.is_some_and(|index| index.get_bool("unique").unwrap_or(false));
        let is_there = index.is_some();
        if !is_there || (fault.unique && !is_unique) {
            self.seen.indexes.push(IndexFault { is_there, ..fault });
        }
        is_there
    }

    /// Returns the time in seconds since 1970: the earlier one of the server's clock and this one,
    /// so that nothing is taken for older than it is.
    async fn now(&mut self) -> Result<u32, BucketEnd> {
        let here = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let hello = way::plain_hello(self.means);
        let reply = self.run("hello", &hello).await?;
        let there = reply.get_datetime("localTime").ok().map(|it| it.timestamp_millis() / 1000);
        let there = there.and_then(|it| u32::try_from(it).ok()).unwrap_or(u32::MAX);
        Ok(seconds(here).min(there))
    }

    /// Looks at all chunks, file by file.
    async fn look_at_chunks(&mut self) -> Result<(), BucketEnd> {
        let how = (self.has_index, self.seen.has_lengths);
        let command = self.limited(commands::chunks(&self.chunks, None, how));
        let mut reply = self.run("aggregate", &command).await?;
        let (mut ended, mut current) = (Vec::new(), None::<Tally>);
        loop {
            for chunk in batch(&reply) {
                self.seen.chunks += 1;
                ended.extend(count(&mut current, chunk));
            }
            let more = cursor(&reply);
            if more.is_none() {
                ended.extend(current.take());
            }
            if more.is_none() || ended.len() >= FILES {
                for tallies in std::mem::take(&mut ended).chunks(FILES) {
                    self.join(tallies).await?;
                }
            }
            (self.note)(&self.seen);
            let Some(cursor) = more else { return Ok(()) };
            let command = commands::get_more(cursor, &self.chunks);
            reply = self.run("getMore", &command).await?;
        }
    }

    /// Holds chunks against the documents of their files.
    async fn join(&mut self, tallies: &[Tally]) -> Result<(), BucketEnd> {
        let ids = tallies.iter().map(|it| it.id.clone()).filter(can_be_id);
        let documents = self.documents(&ids.collect::<Vec<_>>()).await?;
        for tally in tallies {
            match documents.get(&key(tally.id.as_raw_bson_ref())) {
                Some(file) if tally.faults(file).is_empty() => {}
                Some(_) => self.damaged(&tally.id).await?,
                None => self.orphaned(tally).await?,
            }
        }
        Ok(())
    }

    /// Returns the documents of files, by the keys of their `_id`s.
    async fn documents(
        &mut self,
        ids: &[RawBson],
    ) -> Result<BTreeMap<Vec<u8>, RawDocumentBuf>, BucketEnd> {
        let (files, mut documents) = (self.files.clone(), BTreeMap::new());
        if ids.is_empty() {
            return Ok(documents);
        }
        let find = ("find", commands::files(&files, Some(ids)), &*files);
        self.each(find, |file| {
            documents.insert(key(field(file, "_id")), file.to_owned());
        })
        .await?;
        Ok(documents)
    }

    /// Looks once more at a file of which something seems wrong: it may have been stored or deleted
    /// meanwhile.
    async fn damaged(&mut self, id: &RawBson) -> Result<(), BucketEnd> {
        if self.seen.damaged.len() >= MAX_DESCRIBED {
            self.seen.damaged_files += 1;
            return Ok(());
        }
        let documents = self.documents(std::slice::from_ref(id)).await?;
        let Some(file) = documents.values().next() else { return Ok(()) };
        let how = (true, self.seen.has_lengths);
        let chunks = self.chunks.clone();
        let mut tally = Tally::new(id.clone());
        let command = commands::chunks(&chunks, Some(id.as_raw_bson_ref()), how);
        self.each(("aggregate", command, &chunks), |chunk| tally.add(chunk)).await?;
        let mut faults = tally.faults(file);
        if faults.iter().any(is_longer) && self.is_old(id).await? {
            tally.take_for_old();
            faults = tally.faults(file);
        }
        if tally.chunks == 0 && !faults.iter().any(|it| matches!(it, FileFault::Field { .. })) {
            faults = vec![FileFault::NoChunks];
        }
        if !faults.is_empty() {
            self.seen.damaged_files += 1;
            let filename = file.get_str("filename").ok();
            let filename = filename.map(|it| shortened(it, MAX_TEXT).into_owned());
            self.seen.damaged.push(DamagedFile { id: words(id), filename, faults });
        }
        Ok(())
    }

    /// Returns whether the data of a file are of the old subtype of BSON, by one of its chunks.
    async fn is_old(&mut self, id: &RawBson) -> Result<bool, BucketEnd> {
        let search = commands::data(&self.chunks, id.as_raw_bson_ref());
        let reply = self.run("find", &search).await?;
        let chunks = batch(&reply);
        let data = chunks.first().map(|chunk| field(chunk, "data"));
        Ok(matches!(
            data,
            Some(RawBsonRef::Binary(RawBinaryRef { subtype: BinarySubtype::BinaryOld, .. }))
        ))
    }

    /// Notes chunks of which there is no file, and removes them if that is wanted.
    async fn orphaned(&mut self, tally: &Tally) -> Result<(), BucketEnd> {
        let newest = tally.newest();
        if newest.is_some_and(|newest| newest >= self.recent) {
            self.seen.recent.add(tally.chunks);
            return Ok(());
        }
        let may_be_removed = self.bucket.removes && newest.is_some();
        if may_be_removed && !self.has_files {
            // They may be still to come, as while a bucket is restored or copied.
            self.seen.not_removed = Some(NotRemoved::NoDocuments);
        }
        let is_removed = may_be_removed && self.seen.not_removed.is_none();
        if is_removed {
            match self.remove(tally).await? {
                Removal::Done(chunks) => {
                    if chunks > 0 {
                        self.seen.removed.add(chunks);
                    }
                    return Ok(());
                }
                Removal::Alive => {
                    self.seen.recent.add(tally.chunks);
                    return Ok(());
                }
                Removal::Refused => {}
            }
        }
        if self.seen.orphans.len() < MAX_DESCRIBED && !self.is_orphaned_still(&tally.id).await? {
            return Ok(());
        }
        self.seen.orphaned.add(tally.chunks);
        if self.seen.orphans.len() < MAX_DESCRIBED {
            let newest = newest.map(|it| rfc_3339(UNIX_EPOCH + Duration::from_secs(u64::from(it))));
            let (id, chunks) = (words(&tally.id), tally.chunks);
            self.seen.orphans.push(Orphan { id, chunks, newest });
        }
        Ok(())
    }

    /// Looks once more at chunks without a file, which may have been stored or deleted meanwhile.
    async fn is_orphaned_still(&mut self, id: &RawBson) -> Result<bool, BucketEnd> {
        let is_stored =
            can_be_id(id) && !self.documents(std::slice::from_ref(id)).await?.is_empty();
        let search = commands::any_chunk(&self.chunks, id.as_raw_bson_ref());
        Ok(!is_stored && !batch(&self.run("find", &search).await?).is_empty())
    }

    /// Removes chunks, unless they have become a file meanwhile, or an upload goes on with them.
    async fn remove(&mut self, tally: &Tally) -> Result<Removal, BucketEnd> {
        let (id, recent) = (tally.id.as_raw_bson_ref(), object_id(self.recent));
        let search = commands::recent_chunk(&self.chunks, id, recent);
        let has_recent = !batch(&self.run("find", &search).await?).is_empty();
        let is_stored = can_be_id(&tally.id)
            && !self.documents(std::slice::from_ref(&tally.id)).await?.is_empty();
        if has_recent || is_stored {
            return Ok(Removal::Alive);
        }
        let wait = REPLICATED_WITHIN.min(self.means.left() / 2).as_millis();
        let wait = i64::try_from(wait).unwrap_or(i64::MAX).max(1);
        let removal = commands::removal(&self.chunks, id, (recent, wait));
        let reply = match self.answered(&removal).await? {
            Ok(reply) => reply,
            Err(error) => {
                let text = reason(&error);
                self.seen.not_removed = Some(match code(&error) {
                    Some(UNAUTHORIZED) => NotRemoved::Forbidden(text),
                    _ => NotRemoved::Failed(text),
                });
                return Ok(Removal::Refused);
            }
        };
        if let Some(reason) = refusal(&reply) {
            self.seen.not_removed = Some(reason);
            return Ok(Removal::Refused);
        }
        let count = whole(field(&reply, "n")).and_then(|it| u64::try_from(it).ok());
        Ok(Removal::Done(count.unwrap_or_default()))
    }

    /// Looks at the documents of all files, and finds those that have no chunk.
    async fn look_at_files(&mut self) -> Result<(), BucketEnd> {
        if !self.has_index && self.seen.chunks > 0 {
            self.seen.has_empty_files = false;
            return Ok(());
        }
        let command = self.limited(commands::files(&self.files, None));
        let mut reply = self.run("find", &command).await?;
        loop {
            let files = batch(&reply);
            self.seen.files += files.len() as u64;
            let wanted = files.into_iter().filter(|file| !is_empty(file));
            let wanted: Vec<RawBson> = wanted.map(|file| field(file, "_id").into()).collect();
            for ids in wanted.chunks(FILES) {
                self.look_for_chunks(ids).await?;
            }
            (self.note)(&self.seen);
            let Some(cursor) = cursor(&reply) else { return Ok(()) };
            let command = commands::get_more(cursor, &self.files);
            reply = self.run("getMore", &command).await?;
        }
    }

    /// Finds which of these files have no chunk: those without a first one are looked at.
    async fn look_for_chunks(&mut self, ids: &[RawBson]) -> Result<(), BucketEnd> {
        let chunks = self.chunks.clone();
        let mut present = std::collections::BTreeSet::new();
        let find = ("find", commands::first_chunks(&chunks, ids), &*chunks);
        self.each(find, |chunk| {
            present.insert(key(field(chunk, "files_id")));
        })
        .await?;
        for id in ids {
            if present.contains(&key(id.as_raw_bson_ref())) {
                continue;
            }
            let search = commands::any_chunk(&chunks, id.as_raw_bson_ref());
            if batch(&self.run("find", &search).await?).is_empty() {
                self.damaged(id).await?;
            }
        }
        Ok(())
    }
}

/// Counts a chunk; returns what was counted of the file before, if another one begins.
fn count(current: &mut Option<Tally>, chunk: &RawDocument) -> Option<Tally> {
    let id = field(chunk, "files_id");
    let is_same = current.as_ref().is_some_and(|it| key(it.id.as_raw_bson_ref()) == key(id));
    let before = match is_same {
        true => None,
        false => current.replace(Tally::new(id.into())),
    };
    if let Some(tally) = current {
        tally.add(chunk);
    }
    before
}

/// Returns whether a chunk is as much too long as data of the old subtype are.
fn is_longer(fault: &FileFault) -> bool {
    matches!(fault, FileFault::Length { actual, expected, .. }
        if *actual == expected + SECOND_LENGTH)
}

/// Returns a field, or null in its place.
fn field<'d>(document: &'d RawDocument, name: &str) -> RawBsonRef<'d> {
    document.get(name).ok().flatten().unwrap_or(RawBsonRef::Null)
}

/// Returns whether a file may have no chunks.
fn is_empty(file: &RawDocument) -> bool {
    Described::read(file).is_ok_and(|it| it.length == 0)
}

/// Returns whether a document can have it as its `_id`; others would be taken for patterns.
fn can_be_id(id: &RawBson) -> bool {
    !matches!(id, RawBson::Array(_) | RawBson::RegularExpression(_) | RawBson::Undefined)
}

/// Returns what is the same for values that servers take for equal: whole numbers of all types.
fn key(id: RawBsonRef<'_>) -> Vec<u8> {
    let mut document = RawDocumentBuf::new();
    match whole(id) {
        Some(number) => document.append(cstr!("number"), number),
        None => document.append(cstr!("value"), id),
    }
    document.into_bytes()
}

fn has_keys(index: &RawDocument, keys: [&str; 2]) -> bool {
    let Ok(found) = index.get_document("key") else { return false };
    let found = found.iter().map(Result::ok);
    let wanted = keys.map(|key| Some((key, 1)));
    let found = found.map(|field| {
        let (name, value) = field?;
        Some((name.as_str(), whole(value)?))
    });
    found.eq(wanted)
}

fn words(id: &RawBson) -> String {
    let text = Bson::try_from(id.clone()).map_or_else(|_| "?".to_owned(), |id| id.to_string());
    shortened(&text, MAX_TEXT).into_owned()
}

fn code(error: &Error) -> Option<i32> {
    error.reply().and_then(|reply| reply.code)
}

fn reason(error: &Error) -> String {
    error.as_operation().map_or_else(|| error.to_string(), ToString::to_string)
}

/// Returns why chunks are not removed, or not for certain, by the reply to the removal.
fn refusal(reply: &RawDocument) -> Option<NotRemoved> {
    let text = |error: &RawDocument| match error.get_str("errmsg") {
        Ok(text) => text.to_owned(),
        Err(_) => "the server did not say why".to_owned(),
    };
    let errors = reply.get_array("writeErrors").ok();
    let error = errors.and_then(|it| it.into_iter().next()?.ok()?.as_document());
    let refused = error.map(|error| NotRemoved::Failed(text(error)));
    let unsure = reply.get_document("writeConcernError").ok();
    refused.or_else(|| unsure.map(|error| NotRemoved::NotReplicated(text(error))))
}

fn failed(command: &'static str, error: &Error) -> BucketEnd {
    let code = code(error);
    match code {
        Some(MAX_TIME_EXPIRED) => BucketEnd::Late,
        _ => {
            let is_forbidden = code == Some(UNAUTHORIZED);
            BucketEnd::Failed { command, is_forbidden, text: reason(error) }
        }
    }
}

/// Returns whole seconds.
fn seconds(time: Duration) -> u32 {
    u32::try_from(time.as_secs()).unwrap_or(u32::MAX)
}

/// Returns the least `ObjectId` of a time, in seconds since 1970.
fn object_id(seconds: u32) -> ObjectId {
    let mut bytes = [0; 12];
    bytes[..4].copy_from_slice(&seconds.to_be_bytes());
    ObjectId::from_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use sdam_core::bson::rawdoc;

    use super::{NotRemoved, refusal};

    /// Read and write concern, "Errors": a write whose concern is not met may be undone.
    #[test]
    fn a_removal_is_done_if_no_part_of_its_reply_says_otherwise() {
        let refused = rawdoc! { "ok": 1, "n": 0, "writeErrors": [{ "errmsg": "no" }] };
        let unsure = rawdoc! { "ok": 1, "n": 2, "writeConcernError": { "errmsg": "timed out" } };
        let silent = rawdoc! { "ok": 1, "n": 2, "writeConcernError": { "code": 64 } };
        for (reply, reason) in [
            (rawdoc! { "ok": 1, "n": 2 }, None),
            (refused, Some(NotRemoved::Failed("no".into()))),
            (unsure, Some(NotRemoved::NotReplicated("timed out".into()))),
            (silent, Some(NotRemoved::NotReplicated("the server did not say why".into()))),
        ] {
            assert_eq!(refusal(&reply), reason);
        }
    }
}
