//! Databases.

use std::sync::Arc;

use bson::Document;
use sdam_host::{ClientSession, Runtime};

use super::actions::actions_of_databases;
use super::client::Client;
use super::collection::Collection;
use super::gridfs::{GridFsBucket, GridFsBucketOptions, Parts};
use super::options::CollectionOptions;
use super::perform::Handle;
use crate::change_stream::ChangeStreamEvent;
use crate::command::action::Action;
use crate::command::aggregate::Aggregate;
use crate::command::collections::{CreateCollection, ListCollections};
use crate::command::databases::DropDatabase;
use crate::command::run::{RunCommand, RunCursorCommand};
use crate::command::views::{Changes, Many, Names, Reply, View};
use crate::command::watch::Watch;
use crate::handle::awaiting::{Async, Place};
use crate::results::CollectionSpecification;

/// A database: it makes collections, lists and creates them, and runs commands.
pub struct Database<R: Runtime> {
    handle: Handle<R>,
    name: Arc<str>,
}

impl<R: Runtime> Database<R> {
    pub(crate) fn new(handle: Handle<R>, name: &str) -> Self {
        Self { handle, name: name.into() }
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    concerns!(handle, ClientSession<R>);

    /// Returns the client, with the concerns of this handle.
    pub fn client(&self) -> Client<R> {
        Client::of(self.handle.clone())
    }

    /// Returns a collection with concerns of its own; nothing is sent.
    pub fn collection_with_options<T>(
        &self,
        name: &str,
        options: CollectionOptions,
    ) -> Collection<R, T> {
        self.over(self.handle.with(|concerns| options.apply(concerns))).collection(name)
    }

    /// Returns a collection whose documents are of a type of the application's; nothing is sent.
    pub fn collection<T>(&self, name: &str) -> Collection<R, T> {
        Collection::new(self.handle.clone(), Arc::clone(&self.name), name)
    }

    /// Returns the bucket of GridFS that is called `fs`; nothing is sent.
    pub fn gridfs_bucket(&self) -> GridFsBucket<R> {
        self.gridfs_bucket_with_options(None)
    }

    /// Returns a bucket of GridFS with options of its own; nothing is sent.
    pub fn gridfs_bucket_with_options(
        &self,
        options: impl Into<Option<GridFsBucketOptions>>,
    ) -> GridFsBucket<R> {
        let (name, chunk_size, concerns) = options.into().unwrap_or_default().split();
        let handle = self.handle.with(|own| concerns.apply(own));
        GridFsBucket::new(handle, Parts::new(&self.name, name.as_deref(), chunk_size).into())
    }

    actions_of_databases!(Async<'_, R>);

    fn over(&self, handle: Handle<R>) -> Self {
        Self { handle, name: Arc::clone(&self.name) }
    }

    fn act<O, V>(&self, operation: O) -> Action<O, Async<'_, R>, V> {
        Action::new(operation, Async::new(&self.handle, Place::Database(&self.name)))
    }
}

impl<R: Runtime> Clone for Database<R> {
    fn clone(&self) -> Self {
        Self { handle: self.handle.clone(), name: Arc::clone(&self.name) }
    }
}

impl<R: Runtime> std::fmt::Debug for Database<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Database").field("name", &self.name).finish_non_exhaustive()
    }
}
