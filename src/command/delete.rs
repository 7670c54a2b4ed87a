//! Deletions (CRUD, `deleteOne`, `deleteMany`).

use bson::raw::{CStr, cstr};
use sdam_core::wire::ReplyDocument;

use super::Scope;
use super::bulk_write::check_hint;
use super::fields::get;
use super::models::{OF_STATEMENT, Parts};
use super::single::{Body, Rules, SingleCommand};
use crate::error::{Error, WriteError};
use crate::reply::write::{Kind, WriteReply};
use crate::results::{DeleteResult, WriteResult};
use crate::value::IntoDocument;

operation! {
    /// A deletion of one document or of many.
    #[derive(Clone, Debug)]
    pub struct Delete as DeleteOptions { multi: bool }

    arguments {
        /// Deletes the first document that a filter matches.
        new(filter: document = "filter");
    }

    options {
        /// Sets the rules for comparing texts.
        collation: collation = "collation";
        /// Adds a comment, which servers write to their logs.
        comment: value = "comment";
        /// Sets the index to be used.
        hint: hint = "hint";
        /// Sets the values of variables for expressions.
        let_vars: document = "let";
        /// Deletes documents of time series as they are stored (MongoDB 8.2); not for applications.
        raw_data: bool = "rawData";
    }
}

impl Delete {
    /// Deletes all documents that a filter matches, not the first alone.
    pub fn many(filter: impl IntoDocument) -> Self {
        Self::new(filter).multi(true)
    }

    /// Sets whether all documents that match are deleted, or the first alone.
    pub(crate) const fn multi(mut self, multi: bool) -> Self {
        self.multi = multi;
        self
    }
}

impl SingleCommand for Delete {
    type Output = DeleteResult;

    const COMMAND: &'static CStr = cstr!("delete");
    const RULES: Rules = Rules::WRITE;

    fn rules(&self) -> Rules {
        Self::RULES.retryable(!self.multi)
    }

    fn write(&mut self, body: &mut Body<'_>) -> Result<(), Error> {
        let Self { filter, multi, options } = self;
        let parts = Parts::Delete { filter: get(filter)?, multi: *multi, options };
        check_hint(&parts, body.scope, body.facts)?;
        let statement = parts.statement()?;
        if let Some(excess) = body.facts.excess(body.scope, statement.as_bytes().len(), || 0) {
            return Err(WriteError::too_large(0, excess).into());
        }
        body.append(cstr!("ordered"), true);
        body.options(options, &OF_STATEMENT)?;
        body.append(cstr!("deletes"), bson::RawArrayBuf::from_iter([statement]));
        Ok(())
    }

    fn read(&mut self, scope: &Scope, reply: &ReplyDocument) -> Result<DeleteResult, Error> {
        if !scope.is_acknowledged() {
            return Ok(DeleteResult::default());
        }
        let read = WriteReply::read(Kind::Delete, reply, 1)?;
        let read = read.single(|read| WriteResult::Delete(read.delete_result()))?;
        Ok(read.delete_result())
    }
}

#[cfg(test)]
mod tests {
    use bson::{doc, rawdoc};
    use sdam_core::wire::ReplyDocument;

    use super::super::testing::{NEW, OLD, scope, unacknowledged, written};
    use super::super::{Operation, Progress};
    use super::Delete;
    use crate::results::WriteResult;

    #[test]
    fn a_deletion_has_a_limit_of_one_or_none() {
        for (multi, limit) in [(false, 1), (true, 0)] {
            let mut delete = Delete::new(doc! { "a": 1 }).comment("why").multi(multi);
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
        let mut delete = Delete::new(doc! {}).multi(true);
        let reply = ReplyDocument::from(rawdoc! { "ok": 1, "n": 3 });
        let Ok(Progress::Done(result)) = delete.reply(&scope(), &reply) else { panic!() };
        assert_eq!((result.acknowledged, result.deleted_count), (true, 3));
        let late = rawdoc! { "code": 64, "errmsg": "late" };
        let reply = ReplyDocument::from(rawdoc! { "ok": 1, "n": 2, "writeConcernError": late });
        let error = delete.reply(&scope(), &reply).unwrap_err();
        let done = &error.as_write_concern().unwrap().result;
        let Some(WriteResult::Delete(result)) = done else { panic!("{error:?}") };
        assert_eq!((result.acknowledged, result.deleted_count), (true, 2));
    }

    /// CRUD: "For unacknowledged writes using OP_MSG and servers < 4.4, the driver MUST raise an
    /// error if the caller explicitly provides a value."
    #[test]
    fn an_index_is_refused_where_nobody_would_learn_that_it_is_not_used() {
        let delete = || Delete::new(doc! {}).hint("_id_").multi(false);
        assert!(delete().command(&unacknowledged(), &OLD).is_err());
        assert!(delete().command(&scope(), &OLD).is_ok());
        assert!(delete().command(&unacknowledged(), &NEW).is_ok());
    }
}
