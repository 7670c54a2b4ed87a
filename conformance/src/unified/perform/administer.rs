//! Operations on clients and databases, and those on collections that are about the collection
//! itself and its indexes, as calls of the driver's interface.

use bson::{Bson, Document};
use sdam::generic::{Client, Collection, Database};
use sdam::operation::{
    CreateIndexes, CreateSearchIndexes, DropSearchIndex, ListCollections, ListDatabases,
    ListIndexes, ListSearchIndexes, RunCommand, RunCursorCommand, SearchIndexModel,
    UpdateSearchIndex,
};
use sdam::options::{
    AggregateOptions, CreateCollectionOptions, DropCollectionOptions, DropDatabaseOptions,
    DropIndexOptions, ListCollectionsOptions, ListDatabasesOptions, ListIndexesOptions,
    ModifyCollectionOptions, RenameCollectionOptions,
};
use sdam_host::Runtime;

use super::bulk;
use super::operate::{Own, Reason, all};
use crate::unified::format::{Node, Object, concerns};

/// Runs an operation on a client.
pub(super) async fn on_client<R: Runtime>(
    client: &Client<R>,
    own: Own,
    name: &str,
    mut of: Object,
) -> Result<Option<Bson>, Reason> {
    Ok(match name {
        "clientBulkWrite" => bulk::run(client, own, of).await?,
        "listDatabases" => {
            let options = ListDatabasesOptions::from_document(of.rest())?;
            let list = own.of(client.operation(ListDatabases::new())).with_options(options);
            Some(array(list.await?))
        }
        "listDatabaseNames" => {
            let options = ListDatabasesOptions::from_document(of.rest())?;
            Some(array(own.of(client.list_database_names()).with_options(options).await?))
        }
        "listDatabaseObjects" => {
            // A handle of each: that is how the driver gives out databases.
            let options = ListDatabasesOptions::from_document(of.rest())?;
            let names = own.of(client.list_database_names()).with_options(options).await?;
            let databases: Vec<_> = names.iter().map(|name| client.database(name)).collect();
            Some(Bson::Array(databases.iter().map(|it| Bson::from(it.name())).collect()))
        }
        "dropDatabase" => {
            let database = client.database(&of.required("database", Node::string)?);
            let options = DropDatabaseOptions::from_document(of.rest())?;
            own.of(database.drop()).with_options(options).await?;
            None
        }
        other => return Err(unknown(&of, other)),
    })
}

/// Runs an operation on a database.
pub(super) async fn on_database<R: Runtime>(
    database: &Database<R>,
    own: Own,
    name: &str,
    mut of: Object,
) -> Result<Option<Bson>, Reason> {
    Ok(match name {
        "runCommand" => Some(Bson::Document(own.of(database.run_command(run_command(of)?)).await?)),
        "runCursorCommand" => {
            let cursor = own.of(database.run_cursor_command(run_cursor_command(of)?)).await?;
            Some(all(cursor).await?)
        }
        "aggregate" => {
            let pipeline = of.required("pipeline", |node| node.list(Node::document))?;
            let options = AggregateOptions::from_document(of.rest())?;
            Some(all(own.of(database.aggregate(pipeline)).with_options(options).await?).await?)
        }
        "listCollections" => {
            let options = ListCollectionsOptions::from_document(of.rest())?;
            let list = own.of(database.operation(ListCollections::new())).with_options(options);
            Some(all(list.await?).await?)
        }
        "listCollectionNames" => {
            let options = ListCollectionsOptions::from_document(of.rest())?;
            Some(array(own.of(database.list_collection_names()).with_options(options).await?))
        }
        "listCollectionObjects" => {
            let options = ListCollectionsOptions::from_document(of.rest())?;
            let names = own.of(database.list_collection_names()).with_options(options).await?;
            let collections = names.iter().map(|name| database.collection::<Document>(name));
            let names = collections.map(|it| Bson::from(it.name()));
            Some(Bson::Array(names.collect()))
        }
        "createCollection" => {
            let name = of.required("collection", Node::string)?;
            let options = CreateCollectionOptions::from_document(of.rest())?;
            own.of(database.create_collection(name)).with_options(options).await?;
            None
        }
        "dropCollection" => {
            let collection = named(database, &mut of)?;
            let options = DropCollectionOptions::from_document(of.rest())?;
            own.of(collection.drop()).with_options(options).await?;
            None
        }
        "modifyCollection" => {
            let collection = named(database, &mut of)?;
            let options = ModifyCollectionOptions::from_document(of.rest())?;
            own.of(collection.modify()).with_options(options).await?;
            None
        }
        "dropDatabase" => {
            let options = DropDatabaseOptions::from_document(of.rest())?;
            own.of(database.drop()).with_options(options).await?;
            None
        }
        other => return Err(unknown(&of, other)),
    })
}

/// Returns the collection that the arguments name.
fn named<R: Runtime>(database: &Database<R>, of: &mut Object) -> Result<Collection<R>, Reason> {
    Ok(database.collection(&of.required("collection", Node::string)?))
}

/// Runs an operation on a collection that is about itself or its indexes.
pub(super) async fn on_collection<R: Runtime>(
    collection: &Collection<R>,
    own: Own,
    name: &str,
    mut of: Object,
) -> Result<Option<Bson>, Reason> {
    Ok(match name {
        "createIndex" => {
            let names =
                own.of(collection.operation(CreateIndexes::from_document(of.rest())?)).await?;
            names.into_iter().next().map(Bson::String)
        }
        "dropIndex" => {
            let name = of.required("name", Node::string)?;
            let options = DropIndexOptions::from_document(of.rest())?;
            own.of(collection.drop_index(name)).with_options(options).await?;
            None
        }
        "dropIndexes" => {
            let options = DropIndexOptions::from_document(of.rest())?;
            own.of(collection.drop_indexes()).with_options(options).await?;
            None
        }
        "listIndexes" => {
            let options = ListIndexesOptions::from_document(of.rest())?;
            let list = own.of(collection.operation(ListIndexes::new())).with_options(options);
            Some(all(list.await?).await?)
        }
        "listIndexNames" => {
            let options = ListIndexesOptions::from_document(of.rest())?;
            Some(array(own.of(collection.list_index_names()).with_options(options).await?))
        }
        "createSearchIndex" => {
            let index = of.required("model", Node::document)?;
            of.finish()?;
            let index = SearchIndexModel::from_document(index)?;
            Some(Bson::String(own.of(collection.create_search_index(index)).await?))
        }
        "createSearchIndexes" => {
            let create = CreateSearchIndexes::from_document(of.rest())?;
            Some(array(own.of(collection.operation(create)).await?))
        }
        "dropSearchIndex" => {
            own.of(collection.operation(DropSearchIndex::from_document(of.rest())?)).await?;
            None
        }
        "listSearchIndexes" => {
            let list = ListSearchIndexes::from_document(of.rest())?;
            Some(all(own.of(collection.operation(list)).await?).await?)
        }
        "updateSearchIndex" => {
            own.of(collection.operation(UpdateSearchIndex::from_document(of.rest())?)).await?;
            None
        }
        "rename" => {
            let to = of.required("to", Node::string)?;
            let database = collection.namespace().db;
            let options = RenameCollectionOptions::from_document(of.rest())?;
            own.of(collection.rename(format!("{database}.{to}"))).with_options(options).await?;
            None
        }
        other => return Err(unknown(&of, other)),
    })
}

fn unknown(of: &Object, name: &str) -> Reason {
    of.broken(format!("is of {name}, which is not called here")).into()
}

fn array<T: Into<Bson>>(values: Vec<T>) -> Bson {
    Bson::Array(values.into_iter().map(Into::into).collect())
}

fn run_command(mut of: Object) -> Result<RunCommand, Reason> {
    of.required("commandName", Node::string)?;
    let mut run = RunCommand::new(of.required("command", Node::document)?);
    if let Some(preference) = of.optional("readPreference", concerns::read_preference)? {
        run = run.read_preference(preference);
    }
    Ok(of.finish().map(|()| run)?)
}

pub(super) fn run_cursor_command(mut of: Object) -> Result<RunCursorCommand, Reason> {
    // One test leaves it out (client-side-operations-timeout, runCursorCommand.json).
    of.optional("commandName", Node::string)?;
    let preference = of.optional("readPreference", concerns::read_preference)?;
    let tailable = [("nonTailable", false), ("tailable", true), ("tailableAwait", true)];
    let is_tailable = of.optional("cursorType", |node| node.one_of(&tailable))?;
    let mut run = RunCursorCommand::from_document(of.rest())?;
    if let Some(preference) = preference {
        run = run.read_preference(preference);
    }
    match is_tailable.unwrap_or(false) {
        true => Ok(run.tailable()),
        false => Ok(run),
    }
}
