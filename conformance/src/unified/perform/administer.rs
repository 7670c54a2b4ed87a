//! Operations on clients and databases, and those on collections that are about the collection
//! itself and its indexes, as calls of the driver's interface.

use bson::{Bson, Document};
use sdam_driver::{
    Client, Collection, CreateCollection, CreateIndexes, CursorType, Database, DropCollection,
    DropDatabase, DropIndexes, IndexModel, ListCollections, ListDatabases, ListIndexes,
    ModifyCollection, RenameCollection, RunCommand, RunCursorCommand,
};
use sdam_host::Runtime;

use super::call::preference_of;
use super::crud::{self, cursor_type, documents, int, millis, set, timeout_mode};
use super::operate::{Reason, Result, all};
use super::{bulk, search};
use crate::unified::format::{Node, Object};

/// Runs an operation on a client.
pub(super) async fn on_client<R: Runtime>(
    client: &Client<R>,
    name: &str,
    mut of: Object,
) -> Result<Option<Bson>, Reason> {
    Ok(match name {
        "clientBulkWrite" => bulk::run(client, of).await?,
        "listDatabases" => Some(array(client.list_databases(list_databases(of)?).await?)),
        "listDatabaseNames" => Some(array(client.list_database_names(list_databases(of)?).await?)),
        "listDatabaseObjects" => {
            // A handle of each: that is how the driver gives out databases.
            let names = client.list_database_names(list_databases(of)?).await?;
            let databases: Vec<_> = names.iter().map(|name| client.database(name)).collect();
            Some(Bson::Array(databases.iter().map(|it| Bson::from(it.name())).collect()))
        }
        "dropDatabase" => {
            let database = client.database(&of.required("database", Node::string)?);
            database.drop(drop_database(of)?).await?;
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
        "aggregate" => Some(all(database.aggregate(crud::aggregate(of)?).await?).await?),
        "listCollections" => {
            Some(all(database.list_collections(list_collections(of)?).await?).await?)
        }
        "listCollectionNames" => {
            Some(array(database.list_collection_names(list_collections(of)?).await?))
        }
        "listCollectionObjects" => {
            let names = database.list_collection_names(list_collections(of)?).await?;
            let collections = names.iter().map(|name| database.collection::<Document>(name));
            let names = collections.map(|it| Bson::from(it.name()));
            Some(Bson::Array(names.collect()))
        }
        "createCollection" => {
            database.create_collection(create_collection(of)?).await?;
            None
        }
        "dropCollection" => {
            let collection = of.required("collection", Node::string)?;
            let mut drop = DropCollection::new();
            set!(of, drop: comment "comment" Node::any);
            of.finish()?;
            database.collection::<Document>(&collection).drop(drop).await?;
            None
        }
        "modifyCollection" => {
            let collection = of.required("collection", Node::string)?;
            let modify = modify_collection(of)?;
            database.collection::<Document>(&collection).modify_collection(modify).await?;
            None
        }
        "dropDatabase" => {
            database.drop(drop_database(of)?).await?;
            None
        }
        other => return Err(unknown(&of, other)),
    })
}

/// Runs an operation on a collection that is about itself or its indexes.
pub(super) async fn on_collection<R: Runtime>(
    collection: &Collection<R>,
    name: &str,
    mut of: Object,
) -> Result<Option<Bson>, Reason> {
    Ok(match name {
        "createIndex" => Some(Bson::String(collection.create_index(create_index(of)?).await?)),
        "dropIndex" => {
            let name = of.required("name", Node::string)?;
            collection.drop_index(drop_indexes(of, DropIndexes::one(&name))?).await?;
            None
        }
        "dropIndexes" => {
            collection.drop_indexes(drop_indexes(of, DropIndexes::all())?).await?;
            None
        }
        "listIndexes" => Some(all(collection.list_indexes(list_indexes(of)?).await?).await?),
        "listIndexNames" => Some(array(collection.list_index_names(list_indexes(of)?).await?)),
        "createSearchIndex" => search::create_one(collection, of).await?,
        "createSearchIndexes" => search::create(collection, of).await?,
        "dropSearchIndex" => search::drop(collection, of).await?,
        "listSearchIndexes" => search::list(collection, of).await?,
        "updateSearchIndex" => search::update(collection, of).await?,
        "rename" => {
            let to = of.required("to", Node::string)?;
            let namespace = collection.namespace();
            let database = namespace.split_once('.').map_or("", |(database, _)| database);
            let mut rename = RenameCollection::new(format!("{database}.{to}"));
            set!(of, rename: comment "comment" Node::any, drop_target "dropTarget" Node::boolean);
            of.finish()?;
            collection.rename(rename).await?;
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
    let mut run = RunCursorCommand::new(of.required("command", Node::document)?);
    if let Some(preference) = of.optional("readPreference", Node::document)? {
        let preference = preference_of(&preference).map_err(|failed| of.broken(failed.message))?;
        run = run.read_preference(preference);
    }
    if of.optional("cursorType", cursor_type)?.is_some_and(|it| it != CursorType::NonTailable) {
        run = run.tailable();
    }
    set!(of, run: batch_size "batchSize" int, comment "comment" Node::any,
        max_time "maxTimeMS" millis, timeout_mode "timeoutMode" timeout_mode);
    Ok(of.finish().map(|()| run)?)
}

fn list_databases(mut of: Object) -> Result<ListDatabases> {
    let mut list = ListDatabases::new();
    set!(of, list: authorized_databases "authorizedDatabases" Node::boolean,
        comment "comment" Node::any, filter "filter" Node::document);
    of.finish().map(|()| list)
}

fn drop_database(mut of: Object) -> Result<DropDatabase> {
    let mut drop = DropDatabase::new();
    set!(of, drop: comment "comment" Node::any);
    of.finish().map(|()| drop)
}

fn list_collections(mut of: Object) -> Result<ListCollections> {
    let mut list = ListCollections::new();
    set!(of, list: authorized_collections "authorizedCollections" Node::boolean,
        batch_size "batchSize" int, comment "comment" Node::any, filter "filter" Node::document,
        max_time "maxTimeMS" millis, raw_data "rawData" Node::boolean,
        timeout_mode "timeoutMode" timeout_mode);
    of.finish().map(|()| list)
}

fn create_collection(mut of: Object) -> Result<CreateCollection> {
    let mut create = CreateCollection::new(of.required("collection", Node::string)?);
    set!(of, create: capped "capped" Node::boolean,
        change_stream_pre_and_post_images "changeStreamPreAndPostImages" Node::document,
        clustered_index "clusteredIndex" Node::document, collation "collation" Node::document,
        comment "comment" Node::any, encrypted_fields "encryptedFields" Node::document,
        expire_after_seconds "expireAfterSeconds" Node::integer, max "max" Node::integer,
        max_time "maxTimeMS" millis, pipeline "pipeline" documents, size "size" Node::integer,
        timeseries "timeseries" Node::document, validator "validator" Node::document);
    if let Some(name) = of.optional("viewOn", Node::string)? {
        create = create.view_on(&name);
    }
    of.finish().map(|()| create)
}

fn modify_collection(mut of: Object) -> Result<ModifyCollection> {
    let mut modify = ModifyCollection::new();
    set!(of, modify: comment "comment" Node::any, index "index" Node::document,
        change_stream_pre_and_post_images "changeStreamPreAndPostImages" Node::document,
        validator "validator" Node::document);
    of.finish().map(|()| modify)
}

fn create_index(mut of: Object) -> Result<CreateIndexes> {
    let mut index = IndexModel::new(of.required("keys", Node::document)?);
    set!(of, index: collation "collation" Node::document,
        expire_after_seconds "expireAfterSeconds" int, hidden "hidden" Node::boolean,
        partial_filter_expression "partialFilterExpression" Node::document,
        sparse "sparse" Node::boolean, unique "unique" Node::boolean);
    if let Some(name) = of.optional("name", Node::string)? {
        index = index.name(&name);
    }
    let mut create = CreateIndexes::new([index]);
    set!(of, create: comment "comment" Node::any, commit_quorum "commitQuorum" Node::any,
        max_time "maxTimeMS" millis, raw_data "rawData" Node::boolean);
    of.finish().map(|()| create)
}

fn drop_indexes(mut of: Object, mut drop: DropIndexes) -> Result<DropIndexes> {
    set!(of, drop: comment "comment" Node::any, max_time "maxTimeMS" millis,
        raw_data "rawData" Node::boolean);
    of.finish().map(|()| drop)
}

fn list_indexes(mut of: Object) -> Result<ListIndexes> {
    let mut list = ListIndexes::new();
    set!(of, list: batch_size "batchSize" int, comment "comment" Node::any,
        max_time "maxTimeMS" millis, raw_data "rawData" Node::boolean,
        timeout_mode "timeoutMode" timeout_mode);
    of.finish().map(|()| list)
}
