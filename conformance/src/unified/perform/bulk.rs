//! Writes to several collections at once, as a call of the driver's interface.

use bson::{Bson, Document, doc};
use sdam::error::{WriteConcernError, WriteError};
use sdam::generic::Client;
use sdam::operation::ClientBulkWrite;
use sdam::results::{ClientBulkWriteResult, VerboseResults};
use sdam_host::Runtime;

use super::operate::{Own, Reason};
use crate::unified::format::{Object, concerns};

/// Runs the operation.
pub(super) async fn run<R: Runtime>(
    client: &Client<R>,
    own: Own,
    mut of: Object,
) -> Result<Option<Bson>, Reason> {
    let concern = of.optional("writeConcern", concerns::write_concern)?;
    let bulk = own.of(client.operation(ClientBulkWrite::from_document(of.rest())?));
    let bulk = bulk.optional(concern, sdam::action::Action::write_concern);
    Ok(Some(Bson::Document(written(&bulk.await?))))
}

/// Writes a result as tests have it.
pub(super) fn written(result: &ClientBulkWriteResult) -> Document {
    if !result.acknowledged {
        return doc! { "acknowledged": false };
    }
    let mut written = doc! {
        "insertedCount": result.inserted_count.cast_signed(),
        "upsertedCount": result.upserted_count.cast_signed(),
        "matchedCount": result.matched_count.cast_signed(),
        "modifiedCount": result.modified_count.cast_signed(),
        "deletedCount": result.deleted_count.cast_signed(),
    };
    written.extend(result.verbose.iter().flat_map(verbose));
    written
}

fn verbose(results: &VerboseResults) -> Document {
    let inserted = results.insert_results.iter().map(|(index, result)| {
        (index.to_string(), Bson::Document(doc! { "insertedId": result.inserted_id.clone() }))
    });
    let updated = results.update_results.iter().map(|(index, result)| {
        let mut updated = doc! {
            "matchedCount": result.matched_count.cast_signed(),
            "modifiedCount": result.modified_count.cast_signed(),
        };
        updated.extend(result.upserted_id.clone().map(|id| ("upsertedId".to_owned(), id)));
        (index.to_string(), Bson::Document(updated))
    });
    let deleted = results.delete_results.iter().map(|(index, result)| {
        let count = result.deleted_count.cast_signed();
        (index.to_string(), Bson::Document(doc! { "deletedCount": count }))
    });
    doc! {
        "insertResults": inserted.collect::<Document>(),
        "updateResults": updated.collect::<Document>(),
        "deleteResults": deleted.collect::<Document>(),
    }
}

/// Writes the error of a single write as tests have it.
pub(super) fn write_error(error: &WriteError) -> Bson {
    Bson::Document(doc! { "code": error.code, "message": error.message.clone() })
}

/// Writes the error of a write concern as tests have it.
pub(super) fn write_concern_error(error: &WriteConcernError) -> Bson {
    Bson::Document(doc! { "code": error.code, "message": error.message.clone() })
}
