//! Writes many documents in few commands, and shows which of them were refused.
//!
//! ```sh
//! cargo run --example bulk -- mongodb://localhost
//! ```
//!
//! Without a connection string it uses a replica set inside this process.

use std::error::Error;

use sdam::operation::{DeleteModel, InsertModel, ReplaceModel, UpdateModel, WriteModel};
use sdam::{Client, Collection, Document, doc};
use sdam_cluster::{EmbeddedCluster, EmbeddedOptions, ServerVersion};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let options = EmbeddedOptions::default().with_version(ServerVersion::V8_0);
    let embedded = EmbeddedCluster::start(options.with_keeps_data(true)).await?;
    let uri = std::env::args().nth(1).unwrap_or_else(|| embedded.uri());
    let client = Client::connect(uri).await?;
    let shop = client.database("sdam_bulk");
    shop.drop().await?;

    many(&shop.collection("numbers")).await?;
    mixed(&shop.collection("items")).await?;
    of_several_collections(&client).await?;
    shop.drop().await?;
    client.close().await;
    Ok(())
}

/// Inserts documents of one collection: as few commands as their number and their length allow.
async fn many(numbers: &Collection<Document>) -> sdam::Result<()> {
    let documents = (0..150_000).map(|number| doc! { "_id": number });
    let inserted = numbers.insert_many(documents).await?;
    println!("{} inserted", inserted.inserted_ids.len());
    Ok(())
}

/// Writes of several kinds; those that follow a refused one are done nevertheless.
async fn mixed(items: &Collection<Document>) -> sdam::Result<()> {
    let writes = [
        WriteModel::InsertOne(InsertModel::new(doc! { "_id": 1, "name": "pen" })),
        WriteModel::InsertOne(InsertModel::new(doc! { "_id": 1, "name": "pencil" })),
        WriteModel::InsertOne(InsertModel::new(doc! { "_id": 2, "name": "ink" })),
        WriteModel::UpdateMany(UpdateModel::new(doc! {}, doc! { "$set": { "stock": 10 } })),
        WriteModel::ReplaceOne(
            ReplaceModel::new(doc! { "_id": 3 }, doc! { "name": "paper" }).upsert(true),
        ),
        WriteModel::DeleteOne(DeleteModel::new(doc! { "name": "ink" })),
    ];
    let Err(error) = items.bulk_write(writes).ordered(false).await else { return Ok(()) };
    let Some(bulk) = error.as_bulk_write() else { return Err(error) };
    for (index, refused) in &bulk.write_errors {
        println!("write {index} was refused: {}", refused.message);
    }
    let done = &bulk.partial_result;
    println!(
        "{} inserted, {} modified, {} upserted, {} deleted nevertheless",
        done.inserted_count, done.modified_count, done.upserted_count, done.deleted_count
    );
    Ok(())
}

/// Writes to several collections in one command, which takes MongoDB 8.0.
async fn of_several_collections(client: &Client) -> sdam::Result<()> {
    let done = client
        .bulk_write([
            ("sdam_bulk.items", WriteModel::DeleteMany(DeleteModel::new(doc! {}))),
            ("sdam_bulk.log", WriteModel::InsertOne(InsertModel::new(doc! { "what": "emptied" }))),
        ])
        .await?;
    println!("{} deleted, {} inserted", done.deleted_count, done.inserted_count);
    Ok(())
}
