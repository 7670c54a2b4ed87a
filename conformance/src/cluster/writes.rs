//! What members answer to writes, which succeed and change nothing.

use bson::raw::cstr;
use bson::{RawDocumentBuf, rawdoc};
use sdam_core::bson;

use super::protocol::Request;

/// Answers a write as if each of its statements had met one document.
pub(super) fn reply(request: &Request<'_>) -> RawDocumentBuf {
    let count = |field| i32::try_from(request.statements(field)).unwrap_or(i32::MAX);
    let mut reply = RawDocumentBuf::new();
    match request.command_name() {
        "insert" => reply.append(cstr!("n"), count("documents")),
        "delete" => reply.append(cstr!("n"), count("deletes")),
        "update" => {
            reply.append(cstr!("n"), count("updates"));
            reply.append(cstr!("nModified"), count("updates"));
        }
        "findAndModify" => {
            let mut outcome = rawdoc! { "n": 1 };
            if !request.body.get_bool("remove").unwrap_or(false) {
                outcome.append(cstr!("updatedExisting"), true);
            }
            reply.append(cstr!("lastErrorObject"), outcome);
            reply.append(cstr!("value"), rawdoc! { "_id": 0_i64 });
        }
        _ => {}
    }
    reply.append(cstr!("ok"), 1.0);
    reply
}
