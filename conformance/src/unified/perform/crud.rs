//! Operations on collections (CRUD), as calls of the driver's interface.

use bson::{Bson, Document, doc};
use sdam::driver::{
    Aggregate, BulkWrite, BulkWriteResult, Collection, Count, CountDocuments, Delete, DeleteResult,
    Distinct, EstimatedDocumentCount, Find, FindOne, FindOneAndDelete, FindOneAndReplace,
    FindOneAndUpdate, InsertMany, InsertOne, MapReduce, Replace, Update, UpdateResult,
};
use sdam_host::Runtime;

use super::operate::{Reason, all};
use crate::unified::format::Object;

/// Runs an operation on a collection.
pub(super) async fn run<R: Runtime>(
    collection: &Collection<R>,
    name: &str,
    of: Object,
) -> Result<Option<Bson>, Reason> {
    let any = |document: Option<Document>| document.map_or(Bson::Null, Bson::Document);
    let number = |count: u64| Bson::Int64(count.cast_signed());
    Ok(Some(match name {
        "find" => all(collection.find(Find::from_document(of.rest())?).await?).await?,
        "findOne" => any(collection.find_one(FindOne::from_document(of.rest())?).await?),
        "aggregate" => {
            let aggregate = Aggregate::from_document(of.rest())?;
            all(collection.aggregate::<Document>(aggregate).await?).await?
        }
        "countDocuments" => {
            number(collection.count_documents(CountDocuments::from_document(of.rest())?).await?)
        }
        "count" => number(collection.count(Count::from_document(of.rest())?).await?),
        "estimatedDocumentCount" => {
            let estimate = EstimatedDocumentCount::from_document(of.rest())?;
            number(collection.estimated_document_count(estimate).await?)
        }
        "mapReduce" => {
            #[expect(deprecated, reason = "the official suites call it")]
            let found =
                collection.map_reduce::<Document>(MapReduce::from_document(of.rest())?).await?;
            Bson::Array(found.into_iter().map(Bson::Document).collect())
        }
        "distinct" => {
            let values = collection.distinct(Distinct::from_document(of.rest())?).await?;
            Bson::Array(values.collect()?)
        }
        "findOneAndDelete" => {
            let delete = FindOneAndDelete::from_document(of.rest())?;
            any(collection.find_one_and_delete(delete).await?)
        }
        "findOneAndReplace" => {
            let replace = FindOneAndReplace::from_document(of.rest())?;
            any(collection.find_one_and_replace(replace).await?)
        }
        "findOneAndUpdate" => {
            let update = FindOneAndUpdate::from_document(of.rest())?;
            any(collection.find_one_and_update(update).await?)
        }
        _ => return write(collection, name, of).await,
    }))
}

/// Runs an operation that writes.
async fn write<R: Runtime>(
    collection: &Collection<R>,
    name: &str,
    of: Object,
) -> Result<Option<Bson>, Reason> {
    Ok(Some(match name {
        "insertOne" => {
            let result = collection.insert_one(InsertOne::from_document(of.rest())?).await?;
            let id = doc! { "insertedId": result.inserted_id };
            Bson::Document(if_acknowledged(result.acknowledged, id))
        }
        "insertMany" => {
            let result = collection.insert_many(InsertMany::from_document(of.rest())?).await?;
            let ids = doc! { "insertedIds": by_index(&result.inserted_ids) };
            Bson::Document(if_acknowledged(result.acknowledged, ids))
        }
        "updateOne" => updated(collection.update_one(Update::from_document(of.rest())?).await?),
        "updateMany" => updated(collection.update_many(Update::from_document(of.rest())?).await?),
        "replaceOne" => updated(collection.replace_one(Replace::from_document(of.rest())?).await?),
        "deleteOne" => deleted(&collection.delete_one(Delete::from_document(of.rest())?).await?),
        "deleteMany" => deleted(&collection.delete_many(Delete::from_document(of.rest())?).await?),
        "bulkWrite" => {
            let result = collection.bulk_write(BulkWrite::from_document(of.rest())?).await?;
            Bson::Document(written(&result))
        }
        _ => return super::administer::on_collection(collection, name, of).await,
    }))
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
