//! Updates and replacements (CRUD, `updateOne`, `updateMany`, `replaceOne`).

use bson::RawBsonRef;
use bson::raw::{CStr, cstr};
use sdam_core::wire::ReplyDocument;

use super::Scope;
use super::fields::{Fields, Value, get};
use super::models::{OF_STATEMENT, Parts, replacement, stored_len, update};
use super::single::{Body, Rules, SingleCommand};
use crate::error::{Error, WriteError};
use crate::reply::write::{Kind, WriteReply};
use crate::results::{UpdateResult, WriteResult};
use crate::value::{IntoDocument, Modifications};

operation! {
    /// An update of one document or of many.
    ///
    /// ```
    /// use bson::doc;
    /// use sdam::operation::Update;
    ///
    /// let update = Update::new(doc! { "_id": 1 }, doc! { "$inc": { "n": 1 } }).upsert(true);
    /// # let _ = update;
    /// ```
    #[derive(Clone, Debug)]
    pub struct Update as UpdateOptions { multi: bool }

    arguments {
        /// Updates the first document that a filter matches, by operators or a pipeline.
        new(filter: document = "filter", modifications: modifications = "update");
    }

    options {
        /// Sets which elements of arrays are updated.
        array_filters: documents = "arrayFilters";
        /// Writes documents that the collection's rules forbid.
        bypass_document_validation: bool = "bypassDocumentValidation";
        /// Sets the rules for comparing texts.
        collation: collation = "collation";
        /// Adds a comment, which servers write to their logs.
        comment: value = "comment";
        /// Sets the index to be used.
        hint: hint = "hint";
        /// Sets the values of variables for expressions.
        let_vars: document = "let";
        /// Writes documents of time series as they are stored (MongoDB 8.2); not for applications.
        raw_data: bool = "rawData";
        /// Sets the order, of which the first document is updated (MongoDB 8.0); not for all of
        /// them.
        sort: document = "sort";
        /// Inserts a document if none matches.
        upsert: bool = "upsert";
    }
}

impl Update {
    /// Updates all documents that a filter matches, not the first alone.
    pub fn many(filter: impl IntoDocument, modifications: impl Into<Modifications>) -> Self {
        Self::new(filter, modifications).multi(true)
    }

    /// Sets whether all documents that match are updated, or the first alone.
    pub(crate) const fn multi(mut self, multi: bool) -> Self {
        self.multi = multi;
        self
    }
}

operation! {
    /// The replacement of a document.
    #[derive(Clone, Debug)]
    pub struct Replace as ReplaceOptions {}

    arguments {
        /// Replaces the document that a filter matches.
        new(filter: document = "filter", replacement: serialized = "replacement");
    }

    options {
        /// Writes a document that the collection's rules forbid.
        bypass_document_validation: bool = "bypassDocumentValidation";
        /// Sets the rules for comparing texts.
        collation: collation = "collation";
        /// Adds a comment, which servers write to their logs.
        comment: value = "comment";
        /// Sets the index to be used.
        hint: hint = "hint";
        /// Sets the values of variables for expressions.
        let_vars: document = "let";
        /// Writes documents of time series as they are stored (MongoDB 8.2); not for applications.
        raw_data: bool = "rawData";
        /// Sets the order, of which the first document is replaced (MongoDB 8.0).
        sort: document = "sort";
        /// Inserts the document if none matches.
        upsert: bool = "upsert";
    }
}

/// Writes an update or a replacement, as a statement of the command.
fn write(
    body: &mut Body<'_>,
    filter: &Value,
    (modifications, multi): (RawBsonRef<'_>, bool),
    options: &Fields,
) -> Result<(), Error> {
    let filter = get(filter)?;
    let statement = Parts::Update { filter, modifications, multi, options }.statement()?;
    let stored = || stored_len(Some(modifications));
    if let Some(excess) = body.facts.excess(body.scope, statement.as_bytes().len(), stored) {
        return Err(WriteError::too_large(0, excess).into());
    }
    body.append(cstr!("ordered"), true);
    body.options(options, &OF_STATEMENT)?;
    body.append(cstr!("updates"), bson::RawArrayBuf::from_iter([statement]));
    Ok(())
}

fn read(scope: &Scope, reply: &ReplyDocument) -> Result<UpdateResult, Error> {
    if !scope.is_acknowledged() {
        return Ok(UpdateResult::default());
    }
    let read = WriteReply::read(Kind::Update, reply, 1)?;
    let read = read.single(|read| WriteResult::Update(read.into_update_result()))?;
    Ok(read.into_update_result())
}

impl SingleCommand for Update {
    type Output = UpdateResult;

    const COMMAND: &'static CStr = cstr!("update");
    const RULES: Rules = Rules::WRITE;

    fn rules(&self) -> Rules {
        Self::RULES.retryable(!self.multi)
    }

    fn write(&mut self, body: &mut Body<'_>) -> Result<(), Error> {
        let change = (update(&self.modifications)?, self.multi);
        write(body, &self.filter, change, &self.options)
    }

    fn read(&mut self, scope: &Scope, reply: &ReplyDocument) -> Result<UpdateResult, Error> {
        read(scope, reply)
    }
}

impl SingleCommand for Replace {
    type Output = UpdateResult;

    const COMMAND: &'static CStr = cstr!("update");
    const RULES: Rules = Rules::WRITE;

    fn write(&mut self, body: &mut Body<'_>) -> Result<(), Error> {
        let change = (replacement(&self.replacement)?, false);
        write(body, &self.filter, change, &self.options)
    }

    fn read(&mut self, scope: &Scope, reply: &ReplyDocument) -> Result<UpdateResult, Error> {
        read(scope, reply)
    }
}

#[cfg(test)]
mod tests {
    use bson::{Bson, doc, rawdoc};
    use sdam_core::wire::ReplyDocument;

    use super::super::testing::{NEW, majority, scope, written, written_in};
    use super::super::{Operation, Progress};
    use super::{Replace, Update};
    use crate::results::WriteResult;

    #[test]
    fn an_update_keeps_apart_what_is_the_statements_and_what_is_the_commands() {
        let update = Update::new(doc! { "a": 1 }, doc! { "$set": { "b": 1 } })
            .upsert(true)
            .comment("why")
            .let_vars(doc! { "x": 1 });
        let mut one = update.clone();
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
        let mut many = update.multi(true);
        // Retryable Writes: updateMany is not.
        assert!(!many.command(&scope(), &NEW).unwrap().retryable);
        let statements = written(&mut many, NEW).body;
        let statement = statements.get_array("updates").unwrap().get_document(0).unwrap();
        assert_eq!(statement.get_bool("multi").ok(), Some(true));
    }

    #[test]
    fn an_update_may_be_a_pipeline() {
        let mut update = Update::new(doc! {}, [doc! { "$unset": "a" }]);
        let body = written(&mut update, NEW).body;
        let statement = body.get_array("updates").unwrap().get_document(0).unwrap().to_owned();
        assert_eq!(statement, rawdoc! { "q": {}, "u": [{ "$unset": "a" }] });
    }

    /// CRUD, "Update vs. Replace Validation".
    #[test]
    fn updates_have_operators_and_replacements_have_none() {
        for modifications in [doc! {}, doc! { "a": 1 }] {
            let mut update = Update::new(doc! {}, modifications);
            assert!(update.command(&scope(), &NEW).is_err());
        }
        let mut replace = Replace::new(doc! {}, &doc! { "$set": { "a": 1 } });
        assert!(replace.command(&scope(), &NEW).is_err());
        let mut replace = Replace::new(doc! {}, &doc! {});
        assert!(replace.command(&scope(), &NEW).is_ok());
    }

    #[test]
    fn the_result_tells_what_was_upserted_and_errors_are_errors() {
        let mut replace = Replace::new(doc! {}, &doc! { "a": 1 }).upsert(true);
        let mut answer = |reply| replace.reply(&scope(), &ReplyDocument::from(reply));
        let upserted = rawdoc! { "index": 0, "_id": 7 };
        let reply = rawdoc! { "ok": 1, "n": 1, "nModified": 0, "upserted": [upserted] };
        let Ok(Progress::Done(result)) = answer(reply) else { panic!() };
        assert_eq!((result.matched_count, result.upserted_id), (0, Some(Bson::Int32(7))));
        let refused = rawdoc! { "index": 0, "code": 121, "errmsg": "invalid" };
        let reply = rawdoc! { "ok": 1, "n": 0, "writeErrors": [refused] };
        let error = answer(reply).unwrap_err();
        assert!(error.as_write().is_some());
        assert_eq!(error.to_string(), "the write at index 0 was refused: invalid (code 121)");
        let late = rawdoc! { "code": 64, "errmsg": "late" };
        let upserted = rawdoc! { "index": 0, "_id": 7 };
        let reply = rawdoc! {
            "ok": 1, "n": 1, "nModified": 0, "upserted": [upserted], "writeConcernError": late,
        };
        let error = answer(reply).unwrap_err();
        let done = &error.as_write_concern().unwrap().result;
        let Some(WriteResult::Update(result)) = done else { panic!("{error:?}") };
        assert_eq!((result.upserted_count, &result.upserted_id), (1, &Some(Bson::Int32(7))));
    }
}
