//! A command as it is sent: the application's document, and what the driver attaches to it.
//!
//! Implements RunCommand, "RunCommand implementation details", and the global command arguments of
//! OP_MSG.

use std::borrow::Cow;

use bson::{RawDocument, RawDocumentBuf};
use sdam_core::config::Options;
use sdam_core::operation::InvalidCommand;
use sdam_core::wire::{CommandWriter, Flags, SequenceNames, may_be_compressed};

use crate::shared::cluster_time::LatestClusterTime;
use crate::stream::Connection;

/// The application's request.
#[derive(Clone, Copy)]
pub(crate) struct Request<'a> {
    pub(crate) database: &'a str,
    pub(crate) command: &'a RawDocument,
    pub(crate) sequences: &'a [(&'a str, &'a [&'a RawDocument])],
}

/// A value that the driver attaches.
#[derive(Clone, Copy)]
enum Value<'a> {
    Text(&'a str),
    Truth(bool),
    Document(&'a RawDocument),
}

/// The fields that the driver attaches to a command, by name.
struct Attached<'a>([Option<(&'static str, Value<'a>)>; 6]);

impl Request<'_> {
    /// Writes the command to a connection's `outgoing`, and returns the number of the message.
    pub(crate) fn write<S>(
        &self,
        connection: &mut Connection<S>,
        read_preference: Option<&RawDocument>,
        flags: Flags,
        (options, clock): (&Options, &LatestClusterTime),
    ) -> Result<i32, InvalidCommand> {
        let time = clock.now();
        let time = time.as_ref().map(|time| &*time.document);
        let attached = Attached::new(self.database, read_preference, options, time);
        let (command, name) = self.check(&attached)?;
        let added = read_preference.map_or(0, |document| document.as_bytes().len());
        let (length, limit) =
            (self.length() + added, connection.connection_description.max_message_size_bytes);
        if length + ADDED_LEN > limit {
            return Err(InvalidCommand::TooLong { length, limit });
        }
        connection.outgoing.clear();
        let id = connection.request_ids.next_id();
        let mut writer = CommandWriter::begin(&mut connection.outgoing, id, flags, &command);
        attached.write(&mut writer);
        writer.finish(self.sequences);
        if let Some(compression) = &mut connection.compression
            && may_be_compressed(name)
        {
            compression.compress(&mut connection.outgoing, 0);
        }
        Ok(id)
    }
}

/// The room for the header and the fields that the driver adds by itself: the cluster time
/// for the most part.
const ADDED_LEN: usize = 8192;

/// The length of a sequence besides its name and its documents: its kind, its length and a NUL.
const SEQUENCE_LEN: usize = 6;

impl<'a> Request<'a> {
    pub(crate) const fn new(database: &'a str, command: &'a RawDocument) -> Self {
        Self { database, command, sequences: &[] }
    }

    /// Returns how many bytes of a message are of the application's choice.
    fn length(&self) -> usize {
        let of = |document: &RawDocument| document.as_bytes().len();
        let sequences = self.sequences.iter().map(|(name, documents)| {
            let documents: usize = documents.iter().map(|document| of(document)).sum();
            SEQUENCE_LEN + name.len() + documents
        });
        of(self.command) + self.database.len() + sequences.sum::<usize>()
    }

    /// Refuses what no server would understand, and returns the command without the fields that
    /// are attached to it, and its name.
    fn check(
        &self,
        attached: &Attached<'_>,
    ) -> Result<(Cow<'a, RawDocument>, &'a str), InvalidCommand> {
        if self.database.is_empty() || self.database.contains('\0') {
            return Err(InvalidCommand::Database);
        }
        let mut names = SequenceNames::default();
        for (name, _) in self.sequences {
            names.add(name).map_err(InvalidCommand::Sequence)?;
        }
        let (mut name, mut replaces) = (None, false);
        for element in self.command {
            let (key, _) = element.map_err(|error| InvalidCommand::Bson(error.to_string()))?;
            match attached.has(key.as_str()) {
                true => replaces = true,
                false => name = name.or(Some(key.as_str())),
            }
        }
        let name = name.ok_or(InvalidCommand::Empty)?;
        Ok(match replaces {
            true => (Cow::Owned(attached.without_own(self.command)), name),
            false => (Cow::Borrowed(self.command), name),
        })
    }
}

impl<'a> Attached<'a> {
    fn new(
        database: &'a str,
        read_preference: Option<&'a RawDocument>,
        options: &'a Options,
        time: Option<&'a RawDocument>,
    ) -> Self {
        // "The apiVersion, apiStrict and apiDeprecationErrors fields MUST be sent with every
        // command"
        let api = options.server_api();
        let strict = api.and_then(|api| api.strict);
        let errors = api.and_then(|api| api.deprecation_errors);
        Self([
            Some(("$db", Value::Text(database))),
            read_preference.map(|document| ("$readPreference", Value::Document(document))),
            api.map(|api| ("apiVersion", Value::Text(api.version.as_str()))),
            strict.map(|strict| ("apiStrict", Value::Truth(strict))),
            errors.map(|errors| ("apiDeprecationErrors", Value::Truth(errors))),
            time.map(|time| ("$clusterTime", Value::Document(time))),
        ])
    }

    fn has(&self, name: &str) -> bool {
        self.0.iter().flatten().any(|(attached, _)| *attached == name)
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
                Value::Text(text) => writer.string(name, text),
                Value::Truth(truth) => writer.boolean(name, *truth),
                Value::Document(document) => writer.document(name, document),
            }
        }
    }
}
