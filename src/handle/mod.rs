//! Clients, databases, collections and cursors as applications hold them, for every runtime that
//! waits with futures. They do nothing but hand operations to the client below.

/// Writes the methods of a handle that return one with other concerns, or with a session. The
/// handle has a field of this name, which they are of, and a method `over` that takes another one
/// for it.
macro_rules! concerns {
    ($field:ident, $session:ty) => {
        /// Returns which servers its reads may use.
        pub fn read_preference(&self) -> &sdam_core::config::ReadPreference {
            &self.$field.concerns.read_preference
        }

        /// Returns which data its reads see.
        pub fn read_concern(&self) -> &sdam_core::config::ReadConcern {
            &self.$field.concerns.read_concern
        }

        /// Returns under which condition its writes succeed.
        pub fn write_concern(&self) -> &sdam_core::config::WriteConcern {
            &self.$field.concerns.write_concern
        }

        /// Returns a handle whose reads may use other servers.
        #[must_use]
        pub fn with_read_preference(&self, preference: sdam_core::config::ReadPreference) -> Self {
            self.over(self.$field.with(|concerns| concerns.read_preference = preference))
        }

        /// Returns a handle whose reads see other data.
        #[must_use]
        pub fn with_read_concern(&self, concern: sdam_core::config::ReadConcern) -> Self {
            self.over(self.$field.with(|concerns| concerns.read_concern = concern))
        }

        /// Returns a handle whose writes succeed under another condition.
        #[must_use]
        pub fn with_write_concern(&self, concern: sdam_core::config::WriteConcern) -> Self {
            self.over(self.$field.with(|concerns| concerns.write_concern = concern))
        }

        /// Returns a handle whose operations, each with its cursor, have another `timeoutMS`; zero
        /// lifts the limit.
        #[must_use]
        pub fn with_timeout(&self, timeout: std::time::Duration) -> Self {
            self.over(self.$field.with(|concerns| concerns.timeout = Some(timeout)))
        }

        /// Returns a handle whose operations are run in a session.
        #[must_use]
        pub fn with_session(&self, session: &$session) -> Self {
            self.over(self.$field.with_session(session))
        }
    };
}

#[cfg(feature = "blocking")]
pub(crate) use concerns;

pub(crate) mod actions;
pub(crate) mod awaiting;
mod call;
mod change_stream;
mod changes;
mod checkpoints;
mod client;
mod collection;
mod cursor;
mod database;
mod fetching;
pub(crate) mod gridfs;
mod history;
mod kill_cursors;
mod observed;
mod options;
pub(crate) mod outcome;
mod perform;
mod reader;
pub(crate) mod recover_commit;
pub(crate) mod shutdown;
pub(crate) mod start_session;

pub use change_stream::ChangeStream;
pub use checkpoints::CollectionCheckpointStore;
pub use client::Client;
pub use collection::Collection;
pub use cursor::Cursor;
pub use database::Database;
pub use options::{
    CollectionOptions, CollectionOptionsBuilder, DatabaseOptions, DatabaseOptionsBuilder,
};
#[cfg(feature = "blocking")]
pub(crate) use perform::{Concerns, Handle};

#[cfg(test)]
mod tests {
    use sdam_host::{ClientSession, Runtime};

    use super::{Client, Collection, Database};

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
