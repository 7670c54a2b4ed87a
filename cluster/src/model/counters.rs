//! The counts of a process's requests.

use bson::{RawDocumentBuf, rawdoc};
use sdam_core::bson;

use crate::wire::Request;

/// The requests to a process since its start, and their bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counters {
    bytes_in: i64,
    bytes_out: i64,
    requests: i64,
    inserts: i64,
    queries: i64,
    updates: i64,
    deletes: i64,
    get_mores: i64,
    commands: i64,
}

impl Counters {
    pub(super) fn received(&mut self, length: usize) {
        self.bytes_in = self.bytes_in.saturating_add_unsigned(length as u64);
    }

    pub(super) fn sent(&mut self, length: usize) {
        self.bytes_out = self.bytes_out.saturating_add_unsigned(length as u64);
    }

    /// Counts a request; those that write count once for each statement.
    pub(crate) fn note(&mut self, request: &Request<'_>) {
        self.requests = self.requests.saturating_add(1);
        let statements = |field| request.statements(field) as u64;
        let (counter, count) = match request.command_name() {
            "insert" => (&mut self.inserts, statements("documents")),
            "update" => (&mut self.updates, statements("updates")),
            "delete" => (&mut self.deletes, statements("deletes")),
            "find" => (&mut self.queries, 1),
            "getMore" => (&mut self.get_mores, 1),
            _ => (&mut self.commands, 1),
        };
        *counter = counter.saturating_add_unsigned(count);
    }

    pub(crate) fn network(&self) -> RawDocumentBuf {
        rawdoc! {
            "bytesIn": self.bytes_in,
            "bytesOut": self.bytes_out,
            "numRequests": self.requests,
        }
    }

    pub(crate) fn operations(&self) -> RawDocumentBuf {
        rawdoc! {
            "insert": self.inserts,
            "query": self.queries,
            "update": self.updates,
            "delete": self.deletes,
            "getmore": self.get_mores,
            "command": self.commands,
        }
    }
}
