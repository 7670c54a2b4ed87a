//! The description of a replica set in replies to hello.

use bson::{Document, Timestamp};

/// Returns whether a member that is no primary is where the primary wants it.
pub(super) fn follows(hello: &Document) -> bool {
    is(hello, "secondary") || is(hello, "arbiterOnly")
}

/// Returns whether the field is there and true.
pub(super) fn is(hello: &Document, field: &str) -> bool {
    hello.get_bool(field).is_ok_and(|yes| yes)
}

/// Returns the term and the time of the last write, or of the last one that a majority has.
pub(super) fn op_time(hello: &Document, field: &str) -> Option<(i64, Timestamp)> {
    let op_time = hello.get_document("lastWrite").ok()?.get_document(field);
    let op_time = op_time.ok()?;
    Some((op_time.get_i64("t").ok()?, op_time.get_timestamp("ts").ok()?))
}

/// Returns the index of the primary; if two members claim the role, that of the later election.
pub(super) fn find_primary(hellos: &[Result<Document, String>]) -> Option<usize> {
    let claims = hellos.iter().enumerate().filter_map(|(index, hello)| {
        let hello = hello.as_ref().ok()?;
        is(hello, "ismaster").then(|| (hello.get_object_id("electionId").ok(), index))
    });
    claims.max().map(|(_, index)| index)
}
