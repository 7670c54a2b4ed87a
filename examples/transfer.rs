//! Moves money between accounts while primaries step down and are killed: none is lost, and none is
//! made.
//!
//! ```sh
//! cargo run --example transfer
//! ```
//!
//! The replica set is inside this process. Each transfer is a transaction, which is run again where
//! it must be; a reader sees the same sum at any time.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use sdam::error::CallbackError;
use sdam::options::{ReadConcern, WriteConcern};
use sdam::{Client, ClientSession, Collection, Document, doc};
use sdam_cluster::{EmbeddedCluster, EmbeddedOptions};
use tokio::sync::watch;

const ACCOUNTS: i32 = 5;
const BALANCE: i32 = 100;

/// The reason why a transfer is not made.
enum TransferError {
    Overdrawn,
    Database(sdam::Error),
}

impl From<sdam::Error> for TransferError {
    fn from(error: sdam::Error) -> Self {
        Self::Database(error)
    }
}

impl CallbackError for TransferError {
    fn database_error(&self) -> Option<&sdam::Error> {
        match self {
            Self::Overdrawn => None,
            Self::Database(error) => Some(error),
        }
    }
}

/// The counts of a teller.
#[derive(Default)]
struct Made {
    transfers: u32,
    attempts: AtomicU32,
    overdrawn: u32,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let options = EmbeddedOptions::default().with_keeps_data(true);
    let cluster = EmbeddedCluster::start(options).await?;
    let first = cluster.elected().await?;
    let client = Client::connect(cluster.uri()).await?;
    let accounts: Collection<Document> = client.database("bank").collection("accounts");
    let all = (0..ACCOUNTS).map(|id| doc! { "_id": id, "balance": BALANCE });
    accounts.insert_many(all).write_concern(WriteConcern::majority()).await?;

    let (is_over, (counting, mut counted)) = (Arc::new(AtomicBool::new(false)), watch::channel(0));
    let teller = (client.clone(), accounts.clone(), Arc::clone(&is_over));
    let transferring = tokio::spawn(transfer_all(teller, counting));
    let auditing = tokio::spawn(audit(client.clone(), accounts.clone(), Arc::clone(&is_over)));

    further(&mut counted).await;
    println!("the primary steps down");
    cluster.step_down(first).await?;
    let second = cluster.elected().await?;
    further(&mut counted).await;
    println!("the next one is killed");
    cluster.kill(second).await?;
    cluster.elected().await?;
    further(&mut counted).await;
    is_over.store(true, Ordering::Relaxed);

    let made = transferring.await??;
    let attempts = made.attempts.into_inner();
    println!("{} transfers in {attempts} attempts, {} refused", made.transfers, made.overdrawn);
    println!("{} audits found the same sum", auditing.await??);
    println!("{} at the end", sum(&client, &accounts).await?);
    client.close().await;
    Ok(())
}

/// Waits for five more transfers.
async fn further(counted: &mut watch::Receiver<u32>) {
    let so_far = *counted.borrow_and_update();
    let _ = counted.wait_for(|count| *count >= so_far + 5).await;
}

/// Makes a transfer after the other.
async fn transfer_all(
    (client, accounts, is_over): (Client, Collection<Document>, Arc<AtomicBool>),
    counting: watch::Sender<u32>,
) -> sdam::Result<Made> {
    let session = client.start_session().await?;
    let mut made = Made::default();
    for number in 0.. {
        if is_over.load(Ordering::Relaxed) {
            break;
        }
        let (from, to) = (number % ACCOUNTS, (number * 3 + 1) % ACCOUNTS);
        let attempts = &made.attempts;
        let transferred = session
            .start_transaction()
            .write_concern(WriteConcern::majority())
            .and_run(async |session| {
                attempts.fetch_add(1, Ordering::Relaxed);
                transfer(&accounts, &session, (from, to)).await
            })
            .await;
        match transferred {
            Ok(()) => made.transfers += 1,
            Err(TransferError::Overdrawn) => made.overdrawn += 1,
            Err(TransferError::Database(error)) => return Err(error),
        }
        counting.send_replace(made.transfers);
    }
    Ok(made)
}

/// Takes from one account and gives to another, within a transaction.
async fn transfer(
    accounts: &Collection<Document>,
    session: &ClientSession,
    (from, to): (i32, i32),
) -> Result<(), TransferError> {
    let accounts = accounts.with_session(session);
    let has_enough = doc! { "_id": from, "balance": { "$gte": 7 } };
    let taken = accounts.update_one(has_enough, doc! { "$inc": { "balance": -7 } }).await?;
    if taken.modified_count == 0 {
        return Err(TransferError::Overdrawn);
    }
    accounts.update_one(doc! { "_id": to }, doc! { "$inc": { "balance": 7 } }).await?;
    Ok(())
}

/// Reads all accounts again and again; returns how often the sum was what it has to be.
async fn audit(
    client: Client,
    accounts: Collection<Document>,
    is_over: Arc<AtomicBool>,
) -> sdam::Result<u32> {
    let mut audits = 0;
    while !is_over.load(Ordering::Relaxed) {
        let found = sum(&client, &accounts).await?;
        if found != ACCOUNTS * BALANCE {
            return Err(sdam::Error::custom(format!("the sum is {found}")));
        }
        audits += 1;
    }
    Ok(audits)
}

/// Adds up all accounts, as they are at one moment.
async fn sum(client: &Client, accounts: &Collection<Document>) -> sdam::Result<i32> {
    let session = client.start_session().await?;
    session
        .start_transaction()
        .read_concern(ReadConcern::snapshot())
        .and_run(async |session| {
            let mut found = accounts.find(doc! {}).session(&session).await?;
            let mut sum = 0;
            while let Some(account) = found.try_next().await? {
                sum += account.get_i32("balance").unwrap_or_default();
            }
            Ok::<_, sdam::Error>(sum)
        })
        .await
}
