//! Commands by OP_QUERY, as old drivers send them, and what is answered to queries that are none.
//!
//! Until 5.0 any command may come so. Since then those alone by which a connection is opened.

use bson::{RawDocument, RawDocumentBuf, rawdoc};
use sdam_core::bson;
use sdam_core::wire::OpQuery;

use super::CommandError;
use crate::options::ServerVersion;

/// The message to old drivers since 5.1, word for word: people look for it.
const UPGRADE: &str = "The client driver may require an upgrade. For more details see \
                       https://dochub.mongodb.org/core/legacy-opcode-removal";

/// The number of "is no longer supported".
const NO_LONGER_SUPPORTED: i32 = 5_739_101;

/// The maximum length of a command's name in a message.
const LONGEST_NAME: usize = 64;

/// The content of an OP_QUERY besides the command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Query<'a> {
    /// The database, unless this is a query for the documents of a collection.
    pub(crate) database: Option<&'a str>,
    /// The command, out of what is wrapped around it.
    pub(crate) command: &'a RawDocument,
    number_to_return: i32,
    /// The servers that may answer, by the wrapper of the command or by a flag.
    pub(crate) read_mode: &'a str,
}

impl<'a> Query<'a> {
    pub(crate) fn of(query: &OpQuery<'a>) -> Self {
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
    pub(crate) fn refusal(&self, name: &str, version: ServerVersion) -> Option<CommandError> {
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

/// Returns the reply to a query for documents: the server never had them this way, or no longer
/// supports OP_QUERY.
pub(crate) fn no_documents(version: ServerVersion) -> RawDocumentBuf {
    let (code, reason) = match version > ServerVersion::V5_0 {
        true => (NO_LONGER_SUPPORTED, format!("OP_QUERY is no longer supported. {UPGRADE}")),
        false => (238, "documents are found here by the command find only".to_owned()),
    };
    rawdoc! { "$err": reason, "code": code, "ok": 0.0 }
}
