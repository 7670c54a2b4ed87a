//! Databases.

use std::sync::Arc;

use bson::Document;

use super::ClientSession;
use super::client::{Client, Shared};
use super::collection::Collection;
use super::gridfs::GridFsBucket;
use super::threads::Threads;
use crate::change_stream::ChangeStreamEvent;
use crate::command::action::Action;
use crate::command::aggregate::Aggregate;
use crate::command::collections::{CreateCollection, ListCollections};
use crate::command::databases::DropDatabase;
use crate::command::run::{RunCommand, RunCursorCommand};
use crate::command::views::{Changes, Many, Names, Reply, View};
use crate::command::watch::Watch;
use crate::handle::actions::actions_of_databases;
use crate::handle::awaiting::Place;
use crate::handle::gridfs::{GridFsBucketOptions, Parts};
use crate::handle::{CollectionOptions, concerns};
use crate::results::CollectionSpecification;

/// A database, each operation of which has its thread wait.
#[derive(Clone, Debug)]
pub struct Database {
    shared: Shared,
    name: Arc<str>,
}

impl Database {
    pub(super) fn new(shared: Shared, name: &str) -> Self {
        Self { shared, name: name.into() }
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    concerns!(shared, ClientSession);

    /// Returns the client, with the concerns of this handle.
    pub fn client(&self) -> Client {
        Client::of(self.shared.clone())
    }

    /// Returns a collection with concerns of its own; nothing is sent.
    pub fn collection_with_options<T>(
        &self,
        name: &str,
        options: CollectionOptions,
    ) -> Collection<T> {
        self.over(self.shared.with(|concerns| options.apply(concerns))).collection(name)
    }

    /// Returns a collection whose documents are of a type of the application's; nothing is sent.
    pub fn collection<T>(&self, name: &str) -> Collection<T> {
        Collection::new(self.shared.clone(), Arc::clone(&self.name), name)
    }

    /// Returns the bucket of GridFS that is called `fs`; nothing is sent.
    pub fn gridfs_bucket(&self) -> GridFsBucket {
        self.gridfs_bucket_with_options(None)
    }

    /// Returns a bucket of GridFS with options of its own; nothing is sent.
    pub fn gridfs_bucket_with_options(
        &self,
        options: impl Into<Option<GridFsBucketOptions>>,
    ) -> GridFsBucket {
        let (name, chunk_size, concerns) = options.into().unwrap_or_default().split();
        let shared = self.shared.with(|own| concerns.apply(own));
        GridFsBucket::new(shared, Parts::new(&self.name, name.as_deref(), chunk_size).into())
    }

    actions_of_databases!(Threads<'_>);

    fn act<O, V>(&self, operation: O) -> Action<O, Threads<'_>, V> {
        Action::new(operation, Threads::new(&self.shared, Place::Database(&self.name)))
    }

    fn over(&self, shared: Shared) -> Self {
        Self { shared, name: Arc::clone(&self.name) }
    }
}
