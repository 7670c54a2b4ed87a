//! The messages that operations send.

use bson::rawdoc;
use sdam_core::bson;
use sdam_core::selection::ReadMode;
use sdam_core::wire::{Flags, write_op_msg};

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Write,
    Read(ReadMode),
}

/// Returns the message of an operation; over a direct connection, a read is to be taken by whatever
/// server is there (Server Selection, "Topology type: Single").
pub(super) fn request(kind: Kind, number: i32, direct: bool) -> Vec<u8> {
    let command = match kind {
        Kind::Write => rawdoc! { "insert": "c", "documents": [], "$db": "d" },
        Kind::Read(mode) => {
            let mode = match mode {
                ReadMode::Primary if !direct => "primary",
                ReadMode::Primary | ReadMode::PrimaryPreferred => "primaryPreferred",
                ReadMode::Secondary => "secondary",
                ReadMode::SecondaryPreferred => "secondaryPreferred",
                ReadMode::Nearest => "nearest",
            };
            rawdoc! { "find": "c", "$readPreference": { "mode": mode }, "$db": "d" }
        }
    };
    let mut bytes = Vec::new();
    write_op_msg(&mut bytes, number, 0, Flags::NONE, &command);
    bytes
}

/// Returns the message that checks a connection that was idle.
pub(super) fn ping(number: i32) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_op_msg(&mut bytes, number, 0, Flags::NONE, &rawdoc! { "ping": 1, "$db": "admin" });
    bytes
}
