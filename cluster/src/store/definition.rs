//! Changes of collections and databases by their names, as change streams report them (Change
//! Streams, "Response Format").

use std::sync::Arc;

use bson::spec::BinarySubtype;
use bson::{Binary, Bson, Document, doc};
use sdam_core::bson;

/// A change of a collection or of a database.
#[derive(Clone, Debug)]
pub(crate) struct Definition {
    /// The namespace of the collection, or the name of the database.
    pub(crate) namespace: Arc<str>,
    pub(crate) kind: Kind,
    /// The id of the collection; views have none.
    pub(crate) uuid: Option<[u8; 16]>,
    /// The operation, as far as its kind does not say it.
    description: Document,
}

/// The kind of such a change.
#[derive(Clone, Debug)]
pub(crate) enum Kind {
    Create,
    Drop,
    DropDatabase,
    Rename {
        to: Arc<str>,
        /// The id of the collection that had this name.
        dropped: Option<[u8; 16]>,
    },
    CreateIndexes,
    DropIndexes,
    Modify {
        /// The options of the collection before.
        before: Document,
    },
    ShardCollection,
}

impl Definition {
    pub(crate) fn new(
        namespace: &str,
        kind: Kind,
        uuid: Option<[u8; 16]>,
        description: Document,
    ) -> Self {
        Self { namespace: namespace.into(), kind, uuid, description }
    }

    /// Returns the name of the event.
    pub(crate) const fn name(&self) -> &'static str {
        match self.kind {
            Kind::Create => "create",
            Kind::Drop => "drop",
            Kind::DropDatabase => "dropDatabase",
            Kind::Rename { .. } => "rename",
            Kind::CreateIndexes => "createIndexes",
            Kind::DropIndexes => "dropIndexes",
            Kind::Modify { .. } => "modify",
            Kind::ShardCollection => "shardCollection",
        }
    }

    /// Returns whether only streams with `showExpandedEvents` report it.
    pub(crate) const fn is_expanded(&self) -> bool {
        match self.kind {
            Kind::Drop => self.uuid.is_none(),
            Kind::Rename { .. } | Kind::DropDatabase => false,
            _ => true,
        }
    }

    /// Returns the new name of the collection.
    pub(crate) fn to(&self) -> Option<&str> {
        match &self.kind {
            Kind::Rename { to, .. } => Some(to),
            _ => None,
        }
    }

    /// Returns `operationDescription`, if there is anything to say.
    pub(crate) fn description(&self) -> Option<Document> {
        match &self.kind {
            Kind::Drop | Kind::DropDatabase => None,
            Kind::Rename { to, dropped } => {
                let mut description = doc! { "to": named(to) };
                if let Some(uuid) = dropped {
                    description.insert("dropTarget", binary(*uuid));
                }
                Some(description)
            }
            _ => Some(self.description.clone()),
        }
    }

    /// Returns `stateBeforeChange` of the change of a collection; of a view there is none.
    pub(crate) fn state_before(&self) -> Option<Document> {
        let (Kind::Modify { before }, Some(uuid)) = (&self.kind, self.uuid) else { return None };
        let mut options = doc! { "uuid": binary(uuid) };
        options.extend(before.clone());
        let mut state = doc! { "collectionOptions": options };
        if self.description.contains_key("index") {
            state.insert("indexOptions", Document::new());
        }
        Some(state)
    }
}

/// Returns a namespace as events have it: a database has no collection.
pub(crate) fn named(namespace: &str) -> Document {
    match namespace.split_once('.') {
        Some((database, collection)) => doc! { "db": database, "coll": collection },
        None => doc! { "db": namespace },
    }
}

/// Returns the id of a collection as events have it.
pub(crate) fn binary(uuid: [u8; 16]) -> Bson {
    Bson::Binary(Binary { subtype: BinarySubtype::Uuid, bytes: uuid.to_vec() })
}
