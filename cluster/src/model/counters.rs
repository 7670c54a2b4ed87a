//! The counts of a process's requests.

use bson::raw::{CStr, cstr};
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
    /// The writes that an open transaction stood against.
    conflicts: i64,
    /// The commands that write or end transactions, and those of them that have failed.
    outcomes: [Outcomes; NAMES.len()],
}

/// The commands of one name, and those of them that have failed.
#[derive(Clone, Copy, Debug, Default)]
struct Outcomes {
    total: i64,
    failed: i64,
}

/// The commands whose outcomes are counted.
const NAMES: [&CStr; 6] = [
    cstr!("insert"),
    cstr!("update"),
    cstr!("delete"),
    cstr!("findAndModify"),
    cstr!("commitTransaction"),
    cstr!("abortTransaction"),
];

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

    /// Counts the outcome of a command, if that writes or ends a transaction.
    pub(crate) fn note_outcome(&mut self, command: &str, has_failed: bool) {
        let counted = NAMES.iter().zip(&mut self.outcomes);
        for (_, outcomes) in counted.filter(|(name, _)| name.as_str() == command) {
            outcomes.total = outcomes.total.saturating_add(1);
            outcomes.failed = outcomes.failed.saturating_add(i64::from(has_failed));
        }
    }

    /// Counts a write outside of transactions that has to come again, as one stands against it.
    pub(crate) fn note_conflict(&mut self) {
        self.conflicts = self.conflicts.saturating_add(1);
    }

    /// Returns the section `metrics` of `serverStatus`.
    pub(crate) fn metrics(&self) -> RawDocumentBuf {
        let mut commands = RawDocumentBuf::new();
        for (name, outcomes) in NAMES.iter().zip(&self.outcomes) {
            let Outcomes { total, failed } = *outcomes;
            commands.append(*name, rawdoc! { "failed": failed, "total": total });
        }
        rawdoc! { "commands": commands, "operation": { "writeConflicts": self.conflicts } }
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
