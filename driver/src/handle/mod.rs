//! Clients, databases, collections and cursors as applications hold them, for every runtime that
//! waits with futures. They do nothing but hand operations to the client below.

mod client;
mod collection;
mod cursor;
mod database;
mod perform;
mod session;
mod span;

pub use client::Client;
pub use collection::Collection;
pub use cursor::Cursor;
pub use database::Database;
#[cfg(feature = "blocking")]
pub(crate) use perform::{Concerns, DroppedCursors, Handle};
pub use session::ClientSession;
