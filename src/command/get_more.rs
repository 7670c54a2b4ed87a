//! The next batch of a cursor.

use std::sync::Arc;

use bson::RawDocumentBuf;
use sdam_core::operation::OperationKind;
use sdam_core::wire::ReplyDocument;

use super::single::Rules;
use super::{Command, Facts, Operation, Progress, Scope};
use crate::cursor::Timing;
use crate::error::Error;

/// `getMore`, as a cursor asks for it; the outcome is the reply, which the cursor reads.
#[derive(Debug)]
pub(crate) struct GetMore {
    database: Arc<str>,
    collection: Arc<str>,
    body: RawDocumentBuf,
    timing: Timing,
    begins_elsewhere: bool,
    /// That of the connection which it was written for.
    max_wire_version: Option<i32>,
}

impl GetMore {
    /// Takes the namespace of a cursor, its command, and the time that it has.
    pub(crate) fn new(
        (database, collection): (&Arc<str>, &Arc<str>),
        body: RawDocumentBuf,
        timing: Timing,
    ) -> Self {
        let (database, collection) = (Arc::clone(database), Arc::clone(collection));
        let (begins_elsewhere, max_wire_version) = (false, None);
        Self { database, collection, body, timing, begins_elsewhere, max_wire_version }
    }

    /// Returns the wire version of the connection that it goes over, once there is one.
    pub(crate) const fn max_wire_version(&self) -> Option<i32> {
        self.max_wire_version
    }

    /// Says whether the cursor can begin again at another server.
    pub(crate) const fn beginning_elsewhere(mut self, begins_elsewhere: bool) -> Self {
        self.begins_elsewhere = begins_elsewhere;
        self
    }

    /// Returns its scope: the namespace, and no concern, as getMore takes none.
    pub(crate) fn scope(&self) -> Scope {
        let (database, collection) = (Arc::clone(&self.database), Arc::clone(&self.collection));
        Scope { database, collection, ..Scope::default() }
    }
}

impl Operation for GetMore {
    type Output = ReplyDocument;

    fn name(&self) -> &'static str {
        "getMore"
    }

    /// Cursors of databases have such names in place of a collection's.
    fn collection(&self) -> Option<&str> {
        let is_of_database = &*self.database == "admin" || self.collection.starts_with("$cmd.");
        is_of_database.then_some("")
    }

    fn cursor(&self) -> Option<i64> {
        self.body.get_i64("getMore").ok()
    }

    fn kind(&self) -> OperationKind {
        OperationKind::Read
    }

    fn is_retryable(&self) -> bool {
        false
    }

    fn continues_cursor(&self) -> bool {
        true
    }

    fn begins_elsewhere(&self) -> bool {
        self.begins_elsewhere
    }

    fn awaits(&self) -> bool {
        self.timing.await_data
    }

    fn timing(&self) -> Timing {
        self.timing
    }

    fn command(&mut self, scope: &Scope, facts: &Facts) -> Result<Command<'_>, Error> {
        self.max_wire_version = Some(facts.max_wire_version);
        Rules::RUN.command(scope, std::mem::take(&mut self.body))
    }

    fn reply(&mut self, _: &Scope, reply: &ReplyDocument) -> Result<Progress<Self::Output>, Error> {
        Ok(Progress::Done(reply.clone()))
    }
}
