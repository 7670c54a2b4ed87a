//! A bucket of GridFS as it lies at a server.

use std::time::Duration;

use sdam_core::config::ServerAddress;
use serde::Serialize;

use crate::duration::millis;

/// The number of files of each kind that are described; more are counted.
pub(in crate::doctor) const MAX_DESCRIBED: usize = 100;

/// A bucket, as far as it was looked at.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::doctor) struct BucketSeen {
    /// The database and the name of the bucket.
    pub(in crate::doctor) name: String,
    /// The server that was asked.
    pub(in crate::doctor) server: Option<ServerAddress>,
    /// The reason why it was not looked at to its end.
    pub(in crate::doctor) end: Option<BucketEnd>,
    /// The indexes that are missing or are of another kind.
    pub(in crate::doctor) indexes: Vec<IndexFault>,
    /// True if the lengths of chunks were looked at: servers know them from 4.4 on.
    pub(in crate::doctor) has_lengths: bool,
    /// True if files without chunks were looked for: without an index that takes too long.
    pub(in crate::doctor) has_empty_files: bool,
    /// The number of chunks that were looked at.
    pub(in crate::doctor) chunks: u64,
    /// The number of documents of files that were looked at.
    pub(in crate::doctor) files: u64,
    /// The first files that cannot be read.
    pub(in crate::doctor) damaged: Vec<DamagedFile>,
    /// The number of files that cannot be read.
    pub(in crate::doctor) damaged_files: u64,
    /// The first files of which there are only chunks.
    pub(in crate::doctor) orphans: Vec<Orphan>,
    /// All chunks that have no file, and were not removed.
    pub(in crate::doctor) orphaned: Count,
    /// Those of them that may belong to an upload under way.
    pub(in crate::doctor) recent: Count,
    /// Those that were removed.
    pub(in crate::doctor) removed: Count,
    /// The reason why the removal has ended too early.
    pub(in crate::doctor) not_removed: Option<NotRemoved>,
    /// The age from which on chunks without a file are orphaned.
    #[serde(rename = "graceMS", serialize_with = "millis")]
    pub(in crate::doctor) grace: Duration,
}

/// A number of files, and of their chunks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(in crate::doctor) struct Count {
    pub(in crate::doctor) files: u64,
    pub(in crate::doctor) chunks: u64,
}

impl Count {
    /// Counts one more file.
    pub(in crate::doctor) const fn add(&mut self, chunks: u64) {
        self.files += 1;
        self.chunks = self.chunks.saturating_add(chunks);
    }
}

/// The reason why a bucket was not looked at to its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "camelCase")]
pub(in crate::doctor) enum BucketEnd {
    /// There are no collections of its name.
    Missing,
    /// There is no server that is asked: a primary, a standalone or a mongos.
    NoServer,
    /// Time was over.
    Late,
    /// A command has failed.
    Failed {
        /// The command.
        command: &'static str,
        /// True if the user may not run it.
        is_forbidden: bool,
        /// The words of the server or the library.
        text: String,
    },
}

/// The reason why chunks without a file were not removed, or are not known to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", content = "text", rename_all = "camelCase")]
pub(in crate::doctor) enum NotRemoved {
    /// There is no document of a file at all.
    NoDocuments,
    /// The user may not do it, in the words of the server.
    Forbidden(String),
    /// The command has failed, with these words.
    Failed(String),
    /// The primary has done it, and says that it may be undone, with these words.
    NotReplicated(String),
}

/// An index that is missing, or of another kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::doctor) struct IndexFault {
    /// The collection.
    pub(in crate::doctor) collection: String,
    /// The keys, as shells write them.
    pub(in crate::doctor) keys: &'static str,
    /// True if it has to be unique.
    pub(in crate::doctor) unique: bool,
    /// True if there is one of these keys, and it is not unique.
    pub(in crate::doctor) is_there: bool,
}

/// A file that cannot be read, or not to its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::doctor) struct DamagedFile {
    /// The `_id`, in words.
    pub(in crate::doctor) id: String,
    /// The name, if it has one.
    pub(in crate::doctor) filename: Option<String>,
    /// The faults.
    pub(in crate::doctor) faults: Vec<FileFault>,
}

/// A fault of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "fault", rename_all = "camelCase")]
pub(in crate::doctor) enum FileFault {
    /// A number in its document is none that a file can have.
    Field {
        /// The field.
        field: &'static str,
    },
    /// It has no chunk at all.
    NoChunks,
    /// Chunks are missing.
    Missing {
        /// The number of the first one.
        n: i64,
        /// Their number.
        count: u64,
    },
    /// Chunks are there again.
    Twice {
        /// The number of the first one.
        n: i64,
        /// The number of those that are too many.
        count: u64,
    },
    /// There are chunks behind the last one.
    Extra {
        /// The number from which on there should be none.
        n: i64,
        /// Their number.
        count: u64,
    },
    /// A chunk is not as long as it has to be.
    Length {
        /// The number of the first one.
        n: i64,
        /// Its length.
        actual: u64,
        /// The length that it has to have.
        expected: u64,
        /// The number of such chunks, as far as that is known.
        count: u64,
    },
    /// Chunks have no number.
    NoNumber {
        /// Their number.
        count: u64,
    },
    /// Chunks have no data.
    NoData {
        /// The number of the first one.
        n: i64,
        /// Their number.
        count: u64,
    },
}

/// Chunks of one file, of which there is no document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::doctor) struct Orphan {
    /// The `_id` of the file, in words.
    pub(in crate::doctor) id: String,
    /// The number of chunks.
    pub(in crate::doctor) chunks: u64,
    /// The time of the newest one; `None` if a chunk does not say it.
    pub(in crate::doctor) newest: Option<String>,
}
