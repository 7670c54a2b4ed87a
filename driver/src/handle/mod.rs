//! Clients, databases, collections and cursors as applications hold them, for every runtime that
//! waits with futures. They do nothing but hand operations to the client below.

mod client;
mod collection;
mod cursor;
mod database;
mod fetching;
mod kill_cursors;
mod observed;
mod perform;

pub use client::Client;
pub use collection::Collection;
pub use cursor::Cursor;
pub use database::Database;
#[cfg(feature = "blocking")]
pub(crate) use perform::{Concerns, Handle};
pub use sdam_host::{ClientSession, SessionAccessError};

#[cfg(test)]
mod tests {
    use sdam_host::Runtime;

    use super::{Client, ClientSession, Collection, Database};

    const fn is_clone<T: Clone>() {}

    /// Runtimes need not be `Clone` for the handles of their clients to be.
    #[test]
    fn handles_are_clones_with_any_runtime() {
        const fn of<R: Runtime>() {
            is_clone::<Client<R>>();
            is_clone::<Database<R>>();
            is_clone::<Collection<R>>();
            is_clone::<ClientSession<R>>();
        }
        of::<sdam_tokio::Tokio>();
    }
}
