//! Operations on collections (CRUD), as calls of the driver's interface.

use std::time::Duration;

use bson::{Bson, Document, doc};
use sdam_core::config::{Acknowledgment, ReadConcern, WriteConcern};
use sdam_driver::{
    Aggregate, BulkWrite, BulkWriteResult, Client, Collection, Count, CountDocuments, Delete,
    DeleteModel, DeleteResult, Distinct, Error, EstimatedDocumentCount, Find, FindOne,
    FindOneAndDelete, FindOneAndReplace, FindOneAndUpdate, Hint, InsertMany, InsertModel,
    InsertOne, Modifications, Replace, ReplaceModel, ReturnDocument, Update, UpdateModel,
    UpdateResult, WriteModel,
};
use sdam_host::Runtime;

use super::call::{failed, invalid, preference_of};
use crate::unified::format::{CollectionOptions, FormatError, Node, Object};
use crate::unified::play::{Ended, Failed, Operate};

type Result<T, E = FormatError> = std::result::Result<T, E>;

/// The reason why an operation has no result.
enum Reason {
    Malformed(FormatError),
    Driver(Box<Error>),
}

impl From<FormatError> for Reason {
    fn from(error: FormatError) -> Self {
        Self::Malformed(error)
    }
}

impl From<Error> for Reason {
    fn from(error: Error) -> Self {
        Self::Driver(Box::new(error))
    }
}

/// Runs an operation on a collection.
pub(super) async fn operate<R: Runtime>(
    client: sdam_host::Client<R>,
    operate: Operate,
) -> Result<Ended, Box<Failed>> {
    let Operate { database, collection, options, name, arguments, .. } = operate;
    let database = Client::new(client).database(&database);
    let collection = with_options(database.collection(&collection), &options)?;
    let node = Node::at("arguments", Bson::Document(arguments));
    let object = node.object().map_err(|error| malformed(&error))?;
    match run(&collection, &name, object).await {
        Ok(result) => Ok(Ended { result, server: None }),
        Err(Reason::Malformed(error)) => Err(malformed(&error)),
        Err(Reason::Driver(error)) => Err(Box::new(of_driver(&error))),
    }
}

fn malformed(error: &FormatError) -> Box<Failed> {
    Box::new(Failed { is_malformed: true, message: error.to_string(), ..Failed::default() })
}

/// Takes over the options of a collection (Unified Test Format, "collectionOrDatabaseOptions").
fn with_options<R: Runtime>(
    mut collection: Collection<R>,
    options: &CollectionOptions,
) -> Result<Collection<R>, Box<Failed>> {
    if let Some(preference) = &options.read_preference {
        collection = collection.with_read_preference(preference_of(preference)?);
    }
    if let Some(concern) = &options.read_concern {
        let level = concern.get_str("level").ok().map(str::to_owned);
        collection = collection.with_read_concern(ReadConcern::default().with_level(level));
    }
    if let Some(concern) = &options.write_concern {
        collection = collection.with_write_concern(write_concern(concern)?);
    }
    Ok(collection)
}

fn write_concern(document: &Document) -> Result<WriteConcern, Box<Failed>> {
    let mut concern = WriteConcern::default();
    for (name, value) in document {
        match (name.as_str(), value) {
            ("w", Bson::Int32(members)) => {
                let members = u32::try_from(*members).map_err(|error| invalid(&error.to_string()));
                concern.w = Some(Acknowledgment::Servers(members?));
            }
            ("w", Bson::String(name)) => concern.w = Some(Acknowledgment::Named(name.clone())),
            ("journal" | "j", Bson::Boolean(journal)) => concern.journal = Some(*journal),
            ("wtimeoutMS" | "wtimeout", Bson::Int32(time)) => {
                concern.timeout = Some(Duration::from_millis(time.unsigned_abs().into()));
            }
            _ => return Err(invalid(&format!("{name}: {value} is no part of a write concern"))),
        }
    }
    Ok(concern)
}

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

async fn run<R: Runtime>(
    collection: &Collection<R>,
    name: &str,
    arguments: Object,
) -> Result<Option<Bson>, Reason> {
    let documents =
        |documents: Vec<Document>| Bson::Array(documents.into_iter().map(Bson::Document).collect());
    let any = |document: Option<Document>| document.map_or(Bson::Null, Bson::Document);
    let number = |count: u64| Bson::Int64(count.cast_signed());
    Ok(Some(match name {
        "find" => {
            let cursor = collection.find(find(arguments)?).await?;
            documents(cursor.collect().await?)
        }
        "findOne" => any(collection.find_one(find_one(arguments)?).await?),
        "aggregate" => {
            let cursor = collection.aggregate::<Document>(aggregate(arguments)?).await?;
            documents(cursor.collect().await?)
        }
        "countDocuments" => number(collection.count_documents(count(arguments)?).await?),
        "count" => number(collection.count(old_count(arguments)?).await?),
        "estimatedDocumentCount" => {
            number(collection.estimated_document_count(estimate(arguments)?).await?)
        }
        "distinct" => Bson::Array(collection.distinct(distinct(arguments)?).await?),
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
        "findOneAndDelete" => {
            any(collection.find_one_and_delete(find_one_and_delete(arguments)?).await?)
        }
        "findOneAndReplace" => {
            any(collection.find_one_and_replace(find_one_and_replace(arguments)?).await?)
        }
        "findOneAndUpdate" => {
            any(collection.find_one_and_update(find_one_and_update(arguments)?).await?)
        }
        "bulkWrite" => {
            Bson::Document(written(&collection.bulk_write(bulk_write(arguments)?).await?))
        }
        other => {
            return Err(arguments
                .broken(format!("is of {other}, which is not called here"))
                .into());
        }
    }))
}

fn find(mut of: Object) -> Result<Find> {
    let mut find = Find::new(of.required("filter", Node::document)?);
    set!(of, find: allow_disk_use "allowDiskUse" Node::boolean,
        allow_partial_results "allowPartialResults" Node::boolean, batch_size "batchSize" int,
        collation "collation" Node::document, comment "comment" Node::any, hint "hint" hint,
        let_vars "let" Node::document, limit "limit" Node::integer, max "max" Node::document,
        max_time "maxTimeMS" millis, min "min" Node::document,
        no_cursor_timeout "noCursorTimeout" Node::boolean, projection "projection" Node::document,
        raw_data "rawData" Node::boolean, return_key "returnKey" Node::boolean,
        show_record_id "showRecordId" Node::boolean, skip "skip" Node::integer,
        sort "sort" Node::document);
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

fn aggregate(mut of: Object) -> Result<Aggregate> {
    let pipeline = of.required("pipeline", |node| node.list(Node::document))?;
    let mut aggregate = Aggregate::new(pipeline);
    set!(of, aggregate: allow_disk_use "allowDiskUse" Node::boolean, batch_size "batchSize" int,
        bypass_document_validation "bypassDocumentValidation" Node::boolean,
        collation "collation" Node::document, comment "comment" Node::any, hint "hint" hint,
        let_vars "let" Node::document, max_time "maxTimeMS" millis,
        raw_data "rawData" Node::boolean);
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
        skip "skip" Node::integer);
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
    let mut of = node.object()?;
    let model = match name.as_str() {
        "insertOne" => {
            WriteModel::InsertOne(InsertModel::new(&of.required("document", Node::document)?))
        }
        "updateOne" | "updateMany" => {
            let filter = of.required("filter", Node::document)?;
            let mut update = UpdateModel::new(filter, of.required("update", modifications)?);
            set!(of, update: array_filters "arrayFilters" documents, hint "hint" hint,
                collation "collation" Node::document, sort "sort" Node::document,
                upsert "upsert" Node::boolean);
            match name.as_str() {
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
            match name.as_str() {
                "deleteOne" => WriteModel::DeleteOne(delete),
                _ => WriteModel::DeleteMany(delete),
            }
        }
        other => return Err(of.broken(format!("is of {other}, which is no write"))),
    };
    of.finish().map(|()| model)
}

fn int(node: Node) -> Result<i32> {
    let refused = node.refuse("must be a number of 32 bits");
    i32::try_from(node.integer()?).map_err(|_| refused)
}

fn millis(node: Node) -> Result<Duration> {
    node.count().map(Duration::from_millis)
}

fn hint(node: Node) -> Result<Hint> {
    let refused = node.refuse("must be a string or an object");
    match node.any()? {
        Bson::String(name) => Ok(Hint::from(name)),
        Bson::Document(keys) => Ok(Hint::from(keys)),
        _ => Err(refused),
    }
}

fn documents(node: Node) -> Result<Vec<Document>> {
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

fn written(result: &BulkWriteResult) -> Document {
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

/// Takes from an error of the driver what its interface tells of it.
fn of_driver(error: &Error) -> Failed {
    let mut found = match error.as_client() {
        Some(client) => failed(client),
        None => Failed::default(),
    };
    found.message = error.to_string();
    found.labels = error.labels().into_iter().map(str::to_owned).collect();
    let of_write = |code: i32, message: &str| doc! { "code": code, "errmsg": message };
    match error {
        Error::Write(write) => {
            let mut reply = of_write(write.code, &write.message);
            let details = write.details.as_ref().and_then(|raw| Document::try_from(raw).ok());
            reply.extend(details.map(|info| ("errInfo".to_owned(), Bson::Document(info))));
            found.reply = Some(reply);
        }
        Error::WriteConcern(concern) => {
            let mut reply = of_write(concern.code, &concern.message);
            reply.insert("codeName", concern.code_name.clone());
            found.reply = Some(reply);
        }
        Error::BulkWrite(bulk) => {
            found.result = Some(Bson::Document(written(&bulk.partial_result)));
            let first = bulk.write_errors.values().next();
            let concern = bulk.write_concern_error.as_ref();
            let reply = first.map(|error| of_write(error.code, &error.message));
            let reply = reply.or_else(|| concern.map(|error| of_write(error.code, &error.message)));
            found.reply = reply.or(found.reply);
        }
        _ => {}
    }
    found
}
