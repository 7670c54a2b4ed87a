//! The member that sends the documents of a file, and notes what it was asked for.

use std::sync::{Mutex, PoisonError};

use bson::raw::cstr;
use bson::{RawArrayBuf, RawDocument, RawDocumentBuf, rawdoc};
use sdam_core::bson;

use super::stored::{Chunk, Order, Stored};
use crate::sim::Script;

/// A member that sends what is stored to those who ask for a file of any `_id`.
#[derive(Debug)]
pub(super) struct Member {
    stored: Stored,
    asked: Mutex<Vec<Asked>>,
}

/// A search for chunks, and what was sent.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    /// The `_id` of the file.
    pub(super) file: i32,
    /// The number of the first chunk.
    pub(super) first: i64,
    /// The number behind the last one, unless all from the first on are asked for.
    pub(super) end: Option<i64>,
    /// The number of documents that may come.
    pub(super) limit: i64,
    /// The places of the documents that were sent.
    pub(super) sent: Vec<usize>,
}

impl Member {
    pub(super) const fn new(stored: Stored) -> Self {
        Self { stored, asked: Mutex::new(Vec::new()) }
    }

    pub(super) const fn stored(&self) -> &Stored {
        &self.stored
    }

    /// Returns the searches for chunks of a file, in the order in which they came.
    pub(super) fn asked(&self, file: i32) -> Vec<Asked> {
        let asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.iter().filter(|it| it.file == file).cloned().collect()
    }

    /// Sends the document of a file.
    fn file(&self, id: i32) -> RawDocumentBuf {
        let mut batch = RawArrayBuf::new();
        if let Some(stored) = &self.stored.document {
            let mut document = RawDocumentBuf::new();
            if self.stored.has_id {
                document.append(cstr!("_id"), id);
            }
            for field in stored {
                let (name, value) = field.expect("it was written here");
                document.append(name, value);
            }
            batch.push(document);
        }
        reply(batch)
    }

    /// Sends chunks, and notes which.
    fn chunks(&self, file: i32, command: &RawDocument, filter: &RawDocument) -> RawDocumentBuf {
        let n = filter.get_document("n").ok();
        let bound = |name: &str| n.and_then(|n| n.get_i64(name).ok());
        let (first, end) = (bound("$gte"), bound("$lt"));
        let limit = command.get_i64("limit").expect("a search for chunks has a limit");
        let is_asked_for = |chunk: &Chunk| match (first, chunk.n) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(first), Some(n)) => n >= first && end.is_none_or(|end| n < end),
        };
        let stored = &self.stored.chunks;
        let mut sent: Vec<usize> = (0..stored.len()).collect();
        if self.stored.order != Order::All {
            sent.retain(|at| is_asked_for(&stored[*at]));
            if self.stored.order == Order::Sorted {
                sent.sort_by_key(|at| stored[*at].n);
            }
            sent.truncate(usize::try_from(limit).expect("a limit is no less than 1"));
        }
        let batch = sent.iter().map(|at| &*stored[*at].document).collect();
        let asked = Asked { file, first: first.unwrap_or(0), end, limit, sent };
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).push(asked);
        reply(batch)
    }
}

impl Script for Member {
    fn answer(&self, command: &RawDocument) -> Option<RawDocumentBuf> {
        let collection = command.get_str("find").ok()?;
        let filter = command.get_document("filter").ok()?;
        let id = |field| filter.get_document(field).ok()?.get_i32("$eq").ok();
        match collection {
            "fs.files" => Some(self.file(id("_id")?)),
            "fs.chunks" => Some(self.chunks(id("files_id")?, command, filter)),
            _ => None,
        }
    }
}

fn reply(batch: RawArrayBuf) -> RawDocumentBuf {
    rawdoc! { "ok": 1, "cursor": { "id": 0_i64, "ns": "app.fs", "firstBatch": batch } }
}
