//! Checkpoints of change streams that are kept in a collection.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bson::{Document, doc};
use sdam_core::config::{ReadConcern, ReadMode, ReadPreference, WriteConcern};
use sdam_host::driver::DriverSession as _;
use sdam_host::{ClientSession, Runtime};
use serde::{Deserialize, Serialize};

use super::collection::Collection;
use crate::change_stream::{CheckpointStore, ResumeToken};
use crate::error::Error;

/// The time that a majority of the members gets to confirm what is loaded, where `timeoutMS` says
/// nothing: a linearizable read waits for it without end (Read and Write Concern, "linearizable").
const LOAD_TIME: Duration = Duration::from_secs(10);

/// A place for the tokens of change streams in a collection: a document for each stream, whose
/// `_id` is the name that the application gives it.
///
/// Each save is a write that waits for a majority of the members, and so does the load, for ten
/// seconds at most unless `timeoutMS` is set. Within a transaction, a token is
/// saved together with what the application has made of the event, so that both are there once, or
/// neither. The commit is to wait for a majority, too, or a failover might undo both after the
/// stream has gone on. One stream at a time has a name: of two, each would save its own place.
///
/// ```no_run
/// use sdam::checkpoint::CollectionCheckpointStore;
/// use sdam::options::WriteConcern;
/// use sdam::{Client, Document};
///
/// # async fn example(client: Client) -> sdam::Result<()> {
/// let shop = client.database("shop");
/// let [orders, copies] = ["orders", "copies"].map(|name| shop.collection::<Document>(name));
/// let checkpoints = shop.collection::<Document>("checkpoints");
/// let store = CollectionCheckpointStore::new(&checkpoints, "copies");
/// let mut changes = orders.watch().checkpoint(store.clone()).await?;
/// let session = client.start_session().await?;
/// while let Some(event) = changes.try_next().await? {
///     let copy: Document = event.full_document.unwrap_or_default();
///     let token = changes.resume_token().expect("an event was handed out");
///     let write = async |session| {
///         copies.insert_one(&copy).session(&session).await?;
///         store.save_in(&session, token).await
///     };
///     let transaction = session.start_transaction().write_concern(WriteConcern::majority());
///     transaction.and_run(write).await?;
/// }
/// # Ok(())
/// # }
/// ```
pub struct CollectionCheckpointStore<R: Runtime> {
    collection: Collection<R, Stored>,
    name: Arc<str>,
    /// The token that was last saved in a transaction: there is no need to do it once more.
    in_transaction: Arc<Mutex<Option<ResumeToken>>>,
}

/// The document of a stream.
#[derive(Debug, Serialize, Deserialize)]
struct Stored {
    token: ResumeToken,
}

impl<R: Runtime> CollectionCheckpointStore<R> {
    /// Names the stream; names are those of its documents in the collection.
    pub fn new<T>(collection: &Collection<R, T>, name: impl Into<Arc<str>>) -> Self {
        // A transaction that was committed a moment ago counts, also if no majority has it yet:
        // what the application has written in it is there, too.
        let collection = collection
            .clone_with_type()
            .with_read_preference(ReadPreference::new(ReadMode::Primary))
            .with_read_concern(ReadConcern::linearizable())
            .with_write_concern(WriteConcern::majority());
        Self { collection, name: name.into(), in_transaction: Arc::default() }
    }

    /// Saves a token in a session, within its transaction: that of the stream after the event which
    /// the transaction deals with.
    ///
    /// Read on only once the transaction is committed: an event behind which the stream goes on is
    /// dealt with.
    ///
    /// # Errors
    ///
    /// Fails if the commit of the transaction need not wait for a majority, and as
    /// [`update_one`](Collection::update_one) does.
    pub async fn save_in(
        &self,
        session: &ClientSession<R>,
        token: &ResumeToken,
    ) -> Result<(), Error> {
        session.check_checkpoint()?;
        self.write(&self.collection.with_session(session), token).await?;
        *self.known() = Some(token.clone());
        Ok(())
    }

    async fn write(
        &self,
        collection: &Collection<R, Stored>,
        token: &ResumeToken,
    ) -> Result<(), Error> {
        let token = Document::try_from(token.document()).map_err(Error::serialize)?;
        let update = doc! { "$set": { "token": token } };
        collection.update_one(self.filter(), update).upsert(true).await.map(drop)
    }

    fn filter(&self) -> Document {
        doc! { "_id": &*self.name }
    }

    fn known(&self) -> std::sync::MutexGuard<'_, Option<ResumeToken>> {
        self.in_transaction.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<R: Runtime> CheckpointStore for CollectionCheckpointStore<R> {
    async fn load(&self) -> Result<Option<ResumeToken>, Error> {
        let stored = self.collection.find_one(self.filter()).max_time(LOAD_TIME).await?;
        Ok(stored.map(|stored| stored.token))
    }

    async fn save(&self, token: &ResumeToken) -> Result<(), Error> {
        if self.known().as_ref() == Some(token) {
            return Ok(());
        }
        self.write(&self.collection, token).await
    }
}

impl<R: Runtime> Clone for CollectionCheckpointStore<R> {
    fn clone(&self) -> Self {
        let (collection, name) = (self.collection.clone(), Arc::clone(&self.name));
        Self { collection, name, in_transaction: Arc::clone(&self.in_transaction) }
    }
}

impl<R: Runtime> fmt::Debug for CollectionCheckpointStore<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CollectionCheckpointStore")
            .field("collection", &self.collection)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
