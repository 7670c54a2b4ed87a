//! Checkpoints of change streams that are kept in a collection.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bson::{Bson, Document, doc};
use sdam_core::config::{ReadConcern, ReadMode, ReadPreference, WriteConcern};
use sdam_host::driver::DriverSession as _;
use sdam_host::{ClientSession, Runtime};
use serde::{Deserialize, Serialize};

use super::collection::Collection;
use crate::change_stream::{CheckpointStore, ResumeToken, Superseded};
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
/// stream has gone on. One stream at a time has a name: once another one has saved its place, the
/// first fails to save its own.
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
    known: Arc<Mutex<Known>>,
}

/// The part of what a store knows of its document, for all its clones.
#[derive(Debug, Default)]
struct Known {
    /// The tokens that the document may have, `None` for none; empty if it may have any.
    candidates: Vec<Option<ResumeToken>>,
    /// The token that was last saved in a transaction: there is no need to do it once more.
    in_transaction: Option<ResumeToken>,
}

impl Known {
    /// Returns the filter of the document as it may be before a token is saved, and whether it may
    /// not be there. If it has the token before it is saved in a transaction, another one has dealt
    /// with the event.
    fn filter(
        &self,
        name: &str,
        (token, in_transaction): (&ResumeToken, bool),
    ) -> Result<(Document, bool), Error> {
        if self.candidates.is_empty() {
            return Ok((doc! { "_id": name }, true));
        }
        let mut tokens = Vec::new();
        for candidate in &self.candidates {
            if !in_transaction || candidate.as_ref() != Some(token) {
                tokens.push(candidate.as_ref().map_or(Ok(Bson::Null), written)?);
            }
        }
        let may_be_missing = self.candidates.contains(&None);
        Ok((doc! { "_id": name, "token": { "$in": tokens } }, may_be_missing))
    }

    /// Takes note that the document may have this token from now on.
    fn may_have(&mut self, token: &ResumeToken) {
        if !self.candidates.is_empty() {
            self.candidates.push(Some(token.clone()));
            self.candidates.dedup();
        }
    }
}

fn written(token: &ResumeToken) -> Result<Bson, Error> {
    Document::try_from(token.document()).map(Bson::Document).map_err(Error::serialize)
}

/// DuplicateKey: the document is there, with another token.
const DUPLICATE_KEY: i32 = 11000;

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
        Self { collection, name: name.into(), known: Arc::default() }
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
    pub async fn save_in(
        &self,
        session: &ClientSession<R>,
        token: &ResumeToken,
    ) -> Result<(), Error> {
        session.check_checkpoint()?;
        self.write(&self.collection.with_session(session), (token, true)).await?;
        self.known().in_transaction = Some(token.clone());
        Ok(())
    }

    /// Saves a token in place of one that this store has loaded or saved. A process that has ended
    /// may leave a commit under way; nothing is done twice if that comes later than another one has
    /// begun, as either finds a token of the other then.
    async fn write(
        &self,
        collection: &Collection<R, Stored>,
        (token, in_transaction): (&ResumeToken, bool),
    ) -> Result<(), Error> {
        let update = doc! { "$set": { "token": written(token)? } };
        let (filter, may_be_missing) = {
            let mut known = self.known();
            let filter = known.filter(&self.name, (token, in_transaction))?;
            known.may_have(token);
            filter
        };
        let before = collection.find_one_and_update(filter, update).upsert(may_be_missing).await;
        let before = match before {
            Ok(None) if !may_be_missing => return Err(self.is_superseded()),
            Err(error) if error.code() == Some(DUPLICATE_KEY) => return Err(self.is_superseded()),
            before => before?.map(|stored| stored.token),
        };
        self.known().candidates = vec![before, Some(token.clone())];
        Ok(())
    }

    fn is_superseded(&self) -> Error {
        Superseded(Arc::clone(&self.name)).into()
    }

    fn known(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<R: Runtime> CheckpointStore for CollectionCheckpointStore<R> {
    async fn load(&self) -> Result<Option<ResumeToken>, Error> {
        let filter = doc! { "_id": &*self.name };
        let stored = self.collection.find_one(filter).max_time(LOAD_TIME).await?;
        let token = stored.map(|stored| stored.token);
        self.known().candidates = vec![token.clone()];
        Ok(token)
    }

    async fn save(&self, token: &ResumeToken) -> Result<(), Error> {
        if self.known().in_transaction.as_ref() == Some(token) {
            return Ok(());
        }
        self.write(&self.collection, (token, false)).await
    }
}

impl<R: Runtime> Clone for CollectionCheckpointStore<R> {
    fn clone(&self) -> Self {
        let (collection, name) = (self.collection.clone(), Arc::clone(&self.name));
        Self { collection, name, known: Arc::clone(&self.known) }
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
