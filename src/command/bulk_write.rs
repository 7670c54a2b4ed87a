//! Many writes to one collection (CRUD, `bulkWrite`), as insert, update and delete commands.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;

use bson::raw::{CStr, cstr};
use bson::{Bson, Document, RawDocumentBuf};
use sdam_core::operation::add_labels;
use sdam_core::wire::ReplyDocument;

use super::arguments::{Arguments, FromArguments};
use super::documents::Documents;
use super::fields::Fields;
use super::models::{OF_STATEMENT, Parts, WriteModel, stored_len};
use super::single::Rules;
use super::{Command, Facts, MONGODB_4_4, Operation, Progress, Scope, is_left_out};
use crate::error::{ArgumentError, BulkWriteError, Error, WriteConcernError, WriteError};
use crate::reply::write::{Kind, WriteReply, add};
use crate::results::BulkWriteResult;

/// The room for a command's header and for the fields that every command carries.
const ADDED_LEN: usize = 16 * 1024;

/// Statements for one collection, the batch that is under way, and what has come of those before.
#[derive(Clone)]
pub(crate) struct Statements {
    /// The statements as they are sent, and what each does.
    pub(crate) documents: Documents,
    pub(crate) kinds: Vec<Kind>,
    /// The statements that are about more than one document each, by index.
    multi: Vec<usize>,
    /// The index and the `_id` of each insertion, until it has succeeded.
    pub(crate) ids: Vec<(usize, Bson)>,
    pub(crate) ordered: bool,
    /// The statements in the order in which they are sent; filled with the first command.
    order: Vec<usize>,
    /// The part of `order` that is under way.
    batch: Range<usize>,
    result: BulkWriteResult,
    write_errors: BTreeMap<usize, WriteError>,
    write_concern_error: Option<WriteConcernError>,
    /// The labels of the replies with errors.
    labels: Vec<String>,
    /// The error of the statement that ends an ordered bulk, as the server would refuse its whole
    /// command, if nothing ends it before.
    too_large: Option<WriteError>,
}

/// Prints no document, and no `_id`.
impl std::fmt::Debug for Statements {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Statements")
            .field("documents", &self.documents)
            .field("ordered", &self.ordered)
            .field("batch", &self.batch)
            .finish_non_exhaustive()
    }
}

impl Default for Statements {
    fn default() -> Self {
        Self {
            documents: Documents::default(),
            kinds: Vec::new(),
            multi: Vec::new(),
            ids: Vec::new(),
            ordered: true,
            order: Vec::new(),
            batch: 0..0,
            result: BulkWriteResult::default(),
            write_errors: BTreeMap::new(),
            write_concern_error: None,
            labels: Vec::new(),
            too_large: None,
        }
    }
}

impl Statements {
    pub(crate) const fn len(&self) -> usize {
        self.kinds.len()
    }

    /// Adds a write, in its form on the wire.
    fn push(&mut self, parts: &Parts<'_>) -> Result<(), Error> {
        let kind = match parts {
            Parts::Insert(document) => return self.insert(document),
            Parts::Update { .. } => Kind::Update,
            Parts::Delete { .. } => Kind::Delete,
        };
        if parts.is_multi() {
            self.multi.push(self.kinds.len());
        }
        self.documents.push(&parts.statement()?);
        self.kinds.push(kind);
        Ok(())
    }

    /// Returns the name of the next command.
    fn name(&self) -> &'static str {
        let next = self.order.get(self.batch.end).map(|index| self.kinds[*index]);
        next.map_or("bulkWrite", |kind| kind.command().as_str())
    }

    /// Puts the statements in the order in which they are sent, but for those that are too large:
    /// the server would refuse all of their command. Of an unordered bulk, they have failed; an
    /// ordered one ends there.
    fn order(&mut self, scope: &Scope, facts: &Facts) {
        self.order = (0..self.len()).collect();
        match self.ordered {
            true => {
                let first = self.too_large(scope, facts).next();
                self.too_large = first;
                if let Some(error) = &self.too_large {
                    self.order.truncate(error.index);
                }
            }
            false => {
                let refused = self.too_large(scope, facts).map(|error| (error.index, error));
                self.write_errors = refused.collect();
                let errors = &self.write_errors;
                self.order.retain(|index| !errors.contains_key(index));
                // As few commands as possible: the server may take them in any order.
                self.order.sort_by_key(|index| self.kinds[*index] as u8);
            }
        }
    }

    /// Returns the errors of the statements that are too large, from the first on.
    fn too_large(&self, scope: &Scope, facts: &Facts) -> impl Iterator<Item = WriteError> {
        // Most bulks are no longer altogether than one document may be.
        let count = match self.documents.total_length() > facts.max_bson_object_size {
            true => self.len(),
            false => 0,
        };
        (0..count).filter_map(move |index| {
            let statement = self.documents.get(index);
            let length = statement.as_bytes().len();
            let stored = || match self.kinds[index] {
                Kind::Insert => length,
                Kind::Update => stored_len(statement.get("u").ok().flatten()),
                Kind::Delete => 0,
            };
            let excess = facts.excess(scope, length, stored)?;
            Some(WriteError::too_large(index, excess))
        })
    }

    /// Writes the command for the next statements; an error of a later one has the results of
    /// those before.
    pub(crate) fn command(
        &mut self,
        scope: &Scope,
        facts: &Facts,
        options: &Fields,
    ) -> Result<Command<'_>, Error> {
        self.result.acknowledged = scope.is_acknowledged();
        match self.prepare(scope, facts, options) {
            Ok((body, sequence)) => {
                let indexes = &self.order[self.batch.clone()];
                let documents = indexes.iter().map(|index| self.documents.get(*index)).collect();
                let is_multi = |index| self.multi.binary_search(index).is_ok();
                let retryable = !indexes.iter().any(is_multi);
                let sequences = vec![(sequence, documents)];
                let rules = Rules::WRITE.retryable(retryable);
                Ok(Command { sequences, ..rules.command(scope, body)? })
            }
            Err(error) if self.batch.end > 0 => Err(self.failed(error)),
            Err(error) => Err(error),
        }
    }

    /// Begins the next batch; returns its command without the statements, and the name for these.
    fn prepare(
        &mut self,
        scope: &Scope,
        facts: &Facts,
        options: &Fields,
    ) -> Result<(RawDocumentBuf, &'static str), Error> {
        if self.order.is_empty() {
            self.order(scope, facts);
            if self.order.is_empty() {
                return Err(self.conclude());
            }
        }
        let kind = self.kinds[self.order[self.batch.end]];
        let sequence = match kind {
            Kind::Insert => "documents",
            Kind::Update => "updates",
            Kind::Delete => "deletes",
        };
        let mut body = super::on_collection(kind.command(), scope);
        body.append(cstr!("ordered"), self.ordered);
        let is_known = |option: &CStr| match kind {
            // insert has no variables.
            Kind::Insert => option != cstr!("let"),
            Kind::Update => true,
            Kind::Delete => option != cstr!("bypassDocumentValidation"),
        };
        options.write_if(&mut body, |option| {
            let is_its_own = is_known(option) && !OF_STATEMENT.contains(&option);
            is_its_own && !is_left_out(scope, facts, option)
        })?;
        self.batch = self.next_batch(&body, kind, facts)?;
        Ok((body, sequence))
    }

    /// Returns the statements of the next batch: of one kind, as many as one command may have, and
    /// no longer than a message may be.
    fn next_batch(
        &self,
        body: &RawDocumentBuf,
        kind: Kind,
        facts: &Facts,
    ) -> Result<Range<usize>, Error> {
        let start = self.batch.end;
        let room = facts.max_message_size_bytes.saturating_sub(ADDED_LEN + body.as_bytes().len());
        let (mut end, mut length) = (start, 0);
        while let Some(&index) = self.order.get(end) {
            length += self.documents.length(index);
            let is_full = end - start >= facts.max_write_batch_size || length > room;
            if self.kinds[index] != kind || is_full {
                break;
            }
            end += 1;
        }
        if end == start {
            let (index, limit) = (self.order[start], room);
            return Err(ArgumentError::TooLong { index, length, limit }.into());
        }
        Ok(start..end)
    }

    /// Reads the reply to the batch that is under way.
    pub(crate) fn reply(
        &mut self,
        scope: &Scope,
        reply: &ReplyDocument,
    ) -> Result<Progress<BulkWriteResult>, Error> {
        let kind = self.kinds[self.order[self.batch.start]];
        let read = match scope.is_acknowledged() {
            true => WriteReply::read(kind, reply, self.batch.len()),
            false => Ok(WriteReply::default()),
        };
        match read {
            Ok(read) => self.add(kind, read),
            Err(error) => return Err(self.failed(error.into())),
        }
        let is_stopped = self.ordered && !self.write_errors.is_empty();
        if self.batch.end < self.order.len() && !is_stopped {
            return Ok(Progress::Next);
        }
        let is_done = self.write_errors.is_empty() && self.write_concern_error.is_none();
        match is_done && self.too_large.is_none() {
            true => Ok(Progress::Done(std::mem::take(&mut self.result))),
            false => Err(self.conclude()),
        }
    }

    /// Returns the error of a bulk that has come to its end, or to a write that has failed.
    fn conclude(&mut self) -> Error {
        // Behind another error of an ordered bulk nothing is tried.
        if let Some(error) = self.too_large.take().filter(|_| self.write_errors.is_empty()) {
            self.write_errors.insert(error.index, error);
        }
        self.error(None)
    }

    /// Adds what has come of the batch.
    fn add(&mut self, kind: Kind, read: WriteReply) {
        let sent = &self.order[self.batch.clone()];
        let result = &mut self.result;
        match kind {
            Kind::Insert => {
                add(&mut result.inserted_count, read.n);
                let failed = read.write_errors.iter().map(|error| error.index);
                let mut failed: Vec<usize> = failed.collect();
                failed.sort_unstable();
                // Those behind the first error of an ordered bulk were not tried.
                let tried = match (self.ordered, failed.first()) {
                    (true, Some(first)) => *first,
                    _ => sent.len(),
                };
                let ids = &mut self.ids;
                let done = sent.iter().enumerate().take(tried);
                let done = done.filter(|(at, _)| failed.binary_search(at).is_err());
                let inserted = done.filter_map(|(_, &index)| {
                    let at = ids.binary_search_by_key(&index, |(own, _)| *own).ok()?;
                    Some((index, std::mem::replace(&mut ids[at].1, Bson::Null)))
                });
                match result.inserted_ids.is_empty() {
                    // All at once, which takes less than one by one.
                    true => result.inserted_ids = inserted.collect(),
                    false => result.inserted_ids.extend(inserted),
                }
            }
            Kind::Update => {
                add(&mut result.matched_count, read.matched());
                add(&mut result.modified_count, read.modified);
                result.upserted_count += read.upserted.len() as u64;
                let upserted = read.upserted.into_iter();
                result.upserted_ids.extend(upserted.map(|(at, id)| (sent[at], id)));
            }
            Kind::Delete => add(&mut result.deleted_count, read.n),
        }
        for mut error in read.write_errors {
            // "drivers MUST adjust the index accordingly"
            error.index = sent[error.index];
            self.write_errors.insert(error.index, error);
        }
        self.write_concern_error = self.write_concern_error.take().or(read.write_concern_error);
        add_labels(&mut self.labels, read.labels.iter().map(String::as_str));
    }

    /// Returns the error of a bulk whose command has failed, with the results of those before: of
    /// none, if it was the first (CRUD, "BulkWriteException").
    pub(crate) fn failed(&mut self, error: Error) -> Error {
        self.error(Some(error))
    }

    fn error(&mut self, cause: Option<Error>) -> Error {
        let mut error = BulkWriteError::default();
        error.write_errors = std::mem::take(&mut self.write_errors);
        error.write_concern_error = self.write_concern_error.take();
        error.cause = cause;
        error.partial_result = std::mem::take(&mut self.result);
        error.labels = std::mem::take(&mut self.labels);
        error.into()
    }
}

/// Many writes to one collection.
///
/// ```
/// use bson::doc;
/// use sdam::operation::{BulkWrite, DeleteModel, InsertModel, UpdateModel, WriteModel};
///
/// let writes = BulkWrite::new([
///     WriteModel::InsertOne(InsertModel::new(doc! { "_id": 1 })),
///     WriteModel::UpdateMany(UpdateModel::new(doc! {}, doc! { "$inc": { "n": 1 } })),
///     WriteModel::DeleteOne(DeleteModel::new(doc! { "_id": 2 })),
/// ]);
/// # let _ = writes;
/// ```
#[derive(Clone, Debug)]
pub struct BulkWrite {
    models: Vec<WriteModel>,
    statements: Statements,
    options: Fields,
}

operation! {
    pub struct BulkWrite as BulkWriteOptions;

    options {
        /// Writes documents that the collection's rules forbid.
        bypass_document_validation: bool = "bypassDocumentValidation";
        /// Adds a comment, which servers write to their logs.
        comment: value = "comment";
        /// Sets the values of variables for expressions.
        let_vars: document = "let";
        /// Writes documents of time series as they are stored (MongoDB 8.2); not for applications.
        raw_data: bool = "rawData";
        /// Goes on after a write that the server has refused, and does them in any order, if false.
        ordered: bool = "ordered" in statements.ordered;
    }
}

impl BulkWrite {
    /// Does writes in their order, up to the first that the server refuses.
    pub fn new(models: impl IntoIterator<Item = WriteModel>) -> Self {
        Self {
            models: models.into_iter().collect(),
            statements: Statements::default(),
            options: Fields::default(),
        }
    }
}

impl<I: IntoIterator<Item = WriteModel>> From<I> for BulkWrite {
    fn from(models: I) -> Self {
        Self::new(models)
    }
}

impl FromArguments for BulkWrite {
    fn required(arguments: &mut Arguments) -> Result<Self, ArgumentError> {
        let models = arguments.required::<Vec<Document>>("requests")?.into_iter();
        Ok(Self::new(models.map(WriteModel::from_document).collect::<Result<Vec<_>, _>>()?))
    }
}

from_document!(BulkWrite);

/// Refuses an unacknowledged deletion with an index if the server does not support that, as its
/// error would go unnoticed (CRUD, `hint` of `deleteOne`).
pub(crate) fn check_hint(parts: &Parts<'_>, scope: &Scope, facts: &Facts) -> Result<(), Error> {
    let is_old = facts.max_wire_version < MONGODB_4_4;
    match is_old && !scope.is_acknowledged() && parts.is_hinted_delete() {
        true => Err(ArgumentError::Unacknowledged("hint").into()),
        false => Ok(()),
    }
}

impl Operation for BulkWrite {
    type Output = BulkWriteResult;

    fn name(&self) -> &'static str {
        "bulkWrite"
    }

    fn command_name(&self) -> Cow<'static, str> {
        let name = match self.models.first() {
            Some(WriteModel::InsertOne(_)) => "insert",
            Some(WriteModel::DeleteOne(_) | WriteModel::DeleteMany(_)) => "delete",
            Some(_) => "update",
            None => self.statements.name(),
        };
        name.into()
    }

    fn command(&mut self, scope: &Scope, facts: &Facts) -> Result<Command<'_>, Error> {
        // Everything is judged before anything is sent.
        for model in std::mem::take(&mut self.models) {
            let parts = model.parts()?;
            check_hint(&parts, scope, facts)?;
            self.statements.push(&parts)?;
        }
        if self.statements.len() == 0 {
            return Err(ArgumentError::NoWrites.into());
        }
        self.statements.command(scope, facts, &self.options)
    }

    fn reply(
        &mut self,
        scope: &Scope,
        reply: &ReplyDocument,
    ) -> Result<Progress<BulkWriteResult>, Error> {
        self.statements.reply(scope, reply)
    }

    fn failed(&mut self, error: Error) -> Result<Progress<BulkWriteResult>, Error> {
        Err(self.statements.failed(error))
    }
}

#[cfg(test)]
mod tests {
    use bson::{Bson, Document, RawDocumentBuf, doc, rawdoc};
    use sdam_core::wire::ReplyDocument;

    use super::super::models::{DeleteModel, InsertModel, ReplaceModel, UpdateModel, WriteModel};
    use super::super::testing::{NEW, OLD, scope, unacknowledged, written};
    use super::super::{Facts, Operation, Progress};
    use super::BulkWrite;
    use crate::error::{ArgumentError, BulkWriteError, Error};
    use crate::results::BulkWriteResult;

    fn insert(id: i32) -> WriteModel {
        WriteModel::InsertOne(InsertModel::new(doc! { "_id": id }))
    }

    fn update(id: i32) -> WriteModel {
        WriteModel::UpdateOne(UpdateModel::new(doc! { "_id": id }, doc! { "$set": { "a": 1 } }))
    }

    fn delete(id: i32) -> WriteModel {
        WriteModel::DeleteOne(DeleteModel::new(doc! { "_id": id }))
    }

    fn failure(answer: Result<Progress<BulkWriteResult>, Error>) -> BulkWriteError {
        let error = answer.unwrap_err();
        error.as_bulk_write().unwrap_or_else(|| panic!("{error:?}")).clone()
    }

    fn answer(
        bulk: &mut BulkWrite,
        reply: RawDocumentBuf,
    ) -> Result<Progress<BulkWriteResult>, Error> {
        bulk.reply(&scope(), &ReplyDocument::from(reply))
    }

    #[test]
    fn an_ordered_bulk_is_cut_where_the_kind_of_write_changes() {
        let mut bulk = BulkWrite::new([insert(1), insert(2), update(1), delete(2), insert(3)]);
        let mut names = Vec::new();
        loop {
            let command = written(&mut bulk, NEW);
            assert_eq!(command.body.get_bool("ordered").ok(), Some(true));
            let (name, _) = command.body.iter().next().unwrap().unwrap();
            names.push((name.to_string(), command.sequences[0].1.len()));
            let n = i32::try_from(command.sequences[0].1.len()).unwrap();
            let reply = rawdoc! { "ok": 1, "n": n, "nModified": n };
            if let Progress::Done(result) = answer(&mut bulk, reply).unwrap() {
                assert_eq!((result.inserted_count, result.matched_count), (3, 1));
                assert_eq!((result.modified_count, result.deleted_count), (1, 1));
                assert_eq!(result.inserted_ids.keys().collect::<Vec<_>>(), [&0, &1, &4]);
                break;
            }
        }
        let names: Vec<_> = names.iter().map(|(name, count)| (name.as_str(), *count)).collect();
        assert_eq!(names, [("insert", 2), ("update", 1), ("delete", 1), ("insert", 1)]);
    }

    /// CRUD, "BulkWriteException": what is behind the first error of an ordered bulk was not tried,
    /// neither in its command nor in those that would have followed.
    #[test]
    fn an_ordered_bulk_names_no_document_that_was_not_tried() {
        for (at, expected) in [(0, vec![]), (1, vec![0]), (2, vec![0, 1])] {
            let mut bulk = BulkWrite::new([insert(1), insert(2), insert(3), update(1), insert(4)]);
            written(&mut bulk, NEW);
            let refused = rawdoc! { "index": at, "code": 11000, "errmsg": "duplicate" };
            let reply = rawdoc! { "ok": 1, "n": at, "writeErrors": [refused] };
            let error = failure(answer(&mut bulk, reply));
            let inserted = error.partial_result.inserted_ids.keys().copied();
            assert_eq!(inserted.collect::<Vec<usize>>(), expected);
        }
    }

    #[test]
    fn an_unordered_bulk_has_one_command_a_kind_and_goes_on_after_errors() {
        let mut bulk = BulkWrite::new([insert(1), delete(2), insert(3)]).ordered(false);
        assert_eq!(written(&mut bulk, NEW).sequences[0].1.len(), 2);
        let refused = rawdoc! { "index": 1, "code": 11000, "errmsg": "duplicate" };
        let reply = rawdoc! { "ok": 1, "n": 1, "writeErrors": [refused] };
        assert_eq!(answer(&mut bulk, reply).unwrap(), Progress::Next);
        assert!(written(&mut bulk, NEW).body.get("delete").unwrap().is_some());
        let error = answer(&mut bulk, rawdoc! { "ok": 1, "n": 1 }).unwrap_err();
        let error = error.as_bulk_write().unwrap();
        // The index is that of the application.
        assert_eq!(error.write_errors.keys().collect::<Vec<_>>(), [&2]);
        assert_eq!(
            (error.partial_result.inserted_count, error.partial_result.deleted_count),
            (1, 1)
        );
        assert_eq!(error.partial_result.inserted_ids.keys().collect::<Vec<_>>(), [&0]);
    }

    #[test]
    fn statements_have_the_form_that_the_commands_want() {
        let pipeline = UpdateModel::new(doc! {}, vec![doc! { "$set": { "a": 1 } }]);
        let filters = [doc! { "e.a": 1 }];
        let mut bulk = BulkWrite::new([
            WriteModel::UpdateMany(pipeline.array_filters(filters).upsert(true).hint("a_1")),
            WriteModel::ReplaceOne(
                ReplaceModel::new(doc! { "_id": 1 }, doc! { "b": 1 }).sort(doc! { "c": 1 }),
            ),
            WriteModel::DeleteMany(
                DeleteModel::new(doc! {}).collation(doc! { "locale": "de" }).hint(doc! { "a": 1 }),
            ),
        ]);
        let updates = &written(&mut bulk, NEW).sequences[0].1;
        let first = rawdoc! {
            "q": {},
            "u": [{ "$set": { "a": 1 } }],
            "multi": true,
            "arrayFilters": [{ "e.a": 1 }],
            "upsert": true,
            "hint": "a_1",
        };
        let second = rawdoc! { "q": { "_id": 1 }, "u": { "b": 1 }, "sort": { "c": 1 } };
        assert_eq!(updates, &[first, second]);
        let upserted = rawdoc! { "index": 0, "_id": null };
        let reply = rawdoc! { "ok": 1, "n": 2, "nModified": 1, "upserted": [upserted] };
        answer(&mut bulk, reply).unwrap();
        let deletes = &written(&mut bulk, NEW).sequences[0].1;
        let expected = rawdoc! {
            "q": {},
            "limit": 0,
            "collation": { "locale": "de" },
            "hint": { "a": 1 },
        };
        assert_eq!(deletes, &[expected]);
        let Progress::Done(result) = answer(&mut bulk, rawdoc! { "ok": 1, "n": 4 }).unwrap() else {
            panic!()
        };
        assert_eq!((result.matched_count, result.upserted_count), (1, 1));
        assert_eq!(result.upserted_ids[&0], Bson::Null);
    }

    /// Retryable Writes, "Supported Write Operations": no multi statement in a command that is
    /// repeated.
    #[test]
    fn a_batch_with_a_write_to_many_documents_is_not_repeated() {
        let many = WriteModel::DeleteMany(DeleteModel::new(doc! {}));
        for (models, expected) in [(vec![delete(1)], true), (vec![delete(1), many], false)] {
            let mut bulk = BulkWrite::new(models);
            assert_eq!(bulk.command(&scope(), &NEW).unwrap().retryable, expected);
        }
    }

    /// The limits of a batch: its number of writes, and the length of a message.
    #[test]
    fn batches_keep_within_the_limits_of_the_server() {
        let writes = || BulkWrite::new((0..10).map(insert));
        let by_number = Facts { max_write_batch_size: 4, ..NEW };
        assert_eq!(written(&mut writes(), by_number).sequences[0].1.len(), 4);
        let length = rawdoc! { "_id": 1 }.as_bytes().len();
        let body = written(&mut writes(), NEW).body.as_bytes().len();
        let most = super::ADDED_LEN + body + 3 * length;
        let by_length = Facts { max_message_size_bytes: most, ..NEW };
        assert_eq!(written(&mut writes(), by_length).sequences[0].1.len(), 3);
        let too_short = Facts { max_message_size_bytes: most - 3 * length, ..NEW };
        let error = writes().command(&scope(), &too_short).unwrap_err();
        assert!(error.to_string().starts_with("the write at index 0 has 14 bytes"), "{error}");
    }

    /// Facts of a server that stores no documents of more than 100 bytes, and is sent 16 KiB more.
    const SMALL: Facts = Facts { max_bson_object_size: 100, ..NEW };

    fn large(id: i32, length: usize) -> WriteModel {
        WriteModel::InsertOne(InsertModel::new(doc! { "_id": id, "a": "x".repeat(length) }))
    }

    /// Server Write Commands, "Request Size Limits": a server that is sent more refuses the whole
    /// command. As with its own refusal of a write, an ordered bulk ends there; others go on.
    #[test]
    fn a_write_that_is_too_large_is_refused_by_its_index() {
        let models = || [insert(0), delete(1), large(2, 17_000), insert(3), large(4, 20_000)];
        let mut ordered = BulkWrite::new(models());
        for name in ["insert", "delete"] {
            let command = written(&mut ordered, SMALL);
            assert!(command.body.get(name).unwrap().is_some(), "{:?}", command.body);
            assert_eq!(command.sequences[0].1.len(), 1);
            if name == "insert" {
                let reply = rawdoc! { "ok": 1, "n": 1 };
                assert_eq!(answer(&mut ordered, reply).unwrap(), Progress::Next);
            }
        }
        let error = failure(answer(&mut ordered, rawdoc! { "ok": 1, "n": 1 }));
        let text = "the write at index 2 was refused: it has 17022 bytes; the server takes at most \
                    100 (code 10334)";
        assert_eq!(error.to_string(), text);
        let result = &error.partial_result;
        assert_eq!((result.inserted_count, result.deleted_count), (1, 1));
        assert_eq!(result.inserted_ids.keys().collect::<Vec<_>>(), [&0]);

        let mut unordered = BulkWrite::new(models()).ordered(false);
        let inserted = &written(&mut unordered, SMALL).sequences[0].1;
        assert_eq!(inserted, &[rawdoc! { "_id": 0 }, rawdoc! { "_id": 3 }]);
        // The index of a refusal by the server is that of the application all the same.
        let refused = rawdoc! { "index": 1, "code": 11000, "errmsg": "duplicate" };
        let reply = rawdoc! { "ok": 1, "n": 1, "writeErrors": [refused] };
        assert_eq!(answer(&mut unordered, reply).unwrap(), Progress::Next);
        written(&mut unordered, SMALL);
        let error = failure(answer(&mut unordered, rawdoc! { "ok": 1, "n": 1 }));
        let codes: Vec<_> = error.write_errors.iter().map(|(at, it)| (*at, it.code)).collect();
        assert_eq!(codes, [(2, 10334), (3, 11000), (4, 10334)]);
        assert_eq!(error.partial_result.inserted_ids.keys().collect::<Vec<_>>(), [&0]);
    }

    /// An error that comes before it ends an ordered bulk; a bulk of nothing else sends nothing.
    #[test]
    fn a_write_that_is_too_large_is_not_tried_behind_an_error() {
        let mut bulk = BulkWrite::new([insert(0), large(1, 17_000)]);
        written(&mut bulk, SMALL);
        let refused = rawdoc! { "index": 0, "code": 11000, "errmsg": "duplicate" };
        let error = failure(answer(&mut bulk, rawdoc! { "n": 0, "writeErrors": [refused] }));
        assert_eq!(error.write_errors.keys().collect::<Vec<_>>(), [&0]);
        for ordered in [true, false] {
            let mut bulk = BulkWrite::new([large(0, 17_000), large(1, 17_000)]).ordered(ordered);
            let error = bulk.command(&scope(), &SMALL).unwrap_err();
            let error = error.as_bulk_write().unwrap();
            assert_eq!(error.write_errors.len(), if ordered { 1 } else { 2 });
        }
    }

    /// A server refuses a document that is a little too long by itself, and can say so only in a
    /// reply.
    #[test]
    fn a_document_that_only_the_server_refuses_is_refused_here_without_acknowledgment() {
        let replacement = || doc! { "a": "x".repeat(200) };
        let replace = ReplaceModel::new(doc! {}, replacement());
        let update = UpdateModel::new(doc! {}, doc! { "$set": replacement() });
        let models =
            [large(0, 200), WriteModel::ReplaceOne(replace), WriteModel::UpdateOne(update)];
        let mut asked = BulkWrite::new(models.clone()).ordered(false);
        assert_eq!(written(&mut asked, SMALL).sequences[0].1.len(), 1);
        let mut bulk = BulkWrite::new(models).ordered(false);
        let command = bulk.command(&unacknowledged(), &SMALL).unwrap();
        // An update may come to less than it is long itself.
        assert!(command.body.get("update").unwrap().is_some());
        assert_eq!(command.sequences[0].1.len(), 1);
        let reply = ReplyDocument::from(rawdoc! { "ok": 1 });
        let error = failure(bulk.reply(&unacknowledged(), &reply));
        assert_eq!(error.write_errors.keys().collect::<Vec<_>>(), [&0, &1]);
        assert!(!error.partial_result.acknowledged);
    }

    /// "MUST"s of labels are about any error (Retryable Writes; Transactions, "Error Reporting").
    #[test]
    fn the_labels_of_all_replies_with_errors_are_kept() {
        let mut bulk = BulkWrite::new([insert(0), delete(1), update(2)]).ordered(false);
        let late = || rawdoc! { "code": 64, "errmsg": "late" };
        let labelled = |label: &str| {
            rawdoc! {
                "ok": 1, "n": 1, "nModified": 1, "writeConcernError": late(),
                "errorLabels": ["Each", label],
            }
        };
        written(&mut bulk, NEW);
        answer(&mut bulk, labelled("A")).unwrap();
        written(&mut bulk, NEW);
        answer(&mut bulk, labelled("B")).unwrap();
        written(&mut bulk, NEW);
        let refused = rawdoc! { "index": 0, "code": 1, "errmsg": "no" };
        let reply = rawdoc! {
            "ok": 1, "n": 0, "nModified": 0, "writeErrors": [refused], "errorLabels": ["C"],
        };
        let error = answer(&mut bulk, reply).unwrap_err();
        assert_eq!(error.labels(), ["Each", "A", "B", "C"]);
        assert!(error.has_label("B") && !error.has_label("D"));
    }

    #[test]
    fn an_error_of_a_later_command_keeps_what_was_done_before() {
        let failed = |answered| {
            let mut bulk = BulkWrite::new([insert(1), delete(1)]);
            written(&mut bulk, NEW);
            if answered {
                answer(&mut bulk, rawdoc! { "ok": 1, "n": 1 }).unwrap();
                written(&mut bulk, NEW);
            }
            failure(bulk.failed(ArgumentError::SessionInUse.into()))
        };
        // Retryable Writes, "First insertOne is never committed": a result of zeros.
        for (answered, inserted) in [(false, 0), (true, 1)] {
            let error = failed(answered);
            assert!(error.cause.as_ref().is_some_and(|it| it.as_argument().is_some()));
            let result = &error.partial_result;
            assert_eq!((result.acknowledged, result.inserted_count), (true, inserted));
        }
    }

    /// CRUD, "BulkWriteException": `writeResult` has what was done "before the bulk write was
    /// interrupted", whatever the cause.
    #[test]
    fn a_later_batch_that_cannot_be_sent_or_read_keeps_what_was_done_before() {
        let long = WriteModel::DeleteOne(DeleteModel::new(doc! { "_id": "x".repeat(1000) }));
        let mut bulk = BulkWrite::new([insert(1), long]);
        let length = super::ADDED_LEN + 500;
        let facts = Facts { max_message_size_bytes: length, ..NEW };
        written(&mut bulk, facts);
        answer(&mut bulk, rawdoc! { "ok": 1, "n": 1 }).unwrap();
        let refused = bulk.command(&scope(), &facts).map(drop);
        let error = refused.unwrap_err();
        let error = error.as_bulk_write().unwrap();
        let refused = error.cause.as_ref().and_then(Error::as_argument);
        assert!(matches!(refused, Some(ArgumentError::TooLong { index: 1, .. })), "{error}");
        assert_eq!(error.partial_result.inserted_count, 1);

        let mut bulk = BulkWrite::new([insert(1), delete(1)]);
        written(&mut bulk, NEW);
        answer(&mut bulk, rawdoc! { "ok": 1, "n": 1 }).unwrap();
        written(&mut bulk, NEW);
        let error = failure(answer(&mut bulk, rawdoc! { "ok": 1 }));
        assert!(error.cause.as_ref().is_some_and(|it| it.as_reply().is_some()));
        assert_eq!(error.partial_result.inserted_count, 1);
    }

    /// CRUD, "Update vs. Replace Validation"; `hint` of deletions.
    #[test]
    fn what_is_invalid_is_told_before_anything_is_sent() {
        let empty: Document = doc! {};
        let of = |model| {
            let mut bulk = BulkWrite::new([insert(1), model]);
            bulk.command(&unacknowledged(), &OLD).err().map(|error| error.to_string())
        };
        let operator = Some("an update must begin with an operator, such as $set".to_owned());
        assert_eq!(of(WriteModel::UpdateOne(UpdateModel::new(doc! {}, doc! { "a": 1 }))), operator);
        assert_eq!(of(WriteModel::UpdateMany(UpdateModel::new(doc! {}, empty.clone()))), operator);
        assert!(of(WriteModel::ReplaceOne(ReplaceModel::new(doc! {}, doc! { "$a": 1 }))).is_some());
        assert_eq!(of(WriteModel::ReplaceOne(ReplaceModel::new(doc! {}, &empty))), None);
        let hinted = DeleteModel::new(doc! {}).hint("_id_");
        assert!(of(WriteModel::DeleteOne(hinted)).is_some());
        let mut nothing = BulkWrite::new([]);
        assert!(nothing.command(&scope(), &NEW).is_err());
    }

    /// CRUD, "Bulk Write": variables are for updates and deletions, as insert has none; deletions
    /// have no `bypassDocumentValidation`.
    #[test]
    fn each_command_of_a_bulk_has_the_options_that_it_takes() {
        let bulk = BulkWrite::new([insert(1), update(1), delete(1)]);
        let mut bulk = bulk.let_vars(doc! { "a": 1 }).bypass_document_validation(true);
        for (name, has_variables, bypasses) in
            [("insert", false, true), ("update", true, true), ("delete", true, false)]
        {
            let body = written(&mut bulk, NEW).body;
            assert!(body.get(name).unwrap().is_some());
            assert_eq!(body.get("let").unwrap().is_some(), has_variables, "{name}");
            assert_eq!(body.get("bypassDocumentValidation").unwrap().is_some(), bypasses, "{name}");
            answer(&mut bulk, rawdoc! { "ok": 1, "n": 1, "nModified": 1 }).unwrap();
        }
    }
}
