//! What members answer to writes, which succeed and change nothing.

use bson::raw::cstr;
use bson::{RawDocumentBuf, rawdoc};
use sdam_core::bson;

use super::command_error::CommandError;
use super::member::Role;
use super::model::Cluster;
use super::options::MemberId;
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
        let concern = request.body.get_document("writeConcern").ok()?;
        let asked = concern.get("w").ok().flatten()?;
        let is_primary = matches!(self.process(member)?.role, Role::Primary { .. });
        if !is_primary || !is_write(request.command_name()) {
            return None;
        }
        let arbiters = self.config.options().iter().filter(|it| it.arbiter).count();
        let with_data = self.config.options().len() - arbiters;
        let by_vote = asked.as_str() == Some("majority");
        let voters = self.config.voters();
        let needed = match by_vote {
            true => (voters / 2 + 1).min(voters - arbiters),
            false => usize::try_from(integer(asked)?).ok()?,
        };
        let error = match self.replicas(member, by_vote) >= needed {
            true => return None,
            false if needed > with_data => {
                CommandError::coded(100, format!("{with_data} members have data; w is {needed}"))
            }
            false => CommandError::coded(64, "waiting for replication timed out"),
        };
        let mut info = rawdoc! { "writeConcern": concern.to_owned() };
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

    /// Returns how many members have what this primary writes, or how many of those that vote.
    fn replicas(&self, primary: MemberId, by_vote: bool) -> usize {
        let reached = |id: MemberId| {
            let is_together = !self.members[primary.0].cut_off && !self.members[id.0].cut_off;
            id == primary || is_together
        };
        let replicates = |role: Role| matches!(role, Role::Primary { .. } | Role::Secondary);
        let all = self.processes().filter(|(id, process)| {
            reached(*id) && replicates(process.role) && (!by_vote || self.config.votes(*id))
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
