//! The scope of a change stream: a collection, a database, or all of them.

use crate::store::definition::{Definition, Kind};

/// The databases of the servers' own, which no stream watches.
const INTERNAL: [&str; 3] = ["admin", "config", "local"];

/// The collections whose changes a stream reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// The collection of this namespace.
    Collection(String),
    /// All collections of this database.
    Database(String),
    /// Those of all databases.
    Cluster,
}

/// Returns whether a database is one of the servers' own.
pub(super) fn is_internal(database: &str) -> bool {
    INTERNAL.contains(&database)
}

/// Returns whether a collection is one of the servers' own.
pub(super) fn is_system(collection: &str) -> bool {
    collection.starts_with("system.") || collection.starts_with('$')
}

impl Scope {
    /// Returns whether documents of a collection are watched, by its namespace.
    pub(super) fn has(&self, namespace: &str) -> bool {
        let Some((database, collection)) = namespace.split_once('.') else { return false };
        match self {
            Self::Collection(own) => own == namespace,
            Self::Database(own) => own == database && !is_system(collection),
            Self::Cluster => !is_internal(database) && !is_system(collection),
        }
    }

    /// Returns whether a change of a collection or a database is watched.
    pub(super) fn has_definition(&self, definition: &Definition) -> bool {
        let namespace = &*definition.namespace;
        match &definition.kind {
            Kind::DropDatabase => match self {
                Self::Collection(_) => false,
                Self::Database(own) => own == namespace,
                Self::Cluster => !is_internal(namespace),
            },
            Kind::Rename { to, .. } => self.has(namespace) || self.has(to),
            _ => self.has(namespace),
        }
    }

    /// Returns whether a stream ends with a change that it reports: what it watches is no more.
    pub(super) fn is_ended_by(&self, definition: &Definition) -> bool {
        match (self, &definition.kind) {
            (Self::Collection(_), Kind::Drop | Kind::Rename { .. }) => true,
            (Self::Database(_), kind) => matches!(kind, Kind::DropDatabase),
            _ => false,
        }
    }
}
