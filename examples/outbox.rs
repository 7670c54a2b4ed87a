//! An outbox that survives a restart: orders and the messages about them are written together, and
//! a relay delivers each message once, whatever happens to it in between.
//!
//! ```sh
//! cargo run --example outbox -- 'mongodb://localhost/?replicaSet=rs0'
//! ```
//!
//! The connection string may be left out: then the replica set is inside this process.
//!
//! The relay watches the outbox. It keeps what it has made of a message in the same transaction as
//! its place in the stream, so that both are there, or neither. Here it is stopped after two
//! messages, and begins again later, as after a crash.

use std::error::Error;

use sdam::checkpoint::CollectionCheckpointStore;
use sdam::options::WriteConcern;
use sdam::tokio::Runtime;
use sdam::{Client, Collection, Document, doc};
use sdam_cluster::{EmbeddedCluster, EmbeddedOptions};

const ORDERS: i32 = 5;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let embedded = EmbeddedCluster::start(EmbeddedOptions::default().with_keeps_data(true)).await?;
    let uri = std::env::args().nth(1).unwrap_or_else(|| embedded.uri());
    let client = Client::connect(uri).await?;
    let shop = client.database("outbox_example");
    shop.drop().await?;
    for name in ["orders", "outbox", "delivered", "checkpoints"] {
        shop.create_collection(name).await?;
    }
    let store =
        CollectionCheckpointStore::new(&shop.collection::<Document>("checkpoints"), "relay");
    // The place of the relay is known before the first message is there.
    relay(&client, &store, 0).await?;
    for number in 0..ORDERS {
        order(&client, number).await?;
    }
    println!("{ORDERS} orders were made");
    println!("the relay has delivered {:?}", relay(&client, &store, 2).await?);
    println!("the relay was stopped, and begins again");
    order(&client, ORDERS).await?;
    println!("the relay has delivered {:?}", relay(&client, &store, 4).await?);
    let delivered: Collection<Document> = shop.collection("delivered");
    println!("{} messages were delivered", delivered.count_documents(doc! {}).await?);
    shop.drop().await?;
    client.close().await;
    Ok(())
}

/// Makes an order, and the message about it: both, or neither.
async fn order(client: &Client, number: i32) -> sdam::Result<()> {
    let shop = client.database("outbox_example");
    let (orders, outbox) = (shop.collection("orders"), shop.collection("outbox"));
    let session = client.start_session().await?;
    session
        .with_transaction(async |session| {
            orders.insert_one(doc! { "_id": number }).session(&session).await?;
            outbox.insert_one(doc! { "_id": number, "order": number }).session(&session).await
        })
        .await?;
    Ok(())
}

/// Delivers so many messages, from the place on where an earlier relay has stopped.
async fn relay(
    client: &Client,
    store: &CollectionCheckpointStore<Runtime>,
    count: usize,
) -> sdam::Result<Vec<i32>> {
    let shop = client.database("outbox_example");
    let [outbox, delivered] = ["outbox", "delivered"].map(|name| shop.collection::<Document>(name));
    let inserts = [doc! { "$match": { "operationType": "insert" } }];
    let mut changes = outbox.watch().pipeline(inserts).checkpoint(store.clone()).await?;
    let session = client.start_session().await?;
    let mut numbers = Vec::new();
    while numbers.len() < count {
        let Some(event) = changes.try_next().await? else { break };
        let message = event.full_document.unwrap_or_default();
        let token = changes.resume_token().expect("an event was handed out");
        session
            .start_transaction()
            .write_concern(WriteConcern::majority())
            .and_run(async |session| {
                delivered.insert_one(&message).session(&session).await?;
                store.save_in(&session, token).await
            })
            .await?;
        numbers.extend(message.get_i32("order").ok());
    }
    // Nothing is left to save but the place where it begins.
    changes.save_checkpoint().await?;
    changes.close().await;
    Ok(numbers)
}
