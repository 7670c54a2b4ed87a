//! The prose tests of CRUD that need no server newer than 6.0.

use std::time::Duration;

use bson::{Bson, Document, doc};
use sdam::operation::{InsertModel, UpdateModel, Verbosity, WriteModel};
use sdam_core::config::{Acknowledgment, WriteConcern};
use sdam_host::Runtime;
use sdam_host::driver::DriverTopology;

use super::{Fixture, Operation, Outcome, V4_4, V5_0, name};

pub(super) async fn play<R: Runtime>(fixture: &Fixture<'_, R>) -> Outcome {
    concerns_have_details(fixture).await?;
    errors_have_details(fixture).await?;
    explanations_have_a_time(fixture).await?;
    order_needs_no_acknowledgment(fixture).await?;
    ids_come_first(fixture).await
}

/// CRUD-P1: "WriteConcernError.details exposes writeConcernError.errInfo".
async fn concerns_have_details<R: Runtime>(fixture: &Fixture<'_, R>) -> Outcome {
    if fixture.version < V4_4 {
        return Ok(());
    }
    let (client, _) = fixture.client("")?;
    let things = fixture.empty(&client, "concerns").await?;
    let info = doc! { "writeConcern": { "w": 2, "wtimeout": 0, "provenance": "clientSupplied" } };
    let error = doc! {
        "code": 100, "codeName": "UnsatisfiableWriteConcern",
        "errmsg": "Not enough data-bearing nodes", "errInfo": info.clone(),
    };
    let data = doc! { "failCommands": ["insert"], "writeConcernError": error };
    fixture.fail(doc! { "times": 1 }, data).await?;
    let error = things.insert_one(&doc! { "x": 1 }).await.err().ok_or("the fail point")?;
    let Some(error) = error.as_write_concern() else { return Err(error.into()) };
    assert_eq!(error.code, 100);
    let details = error.details.as_ref().ok_or("it has details")?;
    assert_eq!(Document::try_from(&**details)?, info);
    Ok(())
}

/// CRUD-P2: "WriteError.details exposes writeErrors[].errInfo".
async fn errors_have_details<R: Runtime>(fixture: &Fixture<'_, R>) -> Outcome {
    if fixture.version < V5_0 {
        return Ok(());
    }
    let (client, mut log) = fixture.client("")?;
    let database = client.database("prose");
    let validated = database.collection::<Document>("validated");
    validated.drop().await?;
    let validator = doc! { "x": { "$type": "string" } };
    database.create_collection("validated").validator(validator).await?;
    log.all();
    let error = validated.insert_one(&doc! { "x": 1 }).await.err().ok_or("it is no text")?;
    let Some(error) = error.as_write() else { return Err(error.into()) };
    assert_eq!(error.code, 121);
    let commands = log.commands();
    let [(_, reply)] = &commands[..] else { return Err("one command".into()) };
    let told = reply.get_array("writeErrors")?[0].as_document().ok_or("a document")?;
    let details = error.details.as_ref().ok_or("it has details")?;
    assert_eq!(&Document::try_from(&**details)?, told.get_document("errInfo")?);
    Ok(())
}

/// CRUD-P14: "`explain` helpers allow users to specify `maxTimeMS`"; for every kind of operation, a
/// server returns the plan, and writes nothing.
async fn explanations_have_a_time<R: Runtime>(fixture: &Fixture<'_, R>) -> Outcome {
    let (client, mut log) = fixture.client("")?;
    let things = client.database("explain-test").collection::<Document>("collection");
    things.drop().await?;
    things.insert_one(&doc! { "name": "john doe" }).await?;
    log.all();
    let john = || doc! { "name": "john doe" };
    let limit = Duration::from_millis(2000);
    things.find(john()).explain().max_time(limit).await?;
    let sent = log.sent();
    let [command] = &sent[..] else { return Err("one command".into()) };
    assert_eq!(name(command), "explain");
    assert_eq!(command.get_i64("maxTimeMS").ok(), Some(2000), "{command}");
    assert!(!command.get_document("explain")?.contains_key("maxTimeMS"), "{command}");

    let within = things.with_timeout(Duration::from_secs(60));
    within.find(john()).explain().max_time(limit).await?;
    let sent = log.sent();
    let left = sent.first().and_then(|it| it.get_i64("maxTimeMS").ok());
    assert!(left.is_some_and(|left| left > 2000 && left <= 60_000), "{sent:?}");

    let set = || doc! { "$set": { "name": "jane doe" } };
    let planner = Verbosity::QueryPlanner;
    let plans = [
        things.find_one(john()).explain().verbosity(Verbosity::ExecutionStats).await?,
        things.aggregate([doc! { "$match": john() }]).explain().await?,
        things.count(john()).explain().await?,
        things.count_documents(john()).explain().verbosity(planner).await?,
        things.estimated_document_count().explain().await?,
        things.distinct("name", doc! {}).explain().await?,
        things.update_one(john(), set()).explain().await?,
        things.update_many(john(), set()).explain().await?,
        things.replace_one(john(), doc! { "a": 1 }).explain().await?,
        things.delete_one(john()).explain().await?,
        things.delete_many(john()).explain().await?,
        things.find_one_and_delete(john()).explain().await?,
        things.find_one_and_replace(john(), doc! { "a": 1 }).explain().await?,
        things.find_one_and_update(john(), set()).explain().await?,
    ];
    for plan in plans {
        assert!(plan.contains_key("queryPlanner") || plan.contains_key("stages"), "{plan}");
    }
    assert_eq!(things.count_documents(john()).await?, 1, "nothing was written");
    Ok(())
}

/// Bulk Write, "ordered": commands of one bulk that have no reply do not overtake each other,
/// whatever else is under way.
async fn order_needs_no_acknowledgment<R: Runtime>(fixture: &Fixture<'_, R>) -> Outcome {
    const BULKS: i32 = 4;
    let (client, _) = fixture.client("")?;
    let things = fixture.empty(&client, "unheard").await?;
    let none = WriteConcern::default().with_w(Some(Acknowledgment::Servers(0)));
    let unheard = things.with_write_concern(none);
    let bulks = (0..BULKS).map(|id| -> Operation<'_> {
        let long = doc! { "_id": id, "text": "x".repeat(4 << 20) };
        let update = UpdateModel::new(doc! { "_id": id }, doc! { "$set": { "done": true } });
        let models = [WriteModel::InsertOne(InsertModel::new(long)), WriteModel::UpdateOne(update)];
        let unheard = unheard.clone();
        Box::pin(async move { unheard.bulk_write(models).await.map(drop) })
    });
    for outcome in fixture.all(bulks.collect()).await {
        outcome?;
    }
    // Each document comes before its update, and no event says when that was done.
    let has = async |filter: Document| things.count_documents(filter).await;
    while has(doc! {}).await? < BULKS as u64 {}
    for _ in 0..100 {
        if has(doc! { "done": true }).await? == BULKS as u64 {
            return Ok(());
        }
        client.topology().sleep_until(client.topology().now() + Duration::from_millis(50)).await;
    }
    Err("a document was left without its update".into())
}

/// CRUD-P16: "Generated document identifiers are the first field in their document".
async fn ids_come_first<R: Runtime>(fixture: &Fixture<'_, R>) -> Outcome {
    let (client, mut log) = fixture.client("")?;
    let things = fixture.empty(&client, "ids").await?;
    log.all();
    let document = doc! { "x": 1 };
    things.insert_one(&document).await?;
    things.insert_many(std::slice::from_ref(&document)).await?;
    let model = WriteModel::InsertOne(InsertModel::new(&document));
    things.bulk_write([model]).await?;
    let sent = log.sent();
    assert_eq!(sent.len(), 3);
    for command in sent {
        assert_eq!(name(&command), "insert");
        let first =
            command.get_array("documents")?[0].as_document().and_then(|it| it.keys().next());
        assert_eq!(first.map(String::as_str), Some("_id"), "{command}");
        let id = command.get_array("documents")?[0].as_document().and_then(|it| it.get("_id"));
        assert!(matches!(id, Some(Bson::ObjectId(_))));
    }
    Ok(())
}
