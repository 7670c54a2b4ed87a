//! The collections of all databases, and the changes that make one state of them another.

use std::collections::BTreeMap;
use std::sync::Arc;

use bson::Document;
use sdam_core::bson;

use super::{collection::Collection, definition::Definition, session::Session};

/// All that a member keeps.
///
/// A copy costs little: what is the same is shared.
#[derive(Clone, Debug, Default)]
pub(crate) struct Store {
    /// By namespace: the name of a database, a dot, and that of a collection.
    collections: BTreeMap<String, Arc<Collection>>,
    /// The writes that may be sent once more, by the session's id.
    sessions: BTreeMap<Vec<u8>, Arc<Session>>,
}

/// A step from one state of a store to the next, which can be taken back.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    /// A document is put, replaced or removed.
    Document {
        namespace: Arc<str>,
        record: u64,
        before: Option<Arc<Document>>,
        after: Option<Arc<Document>>,
        note: Note,
    },
    /// A collection is created, dropped or given other options.
    Collection {
        namespace: Arc<str>,
        before: Option<Arc<Collection>>,
        after: Option<Arc<Collection>>,
    },
    /// A session has written.
    Session { id: Vec<u8>, before: Option<Arc<Session>>, after: Option<Arc<Session>> },
    /// The name of what the changes before it, of collections, were; it changes nothing itself.
    Definition(Arc<Definition>),
}

/// The facts of a written document that change streams report, besides what became of it.
#[derive(Clone, Debug)]
pub(crate) struct Note {
    /// The id of its collection.
    pub(crate) uuid: [u8; 16],
    pub(crate) edit: Edit,
    /// The collection keeps the images of documents before and after their changes.
    pub(crate) has_images: bool,
}

/// The way in which a document came to be another one.
#[derive(Clone, Debug, Default)]
pub(crate) enum Edit {
    /// As a whole.
    #[default]
    Whole,
    /// By operators, at these paths.
    At(Vec<Touched>),
    /// By the stages of a pipeline.
    Stages,
}

/// A path of an update at which an operator has changed a document, or not.
#[derive(Clone, Debug)]
pub(crate) struct Touched {
    pub(crate) path: String,
    pub(crate) act: Act,
}

/// The act of an operator at its path, as far as it is reported in a way of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// It adds to the end of an array.
    Append,
    /// It removes a field; an element of an array becomes null.
    Remove,
    Other,
}

impl Change {
    /// Returns whether it may be an event of change streams.
    pub(crate) const fn is_reported(&self) -> bool {
        matches!(self, Self::Document { .. } | Self::Definition(_))
    }
}

impl Store {
    pub(crate) fn collection(&self, namespace: &str) -> Option<&Arc<Collection>> {
        self.collections.get(namespace)
    }

    pub(crate) fn session(&self, id: &[u8]) -> Option<&Arc<Session>> {
        self.sessions.get(id)
    }

    /// Returns the collections of a database by their names.
    pub(crate) fn of_database<'a>(
        &'a self,
        database: &'a str,
    ) -> impl Iterator<Item = (&'a str, &'a Arc<Collection>)> {
        let all = self.collections.range(format!("{database}.")..);
        all.map_while(move |(namespace, collection)| {
            let name = namespace.strip_prefix(database)?.strip_prefix('.')?;
            Some((name, collection))
        })
    }

    /// Returns all collections by their namespaces.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&str, &Arc<Collection>)> {
        self.collections.iter().map(|(namespace, collection)| (namespace.as_str(), collection))
    }

    /// Takes a step, or takes it back.
    pub(crate) fn take(&mut self, change: &Change, forward: bool) {
        match change {
            Change::Document { namespace, record, before, after, .. } => {
                if let Some(collection) = self.collections.get_mut(&**namespace) {
                    let document = if forward { after } else { before };
                    Arc::make_mut(collection).put(*record, document.clone());
                }
            }
            Change::Collection { namespace, before, after } => {
                match if forward { after } else { before } {
                    Some(collection) => {
                        self.collections.insert(namespace.to_string(), Arc::clone(collection));
                    }
                    None => drop(self.collections.remove(&**namespace)),
                }
            }
            Change::Session { id, before, after } => match if forward { after } else { before } {
                Some(session) => drop(self.sessions.insert(id.clone(), Arc::clone(session))),
                None => drop(self.sessions.remove(id)),
            },
            Change::Definition(_) => {}
        }
    }
}
