//! The cost of operations on collections for the client: the official driver and this library, each
//! with its API for tasks and that for threads, against one real mongod; transactions and change
//! streams, against a replica set of one.
//!
//! Every measurement is a process of its own, and the two of a pair take turns: what disturbs one
//! disturbs the other.

mod competitor;
mod documents;
mod events;

use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use bson::{Timestamp, doc};
use clap::{Parser, ValueEnum};
use sdam::blocking::Topology;
use sdam::blocking::{self as driver, Collection, Database};
use sdam_bench::rounds::rounds;
use sdam_bench::{Failure, name, replica_set, sampled, server, table};
use sdam_conformance::mongod::{ReplicaSet, Server};

use crate::competitor::Competitor;
use crate::documents::{Book, Stored};
use crate::events::Events;

/// The names of the database and of the collections: that which is read, and that which is written.
const DATABASE: &str = "bench";
const READ: &str = "read";
const WRITTEN: &str = "written";

/// The number of documents in the collection that is read.
const STORED: i32 = 10_000;

/// The number of documents that are inserted in one operation.
const MANY: usize = 1_000;

/// The operations that are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Operation {
    /// Finds a document by its `_id`.
    FindOne,
    /// Inserts a document.
    InsertOne,
    /// Inserts 1,000 documents.
    InsertMany,
    /// Finds 10,000 documents, in batches of the default size.
    Find,
    /// Updates two documents by their `_id`, in a transaction.
    Transaction,
    /// Reads an event of a change stream, which begins again behind the last one.
    ChangeStream,
}

/// The type that the application has for its documents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Shape {
    /// A struct, by serde.
    #[default]
    Struct,
    /// `bson::Document`.
    Document,
}

/// Measures what operations on collections cost the client.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// A server to use instead of one of its own: no TLS, no password; for transactions and change
    /// streams, the primary of a replica set. Its database `bench` is dropped.
    #[arg(long)]
    address: Option<SocketAddr>,
    /// The operations, all by default.
    #[arg(long, value_delimiter = ',')]
    operations: Vec<Operation>,
    /// The type of the documents.
    #[arg(long, value_enum, default_value_t)]
    shape: Shape,
    /// The number of events of a change stream: inserts of small documents.
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(i32).range(1..))]
    events: i32,
    /// Prints the private memory ten times while those are read.
    #[arg(long)]
    memory: bool,
    /// The time from which on `--only` finds those events at the `--address`.
    #[arg(long, requires = "only", value_parser = events::parse)]
    begun: Option<Timestamp>,
    /// The time that one measurement takes, after half a second to warm up.
    #[arg(long, default_value_t = 3)]
    seconds: u64,
    /// The number of repetitions of each measurement.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Measures this one, once, in this very process, and prints the bare figures.
    #[arg(long)]
    only: Option<Competitor>,
}

/// Those who are compared: the first of each pair is the official driver.
const PAIRS: [[Competitor; 2]; 2] =
    [[Competitor::Mongodb, Competitor::Sdam], [Competitor::MongodbSync, Competitor::SdamBlocking]];

fn main() -> Result<(), Failure> {
    let mut arguments = Arguments::parse();
    if arguments.operations.is_empty() {
        arguments.operations = Operation::value_variants().to_vec();
    }
    match arguments.only {
        Some(competitor) => measure(competitor, &arguments),
        None => compare(&arguments),
    }
}

/// Measures one, and prints the bare figures.
fn measure(competitor: Competitor, arguments: &Arguments) -> Result<(), Failure> {
    let (address, _server) = server(arguments.address)?;
    let (uri, window) = (uri(address), Duration::from_secs(arguments.seconds));
    // Only change streams look at it.
    let begun = arguments.begun.unwrap_or(Timestamp { time: 0, increment: 0 });
    let events = Events::new(begun, arguments.events, arguments.memory);
    for &operation in &arguments.operations {
        if arguments.memory {
            eprintln!("{}", name(&competitor));
        }
        let task = (operation, events);
        let sample = match arguments.shape {
            Shape::Struct => competitor.measure(&uri, task, Book::of, window)?,
            Shape::Document => competitor.measure(&uri, task, documents::untyped, window)?,
        };
        println!("{sample}");
    }
    Ok(())
}

/// Names the server to a client with one connection for operations.
fn uri(address: SocketAddr) -> String {
    format!("mongodb://{address}/?directConnection=true&maxPoolSize=1&w=1")
}

fn compare(arguments: &Arguments) -> Result<(), Failure> {
    let (mut of_one, mut of_set) = (None, None);
    for operation in &arguments.operations {
        match operation.needs_set() {
            true if of_set.is_none() => of_set = Some(Deployment::of_set(arguments)?),
            false if of_one.is_none() => of_one = Some(Deployment::of_one(arguments.address)?),
            _ => {}
        }
    }
    let pairs = PAIRS.as_flattened();
    let turn = |&operation: &Operation| pairs.iter().map(move |one| (operation, *one));
    let turns: Vec<_> = arguments.operations.iter().flat_map(turn).collect();
    let samples = rounds(arguments.rounds, &turns, |&(operation, competitor)| {
        let deployment = if operation.needs_set() { &of_set } else { &of_one };
        let deployment = deployment.as_ref().expect("it was started");
        deployment.written.drop().run()?;
        sampled(&mut child(competitor, deployment, operation, arguments)?)
    })?;
    for (operation, samples) in arguments.operations.iter().zip(samples.chunks(pairs.len())) {
        for (pair, samples) in PAIRS.iter().zip(samples.chunks(PAIRS[0].len())) {
            table::print(&name(operation), &pair.each_ref().map(name), samples);
        }
    }
    Ok(())
}

/// A deployment for some of the operations.
struct Deployment {
    address: SocketAddr,
    written: Collection<Stored>,
    /// The time from which on changes are read, if they are.
    begun: Option<Timestamp>,
    _server: Option<Server>,
    _set: Option<ReplicaSet>,
}

impl Deployment {
    fn of_one(address: Option<SocketAddr>) -> Result<Self, Failure> {
        let (address, _server) = server(address)?;
        let written = fill(address)?.collection(WRITTEN);
        Ok(Self { address, written, begun: None, _server, _set: None })
    }

    fn of_set(arguments: &Arguments) -> Result<Self, Failure> {
        let (address, _set) = replica_set(arguments.address)?;
        let database = fill(address)?;
        let begun = match arguments.operations.contains(&Operation::ChangeStream) {
            true => Some(events::fill(&database, arguments.events)?),
            false => None,
        };
        let written = database.collection(WRITTEN);
        Ok(Self { address, written, begun, _server: None, _set })
    }
}

/// Fills the collection that is read, and returns the database.
fn fill(address: SocketAddr) -> Result<Database, Failure> {
    let client = driver::Client::from(Topology::connect(uri(address))?);
    let database = client.database(DATABASE);
    database.drop().run()?;
    let stored = (0..STORED).map(Stored::of);
    database.collection::<Stored>(READ).insert_many(stored).run()?;
    Ok(database)
}

/// Returns a process that measures one competitor.
fn child(
    competitor: Competitor,
    deployment: &Deployment,
    operation: Operation,
    arguments: &Arguments,
) -> Result<Command, Failure> {
    let mut child = Command::new(std::env::current_exe()?);
    child.args(["--only", &name(&competitor), "--address", &deployment.address.to_string()]);
    child.args(["--operations", &name(&operation), "--shape", &name(&arguments.shape)]);
    child.args(["--seconds", &arguments.seconds.to_string()]);
    child.args(["--events", &arguments.events.to_string()]);
    if let Some(begun) = deployment.begun {
        child.args(["--begun", &events::text(begun)]);
    }
    if arguments.memory {
        child.arg("--memory");
    }
    Ok(child)
}

impl Operation {
    /// Makes the documents that one operation inserts.
    fn documents<T>(self, of: fn(i32) -> T) -> Vec<T> {
        let count = if self == Self::InsertMany { MANY } else { 1 };
        (0..).map(of).take(count).collect()
    }

    /// Returns whether it needs a replica set.
    const fn needs_set(self) -> bool {
        matches!(self, Self::Transaction | Self::ChangeStream)
    }
}

/// Returns the filter of the next document that is looked for: all, one after another, in an order
/// that no cache has guessed.
fn filter(turn: &mut i32) -> bson::Document {
    /// A number without a factor of that of documents.
    const STEP: i32 = 7_919;
    *turn = (*turn + STEP) % STORED;
    doc! { "_id": *turn }
}

/// Returns the first update of a transaction.
fn lend() -> bson::Document {
    doc! { "$inc": { "times_lent": 1_i64 } }
}

/// Returns the second update of a transaction.
fn take_back() -> bson::Document {
    doc! { "$inc": { "times_lent": -1_i64 } }
}

/// Fails unless a document was updated.
fn check_update(count: u64) -> Result<(), Failure> {
    match count {
        1 => Ok(()),
        _ => Err(format!("{count} documents were updated, and not one").into()),
    }
}

/// Fails unless all documents have come.
fn check(count: i32) -> Result<(), Failure> {
    match count {
        STORED => Ok(()),
        _ => Err(format!("{count} documents have come, and not {STORED}").into()),
    }
}
