//! Operations on collections (CRUD), as calls of the driver's interface.

use std::time::Duration;

use bson::{Bson, Document, doc};
use sdam_driver::{
    Aggregate, BulkWrite, BulkWriteResult, Collection, Count, CountDocuments, CursorType, Delete,
    DeleteModel, DeleteResult, Distinct, EstimatedDocumentCount, Find, FindOne, FindOneAndDelete,
    FindOneAndReplace, FindOneAndUpdate, Hint, InsertMany, InsertModel, InsertOne, MapReduce,
    MapReduceOutput, Modifications, Replace, ReplaceModel, ReturnDocument, TimeoutMode, Update,
    UpdateModel, UpdateResult, WriteModel,
};
use sdam_host::Runtime;

use super::operate::{Reason, Result, all};
use crate::unified::format::{Node, Object};

/// Sets those options of an operation that its arguments have.
macro_rules! set {
    ($arguments:ident, $operation:ident: $($method:ident $name:literal $read:expr),* $(,)?) => {
        $(
            if let Some(value) = $arguments.optional($name, $read)? {
                $operation = $operation.$method(value);
            }
        )*
    };
}

pub(super) use set;

/// Runs an operation on a collection.
pub(super) async fn run<R: Runtime>(
    collection: &Collection<R>,
    name: &str,
    arguments: Object,
) -> Result<Option<Bson>, Reason> {
    let any = |document: Option<Document>| document.map_or(Bson::Null, Bson::Document);
    let number = |count: u64| Bson::Int64(count.cast_signed());
    Ok(Some(match name {
        "find" => all(collection.find(find(arguments)?).await?).await?,
        "findOne" => any(collection.find_one(find_one(arguments)?).await?),
        "aggregate" => all(collection.aggregate::<Document>(aggregate(arguments)?).await?).await?,
        "countDocuments" => number(collection.count_documents(count(arguments)?).await?),
        "count" => number(collection.count(old_count(arguments)?).await?),
        "estimatedDocumentCount" => {
            number(collection.estimated_document_count(estimate(arguments)?).await?)
        }
        "mapReduce" => {
            #[expect(deprecated, reason = "the official suites call it")]
            let found = collection.map_reduce::<Document>(map_reduce(arguments)?).await?;
            Bson::Array(found.into_iter().map(Bson::Document).collect())
        }
        "distinct" => Bson::Array(collection.distinct(distinct(arguments)?).await?.collect()?),
        "findOneAndDelete" => {
            any(collection.find_one_and_delete(find_one_and_delete(arguments)?).await?)
        }
        "findOneAndReplace" => {
            any(collection.find_one_and_replace(find_one_and_replace(arguments)?).await?)
        }
        "findOneAndUpdate" => {
            any(collection.find_one_and_update(find_one_and_update(arguments)?).await?)
        }
        _ => return write(collection, name, arguments).await,
    }))
}

/// Runs an operation that writes.
async fn write<R: Runtime>(
    collection: &Collection<R>,
    name: &str,
    arguments: Object,
) -> Result<Option<Bson>, Reason> {
    Ok(Some(match name {
        "insertOne" => {
            let result = collection.insert_one(insert_one(arguments)?).await?;
            let id = doc! { "insertedId": result.inserted_id };
            Bson::Document(if_acknowledged(result.acknowledged, id))
        }
        "insertMany" => {
            let result = collection.insert_many(insert_many(arguments)?).await?;
            let ids = doc! { "insertedIds": by_index(&result.inserted_ids) };
            Bson::Document(if_acknowledged(result.acknowledged, ids))
        }
        "updateOne" => updated(collection.update_one(update(arguments)?).await?),
        "updateMany" => updated(collection.update_many(update(arguments)?).await?),
        "replaceOne" => updated(collection.replace_one(replace(arguments)?).await?),
        "deleteOne" => deleted(&collection.delete_one(delete(arguments)?).await?),
        "deleteMany" => deleted(&collection.delete_many(delete(arguments)?).await?),
        "bulkWrite" => {
            Bson::Document(written(&collection.bulk_write(bulk_write(arguments)?).await?))
        }
        _ => return super::administer::on_collection(collection, name, arguments).await,
    }))
}

pub(super) fn find(mut of: Object) -> Result<Find> {
    let mut find = Find::new(of.required("filter", Node::document)?);
    set!(of, find: allow_disk_use "allowDiskUse" Node::boolean,
        allow_partial_results "allowPartialResults" Node::boolean, batch_size "batchSize" int,
        collation "collation" Node::document, comment "comment" Node::any,
        cursor_type "cursorType" cursor_type, hint "hint" hint, let_vars "let" Node::document,
        limit "limit" Node::integer, max "max" Node::document,
        max_await_time "maxAwaitTimeMS" millis, max_time "maxTimeMS" millis,
        min "min" Node::document,
        no_cursor_timeout "noCursorTimeout" Node::boolean, projection "projection" Node::document,
        raw_data "rawData" Node::boolean, return_key "returnKey" Node::boolean,
        show_record_id "showRecordId" Node::boolean, skip "skip" Node::integer,
        sort "sort" Node::document, timeout_mode "timeoutMode" timeout_mode);
    of.finish().map(|()| find)
}

fn find_one(mut of: Object) -> Result<FindOne> {
    let mut find = FindOne::new(of.required("filter", Node::document)?);
    set!(of, find: allow_disk_use "allowDiskUse" Node::boolean,
        collation "collation" Node::document, comment "comment" Node::any, hint "hint" hint,
        let_vars "let" Node::document, max_time "maxTimeMS" millis,
        projection "projection" Node::document, raw_data "rawData" Node::boolean,
        skip "skip" Node::integer, sort "sort" Node::document);
    of.finish().map(|()| find)
}

pub(super) fn aggregate(mut of: Object) -> Result<Aggregate> {
    let pipeline = of.required("pipeline", documents)?;
    aggregate_of(Aggregate::new(pipeline), of)
}

/// Sets the options of an aggregation.
pub(super) fn aggregate_of(mut aggregate: Aggregate, mut of: Object) -> Result<Aggregate> {
    set!(of, aggregate: allow_disk_use "allowDiskUse" Node::boolean, batch_size "batchSize" int,
        bypass_document_validation "bypassDocumentValidation" Node::boolean,
        collation "collation" Node::document, comment "comment" Node::any, hint "hint" hint,
        let_vars "let" Node::document, max_await_time "maxAwaitTimeMS" millis,
        max_time "maxTimeMS" millis, raw_data "rawData" Node::boolean,
        timeout_mode "timeoutMode" timeout_mode);
    of.finish().map(|()| aggregate)
}

fn count(mut of: Object) -> Result<CountDocuments> {
    let mut count = CountDocuments::new(of.required("filter", Node::document)?);
    set!(of, count: collation "collation" Node::document, comment "comment" Node::any,
        hint "hint" hint, limit "limit" Node::integer, max_time "maxTimeMS" millis,
        raw_data "rawData" Node::boolean, skip "skip" Node::integer);
    of.finish().map(|()| count)
}

fn old_count(mut of: Object) -> Result<Count> {
    let mut count = Count::new(of.required("filter", Node::document)?);
    set!(of, count: collation "collation" Node::document, comment "comment" Node::any,
        hint "hint" hint, limit "limit" Node::integer, max_time "maxTimeMS" millis,
        raw_data "rawData" Node::boolean, skip "skip" Node::integer);
    of.finish().map(|()| count)
}

fn estimate(mut of: Object) -> Result<EstimatedDocumentCount> {
    let mut estimate = EstimatedDocumentCount::new();
    set!(of, estimate: comment "comment" Node::any, max_time "maxTimeMS" millis,
        raw_data "rawData" Node::boolean);
    of.finish().map(|()| estimate)
}

fn distinct(mut of: Object) -> Result<Distinct> {
    let field = of.required("fieldName", Node::string)?;
    let mut distinct = Distinct::new(field, of.required("filter", Node::document)?);
    set!(of, distinct: collation "collation" Node::document, comment "comment" Node::any,
        hint "hint" hint, max_time "maxTimeMS" millis, raw_data "rawData" Node::boolean);
    of.finish().map(|()| distinct)
}

fn map_reduce(mut of: Object) -> Result<MapReduce> {
    let (map, reduce) = (of.required("map", Node::code)?, of.required("reduce", Node::code)?);
    let mut operation = MapReduce::new(map, reduce, of.required("out", output)?);
    set!(of, operation: collation "collation" Node::document, comment "comment" Node::any,
        finalize "finalize" Node::code, limit "limit" Node::integer, max_time "maxTimeMS" millis,
        query "query" Node::document, scope "scope" Node::document, sort "sort" Node::document);
    of.finish().map(|()| operation)
}

/// Reads the place for what mapReduce makes.
fn output(node: Node) -> Result<MapReduceOutput> {
    let mut of = node.object()?;
    if of.optional("inline", Node::integer)?.is_some() {
        return of.finish().map(|()| MapReduceOutput::inline());
    }
    let output = MapReduceOutput::replace(of.required("replace", Node::string)?);
    of.finish().map(|()| output)
}

fn insert_one(mut of: Object) -> Result<InsertOne<Document>> {
    let mut insert = InsertOne::new(&of.required("document", Node::document)?);
    set!(of, insert: comment "comment" Node::any, raw_data "rawData" Node::boolean,
        bypass_document_validation "bypassDocumentValidation" Node::boolean);
    of.finish().map(|()| insert)
}

fn insert_many(mut of: Object) -> Result<InsertMany<Document>> {
    let documents = of.required("documents", |node| node.list(Node::document))?;
    let mut insert = InsertMany::new(&documents);
    set!(of, insert: comment "comment" Node::any, ordered "ordered" Node::boolean,
        raw_data "rawData" Node::boolean,
        bypass_document_validation "bypassDocumentValidation" Node::boolean);
    of.finish().map(|()| insert)
}

fn update(mut of: Object) -> Result<Update> {
    let filter = of.required("filter", Node::document)?;
    let mut update = Update::new(filter, of.required("update", modifications)?);
    set!(of, update: array_filters "arrayFilters" documents,
        bypass_document_validation "bypassDocumentValidation" Node::boolean,
        collation "collation" Node::document, comment "comment" Node::any, hint "hint" hint,
        let_vars "let" Node::document, raw_data "rawData" Node::boolean,
        sort "sort" Node::document, upsert "upsert" Node::boolean);
    of.finish().map(|()| update)
}

fn replace(mut of: Object) -> Result<Replace> {
    let filter = of.required("filter", Node::document)?;
    let mut replace = Replace::new(filter, &of.required("replacement", Node::document)?);
    set!(of, replace: bypass_document_validation "bypassDocumentValidation" Node::boolean,
        collation "collation" Node::document, comment "comment" Node::any, hint "hint" hint,
        let_vars "let" Node::document, raw_data "rawData" Node::boolean,
        sort "sort" Node::document, upsert "upsert" Node::boolean);
    of.finish().map(|()| replace)
}

fn delete(mut of: Object) -> Result<Delete> {
    let mut delete = Delete::new(of.required("filter", Node::document)?);
    set!(of, delete: collation "collation" Node::document, comment "comment" Node::any,
        hint "hint" hint, let_vars "let" Node::document, raw_data "rawData" Node::boolean);
    of.finish().map(|()| delete)
}

fn find_one_and_delete(mut of: Object) -> Result<FindOneAndDelete> {
    let mut found = FindOneAndDelete::new(of.required("filter", Node::document)?);
    set!(of, found: collation "collation" Node::document, comment "comment" Node::any,
        hint "hint" hint, let_vars "let" Node::document, max_time "maxTimeMS" millis,
        projection "projection" Node::document, raw_data "rawData" Node::boolean,
        sort "sort" Node::document);
    of.finish().map(|()| found)
}

fn find_one_and_replace(mut of: Object) -> Result<FindOneAndReplace> {
    let filter = of.required("filter", Node::document)?;
    let mut found = FindOneAndReplace::new(filter, &of.required("replacement", Node::document)?);
    set!(of, found: bypass_document_validation "bypassDocumentValidation" Node::boolean,
        collation "collation" Node::document, comment "comment" Node::any, hint "hint" hint,
        let_vars "let" Node::document, max_time "maxTimeMS" millis,
        projection "projection" Node::document, raw_data "rawData" Node::boolean,
        return_document "returnDocument" returned, sort "sort" Node::document,
        upsert "upsert" Node::boolean);
    of.finish().map(|()| found)
}

fn find_one_and_update(mut of: Object) -> Result<FindOneAndUpdate> {
    let filter = of.required("filter", Node::document)?;
    let mut found = FindOneAndUpdate::new(filter, of.required("update", modifications)?);
    set!(of, found: array_filters "arrayFilters" documents,
        bypass_document_validation "bypassDocumentValidation" Node::boolean,
        collation "collation" Node::document, comment "comment" Node::any, hint "hint" hint,
        let_vars "let" Node::document, max_time "maxTimeMS" millis,
        projection "projection" Node::document, raw_data "rawData" Node::boolean,
        return_document "returnDocument" returned, sort "sort" Node::document,
        upsert "upsert" Node::boolean);
    of.finish().map(|()| found)
}

fn bulk_write(mut of: Object) -> Result<BulkWrite> {
    let mut bulk = BulkWrite::new(of.required("requests", |node| node.list(model))?);
    set!(of, bulk: bypass_document_validation "bypassDocumentValidation" Node::boolean,
        comment "comment" Node::any, let_vars "let" Node::document, ordered "ordered" Node::boolean,
        raw_data "rawData" Node::boolean);
    of.finish().map(|()| bulk)
}

fn model(node: Node) -> Result<WriteModel> {
    let (name, node) = node.single()?;
    model_of(&name, node.object()?)
}

/// Reads the write of this name, all of whose other parts are read.
pub(super) fn model_of(name: &str, mut of: Object) -> Result<WriteModel> {
    let model = match name {
        "insertOne" => {
            WriteModel::InsertOne(InsertModel::new(&of.required("document", Node::document)?))
        }
        "updateOne" | "updateMany" => {
            let filter = of.required("filter", Node::document)?;
            let mut update = UpdateModel::new(filter, of.required("update", modifications)?);
            set!(of, update: array_filters "arrayFilters" documents, hint "hint" hint,
                collation "collation" Node::document, sort "sort" Node::document,
                upsert "upsert" Node::boolean);
            match name {
                "updateOne" => WriteModel::UpdateOne(update),
                _ => WriteModel::UpdateMany(update),
            }
        }
        "replaceOne" => {
            let filter = of.required("filter", Node::document)?;
            let replacement = of.required("replacement", Node::document)?;
            let mut replace = ReplaceModel::new(filter, &replacement);
            set!(of, replace: collation "collation" Node::document, hint "hint" hint,
                sort "sort" Node::document, upsert "upsert" Node::boolean);
            WriteModel::ReplaceOne(replace)
        }
        "deleteOne" | "deleteMany" => {
            let mut delete = DeleteModel::new(of.required("filter", Node::document)?);
            set!(of, delete: collation "collation" Node::document, hint "hint" hint);
            match name {
                "deleteOne" => WriteModel::DeleteOne(delete),
                _ => WriteModel::DeleteMany(delete),
            }
        }
        other => return Err(of.broken(format!("is of {other}, which is no write"))),
    };
    of.finish().map(|()| model)
}

pub(super) fn int(node: Node) -> Result<i32> {
    let refused = node.refuse("must be a number of 32 bits");
    i32::try_from(node.integer()?).map_err(|_| refused)
}

pub(super) fn millis(node: Node) -> Result<Duration> {
    node.count().map(Duration::from_millis)
}

pub(super) fn timeout_mode(node: Node) -> Result<TimeoutMode> {
    node.one_of(&[
        ("cursorLifetime", TimeoutMode::CursorLifetime),
        ("iteration", TimeoutMode::Iteration),
    ])
}

pub(super) fn cursor_type(node: Node) -> Result<CursorType> {
    node.one_of(&[
        ("nonTailable", CursorType::NonTailable),
        ("tailable", CursorType::Tailable),
        ("tailableAwait", CursorType::TailableAwait),
    ])
}

fn hint(node: Node) -> Result<Hint> {
    let refused = node.refuse("must be a string or an object");
    match node.any()? {
        Bson::String(name) => Ok(Hint::from(name)),
        Bson::Document(keys) => Ok(Hint::from(keys)),
        _ => Err(refused),
    }
}

pub(super) fn documents(node: Node) -> Result<Vec<Document>> {
    node.list(Node::document)
}

fn modifications(node: Node) -> Result<Modifications> {
    match node.clone().any()? {
        Bson::Array(_) => documents(node).map(Modifications::from),
        _ => node.document().map(Modifications::from),
    }
}

fn returned(node: Node) -> Result<ReturnDocument> {
    node.one_of(&[("Before", ReturnDocument::Before), ("After", ReturnDocument::After)])
}

fn if_acknowledged(acknowledged: bool, result: Document) -> Document {
    match acknowledged {
        true => result,
        false => doc! { "acknowledged": false },
    }
}

fn by_index(ids: &std::collections::BTreeMap<usize, Bson>) -> Document {
    ids.iter().map(|(index, id)| (index.to_string(), id.clone())).collect()
}

fn updated(result: UpdateResult) -> Bson {
    let mut document = doc! {
        "matchedCount": result.matched_count.cast_signed(),
        "modifiedCount": result.modified_count.cast_signed(),
        "upsertedCount": result.upserted_count.cast_signed(),
    };
    document.extend(result.upserted_id.map(|id| ("upsertedId".to_owned(), id)));
    Bson::Document(if_acknowledged(result.acknowledged, document))
}

fn deleted(result: &DeleteResult) -> Bson {
    let count = doc! { "deletedCount": result.deleted_count.cast_signed() };
    Bson::Document(if_acknowledged(result.acknowledged, count))
}

pub(super) fn written(result: &BulkWriteResult) -> Document {
    let counts = doc! {
        "insertedCount": result.inserted_count.cast_signed(),
        "insertedIds": by_index(&result.inserted_ids),
        "matchedCount": result.matched_count.cast_signed(),
        "modifiedCount": result.modified_count.cast_signed(),
        "deletedCount": result.deleted_count.cast_signed(),
        "upsertedCount": result.upserted_count.cast_signed(),
        "upsertedIds": by_index(&result.upserted_ids),
    };
    if_acknowledged(result.acknowledged, counts)
}
