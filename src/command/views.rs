//! The forms in which the outcome of an operation is returned.

use std::marker::PhantomData;

use bson::{Bson, Document};

use super::aggregate::Aggregate;
use super::bulk_write::BulkWrite;
use super::client_bulk_write::ClientBulkWrite;
use super::collections::{
    CreateCollection, DropCollection, ListCollections, ModifyCollection, RenameCollection,
};
use super::count::{Count, CountDocuments, EstimatedDocumentCount};
use super::databases::{DropDatabase, ListDatabases};
use super::delete::Delete;
use super::distinct::Distinct;
use super::explain::Explain;
use super::find::{Find, FindOne};
use super::find_and_modify::{FindOneAndDelete, FindOneAndReplace, FindOneAndUpdate};
use super::indexes::{CreateIndexes, DropIndexes, ListIndexes};
use super::insert::{InsertMany, InsertOne};
use super::map_reduce::MapReduce;
use super::run::{RunCommand, RunCursorCommand};
use super::search_indexes::{
    CreateSearchIndexes, DropSearchIndex, ListSearchIndexes, UpdateSearchIndex,
};
use super::update::{Replace, Update};
use super::watch::Watch;
use crate::change_stream::ChangeStreamEvent;

/// Documents of the type `T`, as a cursor.
#[derive(Debug)]
pub struct Many<T>(PhantomData<fn() -> T>);

/// Changes, as a stream of the type `T`.
#[derive(Debug)]
pub struct Changes<T>(PhantomData<fn() -> T>);

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
    Changes<ChangeStreamEvent<T>>: Watch;
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
