//! Commands by OP_QUERY, as old drivers send them, and what is answered to queries that are none.
//!
//! Until 5.0 any command may come so. Since then those alone by which a connection is opened.

use bson::{RawDocument, rawdoc};
use sdam_core::bson;
use sdam_core::wire::{OpQuery, ReplyFlags, write_op_reply};

use super::command_error::CommandError;
use super::model::{Action, Cluster, ConnectionId};
use super::options::{MemberId, ServerVersion};
use super::protocol::Request;

/// The message to old drivers since 5.1, word for word: people look for it.
const UPGRADE: &str = "The client driver may require an upgrade. For more details see \
                       https://dochub.mongodb.org/core/legacy-opcode-removal";

/// The number of "is no longer supported".
const NO_LONGER_SUPPORTED: i32 = 5_739_101;

/// The maximum length of a command's name in a message.
const LONGEST_NAME: usize = 64;

/// The content of an OP_QUERY besides the command.
#[derive(Clone, Copy, Debug)]
pub(super) struct Query<'a> {
    /// The database, unless this is a query for the documents of a collection.
    pub(super) database: Option<&'a str>,
    /// The command, out of what is wrapped around it.
    pub(super) command: &'a RawDocument,
    number_to_return: i32,
    /// The servers that may answer, by the wrapper of the command or by a flag.
    pub(super) read_mode: &'a str,
}

impl<'a> Query<'a> {
    pub(super) fn of(query: &OpQuery<'a>) -> Self {
        let first = query.query.iter().next().and_then(Result::ok);
        let wrapped = first.filter(|(name, _)| matches!(name.as_str(), "$query" | "query"));
        let wrapped = wrapped.and_then(|(_, value)| value.as_document());
        let command = wrapped.unwrap_or(query.query);
        let mode = |document: &'a RawDocument| {
            document.get_document("$readPreference").ok()?.get_str("mode").ok()
        };
        let by_flag = if query.secondary_ok { "secondaryPreferred" } else { "primary" };
        Self {
            database: query.collection.strip_suffix(".$cmd"),
            command,
            number_to_return: query.number_to_return,
            read_mode: mode(query.query).or_else(|| mode(command)).unwrap_or(by_flag),
        }
    }

    /// Returns why a command that has come so is refused, whatever it is about.
    pub(super) fn refusal(&self, name: &str, version: ServerVersion) -> Option<CommandError> {
        let opens = matches!(
            name,
            "hello"
                | "isMaster"
                | "ismaster"
                | "buildInfo"
                | "buildinfo"
                | "_isSelf"
                | "saslStart"
                | "saslContinue"
                | "authenticate"
        );
        if self.database == Some("") {
            Some(CommandError::coded(73, "the name of the database is empty"))
        } else if !matches!(self.number_to_return, 1 | -1) {
            let number = self.number_to_return;
            let reason = format!("a command returns one document, so 1 or -1, not {number}");
            Some(CommandError::numbered(16979, reason))
        } else if version > ServerVersion::V5_0 && !opens {
            let name: String = name.chars().take(LONGEST_NAME).collect();
            let reason = format!("Unsupported OP_QUERY command: {name}. {UPGRADE}");
            Some(CommandError::coded(352, reason))
        } else {
            None
        }
    }
}

impl Cluster {
    /// Answers a query for documents: there are none, or the server no longer supports OP_QUERY.
    pub(super) fn refuse_query(
        &mut self,
        (id, member): (ConnectionId, MemberId),
        request: &Request<'_>,
        out: &mut Vec<Action>,
    ) {
        let Some(process) = self.process_mut(member) else { return };
        let (code, reason) = match process.version > ServerVersion::V5_0 {
            true => (NO_LONGER_SUPPORTED, format!("OP_QUERY is no longer supported. {UPGRADE}")),
            false => (238, "documents are found here by the command find only".to_owned()),
        };
        let document = rawdoc! { "$err": reason, "code": code, "ok": 0.0 };
        let (request_id, to) = (process.next_request_id(), request.reply_to.request_id);
        let mut bytes = Vec::new();
        write_op_reply(&mut bytes, request_id, to, ReplyFlags::QUERY_FAILURE, &document);
        self.send_bytes(id, bytes, out);
    }

    /// Sends a message, and counts it.
    pub(super) fn send_bytes(&mut self, id: ConnectionId, bytes: Vec<u8>, out: &mut Vec<Action>) {
        let member = self.connections.get(&id).map(|connection| connection.member);
        if let Some(process) = member.and_then(|member| self.process_mut(member)) {
            process.counters.sent(bytes.len());
        }
        out.push(Action::Send { connection: id, bytes });
    }
}
