//! Rules that need writes to be tried, in a collection of our own.

use sdam_core::bson::{Bson, Document};

use super::commands::batch;
use super::sessions::has_label;
use super::{CURSORS, OP_MSG, RETRYABLE_WRITES, SDAM, TRANSACTIONS, WRITES};
use crate::lint::evidence::{
    End, Evidence, Judged, Kind, Topic, broken, is_ok, not_tried, number, shown, type_name,
};
use crate::lint::rule::{ERROR, Needs, Rule, WARNING};

pub(in crate::lint) const RULES: &[Rule] = &[
    Rule {
        name: "document-sequence",
        needs: Needs::Write,
        text: "an insert is answered whose documents are a section of kind 1, wherever that \
               stands",
        source: (OP_MSG, "sections"),
        breaks: "no bulk write of any driver succeeds",
        judge: document_sequence,
        ..ERROR
    },
    Rule {
        name: "batch-size",
        needs: Needs::Write,
        text: "a batch has as many documents as batchSize says, if there are more",
        source: (CURSORS, "Behavior of Limit, skip and batchSize"),
        breaks: "applications that bound their memory so do not",
        judge: batch_size,
        ..ERROR
    },
    Rule {
        name: "kill-cursor",
        needs: Needs::Write,
        text: "killCursors of an open cursor names it in cursorsKilled, and getMore does not find \
               it any more",
        source: (CURSORS, "killCursors"),
        breaks: "cursors that applications have closed stay open on the server",
        judge: kill_cursor,
        ..ERROR
    },
    Rule {
        name: "write-errors",
        needs: Needs::Write,
        text: "a document that cannot be inserted is reported in writeErrors, with index, code and \
               errmsg, while ok is 1",
        source: (WRITES, "General Response Fields"),
        breaks: "a failed write seems to have succeeded, or drivers cannot know which one failed",
        judge: write_errors,
        ..ERROR
    },
    Rule {
        name: "write-batch",
        needs: Needs::Write,
        text: "a batch of more than maxWriteBatchSize writes is refused",
        source: (WRITES, "Request Size Limits"),
        breaks: "the reply has no room for the errors of all writes",
        judge: write_batch,
        ..WARNING
    },
    Rule {
        name: "retried-write",
        needs: Needs::Write,
        text: "a write that comes twice with the same lsid and txnNumber is applied once, and \
               answered alike both times",
        source: (RETRYABLE_WRITES, "Supported Server Versions"),
        breaks: "after a network error a driver repeats a write, and it is there twice",
        judge: retried_write,
        ..ERROR
    },
    Rule {
        name: "aborted-transaction",
        needs: Needs::Write,
        text: "nothing is left of a transaction that was aborted",
        source: (TRANSACTIONS, "abortTransaction"),
        breaks: "half of a transaction is there, of which the application believes that nothing is",
        judge: aborted_transaction,
        ..ERROR
    },
    Rule {
        name: "secondary-write",
        needs: Needs::Write,
        text: "a secondary refuses a write with NotWritablePrimary (10107)",
        source: (SDAM, "\"not writable primary\" and \"node is recovering\""),
        breaks: "drivers do not look for the new primary, or writes are lost",
        judge: secondary_write,
        ..ERROR
    },
    Rule {
        name: "retryable-label",
        needs: Needs::Write,
        text: "the refusal of a retryable write by a secondary has the label RetryableWriteError, \
               from MongoDB 4.4 on",
        source: (RETRYABLE_WRITES, "RetryableWriteError Labels"),
        breaks: "writes are not retried after a failover, as drivers wait for that label",
        judge: retryable_label,
        ..ERROR
    },
];

/// The number of documents that are inserted.
const INSERTED: i64 = 5;

fn count(reply: &Document) -> Option<i64> {
    reply.get("n").and_then(number)
}

fn document_sequence(evidence: &Evidence) -> Judged {
    let reply = evidence.must_succeed(Topic::Insert)?;
    match count(reply) == Some(INSERTED) && !reply.contains_key("writeErrors") {
        true => Ok(()),
        false => broken(format!("n: {INSERTED} and no writeErrors"), reply.to_string()),
    }
}

fn batch_size(evidence: &Evidence) -> Judged {
    if count(evidence.success(Topic::Insert)?) != Some(INSERTED) {
        return not_tried("the documents could not be inserted");
    }
    for (topic, name) in [(Topic::FirstBatch, "firstBatch"), (Topic::NextBatch, "nextBatch")] {
        let (id, documents) = batch(topic, evidence.must_succeed(topic)?, name)?;
        if documents.len() != 2 || id == 0 {
            return broken(
                format!("2 documents and an open cursor in the reply to {}", topic.words()),
                format!("{} documents and cursor {id}", documents.len()),
            );
        }
    }
    Ok(())
}

fn kill_cursor(evidence: &Evidence) -> Judged {
    let asked = evidence.exchange(Topic::KillCursor)?.request.get_array("cursors");
    let killed = evidence.must_succeed(Topic::KillCursor)?.get("cursorsKilled");
    match (asked, killed) {
        (Ok(asked), Some(Bson::Array(killed))) if asked == killed => {}
        (_, killed) => {
            let found = killed.map_or_else(|| "it is missing".to_owned(), ToString::to_string);
            return broken("the cursor in cursorsKilled", found);
        }
    }
    evidence.must_fail(Topic::KilledCursor, &[43]).map(|_| ())
}

fn write_errors(evidence: &Evidence) -> Judged {
    let reply = evidence.must_succeed(Topic::Duplicate)?;
    let errors = reply.get_array("writeErrors").map_or(&[][..], Vec::as_slice);
    let error = errors.first().and_then(Bson::as_document);
    let part = |name| error.and_then(|error| error.get(name));
    let fits = part("index").and_then(number) == Some(0)
        && matches!(part("code"), Some(Bson::Int32(11000)))
        && matches!(part("errmsg"), Some(Bson::String(_)));
    match fits && count(reply) == Some(0) {
        true => Ok(()),
        false => broken(
            "n: 0, and writeErrors with index 0, code 11000 and errmsg",
            format!("n: {}, writeErrors: {}", shown(count(reply)), Bson::Array(errors.to_vec())),
        ),
    }
}

fn write_batch(evidence: &Evidence) -> Judged {
    let exchange = evidence.exchange(Topic::LargeBatch)?;
    match (&exchange.end, exchange.answers.first()) {
        (Some(End::Closed(_)), _) => Ok(()),
        (Some(end @ End::Silent(_)), None) => broken("an error", end.words()),
        _ => match is_ok(evidence.reply(Topic::LargeBatch)?) {
            true => broken("an error", "it succeeds"),
            false => Ok(()),
        },
    }
}

fn retried_write(evidence: &Evidence) -> Judged {
    evidence.only(&[Kind::Primary, Kind::Mongos], "replica sets and sharded clusters")?;
    let replies =
        [evidence.must_succeed(Topic::Retryable)?, evidence.must_succeed(Topic::Retried)?];
    let parts = replies.map(|reply| (count(reply), reply.get("nModified").and_then(number)));
    if parts[0] != parts[1] {
        let [first, second] =
            parts.map(|(n, modified)| format!("n: {}, nModified: {}", shown(n), shown(modified)));
        return broken(format!("{first}, as the first time"), second);
    }
    let found = evidence.must_succeed(Topic::RetriedFound)?;
    let (_, documents) = batch(Topic::RetriedFound, found, "firstBatch")?;
    let times = documents.first().and_then(Bson::as_document).and_then(|it| it.get("times"));
    match times.and_then(number) {
        Some(1) => Ok(()),
        Some(times) => broken("an update that was applied once", format!("{times} times")),
        None => broken("the updated document", format!("times is {}", type_name(times))),
    }
}

fn aborted_transaction(evidence: &Evidence) -> Judged {
    evidence.only(&[Kind::Primary, Kind::Mongos], "replica sets and sharded clusters")?;
    evidence.must_succeed(Topic::Transaction)?;
    evidence.must_succeed(Topic::Abort)?;
    let found = evidence.must_succeed(Topic::AbortedFound)?;
    let (_, documents) = batch(Topic::AbortedFound, found, "firstBatch")?;
    match documents.len() {
        0 => Ok(()),
        count => broken("no document", format!("{count} of the transaction")),
    }
}

fn secondary_write(evidence: &Evidence) -> Judged {
    evidence.only(&[Kind::Secondary], "secondaries")?;
    evidence.must_fail(Topic::SecondaryWrite, &[10107]).map(|_| ())
}

fn retryable_label(evidence: &Evidence) -> Judged {
    evidence.only(&[Kind::Secondary], "secondaries")?;
    evidence.since(9, "MongoDB 4.4")?;
    let reply = evidence.reply(Topic::SecondaryWrite)?;
    match reply.get("code").and_then(number) {
        Some(10107) => has_label(reply, "RetryableWriteError"),
        _ => not_tried("the write was not refused as it should be"),
    }
}
