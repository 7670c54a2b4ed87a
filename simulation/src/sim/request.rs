//! The messages that operations send.

use bson::raw::cstr;
use bson::{RawDocument, RawDocumentBuf, rawdoc};
use sdam_core::bson;
use sdam_core::config::ReadMode;
use sdam_core::wire::{Flags, write_op_msg};

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Write,
    Read(ReadMode),
}

/// How many documents a batch has, of a cursor that has several.
const BATCH: i32 = 2;

/// Returns the message of an operation, which may read in batches, with the read preference that
/// the server chosen for it is to be told.
pub(super) fn request(
    kind: Kind,
    number: i32,
    read_preference: Option<RawDocumentBuf>,
    batches: bool,
) -> Vec<u8> {
    let mut command = match kind {
        Kind::Write => rawdoc! { "insert": "c", "documents": [], "$db": "d" },
        Kind::Read(_) => rawdoc! { "find": "c", "$db": "d" },
    };
    if let Some(read_preference) = read_preference {
        command.append(cstr!("$readPreference"), read_preference);
    }
    if batches {
        command.append(cstr!("batchSize"), BATCH);
    }
    message(number, &command)
}

/// Returns the message that wants the next batch of a cursor.
pub(super) fn get_more(cursor: i64, number: i32) -> Vec<u8> {
    let command = rawdoc! { "getMore": cursor, "collection": "c", "batchSize": BATCH, "$db": "d" };
    message(number, &command)
}

fn message(number: i32, command: &RawDocument) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_op_msg(&mut bytes, number, 0, Flags::NONE, command);
    bytes
}

/// Returns the message that checks a connection that was idle.
pub(super) fn ping(number: i32) -> Vec<u8> {
    message(number, &rawdoc! { "ping": 1, "$db": "admin" })
}
