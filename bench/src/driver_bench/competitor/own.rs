//! The parts that both competitors of this library have.

use bson::{Document, doc};
use sdam::operation::{DeleteModel, InsertModel, ReplaceModel, WriteModel};

use crate::setting::{CORPUS, DATABASE, collection};
use crate::task::Task;

/// Makes the writes of a bulk, each with the namespace of its collection.
pub(super) fn models(task: Task, documents: &[Document]) -> Vec<(String, WriteModel)> {
    let insert = |document| WriteModel::InsertOne(InsertModel::new(document));
    let mixed = |document| {
        let replace = ReplaceModel::new(doc! {}, document);
        let delete = WriteModel::DeleteOne(DeleteModel::new(doc! {}));
        [insert(document), WriteModel::ReplaceOne(replace), delete]
    };
    let corpus = format!("{DATABASE}.{CORPUS}");
    let documents = documents.iter();
    match task {
        Task::SmallDocCollectionBulkWriteInsert
        | Task::LargeDocCollectionBulkWriteInsert
        | Task::SmallDocClientBulkWriteInsert
        | Task::LargeDocClientBulkWriteInsert => {
            documents.map(|document| (corpus.clone(), insert(document))).collect()
        }
        Task::SmallDocCollectionBulkWriteMixed => {
            let models = documents.flat_map(mixed);
            models.map(|model| (corpus.clone(), model)).collect()
        }
        Task::SmallDocClientBulkWriteMixed => {
            let models = documents.enumerate().flat_map(|(number, document)| {
                let namespace = format!("{DATABASE}.{}", collection(number));
                mixed(document).map(|model| (namespace.clone(), model))
            });
            models.collect()
        }
        _ => Vec::new(),
    }
}
