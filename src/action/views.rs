//! The forms in which the outcome of an operation is returned.

use std::marker::PhantomData;

use bson::{Bson, Document};

use super::Action;
use crate::command::aggregate::Aggregate;
use crate::command::bulk_write::BulkWrite;
use crate::command::client_bulk_write::ClientBulkWrite;
use crate::command::collections::{
    CreateCollection, DropCollection, ListCollections, ModifyCollection, RenameCollection,
};
use crate::command::count::{Count, CountDocuments, EstimatedDocumentCount};
use crate::command::databases::{DropDatabase, ListDatabases};
use crate::command::delete::Delete;
use crate::command::distinct::Distinct;
use crate::command::explain::Explain;
use crate::command::find::{Find, FindOne};
use crate::command::find_and_modify::{FindOneAndDelete, FindOneAndReplace, FindOneAndUpdate};
use crate::command::indexes::{CreateIndexes, DropIndexes, ListIndexes};
use crate::command::insert::{InsertMany, InsertOne};
use crate::command::map_reduce::MapReduce;
use crate::command::run::{RunCommand, RunCursorCommand};
use crate::command::search_indexes::{
    CreateSearchIndexes, DropSearchIndex, ListSearchIndexes, UpdateSearchIndex,
};
use crate::command::update::{Replace, Update};

/// Documents of the type `T`, as a cursor.
#[derive(Debug)]
pub struct Many<T>(PhantomData<fn() -> T>);

/// A document of the type `T`, if there is one.
#[derive(Debug)]
pub struct One<T>(PhantomData<fn() -> T>);

/// All of them, each as the type `T`.
#[derive(Debug)]
pub struct Each<T>(PhantomData<fn() -> T>);

/// Their names.
#[derive(Debug)]
pub struct Names(());

/// The first of several.
#[derive(Debug)]
pub struct First(());

/// The server's reply, as a document.
#[derive(Debug)]
pub struct Reply(());

impl<O, H, T> Action<O, H, Many<T>> {
    /// Reads the documents as another type.
    pub fn with_type<U>(self) -> Action<O, H, Many<U>> {
        let (operation, on) = self.parts();
        Action::new(operation, on)
    }
}

impl<O, H, T> Action<O, H, One<T>> {
    /// Reads the document as another type.
    pub fn with_type<U>(self) -> Action<O, H, One<U>> {
        let (operation, on) = self.parts();
        Action::new(operation, on)
    }
}

impl<O, H, T> Action<O, H, Each<T>> {
    /// Reads each as another type.
    pub fn with_type<U>(self) -> Action<O, H, Each<U>> {
        let (operation, on) = self.parts();
        Action::new(operation, on)
    }
}

impl<H, T> Action<Distinct, H, Each<T>> {
    /// Returns the values where they lie in the server's reply, to be read one after another:
    /// there may be many millions.
    pub fn unread(self) -> Action<Distinct, H> {
        let (operation, on) = self.parts();
        Action::new(operation, on)
    }
}

/// An operation with the form in which its outcome is returned by a handle whose documents are of
/// the type `T`.
pub trait View<T> {
    /// That form.
    type Form;
}

/// Says in which form the outcome of each operation is returned.
macro_rules! forms {
    ($($form:ty: $($operation:ident)+;)+) => {
        $($(impl<T> View<T> for $operation {
            type Form = $form;
        })+)+
    };
}

forms! {
    Many<T>: Find;
    Many<Document>: Aggregate RunCursorCommand ListCollections ListIndexes ListSearchIndexes;
    One<T>: FindOne FindOneAndDelete FindOneAndReplace FindOneAndUpdate;
    Each<Bson>: Distinct;
    Each<Document>: ListDatabases MapReduce;
    Reply: RunCommand;
    (): BulkWrite ClientBulkWrite Count CountDocuments CreateCollection CreateIndexes
        CreateSearchIndexes Delete DropCollection DropDatabase DropIndexes DropSearchIndex
        EstimatedDocumentCount InsertMany InsertOne ModifyCollection RenameCollection Replace
        Update UpdateSearchIndex;
}

impl<T, O> View<T> for Explain<O> {
    type Form = Reply;
}
