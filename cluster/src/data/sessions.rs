//! Writes that are done once though they come twice (Retryable Writes).

use bson::{Bson, Document, RawDocument};
use sdam_core::bson;

use super::arguments::Arguments;
use super::session_id;
use crate::model::Cluster;
use crate::options::{MemberId, ServerVersion};
use crate::store::{Session, Store, Writer, whole};
use crate::wire::CommandError;

/// The statements of a command that may have come before.
#[derive(Debug)]
pub(super) struct Retries {
    /// The session, if the command has a number.
    id: Option<Vec<u8>>,
    session: Session,
    /// The ids of the statements, or that of the first.
    ids: Vec<i32>,
    first: i32,
    /// The ids of those that have come before.
    pub(super) retried: Vec<i32>,
    has_changed: bool,
}

impl Cluster {
    /// Forgets the cursors of sessions that end, or of all if none is named; and aborts the
    /// transactions of those that are killed.
    pub(super) fn end_sessions(&mut self, member: MemberId, arguments: &Arguments, name: &str) {
        let named = arguments.body.get_array(name).into_iter().flatten();
        let ids = named.filter_map(|it| match it.as_document()?.get("id")? {
            Bson::Binary(id) => Some(id.bytes.clone()),
            _ => None,
        });
        let ids: Vec<Vec<u8>> = ids.collect();
        let all = ids.is_empty() && name != "endSessions";
        // Servers abort the transactions of sessions that end only when these expire.
        if name != "endSessions" {
            self.kill_transactions(member, &ids, all);
        }
        if let Some(process) = self.process_mut(member) {
            process.cursors.retain(|_, cursor| match &cursor.owner.session {
                Some(id) => !all && !ids.contains(id),
                None => true,
            });
        }
    }

    /// Returns whether a command comes again: whether anything was done under its number.
    pub(crate) fn has_done(&self, member: MemberId, body: &RawDocument) -> bool {
        let Ok(body) = Document::try_from(body) else { return false };
        let retries = Retries::begin(&self.data_of(member).store, &body);
        retries.is_ok_and(|retries| !retries.session.statements.is_empty())
    }
}

impl Retries {
    /// Reads the number of a command.
    ///
    /// # Errors
    ///
    /// Fails if the session has a newer one.
    pub(super) fn begin(store: &Store, body: &Document) -> Result<Self, CommandError> {
        let number = body.get("txnNumber").and_then(whole);
        let statement = |value: &Bson| whole(value).and_then(|it| i32::try_from(it).ok());
        let mut retries = Self {
            id: None,
            session: Session::default(),
            ids: body.get_array("stmtIds").into_iter().flatten().filter_map(statement).collect(),
            first: body.get("stmtId").and_then(statement).unwrap_or(0),
            retried: Vec::new(),
            has_changed: false,
        };
        let Some(number) = number.filter(|_| !body.contains_key("autocommit")) else {
            return Ok(retries);
        };
        let Some(id) = session_id(body) else {
            let reason = "Transaction number requires a session ID to also be specified";
            return Err(CommandError::coded(72, reason));
        };
        if let Some(known) = store.session(&id) {
            if known.number > number {
                return Err(prohibited(number, known.number));
            }
            if known.number == number && known.is_transaction {
                return Err(converted());
            }
            if known.number == number {
                retries.session = Session::clone(known);
            }
        }
        retries.session.number = number;
        retries.id = Some(id);
        Ok(retries)
    }

    /// Returns whether the command has a number.
    pub(super) const fn is_numbered(&self) -> bool {
        self.id.is_some()
    }

    fn statement(&self, at: usize) -> i32 {
        let offset = i32::try_from(at).unwrap_or(i32::MAX);
        self.ids.get(at).copied().unwrap_or_else(|| self.first.saturating_add(offset))
    }

    /// Returns what a statement has come to before, if it has.
    pub(super) fn done(&mut self, at: usize) -> Option<Document> {
        let statement = self.statement(at);
        let done = self.session.statements.get(&statement).cloned().filter(|_| self.id.is_some());
        if done.is_some() {
            self.retried.push(statement);
        }
        done
    }

    /// Notes what a statement has come to.
    pub(crate) fn note(&mut self, at: usize, outcome: &Document) {
        if self.id.is_some() {
            self.session.statements.insert(self.statement(at), outcome.clone());
            self.has_changed = true;
        }
    }

    /// Has the session remember what was noted.
    pub(super) fn finish(&self, writer: &mut Writer<'_>) {
        if let Some(id) = self.id.as_ref().filter(|_| self.has_changed) {
            writer.note_session(id, self.session.clone());
        }
    }

    /// Says in a reply which statements had come before, as servers do since 5.1.
    pub(super) fn append_to(&self, reply: &mut Document, version: ServerVersion) {
        if !self.retried.is_empty() && version >= ServerVersion::V6_0 {
            let ids: Vec<Bson> = self.retried.iter().map(|it| Bson::Int32(*it)).collect();
            reply.insert("retriedStmtIds", ids);
        }
    }
}

/// The session has a newer number than that of a retryable write.
pub(super) fn prohibited(number: i64, newer: i64) -> CommandError {
    let reason = format!(
        "Retryable write with txnNumber {number} is prohibited on session because a newer \
         retryable write with txnNumber {newer} has already started on this session."
    );
    CommandError::coded(225, reason)
}

/// The number of a retryable write is that of a transaction.
pub(super) fn converted() -> CommandError {
    let reason = "Cannot retry a retryable write that has been converted into a transaction";
    CommandError::coded(217, reason)
}
