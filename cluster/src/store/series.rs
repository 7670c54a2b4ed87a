//! Time series: collections whose documents have a time, may have the same `_id`, and change in
//! their field of metadata alone.
//!
//! As 6.0.5 does; servers keep them in buckets, this store as they are.

use bson::{Bson, Document};
use sdam_core::bson;

use super::{collection::Collection, error::StoreError};

/// The description of a time series.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Series<'a> {
    time: &'a str,
    meta: Option<&'a str>,
}

impl<'a> Series<'a> {
    /// Returns that of a collection; none if it is no time series.
    pub(crate) fn of(collection: &'a Collection) -> Option<Self> {
        let series = collection.options.get_document("timeseries").ok()?;
        let time = series.get_str("timeField").unwrap_or_default();
        Some(Self { time, meta: series.get_str("metaField").ok() })
    }

    /// Checks that a document has a time.
    ///
    /// # Errors
    ///
    /// Fails with code 2 if it has none.
    pub(super) fn check_document(self, document: &Document) -> Result<(), StoreError> {
        match document.get(self.time) {
            Some(Bson::DateTime(_)) => Ok(()),
            _ => Err(StoreError::bad_value(format!(
                "'{}' must be present and contain a valid BSON UTC datetime value",
                self.time
            ))),
        }
    }

    /// Checks that an update changes the metadata of all documents with some metadata.
    ///
    /// # Errors
    ///
    /// Fails with code 72 if it does anything else.
    pub(crate) fn check_update(self, statement: &Document) -> Result<(), StoreError> {
        let flag = |name: &str| super::is_true(statement.get(name));
        let wrong = |reason: &str| {
            let reason = format!("Cannot perform {reason} on a time-series collection");
            Err(StoreError::new(72, reason))
        };
        let Some(meta) = self.meta else { return wrong("an update without a metaField") };
        if flag("upsert") {
            return wrong("an upsert");
        }
        if !flag("multi") {
            return wrong("a non-multi update");
        }
        let operators = match statement.get_document("u") {
            Ok(update) if update.keys().all(|name| name.starts_with('$')) => update,
            Ok(_) => return wrong("an update using a replacement document"),
            Err(_) => return wrong("an update using a pipeline update"),
        };
        let fields = operators.values().filter_map(Bson::as_document);
        if !fields.flat_map(Document::keys).all(|path| is_within(path, meta)) {
            return wrong("an update of a field that is not the metaField");
        }
        self.check_filter(statement)
    }

    /// Checks that a deletion removes all documents with some metadata, or all there are.
    ///
    /// # Errors
    ///
    /// Fails with code 20 if it removes one, and with code 72 if it asks for other fields.
    pub(crate) fn check_deletion(self, statement: &Document) -> Result<(), StoreError> {
        if statement.get("limit").and_then(super::whole) == Some(1) {
            let reason = "Cannot perform a non-multi delete on a time-series collection";
            return Err(StoreError::new(20, reason));
        }
        self.check_filter(statement)
    }

    fn check_filter(self, statement: &Document) -> Result<(), StoreError> {
        let filter = statement.get_document("q").ok();
        match filter.is_none_or(|filter| self.is_about_metadata(filter)) {
            true => Ok(()),
            false => {
                let reason = "Cannot perform an update or delete on a time-series collection when \
                              querying on a field that is not the metaField";
                Err(StoreError::new(72, reason))
            }
        }
    }

    fn is_about_metadata(self, filter: &Document) -> bool {
        filter.iter().all(|(name, value)| match value {
            Bson::Array(list) if matches!(name.as_str(), "$and" | "$or" | "$nor") => {
                list.iter().all(|it| it.as_document().is_some_and(|it| self.is_about_metadata(it)))
            }
            _ => self.meta.is_some_and(|meta| is_within(name, meta)),
        })
    }
}

/// Returns whether a path is that of a field, or of one in it.
fn is_within(path: &str, field: &str) -> bool {
    let rest = path.strip_prefix(field);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}
