//! Writes to the catalogue: collections, their options and their indexes.

use std::sync::Arc;

use bson::{Document, doc};
use sdam_core::bson;

use super::{
    catalog::Change,
    collection::{Collection, Index},
    definition::{Definition, Kind},
    error::StoreError,
    names::check_namespace,
    writer::Writer,
};

impl Writer<'_> {
    /// Creates a collection.
    ///
    /// # Errors
    ///
    /// Fails if there is one of that name, or if it is no name.
    pub(crate) fn create(&mut self, namespace: &str, options: Document) -> Result<(), StoreError> {
        check_namespace(namespace)?;
        if self.store.collection(namespace).is_some() {
            let reason = format!("Collection {namespace} already exists.");
            return Err(StoreError::new(48, reason));
        }
        if self.limits.is_some_and(|it| !it.creates) {
            let reason =
                format!("Cannot create namespace {namespace} in multi-document transaction.");
            return Err(StoreError::not_in_transaction(reason));
        }
        let collection = Collection::new(options.clone(), self.random());
        let (uuid, mut what) = (collection.reported_uuid(), options);
        if let Some(index) = collection.indexes.first() {
            what.insert("idIndex", index.description.clone());
        }
        self.replace(namespace, Some(collection));
        self.define(namespace, Kind::Create, uuid, what);
        Ok(())
    }

    /// Drops a collection, and returns how many indexes it had.
    pub(crate) fn drop(&mut self, namespace: &str) -> Option<usize> {
        let collection = self.store.collection(namespace)?;
        let (indexes, uuid) = (collection.indexes.len(), collection.reported_uuid());
        self.replace(namespace, None);
        self.define(namespace, Kind::Drop, uuid, Document::new());
        Some(indexes)
    }

    /// Drops all collections of a database, and returns whether there were any.
    pub(crate) fn drop_database(&mut self, database: &str) -> bool {
        let all = self.store.of_database(database);
        let all: Vec<String> = all.map(|(name, _)| format!("{database}.{name}")).collect();
        let dropped = all.iter().filter_map(|it| self.drop(it)).count() > 0;
        if dropped {
            self.define(database, Kind::DropDatabase, None, Document::new());
        }
        dropped
    }

    /// Gives a collection another name.
    ///
    /// # Errors
    ///
    /// Fails if there is none, or one of the new name that is not to be dropped.
    pub(crate) fn rename(
        &mut self,
        from: &str,
        to: &str,
        drops_target: bool,
    ) -> Result<(), StoreError> {
        check_namespace(to)?;
        let Some(collection) = self.store.collection(from).cloned() else {
            let reason = format!("Source collection {from} does not exist");
            return Err(StoreError::new(26, reason));
        };
        if self.store.collection(to).is_some() && !drops_target {
            return Err(StoreError::new(48, "target namespace exists"));
        }
        let uuid = collection.reported_uuid();
        let dropped = self.store.collection(to).map(|it| it.uuid);
        self.replace(from, None);
        self.replace(to, Some(Collection::clone(&collection)));
        let kind = Kind::Rename { to: to.into(), dropped };
        self.define(from, kind, uuid, Document::new());
        Ok(())
    }

    /// Changes options of a collection, by a command that says what is to change.
    ///
    /// # Errors
    ///
    /// Fails if there is no such collection.
    pub(crate) fn modify(
        &mut self,
        namespace: &str,
        options: Document,
        what: Document,
    ) -> Result<(), StoreError> {
        let mut collection = self.collection(namespace)?.clone();
        let kind = Kind::Modify { before: collection.options.clone() };
        let uuid = collection.reported_uuid();
        collection.set_options(options);
        self.replace(namespace, Some(collection));
        self.define(namespace, kind, uuid, what);
        Ok(())
    }

    /// Has a collection distributed over shards by a key, and made if there is none.
    ///
    /// # Errors
    ///
    /// Fails if it cannot be made.
    pub(crate) fn shard(&mut self, namespace: &str, key: &Document) -> Result<(), StoreError> {
        self.ensure(namespace)?;
        let uuid = self.collection(namespace)?.reported_uuid();
        let what = doc! {
            "shardKey": key.clone(),
            "unique": false,
            "numInitialChunks": 0_i64,
            "presplitHashedZones": false,
        };
        self.define(namespace, Kind::ShardCollection, uuid, what);
        Ok(())
    }

    /// Changes what an index is like.
    ///
    /// # Errors
    ///
    /// Fails if there is no such collection; without that index nothing changes.
    pub(crate) fn modify_index(
        &mut self,
        namespace: &str,
        name: &str,
        change: impl FnOnce(&mut Document),
    ) -> Result<(), StoreError> {
        let mut collection = self.collection(namespace)?.clone();
        if let Some(index) = collection.indexes.iter_mut().find(|it| it.name() == name) {
            change(&mut index.description);
        }
        self.replace(namespace, Some(collection));
        Ok(())
    }

    /// Creates indexes, and returns how many there were and are.
    ///
    /// # Errors
    ///
    /// Fails if one has no keys or no name, or the name of another, or if it cannot be unique.
    pub(crate) fn create_indexes(
        &mut self,
        namespace: &str,
        descriptions: Vec<Document>,
    ) -> Result<(usize, usize), StoreError> {
        self.ensure(namespace)?;
        let mut collection = self.collection(namespace)?.clone();
        let before = collection.indexes.len();
        for description in descriptions {
            let index = Index { description };
            if index.name().is_empty() || index.keys().is_empty() {
                let reason = "The field 'name' and 'key' are required properties of an index";
                return Err(StoreError::new(9, reason));
            }
            let same_name = collection.indexes.iter().find(|it| it.name() == index.name());
            let by_options = self.is_since_5_0;
            let same_keys = collection.indexes.iter().find(|it| it.is_like(&index, by_options));
            match (same_name, same_keys) {
                (Some(known), _) if known.keys() != index.keys() => {
                    let reason = format!(
                        "An existing index has the same name as the requested index: {}",
                        index.name()
                    );
                    return Err(StoreError::new(86, reason));
                }
                (None, Some(known)) => {
                    let reason =
                        format!("Index already exists with a different name: {}", known.name());
                    return Err(StoreError::new(85, reason));
                }
                (Some(_), _) => {}
                (None, None) => {
                    collection.check_new_index(namespace, &index)?;
                    collection.indexes.push(index);
                }
            }
        }
        let after = collection.indexes.len();
        if after != before {
            let new = collection.indexes[before..].iter().map(|it| it.description.clone());
            let new: Vec<Document> = new.collect();
            // Those of an empty collection are built one by one.
            let at_once = if collection.len() == 0 { 1 } else { new.len() };
            let uuid = collection.reported_uuid();
            self.replace(namespace, Some(collection));
            for indexes in new.chunks(at_once) {
                let what = doc! { "indexes": indexes };
                self.define(namespace, Kind::CreateIndexes, uuid, what);
            }
        }
        Ok((before, after))
    }

    /// Drops the indexes that are meant, and returns how many there were.
    ///
    /// # Errors
    ///
    /// Fails if there is no such collection.
    pub(crate) fn drop_indexes(
        &mut self,
        namespace: &str,
        is_meant: impl Fn(&Index) -> bool,
    ) -> Result<usize, StoreError> {
        let Some(collection) = self.store.collection(namespace) else {
            return Err(StoreError::new(26, format!("ns not found {namespace}")));
        };
        let mut collection = Collection::clone(collection);
        let before = collection.indexes.clone();
        collection.indexes.retain(|index| index.name() == "_id_" || !is_meant(index));
        let stays = |it: &&Index| collection.indexes.iter().any(|kept| kept.name() == it.name());
        let dropped: Vec<_> = before.iter().rev().filter(|it| !stays(it)).collect();
        let uuid = collection.reported_uuid();
        self.replace(namespace, Some(collection));
        for index in dropped {
            let what = doc! { "indexes": [index.description.clone()] };
            self.define(namespace, Kind::DropIndexes, uuid, what);
        }
        Ok(before.len())
    }

    /// Puts another collection in the place of one, or none.
    fn replace(&mut self, namespace: &str, collection: Option<Collection>) {
        let before = self.store.collection(namespace).cloned();
        let after = collection.map(Arc::new);
        self.take(Change::Collection { namespace: namespace.into(), before, after });
    }

    /// Notes what the changes of collections before it were by name.
    fn define(&mut self, namespace: &str, kind: Kind, uuid: Option<[u8; 16]>, what: Document) {
        let definition = Definition::new(namespace, kind, uuid, what);
        self.take(Change::Definition(Arc::new(definition)));
    }
}
