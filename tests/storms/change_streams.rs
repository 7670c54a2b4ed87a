//! Change streams on a real replica set whose primary is killed, stopped and steps down, again and
//! again, while documents are written: each stream hands out every one once, and in order.
//!
//! One stream lives through all of it. Another one ends with each fault, and goes on with a new
//! client from its token, which was kept as a text.

use std::collections::BTreeSet;
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bson::{Document, Timestamp, doc};
use sdam::options::WriteConcern;
use sdam::results::{ChangeStreamEvent, OperationType, ResumeToken};
use sdam::{Client, Collection};
use sdam_conformance::mongod::ReplicaSet;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use crate::faults::{Fault, print_recoveries};
use crate::real::{self, GENEROUS, Storm};
use crate::storm::at_rest;
use crate::support::soon;

/// Any error of a task; it ends the storm.
type Failure = Box<dyn Error + Send + Sync>;

/// The number of documents that are written about each fault, half of them after it.
const SHARE: u64 = 2000;

/// The number of documents that are written at once.
const CHUNK: u64 = 20;

const WRITERS: usize = 4;

/// The time that anything may take; each step takes at most seconds.
const LIMIT: Duration = Duration::from_secs(150);

/// The pause of a writer whose write has failed.
const PAUSE: Duration = Duration::from_millis(20);

pub(crate) const STORM: (&str, Storm) = ("change_streams_outlast_primaries", storm);

fn storm(runtime: &Runtime, set: &mut ReplicaSet) -> crate::Outcome {
    runtime.block_on(endure(set)).map_err(|error| error as Box<dyn Error>)
}

async fn endure(set: &mut ReplicaSet) -> Result<(), Failure> {
    let faults = Fault::all()?;
    let client = Client::connect(real::uri(set)).await?;
    let database = client.database("storm_changes");
    database.drop().await?;
    database.create_collection("written").write_concern(WriteConcern::majority()).await?;
    let collection = database.collection::<Document>("written");
    let (striking, struck) = watch::channel(0);
    let mut readers = [
        Reader::lasting(collection.clone()).await?,
        Reader::restarting(real::uri(set), struck).await?,
    ];
    let mut writers = Writers::start(&collection);
    let mut recoveries = Vec::new();
    for (number, fault) in (0_u64..).zip(&faults) {
        let (primary, _) = real::old(set).map_err(|error| error.to_string())?;
        let written = number * SHARE;
        writers.write(written + SHARE / 2).await?;
        let begun = Instant::now();
        fault.begin(set, primary)?;
        striking.send_modify(|struck| *struck += 1);
        writers.write(written + SHARE).await?;
        for reader in &mut readers {
            reader.reach(written + SHARE).await?;
        }
        recoveries.push((*fault, begun.elapsed()));
        fault.end(set, primary)?;
    }
    print_recoveries(&recoveries);
    for reader in readers {
        eprintln!("{}", reader.end()?);
    }
    eprintln!("{} writes were run again", writers.end().await?);
    set.wait_until_settled(GENEROUS)?;
    soon(at_rest(&client.topology().members())).await;
    client.close().await;
    Ok(())
}

/// Tasks that write documents with the numbers from 0 on, as far as they may.
struct Writers {
    allowed: watch::Sender<u64>,
    done: watch::Receiver<u64>,
    tasks: JoinSet<Result<u64, Failure>>,
}

impl Writers {
    fn start(collection: &Collection<Document>) -> Self {
        let (allowed, of_tasks) = watch::channel(0);
        let (doing, done) = watch::channel(0);
        let (next, mut tasks) = (Arc::new(AtomicU64::new(0)), JoinSet::new());
        for _ in 0..WRITERS {
            let (collection, next) = (collection.clone(), Arc::clone(&next));
            let (mut allowed, doing) = (of_tasks.clone(), doing.clone());
            tasks.spawn(async move {
                let mut again = 0;
                loop {
                    let first = next.fetch_add(CHUNK, Ordering::Relaxed);
                    // It ends with the storm.
                    let Ok(_) = allowed.wait_for(|allowed| *allowed > first).await else {
                        return Ok(again);
                    };
                    again += write(&collection, first).await?;
                    doing.send_modify(|done| *done += CHUNK);
                }
            });
        }
        Self { allowed, done, tasks }
    }

    /// Has them write so many documents, and waits for that.
    async fn write(&mut self, count: u64) -> Result<(), Failure> {
        self.allowed.send_replace(count);
        tokio::select! {
            done = tokio::time::timeout(LIMIT, self.done.wait_for(|done| *done >= count)) => {
                done.map_err(|_| format!("{count} documents were not written in {LIMIT:?}"))??;
                Ok(())
            }
            Some(ended) = self.tasks.join_next() => {
                ended??;
                Err("a writer has ended".into())
            }
        }
    }

    /// Ends them; returns how often they have written again.
    async fn end(self) -> Result<u64, Failure> {
        let Self { allowed, done, mut tasks } = self;
        drop((allowed, done));
        let mut again = 0;
        while let Some(ended) = soon(tasks.join_next()).await {
            again += ended??;
        }
        Ok(again)
    }
}

/// Writes a chunk of documents until a majority has it; returns how often it did so again.
async fn write(collection: &Collection<Document>, first: u64) -> Result<u64, Failure> {
    let documents: Vec<_> =
        (first..first + CHUNK).map(|number| doc! { "_id": number as i64 }).collect();
    let begun = Instant::now();
    for again in 0.. {
        let insert = collection.insert_many(&documents).ordered(false);
        match insert.write_concern(WriteConcern::majority()).await {
            Ok(_) => return Ok(again),
            Err(error) if are_there(&error) => return Ok(again),
            Err(error) if begun.elapsed() > LIMIT => return Err(error.into()),
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
    unreachable!("an attempt is the last one")
}

/// Returns whether all has been written before, and a majority has it.
fn are_there(error: &sdam::Error) -> bool {
    error.as_bulk_write().is_some_and(|bulk| {
        let is_done = bulk.cause.is_none() && bulk.write_concern_error.is_none();
        is_done && bulk.write_errors.values().all(|error| error.code == 11000)
    })
}

/// A task that reads all changes.
struct Reader {
    seen: watch::Receiver<Seen>,
    task: JoinHandle<Failure>,
}

/// The documents that a reader has seen.
#[derive(Debug, Default)]
struct Seen {
    numbers: BTreeSet<i64>,
    last: Option<Timestamp>,
    /// The number of calls that have failed, and of streams.
    failed: usize,
    streams: usize,
}

impl Seen {
    fn note(&mut self, event: &ChangeStreamEvent) -> Result<(), Failure> {
        if event.operation_type != OperationType::Insert {
            return Err(format!("nothing does this: {event:?}").into());
        }
        let key = event.document_key.as_ref().ok_or("an insert has a key")?;
        if !self.numbers.insert(key.get_i64("_id")?) {
            return Err(format!("{key} was handed out twice").into());
        }
        if event.cluster_time < self.last {
            return Err(format!("{event:?} comes after an event of {:?}", self.last).into());
        }
        self.last = event.cluster_time;
        Ok(())
    }
}

impl Reader {
    /// Reads by one stream.
    async fn lasting(collection: Collection<Document>) -> Result<Self, Failure> {
        let mut stream = collection.watch().await?;
        let (seeing, seen) = watch::channel(Seen { streams: 1, ..Seen::default() });
        let task = tokio::spawn(async move {
            loop {
                let next = stream.next().await;
                if let Err(failure) = take(&seeing, next, stream.is_alive()) {
                    return failure;
                }
            }
        });
        Ok(Self { seen, task })
    }

    /// Reads by a stream that ends with each fault, whose successor has a client of its own.
    async fn restarting(uri: String, mut struck: watch::Receiver<u64>) -> Result<Self, Failure> {
        let (seeing, seen) = watch::channel(Seen::default());
        let (opening, opened) = tokio::sync::oneshot::channel();
        let mut opening = Some(opening);
        let task = tokio::spawn(async move {
            let mut token = None;
            loop {
                let life = life(&uri, &mut token, &seeing, &mut struck, &mut opening);
                if let Err(failure) = life.await {
                    return failure;
                }
            }
        });
        opened.await?;
        Ok(Self { seen, task })
    }

    /// Waits until so many documents were seen.
    async fn reach(&mut self, count: u64) -> Result<(), Failure> {
        let is_there = |seen: &Seen| seen.numbers.len() as u64 >= count;
        let is_late = tokio::select! {
            reached = tokio::time::timeout(LIMIT, self.seen.wait_for(is_there)) => reached.is_err(),
            failure = &mut self.task => return Err(failure?),
        };
        match is_late {
            true => {
                let seen = self.seen.borrow().numbers.len();
                Err(format!("{seen} documents of {count} were seen in {LIMIT:?}").into())
            }
            false => Ok(()),
        }
    }

    /// Ends it; every document has been seen, and nothing else.
    fn end(self) -> Result<String, Failure> {
        self.task.abort();
        let Seen { numbers, failed, streams, .. } = &*self.seen.borrow();
        let written = numbers.len() as i64;
        if numbers.last() != Some(&(written - 1)) {
            return Err("a document was seen that was not written".into());
        }
        Ok(format!("{written} events, each once, by {streams} streams; {failed} calls failed"))
    }
}

/// Reads from one client until the next fault; leaves the token.
async fn life(
    uri: &str,
    token: &mut Option<String>,
    seeing: &watch::Sender<Seen>,
    struck: &mut watch::Receiver<u64>,
    opening: &mut Option<tokio::sync::oneshot::Sender<()>>,
) -> Result<(), Failure> {
    let client = Client::connect(uri).await?;
    let collection = client.database("storm_changes").collection::<Document>("written");
    let mut watch = collection.watch();
    if let Some(token) = token {
        watch = watch.start_after(serde_json::from_str::<ResumeToken>(token)?);
    }
    let mut stream = watch.await?;
    seeing.send_modify(|seen| seen.streams += 1);
    if let Some(opening) = opening.take() {
        let _ = opening.send(());
    }
    loop {
        tokio::select! {
            next = stream.next() => take(seeing, next, stream.is_alive())?,
            changed = struck.changed() => {
                // The storm is over if there is no more to come.
                let is_over = changed.is_err();
                *token = stream.resume_token().map(serde_json::to_string).transpose()?;
                drop(stream);
                client.close().await;
                return if is_over { std::future::pending().await } else { Ok(()) };
            }
        }
    }
}

/// Takes what a call for the next event has brought.
fn take(
    seeing: &watch::Sender<Seen>,
    next: Option<sdam::Result<ChangeStreamEvent>>,
    is_alive: bool,
) -> Result<(), Failure> {
    match next {
        Some(Ok(event)) => {
            let mut noted = Ok(());
            seeing.send_modify(|seen| noted = seen.note(&event));
            noted
        }
        Some(Err(_)) if is_alive => {
            seeing.send_modify(|seen| seen.failed += 1);
            Ok(())
        }
        Some(Err(error)) => Err(error.into()),
        None => Err("the stream has ended".into()),
    }
}
