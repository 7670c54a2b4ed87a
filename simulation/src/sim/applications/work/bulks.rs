//! Many writes at once, some of which servers refuse.

use bson::{Bson, Document, doc};
use sdam::error::Error;
use sdam::operation::{DeleteModel, InsertModel, UpdateModel, WriteModel};
use sdam::results::{BulkWriteResult, ClientBulkWriteResult};
use sdam_core::bson;

use super::{Application, COLLECTION, DATABASE, Terms};
use sdam_cluster::ServerVersion;

/// Draws some documents, of which one may come twice.
fn documents(application: &mut Application) -> Vec<Document> {
    let count = 1 + application.random.index(8);
    let mut documents: Vec<Document> = (0..count).map(|_| application.document()).collect();
    if application.random.percent(40) {
        let (from, to) = (application.random.index(count), application.random.index(count));
        documents[to] = documents[from].clone();
    }
    documents
}

/// Draws some writes: documents to be inserted, and changes between them.
fn writes(application: &mut Application) -> Vec<WriteModel> {
    let documents = documents(application);
    let mut writes = Vec::new();
    for document in documents {
        let filter = doc! { "_id": document.get("_id") };
        writes.push(WriteModel::InsertOne(InsertModel::new(&document)));
        match application.random.below(4) {
            0 => {
                let change = doc! { "$inc": { "n": 1 } };
                writes.push(WriteModel::UpdateOne(UpdateModel::new(filter, change)));
            }
            1 => writes.push(WriteModel::DeleteOne(DeleteModel::new(filter))),
            _ => {}
        }
    }
    writes
}

pub(super) async fn insert_many(application: &mut Application) {
    let (terms, documents) = (application.terms(), documents(application));
    let (things, ordered) = (application.things(terms), application.random.percent(60));
    let number = application.begin(terms);
    let outcome = things.insert_many(&documents).ordered(ordered).comment(number).await;
    match &outcome {
        Ok(result) => application.state().inserted(number, result.inserted_ids.values()),
        Err(error) => judge_partial(application, number, error),
    }
    application.ended(number, outcome.as_ref().err());
    application.over(number);
}

pub(super) async fn bulk_write(application: &mut Application) {
    let (terms, writes) = (application.terms(), writes(application));
    let (things, ordered) = (application.things(terms), application.random.percent(60));
    let number = application.begin(terms);
    let outcome = things.bulk_write(writes).ordered(ordered).comment(number).await;
    match &outcome {
        Ok(result) => judge_result(application, number, result),
        Err(error) => judge_partial(application, number, error),
    }
    application.ended(number, outcome.as_ref().err());
    application.over(number);
}

fn judge_result(application: &Application, number: i64, result: &BulkWriteResult) {
    application.state().inserted(number, result.inserted_ids.values());
}

/// Judges what an error says was done.
fn judge_partial(application: &Application, number: i64, error: &Error) {
    if let Some(error) = error.as_bulk_write() {
        judge_result(application, number, &error.partial_result);
    }
}

pub(super) async fn bulk_write_of_client(application: &mut Application) {
    if application.workload.version < ServerVersion::V8_0 {
        return bulk_write(application).await;
    }
    let (terms, writes) = (application.terms(), writes(application));
    let namespace = format!("{DATABASE}.{COLLECTION}");
    let writes: Vec<(String, WriteModel)> =
        writes.into_iter().map(|write| (namespace.clone(), write)).collect();
    let Terms { timeout, .. } = terms;
    let client =
        timeout.map_or(application.client.clone(), |it| application.client.with_timeout(it));
    let (ordered, verbose) = (application.random.percent(60), application.random.percent(50));
    let number = application.begin(terms);
    let bulk = client.bulk_write(writes).ordered(ordered).verbose_results(verbose);
    let outcome = bulk.comment(number).await;
    let result = match &outcome {
        Ok(result) => Some(result),
        Err(error) => error.as_client_bulk_write().and_then(|it| it.partial_result.as_ref()),
    };
    if let Some(result) = result {
        application.state().inserted(number, inserted(result));
    }
    application.ended(number, outcome.as_ref().err());
    application.over(number);
}

/// Returns the documents that a result says were inserted.
fn inserted(result: &ClientBulkWriteResult) -> impl Iterator<Item = &Bson> {
    let all = result.verbose.iter().flat_map(|it| it.insert_results.values());
    all.map(|it| &it.inserted_id)
}
