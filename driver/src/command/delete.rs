//! Deletions (CRUD, `deleteOne`, `deleteMany`).

use std::borrow::Cow;

use bson::raw::cstr;
use sdam_core::wire::ReplyDocument;

use super::bulk_write::check_hint;
use super::fields::{Fields, Value, document, get, options};
use super::models::{OF_STATEMENT, Parts};
use super::{Command, Facts, Operation, Progress, Scope, left_out};
use crate::error::{Error, WriteError};
use crate::reply::write::{Kind, WriteReply};
use crate::results::{DeleteResult, WriteResult};
use crate::value::IntoDocument;

/// A deletion of one document or of many.
#[derive(Clone, Debug)]
pub struct Delete {
    filter: Value,
    options: Fields,
}

options! {
    Delete {
        /// Sets the rules for comparing texts.
        collation: document = "collation";
        /// Adds a comment, which servers write to their logs.
        comment: value = "comment";
        /// Sets the index to be used.
        hint: hint = "hint";
        /// Sets the values of variables for expressions.
        let_vars: document = "let";
        /// Deletes documents of time series as they are stored (MongoDB 8.2); not for applications.
        raw_data: truth = "rawData";
    }
}

impl Delete {
    /// Deletes what a filter matches.
    pub fn new(filter: impl IntoDocument) -> Self {
        Self { filter: document(filter), options: Fields::default() }
    }

    /// Makes the operation that deletes the first document, or all of them.
    pub const fn into_operation(self, multi: bool) -> Deleting {
        Deleting { delete: self, multi }
    }
}

impl<D: IntoDocument> From<D> for Delete {
    fn from(filter: D) -> Self {
        Self::new(filter)
    }
}

/// A single deletion, as it is sent.
#[derive(Clone, Debug)]
pub struct Deleting {
    delete: Delete,
    multi: bool,
}

impl Operation for Deleting {
    type Output = DeleteResult;

    fn name(&self) -> Cow<'static, str> {
        "delete".into()
    }

    fn is_retryable(&self) -> bool {
        !self.multi
    }

    fn command(&mut self, scope: &Scope, facts: &Facts) -> Result<Command<'_>, Error> {
        let Delete { filter, options } = &self.delete;
        let parts = Parts::Delete { filter: get(filter)?, multi: self.multi, options };
        check_hint(&parts, scope, facts)?;
        let statement = parts.statement()?;
        if let Some(excess) = facts.excess(scope, statement.as_bytes().len(), || 0) {
            return Err(Error::Write(WriteError::too_large(0, excess).into()));
        }
        let mut body = super::on_collection(cstr!("delete"), scope);
        body.append(cstr!("ordered"), true);
        options.write(&mut body, &left_out(scope, facts, &OF_STATEMENT))?;
        body.append(cstr!("deletes"), bson::RawArrayBuf::from_iter([statement]));
        Command::write(scope, body, !self.multi)
    }

    fn reply(
        &mut self,
        scope: &Scope,
        reply: &ReplyDocument,
    ) -> Result<Progress<DeleteResult>, Error> {
        if !scope.is_acknowledged() {
            return Ok(Progress::Done(DeleteResult::default()));
        }
        let read = WriteReply::read(Kind::Delete, reply, 1)?;
        let read = read.single(|read| WriteResult::Delete(read.delete_result()))?;
        Ok(Progress::Done(read.delete_result()))
    }
}

#[cfg(test)]
mod tests {
    use bson::{doc, rawdoc};
    use sdam_core::wire::ReplyDocument;

    use super::super::testing::{NEW, OLD, scope, unacknowledged, written};
    use super::super::{Operation, Progress};
    use super::Delete;
    use crate::error::Error;
    use crate::results::{DeleteResult, WriteResult};

    #[test]
    fn a_deletion_has_a_limit_of_one_or_none() {
        for (multi, limit) in [(false, 1), (true, 0)] {
            let mut delete = Delete::new(doc! { "a": 1 }).comment("why").into_operation(multi);
            let expected = rawdoc! {
                "delete": "things",
                "ordered": true,
                "comment": "why",
                "deletes": [{ "q": { "a": 1 }, "limit": limit }],
            };
            assert_eq!(written(&mut delete, NEW).body, expected);
            assert_eq!(delete.command(&scope(), &NEW).unwrap().retryable, !multi);
        }
    }

    #[test]
    fn the_number_of_deleted_documents_is_told() {
        let mut delete = Delete::new(doc! {}).into_operation(true);
        let reply = ReplyDocument::from(rawdoc! { "ok": 1, "n": 3 });
        let Ok(Progress::Done(result)) = delete.reply(&scope(), &reply) else { panic!() };
        assert_eq!((result.acknowledged, result.deleted_count), (true, 3));
        let late = rawdoc! { "code": 64, "errmsg": "late" };
        let reply = ReplyDocument::from(rawdoc! { "ok": 1, "n": 2, "writeConcernError": late });
        let Err(Error::WriteConcern(error)) = delete.reply(&scope(), &reply) else { panic!() };
        let deleted = DeleteResult { acknowledged: true, deleted_count: 2 };
        assert_eq!(error.result, Some(WriteResult::Delete(deleted)));
    }

    /// CRUD: "For unacknowledged writes using OP_MSG and servers < 4.4, the driver MUST raise an
    /// error if the caller explicitly provides a value."
    #[test]
    fn an_index_is_refused_where_nobody_would_learn_that_it_is_not_used() {
        let delete = || Delete::new(doc! {}).hint("_id_").into_operation(false);
        assert!(delete().command(&unacknowledged(), &OLD).is_err());
        assert!(delete().command(&scope(), &OLD).is_ok());
        assert!(delete().command(&unacknowledged(), &NEW).is_ok());
    }
}
