//! Sessions: reads that see what was written before, from whichever server, and reads of one
//! moment.
//!
//! ```sh
//! cargo run --example session -- 'mongodb://localhost/?replicaSet=rs0'
//! ```
//!
//! Without a connection string it uses a replica set inside this process.

use std::error::Error;

use sdam::options::WriteConcern;
use sdam::{Client, Collection, Document, ReadPreference, doc};
use sdam_cluster::{EmbeddedCluster, EmbeddedOptions};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let options = EmbeddedOptions::default().with_keeps_data(true);
    let embedded = EmbeddedCluster::start(options).await?;
    let uri = std::env::args().nth(1).unwrap_or_else(|| embedded.uri());
    let client = Client::connect(uri).await?;
    let accounts: Collection<Document> = client.database("sdam_session").collection("accounts");
    let accounts = accounts.with_write_concern(WriteConcern::majority());
    accounts.drop().await?;

    read_own_writes(&client, &accounts).await?;
    read_one_moment(&client, &accounts).await?;
    accounts.drop().await?;
    client.close().await;
    Ok(())
}

/// Writes to the primary, and reads from secondaries, which may be behind: within a session they
/// answer once they have what the session has seen.
async fn read_own_writes(client: &Client, accounts: &Collection<Document>) -> sdam::Result<()> {
    let session = client.start_session().await?;
    let accounts = accounts.with_session(&session);
    let elsewhere = accounts.with_read_preference(ReadPreference::secondary_preferred());
    accounts.insert_one(doc! { "_id": "ada", "balance": 0 }).await?;
    for _ in 0..20 {
        accounts.update_one(doc! { "_id": "ada" }, doc! { "$inc": { "balance": 1 } }).await?;
        let ada = elsewhere.find_one(doc! { "_id": "ada" }).await?.unwrap_or_default();
        print!("{} ", ada.get_i32("balance").unwrap_or_default());
    }
    println!();

    // Another session, of another process perhaps, learns what this one has seen.
    let other = client.start_session().await?;
    if let Some(time) = session.cluster_time()? {
        other.advance_cluster_time(&time)?;
    }
    if let Some(time) = session.operation_time()? {
        other.advance_operation_time(time)?;
    }
    let ada = elsewhere.find_one(doc! { "_id": "ada" }).session(&other).await?;
    println!("the other one reads {}", ada.unwrap_or_default());
    Ok(())
}

/// Reads the data of one moment, whatever is written meanwhile (MongoDB 5.0).
async fn read_one_moment(client: &Client, accounts: &Collection<Document>) -> sdam::Result<()> {
    let session = client.start_session().snapshot(true).await?;
    let snapshot = accounts.with_session(&session);
    println!("{} account before", snapshot.count_documents(doc! {}).await?);
    accounts.insert_one(doc! { "_id": "grace", "balance": 0 }).await?;
    println!("{} account in the snapshot", snapshot.count_documents(doc! {}).await?);
    println!("{} accounts outside", accounts.count_documents(doc! {}).await?);
    Ok(())
}
