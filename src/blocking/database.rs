//! Databases.

use std::sync::Arc;

use bson::Document;
use sdam_blocking::Blocking;
use serde::de::DeserializeOwned;

use super::ClientSession;
use super::client::Shared;
use super::collection::Collection;
use crate::command::aggregate::Aggregate;
use crate::command::collections::{CreateCollection, ListCollections};
use crate::command::databases::DropDatabase;
use crate::command::run::{RunCommand, RunCursorCommand};
use crate::handle::{Database as Futures, concerns};

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

    /// Returns a collection whose documents are of a type of the application's; nothing is sent.
    pub fn collection<T>(&self, name: &str) -> Collection<T> {
        Collection::new(self.shared.clone(), Arc::clone(&self.name), name)
    }

    waiting! {
        Database {
            fn run_command(command: impl Into<RunCommand>) -> Document;
            fn list_collection_names(list: ListCollections) -> Vec<String>;
            fn create_collection(create: impl Into<CreateCollection>) -> ();
            fn drop(drop: DropDatabase) -> ();
        }
        cursors {
            fn run_cursor_command<T: DeserializeOwned>(command: impl Into<RunCursorCommand>) -> T;
            fn aggregate<T: DeserializeOwned>(aggregate: Aggregate) -> T;
            fn list_collections(list: ListCollections) -> Document;
        }
    }

    fn over(&self, shared: Shared) -> Self {
        Self { shared, name: Arc::clone(&self.name) }
    }

    fn futures(&self) -> Futures<Blocking> {
        Futures::new(self.shared.handle(), &self.name)
    }
}
