//! Stores of tokens: in memory, where saves take their time and may fail, and in a collection.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bson::Document;
use sdam::checkpoint::{CheckpointStore, CollectionCheckpointStore};
use sdam::error::{ArgumentError, Error};
use sdam::generic::{Client, ClientSession};
use sdam::results::ResumeToken;
use sdam_core::bson;

use super::OWN;
use crate::sim::random::Random;
use crate::virtual_time::{Runtime, VirtualTime};

/// The token that is kept in memory.
#[derive(Clone)]
pub(super) struct Kept {
    token: Arc<Mutex<Option<ResumeToken>>>,
    time: VirtualTime,
    random: Arc<Mutex<Random>>,
}

impl Kept {
    pub(super) fn new(time: &VirtualTime, random: Random) -> Self {
        let random = Arc::new(Mutex::new(random));
        Self { token: Arc::default(), time: time.clone(), random }
    }

    fn draw<T>(&self, draw: impl FnOnce(&mut Random) -> T) -> T {
        draw(&mut self.random.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes its time; fails now and then.
    async fn work(&self) -> Result<(), Error> {
        let (time, fails) = self.draw(|random| (random.millis(0, 40), random.percent(2)));
        if self.draw(|random| random.percent(50)) {
            self.time.sleep(time).await;
        }
        if fails { Err(ArgumentError::SessionInUse.into()) } else { Ok(()) }
    }

    async fn load(&self) -> Result<Option<ResumeToken>, Error> {
        self.work().await?;
        Ok(self.token.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }

    async fn save(&self, token: &ResumeToken) -> Result<(), Error> {
        self.work().await?;
        *self.token.lock().unwrap_or_else(PoisonError::into_inner) = Some(token.clone());
        self.work().await
    }
}

#[derive(Clone)]
enum Place {
    Memory(Kept),
    Collection(CollectionCheckpointStore<Runtime>),
}

/// A store of one life of a stream.
#[derive(Clone)]
pub(super) struct Store {
    place: Place,
    /// True once it has had a token.
    has_loaded: Arc<AtomicBool>,
}

impl Store {
    pub(super) fn in_memory(kept: Kept) -> Self {
        Self { place: Place::Memory(kept), has_loaded: Arc::default() }
    }

    /// A store that knows nothing of those before it, as that of another process.
    pub(super) fn in_collection(client: &Client<Runtime>, story: usize) -> Self {
        let tokens = client.database(OWN).collection::<Document>("tokens");
        let store = CollectionCheckpointStore::new(&tokens, format!("story {story}"));
        Self { place: Place::Collection(store), has_loaded: Arc::default() }
    }

    /// Returns whether the stream has begun behind a token of the store.
    pub(super) fn has_loaded(&self) -> bool {
        self.has_loaded.load(Ordering::Relaxed)
    }

    /// Saves a token in a transaction, where that is possible.
    pub(super) async fn save_in(
        &self,
        session: &ClientSession<Runtime>,
        token: &ResumeToken,
    ) -> Result<(), Error> {
        match &self.place {
            Place::Memory(_) => Ok(()),
            Place::Collection(store) => store.save_in(session, token).await,
        }
    }
}

impl CheckpointStore for Store {
    async fn load(&self) -> Result<Option<ResumeToken>, Error> {
        let loaded = match &self.place {
            Place::Memory(kept) => kept.load().await?,
            Place::Collection(store) => store.load().await?,
        };
        self.has_loaded.store(loaded.is_some(), Ordering::Relaxed);
        Ok(loaded)
    }

    async fn save(&self, token: &ResumeToken) -> Result<(), Error> {
        match &self.place {
            Place::Memory(kept) => kept.save(token).await,
            Place::Collection(store) => store.save(token).await,
        }
    }
}
