//! A collection: documents in the order in which they came, and its indexes.

use std::collections::BTreeMap;
use std::sync::Arc;

use bson::{Bson, Document, doc};
use sdam_core::bson;

use super::{
    compare::{Collation, Key},
    error::StoreError,
    expression::{Context, is_true},
    filter::Filter,
    path,
};

/// An index, of which only names, and keys that must differ, matter here.
#[derive(Clone, Debug)]
pub(crate) struct Index {
    /// Its description, as `listIndexes` gives it.
    pub(crate) description: Document,
}

impl Index {
    pub(crate) fn name(&self) -> &str {
        self.description.get_str("name").unwrap_or_default()
    }

    pub(crate) fn keys(&self) -> Document {
        self.description.get_document("key").cloned().unwrap_or_default()
    }

    /// Returns whether another index has the same keys, and, if that matters, the same options.
    pub(crate) fn is_like(&self, other: &Self, by_options: bool) -> bool {
        const OPTIONS: [&str; 4] = ["unique", "sparse", "partialFilterExpression", "collation"];
        let option = |index: &Self, name: &str| index.description.get(name).cloned();
        let same = |name: &&str| option(self, name) == option(other, name);
        self.keys() == other.keys() && (!by_options || OPTIONS.iter().all(same))
    }

    /// Returns whether new documents must have other keys: also those that are to be unique soon.
    pub(crate) fn is_unique(&self) -> bool {
        let says = |name| self.description.get_bool(name).unwrap_or(false);
        says("unique") || says("prepareUnique")
    }

    /// Returns the keys of a document, unless a sparse index leaves it out.
    pub(crate) fn values(&self, document: &Document) -> Option<Document> {
        let keys = self.keys();
        let of = |path: &String| path::value(document, path);
        let is_sparse = self.description.get_bool("sparse").unwrap_or(false);
        if is_sparse && keys.keys().all(|path| of(path).is_none()) {
            return None;
        }
        Some(keys.keys().map(|path| (path.clone(), of(path).unwrap_or(Bson::Null))).collect())
    }
}

/// The option that has images of documents kept before and after their changes.
pub(crate) const PRE_AND_POST_IMAGES: &str = "changeStreamPreAndPostImages";

/// The older option for those before, by which servers since 6.0 keep both.
pub(crate) const PRE_IMAGES: &str = "recordPreImages";

/// Returns whether such an option is on.
fn keeps_images(option: &Bson) -> bool {
    match option {
        Bson::Document(fields) => is_true(fields.get("enabled")),
        flag => is_true(Some(flag)),
    }
}

/// A collection.
#[derive(Clone, Debug)]
pub(crate) struct Collection {
    /// The options that it was created with.
    pub(crate) options: Document,
    pub(crate) uuid: [u8; 16],
    pub(crate) indexes: Vec<Index>,
    documents: BTreeMap<u64, Arc<Document>>,
    /// The place of each document, by its `_id`.
    ids: BTreeMap<Key, u64>,
    /// The number of the next document.
    next: u64,
}

impl Collection {
    pub(crate) fn new(options: Document, uuid: [u8; 16]) -> Self {
        let description = doc! { "v": 2, "key": { "_id": 1 }, "name": "_id_" };
        let indexes = match options.contains_key("viewOn") {
            true => Vec::new(),
            false => vec![Index { description }],
        };
        let (documents, ids) = (BTreeMap::new(), BTreeMap::new());
        let mut collection =
            Self { options: Document::new(), uuid, indexes, documents, ids, next: 0 };
        collection.set_options(options);
        collection
    }

    /// Sets options. Of those that have images kept, one that is off is none, and one that is on
    /// takes the place of the other; a view has none of them.
    pub(crate) fn set_options(&mut self, options: Document) {
        let names = [PRE_AND_POST_IMAGES, PRE_IMAGES];
        if names.iter().filter_map(|it| options.get(it)).any(keeps_images) {
            names.iter().for_each(|it| drop(self.options.remove(it)));
        }
        self.options.extend(options);
        let is_view = self.options.contains_key("viewOn");
        for name in names {
            if is_view || !self.options.get(name).is_some_and(keeps_images) {
                self.options.remove(name);
            }
        }
        if self.options.contains_key(PRE_IMAGES) {
            self.options.insert(PRE_IMAGES, true);
        }
    }

    /// Returns the kind that `listCollections` says it is of.
    pub(crate) fn kind(&self) -> &'static str {
        if self.options.contains_key("viewOn") { "view" } else { "collection" }
    }

    /// Returns its id, as change streams report it: views have none.
    pub(crate) fn reported_uuid(&self) -> Option<[u8; 16]> {
        (self.kind() == "collection").then_some(self.uuid)
    }

    /// Returns whether it keeps the images of documents before and after their changes.
    pub(crate) fn has_images(&self) -> bool {
        let options = [PRE_AND_POST_IMAGES, PRE_IMAGES].into_iter();
        options.filter_map(|it| self.options.get(it)).any(keeps_images)
    }

    pub(crate) fn is_capped(&self) -> bool {
        self.options.get_bool("capped").unwrap_or(false)
    }

    pub(crate) fn len(&self) -> usize {
        self.documents.len()
    }

    /// Returns the number that the next document gets.
    pub(crate) const fn next(&self) -> u64 {
        self.next
    }

    /// Returns the documents in their order.
    pub(crate) fn documents(&self) -> impl Iterator<Item = (u64, &Arc<Document>)> {
        self.documents.iter().map(|(record, document)| (*record, document))
    }

    /// Returns the documents from a number on.
    pub(crate) fn since(&self, record: u64) -> impl Iterator<Item = (u64, &Arc<Document>)> {
        self.documents.range(record..).map(|(record, document)| (*record, document))
    }

    /// Returns the document with this `_id`.
    pub(crate) fn by_id(&self, id: &Bson) -> Option<&Arc<Document>> {
        self.documents.get(self.ids.get(&Key(id.clone()))?)
    }

    pub(crate) fn get(&self, record: u64) -> Option<&Arc<Document>> {
        self.documents.get(&record)
    }

    /// Returns the documents that a filter finds, with their numbers, in their order.
    ///
    /// # Errors
    ///
    /// Fails if an expression does.
    pub(crate) fn find(
        &self,
        filter: &Filter,
        context: &Context,
    ) -> Result<Vec<(u64, Arc<Document>)>, StoreError> {
        let by_id = filter.single_id().filter(|_| context.collation == Collation::Simple);
        let mut found = Vec::new();
        if let Some(id) = by_id {
            let record = self.ids.get(&Key(id.clone())).copied();
            let document = record.and_then(|it| Some((it, self.documents.get(&it)?)));
            if let Some((record, document)) = document
                && filter.matches(document, context)?
            {
                found.push((record, Arc::clone(document)));
            }
            return Ok(found);
        }
        for (record, document) in self.documents() {
            if filter.matches(document, context)? {
                found.push((record, Arc::clone(document)));
            }
        }
        Ok(found)
    }

    /// Checks that a document may stand at a number: that no other has its unique keys.
    ///
    /// # Errors
    ///
    /// Fails with code 11000 if one has.
    pub(crate) fn check_unique(
        &self,
        namespace: &str,
        record: u64,
        document: &Document,
    ) -> Result<(), StoreError> {
        let id = Key(document.get("_id").cloned().unwrap_or(Bson::Null));
        if self.ids.get(&id).is_some_and(|it| *it != record) {
            let (keys, values) = (doc! { "_id": 1 }, doc! { "_id": id.0 });
            return Err(StoreError::duplicate(namespace, "_id_", &keys, &values));
        }
        for index in self.indexes.iter().filter(|it| it.is_unique()) {
            self.check_index(namespace, index, record, document)?;
        }
        Ok(())
    }

    fn check_index(
        &self,
        namespace: &str,
        index: &Index,
        record: u64,
        document: &Document,
    ) -> Result<(), StoreError> {
        let Some(values) = index.values(document) else { return Ok(()) };
        let key = Key(values.clone().into());
        let others = self.documents.iter().filter(|(other, _)| **other != record);
        let mut others = others.filter_map(|(_, other)| index.values(other));
        match others.any(|other| Key(other.into()) == key) {
            true => Err(StoreError::duplicate(namespace, index.name(), &index.keys(), &values)),
            false => Ok(()),
        }
    }

    /// Returns the numbers of the documents that have a unique key of this one.
    pub(crate) fn rivals(&self, document: &Document) -> Vec<u64> {
        let id = document.get("_id").and_then(|id| self.ids.get(&Key(id.clone())));
        let is_rival = |it: &(&u64, &Arc<Document>)| self.shares_index_key(it.1, document);
        let has_others = self.indexes.iter().any(Index::is_unique);
        let others = self.documents.iter().filter(|_| has_others).filter(is_rival);
        id.into_iter().chain(others.map(|(record, _)| record)).copied().collect()
    }

    /// Returns whether two documents have a unique key in common.
    pub(crate) fn shares_key(&self, one: &Document, other: &Document) -> bool {
        let id = |of: &Document| of.get("_id").map(|id| Key(id.clone()));
        id(one) == id(other) || self.shares_index_key(one, other)
    }

    fn shares_index_key(&self, one: &Document, other: &Document) -> bool {
        self.indexes.iter().filter(|it| it.is_unique()).any(|index| {
            let key = |of| index.values(of).map(|values| Key(values.into()));
            key(one).is_some_and(|one| Some(one) == key(other))
        })
    }

    /// Checks that a new index can be built.
    ///
    /// # Errors
    ///
    /// Fails with code 11000 if it is unique and two documents have the same key.
    pub(crate) fn check_new_index(&self, namespace: &str, index: &Index) -> Result<(), StoreError> {
        if index.is_unique() {
            for (record, document) in &self.documents {
                self.check_index(namespace, index, *record, document)?;
            }
        }
        Ok(())
    }

    /// Returns the `_id`s of the documents that have the same key in an index, by key.
    pub(crate) fn duplicates(&self, index: &Index) -> Vec<Vec<Bson>> {
        let mut by_key: BTreeMap<Key, Vec<Bson>> = BTreeMap::new();
        for document in self.documents.values() {
            if let Some(values) = index.values(document) {
                let id = document.get("_id").cloned().unwrap_or(Bson::Null);
                by_key.entry(Key(values.into())).or_default().push(id);
            }
        }
        by_key.into_values().filter(|ids| ids.len() > 1).collect()
    }

    /// Puts a document in a place, or nothing; what is checked elsewhere is not checked here.
    pub(crate) fn put(&mut self, record: u64, document: Option<Arc<Document>>) {
        if let Some(before) = self.documents.remove(&record)
            && let Some(id) = before.get("_id")
        {
            self.ids.remove(&Key(id.clone()));
        }
        if let Some(document) = document {
            if let Some(id) = document.get("_id") {
                self.ids.insert(Key(id.clone()), record);
            }
            self.documents.insert(record, document);
            self.next = self.next.max(record + 1);
        }
    }

    /// Returns the oldest documents that are more than a capped collection may have.
    pub(crate) fn surplus(&self) -> Vec<u64> {
        let max = self.options.get("max").and_then(super::compare::whole);
        let max = max.filter(|it| *it > 0 && self.is_capped());
        let max = max.and_then(|it| usize::try_from(it).ok()).unwrap_or(usize::MAX);
        self.documents.keys().copied().take(self.len().saturating_sub(max)).collect()
    }
}
