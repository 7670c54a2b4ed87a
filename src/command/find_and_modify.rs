//! Writes that return the document (CRUD, `findOneAndDelete`, `findOneAndReplace`,
//! `findOneAndUpdate`), by the command `findAndModify`.

use bson::raw::{CStr, cstr};
use bson::{RawBsonRef, RawDocumentBuf};
use sdam_core::wire::ReplyDocument;
use serde::Serialize;

use super::fields::{Fields, Value, get};
use super::models::{replacement, update};
use super::single::{Body, Rules, SingleCommand};
use super::{MONGODB_4_4, Scope};
use crate::error::{ArgumentError, Error, ReplyError, WriteConcernError};
use crate::results::WriteResult;

/// The document that is returned (CRUD, `returnDocument`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize)]
#[non_exhaustive]
pub enum ReturnDocument {
    /// That of before the change.
    #[default]
    Before,
    /// That of after the change.
    After,
}

operation! {
    /// `findOneAndDelete`: the deletion of a document, which is returned.
    #[derive(Clone, Debug)]
    pub struct FindOneAndDelete as FindOneAndDeleteOptions {}

    arguments {
        /// Deletes the first document that a filter matches.
        new(filter: document = "filter");
    }

    options {
        /// Sets the rules for comparing texts.
        collation: collation = "collation";
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
        projection: document = "projection" as "fields";
        /// Reads the documents of time series as they are stored (MongoDB 8.2); not for
        /// applications.
        raw_data: bool = "rawData";
        /// Sets the order, of which the first document is deleted.
        sort: document = "sort";
    }
}

operation! {
    /// `findOneAndReplace`: the replacement of a document, which is returned.
    #[derive(Clone, Debug)]
    pub struct FindOneAndReplace as FindOneAndReplaceOptions { returned: ReturnDocument }

    arguments {
        /// Replaces the first document that a filter matches.
        new(filter: document = "filter", replacement: serialized = "replacement");
    }

    options {
        /// Writes a document that the collection's rules forbid.
        bypass_document_validation: bool = "bypassDocumentValidation";
        /// Sets the rules for comparing texts.
        collation: collation = "collation";
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
        projection: document = "projection" as "fields";
        /// Reads the documents of time series as they are stored (MongoDB 8.2); not for
        /// applications.
        raw_data: bool = "rawData";
        /// Sets the order, of which the first document is replaced.
        sort: document = "sort";
        /// Inserts the document if none matches.
        upsert: bool = "upsert";
        /// Sets which document is returned.
        return_document: ReturnDocument = "returnDocument" in returned;
    }
}

operation! {
    /// `findOneAndUpdate`: the update of a document, which is returned.
    #[derive(Clone, Debug)]
    pub struct FindOneAndUpdate as FindOneAndUpdateOptions { returned: ReturnDocument }

    arguments {
        /// Updates the first document that a filter matches, by operators or a pipeline.
        new(filter: document = "filter", modifications: modifications = "update");
    }

    options {
        /// Sets which elements of arrays are updated.
        array_filters: documents = "arrayFilters";
        /// Writes a document that the collection's rules forbid.
        bypass_document_validation: bool = "bypassDocumentValidation";
        /// Sets the rules for comparing texts.
        collation: collation = "collation";
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
        projection: document = "projection" as "fields";
        /// Reads the documents of time series as they are stored (MongoDB 8.2); not for
        /// applications.
        raw_data: bool = "rawData";
        /// Sets the order, of which the first document is updated.
        sort: document = "sort";
        /// Inserts a document if none matches.
        upsert: bool = "upsert";
        /// Sets which document is returned.
        return_document: ReturnDocument = "returnDocument" in returned;
    }
}

/// The change of a document, and which one is returned; none is its deletion.
type Change<'a> = Option<(RawBsonRef<'a>, ReturnDocument)>;

impl FindOneAndDelete {
    const fn change(&self) -> Result<Change<'_>, Error> {
        Ok(None)
    }
}

impl FindOneAndReplace {
    fn change(&self) -> Result<Change<'_>, Error> {
        Ok(Some((replacement(&self.replacement)?, self.returned)))
    }
}

impl FindOneAndUpdate {
    fn change(&self) -> Result<Change<'_>, Error> {
        Ok(Some((update(&self.modifications)?, self.returned)))
    }
}

macro_rules! find_and_modify {
    ($($operation:ident)+) => {
        $(impl SingleCommand for $operation {
            type Output = Option<RawDocumentBuf>;

            const COMMAND: &'static CStr = cstr!("findAndModify");
            const RULES: Rules = Rules::WRITE;

            fn write(&mut self, body: &mut Body<'_>) -> Result<(), Error> {
                write(body, &self.filter, &self.options, self.change()?)
            }

            fn read(
                &mut self,
                scope: &Scope,
                reply: &ReplyDocument,
            ) -> Result<Self::Output, Error> {
                read(scope, reply)
            }
        })+
    };
}

find_and_modify! { FindOneAndDelete FindOneAndReplace FindOneAndUpdate }

fn write(
    body: &mut Body<'_>,
    filter: &Value,
    options: &Fields,
    change: Change<'_>,
) -> Result<(), Error> {
    let is_old = body.facts.max_wire_version < MONGODB_4_4;
    if is_old && !body.scope.is_acknowledged() && options.has(cstr!("hint")) {
        return Err(ArgumentError::Unacknowledged("hint").into());
    }
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
    body.options(options, &[])
}

/// Returns the document that the reply has, if there was one; nothing is known of an
/// unacknowledged write.
fn read(scope: &Scope, reply: &ReplyDocument) -> Result<Option<RawDocumentBuf>, Error> {
    let missing = ReplyError::new("findAndModify", "value");
    let document = match reply.get("value").map_err(|_| missing.clone())? {
        Some(RawBsonRef::Document(document)) => Ok(Some(document.to_owned())),
        Some(RawBsonRef::Null) => Ok(None),
        None if !scope.is_acknowledged() => Ok(None),
        _ => Err(missing),
    };
    // The document is changed or deleted, whether or not secondaries have heard of it.
    if let Some(mut error) = WriteConcernError::in_reply(reply) {
        error.result = document.ok().map(WriteResult::FindOneAnd);
        return Err(error.into());
    }
    Ok(document?)
}

#[cfg(test)]
mod tests {
    use bson::{doc, rawdoc};
    use sdam_core::wire::ReplyDocument;

    use super::super::testing::{NEW, OLD, majority, scope, unacknowledged, written, written_in};
    use super::super::{Facts, MONGODB_4_4, Operation, Progress};
    use super::{FindOneAndDelete, FindOneAndReplace, FindOneAndUpdate, ReturnDocument};

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
        let error = answer(reply).unwrap_err();
        let error = error.as_write_concern().unwrap();
        assert_eq!(error.document().unwrap(), Some(doc! { "a": 1 }));
        assert_eq!((error.code, &*error.message), (64, "late"));
        // Neither a document that is none nor one of another type hides the error.
        for value in [bson::RawBson::Null, bson::RawBson::Int32(1)] {
            let reply = rawdoc! { "value": value, "writeConcernError": late.clone() };
            let error = answer(reply).unwrap_err();
            let error = error.as_write_concern().unwrap();
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
