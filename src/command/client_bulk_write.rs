//! Writes to several collections in one command, `bulkWrite` of MongoDB 8.0 (Bulk Write).

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use bson::raw::cstr;
use bson::{Bson, Document, RawBsonRef, RawDocument, RawDocumentBuf};
use sdam_core::operation::{OperationKind, add_labels, error_labels};
use sdam_core::wire::ReplyDocument;
use sdam_host::driver::documents::{number, to_bson};

use super::arguments::{Arguments, FromArguments, read};
use super::bulk_write::check_hint;
use super::documents::Documents;
use super::fields::Fields;
use super::models::{OF_STATEMENT, Parts, WriteModel, stored_len};
use super::single::Rules;
use super::{Command, Facts, Operation, Progress, Scope, is_left_out, split_namespace};
use crate::cursor::{CursorState, CursorStep, Settings};
use crate::error::{
    ArgumentError, ClientBulkWriteError, DriverError as _, Error, ReplyError, WriteConcernError,
    WriteError,
};
use crate::reply::write::{add, count};
use crate::results::{
    ClientBulkWriteResult, ClientDeleteResult, ClientInsertResult, ClientUpdateResult,
    VerboseResults,
};
use crate::value::begin_command;

/// "MESSAGE_OVERHEAD_BYTES": the room for the header and for what every command carries.
const MESSAGE_OVERHEAD: usize = 1000;

/// Writes to collections of whichever databases (MongoDB 8.0).
///
/// ```
/// use bson::doc;
/// use sdam::operation::{ClientBulkWrite, DeleteModel, InsertModel, WriteModel};
///
/// let writes = ClientBulkWrite::new([
///     ("app.things", WriteModel::InsertOne(InsertModel::new(doc! { "_id": 1 }))),
///     ("old.things", WriteModel::DeleteOne(DeleteModel::new(doc! { "_id": 1 }))),
/// ]);
/// # let _ = writes.verbose_results(true);
/// ```
#[derive(Clone, Debug)]
pub struct ClientBulkWrite {
    models: Vec<(String, WriteModel)>,
    ordered: bool,
    is_verbose: bool,
    options: Fields,
    /// The `_id` of each insertion, and the kind of every write.
    writes: Vec<Write>,
    ops: Documents,
    namespaces: Documents,
    /// The writes that were looked at for the command which is under way.
    batch: Range<usize>,
    /// Those of them that it has: the others are too large.
    sent: Vec<usize>,
    /// The results of the batch, while they come.
    cursor: Option<CursorState>,
    result: ClientBulkWriteResult,
    write_errors: BTreeMap<usize, WriteError>,
    write_concern_errors: Vec<WriteConcernError>,
    /// The labels of the replies with errors.
    labels: Vec<String>,
    /// The number of results of the batch that have come.
    results: usize,
    /// True once a write is known to have been done.
    is_partial: bool,
    /// The error that has ended the operation, while a cursor is killed after it.
    cause: Option<Error>,
}

/// The part of a write that its result needs.
#[derive(Clone)]
enum Write {
    Insert(Bson),
    Update,
    Delete,
}

/// Prints no `_id`.
impl std::fmt::Debug for Write {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Insert(_) => "Insert",
            Self::Update => "Update",
            Self::Delete => "Delete",
        })
    }
}

operation! {
    pub struct ClientBulkWrite as ClientBulkWriteOptions;

    options {
        /// Writes documents that the rules of collections forbid.
        bypass_document_validation: bool = "bypassDocumentValidation";
        /// Adds a comment, which servers write to their logs.
        comment: value = "comment";
        /// Sets the values of variables for expressions.
        let_vars: document = "let";
        /// Writes documents of time series as they are stored (MongoDB 8.2); not for applications.
        raw_data: bool = "rawData";
        /// Goes on after a write that the server has refused, if false.
        ordered: bool = "ordered" in ordered;
        /// Returns the result of each write, if true.
        verbose_results: bool = "verboseResults" in is_verbose;
    }
}

/// Writes, each with the namespace of its collection.
impl<I: IntoIterator<Item = (N, WriteModel)>, N: Into<String>> From<I> for ClientBulkWrite {
    fn from(models: I) -> Self {
        Self::new(models)
    }
}

/// Each write has its namespace among its arguments.
impl FromArguments for ClientBulkWrite {
    fn required(arguments: &mut Arguments) -> Result<Self, ArgumentError> {
        let model = |mut write: Document| {
            let of_write = write.iter_mut().next().and_then(|(_, value)| value.as_document_mut());
            let of_write = of_write.ok_or_else(|| ArgumentError::WrongType {
                name: "models".to_owned(),
                expected: "documents with one field, such as insertOne, that has the arguments",
            })?;
            let namespace = of_write.remove("namespace");
            let namespace = namespace.ok_or(ArgumentError::MissingArgument("namespace"))?;
            let namespace = read::<String>("namespace", namespace)?;
            WriteModel::from_document(write).map(|model| (namespace, model))
        };
        let models = arguments.required::<Vec<Document>>("models")?.into_iter();
        Ok(Self::new(models.map(model).collect::<Result<Vec<_>, _>>()?))
    }
}

from_document!(ClientBulkWrite);

impl ClientBulkWrite {
    /// Does writes in their order, up to the first that the server refuses: each with the namespace
    /// of its collection, a database, a dot, and a name.
    pub fn new(models: impl IntoIterator<Item = (impl Into<String>, WriteModel)>) -> Self {
        let models = models.into_iter().map(|(namespace, model)| (namespace.into(), model));
        Self {
            models: models.collect(),
            ordered: true,
            is_verbose: false,
            options: Fields::default(),
            writes: Vec::new(),
            ops: Documents::default(),
            namespaces: Documents::default(),
            batch: 0..0,
            sent: Vec::new(),
            cursor: None,
            result: ClientBulkWriteResult::default(),
            write_errors: BTreeMap::new(),
            write_concern_errors: Vec::new(),
            labels: Vec::new(),
            results: 0,
            is_partial: false,
            cause: None,
        }
    }

    /// Judges all arguments, before anything is sent.
    fn check(&self, scope: &Scope, facts: &Facts) -> Result<(), Error> {
        if self.models.is_empty() {
            return Err(ArgumentError::NoWrites.into());
        }
        if !scope.is_acknowledged() && self.is_verbose {
            return Err(ArgumentError::VerboseUnacknowledged.into());
        }
        if !scope.is_acknowledged() && self.ordered {
            return Err(ArgumentError::OrderedUnacknowledged.into());
        }
        for (namespace, model) in &self.models {
            check_hint(&model.parts()?, scope, facts)?;
            split_namespace(namespace)?;
        }
        Ok(())
    }

    /// Begins the next batch; returns its command without the sequences, and whether it may be
    /// repeated. `None` if all writes that are left are too large, or the next one of an ordered
    /// bulk.
    fn next_batch(
        &mut self,
        scope: &Scope,
        facts: &Facts,
    ) -> Result<Option<(RawDocumentBuf, bool)>, Error> {
        if self.batch.end == 0 {
            self.check(scope, facts)?;
        }
        let mut body = begin_command();
        body.append(cstr!("bulkWrite"), 1);
        body.append(cstr!("errorsOnly"), !self.is_verbose);
        body.append(cstr!("ordered"), self.ordered);
        self.options.write_if(&mut body, |option| !is_left_out(scope, facts, option))?;
        let overhead = MESSAGE_OVERHEAD + body.as_bytes().len();
        let room = facts.max_message_size_bytes.saturating_sub(overhead);
        let is_repeatable = self.fill(scope, facts, room)?;
        Ok((!self.sent.is_empty()).then_some((body, is_repeatable)))
    }

    /// Writes as many operations as fit into a command, with the namespaces that they need, and
    /// returns whether the command may be repeated: without writes to many documents.
    fn fill(&mut self, scope: &Scope, facts: &Facts, room: usize) -> Result<bool, Error> {
        self.ops.clear();
        self.namespaces.clear();
        self.sent.clear();
        self.results = 0;
        let start = self.batch.end;
        self.batch = start..start;
        let (mut known, mut length) = (BTreeMap::new(), 0);
        let mut is_repeatable = true;
        for (index, (namespace, model)) in self.models.iter().enumerate().skip(start) {
            if self.sent.len() >= facts.max_write_batch_size {
                break;
            }
            let parts = model.parts()?;
            let place = known.get(namespace.as_str()).copied();
            let number = place.unwrap_or(i32::try_from(known.len()).unwrap_or(i32::MAX));
            let (op, write) = operation(&parts, number)?;
            if let Some(excess) = excess(scope, facts, &parts, &op) {
                if self.ordered && !self.sent.is_empty() {
                    break;
                }
                self.write_errors.insert(index, WriteError::too_large(index, excess));
                if self.ordered {
                    return Ok(false);
                }
                self.writes.push(write);
                self.batch.end += 1;
                continue;
            }
            let mut info = RawDocumentBuf::new();
            info.append(cstr!("ns"), namespace.as_str());
            let added = match place {
                Some(_) => op.as_bytes().len(),
                None => op.as_bytes().len() + info.as_bytes().len(),
            };
            length += added;
            if length > room {
                break;
            }
            self.writes.push(write);
            self.ops.push(&op);
            if place.is_none() {
                self.namespaces.push(&info);
                known.insert(namespace.as_str(), number);
            }
            is_repeatable &= !parts.is_multi();
            self.sent.push(index);
            self.batch.end += 1;
        }
        match self.sent.is_empty() && self.batch.end < self.models.len() {
            // "Drivers MUST return an error if there is not room to add at least one operation"
            true => {
                let (index, limit) = (self.batch.end, room);
                Err(ArgumentError::TooLong { index, length, limit }.into())
            }
            false => Ok(is_repeatable),
        }
    }

    /// Reads the reply to the command itself.
    fn summary(&mut self, reply: &ReplyDocument) -> Result<(), ReplyError> {
        self.write_concern_errors.extend(WriteConcernError::in_reply(reply));
        add_labels(&mut self.labels, error_labels(reply).iter().map(String::as_str));
        let total_of = |field| count("bulkWrite", reply, field);
        let errors = total_of("nErrors")?;
        let names = ["nInserted", "nUpserted", "nMatched", "nModified", "nDeleted"];
        let result = &mut self.result;
        let totals = [
            &mut result.inserted_count,
            &mut result.upserted_count,
            &mut result.matched_count,
            &mut result.modified_count,
            &mut result.deleted_count,
        ];
        for (total, name) in totals.into_iter().zip(names) {
            add(total, total_of(name)?);
        }
        // "For unordered bulk writes, at least one write was successful if nErrors is less than the
        // number of operations"; for an ordered one, the index of the first error says so.
        let sent = self.sent.len() as u64;
        self.is_partial |= match self.ordered {
            true => errors == 0,
            false => errors < sent,
        };
        self.cursor = Some(CursorState::open("bulkWrite", reply, Settings::default())?);
        Ok(())
    }

    /// Reads the results that have come; returns whether there are more of this batch.
    fn read_results(&mut self) -> Result<bool, ReplyError> {
        loop {
            let Some(cursor) = &mut self.cursor else { return Ok(false) };
            match cursor.step()? {
                CursorStep::Document(document) => {
                    let document = document.to_owned();
                    self.read_result(&document)?;
                }
                CursorStep::GetMore(..) => return Ok(true),
                CursorStep::Exhausted => {
                    self.cursor = None;
                    return Ok(false);
                }
            }
        }
    }

    /// Reads the result of a single write.
    fn read_result(&mut self, document: &RawDocument) -> Result<(), ReplyError> {
        let missing = |field| ReplyError::new("bulkWrite", field);
        let at = number(document, "idx").and_then(|at| usize::try_from(at).ok());
        let at = at.filter(|at| *at < self.sent.len()).ok_or(missing("idx"))?;
        // A cursor that never ends would hold the operation for ever.
        self.results += 1;
        if self.results > self.sent.len() {
            return Err(missing("end of its results"));
        }
        let index = self.sent[at];
        if number(document, "ok").ok_or(missing("ok"))? == 0 {
            // "or if the idx value for the write error ... is greater than 0"
            self.is_partial |= self.ordered && at > 0;
            self.write_errors.insert(index, WriteError::of(index, document));
            return Ok(());
        }
        self.is_partial = true;
        if !self.is_verbose {
            return Ok(());
        }
        let n = count("bulkWrite", document, "n")?;
        let verbose = self.result.verbose.get_or_insert_with(VerboseResults::default);
        match &self.writes[index] {
            Write::Insert(id) => {
                let mut result = ClientInsertResult::default();
                result.inserted_id.clone_from(id);
                verbose.insert_results.insert(index, result);
            }
            Write::Update => {
                let upserted = document.get("upserted").ok().flatten();
                let upserted = upserted.and_then(RawBsonRef::as_document);
                let upserted = upserted.and_then(|upserted| upserted.get("_id").ok()?);
                let mut result = ClientUpdateResult::default();
                result.matched_count = n;
                result.modified_count = count("bulkWrite", document, "nModified")?;
                result.upserted_id = upserted.and_then(|id| to_bson(id).ok());
                verbose.update_results.insert(index, result);
            }
            Write::Delete => {
                let mut result = ClientDeleteResult::default();
                result.deleted_count = n;
                verbose.delete_results.insert(index, result);
            }
        }
        Ok(())
    }

    /// Ends the batch: the operation goes on, has succeeded, or has failed.
    fn end_batch(&mut self) -> Result<Progress<ClientBulkWriteResult>, Error> {
        let is_stopped = self.ordered && !self.write_errors.is_empty();
        if self.batch.end < self.models.len() && !is_stopped {
            return Ok(Progress::Next);
        }
        match self.write_errors.is_empty() && self.write_concern_errors.is_empty() {
            true => Ok(Progress::Done(self.take_result())),
            false => Err(self.error(None)),
        }
    }

    fn take_result(&mut self) -> ClientBulkWriteResult {
        let mut result = std::mem::take(&mut self.result);
        if self.is_verbose {
            result.verbose.get_or_insert_with(VerboseResults::default);
        }
        result
    }

    fn error(&mut self, cause: Option<Error>) -> Error {
        let result = self.take_result();
        let mut error = ClientBulkWriteError::default();
        error.cause = cause;
        error.write_concern_errors = std::mem::take(&mut self.write_concern_errors);
        error.write_errors = std::mem::take(&mut self.write_errors);
        error.partial_result = self.is_partial.then_some(result);
        error.labels = std::mem::take(&mut self.labels);
        error.into()
    }
}

/// Returns by how much an operation is too large, see [`Facts::excess`].
fn excess(
    scope: &Scope,
    facts: &Facts,
    parts: &Parts<'_>,
    op: &RawDocument,
) -> Option<(usize, usize)> {
    let stored = || match parts {
        // With its `_id`.
        Parts::Insert(_) => op.get_document("document").map_or(0, |it| it.as_bytes().len()),
        Parts::Update { modifications, .. } => stored_len(Some(*modifications)),
        Parts::Delete { .. } => 0,
    };
    facts.excess(scope, op.as_bytes().len(), stored)
}

/// Writes an operation of the command, with the number of its namespace, and returns what is kept
/// of it.
fn operation(parts: &Parts<'_>, namespace: i32) -> Result<(RawDocumentBuf, Write), Error> {
    let mut op = RawDocumentBuf::new();
    match parts {
        Parts::Insert(document) => {
            let mut identified = Documents::default();
            identified.push(document);
            let id = identified.identify_last()?;
            op.append(cstr!("insert"), namespace);
            op.append(cstr!("document"), identified.get(0));
            return Ok((op, Write::Insert(id)));
        }
        Parts::Update { filter, modifications, multi, options } => {
            op.append(cstr!("update"), namespace);
            op.append(cstr!("filter"), *filter);
            op.append(cstr!("updateMods"), *modifications);
            op.append(cstr!("multi"), *multi);
            options.write_only(&mut op, &OF_STATEMENT)?;
        }
        Parts::Delete { filter, multi, options } => {
            op.append(cstr!("delete"), namespace);
            op.append(cstr!("filter"), *filter);
            op.append(cstr!("multi"), *multi);
            options.write_only(&mut op, &OF_STATEMENT)?;
            return Ok((op, Write::Delete));
        }
    }
    Ok((op, Write::Update))
}

impl Operation for ClientBulkWrite {
    type Output = ClientBulkWriteResult;

    fn name(&self) -> &'static str {
        "bulkWrite"
    }

    fn command_name(&self) -> Cow<'static, str> {
        let name = match (&self.cursor, &self.cause) {
            (None, _) => "bulkWrite",
            (Some(_), None) => "getMore",
            (Some(_), Some(_)) => "killCursors",
        };
        name.into()
    }

    fn kind(&self) -> OperationKind {
        match self.continues_cursor() {
            true => OperationKind::Read,
            false => OperationKind::Write,
        }
    }

    fn is_retryable(&self) -> bool {
        !self.continues_cursor()
    }

    fn continues_cursor(&self) -> bool {
        self.cursor.is_some()
    }

    fn take_cursor(&mut self) -> Option<CursorState> {
        self.cursor.take()
    }

    fn command(&mut self, scope: &Scope, facts: &Facts) -> Result<Command<'_>, Error> {
        if let Some(cursor) = &mut self.cursor {
            let (database, body) = match (&self.cause, cursor.step()) {
                (None, Ok(CursorStep::GetMore(body))) => (Arc::clone(cursor.namespace().0), body),
                _ => {
                    let kill = cursor.kill();
                    let kill = kill.expect("it is open, or the operation would have ended");
                    (kill.database, kill.body)
                }
            };
            let scope = Scope { database, ..scope.clone() };
            return Rules::RUN.command(&scope, body);
        }
        self.result.acknowledged = scope.is_acknowledged();
        match self.next_batch(scope, facts) {
            Ok(None) => Err(self.error(None)),
            Ok(Some((body, is_repeatable))) => {
                let scope = Scope { database: "admin".into(), ..scope.clone() };
                let sequences = vec![("ops", self.ops.all()), ("nsInfo", self.namespaces.all())];
                let rules = Rules::WRITE.retryable(is_repeatable).opening();
                Ok(Command { sequences, ..rules.command(&scope, body)? })
            }
            Err(error) if self.batch.start > 0 || !self.write_errors.is_empty() => {
                Err(self.error(Some(error)))
            }
            Err(error) => Err(error),
        }
    }

    fn reply(
        &mut self,
        scope: &Scope,
        reply: &ReplyDocument,
    ) -> Result<Progress<Self::Output>, Error> {
        if let Some(cause) = self.cause.take() {
            return Err(self.error(Some(cause)));
        }
        let read = match &mut self.cursor {
            Some(cursor) => cursor.more(reply),
            None if scope.is_acknowledged() => self.summary(reply),
            None => Ok(()),
        };
        match read.and_then(|()| self.read_results()) {
            Ok(true) => Ok(Progress::Next),
            Ok(false) => self.end_batch(),
            Err(error) => self.failed(error.into()),
        }
    }

    /// "Encountering a top-level error MUST halt execution of a bulk write"; the cursor of results
    /// is killed after that, unless its server has said that it is gone. A server that is late or
    /// out of reach is not waited for.
    fn failed(&mut self, error: Error) -> Result<Progress<Self::Output>, Error> {
        if let Some(cause) = self.cause.take() {
            return Err(self.error(Some(cause)));
        }
        if error.is_of_a_closed_cursor() {
            self.cursor = None;
        }
        let is_open = self.cursor.as_ref().is_some_and(|cursor| cursor.id() != 0);
        if is_open && error.is_of_a_server_at_hand() {
            self.cause = Some(error);
            return Ok(Progress::Next);
        }
        let has_results = self.batch.start > 0 || self.is_partial;
        let has_errors = !self.write_errors.is_empty() || !self.write_concern_errors.is_empty();
        match has_results || has_errors {
            true => Err(self.error(Some(error))),
            false => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bson::raw::{CStr, cstr};
    use bson::spec::BinarySubtype;
    use bson::{Bson, RawArrayBuf, RawDocument, RawDocumentBuf, doc, rawdoc};
    use sdam_core::config::{ServerApi, ServerApiVersion};
    use sdam_core::operation::{CommandMessage, Overlay};
    use sdam_core::wire::{Flags, ReplyDocument};

    use super::super::models::{DeleteModel, InsertModel, ReplaceModel, UpdateModel, WriteModel};
    use super::super::testing::{NEW, majority, scope, unacknowledged, written};
    use super::super::{Facts, Operation, Progress};
    use super::ClientBulkWrite;
    use crate::error::{ArgumentError, ClientBulkWriteError, Error};
    use crate::results::ClientBulkWriteResult;

    const COUNTS: [&CStr; 6] = [
        cstr!("nErrors"),
        cstr!("nInserted"),
        cstr!("nUpserted"),
        cstr!("nMatched"),
        cstr!("nModified"),
        cstr!("nDeleted"),
    ];

    fn insert(namespace: &str, id: i32) -> (String, WriteModel) {
        let model = InsertModel::new(doc! { "_id": id });
        (namespace.to_owned(), WriteModel::InsertOne(model))
    }

    /// Makes a reply with these counts; the others are zero.
    fn summary(id: i64, counts: RawDocumentBuf, results: Vec<RawDocumentBuf>) -> ReplyDocument {
        let batch: RawArrayBuf = results.into_iter().collect();
        let cursor = rawdoc! { "id": id, "ns": "admin.$cmd.bulkWrite", "firstBatch": batch };
        let mut reply = counts;
        for name in COUNTS {
            if reply.get(name).unwrap().is_none() {
                reply.append(name, 0);
            }
        }
        reply.append(cstr!("ok"), 1);
        reply.append(cstr!("cursor"), cursor);
        reply.into()
    }

    fn more(id: i64, results: Vec<RawDocumentBuf>) -> ReplyDocument {
        let batch: RawArrayBuf = results.into_iter().collect();
        let cursor = rawdoc! { "id": id, "ns": "admin.$cmd.bulkWrite", "nextBatch": batch };
        rawdoc! { "ok": 1, "cursor": cursor }.into()
    }

    fn failure(answer: Result<Progress<ClientBulkWriteResult>, Error>) -> ClientBulkWriteError {
        let error = answer.unwrap_err();
        error.as_client_bulk_write().unwrap_or_else(|| panic!("{error:?}")).clone()
    }

    /// Server Write Commands, "Request Size Limits": what the server would refuse along with all
    /// others of its command is refused by its index.
    #[test]
    fn a_write_that_is_too_large_is_refused_by_its_index() {
        let small = Facts { max_bson_object_size: 100, ..NEW };
        let large = |length: usize| {
            let model = InsertModel::new(doc! { "_id": 0, "a": "x".repeat(length) });
            ("a.b".to_owned(), WriteModel::InsertOne(model))
        };
        let models = || [insert("a.b", 0), large(17_000), insert("a.b", 2), large(17_000)];
        let reply =
            |count: i32, results| summary(0, rawdoc! { "nErrors": 0, "nInserted": count }, results);
        let result = |at: i32| rawdoc! { "ok": 1, "idx": at, "n": 1 };
        let mut bulk = ClientBulkWrite::new(models()).ordered(false).verbose_results(true);
        assert_eq!(written(&mut bulk, small).sequences[0].1.len(), 2);
        let error = failure(bulk.reply(&scope(), &reply(2, vec![result(0), result(1)])));
        assert_eq!(error.write_errors.keys().collect::<Vec<_>>(), [&1, &3]);
        assert_eq!(error.write_errors[&1].code, 10334);
        let partial = error.partial_result.as_ref().unwrap();
        let inserted = &partial.verbose.as_ref().unwrap().insert_results;
        assert_eq!(inserted.keys().collect::<Vec<_>>(), [&0, &2]);

        let mut bulk = ClientBulkWrite::new(models());
        assert_eq!(written(&mut bulk, small).sequences[0].1.len(), 1);
        assert_eq!(bulk.reply(&scope(), &reply(1, vec![])).unwrap(), Progress::Next);
        let error = bulk.command(&scope(), &small).unwrap_err();
        let error = error.as_client_bulk_write().unwrap();
        assert_eq!(error.write_errors.keys().collect::<Vec<_>>(), [&1]);
        assert_eq!(error.partial_result.as_ref().unwrap().inserted_count, 1);

        for ordered in [true, false] {
            let mut bulk = ClientBulkWrite::new([large(17_000)]).ordered(ordered);
            let error = bulk.command(&scope(), &small).unwrap_err();
            let error = error.as_client_bulk_write().unwrap();
            assert_eq!((error.write_errors.len(), &error.partial_result), (1, &None));
        }
        // Without acknowledgment, also what the server would refuse alone.
        let mut bulk = ClientBulkWrite::new([large(200), insert("a.b", 1)]).ordered(false);
        let command = bulk.command(&unacknowledged(), &small).unwrap();
        assert_eq!(command.sequences[0].1.len(), 1);
    }

    /// A cursor of results that never ends would hold the operation.
    #[test]
    fn more_results_than_writes_are_refused() {
        let mut bulk = ClientBulkWrite::new([insert("a.b", 0)]).verbose_results(true);
        written(&mut bulk, NEW);
        let result = || rawdoc! { "ok": 1, "idx": 0, "n": 1 };
        let reply = summary(7, rawdoc! { "nInserted": 1 }, vec![result()]);
        assert_eq!(bulk.reply(&scope(), &reply).unwrap(), Progress::Next);
        written(&mut bulk, NEW);
        let refused = bulk.reply(&scope(), &more(7, vec![result()]));
        // The cursor is killed first.
        assert_eq!(refused.unwrap(), Progress::Next);
        let killed = written(&mut bulk, NEW).body;
        assert!(killed.get("killCursors").unwrap().is_some());
        let error = failure(bulk.reply(&scope(), &rawdoc! { "ok": 1 }.into()));
        assert!(error.cause.as_ref().is_some_and(|it| it.as_reply().is_some()), "{error}");
    }

    /// Bulk Write, "Building a bulkWrite Command": sequences, namespaces once each, ordered and
    /// errorsOnly always.
    #[test]
    fn writes_name_their_namespaces_by_number() {
        let update = UpdateModel::new(doc! {}, doc! { "$set": { "a": 1 } }).upsert(true);
        let replace = ReplaceModel::new(doc! { "_id": 1 }, doc! { "a": 1 }).sort(doc! { "b": 1 });
        let mut bulk = ClientBulkWrite::new([
            insert("a.b", 1),
            ("c.d".to_owned(), WriteModel::UpdateMany(update)),
            ("a.b".to_owned(), WriteModel::ReplaceOne(replace)),
            ("a.b".to_owned(), WriteModel::DeleteOne(DeleteModel::new(doc! {}).hint("_id_"))),
        ])
        .comment("why");
        let command = bulk.command(&scope(), &NEW).unwrap();
        assert_eq!(&*command.database, "admin");
        // An update of many documents.
        assert!(!command.retryable && command.opens_cursor);
        let expected = rawdoc! {
            "bulkWrite": 1, "errorsOnly": true, "ordered": true, "comment": "why",
        };
        assert_eq!(command.body, expected);
        let mut bulk = ClientBulkWrite { batch: 0..0, ..bulk };
        let sequences = written(&mut bulk, NEW).sequences;
        let ops = [
            rawdoc! { "insert": 0, "document": { "_id": 1 } },
            rawdoc! {
                "update": 1,
                "filter": {},
                "updateMods": { "$set": { "a": 1 } },
                "multi": true,
                "upsert": true,
            },
            rawdoc! {
                "update": 0,
                "filter": { "_id": 1 },
                "updateMods": { "a": 1 },
                "multi": false,
                "sort": { "b": 1 },
            },
            rawdoc! { "delete": 0, "filter": {}, "multi": false, "hint": "_id_" },
        ];
        assert_eq!(sequences[0], ("ops", ops.to_vec()));
        let namespaces = vec![rawdoc! { "ns": "a.b" }, rawdoc! { "ns": "c.d" }];
        assert_eq!(sequences[1], ("nsInfo", namespaces));
    }

    /// Bulk Write, "Command Batching": by number, by length with the overhead of 1000 bytes, and
    /// only the namespaces that a batch needs.
    #[test]
    fn batches_keep_within_the_limits_and_name_what_they_need() {
        let writes =
            || ClientBulkWrite::new([insert("a.b", 1), insert("a.b", 2), insert("c.d", 3)]);
        let mut bulk = writes();
        let facts = Facts { max_write_batch_size: 2, ..NEW };
        let first = written(&mut bulk, facts);
        assert_eq!((first.sequences[0].1.len(), first.sequences[1].1.len()), (2, 1));
        let counts = rawdoc! { "nErrors": 0, "nInserted": 2 };
        let next = bulk.reply(&scope(), &summary(0, counts, Vec::new())).unwrap();
        assert_eq!(next, Progress::Next);
        let second = written(&mut bulk, facts);
        assert_eq!(second.sequences[1].1, [rawdoc! { "ns": "c.d" }]);
        assert_eq!(second.sequences[0].1[0].get_i32("insert").ok(), Some(0));
        let counts = rawdoc! { "nErrors": 0, "nInserted": 1 };
        let done = bulk.reply(&scope(), &summary(0, counts, Vec::new())).unwrap();
        let Progress::Done(result) = done else { panic!() };
        assert_eq!((result.inserted_count, result.verbose), (3, None));

        let body = first.body.as_bytes().len();
        let length = first.sequences[0].1[0].as_bytes().len();
        let namespace = first.sequences[1].1[0].as_bytes().len();
        let most = 1000 + body + length + namespace;
        let facts = Facts { max_message_size_bytes: most, ..NEW };
        assert_eq!(written(&mut writes(), facts).sequences[0].1.len(), 1);
        let facts = Facts { max_message_size_bytes: most - 1, ..NEW };
        let error = writes().command(&scope(), &facts).unwrap_err();
        assert!(matches!(error.as_argument(), Some(ArgumentError::TooLong { index: 0, .. })));
    }

    /// CRUD prose test 11, with smaller documents: 43 bytes of the command, 21 of the namespace and
    /// 58 of the last insertion fill a message but for 1000 bytes; another namespace does not fit.
    #[test]
    fn prose_11_a_namespace_that_does_not_fit_begins_another_batch() {
        let (facts, longest) = (Facts { max_message_size_bytes: 48_000, ..NEW }, 16_000);
        let rest = facts.max_message_size_bytes - 1122;
        let model = |namespace: &str, length| {
            let insert = InsertModel::new(doc! { "a": "b".repeat(length) });
            (namespace.to_owned(), WriteModel::InsertOne(insert))
        };
        let mut models = vec![model("db.coll", longest - 57); rest / longest];
        assert!(rest % longest >= 217);
        models.push(model("db.coll", rest % longest - 57));
        let other = format!("db.{}", "c".repeat(200));
        let with = |namespace: &str| {
            let models = models.iter().cloned();
            ClientBulkWrite::new(models.chain([model(namespace, 1)]))
        };
        let lengths = |bulk: &mut ClientBulkWrite| {
            let sequences = written(bulk, facts).sequences;
            (sequences[0].1.len(), sequences[1].1.clone())
        };
        let of = |namespace: &str| vec![rawdoc! { "ns": namespace }];
        let all = models.len() + 1;
        assert_eq!(lengths(&mut with("db.coll")), (all, of("db.coll")));
        let mut bulk = with(&other);
        assert_eq!(lengths(&mut bulk), (all - 1, of("db.coll")));
        let next = summary(0, rawdoc! { "nInserted": 3 }, Vec::new());
        assert_eq!(bulk.reply(&scope(), &next).unwrap(), Progress::Next);
        assert_eq!(lengths(&mut bulk), (1, of(&other)));
    }

    /// CRUD prose test 12: a client's error, and no partial result.
    #[test]
    fn prose_12_a_write_that_fits_nowhere_is_an_error_of_the_client() {
        let facts = Facts { max_message_size_bytes: 48_000, ..NEW };
        let long = "c".repeat(facts.max_message_size_bytes);
        for (namespace, text) in [("db.coll".to_owned(), &*long), (format!("db.{long}"), "b")] {
            let model = WriteModel::InsertOne(InsertModel::new(doc! { "a": text }));
            let mut bulk = ClientBulkWrite::new([(namespace, model)]);
            let error = bulk.command(&scope(), &facts).unwrap_err();
            assert!(matches!(error.as_argument(), Some(ArgumentError::TooLong { index: 0, .. })));
        }
    }

    /// CRUD prose test 15: `w: 0` in every batch, and a result that says so.
    #[test]
    fn prose_15_every_batch_of_an_unacknowledged_bulk_says_so() {
        let facts = Facts { max_write_batch_size: 1, ..NEW };
        let writes = [insert("db.coll", 1), insert("db.coll", 2)];
        let (mut bulk, scope) = (ClientBulkWrite::new(writes).ordered(false), unacknowledged());
        let nothing = ReplyDocument::from(rawdoc! { "ok": 1 });
        for is_last in [false, true] {
            let command = bulk.command(&scope, &facts).unwrap();
            let concern = command.body.get_document("writeConcern").unwrap();
            assert_eq!(concern, &*rawdoc! { "w": 0 });
            assert!(!command.acknowledged && !command.retryable);
            match bulk.reply(&scope, &nothing).unwrap() {
                Progress::Done(result) => assert!(is_last && !result.acknowledged),
                Progress::Next => assert!(!is_last),
            }
        }
    }

    /// Bulk Write, "Total Message Size": "to account for this overhead", which is what the driver
    /// adds; a full batch is not refused for it.
    #[test]
    fn a_full_batch_leaves_room_for_what_is_added() {
        let facts = Facts { max_message_size_bytes: 20_000, ..NEW };
        let write = |length: usize| {
            let model = InsertModel::new(doc! { "_id": 1, "text": "x".repeat(length) });
            ClientBulkWrite::new([("a.b", WriteModel::InsertOne(model))])
        };
        let fits = |length: &usize| write(*length).command(&majority(), &facts).is_ok();
        let longest = (0..20_000).rev().find(fits).unwrap();
        let (mut bulk, scope) = (write(longest), majority());
        let command = bulk.command(&scope, &facts).unwrap();
        let sequences: Vec<(&str, &[&RawDocument])> =
            command.sequences.iter().map(|(name, all)| (*name, all.as_slice())).collect();
        let binary = |subtype, length| bson::Binary { subtype, bytes: vec![1; length] };
        let hash = binary(BinarySubtype::Generic, 20);
        let signature = rawdoc! { "hash": hash, "keyId": 1_i64 };
        let time = bson::Timestamp { time: 1, increment: 1 };
        let cluster_time = rawdoc! { "clusterTime": time, "signature": signature };
        let lsid = rawdoc! { "id": binary(BinarySubtype::Uuid, 16) };
        let read_concern = rawdoc! { "afterClusterTime": time };
        let api = ServerApi::from(ServerApiVersion::V1).with_strict(Some(true));
        let overlay = Overlay {
            server_api: Some(api.with_deprecation_errors(Some(true))),
            cluster_time: Some(&cluster_time),
            lsid: Some(&lsid),
            transaction_number: Some(1),
            read_concern: Some(&read_concern),
            max_time: Some(Duration::from_secs(1)),
            ..Overlay::default()
        };
        let message = CommandMessage::new("admin", &command.body).with_sequences(&sequences);
        let mut out = Vec::new();
        let written = overlay.write(&message, (1, Flags::NONE), 20_000, &mut out);
        assert_eq!(written, Ok("bulkWrite"));
        assert!(out.len() > 19_000, "it is full: {} bytes", out.len());
    }

    /// Bulk Write, "Handling the bulkWrite Server Response": getMore until the results are read.
    #[test]
    fn verbose_results_come_through_the_cursor() {
        let update = UpdateModel::new(doc! {}, doc! { "$set": { "a": 1 } });
        let mut bulk = ClientBulkWrite::new([
            insert("a.b", 1),
            ("a.b".to_owned(), WriteModel::UpdateOne(update)),
            ("a.b".to_owned(), WriteModel::DeleteMany(DeleteModel::new(doc! {}))),
        ])
        .verbose_results(true);
        assert_eq!(written(&mut bulk, NEW).body.get_bool("errorsOnly").ok(), Some(false));
        let counts = rawdoc! { "nErrors": 0, "nInserted": 1, "nUpserted": 1, "nDeleted": 4 };
        let first = rawdoc! { "ok": 1, "idx": 0, "n": 1 };
        let next = bulk.reply(&scope(), &summary(7, counts, vec![first])).unwrap();
        assert_eq!(next, Progress::Next);
        assert!(bulk.continues_cursor());
        let command = bulk.command(&scope(), &NEW).unwrap();
        let expected = rawdoc! { "getMore": 7_i64, "collection": "$cmd.bulkWrite" };
        assert_eq!(command.body, expected);
        let upserted = rawdoc! { "_id": null };
        let results = vec![
            rawdoc! { "ok": 1, "idx": 1, "n": 1, "nModified": 0, "upserted": upserted },
            rawdoc! { "ok": 1, "idx": 2, "n": 4 },
        ];
        let Progress::Done(result) = bulk.reply(&scope(), &more(0, results)).unwrap() else {
            panic!()
        };
        let verbose = result.verbose.unwrap();
        assert_eq!(verbose.insert_results[&0].inserted_id, Bson::Int32(1));
        assert_eq!(verbose.update_results[&1].upserted_id, Some(Bson::Null));
        assert_eq!(verbose.delete_results[&2].deleted_count, 4);
    }

    /// Bulk Write, "Top-Level Errors": results that were read are kept, whatever comes after them.
    #[test]
    fn a_reply_that_cannot_be_read_keeps_what_was_read_before() {
        let begin = |counts| {
            let mut bulk = ClientBulkWrite::new([insert("a.b", 1), insert("a.b", 2)]);
            bulk = bulk.verbose_results(true);
            written(&mut bulk, NEW);
            let first = rawdoc! { "ok": 1, "idx": 0, "n": 1 };
            bulk.reply(&scope(), &summary(7, counts, vec![first])).unwrap();
            written(&mut bulk, NEW);
            bulk
        };
        for counts in [
            rawdoc! { "nErrors": 0, "nInserted": 2 },
            rawdoc! { "nErrors": 1, "nInserted": i64::MAX },
        ] {
            let mut bulk = begin(counts);
            let unreadable = ReplyDocument::from(rawdoc! { "ok": 1 });
            assert_eq!(bulk.reply(&scope(), &unreadable).unwrap(), Progress::Next);
            let kill = written(&mut bulk, NEW).body;
            assert_eq!(kill, rawdoc! { "killCursors": "$cmd.bulkWrite", "cursors": [7_i64] });
            let error = failure(bulk.reply(&scope(), &unreadable));
            assert!(error.cause.as_ref().is_some_and(|it| it.as_reply().is_some()), "{error:?}");
            let verbose = error.partial_result.as_ref().and_then(|it| it.verbose.as_ref());
            assert!(verbose.is_some_and(|it| it.insert_results.contains_key(&0)), "{error:?}");
        }
    }

    /// Bulk Write, "Handling the bulkWrite Server Response": no count and no index is made up.
    #[test]
    fn a_reply_without_its_counts_or_indexes_ends_the_bulk() {
        let answered = |reply: RawDocumentBuf| {
            let mut bulk = ClientBulkWrite::new([insert("a.b", 1)]).verbose_results(true);
            written(&mut bulk, NEW);
            bulk.reply(&scope(), &reply.into()).unwrap_err().to_string()
        };
        for missing in COUNTS {
            let mut reply = rawdoc! { "ok": 1 };
            for name in COUNTS.into_iter().filter(|name| *name != missing) {
                reply.append(name, 0);
            }
            let missing = missing.as_str();
            let expected =
                format!("the server's reply to bulkWrite has no {missing} that can be read");
            assert_eq!(answered(reply), expected);
        }
        for (missing, result) in [
            ("idx", rawdoc! { "ok": 1, "n": 1 }),
            ("idx", rawdoc! { "ok": 1, "n": 1, "idx": 1 }),
            ("idx", rawdoc! { "ok": 0, "code": 1, "idx": -1 }),
            ("ok", rawdoc! { "idx": 0, "n": 1 }),
            ("n", rawdoc! { "ok": 1, "idx": 0 }),
        ] {
            let reply = summary(0, rawdoc! { "nErrors": 1 }, vec![result]);
            let error = answered((*reply).to_owned());
            let expected =
                format!("the server's reply to bulkWrite has no {missing} that can be read");
            assert_eq!(error, expected);
        }
    }

    /// Bulk Write, "Top-Level Errors": an error of the client is one; what was done before is kept.
    #[test]
    fn a_later_batch_that_cannot_be_sent_keeps_what_was_done_before() {
        let long = DeleteModel::new(doc! { "_id": "x".repeat(1000) });
        let long = ("a.b".to_owned(), WriteModel::DeleteOne(long));
        let mut bulk = ClientBulkWrite::new([insert("a.b", 1), long]);
        let facts = Facts { max_message_size_bytes: 1500, ..NEW };
        written(&mut bulk, facts);
        let next = summary(0, rawdoc! { "nInserted": 1 }, Vec::new());
        assert_eq!(bulk.reply(&scope(), &next).unwrap(), Progress::Next);
        let refused = bulk.command(&scope(), &facts).map(drop);
        let error = refused.unwrap_err();
        let error = error.as_client_bulk_write().unwrap();
        let too_long = |it: &Error| matches!(it.as_argument(), Some(ArgumentError::TooLong { .. }));
        assert!(error.cause.as_ref().is_some_and(too_long), "{error}");
        assert_eq!(error.partial_result.as_ref().map(|it| it.inserted_count), Some(1));
    }

    /// Bulk Write, "Individual Write Errors", "Write Concern Errors"; when errors have partial
    /// results.
    #[test]
    fn errors_of_writes_keep_the_index_of_the_application() {
        let refused = |index: i32| {
            rawdoc! { "ok": 0, "idx": index, "code": 11000, "errmsg": "duplicate", "n": 0 }
        };
        let counts = || rawdoc! { "nErrors": 1, "nInserted": 0 };
        // The first of an ordered bulk: nothing was done.
        let mut bulk = ClientBulkWrite::new([insert("a.b", 1), insert("a.b", 2)]);
        written(&mut bulk, NEW);
        let error = failure(bulk.reply(&scope(), &summary(0, counts(), vec![refused(0)])));
        assert_eq!(error.write_errors.keys().collect::<Vec<_>>(), [&0]);
        assert_eq!(error.partial_result, None);
        // A later one: what came before was done.
        let mut bulk = ClientBulkWrite::new([insert("a.b", 1), insert("a.b", 2)]);
        written(&mut bulk, NEW);
        let error = failure(bulk.reply(&scope(), &summary(0, counts(), vec![refused(1)])));
        assert!(error.partial_result.is_some());
        // An unordered bulk goes on with its next command.
        let facts = Facts { max_write_batch_size: 1, ..NEW };
        let late = rawdoc! { "code": 64, "errmsg": "late" };
        let mut bulk = ClientBulkWrite::new([insert("a.b", 1), insert("a.b", 2)]).ordered(false);
        written(&mut bulk, facts);
        let first = rawdoc! { "nErrors": 1, "writeConcernError": late };
        let next = bulk.reply(&scope(), &summary(0, first, vec![refused(0)])).unwrap();
        assert_eq!(next, Progress::Next);
        written(&mut bulk, facts);
        let last = rawdoc! { "nErrors": 0, "nInserted": 1 };
        let error = failure(bulk.reply(&scope(), &summary(0, last, Vec::new())));
        assert_eq!(error.write_errors.keys().collect::<Vec<_>>(), [&0]);
        assert_eq!(error.write_concern_errors[0].code, 64);
        assert_eq!(error.partial_result.as_ref().unwrap().inserted_count, 1);
    }

    /// Bulk Write, "Individual Write Errors": "during an ordered bulk write, drivers MUST record
    /// the error in writeErrors and immediately throw the exception"; "Write Concern Errors": "it
    /// should not terminate execution of the bulk write".
    #[test]
    fn an_ordered_bulk_sends_no_command_after_the_error_of_a_write() {
        let facts = Facts { max_write_batch_size: 1, ..NEW };
        let refused =
            || rawdoc! { "ok": 0, "idx": 0, "code": 11000, "errmsg": "duplicate", "n": 0 };
        let late = || rawdoc! { "code": 64, "errmsg": "late" };
        let outcome = |counts, results| {
            let mut bulk = ClientBulkWrite::new([insert("a.b", 1), insert("a.b", 2)]);
            written(&mut bulk, facts);
            bulk.reply(&scope(), &summary(0, counts, results))
        };
        let counts = rawdoc! { "nErrors": 1, "nInserted": 0 };
        let error = failure(outcome(counts, vec![refused()]));
        assert_eq!(error.write_errors.keys().collect::<Vec<_>>(), [&0]);
        let counts = rawdoc! { "nErrors": 0, "nInserted": 1, "writeConcernError": late() };
        assert_eq!(outcome(counts, Vec::new()).unwrap(), Progress::Next);
    }

    /// Bulk Write, "Top-Level Errors": the cursor is killed, and the error is within.
    #[test]
    fn an_error_of_get_more_kills_the_cursor_and_ends_the_bulk() {
        let mut bulk = ClientBulkWrite::new([insert("a.b", 1)]).verbose_results(true);
        written(&mut bulk, NEW);
        let counts = rawdoc! { "nErrors": 0, "nInserted": 1 };
        bulk.reply(&scope(), &summary(7, counts, Vec::new())).unwrap();
        written(&mut bulk, NEW);
        let next = bulk.failed(ArgumentError::SessionInUse.into()).unwrap();
        assert_eq!(next, Progress::Next);
        let kill = written(&mut bulk, NEW).body;
        assert_eq!(kill, rawdoc! { "killCursors": "$cmd.bulkWrite", "cursors": [7_i64] });
        let killed = ReplyDocument::from(rawdoc! { "ok": 1 });
        let error = failure(bulk.reply(&scope(), &killed));
        assert!(error.cause.is_some() && error.partial_result.is_some());
        // Without anything done, the error is what it is.
        let mut bulk = ClientBulkWrite::new([insert("a.b", 1)]);
        written(&mut bulk, NEW);
        let error = bulk.failed(ArgumentError::SessionInUse.into()).unwrap_err();
        assert!(error.as_argument().is_some());
    }

    /// Bulk Write: an empty list, verbose or ordered without acknowledgment.
    #[test]
    fn what_does_not_go_together_is_refused_before_anything_is_sent() {
        let message = |mut bulk: ClientBulkWrite, scope| {
            bulk.command(&scope, &NEW).err().map(|error| error.to_string())
        };
        let one = || ClientBulkWrite::new([insert("a.b", 1)]);
        let text = "Cannot request unacknowledged write concern and ordered writes";
        assert_eq!(message(one(), unacknowledged()).as_deref(), Some(text));
        let text = "Cannot request unacknowledged write concern and verbose results";
        let verbose = one().verbose_results(true).ordered(false);
        assert_eq!(message(verbose, unacknowledged()).as_deref(), Some(text));
        assert_eq!(message(one().ordered(false), unacknowledged()), None);
        let nothing = ClientBulkWrite::new(Vec::<(String, WriteModel)>::new());
        assert!(message(nothing, scope()).is_some());
        assert!(message(ClientBulkWrite::new([insert("ab", 1)]), scope()).is_some());
    }

    /// Bulk Write, "Individual Write Errors": "For unordered bulk writes, at least one write was
    /// successful if nErrors is less than the number of operations"; each error has its index.
    #[test]
    fn an_unordered_bulk_of_which_every_write_failed_has_no_result() {
        let refused = |index: i32| rawdoc! { "ok": 0, "idx": index, "code": 11000, "errmsg": "no" };
        for (errors, has_result) in [(2, false), (1, true)] {
            let writes = [insert("a.b", 1), insert("a.b", 2)];
            let mut bulk = ClientBulkWrite::new(writes).ordered(false);
            written(&mut bulk, NEW);
            let results = (2 - errors..2).map(refused).collect();
            let counts = rawdoc! { "nErrors": errors, "nInserted": 2 - errors };
            let error = failure(bulk.reply(&scope(), &summary(0, counts, results)));
            assert_eq!(error.partial_result.is_some(), has_result);
            assert!(error.write_errors.iter().all(|(index, error)| error.index == *index));
        }
    }

    /// Bulk Write, "Top-Level Errors": the error has what is known of writes that were done or
    /// refused before.
    #[test]
    fn an_error_of_a_later_command_has_what_is_known() {
        let late = || rawdoc! { "code": 64, "errmsg": "late" };
        let refused = rawdoc! { "ok": 0, "idx": 0, "code": 11000, "errmsg": "no" };
        for (counts, results) in [
            (rawdoc! { "nErrors": 0, "nInserted": 1 }, vec![]),
            (rawdoc! { "nErrors": 0, "writeConcernError": late() }, vec![]),
            (rawdoc! { "nErrors": 1 }, vec![refused]),
        ] {
            let facts = Facts { max_write_batch_size: 1, ..NEW };
            let writes = [insert("a.b", 1), insert("a.b", 2)];
            let mut bulk = ClientBulkWrite::new(writes).ordered(false);
            written(&mut bulk, facts);
            let next = bulk.reply(&scope(), &summary(0, counts, results)).unwrap();
            assert_eq!(next, Progress::Next);
            written(&mut bulk, facts);
            let error = failure(bulk.failed(ArgumentError::SessionInUse.into()));
            assert!(error.cause.as_ref().is_some_and(|it| it.as_argument().is_some()), "{error}");
        }
    }

    /// The cursor of results is continued on its own database, and taken by an operation that is
    /// given up.
    #[test]
    fn the_cursor_of_results_is_open_until_it_is_read_or_taken() {
        let mut bulk = ClientBulkWrite::new([insert("a.b", 1)]).verbose_results(true);
        assert!(!bulk.continues_cursor() && bulk.take_cursor().is_none());
        written(&mut bulk, NEW);
        let opened = summary(7, rawdoc! { "nErrors": 0, "nInserted": 1 }, Vec::new());
        assert_eq!(bulk.reply(&scope(), &opened).unwrap(), Progress::Next);
        assert!(bulk.continues_cursor());
        let command = bulk.command(&scope(), &NEW).unwrap();
        assert_eq!(&*command.database, "admin");
        assert_eq!(bulk.take_cursor().map(|cursor| cursor.id()), Some(7));
        assert!(!bulk.continues_cursor());
    }

    /// Bulk Write, "Top-Level Errors": writes of an earlier command are among what may have been
    /// done, also without acknowledgment; so are those of a command whose results cannot be read.
    #[test]
    fn an_error_after_writes_that_may_have_been_done_is_one_of_the_bulk() {
        let facts = Facts { max_write_batch_size: 1, ..NEW };
        let mut bulk = ClientBulkWrite::new([insert("a.b", 1), insert("a.b", 2)]).ordered(false);
        let nothing = ReplyDocument::from(rawdoc! { "ok": 1 });
        bulk.command(&unacknowledged(), &facts).unwrap();
        assert_eq!(bulk.reply(&unacknowledged(), &nothing).unwrap(), Progress::Next);
        bulk.command(&unacknowledged(), &facts).unwrap();
        failure(bulk.failed(ArgumentError::SessionInUse.into()));

        let mut bulk = ClientBulkWrite::new([insert("a.b", 1)]).verbose_results(true);
        written(&mut bulk, NEW);
        let opened = summary(7, rawdoc! { "nErrors": 0, "nInserted": 1 }, Vec::new());
        assert_eq!(bulk.reply(&scope(), &opened).unwrap(), Progress::Next);
        written(&mut bulk, NEW);
        let error = failure(bulk.reply(&scope(), &more(0, vec![rawdoc! { "ok": 1 }])));
        assert_eq!(error.partial_result.as_ref().map(|it| it.inserted_count), Some(1));
    }
}
