//! Collections and views as what reads them sees them.

use bson::Bson;
use sdam_core::bson;

use super::{
    catalog::Store,
    error::StoreError,
    expression::Context,
    filter::Filter,
    pipeline::{self, Documents},
};
use crate::options::ServerVersion;

/// The longest chain of views upon views, and of pipelines within pipelines.
const MAX_DEPTH: usize = 20;

/// A state that is read by the pipelines of one database.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source<'a> {
    pub(crate) store: &'a Store,
    pub(crate) database: &'a str,
    pub(crate) version: ServerVersion,
    /// The number of views and pipelines that this one is within.
    depth: usize,
}

impl<'a> Source<'a> {
    pub(crate) const fn new(store: &'a Store, database: &'a str, version: ServerVersion) -> Self {
        Self { store, database, version, depth: 0 }
    }

    /// Returns the same for what is within this.
    ///
    /// # Errors
    ///
    /// Fails if too much is within each other.
    pub(crate) fn within(self) -> Result<Self, StoreError> {
        match self.depth < MAX_DEPTH {
            true => Ok(Self { depth: self.depth + 1, ..self }),
            false => Err(StoreError::new(165, "View depth too deep")),
        }
    }

    /// Returns the documents of a collection, or of a view, that a filter finds.
    ///
    /// # Errors
    ///
    /// Fails if an expression does, or a stage of a view.
    pub(crate) fn found(
        self,
        collection: &str,
        filter: &Filter,
        context: &Context,
    ) -> Result<Documents, StoreError> {
        let namespace = format!("{}.{collection}", self.database);
        let Some(kept) = self.store.collection(&namespace) else { return Ok(Vec::new()) };
        let Ok(source) = kept.options.get_str("viewOn") else {
            let found = kept.find(filter, context)?;
            return Ok(found.into_iter().map(|(_, document)| document).collect());
        };
        let within = self.within()?;
        let all = within.found(source, &Filter::All(Vec::new()), context)?;
        let stages = kept.options.get_array("pipeline").cloned().unwrap_or_default();
        let mut documents = Vec::new();
        for document in within.through(all, &pipeline::parse(&stages)?, context)? {
            if filter.matches(&document, context)? {
                documents.push(document);
            }
        }
        Ok(documents)
    }

    /// Returns all documents of a collection, or of a view.
    ///
    /// # Errors
    ///
    /// Fails if a stage of a view does.
    pub(crate) fn all(self, collection: &str, context: &Context) -> Result<Documents, StoreError> {
        self.found(collection, &Filter::All(Vec::new()), context)
    }

    /// Takes documents through stages.
    ///
    /// # Errors
    ///
    /// Fails if a stage does.
    pub(crate) fn through(
        self,
        mut documents: Documents,
        stages: &[(String, Bson)],
        context: &Context,
    ) -> Result<Documents, StoreError> {
        for (name, value) in stages {
            documents = pipeline::through(documents, name, value, self, context)?;
        }
        Ok(documents)
    }
}
