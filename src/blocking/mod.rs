//! Databases, collections and cursors for threads: each operation has its thread wait.
//!
//! The names are those [for futures](crate::generic). An operation ends with
//! [`run`](crate::action::Action::run), and a cursor is an iterator:
//!
//! ```no_run
//! use sdam::blocking::{Client, Collection};
//! use sdam::{Document, doc};
//!
//! # fn example() -> sdam::Result<()> {
//! let client = Client::connect("mongodb://localhost")?;
//! let books: Collection<Document> = client.database("library").collection("books");
//! books.insert_one(doc! { "title": "Emma", "year": 1815 }).run()?;
//! for book in books.find(doc! { "year": { "$lt": 1900 } }).sort(doc! { "year": 1 }).run()? {
//!     println!("{}", book?);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! One thread in the background monitors the servers of all clients of the process.

mod change_stream;
mod checkpoints;
mod client;
mod collection;
mod cursor;
mod database;
mod gridfs;
mod session;
mod threads;

pub use change_stream::ChangeStream;
pub use checkpoints::CollectionCheckpointStore;
pub use client::Client;
pub use collection::Collection;
pub use cursor::Cursor;
pub use database::Database;
pub use gridfs::{
    GridFsBucket, GridFsDownloadStream, GridFsPreparedFile, GridFsUploadStream, RunInBucket,
};
pub use sdam_blocking::{
    Blocking, BlockingReactor, ByteStream, CheckedOut, Dialer, Events, Exhaust, Registry,
    SelectedServer, Source, Subscription, Topology, Views, block_on, driver,
};
pub use session::ClientSession;
pub use threads::{ForThreads, Threads};

/// Creates clients that differ from what [`Client::connect`] creates.
pub type ClientBuilder = sdam_blocking::ClientBuilder<Client>;
