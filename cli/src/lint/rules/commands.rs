//! Rules for commands that write nothing, and for errors.

use sdam_core::bson::{Bson, Document};

use super::{CURSORS, HANDSHAKE, SDAM, SELECTION, field, is_int32, is_text};
use crate::lint::evidence::{
    Evidence, Judged, Kind, Objection, Topic, broken, is_ok, not_tried, type_name,
};
use crate::lint::rule::{ERROR, NOTE, Rule, WARNING};

pub(in crate::lint) const RULES: &[Rule] = &[
    Rule {
        name: "ping",
        text: "ping succeeds",
        source: (SELECTION, "Checking an Idle Socket After socketCheckIntervalMS"),
        breaks: "single-threaded drivers close each connection that was idle; health checks fail",
        judge: |evidence| evidence.must_succeed(Topic::Ping).map(|_| ()),
        ..ERROR
    },
    Rule {
        name: "error-code",
        text: "an error has code, an int32",
        source: (CURSORS, "Errors"),
        breaks: "drivers distinguish errors by their codes: nothing is retried, and no change of \
                 state is noticed",
        judge: |evidence| each_error(evidence, "code", "an int32 as", is_int32),
        ..ERROR
    },
    Rule {
        name: "error-message",
        text: "an error has errmsg, a string",
        source: (CURSORS, "Errors"),
        breaks: "applications see an error without words, or one of the driver's parser",
        judge: |evidence| each_error(evidence, "errmsg", "a string as", is_text),
        ..ERROR
    },
    Rule {
        name: "error-code-name",
        text: "an error has codeName, a string",
        source: ("Unified Test Format", "expectedError"),
        breaks: "errors of drivers have no name",
        judge: |evidence| each_error(evidence, "codeName", "a string as", is_text),
        ..NOTE
    },
    Rule {
        name: "unknown-command",
        text: "a command that does not exist fails with CommandNotFound (59)",
        source: (HANDSHAKE, "Terms"),
        breaks: "drivers that find out so what a server can do, as for hello, give up",
        judge: |evidence| evidence.must_fail(Topic::UnknownCommand, &[59]).map(|_| ()),
        ..ERROR
    },
    Rule {
        name: "wrong-type",
        text: "an argument of a wrong type is an error: TypeMismatch (14), FailedToParse (9) or \
               BadValue (2)",
        source: (CURSORS, "Errors"),
        breaks: "a mistake in an application goes unnoticed",
        judge: |evidence| evidence.must_fail(Topic::WrongType, &[14, 9, 2]).map(|_| ()),
        ..WARNING
    },
    Rule {
        name: "missing-collection",
        text: "find in a collection that does not exist finds nothing: firstBatch is empty and \
               the cursor's id is 0",
        source: (CURSORS, "find"),
        breaks: "reads fail until there is a write",
        judge: missing_collection,
        ..ERROR
    },
    Rule {
        name: "cursor-shape",
        text: "the reply to find has cursor, with id, an int64, ns, a string, and firstBatch, an \
               array",
        source: (CURSORS, "find"),
        breaks: "drivers cannot read the reply to any query",
        judge: cursor_shape,
        ..ERROR
    },
    Rule {
        name: "unknown-cursor",
        text: "getMore of a cursor that does not exist fails with CursorNotFound (43)",
        source: ("Change Streams", "Resumable Error"),
        breaks: "change streams are not resumed, and applications see another error",
        judge: |evidence| evidence.must_fail(Topic::UnknownCursor, &[43]).map(|_| ()),
        ..ERROR
    },
    Rule {
        name: "kill-cursors",
        text: "killCursors succeeds, and names in cursorsNotFound which cursors do not exist",
        source: (CURSORS, "killCursors"),
        breaks: "closing a cursor that has ended by itself is an error",
        judge: kill_cursors,
        ..ERROR
    },
    Rule {
        name: "secondary-read",
        text: "a secondary refuses a find without $readPreference, with NotPrimaryNoSecondaryOk \
               (13435)",
        source: (SDAM, "\"not writable primary\" and \"node is recovering\""),
        breaks: "an application that asks for the primary reads old data after a failover",
        judge: secondary_read,
        ..ERROR
    },
    Rule {
        name: "secondary-ok",
        text: "a secondary answers a find whose $readPreference allows it",
        source: (SELECTION, "Passing read preference to mongos and load balancers"),
        breaks: "reads from secondaries fail",
        judge: secondary_ok,
        ..ERROR
    },
];

/// Judges a field of each error.
fn each_error(
    evidence: &Evidence,
    name: &str,
    expected: &str,
    fits: impl Fn(&Bson) -> bool,
) -> Judged {
    let documents = evidence.documents();
    let errors: Vec<_> = documents.into_iter().filter(|(_, reply)| !is_ok(reply)).collect();
    if errors.is_empty() {
        return not_tried("no command has failed");
    }
    errors.into_iter().try_for_each(|(topic, reply)| {
        field(topic.words(), reply, name, expected, &fits).map(|_| ())
    })
}

/// Returns a batch of a cursor, and its id.
pub(super) fn batch<'a>(
    topic: Topic,
    reply: &'a Document,
    name: &str,
) -> Result<(i64, &'a [Bson]), Objection> {
    let cursor = reply.get_document("cursor").ok();
    let part = |name| cursor.and_then(|cursor| cursor.get(name));
    match (part("id"), part("ns"), part(name)) {
        (Some(Bson::Int64(id)), Some(Bson::String(_)), Some(Bson::Array(batch))) => {
            Ok((*id, batch))
        }
        (id, ns, batch) => broken(
            format!(
                "cursor with id (int64), ns (string) and {name} (array) in the reply to {}",
                topic.words()
            ),
            format!(
                "cursor is {}, id is {}, ns is {}, {name} is {}",
                type_name(reply.get("cursor")),
                type_name(id),
                type_name(ns),
                type_name(batch)
            ),
        ),
    }
}

fn cursor_shape(evidence: &Evidence) -> Judged {
    let reply = evidence.success(Topic::FindNothing)?;
    batch(Topic::FindNothing, reply, "firstBatch").map(|_| ())
}

fn missing_collection(evidence: &Evidence) -> Judged {
    // A secondary that refuses reads breaks another rule.
    let reply = match evidence.kind()? {
        Kind::Secondary => evidence.success(Topic::FindNothing)?,
        _ => evidence.must_succeed(Topic::FindNothing)?,
    };
    let Ok((id, batch)) = batch(Topic::FindNothing, reply, "firstBatch") else {
        return not_tried("the reply to find has another shape");
    };
    match (id, batch.len()) {
        (0, 0) => Ok(()),
        (id, count) => broken("id 0 and no document", format!("id {id} and {count} documents")),
    }
}

fn kill_cursors(evidence: &Evidence) -> Judged {
    let reply = evidence.must_succeed(Topic::KillUnknown)?;
    let exchange = evidence.exchange(Topic::KillUnknown)?;
    let asked = exchange.request.get_array("cursors").map_or(&[][..], Vec::as_slice);
    match reply.get_array("cursorsNotFound") {
        Ok(missing) if missing == asked => Ok(()),
        Ok(missing) => broken(
            format!("cursorsNotFound {}", Bson::Array(asked.to_vec())),
            format!("{}", Bson::Array(missing.clone())),
        ),
        Err(_) => broken(
            "cursorsNotFound, an array",
            format!("it is {}", type_name(reply.get("cursorsNotFound"))),
        ),
    }
}

fn secondary_read(evidence: &Evidence) -> Judged {
    evidence.only(&[Kind::Secondary], "secondaries")?;
    evidence.must_fail(Topic::BareFind, &[13435]).map(|_| ())
}

fn secondary_ok(evidence: &Evidence) -> Judged {
    evidence.only(&[Kind::Secondary], "secondaries")?;
    evidence.must_succeed(Topic::FindNothing).map(|_| ())
}
