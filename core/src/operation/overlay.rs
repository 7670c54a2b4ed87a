//! A command as it is sent: the application's document, and the fields that the host adds to it.
//!
//! Hello and the commands of logins add theirs themselves, and the driver its write concern.
//!
//! Implements RunCommand, "RunCommand implementation details", and the global command arguments of
//! OP_MSG.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use bson::{RawDocument, RawDocumentBuf};

use super::error::InvalidCommand;
use crate::config::ServerApi;
use crate::session::TransactionFields;
use crate::wire::{CommandWriter, Flags, HEADER_LEN, MAX_MESSAGE_LEN, SequenceNames};

/// The application's part of a command.
///
/// Printed, it is names and lengths: the documents may be secret.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct CommandMessage<'a> {
    /// The database.
    pub database: &'a str,
    /// The command, whose first field is its name.
    pub command: &'a RawDocument,
    /// The document sequences, each a name and its documents.
    pub sequences: &'a [(&'a str, &'a [&'a RawDocument])],
}

impl fmt::Debug for CommandMessage<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CommandMessage")
            .field("database", &self.database)
            .field("name", &self.name())
            .field("length", &self.command.as_bytes().len())
            .finish_non_exhaustive()
    }
}

impl<'a> CommandMessage<'a> {
    /// Describes a command without document sequences.
    pub const fn new(database: &'a str, command: &'a RawDocument) -> Self {
        Self { database, command, sequences: &[] }
    }

    /// Replaces [`sequences`](Self::sequences).
    #[must_use]
    pub const fn with_sequences(
        mut self,
        sequences: &'a [(&'a str, &'a [&'a RawDocument])],
    ) -> Self {
        self.sequences = sequences;
        self
    }

    /// Returns the command's name, empty if there is none.
    pub fn name(&self) -> &'a str {
        self.command.iter().next().and_then(Result::ok).map_or("", |(name, _)| name.as_str())
    }

    /// Returns the length of the document sequences in the message, in bytes.
    pub fn sequences_length(&self) -> usize {
        let sequences = self.sequences.iter().map(|(name, documents)| {
            let documents = documents.iter().map(|document| document.as_bytes().len());
            SEQUENCE_LEN + name.len() + documents.sum::<usize>()
        });
        sequences.sum()
    }
}

/// The fields that the driver adds to a command, besides `$db`. They take the place of fields of
/// the same name in the command.
///
/// ```
/// use sdam_core::bson::rawdoc;
/// use sdam_core::operation::{CommandMessage, Overlay};
/// use sdam_core::wire::{Flags, Frames};
///
/// let (lsid, ping) = (rawdoc! { "id": 1 }, rawdoc! { "ping": 1 });
/// let overlay = Overlay { lsid: Some(&lsid), ..Overlay::default() };
/// let mut out = Vec::new();
/// let message = CommandMessage::new("admin", &ping);
/// assert_eq!(overlay.write(&message, (7, Flags::NONE), 48_000_000, &mut out), Ok("ping"));
///
/// let mut frames = Frames::new();
/// frames.extend(&out);
/// let sent = rawdoc! { "ping": 1, "$db": "admin", "lsid": { "id": 1 } };
/// assert_eq!(frames.next()?.unwrap().op_msg()?.body, &*sent);
/// # Ok::<(), sdam_core::wire::WireError>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Overlay<'a> {
    /// The read preference, where the server needs it: `$readPreference`.
    pub read_preference: Option<&'a RawDocument>,
    /// The Stable API: `apiVersion`, `apiStrict` and `apiDeprecationErrors`.
    pub server_api: Option<ServerApi>,
    /// The greatest cluster time known: `$clusterTime`.
    pub cluster_time: Option<&'a RawDocument>,
    /// The name of the servers' session.
    pub lsid: Option<&'a RawDocument>,
    /// The number of a retryable write, or of a transaction, in its session: `txnNumber`.
    pub transaction_number: Option<i64>,
    /// True in a transaction: `autocommit: false`.
    pub in_transaction: bool,
    /// True if it is the first command of a transaction: `startTransaction: true`.
    pub starts_transaction: bool,
    /// The token of a transaction that is ended: `recoveryToken`.
    pub recovery_token: Option<&'a RawDocument>,
    /// The write concern of a transaction that is ended; the driver writes that of others.
    pub write_concern: Option<&'a RawDocument>,
    /// The read concern.
    pub read_concern: Option<&'a RawDocument>,
    /// The time that the server may take, in whole milliseconds: `maxTimeMS`.
    pub max_time: Option<Duration>,
}

/// The length of what stands before the body of a message: its header, its flags, and the kind of
/// the section.
const PREFIX_LEN: usize = HEADER_LEN + 4 + 1;

/// Returns a duration as servers take it: in whole milliseconds, [`MAX_MILLIS`] if it is longer.
fn whole_millis(time: Duration) -> i32 {
    i32::try_from(time.as_millis()).unwrap_or(MAX_MILLIS)
}

/// The longest time that servers take in milliseconds, 24.8 days: they refuse a command that says
/// more as `maxTimeMS`, and who allows more means no limit.
pub const MAX_MILLIS: i32 = i32::MAX;

/// The length of a sequence besides its name and its documents: its kind, its length and a NUL.
const SEQUENCE_LEN: usize = 6;

impl<'a> Overlay<'a> {
    /// Carries the fields of a transaction.
    pub fn in_transaction(fields: &'a TransactionFields<'_>) -> Self {
        Self {
            transaction_number: Some(fields.number),
            in_transaction: true,
            starts_transaction: fields.starts,
            recovery_token: fields.recovery_token,
            write_concern: fields.write_concern.as_deref(),
            max_time: fields.max_time,
            ..Self::default()
        }
    }
}

impl Overlay<'_> {
    /// Writes a command to `out`, in place of what is there, with this number of the message, and
    /// returns its name; `limit` is the maximum length of a message that the server takes, header
    /// and all, and counts up to [`MAX_MESSAGE_LEN`].
    ///
    /// # Errors
    ///
    /// Fails if no server would understand the command, or it is too long.
    pub fn write<'a>(
        &self,
        message: &CommandMessage<'a>,
        (id, flags): (i32, Flags),
        limit: usize,
        out: &mut Vec<u8>,
    ) -> Result<&'a str, InvalidCommand> {
        let added = Added::new(message.database, self);
        let (command, name) = added.check(message)?;
        let body = command.as_bytes().len() + added.length();
        let length = PREFIX_LEN + body + message.sequences_length();
        let limit = limit.min(MAX_MESSAGE_LEN);
        if length > limit {
            return Err(InvalidCommand::TooLong { length, limit });
        }
        out.clear();
        out.reserve(length);
        let mut writer = CommandWriter::begin(out, id, flags, &command);
        added.write(&mut writer);
        writer.finish(message.sequences);
        Ok(name)
    }
}

/// A value that the driver adds.
#[derive(Clone, Copy)]
enum FieldValue<'a> {
    Text(&'a str),
    Boolean(bool),
    Long(i64),
    Document(&'a RawDocument),
}

impl FieldValue<'_> {
    /// Returns its length in a document.
    fn length(&self) -> usize {
        match self {
            // Its own length, and the NUL behind it.
            Self::Text(text) => 4 + text.len() + 1,
            Self::Boolean(_) => 1,
            Self::Long(_) => 8,
            Self::Document(document) => document.as_bytes().len(),
        }
    }
}

/// The fields that the driver adds to a command, by name.
struct Added<'a>([Option<(&'static str, FieldValue<'a>)>; 14]);

impl<'a> Added<'a> {
    fn new(database: &'a str, overlay: &Overlay<'a>) -> Self {
        // "The apiVersion, apiStrict and apiDeprecationErrors fields MUST be sent with every
        // command"
        let api = overlay.server_api;
        let strict = api.and_then(|api| api.strict);
        let errors = api.and_then(|api| api.deprecation_errors);
        let document = |name, document: Option<&'a RawDocument>| {
            document.map(|document| (name, FieldValue::Document(document)))
        };
        let millis = |time: Duration| i64::from(whole_millis(time));
        Self([
            Some(("$db", FieldValue::Text(database))),
            document("$readPreference", overlay.read_preference),
            api.map(|api| ("apiVersion", FieldValue::Text(api.version.as_str()))),
            strict.map(|strict| ("apiStrict", FieldValue::Boolean(strict))),
            errors.map(|errors| ("apiDeprecationErrors", FieldValue::Boolean(errors))),
            document("lsid", overlay.lsid),
            overlay.transaction_number.map(|number| ("txnNumber", FieldValue::Long(number))),
            overlay.starts_transaction.then_some(("startTransaction", FieldValue::Boolean(true))),
            overlay.in_transaction.then_some(("autocommit", FieldValue::Boolean(false))),
            document("recoveryToken", overlay.recovery_token),
            document("readConcern", overlay.read_concern),
            document("writeConcern", overlay.write_concern),
            overlay.max_time.map(|time| ("maxTimeMS", FieldValue::Long(millis(time)))),
            document("$clusterTime", overlay.cluster_time),
        ])
    }

    /// Refuses what no server would understand, and returns the command without the fields that
    /// are added to it, and its name.
    fn check<'m>(
        &self,
        message: &CommandMessage<'m>,
    ) -> Result<(Cow<'m, RawDocument>, &'m str), InvalidCommand> {
        if message.database.is_empty() || message.database.contains('\0') {
            return Err(InvalidCommand::Database);
        }
        let mut names = SequenceNames::default();
        for (name, _) in message.sequences {
            names.add(name).map_err(InvalidCommand::Sequence)?;
        }
        let (mut name, mut replaces) = (None, false);
        for element in message.command {
            let (key, _) = element.map_err(|error| InvalidCommand::Bson(error.to_string()))?;
            match self.has(key.as_str()) {
                true => replaces = true,
                false => name = name.or(Some(key.as_str())),
            }
        }
        let name = name.ok_or(InvalidCommand::Empty)?;
        Ok(match replaces {
            true => (Cow::Owned(self.without_own(message.command)), name),
            false => (Cow::Borrowed(message.command), name),
        })
    }

    /// Returns how much longer the fields make a document: each has a type, and a NUL behind its
    /// name.
    fn length(&self) -> usize {
        self.0.iter().flatten().map(|(name, value)| 1 + name.len() + 1 + value.length()).sum()
    }

    fn has(&self, name: &str) -> bool {
        self.0.iter().flatten().any(|(added, _)| *added == name)
    }

    /// Copies a command but for its fields of these names, lest the server find them twice.
    fn without_own(&self, command: &RawDocument) -> RawDocumentBuf {
        let mut copy = RawDocumentBuf::new();
        for (key, value) in command.into_iter().map_while(Result::ok) {
            if !self.has(key.as_str()) {
                copy.append(key, value);
            }
        }
        copy
    }

    fn write(&self, writer: &mut CommandWriter<'_>) {
        for (name, value) in self.0.iter().flatten() {
            match value {
                FieldValue::Text(text) => writer.string(name, text),
                FieldValue::Boolean(truth) => writer.boolean(name, *truth),
                FieldValue::Long(number) => writer.long(name, *number),
                FieldValue::Document(document) => writer.document(name, document),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bson::{RawDocument, RawDocumentBuf, rawdoc};

    use super::{CommandMessage, InvalidCommand, Overlay};
    use crate::config::{Options, ServerApi, ServerApiVersion};
    use crate::wire::{Flags, Frames, MAX_MESSAGE_LEN};

    fn sent(overlay: &Overlay<'_>, command: &RawDocument) -> RawDocumentBuf {
        let (mut out, mut frames) = (vec![7; 100], Frames::new());
        let message = CommandMessage::new("db", command);
        overlay.write(&message, (1, Flags::NONE), 48_000_000, &mut out).unwrap();
        frames.extend(&out);
        let message = frames.next().unwrap().unwrap();
        message.op_msg().unwrap().body.to_owned()
    }

    fn write(
        overlay: &Overlay<'_>,
        message: &CommandMessage<'_>,
        limit: usize,
    ) -> Result<usize, InvalidCommand> {
        let mut out = Vec::new();
        overlay.write(message, (1, Flags::NONE), limit, &mut out).map(|_| out.len())
    }

    #[test]
    fn everything_that_is_added_stands_behind_the_command() {
        let document = rawdoc! { "x": 1 };
        let options = Options::parse("mongodb://a").unwrap();
        let overlay = Overlay {
            read_preference: Some(&document),
            server_api: options.server_api(),
            cluster_time: Some(&document),
            lsid: Some(&document),
            transaction_number: Some(1 << 40),
            in_transaction: true,
            starts_transaction: true,
            recovery_token: Some(&document),
            write_concern: Some(&document),
            read_concern: Some(&document),
            max_time: Some(Duration::from_micros(2999)),
        };
        let x = document.clone();
        let expected = rawdoc! {
            "find": "things",
            "$db": "db",
            "$readPreference": x.clone(),
            "lsid": x.clone(),
            "txnNumber": 1_i64 << 40,
            "startTransaction": true,
            "autocommit": false,
            "recoveryToken": x.clone(),
            "readConcern": x.clone(),
            "writeConcern": x.clone(),
            "maxTimeMS": 2_i64,
            "$clusterTime": x,
        };
        assert_eq!(sent(&overlay, &rawdoc! { "find": "things" }), expected);
        let own = rawdoc! { "find": "things", "maxTimeMS": 5, "lsid": 1, "txnNumber": 1 };
        assert_eq!(sent(&overlay, &own), expected, "no field stands there twice");
        for longest in [Duration::MAX, Duration::from_millis(1 << 31)] {
            let overlay = Overlay { max_time: Some(longest), ..Overlay::default() };
            let long = sent(&overlay, &rawdoc! { "ping": 1 });
            assert_eq!(
                long.get_i64("maxTimeMS").ok(),
                Some(i64::from(i32::MAX)),
                "no server takes more"
            );
        }
        let plain = rawdoc! { "find": "things", "maxTimeMS": 5, "$db": "db" };
        assert_eq!(sent(&Overlay::default(), &rawdoc! { "find": "things", "maxTimeMS": 5 }), plain);
    }

    #[test]
    fn what_no_server_would_understand_is_refused() {
        let (overlay, ping, empty) = (Overlay::default(), rawdoc! { "ping": 1 }, rawdoc! {});
        let nowhere = write(&overlay, &CommandMessage::new("", &ping), MAX_MESSAGE_LEN);
        assert_eq!(nowhere, Err(InvalidCommand::Database));
        let nameless = write(&overlay, &CommandMessage::new("db", &empty), MAX_MESSAGE_LEN);
        assert_eq!(nameless, Err(InvalidCommand::Empty));
    }

    /// Bulk Write, "Total Message Size": code that splits batches leaves 1,000 bytes for what is
    /// added, so that no more than what is added may be counted.
    #[test]
    fn a_message_may_be_as_long_as_the_server_takes_it_to_the_byte() {
        let document = rawdoc! { "x": 1 };
        let api = ServerApi::from(ServerApiVersion::V1);
        let full = Overlay {
            read_preference: Some(&document),
            server_api: Some(api.with_strict(Some(true)).with_deprecation_errors(Some(false))),
            cluster_time: Some(&document),
            lsid: Some(&document),
            transaction_number: Some(1),
            in_transaction: true,
            starts_transaction: true,
            recovery_token: Some(&document),
            read_concern: Some(&document),
            write_concern: Some(&document),
            max_time: Some(Duration::from_millis(1)),
        };
        let command = rawdoc! { "insert": "things", "maxTimeMS": 5 };
        let documents = [&*document, &*document];
        let sequences: [(&str, &[&RawDocument]); 2] = [("documents", &documents), ("others", &[])];
        let message = CommandMessage::new("db", &command).with_sequences(&sequences);
        for overlay in [full, Overlay::default()] {
            let length = write(&overlay, &message, MAX_MESSAGE_LEN).unwrap();
            assert_eq!(write(&overlay, &message, length), Ok(length));
            let limit = length - 1;
            let too_long = InvalidCommand::TooLong { length, limit };
            assert_eq!(write(&overlay, &message, limit), Err(too_long));
        }
        let long = "x".repeat(MAX_MESSAGE_LEN);
        let refused = write(&full, &CommandMessage::new(&long, &command), usize::MAX);
        assert!(matches!(refused, Err(InvalidCommand::TooLong { limit: MAX_MESSAGE_LEN, .. })));
    }

    #[test]
    fn a_message_is_called_by_its_first_field() {
        assert_eq!(CommandMessage::new("db", &rawdoc! { "ping": 1, "a": 2 }).name(), "ping");
        assert_eq!(CommandMessage::new("db", &RawDocumentBuf::new()).name(), "");
    }
}
