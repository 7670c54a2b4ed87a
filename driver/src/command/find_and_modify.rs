//! Writes that return the document (CRUD, `findOneAndDelete`, `findOneAndReplace`,
//! `findOneAndUpdate`), by the command `findAndModify`.

use std::borrow::Cow;

use bson::raw::cstr;
use bson::{RawBsonRef, RawDocumentBuf};
use sdam_core::wire::ReplyDocument;
use serde::Serialize;

use super::fields::{Fields, Value, document, get, options};
use super::models::{replacement, serialized, update};
use super::{Command, Facts, MONGODB_4_4, Operation, Progress, Scope, left_out};
use crate::error::{ArgumentError, Error, ReplyError, WriteConcernError};
use crate::results::WriteResult;
use crate::value::{IntoDocument, Modifications};

/// The document that is returned (CRUD, `returnDocument`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum ReturnDocument {
    /// That of before the change.
    #[default]
    Before,
    /// That of after the change.
    After,
}

/// `findOneAndDelete`: the deletion of a document, which is returned.
#[derive(Clone, Debug)]
pub struct FindOneAndDelete {
    filter: Value,
    options: Fields,
}

options! {
    FindOneAndDelete {
        /// Sets the rules for comparing texts.
        collation: document = "collation";
        /// Adds a comment, which servers write to their logs.
        comment: value = "comment";
        /// Sets the index to be used (MongoDB 4.4).
        hint: hint = "hint";
        /// Sets the values of variables for expressions.
        let_vars: document = "let";
        /// Sets how long the server may take, in whole milliseconds; deprecated in favour of
        /// `timeoutMS`.
        max_time: millis = "maxTimeMS";
        /// Sets which fields there are in the document.
        projection: document = "fields";
        /// Reads the documents of time series as they are stored (MongoDB 8.2); not for
        /// applications.
        raw_data: truth = "rawData";
        /// Sets the order, of which the first document is deleted.
        sort: document = "sort";
    }
}

/// `findOneAndReplace`: the replacement of a document, which is returned.
#[derive(Clone, Debug)]
pub struct FindOneAndReplace {
    filter: Value,
    replacement: Value,
    returned: ReturnDocument,
    options: Fields,
}

options! {
    FindOneAndReplace {
        /// Writes a document that the collection's rules forbid.
        bypass_document_validation: truth = "bypassDocumentValidation";
        /// Sets the rules for comparing texts.
        collation: document = "collation";
        /// Adds a comment, which servers write to their logs.
        comment: value = "comment";
        /// Sets the index to be used (MongoDB 4.4).
        hint: hint = "hint";
        /// Sets the values of variables for expressions.
        let_vars: document = "let";
        /// Sets how long the server may take, in whole milliseconds; deprecated in favour of
        /// `timeoutMS`.
        max_time: millis = "maxTimeMS";
        /// Sets which fields there are in the document.
        projection: document = "fields";
        /// Reads the documents of time series as they are stored (MongoDB 8.2); not for
        /// applications.
        raw_data: truth = "rawData";
        /// Sets the order, of which the first document is replaced.
        sort: document = "sort";
        /// Inserts the document if none matches.
        upsert: truth = "upsert";
    }
}

/// `findOneAndUpdate`: the update of a document, which is returned.
#[derive(Clone, Debug)]
pub struct FindOneAndUpdate {
    filter: Value,
    modifications: Value,
    returned: ReturnDocument,
    options: Fields,
}

options! {
    FindOneAndUpdate {
        /// Sets which elements of arrays are updated.
        array_filters: documents = "arrayFilters";
        /// Writes a document that the collection's rules forbid.
        bypass_document_validation: truth = "bypassDocumentValidation";
        /// Sets the rules for comparing texts.
        collation: document = "collation";
        /// Adds a comment, which servers write to their logs.
        comment: value = "comment";
        /// Sets the index to be used (MongoDB 4.4).
        hint: hint = "hint";
        /// Sets the values of variables for expressions.
        let_vars: document = "let";
        /// Sets how long the server may take, in whole milliseconds; deprecated in favour of
        /// `timeoutMS`.
        max_time: millis = "maxTimeMS";
        /// Sets which fields there are in the document.
        projection: document = "fields";
        /// Reads the documents of time series as they are stored (MongoDB 8.2); not for
        /// applications.
        raw_data: truth = "rawData";
        /// Sets the order, of which the first document is updated.
        sort: document = "sort";
        /// Inserts a document if none matches.
        upsert: truth = "upsert";
    }
}

impl FindOneAndDelete {
    /// Deletes the first document that a filter matches.
    pub fn new(filter: impl IntoDocument) -> Self {
        Self { filter: document(filter), options: Fields::default() }
    }
}

impl<D: IntoDocument> From<D> for FindOneAndDelete {
    fn from(filter: D) -> Self {
        Self::new(filter)
    }
}

impl FindOneAndReplace {
    /// Replaces the first document that a filter matches.
    pub fn new(filter: impl IntoDocument, replacement: &impl Serialize) -> Self {
        Self {
            filter: document(filter),
            replacement: serialized(replacement),
            returned: ReturnDocument::Before,
            options: Fields::default(),
        }
    }

    /// Sets which document is returned.
    #[must_use]
    pub const fn return_document(mut self, returned: ReturnDocument) -> Self {
        self.returned = returned;
        self
    }
}

impl FindOneAndUpdate {
    /// Updates the first document that a filter matches, by operators or a pipeline.
    pub fn new(filter: impl IntoDocument, modifications: impl Into<Modifications>) -> Self {
        Self {
            filter: document(filter),
            modifications: modifications.into().0,
            returned: ReturnDocument::Before,
            options: Fields::default(),
        }
    }

    /// Sets which document is returned.
    #[must_use]
    pub const fn return_document(mut self, returned: ReturnDocument) -> Self {
        self.returned = returned;
        self
    }
}

/// Writes the command; without modifications it deletes.
fn command<'a>(
    scope: &Scope,
    facts: &Facts,
    (filter, options): (&Value, &Fields),
    change: Option<(RawBsonRef<'_>, ReturnDocument)>,
) -> Result<Command<'a>, Error> {
    let is_old = facts.max_wire_version < MONGODB_4_4;
    if is_old && !scope.is_acknowledged() && options.has(cstr!("hint")) {
        return Err(ArgumentError::Unacknowledged("hint").into());
    }
    let mut body = super::on_collection(cstr!("findAndModify"), scope);
    body.append(cstr!("query"), get(filter)?);
    match change {
        Some((modifications, returned)) => {
            body.append(cstr!("update"), modifications);
            if returned == ReturnDocument::After {
                body.append(cstr!("new"), true);
            }
        }
        None => body.append(cstr!("remove"), true),
    }
    options.write(&mut body, &left_out(scope, facts, &[]))?;
    Command::write(scope, body, true)
}

/// Returns the document that the reply has, if there was one; nothing is known of an
/// unacknowledged write.
fn read(scope: &Scope, reply: &ReplyDocument) -> Result<Progress<Option<RawDocumentBuf>>, Error> {
    let missing = ReplyError { command: "findAndModify", field: "value" };
    let document = match reply.get("value").map_err(|_| missing.clone())? {
        Some(RawBsonRef::Document(document)) => Ok(Some(document.to_owned())),
        Some(RawBsonRef::Null) => Ok(None),
        None if !scope.is_acknowledged() => Ok(None),
        _ => Err(missing),
    };
    // The document is changed or deleted, whether or not secondaries have heard of it.
    if let Some(error) = WriteConcernError::in_reply(reply) {
        let result = document.ok().map(WriteResult::FindOneAnd);
        return Err(Error::WriteConcern(WriteConcernError { result, ..error }.into()));
    }
    Ok(Progress::Done(document?))
}

impl Operation for FindOneAndDelete {
    type Output = Option<RawDocumentBuf>;

    fn name(&self) -> Cow<'static, str> {
        "findAndModify".into()
    }

    fn command(&mut self, scope: &Scope, facts: &Facts) -> Result<Command<'_>, Error> {
        command(scope, facts, (&self.filter, &self.options), None)
    }

    fn reply(
        &mut self,
        scope: &Scope,
        reply: &ReplyDocument,
    ) -> Result<Progress<Self::Output>, Error> {
        read(scope, reply)
    }
}

impl Operation for FindOneAndReplace {
    type Output = Option<RawDocumentBuf>;

    fn name(&self) -> Cow<'static, str> {
        "findAndModify".into()
    }

    fn command(&mut self, scope: &Scope, facts: &Facts) -> Result<Command<'_>, Error> {
        let change = (replacement(&self.replacement)?, self.returned);
        command(scope, facts, (&self.filter, &self.options), Some(change))
    }

    fn reply(
        &mut self,
        scope: &Scope,
        reply: &ReplyDocument,
    ) -> Result<Progress<Self::Output>, Error> {
        read(scope, reply)
    }
}

impl Operation for FindOneAndUpdate {
    type Output = Option<RawDocumentBuf>;

    fn name(&self) -> Cow<'static, str> {
        "findAndModify".into()
    }

    fn command(&mut self, scope: &Scope, facts: &Facts) -> Result<Command<'_>, Error> {
        let change = (update(&self.modifications)?, self.returned);
        command(scope, facts, (&self.filter, &self.options), Some(change))
    }

    fn reply(
        &mut self,
        scope: &Scope,
        reply: &ReplyDocument,
    ) -> Result<Progress<Self::Output>, Error> {
        read(scope, reply)
    }
}

#[cfg(test)]
mod tests {
    use bson::{doc, rawdoc};
    use sdam_core::wire::ReplyDocument;

    use super::super::testing::{NEW, OLD, majority, scope, unacknowledged, written, written_in};
    use super::super::{Facts, MONGODB_4_4, Operation, Progress};
    use super::{FindOneAndDelete, FindOneAndReplace, FindOneAndUpdate, ReturnDocument};
    use crate::error::Error;

    #[test]
    fn each_of_the_three_has_its_form() {
        let mut delete = FindOneAndDelete::new(doc! { "a": 1 }).sort(doc! { "b": 1 });
        let expected = rawdoc! {
            "findAndModify": "things",
            "query": { "a": 1 },
            "remove": true,
            "sort": { "b": 1 },
            "writeConcern": { "w": "majority" },
        };
        assert_eq!(written_in(&mut delete, &majority(), NEW).body, expected);
        assert!(delete.command(&scope(), &NEW).unwrap().retryable);
        let mut replace = FindOneAndReplace::new(doc! {}, &doc! { "b": 1 })
            .return_document(ReturnDocument::After)
            .projection(doc! { "_id": 0 });
        let expected = rawdoc! {
            "findAndModify": "things",
            "query": {},
            "update": { "b": 1 },
            "new": true,
            "fields": { "_id": 0 },
        };
        assert_eq!(written(&mut replace, NEW).body, expected);
        let mut update = FindOneAndUpdate::new(doc! {}, [doc! { "$set": { "b": 1 } }]).upsert(true);
        let expected = rawdoc! {
            "findAndModify": "things",
            "query": {},
            "update": [{ "$set": { "b": 1 } }],
            "upsert": true,
        };
        assert_eq!(written(&mut update, NEW).body, expected);
    }

    #[test]
    fn the_document_may_be_missing() {
        let mut delete = FindOneAndDelete::new(doc! {});
        let mut answer = |reply| delete.reply(&scope(), &ReplyDocument::from(reply));
        let found = answer(rawdoc! { "value": { "a": 1 } }).unwrap();
        assert_eq!(found, Progress::Done(Some(rawdoc! { "a": 1 })));
        assert_eq!(answer(rawdoc! { "value": null }).unwrap(), Progress::Done(None));
        assert!(answer(rawdoc! { "ok": 1 }).is_err());
        let late = rawdoc! { "code": 64, "errmsg": "late" };
        let reply = rawdoc! { "value": { "a": 1 }, "writeConcernError": late.clone() };
        let Err(Error::WriteConcern(error)) = answer(reply) else { panic!() };
        assert_eq!(error.document().unwrap(), Some(doc! { "a": 1 }));
        assert_eq!((error.code, &*error.message), (64, "late"));
        // Neither a document that is none nor one of another type hides the error.
        for value in [bson::RawBson::Null, bson::RawBson::Int32(1)] {
            let reply = rawdoc! { "value": value, "writeConcernError": late.clone() };
            let Err(Error::WriteConcern(error)) = answer(reply) else { panic!() };
            assert_eq!((error.code, error.document::<bson::Document>().unwrap()), (64, None));
        }
    }

    /// CRUD, "Update vs. Replace Validation"; `hint`: "For unacknowledged writes and servers < 4.4,
    /// the driver MUST raise an error".
    #[test]
    fn what_is_invalid_is_refused() {
        assert!(FindOneAndUpdate::new(doc! {}, doc! {}).command(&scope(), &NEW).is_err());
        let operator = doc! { "$set": {} };
        assert!(FindOneAndReplace::new(doc! {}, &operator).command(&scope(), &NEW).is_err());
        let mut hinted = FindOneAndDelete::new(doc! {}).hint("_id_");
        assert!(hinted.command(&unacknowledged(), &OLD).is_err());
        assert!(hinted.command(&scope(), &OLD).is_ok());
    }

    /// CRUD, "Hint": servers from 4.4 on take it in writes without acknowledgment, too; such a
    /// write has no document, and any other reply without one is an error.
    #[test]
    fn a_write_without_acknowledgment_has_no_document() {
        let hinted = || FindOneAndDelete::new(doc! {}).hint("a_1");
        let since = Facts::of_wire_version(MONGODB_4_4);
        assert!(hinted().command(&unacknowledged(), &since).is_ok());
        assert!(hinted().command(&unacknowledged(), &OLD).is_err());
        assert!(hinted().command(&scope(), &OLD).is_ok());
        let nothing = ReplyDocument::from(rawdoc! { "ok": 1 });
        assert_eq!(hinted().reply(&unacknowledged(), &nothing).unwrap(), Progress::Done(None));
        assert!(hinted().reply(&scope(), &nothing).is_err());
    }
}
