//! Requests as a member reads them: the command, and how to reply.

use bson::{Document, RawBsonRef, RawDocument};
use sdam_core::bson;
use sdam_core::wire::{DocumentSequence, Flags, Message, OpMsg, WireError, nesting, op_code};

use super::{CommandError, Query};
use crate::options::ServerVersion;
use crate::store::{MAX_LEVELS, MAX_PARTS, is_database, is_too_long};

/// The message that a reply answers, and how it wants to be answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReplyTo {
    pub(crate) request_id: i32,
    pub(crate) form: ReplyForm,
}

/// The message that carries a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReplyForm {
    /// OP_MSG, with a checksum if the request had one.
    Msg { checksum: bool, exhaust: bool },
    /// OP_REPLY.
    Reply,
}

/// A command, read in place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    pub(crate) reply_to: ReplyTo,
    /// The client wants no reply (OP_MSG, "moreToCome On Requests").
    pub(crate) silent: bool,
    /// The name of the first field.
    pub(crate) command: &'a str,
    /// For which database it is: OP_QUERY says so by itself, and OP_MSG must in `$db` (OP_MSG,
    /// "Global Command Arguments").
    pub(crate) database: Option<&'a str>,
    pub(crate) body: &'a RawDocument,
    carrier: Carrier<'a>,
}

/// The form in which a command came.
#[derive(Clone, Copy, Debug)]
enum Carrier<'a> {
    /// By OP_MSG, with documents behind the body.
    Msg(OpMsg<'a>),
    /// By OP_QUERY.
    Query(Query<'a>),
}

impl<'a> Request<'a> {
    /// Reads an OP_MSG or an OP_QUERY.
    pub(crate) fn parse(message: &'a Message) -> Result<Self, WireError> {
        let header = message.header();
        let (form, silent, database, body, carrier) = if header.op_code == op_code::OP_QUERY {
            let query = Query::of(&message.op_query()?);
            (ReplyForm::Reply, false, query.database, query.command, Carrier::Query(query))
        } else {
            let request = message.op_msg()?;
            let form = ReplyForm::Msg {
                checksum: request.flags.contains(Flags::CHECKSUM_PRESENT),
                exhaust: request.flags.contains(Flags::EXHAUST_ALLOWED),
            };
            let silent = request.flags.contains(Flags::MORE_TO_COME);
            let database = request.body.get_str("$db").ok();
            (form, silent, database, request.body, Carrier::Msg(request))
        };
        let mut command = "";
        for (at, element) in body.iter().enumerate() {
            let (name, _) = element.map_err(|error| WireError::Bson(error.to_string()))?;
            if at == 0 {
                command = name.as_str();
            }
        }
        Ok(Self {
            reply_to: ReplyTo { request_id: header.request_id, form },
            silent,
            command,
            database,
            body,
            carrier,
        })
    }

    /// Returns the sequences of documents behind the body.
    fn sequences(&self) -> impl Iterator<Item = DocumentSequence<'a>> + use<'a> {
        let message = match self.carrier {
            Carrier::Msg(message) => Some(message),
            Carrier::Query(_) => None,
        };
        message.into_iter().flat_map(|message| message.sequences())
    }

    /// Returns how many documents this field has, in the body or in sequences behind it (OP_MSG,
    /// "Command Arguments As Payload").
    pub(crate) fn statements(&self, field: &str) -> usize {
        let in_body = self.body.get_array(field).map_or(0, |array| array.into_iter().count());
        let sequences = self.sequences().filter(|sequence| sequence.identifier == field);
        in_body + sequences.map(|sequence| sequence.documents().count()).sum::<usize>()
    }

    /// Returns the documents of the message: that of the command, and those behind it.
    fn documents(&self) -> impl Iterator<Item = &'a RawDocument> + use<'a> {
        let behind = self.sequences().flat_map(|it| it.documents().filter_map(Result::ok));
        std::iter::once(self.body).chain(behind)
    }

    /// Checks the form of the message, before anything recurses into it.
    ///
    /// # Errors
    ///
    /// Fails as servers do: the connection stays.
    pub(crate) fn check(&self, version: ServerVersion) -> Result<(), CommandError> {
        self.check_sections(version).and_then(|()| self.check_levels())
    }

    /// Checks that the message has no section that servers of this version do not know.
    fn check_sections(&self, version: ServerVersion) -> Result<(), CommandError> {
        match self.carrier {
            Carrier::Msg(message)
                if message.trace_context().is_some() && version < ServerVersion::V9_0 =>
            {
                Err(CommandError::numbered(40_432, "Unknown section kind 3"))
            }
            _ => Ok(()),
        }
    }

    /// Checks that no document of the message is nested more deeply than servers read.
    fn check_levels(&self) -> Result<(), CommandError> {
        for document in self.documents() {
            if nesting(document, MAX_LEVELS).is_none() {
                let reason = "BSONObj exceeds maximum nested object depth";
                return Err(CommandError::coded(15, reason));
            }
            if has_long_path(document) {
                let reason = format!("a path has more than {MAX_PARTS} parts");
                return Err(CommandError::coded(15, reason));
            }
        }
        Ok(())
    }

    /// Returns the documents to be inserted that have two `_id`s, by index.
    pub(crate) fn twice_identified(&self) -> Vec<usize> {
        let field = match self.command {
            "insert" => "documents",
            "bulkWrite" => "ops",
            _ => return Vec::new(),
        };
        let in_body = self.body.get_array(field).ok().into_iter().flatten();
        let in_body = in_body.map(|value| value.ok().and_then(RawBsonRef::as_document));
        let sequences = self.sequences().filter(|sequence| sequence.identifier == field);
        let behind = sequences.flat_map(|sequence| sequence.documents().map(Result::ok));
        let is_twice = |document: &RawDocument| {
            let inserted = match field {
                "ops" => document.get_document("document").ok(),
                _ => Some(document),
            };
            let names = inserted.into_iter().flatten().filter_map(Result::ok);
            names.filter(|(name, _)| name.as_str() == "_id").count() > 1
        };
        let all = in_body.chain(behind).enumerate();
        all.filter(|(_, it)| it.is_some_and(is_twice)).map(|(at, _)| at).collect()
    }

    /// Returns the command with all its documents, wherever the message has them.
    ///
    /// # Errors
    ///
    /// Fails if one of them is malformed.
    pub(crate) fn whole(&self) -> Result<Document, CommandError> {
        let wrong = |error: bson::error::Error| CommandError::coded(22, error.to_string());
        check_length(self.body)?;
        let mut whole = Document::try_from(self.body).map_err(wrong)?;
        for sequence in self.sequences() {
            let documents = sequence.documents().map(|document| {
                let torn = |error: WireError| CommandError::coded(22, error.to_string());
                let document = document.map_err(torn)?;
                check_length(document)?;
                Document::try_from(document).map_err(wrong)
            });
            let documents: Vec<Document> = documents.collect::<Result<_, _>>()?;
            whole.insert(sequence.identifier, documents);
        }
        Ok(whole)
    }

    /// Returns whether the command belongs to a transaction.
    pub(crate) fn is_in_transaction(&self) -> bool {
        self.body.get_bool("autocommit").is_ok()
    }

    /// Returns the id of the session that the command belongs to.
    pub(crate) fn session_id(&self) -> Option<&'a [u8]> {
        match self.body.get_document("lsid").ok()?.get("id").ok()?? {
            RawBsonRef::Binary(id) => Some(id.bytes),
            _ => None,
        }
    }

    /// Returns whether the command is a hello of either kind.
    pub(crate) fn is_hello(&self) -> bool {
        matches!(self.command_name(), "hello" | "isMaster")
    }

    /// Returns whether this is no command, but a query for the documents of a collection.
    pub(crate) const fn is_for_documents(&self) -> bool {
        matches!(self.carrier, Carrier::Query(Query { database: None, .. }))
    }

    /// Returns why it is refused for how it came.
    pub(crate) fn refusal(&self, version: ServerVersion) -> Option<CommandError> {
        match self.carrier {
            Carrier::Msg(_) => match self.database {
                None => Some(CommandError::no_database()),
                Some(name) if !is_database(name) => {
                    Some(CommandError::coded(73, format!("Invalid database name: '{name}'")))
                }
                Some(_) => None,
            },
            Carrier::Query(query) => query.refusal(self.command, version),
        }
    }

    /// Returns who may answer a read.
    pub(crate) fn read_mode(&self) -> &'a str {
        match self.carrier {
            Carrier::Msg(_) => {
                let preference = self.body.get_document("$readPreference");
                preference.and_then(|it| it.get_str("mode")).unwrap_or("primary")
            }
            Carrier::Query(query) => query.read_mode,
        }
    }

    /// Returns the command's own name, whatever alias the client used.
    pub(crate) fn command_name(&self) -> &'a str {
        own_name(self.command)
    }

    /// Returns the name of the application, as a hello gives it.
    pub(crate) fn app_name(&self) -> Option<&'a str> {
        let application = self.body.get_document("client").ok()?.get_document("application");
        application.ok()?.get_str("name").ok()
    }

    /// Returns what the client says of itself in a hello.
    pub(crate) fn client_name(&self) -> ClientName {
        const LONGEST: usize = 128;
        let shortened = |text: &str| text.chars().take(LONGEST).collect();
        let client = self.body.get_document("client").ok();
        let driver = client.and_then(|client| client.get_document("driver").ok());
        let driver = driver.and_then(|driver| {
            let version = driver.get_str("version").unwrap_or_default();
            Some(format!("{} {version}", driver.get_str("name").ok()?))
        });
        ClientName {
            driver: driver.as_deref().map(|text| shortened(text.trim_end())),
            application: self.app_name().map(shortened),
        }
    }

    /// Returns whether the client takes several replies.
    pub(crate) const fn allows_exhaust(&self) -> bool {
        matches!(self.reply_to.form, ReplyForm::Msg { exhaust: true, .. })
    }

    /// Returns it as a server takes it that streams the batches of cursors, or does not.
    pub(crate) fn streamed_if(mut self, streams: bool) -> Self {
        if let ReplyForm::Msg { exhaust, .. } = &mut self.reply_to.form {
            *exhaust &= streams || self.command != "getMore";
        }
        self
    }
}

/// The name of a client in the metadata of its first hello on a connection; each text is
/// cut off after 128 characters.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub struct ClientName {
    /// The name and the version of the driver.
    pub driver: Option<String>,
    /// The name of the application.
    pub application: Option<String>,
}

/// Returns whether a name in a document is a path with too many parts: each part may become a
/// level. The document is one of few levels.
fn has_long_path(document: &RawDocument) -> bool {
    document.iter().filter_map(Result::ok).any(|(name, value)| {
        let within = match value {
            RawBsonRef::Document(inner) => Some(inner),
            RawBsonRef::Array(inner) => RawDocument::from_bytes(inner.as_bytes()).ok(),
            _ => None,
        };
        is_too_long(name.as_str()) || within.is_some_and(has_long_path)
    })
}

/// The largest document of a message: servers leave room around one that is stored.
pub(crate) const MAX_INTERNAL_LEN: usize = (16 << 20) + (16 << 10);

/// Checks that a document of a message is not too large.
pub(crate) fn check_length(document: &RawDocument) -> Result<(), CommandError> {
    let length = document.as_bytes().len();
    match length > MAX_INTERNAL_LEN {
        true => {
            let reason = format!(
                "BSONObj size: {length} is invalid. Size must be between 0 and {MAX_INTERNAL_LEN}"
            );
            Err(CommandError::coded(10334, reason))
        }
        false => Ok(()),
    }
}

/// Returns a command's own name, by which it is known here, of any of its names.
pub(crate) fn own_name(name: &str) -> &str {
    match name {
        "ismaster" => "isMaster",
        "buildinfo" => "buildInfo",
        "findandmodify" => "findAndModify",
        "getlasterror" => "getLastError",
        name => name,
    }
}

/// Reads a whole number, whatever numeric type a client chose for it.
pub(crate) fn integer(value: RawBsonRef<'_>) -> Option<i64> {
    match value {
        RawBsonRef::Int32(number) => Some(number.into()),
        RawBsonRef::Int64(number) => Some(number),
        #[allow(
            clippy::cast_possible_truncation,
            reason = "a cast to an integer saturates, and such a long wait never ends either way"
        )]
        RawBsonRef::Double(number) if number.fract() == 0.0 => Some(number as i64),
        _ => None,
    }
}
