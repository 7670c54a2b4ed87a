//! Operations on clients and databases, and those on collections that are about the collection
//! itself and its indexes, as calls of the driver's interface.

use bson::{Bson, Document};
use sdam::driver::{
    Aggregate, Client, Collection, CreateCollection, CreateIndexes, CreateSearchIndexes, Database,
    DropCollection, DropDatabase, DropIndexes, DropSearchIndex, ListCollections, ListDatabases,
    ListIndexes, ListSearchIndexes, ModifyCollection, RenameCollection, RunCommand,
    RunCursorCommand, SearchIndexModel, UpdateSearchIndex,
};
use sdam_host::Runtime;

use super::bulk;
use super::call::preference_of;
use super::operate::{Reason, all};
use crate::unified::format::{Node, Object};

/// Runs an operation on a client.
pub(super) async fn on_client<R: Runtime>(
    client: &Client<R>,
    name: &str,
    mut of: Object,
) -> Result<Option<Bson>, Reason> {
    Ok(match name {
        "clientBulkWrite" => bulk::run(client, of).await?,
        "listDatabases" => {
            Some(array(client.list_databases(ListDatabases::from_document(of.rest())?).await?))
        }
        "listDatabaseNames" => {
            Some(array(client.list_database_names(ListDatabases::from_document(of.rest())?).await?))
        }
        "listDatabaseObjects" => {
            // A handle of each: that is how the driver gives out databases.
            let list = ListDatabases::from_document(of.rest())?;
            let names = client.list_database_names(list).await?;
            let databases: Vec<_> = names.iter().map(|name| client.database(name)).collect();
            Some(Bson::Array(databases.iter().map(|it| Bson::from(it.name())).collect()))
        }
        "dropDatabase" => {
            let database = client.database(&of.required("database", Node::string)?);
            database.drop(DropDatabase::from_document(of.rest())?).await?;
            None
        }
        other => return Err(unknown(&of, other)),
    })
}

/// Runs an operation on a database.
pub(super) async fn on_database<R: Runtime>(
    database: &Database<R>,
    name: &str,
    mut of: Object,
) -> Result<Option<Bson>, Reason> {
    Ok(match name {
        "runCommand" => Some(Bson::Document(database.run_command(run_command(of)?).await?)),
        "runCursorCommand" => {
            let cursor = database.run_cursor_command(run_cursor_command(of)?).await?;
            Some(all(cursor).await?)
        }
        "aggregate" => {
            Some(all(database.aggregate(Aggregate::from_document(of.rest())?).await?).await?)
        }
        "listCollections" => {
            let list = ListCollections::from_document(of.rest())?;
            Some(all(database.list_collections(list).await?).await?)
        }
        "listCollectionNames" => {
            let list = ListCollections::from_document(of.rest())?;
            Some(array(database.list_collection_names(list).await?))
        }
        "listCollectionObjects" => {
            let list = ListCollections::from_document(of.rest())?;
            let names = database.list_collection_names(list).await?;
            let collections = names.iter().map(|name| database.collection::<Document>(name));
            let names = collections.map(|it| Bson::from(it.name()));
            Some(Bson::Array(names.collect()))
        }
        "createCollection" => {
            database.create_collection(CreateCollection::from_document(of.rest())?).await?;
            None
        }
        "dropCollection" => {
            let collection = named(database, &mut of)?;
            collection.drop(DropCollection::from_document(of.rest())?).await?;
            None
        }
        "modifyCollection" => {
            let collection = named(database, &mut of)?;
            collection.modify_collection(ModifyCollection::from_document(of.rest())?).await?;
            None
        }
        "dropDatabase" => {
            database.drop(DropDatabase::from_document(of.rest())?).await?;
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
    name: &str,
    mut of: Object,
) -> Result<Option<Bson>, Reason> {
    Ok(match name {
        "createIndex" => {
            let create = CreateIndexes::from_document(of.rest())?;
            Some(Bson::String(collection.create_index(create).await?))
        }
        "dropIndex" => {
            let drop = DropIndexes::one(&of.required("name", Node::string)?);
            collection.drop_indexes(drop.with_options(of.rest())?).await?;
            None
        }
        "dropIndexes" => {
            collection.drop_indexes(DropIndexes::all().with_options(of.rest())?).await?;
            None
        }
        "listIndexes" => {
            let list = ListIndexes::from_document(of.rest())?;
            Some(all(collection.list_indexes(list).await?).await?)
        }
        "listIndexNames" => {
            Some(array(collection.list_index_names(ListIndexes::from_document(of.rest())?).await?))
        }
        "createSearchIndex" => {
            let index = of.required("model", Node::document)?;
            of.finish()?;
            let index = SearchIndexModel::from_document(index)?;
            let create = CreateSearchIndexes::new([index]);
            collection.create_search_indexes(create).await?.into_iter().next().map(Bson::String)
        }
        "createSearchIndexes" => {
            let create = CreateSearchIndexes::from_document(of.rest())?;
            Some(array(collection.create_search_indexes(create).await?))
        }
        "dropSearchIndex" => {
            collection.drop_search_index(DropSearchIndex::from_document(of.rest())?).await?;
            None
        }
        "listSearchIndexes" => {
            let list = ListSearchIndexes::from_document(of.rest())?;
            Some(all(collection.list_search_indexes(list).await?).await?)
        }
        "updateSearchIndex" => {
            collection.update_search_index(UpdateSearchIndex::from_document(of.rest())?).await?;
            None
        }
        "rename" => {
            let to = of.required("to", Node::string)?;
            let namespace = collection.namespace();
            let database = namespace.split_once('.').map_or("", |(database, _)| database);
            let rename = RenameCollection::new(format!("{database}.{to}"));
            collection.rename(rename.with_options(of.rest())?).await?;
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
    if let Some(preference) = of.optional("readPreference", Node::document)? {
        let preference = preference_of(&preference).map_err(|failed| of.broken(failed.message))?;
        run = run.read_preference(preference);
    }
    Ok(of.finish().map(|()| run)?)
}

pub(super) fn run_cursor_command(mut of: Object) -> Result<RunCursorCommand, Reason> {
    // One test leaves it out (client-side-operations-timeout, runCursorCommand.json).
    of.optional("commandName", Node::string)?;
    let preference = of.optional("readPreference", Node::document)?;
    let preference = preference.as_ref().map(preference_of).transpose();
    let preference = preference.map_err(|failed| of.broken(failed.message))?;
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
