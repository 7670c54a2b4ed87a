//! Operations on the indexes for searches of a collection, as calls of the driver's interface.

use bson::Bson;
use sdam_driver::{
    Collection, CreateSearchIndexes, DropSearchIndex, ListSearchIndexes, SearchIndexModel,
    UpdateSearchIndex,
};
use sdam_host::Runtime;

use super::crud::aggregate_of;
use super::operate::{Reason, Result, all};
use crate::unified::format::{Node, Object};

/// Creates an index; the result is its name.
pub(super) async fn create_one<R: Runtime>(
    collection: &Collection<R>,
    mut of: Object,
) -> Result<Option<Bson>, Reason> {
    let index = of.required("model", model)?;
    of.finish()?;
    let names = collection.create_search_indexes(CreateSearchIndexes::new([index])).await?;
    Ok(names.into_iter().next().map(Bson::String))
}

/// Creates indexes; the result is their names.
pub(super) async fn create<R: Runtime>(
    collection: &Collection<R>,
    mut of: Object,
) -> Result<Option<Bson>, Reason> {
    let indexes = of.required("models", |node| node.list(model))?;
    of.finish()?;
    let names = collection.create_search_indexes(CreateSearchIndexes::new(indexes)).await?;
    Ok(Some(Bson::Array(names.into_iter().map(Bson::String).collect())))
}

/// Drops an index.
pub(super) async fn drop<R: Runtime>(
    collection: &Collection<R>,
    mut of: Object,
) -> Result<Option<Bson>, Reason> {
    let name = of.required("name", Node::string)?;
    of.finish()?;
    collection.drop_search_index(DropSearchIndex::new(name)).await?;
    Ok(None)
}

/// Lists the indexes.
pub(super) async fn list<R: Runtime>(
    collection: &Collection<R>,
    mut of: Object,
) -> Result<Option<Bson>, Reason> {
    let name = of.optional("name", Node::string)?;
    let options = of.optional("aggregationOptions", Node::object)?;
    of.finish()?;
    let mut malformed = None;
    let list = ListSearchIndexes::new(name.as_deref(), |aggregate| match options {
        None => aggregate,
        Some(options) => aggregate_of(aggregate.clone(), options).unwrap_or_else(|error| {
            malformed = Some(error);
            aggregate
        }),
    });
    match malformed {
        Some(error) => Err(error.into()),
        None => Ok(Some(all(collection.list_search_indexes(list).await?).await?)),
    }
}

/// Gives an index another definition.
pub(super) async fn update<R: Runtime>(
    collection: &Collection<R>,
    mut of: Object,
) -> Result<Option<Bson>, Reason> {
    let name = of.required("name", Node::string)?;
    let definition = of.required("definition", Node::document)?;
    of.finish()?;
    collection.update_search_index(UpdateSearchIndex::new(name, definition)).await?;
    Ok(None)
}

fn model(node: Node) -> Result<SearchIndexModel> {
    let mut of = node.object()?;
    let mut index = SearchIndexModel::new(of.required("definition", Node::document)?);
    if let Some(name) = of.optional("name", Node::string)? {
        index = index.name(&name);
    }
    if let Some(kind) = of.optional("type", Node::string)? {
        index = index.index_type(&kind);
    }
    of.finish().map(|()| index)
}
