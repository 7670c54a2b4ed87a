//! Collections.

use std::borrow::Borrow;
use std::marker::PhantomData;
use std::sync::Arc;

use bson::{Bson, Document};
use sdam_host::{ClientSession, Runtime};
use serde::Serialize;

use super::actions::{
    actions_of_collections, actions_of_readable_collections, actions_of_writable_collections,
};
use super::client::Client;
use super::database::Database;
use super::perform::Handle;
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
use crate::handle::awaiting::{Async, Place};
use crate::namespace::Namespace;
use crate::value::{IntoDocument, Modifications};

/// A collection, whose documents the application reads and writes as a type of its own.
///
/// Each operation is an [`Action`], which has a method for each option, and is performed when it is
/// awaited.
///
/// Clones and handles with other concerns share servers and connections.
pub struct Collection<R: Runtime, T = Document> {
    handle: Handle<R>,
    database: Arc<str>,
    name: Arc<str>,
    of: PhantomData<fn() -> T>,
}

impl<R: Runtime, T> Collection<R, T> {
    pub(crate) fn new(handle: Handle<R>, database: Arc<str>, name: &str) -> Self {
        Self { handle, database, name: name.into(), of: PhantomData }
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
    pub fn client(&self) -> Client<R> {
        Client::of(self.handle.clone())
    }

    /// Returns the database, with the concerns of this handle.
    pub fn database(&self) -> Database<R> {
        self.client().database(&self.database)
    }

    /// Returns the same collection with documents of another type.
    pub fn clone_with_type<U>(&self) -> Collection<R, U> {
        let (database, name) = (Arc::clone(&self.database), Arc::clone(&self.name));
        Collection { handle: self.handle.clone(), database, name, of: PhantomData }
    }

    concerns!(handle, ClientSession<R>);

    actions_of_collections!(Async<'_, R>);
    actions_of_readable_collections!(Async<'_, R>);

    fn over(&self, handle: Handle<R>) -> Self {
        Self { handle, ..self.clone() }
    }

    fn act<O, V>(&self, operation: O) -> Action<O, Async<'_, R>, V> {
        let place = Place::Collection(&self.database, &self.name);
        Action::new(operation, Async::new(&self.handle, place))
    }
}

impl<R: Runtime, T: Serialize> Collection<R, T> {
    actions_of_writable_collections!(Async<'_, R>);
}

impl<R: Runtime, T> Clone for Collection<R, T> {
    fn clone(&self) -> Self {
        self.clone_with_type()
    }
}

impl<R: Runtime, T> std::fmt::Debug for Collection<R, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Collection")
            .field("namespace", &self.namespace().to_string())
            .finish_non_exhaustive()
    }
}
