//! Operations on collections (CRUD), as calls of the driver's interface.

use bson::{Bson, Document, doc};
use sdam::generic::Collection;
use sdam::operation::{MapReduce, Modifications, WriteModel};
use sdam::options::{
    AggregateOptions, BulkWriteOptions, CountCommandOptions, CountOptions, DeleteOptions,
    DistinctOptions, EstimatedDocumentCountOptions, FindOneAndDeleteOptions,
    FindOneAndReplaceOptions, FindOneAndUpdateOptions, FindOneOptions, FindOptions,
    InsertManyOptions, InsertOneOptions, ReplaceOptions, UpdateOptions,
};
use sdam::results::{BulkWriteResult, DeleteResult, UpdateResult};
use sdam_host::Runtime;

use super::operate::{Own, Reason, all};
use crate::unified::format::{FormatError, Node, Object};

/// Runs an operation on a collection.
pub(super) async fn run<R: Runtime>(
    collection: &Collection<R>,
    own: Own,
    name: &str,
    mut of: Object,
) -> Result<Option<Bson>, Reason> {
    Ok(Some(match name {
        "find" => {
            let find = own.of(collection.find(filter(&mut of)?));
            all(find.with_options(FindOptions::from_document(of.rest())?).await?).await?
        }
        "findOne" => {
            let find = own.of(collection.find_one(filter(&mut of)?));
            any(find.with_options(FindOneOptions::from_document(of.rest())?).await?)
        }
        "aggregate" => {
            let aggregate = own.of(collection.aggregate(documents(&mut of, "pipeline")?));
            all(aggregate.with_options(AggregateOptions::from_document(of.rest())?).await?).await?
        }
        "countDocuments" => {
            let count = own.of(collection.count_documents(filter(&mut of)?));
            number(count.with_options(CountOptions::from_document(of.rest())?).await?)
        }
        "count" => {
            let count = own.of(collection.count(filter(&mut of)?));
            number(count.with_options(CountCommandOptions::from_document(of.rest())?).await?)
        }
        "estimatedDocumentCount" => {
            let count = own.of(collection.estimated_document_count());
            let options = EstimatedDocumentCountOptions::from_document(of.rest())?;
            number(count.with_options(options).await?)
        }
        "mapReduce" => {
            let map_reduce = own.of(collection.operation(MapReduce::from_document(of.rest())?));
            Bson::Array(map_reduce.await?.into_iter().map(Bson::Document).collect())
        }
        "distinct" => {
            let field = of.required("fieldName", Node::string)?;
            let distinct = own.of(collection.distinct(field, filter(&mut of)?));
            Bson::Array(distinct.with_options(DistinctOptions::from_document(of.rest())?).await?)
        }
        _ => return find_and_modify(collection, own, name, of).await,
    }))
}

/// Runs an operation that changes a document, and returns it.
async fn find_and_modify<R: Runtime>(
    collection: &Collection<R>,
    own: Own,
    name: &str,
    mut of: Object,
) -> Result<Option<Bson>, Reason> {
    Ok(Some(match name {
        "findOneAndDelete" => {
            let delete = own.of(collection.find_one_and_delete(filter(&mut of)?));
            any(delete.with_options(FindOneAndDeleteOptions::from_document(of.rest())?).await?)
        }
        "findOneAndReplace" => {
            let replacement = of.required("replacement", Node::document)?;
            let replace = own.of(collection.find_one_and_replace(filter(&mut of)?, replacement));
            any(replace.with_options(FindOneAndReplaceOptions::from_document(of.rest())?).await?)
        }
        "findOneAndUpdate" => {
            let update = modifications(&mut of)?;
            let update = own.of(collection.find_one_and_update(filter(&mut of)?, update));
            any(update.with_options(FindOneAndUpdateOptions::from_document(of.rest())?).await?)
        }
        _ => return write(collection, own, name, of).await,
    }))
}

/// Runs an operation that writes.
async fn write<R: Runtime>(
    collection: &Collection<R>,
    own: Own,
    name: &str,
    mut of: Object,
) -> Result<Option<Bson>, Reason> {
    Ok(Some(match name {
        "insertOne" => {
            let insert = own.of(collection.insert_one(of.required("document", Node::document)?));
            let result = insert.with_options(InsertOneOptions::from_document(of.rest())?).await?;
            let id = doc! { "insertedId": result.inserted_id };
            Bson::Document(if_acknowledged(result.acknowledged, id))
        }
        "insertMany" => {
            let insert = own.of(collection.insert_many(documents(&mut of, "documents")?));
            let result = insert.with_options(InsertManyOptions::from_document(of.rest())?).await?;
            let ids = doc! { "insertedIds": by_index(&result.inserted_ids) };
            Bson::Document(if_acknowledged(result.acknowledged, ids))
        }
        "updateOne" => {
            let update = modifications(&mut of)?;
            let update = own.of(collection.update_one(filter(&mut of)?, update));
            updated(update.with_options(UpdateOptions::from_document(of.rest())?).await?)
        }
        "updateMany" => {
            let update = modifications(&mut of)?;
            let update = own.of(collection.update_many(filter(&mut of)?, update));
            updated(update.with_options(UpdateOptions::from_document(of.rest())?).await?)
        }
        "replaceOne" => {
            let replacement = of.required("replacement", Node::document)?;
            let replace = own.of(collection.replace_one(filter(&mut of)?, replacement));
            updated(replace.with_options(ReplaceOptions::from_document(of.rest())?).await?)
        }
        "deleteOne" => {
            let delete = own.of(collection.delete_one(filter(&mut of)?));
            deleted(&delete.with_options(DeleteOptions::from_document(of.rest())?).await?)
        }
        "deleteMany" => {
            let delete = own.of(collection.delete_many(filter(&mut of)?));
            deleted(&delete.with_options(DeleteOptions::from_document(of.rest())?).await?)
        }
        "bulkWrite" => {
            let models = documents(&mut of, "requests")?.into_iter().map(WriteModel::from_document);
            let bulk = own.of(collection.bulk_write(models.collect::<Result<Vec<_>, _>>()?));
            let options = BulkWriteOptions::from_document(of.rest())?;
            Bson::Document(written(&bulk.with_options(options).await?))
        }
        _ => return super::administer::on_collection(collection, own, name, of).await,
    }))
}

fn filter(of: &mut Object) -> Result<Document, FormatError> {
    of.required("filter", Node::document)
}

fn documents(of: &mut Object, name: &str) -> Result<Vec<Document>, FormatError> {
    of.required(name, |node| node.list(Node::document))
}

/// Reads operators, or a pipeline.
fn modifications(of: &mut Object) -> Result<Modifications, FormatError> {
    match of.required("update", Node::any)? {
        Bson::Document(operators) => Ok(operators.into()),
        stages => Ok(Node::at("update", stages).list(Node::document)?.into()),
    }
}

fn any(document: Option<Document>) -> Bson {
    document.map_or(Bson::Null, Bson::Document)
}

fn number(count: u64) -> Bson {
    Bson::Int64(count.cast_signed())
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
