//! Collections and views as what reads them sees them.

use super::{
    catalog::Store,
    error::StoreError,
    expression::Context,
    filter::Filter,
    pipeline::{self, Documents},
};

/// The longest chain of views upon views.
const MAX_DEPTH: usize = 20;

/// A state that is read by the pipelines of one database.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source<'a> {
    pub(crate) store: &'a Store,
    pub(crate) database: &'a str,
    /// The number of views that this one is within.
    depth: usize,
}

impl<'a> Source<'a> {
    pub(crate) const fn new(store: &'a Store, database: &'a str) -> Self {
        Self { store, database, depth: 0 }
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
        if self.depth == MAX_DEPTH {
            return Err(StoreError::new(165, "View depth too deep"));
        }
        let mut documents = Self { depth: self.depth + 1, ..self }.all(source, context)?;
        let stages = kept.options.get_array("pipeline").cloned().unwrap_or_default();
        for (name, value) in pipeline::parse(&stages)? {
            documents = pipeline::through(documents, &name, &value, context)?;
        }
        let mut found = Vec::new();
        for document in documents {
            if filter.matches(&document, context)? {
                found.push(document);
            }
        }
        Ok(found)
    }

    /// Returns all documents of a collection, or of a view.
    ///
    /// # Errors
    ///
    /// Fails if a stage of a view does.
    pub(crate) fn all(self, collection: &str, context: &Context) -> Result<Documents, StoreError> {
        self.found(collection, &Filter::All(Vec::new()), context)
    }
}
