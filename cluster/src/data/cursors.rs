//! Cursors over what a member keeps: batches, and waiting for more.

use std::time::Duration;

use bson::raw::cstr;
use bson::{Bson, Document, RawArrayBuf, RawDocumentBuf, rawdoc};
use sdam_core::bson;
use sdam_core::time::Instant;

use super::arguments::{Arguments, flag};
use crate::model::{Cluster, Then};
use crate::options::{MemberId, ServerVersion};
use crate::store::{Cursor, Owner, whole};
use crate::wire::{CommandError, Request, integer};

/// The number of documents of a first batch that does not say how many it wants.
const FIRST_BATCH: usize = 101;

/// The number of bytes of documents after which a batch ends, and then a stream of batches.
const MAX_BATCH_LEN: usize = 16 << 20;

/// The time that a cursor waits for more documents if it does not say how long.
const AWAIT: Duration = Duration::from_secs(1);

/// The number of cursors that a process keeps; then the oldest goes.
const MAX_CURSORS: usize = 4096;

impl Cluster {
    /// Answers with the first batch of a cursor, and keeps what is left of it.
    pub(super) fn open(
        &mut self,
        member: MemberId,
        mut cursor: Cursor,
        size: Option<usize>,
        single: bool,
    ) -> Result<RawDocumentBuf, CommandError> {
        let size = size.unwrap_or(FIRST_BATCH);
        let (batch, count) = batch(&mut cursor, size)?;
        let goes_on = !single && cursor.goes_on(count < size);
        let id = if goes_on { self.new_cursor_id() } else { 0 };
        let reply = reply(id, &cursor, "firstBatch", (batch, count));
        if goes_on {
            self.keep_cursor(member, id, cursor);
        }
        Ok(reply)
    }

    fn new_cursor_id(&mut self) -> i64 {
        (self.data_rng.next_u64() >> 2).cast_signed() | (1 << 61)
    }

    /// Keeps a cursor that goes on.
    fn keep_cursor(&mut self, member: MemberId, id: i64, cursor: Cursor) {
        if let Some(process) = self.process_mut(member) {
            if process.cursors.len() >= MAX_CURSORS {
                process.cursors.pop_first();
            }
            process.cursors.insert(id, cursor);
        }
    }

    /// Takes the cursor of a command, to be kept again if it goes on.
    pub(crate) fn take_cursor(&mut self, member: MemberId, id: i64) -> Option<Cursor> {
        self.process_mut(member)?.cursors.remove(&id)
    }

    /// Answers a `getMore`, with all that is left if the client takes several replies.
    pub(super) fn more(
        &mut self,
        member: MemberId,
        arguments: &Arguments,
        all: bool,
    ) -> Result<Vec<RawDocumentBuf>, CommandError> {
        let id = cursor_id(&arguments.body)?;
        let namespace = arguments.namespace("collection")?;
        let size = arguments.count("batchSize")?.filter(|size| *size > 0).unwrap_or(usize::MAX);
        let not_found = || CommandError::coded(43, format!("cursor id {id} not found"));
        let mut cursor = self.take_cursor(member, id).ok_or_else(not_found)?;
        if cursor.is_killed {
            return Err(CommandError::coded(237, "operation was interrupted"));
        }
        if let Err(error) = check_asking(id, &cursor, &namespace, &arguments.owner()) {
            self.keep_cursor(member, id, cursor);
            return Err(error);
        }
        let (mut replies, mut length) = (Vec::new(), 0);
        loop {
            self.advance(member, &mut cursor, size)?;
            let (batch, count) = batch(&mut cursor, size)?;
            let goes_on = cursor.goes_on(count < size);
            length += batch.as_bytes().len();
            let id_or_none = if goes_on { id } else { 0 };
            replies.push(reply(id_or_none, &cursor, "nextBatch", (batch, count)));
            if !goes_on {
                break;
            }
            if !all || cursor.rest.is_empty() || length > MAX_BATCH_LEN {
                self.keep_cursor(member, id, cursor);
                break;
            }
        }
        Ok(replies)
    }

    /// Adds to the documents of a cursor those that have come since, up to so many.
    fn advance(
        &self,
        member: MemberId,
        cursor: &mut Cursor,
        most: usize,
    ) -> Result<(), CommandError> {
        if let Some(tail) = cursor.tail.as_mut() {
            let store = &self.data_of(member).store;
            cursor.rest.extend(tail.advance(&cursor.namespace, store)?);
        }
        if let Some(stream) = cursor.stream.as_mut() {
            stream.advance(&self.past(member, stream), &mut cursor.rest, most)?;
        }
        Ok(())
    }

    /// Returns until when a `getMore` waits for documents, if it does.
    pub(super) fn awaits_documents(
        &mut self,
        now: Instant,
        member: MemberId,
        request: &Request<'_>,
        limit: Option<Instant>,
    ) -> Option<Instant> {
        let id = request.body.get_i64("getMore").ok()?;
        let wait = request.body.get("maxTimeMS").ok().flatten();
        let wait = wait.and_then(integer).and_then(|it| u64::try_from(it).ok());
        let wait = wait.map_or(AWAIT, Duration::from_millis);
        let mut cursor = self.take_cursor(member, id)?;
        if cursor.stream.is_some() {
            self.note_idleness(now);
        }
        let until = limit.unwrap_or(now + wait);
        let has_more = self.has_more(member, &mut cursor);
        self.keep_cursor(member, id, cursor);
        (!has_more && until > now).then_some(until)
    }

    /// Returns whether a cursor has something to hand out, or to fail with; one that does not wait
    /// has nothing that is worth waiting for.
    fn has_more(&self, member: MemberId, cursor: &mut Cursor) -> bool {
        if cursor.is_killed {
            return false;
        }
        let Cursor { namespace, rest, tail, stream, .. } = cursor;
        match (tail, stream) {
            (Some(tail), _) if tail.awaits => {
                let collection = self.data_of(member).store.collection(namespace);
                !rest.is_empty() || collection.is_none_or(|it| it.next() > tail.next)
            }
            (_, Some(stream)) => {
                let past = self.past(member, stream);
                let outcome = stream.advance(&past, rest, 1);
                outcome.is_err() || stream.is_over() || !rest.is_empty()
            }
            _ => true,
        }
    }

    /// Returns whether a `getMore` waits for a cursor.
    fn is_awaited(&self, member: MemberId, id: i64) -> bool {
        self.connections.values().filter(|it| it.member == member).any(|connection| {
            let Some(Then::Await(message, _)) = connection.pending.as_ref().map(|it| &it.then)
            else {
                return false;
            };
            Request::parse(message).is_ok_and(|it| it.body.get_i64("getMore").ok() == Some(id))
        })
    }

    /// Answers a `killCursors`.
    pub(super) fn kill_cursors(
        &mut self,
        member: MemberId,
        arguments: &Arguments,
    ) -> Result<RawDocumentBuf, CommandError> {
        arguments.namespace("killCursors")?;
        let wrong = |_| CommandError::coded(9, "Field 'cursors' must be of type array");
        let ids = arguments.body.get_array("cursors").map_err(wrong)?;
        let (mut killed, mut unknown) = (Vec::new(), Vec::new());
        for id in ids.iter().filter_map(whole) {
            let cursor = self.take_cursor(member, id);
            let is_there = cursor.as_ref().is_some_and(|it| !it.is_killed);
            if is_there { &mut killed } else { &mut unknown }.push(id);
            // A getMore that waits learns it when its time is over.
            if let Some(cursor) = cursor.filter(|_| self.is_awaited(member, id)) {
                self.keep_cursor(member, id, Cursor { is_killed: true, ..cursor });
            }
        }
        Ok(rawdoc! {
            "cursorsKilled": RawArrayBuf::from_iter(killed),
            "cursorsNotFound": RawArrayBuf::from_iter(unknown),
            "cursorsAlive": [],
            "cursorsUnknown": [],
            "ok": 1.0,
        })
    }
}

/// Checks that a cursor goes on for the namespace, the session and the transaction that it was
/// opened in.
fn check_asking(
    id: i64,
    cursor: &Cursor,
    namespace: &str,
    asking: &Owner,
) -> Result<(), CommandError> {
    if cursor.namespace != namespace {
        let reason = format!(
            "Requested getMore on namespace '{namespace}', but cursor belongs to a different \
             namespace {}",
            cursor.namespace
        );
        return Err(CommandError::coded(13, reason));
    }
    check_owner(id, &cursor.owner, asking)
}

/// Checks that a cursor goes on in the session, and in the transaction, that it was opened in.
fn check_owner(id: i64, owner: &Owner, asking: &Owner) -> Result<(), CommandError> {
    let (code, reason) = match (owner, asking) {
        (owner, asking) if owner == asking => return Ok(()),
        (Owner { session: Some(_), .. }, Owner { session: None, .. }) => {
            (50737, "was created in a session, without an lsid")
        }
        (Owner { session: None, .. }, Owner { session: Some(_), .. }) => {
            (50736, "was not created in a session, in a session")
        }
        (owner, asking) if owner.session != asking.session => {
            (50738, "was created in another session")
        }
        (Owner { transaction: None, .. }, _) => {
            (50739, "was not created in a transaction, in a transaction")
        }
        (_, Owner { transaction: None, .. }) => {
            (50740, "was created in a transaction, without a txnNumber")
        }
        _ => (50741, "was created in another transaction"),
    };
    let reason = format!("Cannot run getMore on cursor {id}, which {reason}");
    Err(CommandError::numbered(code, reason))
}

fn cursor_id(body: &Document) -> Result<i64, CommandError> {
    match body.get("getMore") {
        Some(Bson::Int64(id)) => Ok(*id),
        _ => {
            let reason = "BSON field 'getMore.getMore' is the wrong type, expected type 'long'";
            Err(CommandError::coded(14, reason))
        }
    }
}

/// Returns whether a cursor waits for documents that are still to come.
pub(super) fn is_tailable(body: &Document) -> (bool, bool) {
    let tailable = flag(body, "tailable");
    (tailable, tailable && flag(body, "awaitData"))
}

/// Takes a batch of documents, and returns how many they are.
fn batch(cursor: &mut Cursor, size: usize) -> Result<(RawArrayBuf, usize), CommandError> {
    let (mut batch, mut length) = (RawArrayBuf::new(), 0);
    let mut count = 0;
    for taken in 0..size {
        let Some(next) = cursor.rest.front() else { break };
        let document = raw(next)?;
        // In an array each has a type, a number as text, and a NUL.
        length += document.as_bytes().len() + taken.to_string().len() + 2;
        if taken > 0 && length > MAX_BATCH_LEN {
            break;
        }
        if let Some(stream) = cursor.stream.as_mut() {
            stream.note_given(next, document.as_bytes().len());
        }
        batch.push(document);
        cursor.rest.pop_front();
        count += 1;
    }
    Ok((batch, count))
}

/// Returns a document as it is sent.
pub(super) fn raw(document: &Document) -> Result<RawDocumentBuf, CommandError> {
    RawDocumentBuf::try_from(document).map_err(|error| CommandError::coded(22, error.to_string()))
}

fn reply(
    id: i64,
    cursor: &Cursor,
    name: &str,
    (batch, count): (RawArrayBuf, usize),
) -> RawDocumentBuf {
    let name = <&bson::raw::CStr>::try_from(name).expect("there is no NUL in it");
    let mut document = RawDocumentBuf::new();
    document.append(name, batch);
    document.append(cstr!("id"), id);
    document.append(cstr!("ns"), cursor.namespace.as_str());
    if let Some(time) = cursor.at_cluster_time {
        document.append(cstr!("atClusterTime"), time);
    }
    if let Some(stream) = &cursor.stream {
        let has_ended = id == 0 && stream.is_over();
        let is_new = stream.version() >= ServerVersion::V6_0;
        if !has_ended || is_new || count > 0 {
            let token = stream.post_batch_token(!cursor.rest.is_empty());
            let token = token.get_str("_data").unwrap_or_default();
            document.append(cstr!("postBatchResumeToken"), rawdoc! { "_data": token });
        }
        if has_ended && is_new {
            document.append(cstr!("invalidated"), true);
        }
    }
    rawdoc! { "cursor": document, "ok": 1.0 }
}
