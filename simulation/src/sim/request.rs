//! The commands that operations run.

use bson::raw::cstr;
use bson::{RawDocument, RawDocumentBuf, rawdoc};
use sdam_core::bson;
use sdam_core::config::ReadMode;
use sdam_core::wire::{Flags, write_op_msg};

/// The kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Write,
    Read(ReadMode),
}

/// The number of documents that a batch has, of a cursor that has several.
const BATCH: i32 = 2;

/// Returns the command of an operation, which may read in batches.
pub(super) fn command(kind: Kind, batches: bool) -> RawDocumentBuf {
    let mut command = match kind {
        Kind::Write => rawdoc! { "insert": "c", "documents": [{}] },
        Kind::Read(_) => rawdoc! { "find": "c" },
    };
    if batches {
        command.append(cstr!("batchSize"), BATCH);
    }
    command
}

/// Returns the command that wants the next batch of a cursor.
pub(super) fn get_more(cursor: i64) -> RawDocumentBuf {
    rawdoc! { "getMore": cursor, "collection": "c", "batchSize": BATCH }
}

/// Returns a command as an application writes it that says nothing else.
pub(super) fn message(number: i32, command: &RawDocument) -> Vec<u8> {
    let mut command = command.to_owned();
    command.append(cstr!("$db"), "d");
    let mut bytes = Vec::new();
    write_op_msg(&mut bytes, number, 0, Flags::NONE, &command);
    bytes
}
