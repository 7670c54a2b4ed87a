//! Insertions (CRUD, `insertOne` and `insertMany`).

use std::borrow::Borrow;
use std::fmt;

use bson::raw::{CStr, cstr};
use bson::{Bson, Document, RawDocument};
use sdam_core::wire::ReplyDocument;
use serde::Serialize;

use super::arguments::{Arguments, FromArguments};
use super::bulk_write::Statements;
use super::documents::Documents;
use super::fields::Fields;
use super::single::{Body, Rules, SingleCommand};
use super::{Command, Facts, Operation, Progress, Scope};
use crate::error::{ArgumentError, Error, WriteError};
use crate::reply::write::{Kind, WriteReply};
use crate::results::{BulkWriteResult, InsertManyResult, InsertOneResult, WriteResult};

/// `insertOne`: the insertion of a document, with an `_id` if it has none.
#[derive(Clone)]
pub struct InsertOne {
    document: Result<(Documents, Bson), Error>,
    options: Fields,
}

operation! {
    pub struct InsertOne as InsertOneOptions;

    options {
        /// Inserts a document that the collection's rules forbid.
        bypass_document_validation: bool = "bypassDocumentValidation";
        /// Adds a comment, which servers write to their logs.
        comment: value = "comment";
        /// Writes documents of time series as they are stored (MongoDB 8.2); not for applications.
        raw_data: bool = "rawData";
    }
}

impl InsertOne {
    /// Inserts a document.
    pub fn new(document: &impl Serialize) -> Self {
        let mut documents = Documents::default();
        let written = documents.serialize(document).and_then(|()| documents.identify_last());
        let document = written.map(|id| (documents, id));
        Self { document, options: Fields::default() }
    }
}

impl FromArguments for InsertOne {
    fn required(arguments: &mut Arguments) -> Result<Self, ArgumentError> {
        Ok(Self::new(&arguments.required::<Document>("document")?))
    }
}

from_document!(InsertOne);

/// Prints no document.
impl fmt::Debug for InsertOne {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let document = self.document.as_ref().map(|(document, _)| document);
        let mut insert = f.debug_struct("InsertOne");
        insert.field("document", &document).field("options", &self.options).finish_non_exhaustive()
    }
}

impl SingleCommand for InsertOne {
    type Output = InsertOneResult;

    const COMMAND: &'static CStr = cstr!("insert");
    const RULES: Rules = Rules::WRITE;

    fn write(&mut self, body: &mut Body<'_>) -> Result<(), Error> {
        let (documents, _) = self.document.as_ref().map_err(Error::clone)?;
        let length = documents.length(0);
        if let Some(excess) = body.facts.excess(body.scope, length, || length) {
            return Err(WriteError::too_large(0, excess).into());
        }
        body.append(cstr!("ordered"), true);
        body.options(&self.options, &[])
    }

    fn sequences(&self) -> Vec<(&'static str, Vec<&RawDocument>)> {
        let document = self.document.iter().map(|(documents, _)| documents.get(0));
        vec![("documents", document.collect())]
    }

    fn read(&mut self, scope: &Scope, reply: &ReplyDocument) -> Result<InsertOneResult, Error> {
        let acknowledged = scope.is_acknowledged();
        let (_, id) = self.document.as_ref().map_err(Error::clone)?;
        let mut result = InsertOneResult::default();
        (result.acknowledged, result.inserted_id) = (acknowledged, id.clone());
        if acknowledged {
            let read = WriteReply::read(Kind::Insert, reply, 1)?;
            read.single(|_| WriteResult::InsertOne(result.clone()))?;
        }
        Ok(result)
    }
}

/// `insertMany`: the insertion of documents, in as many commands as their number and length need.
#[derive(Clone, Debug)]
pub struct InsertMany {
    statements: Statements,
    error: Option<Error>,
    options: Fields,
}

operation! {
    pub struct InsertMany as InsertManyOptions;

    options {
        /// Inserts documents that the collection's rules forbid.
        bypass_document_validation: bool = "bypassDocumentValidation";
        /// Adds a comment, which servers write to their logs.
        comment: value = "comment";
        /// Writes documents of time series as they are stored (MongoDB 8.2); not for applications.
        raw_data: bool = "rawData";
        /// Goes on after a document that the server has refused, if false.
        ordered: bool = "ordered" in statements.ordered;
    }
}

impl InsertMany {
    /// Inserts documents in their order, up to the first that the server refuses.
    pub fn new<T: Serialize>(documents: impl IntoIterator<Item = impl Borrow<T>>) -> Self {
        let (mut statements, mut error) = (Statements::default(), None);
        let mut documents = documents.into_iter();
        while let Some(document) = documents.next() {
            if let Err(failed) = statements.insert(document.borrow()) {
                error.get_or_insert(failed);
            }
            if statements.len() == 1 {
                statements.documents.expect(documents.size_hint().0);
            }
        }
        if statements.len() == 0 {
            error.get_or_insert(ArgumentError::NoDocuments.into());
        }
        Self { statements, error, options: Fields::default() }
    }
}

impl InsertMany {
    /// Inserts documents that have an `_id`.
    pub(crate) fn of(documents: Documents) -> Self {
        let mut statements = Statements::default();
        statements.kinds = vec![Kind::Insert; documents.len()];
        statements.documents = documents;
        Self { statements, error: None, options: Fields::default() }
    }
}

impl FromArguments for InsertMany {
    fn required(arguments: &mut Arguments) -> Result<Self, ArgumentError> {
        Ok(Self::new::<Document>(arguments.required::<Vec<Document>>("documents")?))
    }
}

from_document!(InsertMany);

impl Operation for InsertMany {
    type Output = InsertManyResult;

    fn name(&self) -> &'static str {
        "insert"
    }

    fn command(&mut self, scope: &Scope, facts: &Facts) -> Result<Command<'_>, Error> {
        if let Some(error) = &self.error {
            return Err(error.clone());
        }
        self.statements.command(scope, facts, &self.options)
    }

    fn reply(
        &mut self,
        scope: &Scope,
        reply: &ReplyDocument,
    ) -> Result<Progress<InsertManyResult>, Error> {
        Ok(match self.statements.reply(scope, reply)? {
            Progress::Next => Progress::Next,
            Progress::Done(BulkWriteResult { acknowledged, inserted_ids, .. }) => {
                let mut result = InsertManyResult::default();
                (result.acknowledged, result.inserted_ids) = (acknowledged, inserted_ids);
                Progress::Done(result)
            }
        })
    }

    fn failed(&mut self, error: Error) -> Result<Progress<InsertManyResult>, Error> {
        Err(self.statements.failed(error))
    }
}

impl Statements {
    /// Adds the insertion of a document.
    pub(crate) fn insert(&mut self, document: &impl Serialize) -> Result<(), Error> {
        self.documents.serialize(document)?;
        let id = self.documents.identify_last()?;
        self.kinds.push(Kind::Insert);
        self.ids.push((self.kinds.len() - 1, id));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use bson::{Bson, Document, doc, rawdoc};
    use sdam_core::config::ReadConcern;
    use sdam_core::wire::ReplyDocument;

    use super::super::find::FindOne;
    use super::super::testing::{NEW, majority, scope, unacknowledged, written, written_in};
    use super::super::{Facts, Operation, Progress, Scope};
    use super::{InsertMany, InsertOne};
    use crate::error::ArgumentError;
    use crate::results::WriteResult;

    #[test]
    fn a_document_is_inserted_as_a_sequence_with_its_id() {
        let mut insert = InsertOne::new(&doc! { "_id": 1, "a": 2 }).comment("why");
        let command = written_in(&mut insert, &majority(), NEW);
        let expected = rawdoc! {
            "insert": "things",
            "ordered": true,
            "comment": "why",
            "writeConcern": { "w": "majority" },
        };
        assert_eq!(command.body, expected);
        assert_eq!(command.sequences, [("documents", vec![rawdoc! { "_id": 1, "a": 2 }])]);
        assert!(insert.command(&scope(), &NEW).unwrap().retryable);
        let reply = ReplyDocument::from(rawdoc! { "ok": 1, "n": 1 });
        let Ok(Progress::Done(result)) = insert.reply(&scope(), &reply) else { panic!() };
        assert_eq!((result.acknowledged, &result.inserted_id), (true, &Bson::Int32(1)));
        let late = rawdoc! { "code": 64, "errmsg": "late" };
        let reply = ReplyDocument::from(rawdoc! { "ok": 1, "n": 1, "writeConcernError": late });
        let error = insert.reply(&scope(), &reply).unwrap_err();
        let done = &error.as_write_concern().unwrap().result;
        assert_eq!(*done, Some(WriteResult::InsertOne(result)));
    }

    /// Read and Write Concern, "Inconsistent WriteConcern"; "`afterClusterTime`": of a session's
    /// time, and nothing else.
    #[test]
    fn a_write_is_told_no_level_and_no_concern_that_contradicts_itself() {
        let mut insert = InsertOne::new(&doc! { "a": 2 });
        let level = ReadConcern::default().with_level(Some("majority".to_owned()));
        let majority = Scope { read_concern: level.clone(), ..scope() };
        let command = insert.command(&majority, &NEW).unwrap();
        assert_eq!(command.read_concern(&majority), Some(ReadConcern::default()));
        let mut find = FindOne::new(doc! {});
        let command = find.command(&majority, &NEW).unwrap();
        assert_eq!(command.read_concern(&majority), Some(level));
        let w0 = unacknowledged();
        let journaled = w0.write_concern.clone().with_journal(Some(true));
        let error = insert.command(&Scope { write_concern: journaled, ..w0 }, &NEW).unwrap_err();
        assert_eq!(error.as_argument(), Some(&ArgumentError::JournaledUnacknowledged));
    }

    /// Retryable Writes, "Unacknowledged Writes"; Read and Write Concern: w 0 is sent.
    #[test]
    fn an_unacknowledged_insertion_says_so_and_is_not_repeated() {
        let mut insert = InsertOne::new(&doc! { "a": 2 });
        let scope = unacknowledged();
        let command = insert.command(&scope, &NEW).unwrap();
        assert!(!command.acknowledged && !command.retryable);
        assert_eq!(command.body.get_document("writeConcern").unwrap(), &*rawdoc! { "w": 0 });
        let reply = ReplyDocument::from(rawdoc! { "ok": 1 });
        let Ok(Progress::Done(result)) = insert.reply(&scope, &reply) else { panic!() };
        assert!(!result.acknowledged && matches!(result.inserted_id, Bson::ObjectId(_)));
    }

    /// CRUD: "An error MUST be raised if the documents parameter is empty."
    #[test]
    fn nothing_to_insert_is_an_error() {
        let mut insert = InsertMany::new::<Document>(Vec::<Document>::new());
        let error = insert.command(&scope(), &NEW).unwrap_err();
        assert_eq!(error.to_string(), "there are no documents to insert");
    }

    #[test]
    fn many_documents_are_inserted_batch_by_batch() {
        let documents: Vec<Document> = (0..5).map(|id| doc! { "_id": id }).collect();
        let mut insert = InsertMany::new::<Document>(&documents);
        let facts = Facts { max_write_batch_size: 2, ..NEW };
        for (lengths, n) in [(2, 2), (2, 2), (1, 1)] {
            let command = written(&mut insert, facts);
            assert_eq!(command.sequences[0].1.len(), lengths);
            let reply = ReplyDocument::from(rawdoc! { "ok": 1, "n": n });
            match insert.reply(&scope(), &reply).unwrap() {
                Progress::Next => assert_eq!(lengths, 2),
                Progress::Done(result) => assert_eq!(result.inserted_ids.len(), 5),
            }
        }
    }

    /// CRUD, "insertMany": the index of an error is that of the document; the error has the results
    /// of what was inserted before.
    #[test]
    fn the_first_document_that_is_refused_ends_an_ordered_insertion() {
        let documents: Vec<Document> = (0..5).map(|id| doc! { "_id": id }).collect();
        let mut insert = InsertMany::new::<Document>(&documents);
        let facts = Facts { max_write_batch_size: 2, ..NEW };
        written(&mut insert, facts);
        insert.reply(&scope(), &ReplyDocument::from(rawdoc! { "ok": 1, "n": 2 })).unwrap();
        written(&mut insert, facts);
        let reply = rawdoc! {
            "ok": 1,
            "n": 1,
            "writeErrors": [{ "index": 1, "code": 11000, "errmsg": "duplicate" }],
        };
        let error = insert.reply(&scope(), &ReplyDocument::from(reply)).unwrap_err();
        let error = error.as_bulk_write().unwrap();
        assert_eq!(error.write_errors.keys().collect::<Vec<_>>(), [&3]);
        assert_eq!(error.partial_result.inserted_count, 3);
        assert_eq!(error.partial_result.inserted_ids.keys().collect::<Vec<_>>(), [&0, &1, &2]);
    }
}
