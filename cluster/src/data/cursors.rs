//! Cursors over what a member keeps: batches, and waiting for more.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bson::{Bson, Document, RawArrayBuf, RawDocumentBuf, rawdoc};
use sdam_core::bson;
use sdam_core::time::Instant;

use super::arguments::{Arguments, flag};
use crate::model::Cluster;
use crate::options::MemberId;
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
        let batch = batch(&mut cursor.rest, size.unwrap_or(FIRST_BATCH))?;
        let goes_on = !single && (!cursor.rest.is_empty() || cursor.tail.is_some());
        let id = if goes_on { self.new_cursor_id() } else { 0 };
        let reply = reply(id, &cursor, "firstBatch", batch);
        if let Some(process) = self.process_mut(member).filter(|_| goes_on) {
            if process.cursors.len() >= MAX_CURSORS {
                process.cursors.pop_first();
            }
            process.cursors.insert(id, cursor);
        }
        Ok(reply)
    }

    fn new_cursor_id(&mut self) -> i64 {
        (self.data_rng.next_u64() >> 2).cast_signed() | (1 << 61)
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
        let store = self.data_of(member).store.clone();
        let not_found = || CommandError::coded(43, format!("cursor id {id} not found"));
        let process = self.process_mut(member).ok_or_else(not_found)?;
        let mut cursor = process.cursors.remove(&id).ok_or_else(not_found)?;
        if cursor.namespace != namespace {
            let reason = format!(
                "Requested getMore on namespace '{namespace}', but cursor belongs to a different \
                 namespace {}",
                cursor.namespace
            );
            process.cursors.insert(id, cursor);
            return Err(CommandError::coded(13, reason));
        }
        if let Err(error) = check_owner(id, &cursor.owner, &arguments.owner()) {
            process.cursors.insert(id, cursor);
            return Err(error);
        }
        let (mut replies, mut length) = (Vec::new(), 0);
        loop {
            if let Some(tail) = cursor.tail.as_mut() {
                tail.until = None;
                cursor.rest.extend(tail.advance(&namespace, &store)?);
            }
            let batch = batch(&mut cursor.rest, size)?;
            let goes_on = !cursor.rest.is_empty() || cursor.tail.is_some();
            length += batch.as_bytes().len();
            replies.push(reply(if goes_on { id } else { 0 }, &cursor, "nextBatch", batch));
            if !goes_on {
                break;
            }
            if !all || cursor.rest.is_empty() || length > MAX_BATCH_LEN {
                if let Some(process) = self.process_mut(member) {
                    process.cursors.insert(id, cursor);
                }
                break;
            }
        }
        Ok(replies)
    }

    /// Returns until when a `getMore` waits for documents, if it does.
    pub(super) fn awaits_documents(
        &mut self,
        now: Instant,
        member: MemberId,
        request: &Request<'_>,
    ) -> Option<Instant> {
        let id = request.body.get_i64("getMore").ok()?;
        let wait = request.body.get("maxTimeMS").ok().flatten();
        let wait = wait.and_then(integer).and_then(|it| u64::try_from(it).ok());
        let wait = wait.map_or(AWAIT, Duration::from_millis);
        let store = self.data_of(member).store.clone();
        let cursor = self.process_mut(member)?.cursors.get_mut(&id)?;
        let tail = cursor.tail.as_mut().filter(|it| it.awaits)?;
        let collection = store.collection(&cursor.namespace)?;
        let until = *tail.until.get_or_insert(now + wait);
        let has_more = !cursor.rest.is_empty() || collection.next() > tail.next;
        (!has_more && until > now).then_some(until)
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
            let cursor = self.process_mut(member).and_then(|it| it.cursors.remove(&id));
            if cursor.is_some() { &mut killed } else { &mut unknown }.push(id);
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

/// Takes a batch of documents.
fn batch(rest: &mut VecDeque<Arc<Document>>, size: usize) -> Result<RawArrayBuf, CommandError> {
    let (mut batch, mut length) = (RawArrayBuf::new(), 0);
    for taken in 0..size {
        let Some(document) = rest.front() else { break };
        let document = raw(document)?;
        // In an array each has a type, a number as text, and a NUL.
        length += document.as_bytes().len() + taken.to_string().len() + 2;
        if taken > 0 && length > MAX_BATCH_LEN {
            break;
        }
        batch.push(document);
        rest.pop_front();
    }
    Ok(batch)
}

/// Returns a document as it is sent.
pub(super) fn raw(document: &Document) -> Result<RawDocumentBuf, CommandError> {
    RawDocumentBuf::try_from(document).map_err(|error| CommandError::coded(22, error.to_string()))
}

fn reply(id: i64, cursor: &Cursor, name: &str, batch: RawArrayBuf) -> RawDocumentBuf {
    let name = <&bson::raw::CStr>::try_from(name).expect("there is no NUL in it");
    let mut document = RawDocumentBuf::new();
    document.append(name, batch);
    document.append(bson::raw::cstr!("id"), id);
    document.append(bson::raw::cstr!("ns"), cursor.namespace.as_str());
    if let Some(time) = cursor.at_cluster_time {
        document.append(bson::raw::cstr!("atClusterTime"), time);
    }
    rawdoc! { "cursor": document, "ok": 1.0 }
}
