//! Databases, collections and cursors for threads: each operation has its thread wait.
//!
//! The same as [the others](crate), over [`sdam_blocking`].

mod client;
mod collection;
mod cursor;
mod database;

pub use client::Client;
pub use collection::Collection;
pub use cursor::Cursor;
pub use database::Database;

/// A session, as [`ClientSession`](crate::ClientSession) is: nothing of it waits.
pub type ClientSession = crate::ClientSession<sdam_blocking::Blocking>;
