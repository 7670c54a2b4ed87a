//! Writes: each is done at once, and what it changes is noted.

use std::sync::Arc;

use bson::oid::ObjectId;
use bson::{Bson, Document, doc};
use sdam_core::bson;
use sdam_core::rng::Rng;

use super::{
    catalog::{Change, Edit, Note, Store},
    collection::Collection,
    error::StoreError,
    expression::Context,
    filter::Filter,
    path::is_too_deep,
    session::Session,
    sort::Sort,
    update::Update,
};

/// The largest document, in bytes, as the members say in hello.
const MAX_BSON_OBJECT_SIZE: usize = 16 << 20;

/// The number of levels of documents and arrays that a document which is kept may have.
const MAX_KEPT_LEVELS: usize = 181;

/// The reason why an update fails that makes a document too large.
const TOO_LARGE: &str = "Resulting document after update is larger than 16777216";

/// Writes that belong together.
#[derive(Debug)]
pub(crate) struct Writer<'a> {
    pub(super) store: &'a mut Store,
    rng: &'a mut Rng,
    /// The time that new ids begin with, in seconds since the Unix epoch.
    seconds: u32,
    /// The server is 5.0 or newer: names of fields may begin with a dollar sign, and indexes have
    /// the same keys if their options differ.
    pub(super) is_since_5_0: bool,
    /// Documents need not be what collections demand.
    pub(crate) bypasses_validation: bool,
    /// It writes within a transaction.
    pub(crate) limits: Option<Limits>,
    changes: Vec<Change>,
}

/// The limits of what a transaction may write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// It may create collections, as it may since 4.4.
    pub(crate) creates: bool,
}

/// A statement that changes documents.
#[derive(Clone, Debug)]
pub(crate) struct UpdateStatement {
    pub(crate) filter: Filter,
    pub(crate) update: Update,
    /// All documents that are found are meant, not the first.
    pub(crate) multi: bool,
    /// If none is found, one is made.
    pub(crate) upsert: bool,
    /// The order that says which document is the first.
    pub(crate) sort: Sort,
}

/// The outcome of a statement.
#[derive(Clone, Debug, Default)]
pub(crate) struct Updated {
    pub(crate) found: usize,
    pub(crate) modified: usize,
    /// The `_id` of the document that was made.
    pub(crate) upserted: Option<Bson>,
    /// The last document that was found, and what became of it.
    pub(crate) before: Option<Arc<Document>>,
    pub(crate) after: Option<Arc<Document>>,
}

impl<'a> Writer<'a> {
    pub(crate) fn new(
        store: &'a mut Store,
        rng: &'a mut Rng,
        seconds: u32,
        is_since_5_0: bool,
    ) -> Self {
        let changes = Vec::new();
        Self {
            store,
            rng,
            seconds,
            is_since_5_0,
            bypasses_validation: false,
            limits: None,
            changes,
        }
    }

    /// Returns what has been changed so far.
    pub(crate) fn into_changes(self) -> Vec<Change> {
        self.changes
    }

    pub(crate) const fn store(&self) -> &Store {
        self.store
    }

    pub(super) fn take(&mut self, change: Change) {
        self.store.take(&change, true);
        self.changes.push(change);
    }

    pub(super) fn random(&mut self) -> [u8; 16] {
        let (high, low) = (self.rng.next_u64(), self.rng.next_u64());
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&high.to_be_bytes());
        bytes[8..].copy_from_slice(&low.to_be_bytes());
        // Version 4, variant 1 (RFC 9562).
        bytes[6] = bytes[6] & 0x0f | 0x40;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        bytes
    }

    fn new_id(&mut self) -> ObjectId {
        let mut bytes = [0; 12];
        bytes[..4].copy_from_slice(&self.seconds.to_be_bytes());
        bytes[4..].copy_from_slice(&self.rng.next_u64().to_be_bytes());
        ObjectId::from_bytes(bytes)
    }

    /// Creates a collection unless there is one.
    pub(super) fn ensure(&mut self, namespace: &str) -> Result<(), StoreError> {
        match self.store.collection(namespace) {
            Some(_) => Ok(()),
            None => self.create(namespace, Document::new()),
        }
    }

    /// Returns a collection, borrowed: a clone of its `Arc` would make each write copy it.
    pub(super) fn collection(&self, namespace: &str) -> Result<&Collection, StoreError> {
        let collection = self.store.collection(namespace);
        collection.map(|it| &**it).ok_or_else(|| StoreError::new(26, "ns does not exist"))
    }

    /// Notes what a session has done.
    pub(crate) fn note_session(&mut self, id: &[u8], session: Session) {
        let before = self.store.session(id).cloned();
        let after = Some(Arc::new(session));
        self.take(Change::Session { id: id.to_vec(), before, after });
    }

    /// Inserts a document, with an `_id` if it has none.
    ///
    /// # Errors
    ///
    /// Fails if the document cannot be stored.
    pub(crate) fn insert(
        &mut self,
        namespace: &str,
        document: Document,
        context: &Context,
    ) -> Result<(), StoreError> {
        check_size(&document, 2, "object to insert too large, max size: 16777216")?;
        self.check(&document)?;
        self.ensure(namespace)?;
        let document = match document.keys().position(|name| name == "_id") {
            Some(0) => document,
            _ => {
                let mut document = document;
                let id = document.remove("_id").unwrap_or_else(|| self.new_id().into());
                let mut whole = doc! { "_id": id };
                whole.extend(document);
                whole
            }
        };
        let record = self.collection(namespace)?.next();
        self.put(namespace, record, (None, document), Edit::Whole, context)?;
        let surplus = self.store.collection(namespace).map(|it| it.surplus());
        for record in surplus.unwrap_or_default() {
            self.remove(namespace, record);
        }
        Ok(())
    }

    /// Puts a document in a place, if the collection takes it.
    fn put(
        &mut self,
        namespace: &str,
        record: u64,
        (before, document): (Option<Arc<Document>>, Document),
        edit: Edit,
        context: &Context,
    ) -> Result<Arc<Document>, StoreError> {
        self.check_capped(namespace)?;
        let collection = self.collection(namespace)?;
        let note = Note { uuid: collection.uuid, edit, has_images: collection.has_images() };
        self.validate(collection, before.as_deref(), &document, context)?;
        collection.check_unique(namespace, record, &document)?;
        let document = Arc::new(document);
        let after = Some(Arc::clone(&document));
        self.take(Change::Document { namespace: namespace.into(), record, before, after, note });
        Ok(document)
    }

    /// Checks that a transaction does not write to a capped collection.
    fn check_capped(&self, namespace: &str) -> Result<(), StoreError> {
        let is_capped = self.store.collection(namespace).is_some_and(|it| it.is_capped());
        match is_capped && self.limits.is_some() {
            true => {
                let reason = format!(
                    "Collection '{namespace}' is a capped collection. Writes in transactions are \
                     not allowed on capped collections."
                );
                Err(StoreError::not_in_transaction(reason))
            }
            false => Ok(()),
        }
    }

    fn remove(&mut self, namespace: &str, record: u64) {
        let Some(collection) = self.store.collection(namespace) else { return };
        let (uuid, has_images) = (collection.uuid, collection.has_images());
        let note = Note { uuid, edit: Edit::Whole, has_images };
        let before = collection.get(record).cloned();
        let namespace = namespace.into();
        self.take(Change::Document { namespace, record, before, after: None, note });
    }

    /// Checks that a document is not nested more deeply than servers keep: 180 levels within each
    /// other, and the document around them since 5.0.
    fn check_levels(&self, document: &Document) -> Result<(), StoreError> {
        let most = if self.is_since_5_0 { MAX_KEPT_LEVELS } else { MAX_KEPT_LEVELS - 1 };
        match is_too_deep(document, most) {
            true => Err(StoreError::too_deep(180)),
            false => Ok(()),
        }
    }

    /// Checks what every document must be like.
    fn check(&self, document: &Document) -> Result<(), StoreError> {
        self.check_levels(document)?;
        let dollar = document.keys().find(|name| name.starts_with('$'));
        if let Some(name) = dollar.filter(|_| !self.is_since_5_0) {
            let reason = format!("Document can't have $ prefixed field names: {name}");
            return Err(StoreError::bad_value(reason));
        }
        match document.get("_id") {
            Some(Bson::Array(_)) => {
                let code = if self.is_since_5_0 { 53 } else { 2 };
                Err(StoreError::new(code, "The '_id' value cannot be of type array"))
            }
            Some(Bson::RegularExpression(_) | Bson::Undefined) => {
                Err(StoreError::bad_value("can't use a regex or undefined for _id"))
            }
            Some(Bson::Document(id)) => match id.keys().find(|name| name.starts_with('$')) {
                Some(name) => {
                    let reason = format!(
                        "_id fields may not contain '$'-prefixed fields: {name} is not valid for \
                         storage."
                    );
                    Err(StoreError::new(52, reason))
                }
                None => Ok(()),
            },
            _ => Ok(()),
        }
    }

    /// Checks that a document is what its collection demands.
    fn validate(
        &self,
        collection: &Collection,
        before: Option<&Document>,
        document: &Document,
        context: &Context,
    ) -> Result<(), StoreError> {
        let option = |name: &str| collection.options.get_str(name).ok();
        let only_warns = option("validationAction") == Some("warn");
        let level = option("validationLevel").unwrap_or("strict");
        let Ok(validator) = collection.options.get_document("validator") else { return Ok(()) };
        if self.bypasses_validation || only_warns || level == "off" {
            return Ok(());
        }
        let filter = Filter::parse(validator, context)?;
        if filter.matches(document, context)? {
            return Ok(());
        }
        // What was wrong before may stay so.
        if let Some(before) = before.filter(|_| level == "moderate")
            && !filter.matches(before, context)?
        {
            return Ok(());
        }
        let mut error = StoreError::new(121, "Document failed validation");
        if self.is_since_5_0 {
            let mut info = doc! { "details": { "operatorName": "validator" } };
            if let Some(id) = document.get("_id") {
                info.insert("failingDocumentId", id.clone());
            }
            error.details.insert("errInfo", info);
        }
        Err(error)
    }

    /// Changes documents.
    ///
    /// # Errors
    ///
    /// Fails if a document cannot become what it would be; those before it have been changed.
    pub(crate) fn update(
        &mut self,
        namespace: &str,
        statement: &UpdateStatement,
        context: &Context,
    ) -> Result<Updated, StoreError> {
        let found =
            self.found(namespace, &statement.filter, statement.multi, &statement.sort, context)?;
        let mut updated = Updated { found: found.len(), ..Updated::default() };
        for (record, before) in found {
            let after = statement.update.apply(&before, false, context)?;
            self.check_levels(&after)?;
            check_size(&after, 17419, TOO_LARGE)?;
            updated.before = Some(Arc::clone(&before));
            if after == *before && statement.update.may_change_nothing() {
                updated.after = Some(before);
                continue;
            }
            let (edit, change) = (statement.update.edit(), (Some(before), after));
            let document = self.put(namespace, record, change, edit, context)?;
            updated.after = Some(document);
            updated.modified += 1;
        }
        if updated.found == 0 && statement.upsert {
            let document = self.upserted(namespace, statement, context)?;
            updated.upserted = document.get("_id").cloned();
            updated.after = Some(document);
        }
        Ok(updated)
    }

    fn upserted(
        &mut self,
        namespace: &str,
        statement: &UpdateStatement,
        context: &Context,
    ) -> Result<Arc<Document>, StoreError> {
        let mut seed = Document::new();
        statement.filter.seed(&mut seed);
        if statement.update.is_replacement() {
            let id = seed.remove("_id");
            seed = id.into_iter().map(|id| ("_id".to_owned(), id)).collect();
        }
        let mut document = statement.update.apply(&seed, true, context)?;
        self.check_levels(&document)?;
        let id = document.remove("_id").unwrap_or_else(|| self.new_id().into());
        let mut whole = doc! { "_id": id };
        whole.extend(document);
        check_size(&whole, 17420, "Document to upsert is larger than 16777216")?;
        self.check(&whole)?;
        self.ensure(namespace)?;
        let record = self.collection(namespace)?.next();
        self.put(namespace, record, (None, whole), Edit::Whole, context)
    }

    /// Removes documents, and returns the last of them and how many there were.
    ///
    /// # Errors
    ///
    /// Fails if the filter does.
    pub(crate) fn delete(
        &mut self,
        namespace: &str,
        filter: &Filter,
        all: bool,
        sort: &Sort,
        context: &Context,
    ) -> Result<(usize, Option<Arc<Document>>), StoreError> {
        self.check_capped(namespace)?;
        let found = self.found(namespace, filter, all, sort, context)?;
        let last = found.last().map(|(_, document)| Arc::clone(document));
        for (record, _) in &found {
            self.remove(namespace, *record);
        }
        Ok((found.len(), last))
    }

    fn found(
        &self,
        namespace: &str,
        filter: &Filter,
        all: bool,
        sort: &Sort,
        context: &Context,
    ) -> Result<Vec<(u64, Arc<Document>)>, StoreError> {
        let Some(collection) = self.store.collection(namespace) else { return Ok(Vec::new()) };
        let mut found = collection.find(filter, context)?;
        if !all {
            sort.apply_to(&mut found, |(_, document)| document, context.collation);
            found.truncate(1);
        }
        Ok(found)
    }
}

/// Checks that a document is not larger than servers keep.
fn check_size(document: &Document, code: i32, reason: &str) -> Result<(), StoreError> {
    let length = document.to_vec().map_or(0, |it| it.len());
    match length > MAX_BSON_OBJECT_SIZE {
        true => Err(StoreError::new(code, format!("{reason}: it has {length} bytes"))),
        false => Ok(()),
    }
}
