//! Operations as values: each writes the commands that it sends, one after another, and reads their
//! replies. Nothing here waits, and nothing knows a client.

use std::borrow::Cow;
use std::sync::Arc;

use bson::raw::{CStr, cstr};
use bson::{RawDocument, RawDocumentBuf};
use sdam_core::config::{Acknowledgment, ReadConcern, ReadPreference, WriteConcern};
use sdam_core::operation::{CommandMessage, OperationKind};
use sdam_core::session::TransactionError;
use sdam_core::wire::ReplyDocument;

use crate::cursor::{CursorState, Timing};
use crate::error::{ArgumentError, Error};
use crate::value::begin_command;

#[macro_use]
mod declaration;

pub(crate) mod action;
pub(crate) mod aggregate;
pub(crate) mod arguments;
pub(crate) mod bounded;
pub(crate) mod bulk_write;
pub(crate) mod client_bulk_write;
pub(crate) mod collection_values;
pub(crate) mod collections;
pub(crate) mod concerns;
pub(crate) mod count;
pub(crate) mod databases;
pub(crate) mod delete;
pub(crate) mod described;
pub(crate) mod distinct;
pub(crate) mod documents;
pub(crate) mod explain;
pub(crate) mod fields;
pub(crate) mod find;
pub(crate) mod find_and_modify;
pub(crate) mod get_more;
pub(crate) mod indexes;
pub(crate) mod insert;
pub(crate) mod map_reduce;
pub(crate) mod models;
pub(crate) mod run;
pub(crate) mod search_indexes;
pub(crate) mod single;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
pub(crate) mod update;
pub(crate) mod views;
pub(crate) mod watch;

/// An operation, from its arguments to its outcome.
///
/// The caller takes its command, sends it, and hands the reply to [`reply`](Self::reply), or the
/// error to [`failed`](Self::failed), until that asks for no further command.
pub trait Operation {
    /// The outcome.
    type Output;

    /// Returns the name that traces and metrics give the operation, the same in every driver
    /// (OpenTelemetry, "Covered operations"): mostly that of its command.
    fn name(&self) -> &'static str;

    /// Returns the collection that it is about, where that is not the one of the handle.
    fn collection(&self) -> Option<&str> {
        None
    }

    /// Returns the number of the cursor that it goes on with.
    fn cursor(&self) -> Option<i64> {
        None
    }

    /// Returns the name of the next command, for the log.
    fn command_name(&self) -> Cow<'static, str> {
        self.name().into()
    }

    /// Returns the kind of the next command, which says by which rules it is sent again.
    fn kind(&self) -> OperationKind {
        match self.route() {
            Route::Write => OperationKind::Write,
            Route::Read | Route::ReadPrimary | Route::ReadSince(_) => OperationKind::Read,
        }
    }

    /// Returns whether the next command may be sent once more after an error that says so, as far
    /// as that is known before it is written.
    fn is_retryable(&self) -> bool {
        true
    }

    /// Returns whether the next command goes where the last one has gone, over the same connection
    /// behind a load balancer: it goes on with a cursor.
    fn continues_cursor(&self) -> bool {
        false
    }

    /// Returns whether it fails rather than wait for a server of which nothing is known, while
    /// another one can be selected: what it goes on with can begin again there.
    fn begins_elsewhere(&self) -> bool {
        false
    }

    /// Returns whether its server waits for something to happen before it replies.
    fn awaits(&self) -> bool {
        false
    }

    /// Returns the time that the cursor has which the operation opens.
    fn timing(&self) -> Timing {
        Timing::default()
    }

    /// Returns which servers may answer.
    fn route(&self) -> Route {
        Route::Write
    }

    /// Returns which servers may be read from, where the handle's preference does not count.
    fn read_preference(&self) -> Option<&ReadPreference> {
        None
    }

    /// Takes which servers may be read from, where the handle's preference does not count.
    fn set_read_preference(&mut self, _preference: &ReadPreference) {}

    /// Refuses an operation that no server runs in a transaction.
    ///
    /// # Errors
    ///
    /// Fails if it is one.
    fn check_in_transaction(&self) -> Result<(), TransactionError> {
        Ok(())
    }

    /// Writes the next command.
    ///
    /// # Errors
    ///
    /// Fails if the arguments do not go together, or cannot be sent to this server. The error is
    /// that of the operation, and has what came of the commands before: it is not for
    /// [`failed`](Self::failed).
    fn command(&mut self, scope: &Scope, facts: &Facts) -> Result<Command<'_>, Error>;

    /// Reads the reply to the command, which is empty but for `ok` if none was asked for.
    ///
    /// # Errors
    ///
    /// Fails if it says that something has failed, and if it is not what the command promises.
    fn reply(
        &mut self,
        scope: &Scope,
        reply: &ReplyDocument,
    ) -> Result<Progress<Self::Output>, Error>;

    /// Takes the cursor that an operation has left open which has failed, and that nothing waits
    /// for: it is closed in the background.
    fn take_cursor(&mut self) -> Option<CursorState> {
        None
    }

    /// Judges the error that the command ended with; most operations end with it.
    ///
    /// # Errors
    ///
    /// Fails with the error of the operation.
    fn failed(&mut self, error: Error) -> Result<Progress<Self::Output>, Error> {
        Err(error)
    }
}

/// The outcome of an operation, or that there is more to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Progress<T> {
    /// The operation has ended.
    Done(T),
    /// Another command is to be sent.
    Next,
}

/// The servers that may answer an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Route {
    /// One that takes writes.
    Write,
    /// One that the read preference of the handle asks for.
    Read,
    /// The primary of a replica set, for a read that no preference applies to (Enumerate
    /// Collections, Enumerate Databases: "MUST run the command only on the primary").
    ReadPrimary,
    /// One that the read preference asks for, or the primary while a server is available that does
    /// not speak this wire version (CRUD, "Read preferences and server selection").
    ReadSince(i32),
}

/// The place that an operation is about, and the concerns of the handle that runs it.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Scope {
    /// The name of the database.
    pub database: Arc<str>,
    /// The name of the collection; empty for operations on databases.
    pub collection: Arc<str>,
    /// The data that reads may see.
    pub read_concern: ReadConcern,
    /// The condition of a successful write.
    pub write_concern: WriteConcern,
    /// True if `timeoutMS` limits the operation, so that `wtimeout` and `maxTimeMS` do not.
    pub has_timeout: bool,
}

/// The facts about the server that commands depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Facts {
    /// The newest wire version that it speaks.
    pub max_wire_version: i32,
    /// The maximum length of a message, in bytes.
    pub max_message_size_bytes: usize,
    /// The number of writes that a command may contain.
    pub max_write_batch_size: usize,
    /// The maximum length of a document that is stored, in bytes.
    pub max_bson_object_size: usize,
}

impl Facts {
    /// Takes the limits that every server of MongoDB 4.2 to 8.2 has.
    pub const fn of_wire_version(max_wire_version: i32) -> Self {
        Self {
            max_wire_version,
            max_message_size_bytes: 48_000_000,
            max_write_batch_size: 100_000,
            max_bson_object_size: 16 * 1024 * 1024,
        }
    }

    /// Returns the maximum length of a document that is sent, a command or a statement: it may
    /// exceed that of a document which is stored "by a maximum of 16 KiB" (Server Write Commands,
    /// "Request Size Limits").
    pub(crate) const fn max_sent_len(&self) -> usize {
        self.max_bson_object_size.saturating_add(16 * 1024)
    }

    /// Returns the length of a write that is too large, and the limit. `stored` is the length of
    /// the document in it that would be stored, 0 if it has none.
    ///
    /// If a server is sent more than it takes, it refuses the whole command, and names no write. Up
    /// to that it refuses the write alone, which shows only with acknowledgment.
    pub(crate) fn excess(
        &self,
        scope: &Scope,
        length: usize,
        stored: impl FnOnce() -> usize,
    ) -> Option<(usize, usize)> {
        if length <= self.max_bson_object_size {
            return None;
        }
        let (stored, is_refused) = (stored(), length > self.max_sent_len());
        match stored > self.max_bson_object_size && (is_refused || !scope.is_acknowledged()) {
            true => Some((stored, self.max_bson_object_size)),
            false => is_refused.then_some((length, self.max_sent_len())),
        }
    }
}

/// The wire version of MongoDB 4.4.
pub(crate) const MONGODB_4_4: i32 = 9;
/// The wire version of MongoDB 5.0.
pub(crate) const MONGODB_5_0: i32 = 13;
/// The wire version of MongoDB 8.2.
pub(crate) const MONGODB_8_2: i32 = 27;

/// A command as an operation writes it. The caller that sends it adds what every command carries,
/// such as a session.
///
/// Printed, it is its name and its length: the documents may be secret.
#[derive(Clone)]
#[non_exhaustive]
pub struct Command<'a> {
    /// The name of the database that it is run on.
    pub database: Arc<str>,
    /// Its document.
    pub body: RawDocumentBuf,
    /// Its document sequences: names and documents. They are sent as such, also if no reply is
    /// asked for: together they may be longer than a document.
    pub sequences: Vec<(&'static str, Vec<&'a RawDocument>)>,
    /// False if no reply is asked for.
    pub acknowledged: bool,
    /// True if it may be sent once more after an error that says so.
    pub retryable: bool,
    /// True if it takes the read concern of the handle.
    pub takes_read_concern: bool,
    /// True if it takes the time that a causally consistent session has seen, as the only part of a
    /// read concern (Read and Write Concern, "`afterClusterTime`").
    pub takes_cluster_time: bool,
    /// True if it may open a cursor, which behind a load balancer keeps its connection.
    pub opens_cursor: bool,
    /// True if the cursor is to be read in a stream of replies, which takes a connection for itself
    /// (find, getMore and killCursors, "Exhaust").
    pub exhausts_cursor: bool,
}

impl std::fmt::Debug for Command<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Command")
            .field("message", &CommandMessage::new(&self.database, &self.body))
            .field("acknowledged", &self.acknowledged)
            .field("retryable", &self.retryable)
            .finish_non_exhaustive()
    }
}

impl Command<'_> {
    /// Returns the read concern of the operation, to which a session adds its times; `None` if the
    /// command takes none.
    pub fn read_concern(&self, scope: &Scope) -> Option<ReadConcern> {
        match self.takes_read_concern {
            true => Some(scope.read_concern.clone()),
            false => self.takes_cluster_time.then(ReadConcern::default),
        }
    }
}

impl Scope {
    /// Returns the names of the database and the collection.
    pub(crate) fn namespace(&self) -> (Arc<str>, Arc<str>) {
        (Arc::clone(&self.database), Arc::clone(&self.collection))
    }

    /// Returns whether writes are acknowledged.
    pub fn is_acknowledged(&self) -> bool {
        self.write_concern.is_acknowledged()
    }

    /// Adds the write concern to a command, unless the server is to decide (Read and Write Concern,
    /// "Server's Default WriteConcern"). `wtimeout` is left out where `timeoutMS` counts (CSOT,
    /// "wTimeoutMS").
    pub(crate) fn declare_write_concern(&self, body: &mut RawDocumentBuf) -> Result<(), Error> {
        let mut concern = self.write_concern.clone();
        // "Drivers MUST raise an error when an inconsistent WriteConcern is specified": journaled,
        // and not acknowledged.
        if concern.w == Some(Acknowledgment::Servers(0)) && concern.journal == Some(true) {
            return Err(ArgumentError::JournaledUnacknowledged.into());
        }
        if self.has_timeout {
            concern = concern.with_timeout(None);
        }
        if !concern.is_server_default() {
            body.append(cstr!("writeConcern"), concern.document());
        }
        Ok(())
    }
}

/// Refuses a name of a collection or a database that no server would take for one: of an empty
/// collection, some commands would be about the whole database.
pub(crate) fn check_name(name: &str) -> Result<(), ArgumentError> {
    match name.is_empty() || name.contains('\0') {
        true => Err(ArgumentError::Name(name.to_owned())),
        false => Ok(()),
    }
}

/// Takes a namespace apart: the name of a database, a dot, and the name of a collection.
pub(crate) fn split_namespace(namespace: &str) -> Result<(&str, &str), ArgumentError> {
    match namespace.split_once('.') {
        Some((db, coll)) if check_name(db).and(check_name(coll)).is_ok() => Ok((db, coll)),
        _ => Err(ArgumentError::Namespace(namespace.to_owned())),
    }
}

/// Begins a command with its name and the name of the collection.
pub(crate) fn on_collection(name: &'static CStr, scope: &Scope) -> RawDocumentBuf {
    let mut body = begin_command();
    body.append(name, &*scope.collection);
    body
}

/// Returns whether an option is not to be sent to a server of this age or within `timeoutMS`.
pub(crate) fn is_left_out(scope: &Scope, facts: &Facts, option: &CStr) -> bool {
    // CSOT, "timeoutMS overrides deprecated timeout options": the caller that sends the command
    // adds what is left of the time, if anything is to be added.
    let is_overridden = scope.has_timeout && option == cstr!("maxTimeMS");
    // "This option MUST NOT be sent when connected to pre-8.2 servers."
    let is_unknown = facts.max_wire_version < MONGODB_8_2 && option == cstr!("rawData");
    is_overridden || is_unknown
}
