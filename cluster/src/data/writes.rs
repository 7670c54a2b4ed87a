//! `insert`, `update`, `delete`, `findAndModify` and `bulkWrite`.

use bson::{Bson, Document, RawDocumentBuf, doc};
use sdam_core::bson;
use sdam_core::time::Instant;

use super::arguments::{Arguments, document, flag};
use super::cursors::raw;
use super::fields::{check_operation, check_stages, check_statements};
use super::reads::check_hint;
use super::sessions::Retries;
use crate::model::Cluster;
use crate::options::{MemberId, ServerVersion};
use crate::store::{
    Collation, Context, Cursor, Filter, Projection, Sort, StoreError, Update, UpdateStatement,
    Writer,
};
use crate::wire::CommandError;

/// The reason why a document is refused that has two `_id`s.
const TWICE_IDENTIFIED: &str = "can't have multiple _id fields in one document";

/// The statements of a write that have been done, and those that failed.
#[derive(Default)]
struct Batch {
    found: usize,
    modified: usize,
    upserted: Vec<Document>,
    errors: Vec<Document>,
}

impl Batch {
    /// Counts what a statement has come to.
    fn count(&mut self, at: usize, outcome: &Document) {
        let number = |name| outcome.get_i32(name).unwrap_or(0);
        let number = |name| usize::try_from(number(name)).unwrap_or(0);
        self.found += number("n");
        self.modified += number("nModified");
        if let Some(id) = outcome.get("upserted") {
            self.upserted.push(doc! { "index": int32(at), "_id": id.clone() });
        }
    }

    fn fail(&mut self, at: usize, error: StoreError) {
        let mut document = doc! { "index": int32(at), "code": error.code };
        document.extend(*error.details);
        document.insert("errmsg", error.message);
        self.errors.push(document);
    }

    fn reply(self, name: &str, retries: &Retries, version: ServerVersion) -> Document {
        let mut reply = doc! { "n": int32(self.found) };
        if name == "update" {
            reply.insert("nModified", int32(self.modified));
            if !self.upserted.is_empty() {
                reply.insert("upserted", self.upserted);
            }
        }
        if !self.errors.is_empty() {
            reply.insert("writeErrors", self.errors);
        }
        retries.append_to(&mut reply, version);
        reply.insert("ok", 1.0);
        reply
    }
}

impl Cluster {
    /// Answers an `insert`, an `update` or a `delete`.
    pub(super) fn write_batch(
        &mut self,
        now: Instant,
        member: MemberId,
        arguments: &Arguments,
        name: &str,
    ) -> Result<RawDocumentBuf, CommandError> {
        let namespace = arguments.namespace(name)?;
        let field = match name {
            "insert" => "documents",
            "update" => "updates",
            _ => "deletes",
        };
        let statements = arguments.statements(field, self.options.max_write_batch_size)?;
        let ordered = is_ordered(arguments);
        let version = self.version_of(member);
        check_statements(name, &statements, version)?;
        let reply = self.write(now, member, arguments, |writer, context, retries| {
            let mut batch = Batch::default();
            for (at, statement) in statements.into_iter().enumerate() {
                if let Some(done) = retries.done(at) {
                    batch.count(at, &done);
                    continue;
                }
                check_stages(&statement)?;
                let outcome = match retries.is_numbered() {
                    true => check_retryable(name, &statement),
                    false => Ok(()),
                };
                let outcome = match name == "insert" && arguments.has_two_ids(at) {
                    true => Err(StoreError::bad_value(TWICE_IDENTIFIED)),
                    false => outcome,
                };
                let outcome =
                    outcome.and_then(|()| perform(writer, &namespace, name, statement, context));
                match outcome {
                    Ok(outcome) => {
                        batch.count(at, &outcome);
                        retries.note(at, &outcome);
                    }
                    Err(error) => {
                        batch.fail(at, error);
                        if ordered {
                            break;
                        }
                    }
                }
            }
            Ok(batch.reply(name, retries, version))
        })?;
        raw(&reply)
    }

    /// Answers a `findAndModify`.
    pub(super) fn find_and_modify(
        &mut self,
        now: Instant,
        member: MemberId,
        arguments: &Arguments,
    ) -> Result<RawDocumentBuf, CommandError> {
        let field = if arguments.body.contains_key("findAndModify") {
            "findAndModify"
        } else {
            "findandmodify"
        };
        let namespace = arguments.namespace(field)?;
        let body = &arguments.body;
        let (removes, update) = (arguments.flag("remove"), body.get("update"));
        if removes == update.is_some() {
            let reason = match removes {
                true => "Cannot specify both an update and remove=true",
                false => "Either an update or remove=true must be specified",
            };
            return Err(CommandError::coded(9, reason));
        }
        let version = self.version_of(member);
        let reply = self.write(now, member, arguments, |writer, context, retries| {
            if let Some(mut done) = retries.done(0) {
                if version >= ServerVersion::V6_0 {
                    done.insert("retriedStmtId", retries.retried[0]);
                }
                return Ok(done);
            }
            check_hint(writer.store().collection(&namespace), body.get("hint"))?;
            let reply = modified(writer, &namespace, arguments, context)?;
            retries.note(0, &reply);
            Ok(reply)
        })?;
        raw(&reply)
    }

    /// Answers a `bulkWrite`, which servers have since 8.0.
    pub(super) fn bulk_write(
        &mut self,
        now: Instant,
        member: MemberId,
        arguments: &Arguments,
    ) -> Result<RawDocumentBuf, CommandError> {
        let most = self.options.max_write_batch_size;
        let operations = arguments.statements("ops", most)?;
        let namespaces: Vec<String> = arguments
            .statements("nsInfo", most)?
            .iter()
            .map(|it| it.get_str("ns").unwrap_or_default().to_owned())
            .collect();
        let errors_only = arguments.flag("errorsOnly");
        let ordered = is_ordered(arguments);
        let (mut results, mut totals, mut failed) = (Vec::new(), Document::new(), 0);
        for total in ["nInserted", "nMatched", "nModified", "nUpserted", "nDeleted"] {
            totals.insert(total, 0);
        }
        let version = self.version_of(member);
        let retried = self.write(now, member, arguments, |writer, context, retries| {
            for (at, operation) in operations.into_iter().enumerate() {
                let (name, namespace, statement) = bulk_statement(operation, &namespaces)?;
                let outcome = match retries.done(at) {
                    Some(done) => Ok(done),
                    None if retries.is_numbered() && flag(&statement, "multi") => {
                        check_retryable("update", &statement).map(|()| Document::new())
                    }
                    None if arguments.has_two_ids(at) => {
                        Err(StoreError::bad_value(TWICE_IDENTIFIED))
                    }
                    None => perform(writer, &namespace, name, statement, context),
                };
                match outcome {
                    Ok(outcome) => {
                        retries.note(at, &outcome);
                        add_totals(&mut totals, name, &outcome);
                        if !errors_only {
                            results.push(bulk_result(at, outcome));
                        }
                    }
                    Err(error) => {
                        failed += 1;
                        results.push(bulk_failure(at, error));
                        if ordered {
                            break;
                        }
                    }
                }
            }
            let mut reply = Document::new();
            retries.append_to(&mut reply, version);
            Ok(reply)
        })?;
        let rest = results.into_iter().map(std::sync::Arc::new).collect();
        let cursor = Cursor::over("admin.$cmd.bulkWrite".to_owned(), rest, arguments.owner());
        let size = match arguments.document("cursor")? {
            Some(cursor) => super::arguments::count(cursor, "batchSize")?,
            None => None,
        };
        let reply = self.open(member, cursor, Some(size.unwrap_or(usize::MAX)), false)?;
        let invalid = |error: bson::error::Error| CommandError::coded(22, error.to_string());
        let mut reply = Document::try_from(&*reply).map_err(invalid)?;
        reply.insert("nErrors", failed);
        reply.extend(totals);
        reply.extend(retried);
        raw(&reply)
    }
}

/// Returns whether a write ends with the first statement that fails, as all do in a transaction.
fn is_ordered(arguments: &Arguments) -> bool {
    let is_wanted = !arguments.body.contains_key("ordered") || arguments.flag("ordered");
    is_wanted || arguments.transaction.is_some()
}

/// Does one statement, and returns what it has come to.
fn perform(
    writer: &mut Writer<'_>,
    namespace: &str,
    name: &str,
    statement: Document,
    context: &Context,
) -> Result<Document, StoreError> {
    match name {
        "insert" => {
            writer.insert(namespace, statement, context)?;
            Ok(doc! { "n": 1 })
        }
        "update" => {
            let (update, context) = update_statement(&statement, context)?;
            check_hint(writer.store().collection(namespace), statement.get("hint"))?;
            let updated = writer.update(namespace, &update, &context)?;
            let found = updated.found + usize::from(updated.upserted.is_some());
            let mut outcome = doc! { "n": int32(found), "nModified": int32(updated.modified) };
            if let Some(id) = updated.upserted {
                outcome.insert("upserted", id);
            }
            Ok(outcome)
        }
        _ => {
            let context = with_collation(&statement, context);
            let wrong = |_| StoreError::new(40414, "BSON field 'delete.deletes.q' is missing");
            let filter = Filter::parse(statement.get_document("q").map_err(wrong)?, &context)?;
            check_hint(writer.store().collection(namespace), statement.get("hint"))?;
            let all = statement.get("limit").and_then(crate::store::whole) == Some(0);
            let sort = Sort::default();
            let (count, _) = writer.delete(namespace, &filter, all, &sort, &context)?;
            Ok(doc! { "n": int32(count) })
        }
    }
}

fn with_collation(statement: &Document, context: &Context) -> Context {
    let mut context = context.clone();
    if let Ok(collation) = statement.get_document("collation") {
        context.collation = Collation::parse(Some(collation));
    }
    context
}

/// Reads a statement of an `update`.
fn update_statement(
    statement: &Document,
    context: &Context,
) -> Result<(UpdateStatement, Context), StoreError> {
    let mut context = with_collation(statement, context);
    if let Ok(constants) = statement.get_document("c") {
        context = context.with_variables(constants)?;
    }
    let missing = |name: &str| {
        StoreError::new(40414, format!("BSON field 'update.updates.{name}' is missing"))
    };
    let filter = statement.get_document("q").map_err(|_| missing("q"))?;
    let update = statement.get("u").ok_or_else(|| missing("u"))?;
    let array_filters = statement.get_array("arrayFilters").cloned().unwrap_or_default();
    let update = Update::parse(update, &array_filters, &context)?;
    let multi = flag(statement, "multi");
    if multi && update.is_replacement() {
        return Err(StoreError::new(
            9,
            "multi update is not supported for replacement-style update",
        ));
    }
    let sort = statement.get_document("sort").map_or_else(|_| Ok(Sort::default()), Sort::parse)?;
    let filter = Filter::parse(filter, &context)?;
    let upsert = flag(statement, "upsert");
    Ok((UpdateStatement { filter, update, multi, upsert, sort }, context))
}

/// A statement that may change several documents cannot be tried again.
fn check_retryable(name: &str, statement: &Document) -> Result<(), StoreError> {
    let limit = statement.get("limit").and_then(crate::store::whole);
    let is_multi = match name {
        "insert" => false,
        "update" => flag(statement, "multi"),
        _ => limit == Some(0),
    };
    match is_multi {
        true => Err(StoreError::new(72, "Cannot use retryable writes with multi=true or limit=0")),
        false => Ok(()),
    }
}

/// Does what a `findAndModify` says.
fn modified(
    writer: &mut Writer<'_>,
    namespace: &str,
    arguments: &Arguments,
    context: &Context,
) -> Result<Document, CommandError> {
    let body = &arguments.body;
    let empty = Document::new();
    let filter = Filter::parse(arguments.document("query")?.unwrap_or(&empty), context)?;
    let sort = Sort::parse(arguments.document("sort")?.unwrap_or(&empty))?;
    let fields = document(body, "fields")?.filter(|it| !it.is_empty());
    let fields = fields.map(|fields| Projection::of_found(fields, context)).transpose()?;
    let mut outcome = Document::new();
    let value = match body.get("update") {
        None => {
            let (count, removed) = writer.delete(namespace, &filter, false, &sort, context)?;
            outcome.insert("n", int32(count));
            removed
        }
        Some(update) => {
            let array_filters = body.get_array("arrayFilters").cloned().unwrap_or_default();
            let update = Update::parse(update, &array_filters, context)?;
            let upsert = arguments.flag("upsert");
            let statement = UpdateStatement { filter, update, multi: false, upsert, sort };
            let updated = writer.update(namespace, &statement, context)?;
            outcome.insert("n", int32(updated.found + usize::from(updated.upserted.is_some())));
            outcome.insert("updatedExisting", updated.found > 0);
            if let Some(id) = updated.upserted {
                outcome.insert("upserted", id);
            }
            if arguments.flag("new") { updated.after } else { updated.before }
        }
    };
    let value = match (value, fields) {
        (None, _) => Bson::Null,
        (Some(value), None) => Document::clone(&value).into(),
        (Some(value), Some(fields)) => fields.apply(&value, context)?.into(),
    };
    Ok(doc! { "lastErrorObject": outcome, "value": value, "ok": 1.0 })
}

/// Reads an operation of a `bulkWrite` as the statement that it is.
fn bulk_statement(
    mut operation: Document,
    namespaces: &[String],
) -> Result<(&'static str, String, Document), CommandError> {
    let wrong = |reason: &str| CommandError::coded(9, reason.to_owned());
    let first = operation.iter().next().map(|(name, value)| (name.clone(), value.clone()));
    let (name, index) = first.ok_or_else(|| wrong("an operation is empty"))?;
    let name = match name.as_str() {
        "insert" => "insert",
        "update" => "update",
        "delete" => "delete",
        _ => return Err(wrong("an operation is an insert, an update or a delete")),
    };
    check_operation(name, &operation)?;
    let index = crate::store::whole(&index).and_then(|it| usize::try_from(it).ok());
    let namespace = index.and_then(|it| namespaces.get(it)).cloned();
    let namespace =
        namespace.ok_or_else(|| wrong("BulkWrite ops entry has an invalid nsInfo index."))?;
    let statement = match name {
        "insert" => match operation.remove("document") {
            Some(Bson::Document(document)) => document,
            _ => return Err(wrong("an insert has a document")),
        },
        _ => {
            let multi = flag(&operation, "multi");
            for (theirs, own) in [("filter", "q"), ("updateMods", "u"), ("constants", "c")] {
                if let Some(value) = operation.remove(theirs) {
                    operation.insert(own, value);
                }
            }
            operation.insert("limit", i32::from(!multi));
            operation
        }
    };
    Ok((name, namespace, statement))
}

fn bulk_result(at: usize, outcome: Document) -> Document {
    let mut result = doc! { "ok": 1.0, "idx": int32(at) };
    for (name, value) in outcome {
        match name.as_str() {
            "upserted" => result.insert("upserted", doc! { "_id": value }),
            _ => result.insert(name, value),
        };
    }
    result
}

fn bulk_failure(at: usize, error: StoreError) -> Document {
    let mut result = doc! { "ok": 0.0, "idx": int32(at), "code": error.code };
    result.extend(*error.details);
    result.insert("errmsg", error.message);
    result.insert("n", 0);
    result
}

fn add_totals(totals: &mut Document, name: &str, outcome: &Document) {
    let number = |field| outcome.get_i32(field).unwrap_or(0);
    let upserted = i32::from(outcome.contains_key("upserted"));
    let mut add = |total: &str, count: i32| {
        let sum = totals.get_i32(total).unwrap_or(0) + count;
        totals.insert(total, sum);
    };
    match name {
        "insert" => add("nInserted", number("n")),
        "delete" => add("nDeleted", number("n")),
        _ => {
            add("nMatched", number("n") - upserted);
            add("nModified", number("nModified"));
            add("nUpserted", upserted);
        }
    }
}

/// Returns a number of documents as replies have it.
pub(super) fn int32(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

/// Returns whether names of fields may begin with a dollar sign.
pub(super) fn allows_dollars(version: ServerVersion) -> bool {
    version >= ServerVersion::V5_0
}
