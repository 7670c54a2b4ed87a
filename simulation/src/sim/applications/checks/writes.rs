//! An ordered bulk stops at the first error, and results name only what was inserted.

use std::collections::{BTreeMap, BTreeSet};

use bson::raw::cstr;
use sdam_core::bson;

use super::super::conversation::{Command, Reply, integer};
use super::{Finding, ensure};

/// The writes of operations.
#[derive(Debug, Default)]
pub(in crate::sim::applications) struct Writes {
    /// The `_id` of each document that servers have inserted for an operation, or may have.
    inserted: BTreeMap<i64, BTreeSet<i64>>,
    /// The operations whose ordered bulk has met an error, with the number of that command: it may
    /// be sent again, if its write concern was not met either.
    stopped: BTreeMap<i64, Option<i64>>,
}

impl Writes {
    /// A command is sent.
    ///
    /// "If true, when an insert fails, return without performing the remaining writes" (CRUD), and
    /// so "drivers MUST NOT execute any further bulkWrite commands" (Bulk Write).
    pub(super) fn sent(&mut self, command: &Command) -> Finding {
        let names = ["insert", "update", "delete", "bulkWrite"];
        let Some(operation) = command.operation.filter(|_| names.contains(&&*command.name)) else {
            return Ok(());
        };
        let number = command.body.get_i64("txnNumber").ok();
        let stopped = self.stopped.get(&operation);
        let goes_on = stopped.is_some_and(|stopped| stopped.is_none() || *stopped != number);
        ensure(!goes_on, "an ordered bulk stops at the first error", || {
            format!("{} of operation {operation} follows one", command.name)
        })
    }

    pub(super) fn replied(&mut self, command: &Command, reply: &Reply) {
        let Some(operation) = command.operation.filter(|_| reply.is_ok()) else { return };
        let errors = reply.body.get_array("writeErrors").into_iter().flatten();
        let failed: BTreeSet<i64> =
            errors.filter_map(|it| integer(it.ok()?.as_document()?, cstr!("index"))).collect();
        let is_ordered = command.body.get_bool("ordered").unwrap_or(true);
        // Those behind the first error of an ordered bulk are not tried.
        let tried = failed.first().filter(|_| is_ordered).copied().unwrap_or(i64::MAX);
        let inserted = self.inserted.entry(operation).or_default();
        for (at, (field, document)) in (0..).zip(&command.documents) {
            let document = match field.as_str() {
                "documents" if at < tried && !failed.contains(&at) => Some(&**document),
                // The results of each come with a cursor.
                "ops" => document.get_document("document").ok(),
                _ => None,
            };
            inserted.extend(document.and_then(|it| it.get_i64("_id").ok()));
        }
        let errors = integer(&reply.body, cstr!("nErrors")).unwrap_or_default();
        if is_ordered && (errors > 0 || !failed.is_empty()) {
            self.stopped.insert(operation, command.body.get_i64("txnNumber").ok());
        }
    }

    /// An application learns which documents were inserted.
    pub(in crate::sim::applications) fn inserted(
        &self,
        operation: i64,
        ids: impl IntoIterator<Item = i64>,
    ) -> Finding {
        let inserted = self.inserted.get(&operation);
        let is_other = |id: &i64| inserted.is_none_or(|inserted| !inserted.contains(id));
        let other = ids.into_iter().find(is_other);
        ensure(other.is_none(), "results name documents that were inserted", || {
            format!("operation {operation} has inserted {other:?}, of {inserted:?}")
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bson::rawdoc;
    use sdam_core::bson;

    use super::super::super::conversation::Command;
    use super::super::testing::{command, reply};
    use super::Writes;

    #[test]
    fn an_ordered_bulk_that_goes_on_after_an_error_is_found() {
        let error = rawdoc! { "ok": 1.0, "n": 0, "writeErrors": [{ "index": 0, "code": 11000 }] };
        let errors = rawdoc! { "ok": 1.0, "nErrors": 1 };
        for (name, error) in [("insert", error), ("bulkWrite", errors)] {
            for (ordered, stops) in [(true, true), (false, false)] {
                let mut writes = Writes::default();
                let mut body = rawdoc! {};
                body.append(bson::raw::CString::try_from(name).unwrap(), "a");
                body.append(bson::raw::cstr!("ordered"), ordered);
                let bulk = command((0, 0, 1), Some(1), Some(1), body);
                writes.sent(&bulk).unwrap();
                writes.replied(&bulk, &reply(1, error.clone()));
                assert_eq!(writes.sent(&bulk).is_err(), stops, "{name} {ordered}");
            }
        }
    }

    #[test]
    fn a_result_that_names_what_was_not_inserted_is_found() {
        for (ordered, is_found) in [(true, true), (false, false)] {
            let mut writes = Writes::default();
            let body = rawdoc! { "insert": "a", "ordered": ordered };
            let insert = command((0, 0, 1), Some(1), Some(1), body);
            let document = |id: i64| ("documents".to_owned(), rawdoc! { "_id": id });
            let documents = [5, 6, 7].map(document).to_vec();
            let insert = Command { documents, ..Arc::unwrap_or_clone(insert) };
            writes.sent(&insert).unwrap();
            writes.inserted(1, [5]).unwrap_err();
            let error = rawdoc! { "index": 1, "code": 11000 };
            let body = rawdoc! { "ok": 1.0, "n": 1, "writeErrors": [error] };
            writes.replied(&insert, &reply(1, body));
            writes.inserted(1, [5]).unwrap();
            writes.inserted(1, [5, 6]).unwrap_err();
            assert_eq!(writes.inserted(1, [5, 7]).is_err(), is_found);
            writes.inserted(2, [5]).unwrap_err();
        }
    }
}
