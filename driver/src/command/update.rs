//! Updates and replacements (CRUD, `updateOne`, `updateMany`, `replaceOne`).

use std::borrow::Cow;

use bson::raw::cstr;
use sdam_core::wire::ReplyDocument;
use serde::Serialize;

use super::fields::{Fields, Value, document, get, options};
use super::models::{OF_STATEMENT, Parts, replacement, serialized, stored_len, update};
use super::{Command, Facts, Operation, Progress, Scope, left_out};
use crate::error::{Error, WriteError};
use crate::reply::write::{Kind, WriteReply};
use crate::results::{UpdateResult, WriteResult};
use crate::value::{IntoDocument, Modifications};

/// An update of one document or of many.
///
/// ```
/// use sdam_driver::bson::doc;
/// use sdam_driver::Update;
///
/// let update = Update::new(doc! { "_id": 1 }, doc! { "$inc": { "n": 1 } }).upsert(true);
/// # let _ = update;
/// ```
#[derive(Clone, Debug)]
pub struct Update {
    filter: Value,
    modifications: Value,
    options: Fields,
}

options! {
    Update {
        /// Sets which elements of arrays are updated.
        array_filters: documents = "arrayFilters";
        /// Writes documents that the collection's rules forbid.
        bypass_document_validation: truth = "bypassDocumentValidation";
        /// Sets the rules for comparing texts.
        collation: document = "collation";
        /// Adds a comment, which servers write to their logs.
        comment: value = "comment";
        /// Sets the index to be used.
        hint: hint = "hint";
        /// Sets the values of variables for expressions.
        let_vars: document = "let";
        /// Writes documents of time series as they are stored (MongoDB 8.2); not for applications.
        raw_data: truth = "rawData";
        /// Sets the order, of which the first document is updated (MongoDB 8.0); not for all of
        /// them.
        sort: document = "sort";
        /// Inserts a document if none matches.
        upsert: truth = "upsert";
    }
}

impl Update {
    /// Updates what a filter matches, by operators or a pipeline.
    pub fn new(filter: impl IntoDocument, modifications: impl Into<Modifications>) -> Self {
        Self {
            filter: document(filter),
            modifications: modifications.into().0,
            options: Fields::default(),
        }
    }

    /// Makes the operation that updates the first document, or all of them.
    pub fn into_operation(self, multi: bool) -> Updating {
        let Self { filter, modifications, options } = self;
        Updating { filter, modifications, options, how: How::Update { multi } }
    }
}

/// The replacement of a document.
#[derive(Clone, Debug)]
pub struct Replace {
    filter: Value,
    replacement: Value,
    options: Fields,
}

options! {
    Replace {
        /// Writes a document that the collection's rules forbid.
        bypass_document_validation: truth = "bypassDocumentValidation";
        /// Sets the rules for comparing texts.
        collation: document = "collation";
        /// Adds a comment, which servers write to their logs.
        comment: value = "comment";
        /// Sets the index to be used.
        hint: hint = "hint";
        /// Sets the values of variables for expressions.
        let_vars: document = "let";
        /// Writes documents of time series as they are stored (MongoDB 8.2); not for applications.
        raw_data: truth = "rawData";
        /// Sets the order, of which the first document is replaced (MongoDB 8.0).
        sort: document = "sort";
        /// Inserts the document if none matches.
        upsert: truth = "upsert";
    }
}

impl Replace {
    /// Replaces the document that a filter matches.
    pub fn new(filter: impl IntoDocument, replacement: &impl Serialize) -> Self {
        let replacement = serialized(replacement);
        Self { filter: document(filter), replacement, options: Fields::default() }
    }

    /// Makes the operation.
    pub fn into_operation(self) -> Updating {
        let Self { filter, replacement, options } = self;
        Updating { filter, modifications: replacement, options, how: How::Replace }
    }
}

/// A single update or replacement, as it is sent.
#[derive(Clone, Debug)]
pub struct Updating {
    filter: Value,
    modifications: Value,
    options: Fields,
    how: How,
}

#[derive(Clone, Copy, Debug)]
enum How {
    Update { multi: bool },
    Replace,
}

impl Operation for Updating {
    type Output = UpdateResult;

    fn name(&self) -> Cow<'static, str> {
        "update".into()
    }

    fn is_retryable(&self) -> bool {
        !matches!(self.how, How::Update { multi: true })
    }

    fn command(&mut self, scope: &Scope, facts: &Facts) -> Result<Command<'_>, Error> {
        let (modifications, multi) = match self.how {
            How::Update { multi } => (update(&self.modifications)?, multi),
            How::Replace => (replacement(&self.modifications)?, false),
        };
        let (filter, options) = (get(&self.filter)?, &self.options);
        let statement = Parts::Update { filter, modifications, multi, options }.statement()?;
        let stored = || stored_len(Some(modifications));
        if let Some(excess) = facts.excess(scope, statement.as_bytes().len(), stored) {
            return Err(Error::Write(WriteError::too_large(0, excess).into()));
        }
        let mut body = super::on_collection(cstr!("update"), scope);
        body.append(cstr!("ordered"), true);
        self.options.write(&mut body, &left_out(scope, facts, &OF_STATEMENT))?;
        body.append(cstr!("updates"), bson::RawArrayBuf::from_iter([statement]));
        Command::write(scope, body, !multi)
    }

    fn reply(
        &mut self,
        scope: &Scope,
        reply: &ReplyDocument,
    ) -> Result<Progress<UpdateResult>, Error> {
        if !scope.is_acknowledged() {
            return Ok(Progress::Done(UpdateResult::default()));
        }
        let read = WriteReply::read(Kind::Update, reply, 1)?;
        let read = read.single(|read| WriteResult::Update(read.into_update_result()))?;
        Ok(Progress::Done(read.into_update_result()))
    }
}

#[cfg(test)]
mod tests {
    use bson::{Bson, doc, rawdoc};
    use sdam_core::wire::ReplyDocument;

    use super::super::testing::{NEW, majority, scope, written, written_in};
    use super::super::{Operation, Progress};
    use super::{Replace, Update};
    use crate::error::Error;
    use crate::results::WriteResult;

    #[test]
    fn an_update_keeps_apart_what_is_the_statements_and_what_is_the_commands() {
        let update = Update::new(doc! { "a": 1 }, doc! { "$set": { "b": 1 } })
            .upsert(true)
            .comment("why")
            .let_vars(doc! { "x": 1 });
        let mut one = update.clone().into_operation(false);
        let expected = rawdoc! {
            "update": "things",
            "ordered": true,
            "comment": "why",
            "let": { "x": 1 },
            "updates": [{ "q": { "a": 1 }, "u": { "$set": { "b": 1 } }, "upsert": true }],
            "writeConcern": { "w": "majority" },
        };
        assert_eq!(written_in(&mut one, &majority(), NEW).body, expected);
        assert!(one.command(&scope(), &NEW).unwrap().retryable);
        let mut many = update.into_operation(true);
        // Retryable Writes: updateMany is not.
        assert!(!many.command(&scope(), &NEW).unwrap().retryable);
        let statements = written(&mut many, NEW).body;
        let statement = statements.get_array("updates").unwrap().get_document(0).unwrap();
        assert_eq!(statement.get_bool("multi").ok(), Some(true));
    }

    #[test]
    fn an_update_may_be_a_pipeline() {
        let mut update = Update::new(doc! {}, [doc! { "$unset": "a" }]).into_operation(false);
        let body = written(&mut update, NEW).body;
        let statement = body.get_array("updates").unwrap().get_document(0).unwrap().to_owned();
        assert_eq!(statement, rawdoc! { "q": {}, "u": [{ "$unset": "a" }] });
    }

    /// CRUD, "Update vs. Replace Validation".
    #[test]
    fn updates_have_operators_and_replacements_have_none() {
        for modifications in [doc! {}, doc! { "a": 1 }] {
            let mut update = Update::new(doc! {}, modifications).into_operation(false);
            assert!(update.command(&scope(), &NEW).is_err());
        }
        let mut replace = Replace::new(doc! {}, &doc! { "$set": { "a": 1 } }).into_operation();
        assert!(replace.command(&scope(), &NEW).is_err());
        let mut replace = Replace::new(doc! {}, &doc! {}).into_operation();
        assert!(replace.command(&scope(), &NEW).is_ok());
    }

    #[test]
    fn the_result_tells_what_was_upserted_and_errors_are_errors() {
        let mut replace = Replace::new(doc! {}, &doc! { "a": 1 }).upsert(true).into_operation();
        let mut answer = |reply| replace.reply(&scope(), &ReplyDocument::from(reply));
        let upserted = rawdoc! { "index": 0, "_id": 7 };
        let reply = rawdoc! { "ok": 1, "n": 1, "nModified": 0, "upserted": [upserted] };
        let Ok(Progress::Done(result)) = answer(reply) else { panic!() };
        assert_eq!((result.matched_count, result.upserted_id), (0, Some(Bson::Int32(7))));
        let refused = rawdoc! { "index": 0, "code": 121, "errmsg": "invalid" };
        let reply = rawdoc! { "ok": 1, "n": 0, "writeErrors": [refused] };
        let Err(Error::Write(error)) = answer(reply) else { panic!() };
        assert_eq!(error.to_string(), "the write at index 0 was refused: invalid (code 121)");
        let late = rawdoc! { "code": 64, "errmsg": "late" };
        let upserted = rawdoc! { "index": 0, "_id": 7 };
        let reply = rawdoc! {
            "ok": 1, "n": 1, "nModified": 0, "upserted": [upserted], "writeConcernError": late,
        };
        let Err(Error::WriteConcern(error)) = answer(reply) else { panic!() };
        let Some(WriteResult::Update(result)) = &error.result else { panic!("{error:?}") };
        assert_eq!((result.upserted_count, &result.upserted_id), (1, &Some(Bson::Int32(7))));
    }
}
