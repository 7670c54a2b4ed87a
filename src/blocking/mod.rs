//! Databases, collections and cursors for threads: each operation has its thread wait.
//!
//! The same as [the others](crate), over [`sdam_blocking`].

mod client;
mod collection;
mod cursor;
mod database;
mod threads;

pub use client::Client;
pub use collection::Collection;
pub use cursor::Cursor;
pub use database::Database;
pub use sdam_blocking::{
    Blocking, BlockingReactor, ByteStream, CheckedOut, Dialer, Events, Exhaust, Registry,
    SelectedServer, Source, Subscription, Topology, Views, block_on, driver,
};
pub use threads::{ForThreads, Threads};

/// Creates clients that differ from what [`Client::connect`] creates.
pub type ClientBuilder = sdam_blocking::ClientBuilder<Client>;

/// A session, as [`ClientSession`](crate::generic::ClientSession) is: nothing of it waits.
pub type ClientSession = crate::generic::ClientSession<sdam_blocking::Blocking>;
