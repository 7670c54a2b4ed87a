//! Collections.

use std::borrow::Borrow;
use std::marker::PhantomData;
use std::sync::Arc;

use bson::{Bson, Document};
use serde::Serialize;

use super::ClientSession;
use super::client::{Client, Shared};
use super::database::Database;
use super::threads::Threads;
use crate::change_stream::ChangeStreamEvent;
use crate::command::action::Action;
use crate::command::aggregate::Aggregate;
use crate::command::bulk_write::BulkWrite;
use crate::command::collections::{DropCollection, ModifyCollection, RenameCollection};
use crate::command::count::{Count, CountDocuments, EstimatedDocumentCount};
use crate::command::delete::Delete;
use crate::command::distinct::Distinct;
use crate::command::find::{Find, FindOne};
use crate::command::find_and_modify::{FindOneAndDelete, FindOneAndReplace, FindOneAndUpdate};
use crate::command::indexes::{CreateIndexes, DropIndexes, IndexModel, ListIndexes};
use crate::command::insert::{InsertMany, InsertOne};
use crate::command::map_reduce::{MapReduce, MapReduceOutput};
use crate::command::search_indexes::{
    CreateSearchIndexes, DropSearchIndex, ListSearchIndexes, SearchIndexModel, UpdateSearchIndex,
};
use crate::command::update::{Replace, Update};
use crate::command::views::{Changes, Each, First, Many, Names, One, View};
use crate::command::watch::Watch;
use crate::handle::actions::{
    actions_of_collections, actions_of_readable_collections, actions_of_writable_collections,
};
use crate::handle::awaiting::Place;
use crate::handle::concerns;
use crate::namespace::Namespace;
use crate::value::{IntoDocument, Modifications};

/// A collection, each operation of which has its thread wait.
pub struct Collection<T = Document> {
    shared: Shared,
    database: Arc<str>,
    name: Arc<str>,
    of: PhantomData<fn() -> T>,
}

impl<T> Collection<T> {
    pub(super) fn new(shared: Shared, database: Arc<str>, name: &str) -> Self {
        Self { shared, database, name: name.into(), of: PhantomData }
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the names of its database and its own.
    pub fn namespace(&self) -> Namespace {
        Namespace::new(&*self.database, &*self.name)
    }

    /// Returns the client, with the concerns of this handle.
    pub fn client(&self) -> Client {
        Client::of(self.shared.clone())
    }

    /// Returns the database, with the concerns of this handle.
    pub fn database(&self) -> Database {
        self.client().database(&self.database)
    }

    /// Returns the same collection with documents of another type.
    pub fn clone_with_type<U>(&self) -> Collection<U> {
        let (database, name) = (Arc::clone(&self.database), Arc::clone(&self.name));
        Collection { shared: self.shared.clone(), database, name, of: PhantomData }
    }

    /// Returns the same collection for futures.
    pub(super) fn of_futures(&self) -> crate::handle::Collection<sdam_blocking::Blocking, T> {
        let database = Arc::clone(&self.database);
        crate::handle::Collection::new(self.shared.handle(), database, &self.name)
    }

    pub(super) const fn shared(&self) -> &Shared {
        &self.shared
    }

    concerns!(shared, ClientSession);

    actions_of_collections!(Threads<'_>);
    actions_of_readable_collections!(Threads<'_>);

    fn over(&self, shared: Shared) -> Self {
        Self { shared, ..self.clone() }
    }

    fn act<O, V>(&self, operation: O) -> Action<O, Threads<'_>, V> {
        let place = Place::Collection(&self.database, &self.name);
        Action::new(operation, Threads::new(&self.shared, place))
    }
}

impl<T: Serialize> Collection<T> {
    actions_of_writable_collections!(Threads<'_>);
}

impl<T> Clone for Collection<T> {
    fn clone(&self) -> Self {
        self.clone_with_type()
    }
}

impl<T> std::fmt::Debug for Collection<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Collection")
            .field("namespace", &self.namespace().to_string())
            .finish_non_exhaustive()
    }
}
