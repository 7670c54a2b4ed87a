//! The errors of operations, and their meaning for the server.
//!
//! Implements the classification in "Error handling" of the SDAM specification; what follows from
//! it is the topology's business.

use bson::oid::ObjectId;
use bson::{RawBsonRef, RawDocument};

use super::labels::{RETRYABLE, SYSTEM_OVERLOADED, labels_in};
use super::timeout::MAX_TIME_EXPIRED;
use crate::config::ServerAddress;
use crate::description::TopologyVersion;
use crate::failure::{Cause, Failure, Stage};
use crate::hello;
use crate::id::Generation;
use crate::process::Forked;
use crate::wire::{self, Element, SequenceError, WireError, elements};

/// The maximum length of the message of a reply.
const MAX_MESSAGE_LEN: usize = 1024;

/// The failure of an operation, or of establishing a connection for one.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct OperationFailure {
    /// The generation of the connection, or of the pool when establishing it began.
    pub generation: Generation,
    /// Behind a load balancer, the service of the connection, once its hello has named it.
    pub service: Option<ObjectId>,
    /// The maxWireVersion of the connection, or 0 if its hello was not answered.
    pub max_wire_version: i32,
    /// The error.
    pub error: OperationError,
}

impl OperationFailure {
    /// Says what went wrong on a connection of this generation whose hello named no service;
    /// `max_wire_version` is 0 if it was not answered.
    pub const fn new(generation: Generation, max_wire_version: i32, error: OperationError) -> Self {
        Self { generation, service: None, max_wire_version, error }
    }

    /// Replaces [`service`](Self::service).
    #[must_use]
    pub const fn with_service(mut self, service: Option<ObjectId>) -> Self {
        self.service = service;
        self
    }
}

/// Describes bytes that are no message of the protocol, at this stage of a connection.
pub fn unreadable(stage: Stage, error: &WireError) -> Failure {
    match error {
        WireError::OtherProtocol(protocol) => {
            let cause = Cause::OtherProtocol { protocol: (*protocol).into() };
            Failure::new(stage, cause, format!("{error}: this is not a MongoDB port"))
        }
        _ => Failure::new(stage, Cause::Malformed, format!("malformed reply: {error}")),
    }
}

/// The error of an operation.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum OperationError {
    /// The stream failed; its stage says how far the connection had come.
    #[error("{0}")]
    Stream(Failure),
    /// The server replied with an error.
    #[error("{error}")]
    Reply {
        /// The stage of the connection.
        stage: Stage,
        /// The error.
        error: CommandError,
    },
    /// The command was not sent; that says nothing of the server.
    #[error("the command cannot be sent: {0}")]
    Invalid(InvalidCommand),
}

impl From<InvalidCommand> for OperationError {
    fn from(reason: InvalidCommand) -> Self {
        Self::Invalid(reason)
    }
}

/// The reason why a command cannot be sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidCommand {
    /// The document has no field.
    #[error("it is empty; its first field must be the command's name")]
    Empty,
    /// The document is not BSON.
    #[error("malformed BSON: {0}")]
    Bson(String),
    /// The database has no name, or one with NUL in it.
    #[error("the name of the database must have at least one character, and no NUL")]
    Database,
    /// It cannot have these document sequences.
    #[error("it has {0}")]
    Sequence(SequenceError),
    /// The server takes no messages of that length.
    #[error("it has {length} bytes; the server takes messages of at most {limit}")]
    TooLong {
        /// The length.
        length: usize,
        /// The maximum length.
        limit: usize,
    },
    /// The last exchange has not ended: its future was dropped, or not all replies were read.
    #[error("the last exchange on this connection was not finished; check out another one")]
    Busy,
    /// The outcome of the last exchange was not reported.
    #[error("raw messages were exchanged, and what came of it must be reported first")]
    Unreported,
    /// The connection has failed.
    #[error("the connection has already failed; check out another one")]
    Broken,
    /// The connection is another process's.
    #[error(transparent)]
    Forked(#[from] Forked),
    /// The server at which a cursor was opened has left the deployment.
    #[error("{0} is no member of the deployment any more")]
    NotAMember(ServerAddress),
    /// Nothing is known at the moment of the server at which a cursor was opened, and its reader
    /// begins again at another one rather than wait.
    #[error("nothing is known of {0} at the moment, and another server can be selected")]
    UnknownServer(ServerAddress),
    /// The session is another client's.
    #[error("the session was started by another client")]
    ForeignSession,
    /// There is no message to wait for.
    #[error("no reply is due")]
    NoReplyDue,
}

impl OperationError {
    /// Returns the labels of the error (newer than the texts: "Backpressure labels").
    ///
    /// Network errors and time-outs while connecting or during hello may be the server's way to
    /// shed load, and have both; those that cannot, as a name that does not resolve, have none.
    pub fn labels(&self) -> Vec<&str> {
        match self {
            Self::Stream(failure) if failure.may_be_overload() => {
                vec![SYSTEM_OVERLOADED, RETRYABLE]
            }
            Self::Stream(_) | Self::Invalid(_) => Vec::new(),
            Self::Reply { error, .. } => error.labels.iter().map(String::as_str).collect(),
        }
    }

    /// Returns whether the server sheds load, which says nothing against it.
    pub fn is_overload(&self) -> bool {
        self.labels().contains(&SYSTEM_OVERLOADED)
    }

    /// Returns whether it reports a time-out: the client has waited as long as it may, or the
    /// server has used up `maxTimeMS`, see [`MAX_TIME_EXPIRED`].
    pub const fn is_timeout(&self) -> bool {
        match self {
            Self::Stream(failure) => matches!(failure.cause, Cause::Timeout),
            Self::Reply { error, .. } => error.is_timeout(),
            Self::Invalid(_) => false,
        }
    }

    /// Returns how far the connection had come.
    pub const fn stage(&self) -> Stage {
        match self {
            Self::Stream(failure) => failure.stage,
            Self::Reply { stage, .. } => *stage,
            Self::Invalid(_) => Stage::Operate,
        }
    }

    /// Describes the error as a server's description does.
    pub fn to_failure(&self) -> Failure {
        match self {
            Self::Stream(failure) => failure.clone(),
            Self::Invalid(_) => {
                Failure::new(Stage::Operate, Cause::Configuration, self.to_string())
            }
            Self::Reply { stage, error } => {
                let (code, name) = (error.code.unwrap_or(0), error.code_name.as_str().into());
                Failure::new(*stage, Cause::Command { code, name }, error.message.as_str())
            }
        }
    }
}

/// An error that a server replied with.
#[derive(Clone, Debug, PartialEq, Default)]
#[non_exhaustive]
pub struct CommandError {
    /// The error's number.
    pub code: Option<i32>,
    /// The error's name, empty if there is none.
    pub code_name: String,
    /// The error's message, empty if there is none; cut after 1 kB.
    pub message: String,
    /// The labels that the server gave it.
    pub labels: Vec<String>,
    /// The freshness of the server's word.
    pub topology_version: Option<TopologyVersion>,
}

/// The meaning of an error for the state of a replica set member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StateChange {
    /// "not writable primary"
    NotWritablePrimary,
    /// "node is recovering"
    Recovering,
    /// "node is shutting down", which is also recovering
    ShuttingDown,
}

impl CommandError {
    /// Finds the error in a reply: that of the command, or else of its write concern.
    ///
    /// Errors within `writeErrors` MUST NOT be looked at. What is malformed in the reply counts as
    /// absent. `None` if the command succeeded.
    ///
    /// ```
    /// use sdam_core::bson::rawdoc;
    /// use sdam_core::operation::{CommandError, StateChange};
    ///
    /// let reply = rawdoc! { "ok": 0, "code": 10107, "errmsg": "not primary" };
    /// let error = CommandError::in_reply(&reply).unwrap();
    /// assert_eq!(error.state_change(), Some(StateChange::NotWritablePrimary));
    /// assert_eq!(CommandError::in_reply(&rawdoc! { "ok": 1 }), None);
    /// ```
    pub fn in_reply(reply: &RawDocument) -> Option<Self> {
        let (mut ok, mut error, mut write_concern) = (false, Self::default(), None);
        for element in elements(reply).map_while(Result::ok) {
            match (element.name(), element.value()) {
                ("ok", Ok(value)) => ok = wire::ok(value) == Some(true),
                ("writeConcernError", Ok(RawBsonRef::Document(document))) => {
                    write_concern = Some(document);
                }
                ("topologyVersion", Ok(value)) => {
                    error.topology_version = hello::topology_version(value).ok();
                }
                ("errorLabels", Ok(RawBsonRef::Array(labels))) => {
                    error.labels = labels_in(labels);
                }
                _ => error.read(&element),
            }
        }
        if !ok {
            return Some(error);
        }
        let mut nested = Self {
            topology_version: error.topology_version,
            labels: error.labels,
            ..Self::default()
        };
        for element in elements(write_concern?).map_while(Result::ok) {
            nested.read(&element);
        }
        Some(nested)
    }

    /// Returns whether the server has used up `maxTimeMS`, see [`MAX_TIME_EXPIRED`].
    pub const fn is_timeout(&self) -> bool {
        matches!(self.code, Some(MAX_TIME_EXPIRED))
    }

    /// Reads a field; servers cut messages within a character, which is no reason to lose anything.
    fn read(&mut self, element: &Element<'_>) {
        let text = || element.beginning(MAX_MESSAGE_LEN).unwrap_or_default();
        match element.name() {
            "code" => {
                self.code = match element.value() {
                    Ok(RawBsonRef::Int32(code)) => Some(code),
                    Ok(RawBsonRef::Int64(code)) => i32::try_from(code).ok(),
                    Ok(RawBsonRef::Double(code)) => Some(code as i32),
                    _ => self.code,
                };
            }
            "codeName" => self.code_name = text(),
            "errmsg" | "$err" => self.message = text(),
            _ => {}
        }
    }

    /// Says whether this is a "not writable primary" or a "node is recovering" error: by its code
    /// alone, and by its message only if it has none.
    pub fn state_change(&self) -> Option<StateChange> {
        match self.code {
            Some(11600 | 91) => Some(StateChange::ShuttingDown),
            Some(11602 | 13436 | 189) => Some(StateChange::Recovering),
            Some(10107 | 13435 | 10058) => Some(StateChange::NotWritablePrimary),
            Some(_) => None,
            None if self.says("not master or secondary") || self.says("node is recovering") => {
                Some(StateChange::Recovering)
            }
            None if self.says("not master") => Some(StateChange::NotWritablePrimary),
            None => None,
        }
    }

    /// Says whether a member that is no primary complains of a command without `$readPreference`
    /// ("NotPrimaryNoSecondaryOk").
    ///
    /// Of a server that is taken for the primary it says that it is none any more, and commands for
    /// the primary have no `$readPreference`; of any other member it says nothing new.
    pub(crate) const fn wants_secondary_ok(&self) -> bool {
        matches!(self.code, Some(13435))
    }

    /// Returns the name, or the number where there is none.
    pub(crate) fn name_or_code(&self) -> String {
        match (self.code_name.is_empty(), self.code) {
            (false, _) => self.code_name.clone(),
            (true, Some(code)) => format!("code {code}"),
            (true, None) => self.message.clone(),
        }
    }

    fn says(&self, words: &str) -> bool {
        self.message.contains(words)
    }
}

impl std::fmt::Display for CommandError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)?;
        match (self.code, self.code_name.as_str()) {
            (Some(code), "") => write!(f, " (code {code})")?,
            (Some(code), name) => write!(f, " ({name}, code {code})")?,
            (None, _) => {}
        }
        match self.labels.is_empty() {
            true => Ok(()),
            false => write!(f, " [{}]", self.labels.join(", ")),
        }
    }
}

/// The outcome of a command, as its reply has it.
///
/// Only that is read which is of use here: a text that is no UTF-8, in whatever field, changes
/// nothing else, and least of all what is thought of the server.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ReplyFacts<'a> {
    /// True if the command has succeeded.
    pub ok: bool,
    /// The error of the command, or of its write concern if it has succeeded.
    pub error: Option<CommandError>,
    /// The `$clusterTime`.
    pub cluster_time: Option<&'a RawDocument>,
}

impl<'a> ReplyFacts<'a> {
    /// Reads a reply.
    ///
    /// # Errors
    ///
    /// Fails if it is unclear where one of its fields ends.
    pub fn of(reply: &'a RawDocument) -> Result<Self, bson::error::Error> {
        let (mut ok, mut write_concern, mut cluster_time) = (false, false, None);
        for element in reply.iter_elements() {
            let element = element?;
            match element.key().as_str() {
                "ok" => ok = element.value().is_ok_and(|value| wire::ok(value) == Some(true)),
                "writeConcernError" => write_concern = true,
                "$clusterTime" => {
                    let time = element.value().ok().and_then(RawBsonRef::as_document);
                    cluster_time = time.or(cluster_time);
                }
                _ => {}
            }
        }
        let error = match ok && !write_concern {
            true => None,
            false => CommandError::in_reply(reply),
        };
        Ok(Self { ok, error, cluster_time })
    }
}

#[cfg(test)]
mod tests {
    use bson::oid::ObjectId;
    use bson::{RawArrayBuf, RawBson, RawDocumentBuf, Timestamp, rawdoc};

    use super::super::labels::MAX_LABELS;
    use super::{
        CommandError, InvalidCommand, MAX_MESSAGE_LEN, OperationError, ReplyFacts, StateChange,
        unreadable,
    };
    use crate::failure::{Cause, Failure, Stage};
    use crate::wire::WireError;

    #[test]
    fn state_change_errors_are_told_by_code_and_without_one_by_message() {
        let by_code = |code: i32| {
            let reply = rawdoc! { "ok": 0, "code": code, "errmsg": "not master" };
            CommandError::in_reply(&reply).unwrap().state_change()
        };
        for code in [11600, 91] {
            assert_eq!(by_code(code), Some(StateChange::ShuttingDown), "{code}");
        }
        for code in [11602, 13436, 189] {
            assert_eq!(by_code(code), Some(StateChange::Recovering), "{code}");
        }
        for code in [10107, 13435, 10058] {
            assert_eq!(by_code(code), Some(StateChange::NotWritablePrimary), "{code}");
        }
        assert_eq!(by_code(1), None, "a code decides alone, whatever the message says");
        let by_message = |message: &str| {
            CommandError::in_reply(&rawdoc! { "errmsg": message, "ok": 0 }).unwrap().state_change()
        };
        assert_eq!(by_message("x not master or secondary"), Some(StateChange::Recovering));
        assert_eq!(by_message("node is recovering"), Some(StateChange::Recovering));
        assert_eq!(by_message("not master"), Some(StateChange::NotWritablePrimary));
        assert_eq!(by_message("no such thing"), None);
        let query_failure = rawdoc! { "$err": "not master and slaveOk=false" };
        let error = CommandError::in_reply(&query_failure).unwrap();
        assert_eq!(error.state_change(), Some(StateChange::NotWritablePrimary));
    }

    #[test]
    fn write_concern_errors_count_and_write_errors_do_not() {
        let nested = rawdoc! { "code": 91, "codeName": "ShutdownInProgress", "errmsg": "bye" };
        let reply = rawdoc! { "ok": 1, "writeConcernError": nested.clone() };
        let error = CommandError::in_reply(&reply).unwrap();
        assert_eq!(error.state_change(), Some(StateChange::ShuttingDown));
        assert_eq!(error.to_string(), "bye (ShutdownInProgress, code 91)");
        assert_eq!(CommandError::in_reply(&rawdoc! { "ok": 1, "writeErrors": [nested] }), None);
    }

    /// Replaces each question mark by a byte that is no UTF-8.
    fn broken(reply: RawDocumentBuf) -> RawDocumentBuf {
        let mut bytes = reply.into_bytes();
        bytes.iter_mut().filter(|byte| **byte == b'?').for_each(|byte| *byte = 0xc3);
        RawDocumentBuf::from_bytes(bytes).unwrap()
    }

    /// Servers cut the value in the message of a duplicate key, within a character, too. SDAM,
    /// "Application errors": what such a reply says is an error of the command, and of no server.
    #[test]
    fn a_text_that_is_no_utf8_takes_neither_code_nor_labels_along() {
        let time = rawdoc! { "clusterTime": Timestamp { time: 7, increment: 1 } };
        let reply = broken(rawdoc! {
            "ok": 0, "errmsg": "dup key: { name: \"ä?", "codeName": "Duplicate?",
            "errInfo": "?", "code": 11000, "errorLabels": ["?", "A", "B"],
            "$clusterTime": time.clone(),
        });
        let facts = ReplyFacts::of(&reply).unwrap();
        let error = facts.error.unwrap();
        assert!(!facts.ok && facts.cluster_time == Some(&*time));
        assert_eq!((error.code, &*error.code_name), (Some(11000), "Duplicate\u{fffd}"));
        assert_eq!(error.message, "dup key: { name: \"ä\u{fffd}");
        assert_eq!(error.labels, ["A", "B"]);
        let concern = rawdoc! { "errmsg": "late?", "codeName": "?", "code": 64 };
        let reply = broken(rawdoc! { "note": "?", "writeConcernError": concern, "ok": 1 });
        let facts = ReplyFacts::of(&reply).unwrap();
        let error = facts.error.unwrap();
        assert_eq!((facts.ok, error.code, &*error.message), (true, Some(64), "late\u{fffd}"));
        let facts = ReplyFacts::of(&broken(rawdoc! { "note": "?", "ok": 1 })).map(|it| it.error);
        assert_eq!(facts.unwrap(), None);
    }

    /// Overload shows in a log.
    #[test]
    fn the_labels_of_an_error_stand_in_its_text() {
        let reply = rawdoc! {
            "ok": 0, "code": 462, "errmsg": "later",
            "errorLabels": ["SystemOverloadedError", "RetryableError"],
        };
        let text = "later (code 462) [SystemOverloadedError, RetryableError]";
        assert_eq!(CommandError::in_reply(&reply).unwrap().to_string(), text);
    }

    /// Servers write codes as they like.
    #[test]
    fn a_code_is_an_integer_of_any_width_or_a_double() {
        for (value, code) in [
            (RawBson::Int32(91), Some(91)),
            (RawBson::Int64(91), Some(91)),
            (RawBson::Double(91.0), Some(91)),
            (RawBson::Int64(1 << 40), None),
            (RawBson::String("91".to_owned()), None),
        ] {
            let mut reply = rawdoc! { "ok": 0 };
            reply.append(bson::cstr!("code"), value);
            assert_eq!(CommandError::in_reply(&reply).unwrap().code, code, "{reply:?}");
        }
    }

    /// Retryable Writes, "RetryableWriteError Labels": "a top-level errorLabels field"; SDAM,
    /// "topologyVersion": it stands beside the error of the write concern.
    #[test]
    fn the_error_of_a_write_concern_has_the_labels_and_the_version_of_its_reply() {
        let version = rawdoc! { "processId": ObjectId::from_bytes([7; 12]), "counter": 3_i64 };
        let reply = rawdoc! {
            "ok": 1, "code": 1, "codeName": "Other", "errorLabels": ["RetryableWriteError"],
            "topologyVersion": version, "writeConcernError": { "code": 91, "codeName": "Own" },
        };
        let error = CommandError::in_reply(&reply).unwrap();
        assert_eq!((error.code, &*error.code_name), (Some(91), "Own"));
        assert_eq!(error.labels, ["RetryableWriteError"]);
        assert_eq!(error.topology_version.map(|it| it.counter), Some(3));
    }

    #[test]
    fn labels_and_messages_have_a_limit() {
        let long = "x".repeat(MAX_MESSAGE_LEN + 1);
        let labels = RawArrayBuf::from_iter(vec![long.as_str(); MAX_LABELS + 1]);
        let reply = rawdoc! { "ok": 0, "errmsg": long.as_str(), "errorLabels": labels };
        let error = CommandError::in_reply(&reply).unwrap();
        let cut = "x".repeat(MAX_MESSAGE_LEN);
        assert_eq!((error.message, error.labels), (cut.clone(), vec![cut; MAX_LABELS]));
    }

    #[test]
    fn an_error_is_called_by_its_name_or_else_its_code_or_else_its_message() {
        let name = |reply: RawDocumentBuf| CommandError::in_reply(&reply).unwrap().name_or_code();
        let whole = rawdoc! { "ok": 0, "code": 11000, "codeName": "DuplicateKey", "errmsg": "a" };
        assert_eq!(name(whole), "DuplicateKey");
        assert_eq!(name(rawdoc! { "ok": 0, "code": 11000, "errmsg": "a" }), "code 11000");
        assert_eq!(name(rawdoc! { "ok": 0, "errmsg": "a" }), "a");
    }

    /// SDAM, "Backpressure labels": of network errors "during the TCP handshake, TLS handshake or
    /// hello"; of the others, what the server says counts.
    #[test]
    fn what_an_error_says_is_that_of_its_stream_or_of_its_reply() {
        let stream = |stage, cause| OperationError::Stream(Failure::new(stage, cause, "gone"));
        let reply = |code: i32, labels: RawArrayBuf| {
            let reply = rawdoc! {
                "ok": 0, "code": code, "codeName": "Name", "errmsg": "no", "errorLabels": labels,
            };
            let error = CommandError::in_reply(&reply).unwrap();
            OperationError::Reply { stage: Stage::Authenticate, error }
        };
        let overload = ["SystemOverloadedError", "RetryableError"];
        for (error, labels, is_timeout, stage, cause) in [
            (
                stream(Stage::Hello, Cause::Timeout),
                &overload[..],
                true,
                Stage::Hello,
                Cause::Timeout,
            ),
            (stream(Stage::Operate, Cause::Closed), &[], false, Stage::Operate, Cause::Closed),
            (
                reply(50, RawArrayBuf::from_iter(["SystemOverloadedError"])),
                &overload[..1],
                true,
                Stage::Authenticate,
                Cause::Command { code: 50, name: "Name".into() },
            ),
            (
                reply(18, RawArrayBuf::new()),
                &[],
                false,
                Stage::Authenticate,
                Cause::Command { code: 18, name: "Name".into() },
            ),
            (
                OperationError::from(InvalidCommand::Empty),
                &[],
                false,
                Stage::Operate,
                Cause::Configuration,
            ),
        ] {
            assert_eq!(error.labels(), labels, "{error}");
            assert_eq!(error.is_overload(), !labels.is_empty(), "{error}");
            assert_eq!((error.is_timeout(), error.stage()), (is_timeout, stage), "{error}");
            let failure = error.to_failure();
            assert_eq!((failure.stage, &failure.cause), (stage, &cause), "{error}");
        }
    }

    #[test]
    fn bytes_of_another_protocol_are_told_from_a_reply_that_is_malformed() {
        let failure = unreadable(Stage::Hello, &WireError::OtherProtocol("TLS"));
        assert_eq!(failure.cause, Cause::OtherProtocol { protocol: "TLS".into() });
        assert!(failure.detail.contains("not a MongoDB port"), "{failure}");
        let mut frames = crate::wire::Frames::new();
        frames.extend(&[0; 16]);
        let failure = unreadable(Stage::Hello, &frames.next().unwrap_err());
        assert_eq!((failure.stage, failure.cause), (Stage::Hello, Cause::Malformed));
    }

    /// SDAM, "not writable primary": "NotPrimaryNoSecondaryOk" alone is about the command.
    #[test]
    fn a_member_wants_secondary_ok_by_code_13435_alone() {
        for (code, wants) in [(13435, true), (10107, false), (13436, false)] {
            let error = CommandError::in_reply(&rawdoc! { "ok": 0, "code": code }).unwrap();
            assert_eq!(error.wants_secondary_ok(), wants, "{code}");
        }
    }

    #[test]
    fn the_facts_of_a_reply_are_its_success_and_its_time() {
        let time = rawdoc! { "clusterTime": Timestamp { time: 7, increment: 1 } };
        let good = rawdoc! { "ok": 1, "$clusterTime": time.clone(), "code": 1 };
        let facts = ReplyFacts::of(&good).unwrap();
        assert_eq!((facts.ok, facts.error, facts.cluster_time), (true, None, Some(&*time)));
        let bad = rawdoc! { "ok": 0, "$clusterTime": 7 };
        let facts = ReplyFacts::of(&bad).unwrap();
        assert!(!facts.ok && facts.error.is_some() && facts.cluster_time.is_none());
        let late = rawdoc! { "ok": 1, "writeConcernError": { "code": 64 } };
        let facts = ReplyFacts::of(&late).unwrap();
        assert_eq!((facts.ok, facts.error.and_then(|it| it.code)), (true, Some(64)));
    }
}
