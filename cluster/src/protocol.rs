//! Requests as a member reads them: the command, how to reply, and what a `hello` waits for.

use std::time::Duration;

use bson::oid::ObjectId;
use bson::{Document, RawBsonRef, RawDocument};
use sdam_core::bson;
use sdam_core::wire::{Flags, Message, OpMsg, WireError, nesting, op_code};

use super::command_error::CommandError;
use super::event::ClientName;
use super::op_query::Query;
use super::options::ServerVersion;
use super::store::{MAX_LEVELS, MAX_PARTS, is_database, is_too_long};

/// The message that a reply answers, and how it wants to be answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReplyTo {
    pub(super) request_id: i32,
    pub(super) form: ReplyForm,
}

/// The message that carries a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReplyForm {
    /// OP_MSG, with a checksum if the request had one.
    Msg { checksum: bool, exhaust: bool },
    /// OP_REPLY.
    Reply,
}

/// A command, read in place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request<'a> {
    pub(super) reply_to: ReplyTo,
    /// The client wants no reply (OP_MSG, "moreToCome On Requests").
    pub(super) silent: bool,
    /// The name of the first field.
    pub(super) command: &'a str,
    /// For which database it is: OP_QUERY says so by itself, and OP_MSG must in `$db` (OP_MSG,
    /// "Global Command Arguments").
    pub(super) database: Option<&'a str>,
    pub(super) body: &'a RawDocument,
    came: Came<'a>,
}

/// The form in which a command came.
#[derive(Clone, Copy, Debug)]
enum Came<'a> {
    /// By OP_MSG, with documents behind the body.
    Msg(OpMsg<'a>),
    /// By OP_QUERY.
    Query(Query<'a>),
}

impl<'a> Request<'a> {
    /// Reads an OP_MSG or an OP_QUERY.
    pub(super) fn parse(message: &'a Message) -> Result<Self, WireError> {
        let header = message.header();
        let (form, silent, database, body, came) = if header.op_code == op_code::OP_QUERY {
            let query = Query::of(&message.op_query()?);
            (ReplyForm::Reply, false, query.database, query.command, Came::Query(query))
        } else {
            let request = message.op_msg()?;
            let form = ReplyForm::Msg {
                checksum: request.flags.contains(Flags::CHECKSUM_PRESENT),
                exhaust: request.flags.contains(Flags::EXHAUST_ALLOWED),
            };
            let silent = request.flags.contains(Flags::MORE_TO_COME);
            let database = request.body.get_str("$db").ok();
            (form, silent, database, request.body, Came::Msg(request))
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
            came,
        })
    }

    /// Returns how many documents this field has, in the body or in sequences behind it (OP_MSG,
    /// "Command Arguments As Payload").
    pub(super) fn statements(&self, field: &str) -> usize {
        let in_body = self.body.get_array(field).map_or(0, |array| array.into_iter().count());
        let message = match self.came {
            Came::Msg(message) => Some(message),
            Came::Query(_) => None,
        };
        let sequences = message.into_iter().flat_map(|message| message.sequences());
        let sequences = sequences.filter(|sequence| sequence.identifier == field);
        in_body + sequences.map(|sequence| sequence.documents().count()).sum::<usize>()
    }

    /// Returns the documents of the message: that of the command, and those behind it.
    fn documents(&self) -> impl Iterator<Item = &'a RawDocument> + use<'a> {
        let message = match self.came {
            Came::Msg(message) => Some(message),
            Came::Query(_) => None,
        };
        let sequences = message.into_iter().flat_map(|message| message.sequences());
        let behind = sequences.flat_map(|it| it.documents().filter_map(Result::ok));
        std::iter::once(self.body).chain(behind)
    }

    /// Checks that no document of the message is nested more deeply than servers read, before
    /// anything recurses into it.
    ///
    /// # Errors
    ///
    /// Fails as servers do.
    pub(super) fn check_levels(&self) -> Result<(), CommandError> {
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
    pub(super) fn twice_identified(&self) -> Vec<usize> {
        let field = match self.command {
            "insert" => "documents",
            "bulkWrite" => "ops",
            _ => return Vec::new(),
        };
        let in_body = self.body.get_array(field).ok().into_iter().flatten();
        let in_body = in_body.map(|value| value.ok().and_then(RawBsonRef::as_document));
        let message = match self.came {
            Came::Msg(message) => Some(message),
            Came::Query(_) => None,
        };
        let sequences = message.into_iter().flat_map(|message| message.sequences());
        let sequences = sequences.filter(|sequence| sequence.identifier == field);
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
    pub(super) fn whole(&self) -> Result<Document, CommandError> {
        let wrong = |error: bson::error::Error| CommandError::coded(22, error.to_string());
        check_length(self.body)?;
        let mut whole = Document::try_from(self.body).map_err(wrong)?;
        if let Came::Msg(message) = self.came {
            for sequence in message.sequences() {
                let documents = sequence.documents().map(|document| {
                    let torn = |error: WireError| CommandError::coded(22, error.to_string());
                    let document = document.map_err(torn)?;
                    check_length(document)?;
                    Document::try_from(document).map_err(wrong)
                });
                let documents: Vec<Document> = documents.collect::<Result<_, _>>()?;
                whole.insert(sequence.identifier, documents);
            }
        }
        Ok(whole)
    }

    /// Returns whether the command belongs to a transaction.
    pub(super) fn is_in_transaction(&self) -> bool {
        self.body.get_bool("autocommit").is_ok()
    }

    /// Returns whether the command is a hello of either kind.
    pub(super) fn is_hello(&self) -> bool {
        matches!(self.command_name(), "hello" | "isMaster")
    }

    /// Returns whether this is no command, but a query for the documents of a collection.
    pub(super) const fn is_for_documents(&self) -> bool {
        matches!(self.came, Came::Query(Query { database: None, .. }))
    }

    /// Returns why it is refused for how it came.
    pub(super) fn refusal(&self, version: ServerVersion) -> Option<CommandError> {
        match self.came {
            Came::Msg(_) => match self.database {
                None => Some(CommandError::no_database()),
                Some(name) if !is_database(name) => {
                    Some(CommandError::coded(73, format!("Invalid database name: '{name}'")))
                }
                Some(_) => None,
            },
            Came::Query(query) => query.refusal(self.command, version),
        }
    }

    /// Returns who may answer a read.
    pub(super) fn read_mode(&self) -> &'a str {
        match self.came {
            Came::Msg(_) => {
                let preference = self.body.get_document("$readPreference");
                preference.and_then(|it| it.get_str("mode")).unwrap_or("primary")
            }
            Came::Query(query) => query.read_mode,
        }
    }

    /// Returns the command's own name, whatever alias the client used.
    pub(super) fn command_name(&self) -> &'a str {
        own_name(self.command)
    }

    /// Returns the name of the application, as a hello gives it.
    pub(super) fn app_name(&self) -> Option<&'a str> {
        let application = self.body.get_document("client").ok()?.get_document("application");
        application.ok()?.get_str("name").ok()
    }

    /// Returns what the client says of itself in a hello.
    pub(super) fn client_name(&self) -> ClientName {
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
    pub(super) const fn allows_exhaust(&self) -> bool {
        matches!(self.reply_to.form, ReplyForm::Msg { exhaust: true, .. })
    }
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
pub(super) const MAX_INTERNAL_LEN: usize = (16 << 20) + (16 << 10);

/// Checks that a document of a message is not too large.
pub(super) fn check_length(document: &RawDocument) -> Result<(), CommandError> {
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

/// A `hello` or legacy hello; an exhaust stream answers the same one again and again.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hello {
    /// The client said `isMaster`, so the reply says `ismaster`.
    pub(super) legacy: bool,
    /// The client asked whether `hello` is known.
    pub(super) hello_ok: bool,
    pub(super) wait: Option<Wait>,
    /// The client says that there is a load balancer between.
    pub(super) load_balanced: bool,
}

/// The client's topology version, and how long to wait for a newer one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wait {
    pub(super) process_id: ObjectId,
    pub(super) counter: i64,
    pub(super) max: Duration,
}

impl Hello {
    /// Reads the arguments; those that `version` does not know are ignored, as it does.
    pub(super) fn parse(
        request: &Request<'_>,
        version: ServerVersion,
    ) -> Result<Self, CommandError> {
        let asked = request.body.get_bool("helloOk").unwrap_or(false);
        Ok(Self {
            legacy: request.command != "hello",
            hello_ok: asked && version.has_hello_ok(),
            wait: match version.has_awaitable_hello() {
                true => Wait::parse(request.body)?,
                false => None,
            },
            load_balanced: request.body.get_bool("loadBalanced").unwrap_or(false),
        })
    }

    /// Returns the name of the command, as fail points know it.
    pub(super) const fn command(&self) -> &'static str {
        match self.legacy {
            true => "isMaster",
            false => "hello",
        }
    }
}

impl Wait {
    fn parse(body: &RawDocument) -> Result<Option<Self>, CommandError> {
        let field = |name| body.get(name).ok().flatten();
        match (field("topologyVersion"), field("maxAwaitTimeMS")) {
            (None, None) => Ok(None),
            (Some(version), Some(max)) => {
                let (process_id, counter) = topology_version(version)?;
                let max = integer(max).and_then(|millis| u64::try_from(millis).ok()).ok_or(
                    CommandError::numbered(31373, "maxAwaitTimeMS must be a non-negative integer"),
                )?;
                Ok(Some(Self { process_id, counter, max: Duration::from_millis(max) }))
            }
            (Some(_), None) => Err(CommandError::numbered(
                31368,
                "A request with a 'topologyVersion' must include 'maxAwaitTimeMS'",
            )),
            (None, Some(_)) => Err(CommandError::numbered(
                31368,
                "A request with 'maxAwaitTimeMS' must include a 'topologyVersion'",
            )),
        }
    }
}

fn topology_version(value: RawBsonRef<'_>) -> Result<(ObjectId, i64), CommandError> {
    let fields = value.as_document().and_then(|version| {
        let process_id = version.get_object_id("processId").ok()?;
        Some((process_id, version.get_i64("counter").ok()?))
    });
    match fields {
        Some((_, counter)) if counter < 0 => {
            Err(CommandError::numbered(31372, "topologyVersion must have a non-negative counter"))
        }
        Some(fields) => Ok(fields),
        None => Err(CommandError::coded(
            14,
            "topologyVersion must be {processId: <ObjectId>, counter: <long>}",
        )),
    }
}

/// Returns a command's own name, by which it is known here, of any of its names.
pub(super) fn own_name(name: &str) -> &str {
    match name {
        "ismaster" => "isMaster",
        "buildinfo" => "buildInfo",
        "findandmodify" => "findAndModify",
        "getlasterror" => "getLastError",
        name => name,
    }
}

/// Reads a whole number, whatever numeric type a client chose for it.
pub(super) fn integer(value: RawBsonRef<'_>) -> Option<i64> {
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
