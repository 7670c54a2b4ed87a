//! The writes of sessions: what was done under which number, so that it is done once.

use std::collections::BTreeMap;

use bson::Document;
use sdam_core::bson;

/// The newest number of a session, and what was done under it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Session {
    pub(crate) number: i64,
    /// It was the number of a transaction, which is committed.
    pub(crate) is_transaction: bool,
    /// The outcome of each statement, by its id.
    pub(crate) statements: BTreeMap<i32, Document>,
}
