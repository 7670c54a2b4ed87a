//! The answers of members to writes, which succeed and change nothing.

use bson::raw::cstr;
use bson::{RawDocumentBuf, rawdoc};
use sdam_core::bson;

use super::command_error::CommandError;
use super::member::Role;
use super::model::Cluster;
use super::options::{MemberId, ServerVersion};
use super::protocol::{Request, integer};

/// Returns whether a command, by its own name, is a write.
pub(super) fn is_write(command: &str) -> bool {
    matches!(
        command,
        "insert" | "update" | "delete" | "findAndModify" | "create" | "createIndexes" | "drop"
    )
}

impl Cluster {
    /// Returns what becomes of the write concern of a write that a member has taken, if it cannot
    /// be satisfied now.
    ///
    /// Real servers wait until it can, or for `wtimeout`; here nothing would come of it, and so the
    /// time-out is told at once.
    pub(super) fn write_concern_error(
        &self,
        member: MemberId,
        request: &Request<'_>,
    ) -> Option<RawDocumentBuf> {
        let process = self.process(member)?;
        let is_primary = matches!(process.role, Role::Primary { .. });
        if !is_primary || !is_write(request.command_name()) {
            return None;
        }
        let concern = self.write_concern(process.version, request)?;
        let asked = concern.get("w").ok().flatten()?;
        let with_data = self.config.options().iter().filter(|it| !it.arbiter).count();
        let by_vote = asked.as_str() == Some("majority");
        let needed = match by_vote {
            true => self.config.write_majority(),
            false => usize::try_from(integer(asked)?).ok()?,
        };
        let error = match self.replicas(member, by_vote) >= needed {
            true => return None,
            false if needed > with_data => {
                CommandError::coded(100, format!("{with_data} members have data; w is {needed}"))
            }
            false => CommandError::coded(64, "waiting for replication timed out"),
        };
        let mut info = rawdoc! { "writeConcern": concern };
        if error.code == 64 {
            info.append(cstr!("wtimeout"), true);
        }
        let mut document = RawDocumentBuf::new();
        document.append(cstr!("code"), error.code);
        document.append(cstr!("codeName"), error.code_name);
        document.append(cstr!("errmsg"), error.message);
        document.append(cstr!("errInfo"), info);
        Some(document)
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
        if !is_implied || request.is_in_transaction() {
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
pub(super) fn reply(request: &Request<'_>) -> RawDocumentBuf {
    let count = |field| i32::try_from(request.statements(field)).unwrap_or(i32::MAX);
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
    reply
}
