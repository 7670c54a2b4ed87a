//! Checkpoints of change streams that are kept in a collection.

use std::sync::Arc;

use sdam_blocking::Blocking;

use super::client::Shared;
use super::{ClientSession, Collection};
use crate::change_stream::{CheckpointStore, ResumeToken};
use crate::error::Error;

/// A place for the tokens of change streams in a collection, as
/// [`CollectionCheckpointStore`](crate::checkpoint::CollectionCheckpointStore) of futures is.
#[derive(Clone, Debug)]
pub struct CollectionCheckpointStore {
    store: crate::handle::CollectionCheckpointStore<Blocking>,
    shared: Shared,
}

impl CollectionCheckpointStore {
    /// Names the stream; names are those of its documents in the collection.
    pub fn new<T>(collection: &Collection<T>, name: impl Into<Arc<str>>) -> Self {
        let store = crate::handle::CollectionCheckpointStore::new(&collection.of_futures(), name);
        Self { store, shared: collection.shared().clone() }
    }

    /// Saves a token in a session, within its transaction: that of the stream after the event which
    /// the transaction deals with.
    ///
    /// Read on only once the transaction is committed: an event behind which the stream goes on is
    /// dealt with.
    ///
    /// # Errors
    ///
    /// Fails if no transaction is in progress, or one whose commit need not wait for a majority, if
    /// another stream has saved its place under the same name since this one has begun, and as
    /// [`find_one_and_update`](Collection::find_one_and_update) does.
    pub fn save_in(&self, session: &ClientSession, token: &ResumeToken) -> Result<(), Error> {
        self.shared.wait(self.store.save_in(session, token))
    }
}

impl CheckpointStore for CollectionCheckpointStore {
    fn load(&self) -> impl Future<Output = Result<Option<ResumeToken>, Error>> + Send {
        self.store.load()
    }

    fn save(&self, token: &ResumeToken) -> impl Future<Output = Result<(), Error>> + Send {
        self.store.save(token)
    }
}
