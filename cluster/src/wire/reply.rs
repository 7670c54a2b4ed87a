//! The documents that members reply with.

use bson::oid::ObjectId;
use bson::raw::CStr;
use bson::spec::BinarySubtype;
use bson::{Binary, RawDocumentBuf, rawdoc};
use sdam_core::bson;

use super::CommandError;
use crate::options::ServerVersion;

pub(crate) const MAX_BSON_OBJECT_SIZE: i32 = 16 * 1024 * 1024;
pub(crate) const MAX_MESSAGE_SIZE_BYTES: i32 = 48_000_000;
pub(crate) const SESSION_TIMEOUT_MINUTES: i32 = 30;

pub(crate) fn ok() -> RawDocumentBuf {
    rawdoc! { "ok": 1.0 }
}

/// Answers `startSession` with an id of these bits, which is not stored.
pub(crate) fn session(high: u64, low: u64) -> RawDocumentBuf {
    let mut bytes = [high.to_be_bytes(), low.to_be_bytes()].concat();
    // Version 4, variant 1 (RFC 9562).
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let id = Binary { subtype: BinarySubtype::Uuid, bytes };
    rawdoc! { "id": { "id": id }, "timeoutMinutes": SESSION_TIMEOUT_MINUTES, "ok": 1.0 }
}

pub(crate) fn error(error: &CommandError) -> RawDocumentBuf {
    let mut reply = rawdoc! {
        "ok": 0.0,
        "errmsg": error.message.as_str(),
        "code": error.code,
        "codeName": error.code_name.as_str(),
    };
    let details = RawDocumentBuf::try_from(&*error.details).unwrap_or_default();
    for (name, value) in details.iter().flatten() {
        reply.append(name, value);
    }
    reply
}

pub(crate) fn build_info(version: ServerVersion) -> RawDocumentBuf {
    let (major, minor) = version.number();
    rawdoc! {
        "version": version.release(),
        "versionArray": [major, minor, 0, 0],
        "modules": [],
        "bits": 64,
        "debug": false,
        "maxBsonObjectSize": MAX_BSON_OBJECT_SIZE,
        "ok": 1.0,
    }
}

/// Returns the id of an election, as of real servers: it grows with the term and exceeds older
/// schemes.
pub(crate) fn election_id(term: i64) -> ObjectId {
    let mut bytes = [0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0];
    bytes[4..].copy_from_slice(&term.to_be_bytes());
    ObjectId::from_bytes(bytes)
}

/// Returns the tags of a member as a document.
pub(crate) fn tags(tags: &[(String, String)]) -> RawDocumentBuf {
    let mut document = RawDocumentBuf::new();
    for (name, value) in tags {
        let name = <&CStr>::try_from(name.as_str()).expect("validate_members() has seen the names");
        document.append(name, value.as_str());
    }
    document
}
