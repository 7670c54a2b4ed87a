//! The answers of members that keep no data to writes, and the write concerns of all.

use std::time::Duration;

use bson::raw::cstr;
use bson::{RawDocumentBuf, rawdoc};
use sdam_core::bson;
use sdam_core::time::Instant;

use crate::data;
use crate::model::fail_point::Injection;
use crate::model::{Cluster, Role};
use crate::options::{MemberId, ServerVersion};
use crate::store::Position;
use crate::wire::{CommandError, Request, integer};

/// The members with data of each shard behind a mongos, all of which have everything.
const SHARD_MEMBERS: usize = 3;

/// The code by which servers say that they know no such transaction.
const NO_SUCH_TRANSACTION: i32 = 251;

/// The code of a write concern whose time is over.
const WRITE_CONCERN_FAILED: i32 = 64;

/// Returns whether a command, by its own name, is a write.
pub(super) fn is_write(command: &str) -> bool {
    matches!(
        command,
        "insert" | "update" | "delete" | "findAndModify" | "create" | "createIndexes" | "drop"
    ) || data::ends_transaction(command)
}

/// The members that are to have what a write has changed.
struct Wanted {
    concern: RawDocumentBuf,
    /// The number of them that there must be.
    needed: usize,
    /// The number of members that have data at all.
    with_data: usize,
    /// Only those count that vote.
    by_vote: bool,
}

impl Cluster {
    /// Returns what becomes of the write concern of a write that a member has taken, if it is not
    /// satisfied.
    ///
    /// Real servers wait until it is, or for `wtimeout`, and so do members that keep data. With
    /// others the wait would change nothing, and so they report the time-out at once. The members
    /// must have the entry at `position`.
    pub(super) fn write_concern_error(
        &self,
        member: MemberId,
        request: &Request<'_>,
        position: Position,
    ) -> Option<RawDocumentBuf> {
        let wanted = self.wanted(member, request)?;
        let stays = matches!(self.process(member)?.role, Role::Primary { .. });
        let error = match self.has_enough(member, &wanted, position) {
            true => return None,
            false if wanted.needed > wanted.with_data => {
                let Wanted { needed, with_data, .. } = wanted;
                CommandError::coded(100, format!("{with_data} members have data; w is {needed}"))
            }
            false if !stays => CommandError::coded(189, "Primary stepped down while waiting"),
            false => CommandError::coded(WRITE_CONCERN_FAILED, "waiting for replication timed out"),
        };
        let mut info = rawdoc! { "writeConcern": wanted.concern };
        if error.code == WRITE_CONCERN_FAILED {
            info.append(cstr!("wtimeout"), true);
        }
        let mut document = RawDocumentBuf::new();
        document.append(cstr!("code"), error.code);
        document.append(cstr!("codeName"), error.code_name);
        document.append(cstr!("errmsg"), error.message);
        document.append(cstr!("errInfo"), info);
        Some(document)
    }

    /// Returns whether a command is a read of what a majority is known to have while it is read,
    /// for which a primary writes an entry that changes nothing.
    pub(super) fn is_linearizable(&self, request: &Request<'_>) -> bool {
        let concern = request.body.get_document("readConcern");
        let level = concern.ok().and_then(|it| it.get_str("level").ok());
        self.options.keeps_data && level == Some("linearizable") && !request.is_in_transaction()
    }

    /// Returns the error of a linearizable read whose server may have ceased to be primary before
    /// it has read: no majority has taken over the entry at `position`.
    pub(super) fn unconfirmed(
        &self,
        member: MemberId,
        request: &Request<'_>,
        position: Position,
    ) -> Option<CommandError> {
        let reads = self.is_linearizable(request);
        let error = self.write_concern_error(member, request, position).filter(|_| reads)?;
        let code = error.get_i32("code").ok()?;
        Some(match code {
            WRITE_CONCERN_FAILED => CommandError::time_is_over(),
            code => CommandError::coded(code, "Failed to confirm that read was linearizable."),
        })
    }

    /// Returns whether a write concern decides what a command is answered with: if it has done
    /// something, and of a commit also if there is no such transaction. Another primary may have
    /// committed it, unless a majority knows nothing of that (seen on 4.4.2 and 6.0.27).
    pub(super) fn has_concern(
        &self,
        member: MemberId,
        request: &Request<'_>,
        replies: &Result<Vec<RawDocumentBuf>, CommandError>,
        injection: &Injection,
    ) -> bool {
        let is_commit = self.options.keeps_data && request.command_name() == "commitTransaction";
        match replies {
            Ok(_) => true,
            Err(error) if is_commit && injection.error.is_none() => {
                error.code == NO_SUCH_TRANSACTION && self.wanted(member, request).is_some()
            }
            Err(_) => false,
        }
    }

    /// Returns until when a write waits for the members that are to have it, if it does: for ever
    /// without a `wtimeout`.
    pub(super) fn unsatisfied(
        &self,
        now: Instant,
        member: MemberId,
        request: &Request<'_>,
    ) -> Option<Option<Instant>> {
        if !self.options.keeps_data || request.silent {
            return None;
        }
        let wanted = self.wanted(member, request)?;
        let position = self.data_of(member).last();
        let waits =
            !self.has_enough(member, &wanted, position) && wanted.needed <= wanted.with_data;
        let limit = wanted.concern.get("wtimeout").ok().flatten().and_then(integer);
        let limit = limit.and_then(|it| u64::try_from(it).ok()).filter(|it| *it > 0);
        waits.then(|| limit.map(|it| now + Duration::from_millis(it)))
    }

    /// Returns whether the members that a write concern wants have an entry.
    fn has_enough(&self, member: MemberId, wanted: &Wanted, position: Position) -> bool {
        let count = match self.options.keeps_data {
            _ if self.is_mongos(member) => SHARD_MEMBERS,
            true => self.holders(position, wanted.by_vote),
            false => self.replicas(member, wanted.by_vote),
        };
        count >= wanted.needed
    }

    /// Returns whether a write that waits for other members may be answered now.
    pub(crate) fn is_settled(
        &self,
        member: MemberId,
        request: &Request<'_>,
        position: Position,
    ) -> bool {
        let stays = self.process(member).is_some_and(|it| it.role.is_writable());
        let wanted = self.wanted(member, request);
        !stays || wanted.is_none_or(|it| self.has_enough(member, &it, position))
    }

    fn is_mongos(&self, member: MemberId) -> bool {
        self.process(member).is_some_and(|it| it.role == Role::Mongos)
    }

    /// Returns the members that are to have what a write has changed, or to confirm a read.
    fn wanted(&self, member: MemberId, request: &Request<'_>) -> Option<Wanted> {
        let process = self.process(member)?;
        let name = request.command_name();
        let writes = is_write(name) || (self.options.keeps_data && data::is_write(name));
        let was_primary = matches!(process.role, Role::Primary { .. })
            || (self.options.keeps_data && matches!(process.role, Role::Secondary | Role::Mongos));
        // Since 5.0 nothing is written when a transaction is aborted, and nothing waited for.
        let is_abort = name == "abortTransaction" && process.version >= ServerVersion::V5_0;
        let reads = self.is_linearizable(request);
        if !was_primary || !(writes || reads) || is_abort {
            return None;
        }
        let concern = match reads {
            true => {
                let limit = request.body.get("maxTimeMS").ok().flatten().and_then(integer);
                rawdoc! { "w": "majority", "wtimeout": limit.unwrap_or(0) }
            }
            false => self.write_concern(process.version, request)?,
        };
        let asked = concern.get("w").ok().flatten()?;
        let is_sharded = self.is_mongos(member);
        let with_data = match is_sharded {
            true => SHARD_MEMBERS,
            false => self.config.options().iter().filter(|it| !it.arbiter).count(),
        };
        let by_vote = asked.as_str() == Some("majority");
        let needed = match by_vote {
            true if is_sharded => SHARD_MEMBERS / 2 + 1,
            true => self.config.write_majority(),
            false => usize::try_from(integer(asked)?).ok()?,
        };
        Some(Wanted { concern, needed, with_data, by_vote })
    }

    /// Returns the write concern of a write, and since 4.4 where it comes from: if it does not say
    /// how many members it means, there may be one that is meant.
    fn write_concern(
        &self,
        version: ServerVersion,
        request: &Request<'_>,
    ) -> Option<RawDocumentBuf> {
        let given = request.body.get_document("writeConcern").ok();
        let mut concern = given.map(ToOwned::to_owned).unwrap_or_default();
        if concern.get("w").ok()?.is_some() {
            if version.has_awaitable_hello() {
                concern.append(cstr!("provenance"), "clientSupplied");
            }
            return Some(concern);
        }
        // Within a transaction, that of the commit counts.
        let is_implied = version.has_majority_by_default() && self.config.implies_majority();
        let is_inside = request.is_in_transaction() && !data::ends_transaction(request.command);
        if !is_implied || is_inside {
            return None;
        }
        let wtimeout = concern.get("wtimeout").ok().flatten().and_then(integer).unwrap_or(0);
        let wtimeout = i32::try_from(wtimeout).unwrap_or(i32::MAX);
        Some(rawdoc! { "w": "majority", "wtimeout": wtimeout, "provenance": "implicitDefault" })
    }

    /// Returns how many members have what this primary writes, or how many of those that vote.
    fn replicas(&self, primary: MemberId, by_vote: bool) -> usize {
        let replicates = |role: Role| matches!(role, Role::Primary { .. } | Role::Secondary);
        let all = self.processes().filter(|(id, process)| {
            self.reaches(primary, *id)
                && replicates(process.role)
                && (!by_vote || self.config.votes(*id))
        });
        all.count()
    }
}

/// Answers a write as if each of its statements had met one document.
///
/// # Errors
///
/// Fails as real servers do if it has more statements than `most`.
pub(super) fn reply(request: &Request<'_>, most: i32) -> Result<RawDocumentBuf, CommandError> {
    let statements = |field| i32::try_from(request.statements(field)).unwrap_or(i32::MAX);
    let all = ["documents", "updates", "deletes"].map(statements);
    if let Some(count) = all.into_iter().find(|count| *count > most) {
        let reason = format!("{count} statements; a write may have {most}");
        return Err(CommandError::coded(16, reason));
    }
    let count = statements;
    let mut reply = RawDocumentBuf::new();
    match request.command_name() {
        "insert" => reply.append(cstr!("n"), count("documents")),
        "delete" => reply.append(cstr!("n"), count("deletes")),
        "update" => {
            reply.append(cstr!("n"), count("updates"));
            reply.append(cstr!("nModified"), count("updates"));
        }
        "findAndModify" => {
            let mut outcome = rawdoc! { "n": 1 };
            if !request.body.get_bool("remove").unwrap_or(false) {
                outcome.append(cstr!("updatedExisting"), true);
            }
            reply.append(cstr!("lastErrorObject"), outcome);
            reply.append(cstr!("value"), rawdoc! { "_id": 0_i64 });
        }
        _ => {}
    }
    reply.append(cstr!("ok"), 1.0);
    Ok(reply)
}
