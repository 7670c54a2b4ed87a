//! Members that keep data: commands over their stores.
//!
//! Only a deployment with [`keeps_data`](crate::ClusterOptions::keeps_data) comes here. What a
//! primary writes goes into its log, from which the others take it; mongos share one store.

mod arguments;
mod catalogue;
mod changes;
mod cursors;
mod fields;
mod find;
mod images;
mod logged;
mod out;
pub(crate) mod read_concern;
mod reads;
mod replication;
mod router;
pub(crate) mod search;
mod session_options;
mod sessions;
mod transactions;
mod writes;

use bson::{Bson, Document, RawDocumentBuf, rawdoc};
use sdam_core::bson;
use sdam_core::time::Instant;

use self::arguments::Arguments;
pub(crate) use self::changes::opens_change_stream;
pub use self::logged::{CommittedChange, CommittedChanges, LoggedWrite};
pub(crate) use self::session_options::ends_transaction;
use self::sessions::Retries;
use crate::model::{Cluster, Member, Role};
use crate::options::{MemberId, ServerVersion};
use crate::store::{Change, Context, Data, Limits, Writer};
use crate::wire::{CommandError, Request};

/// The commands that read what is kept.
const READS: [&str; 8] = [
    "find",
    "count",
    "distinct",
    "aggregate",
    "listCollections",
    "listDatabases",
    "listIndexes",
    "explain",
];

/// The commands that change what is kept.
const WRITES: [&str; 14] = [
    "insert",
    "update",
    "delete",
    "findAndModify",
    "bulkWrite",
    "create",
    "drop",
    "dropDatabase",
    "renameCollection",
    "collMod",
    "createIndexes",
    "dropIndexes",
    "deleteIndexes",
    "shardCollection",
];

/// The commands that are about sessions.
const SESSIONS: [&str; 4] = ["endSessions", "killAllSessions", "killSessions", "refreshSessions"];

/// Returns whether a command, by its own name, changes what is kept.
pub(crate) fn is_write(command: &str) -> bool {
    WRITES.contains(&command)
}

/// Returns the id of the session that a command belongs to.
fn session_id(body: &Document) -> Option<Vec<u8>> {
    match body.get_document("lsid").ok()?.get("id")? {
        Bson::Binary(id) => Some(id.bytes.clone()),
        _ => None,
    }
}

impl Cluster {
    /// Answers a command that is about data; none if it is not.
    pub(crate) fn run_on_data(
        &mut self,
        now: Instant,
        member: MemberId,
        request: &Request<'_>,
    ) -> Option<Result<Vec<RawDocumentBuf>, CommandError>> {
        let (name, process) = (request.command_name(), self.process(member)?);
        let (role, version) = (process.role, process.version);
        let is_new = (name == "bulkWrite" && version < ServerVersion::V8_0)
            || (name == "shardCollection" && role != Role::Mongos);
        let is_known = READS.contains(&name)
            || (is_write(name) && !is_new)
            || SESSIONS.contains(&name)
            || ends_transaction(name)
            || matches!(name, "getMore" | "killCursors")
            || (name == "checkMetadataConsistency"
                && role == Role::Mongos
                && version >= ServerVersion::V7_0);
        let replies = match session_options::check(request) {
            Err(error) => Err(error),
            Ok(()) if is_new => return None,
            Ok(()) if request.is_in_transaction() => {
                self.serve_transaction(now, member, role, request)
            }
            Ok(()) if !is_known || asks_for_operations(request) => return None,
            Ok(()) => self.serve_data(now, member, (role, name), request),
        };
        Some(replies.map_err(|error| as_numbered_by(version, name, error)))
    }

    fn serve_data(
        &mut self,
        now: Instant,
        member: MemberId,
        (role, name): (Role, &str),
        request: &Request<'_>,
    ) -> Result<Vec<RawDocumentBuf>, CommandError> {
        if READS.contains(&name) {
            role.check_readable(request)?;
        } else if is_write(name) {
            role.check_writable()?;
        }
        let arguments = Arguments::read(request)?;
        fields::check(name, &arguments.body, self.version_of(member))?;
        let for_admin = matches!(name, "listDatabases" | "bulkWrite");
        if for_admin && arguments.database != "admin" {
            let reason = format!("{name} may only be run against the admin database.");
            return Err(CommandError::coded(13, reason));
        }
        self.dispatch(now, member, name, &arguments, request.allows_exhaust())
    }

    /// Answers a command that the member serves.
    fn dispatch(
        &mut self,
        now: Instant,
        member: MemberId,
        name: &str,
        arguments: &Arguments,
        all: bool,
    ) -> Result<Vec<RawDocumentBuf>, CommandError> {
        let reply = match name {
            "find" => self.find(now, member, arguments)?,
            "count" => self.count_documents(now, member, arguments)?,
            "distinct" => self.distinct(now, member, arguments)?,
            "aggregate" => self.aggregate_data(now, member, arguments)?,
            "explain" => self.explain(arguments)?,
            "listCollections" => self.list_collections(now, member, arguments)?,
            "listDatabases" => self.list_databases(now, member, arguments)?,
            "listIndexes" => self.list_indexes(member, arguments)?,
            "checkMetadataConsistency" => self.check_metadata(member, arguments)?,
            "getMore" => return self.more(member, arguments, all),
            "killCursors" => self.kill_cursors(member, arguments)?,
            "insert" | "update" | "delete" => self.write_batch(now, member, arguments, name)?,
            "findAndModify" => self.find_and_modify(now, member, arguments)?,
            "bulkWrite" => self.bulk_write(now, member, arguments)?,
            name if SESSIONS.contains(&name) => {
                if name != "refreshSessions" {
                    self.end_sessions(member, arguments, name);
                }
                rawdoc! { "ok": 1.0 }
            }
            _ => match self.change_catalogue(now, member, arguments, name) {
                Some(reply) => reply?,
                None => rawdoc! { "ok": 1.0 },
            },
        };
        Ok(vec![reply])
    }

    /// Returns the version of a member's process.
    pub(crate) fn version_of(&self, member: MemberId) -> ServerVersion {
        self.process(member).map_or(self.options.version, |it| it.version)
    }

    /// Returns the place among the members of what one keeps: mongos have one store in common.
    pub(crate) fn owner(&self, member: MemberId) -> usize {
        if self.options.deployment.has_mongos() { 0 } else { member.0 }
    }

    /// Returns what a member keeps.
    pub(crate) fn data_of(&self, member: MemberId) -> &Data {
        &self.members[self.owner(member)].data
    }

    /// Has a member write, and notes what it has written.
    ///
    /// # Errors
    ///
    /// Fails with `WriteConflict` if an open transaction stands against it, which a command outside
    /// of transactions waits for; it has changed nothing then.
    fn write<T>(
        &mut self,
        now: Instant,
        member: MemberId,
        arguments: &Arguments,
        act: impl FnOnce(&mut Writer<'_>, &Context, &mut Retries) -> Result<T, CommandError>,
    ) -> Result<T, CommandError> {
        let context = self.context(now, arguments)?;
        let seconds = u32::try_from(self.wall_millis(now).div_euclid(1000)).unwrap_or(u32::MAX);
        let version = self.version_of(member);
        let owner = self.owner(member);
        let mut retries = Retries::begin(&self.members[owner].data.store, &arguments.body)?;
        if retries.is_numbered() {
            self.supersede(member, arguments)?;
        }
        let Member { data, transactions, .. } = &mut self.members[owner];
        let session = arguments.transaction.as_deref();
        let mut open = session.and_then(|it| transactions.take(it));
        let store = open.as_mut().map_or(&mut data.store, |it| &mut it.store);
        let mut writer =
            Writer::new(store, &mut self.data_rng, seconds, writes::allows_dollars(version));
        writer.bypasses_validation = arguments.flag("bypassDocumentValidation");
        writer.limits = session.map(|_| Limits { creates: version >= ServerVersion::V4_4 });
        let outcome = act(&mut writer, &context, &mut retries);
        if outcome.is_ok() {
            retries.finish(&mut writer);
        }
        let changes = writer.into_changes();
        match (open, session) {
            (Some(mut open), Some(session)) => {
                let others: Vec<_> = transactions.all_open().map(|(_, other)| other).collect();
                let noted = open.note(changes, &data.store, &others);
                transactions.put_back(session.to_vec(), open);
                noted?;
            }
            _ => self.note_writes(now, member, changes)?,
        }
        outcome
    }

    /// Notes what a command outside of transactions has written, or takes it back if an open
    /// transaction stands against it.
    fn note_writes(
        &mut self,
        now: Instant,
        member: MemberId,
        changes: Vec<Change>,
    ) -> Result<(), CommandError> {
        let owner = self.owner(member);
        let Member { data, transactions, .. } = &mut self.members[owner];
        if let Err(conflict) = transactions.check(&changes) {
            changes.iter().rev().for_each(|change| data.store.take(change, false));
            return Err(conflict.into());
        }
        self.append(now, member, changes);
        Ok(())
    }
}

/// Returns an error with the number that servers of that version have for it.
fn as_numbered_by(version: ServerVersion, command: &str, error: CommandError) -> CommandError {
    let code = match (command, error.code) {
        ("find" | "aggregate", 40415)
            if version < ServerVersion::V5_0 && !error.message.contains("'$changeStream.") =>
        {
            9
        }
        ("findAndModify", 40415) if version < ServerVersion::V5_0 => 51177,
        ("find", 51024) if version < ServerVersion::V5_0 => 2,
        ("find", 14) if version < ServerVersion::V5_0 && !error.message.starts_with('$') => 9,
        ("find", 15975) if version < ServerVersion::V4_4 => 2,
        (_, 31325) if version < ServerVersion::V4_4 => 168,
        ("aggregate", 31253 | 31254) if version < ServerVersion::V4_4 => 40178,
        ("aggregate", 51272) if version < ServerVersion::V4_4 => 40177,
        _ => return error,
    };
    CommandError { details: error.details, ..CommandError::coded(code, error.message) }
}

/// Returns whether an `aggregate` is about connections, not about data.
fn asks_for_operations(request: &Request<'_>) -> bool {
    let first = request.body.get_array("pipeline").ok().and_then(|it| it.into_iter().next());
    let stage = first.and_then(Result::ok);
    let stage = stage.and_then(bson::RawBsonRef::as_document);
    stage.is_some_and(|it| it.get("$currentOp").is_ok_and(|it| it.is_some()))
}
