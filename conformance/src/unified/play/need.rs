//! Needs of a test: what it asks of the client that the client does not have.

use std::collections::{BTreeMap, BTreeSet};

use bson::{Bson, Document};

use super::asked::asked;
use super::runner::entities;
use crate::unified::format::{Entity, File, Node, Operation, Test};

/// The kind of an entity that operations are called on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Client,
    ClientEncryption,
    Database,
    Collection,
    Session,
    Bucket,
    Thread,
}

/// The operations that call the client's interface.
const OURS: &[(Kind, &str)] =
    &[(Kind::Client, "appendMetadata"), (Kind::Client, "close"), (Kind::Database, "runCommand")];

/// The operations on collections that call the driver's interface.
pub(super) const ON_COLLECTIONS: &[&str] = &[
    "aggregate",
    "bulkWrite",
    "count",
    "countDocuments",
    "deleteMany",
    "deleteOne",
    "distinct",
    "estimatedDocumentCount",
    "find",
    "findOne",
    "findOneAndDelete",
    "findOneAndReplace",
    "findOneAndUpdate",
    "insertMany",
    "insertOne",
    "replaceOne",
    "updateMany",
    "updateOne",
];

/// The suites that call them: the others come when operations have sessions and are retried.
const SUITES_ON_COLLECTIONS: &[&str] =
    &["command-logging-and-monitoring", "crud/unified", "open-telemetry"];

/// The operations that specifications define, and that the client has no interface for yet.
const LACKING: &[(Kind, &[&str])] = &[
    (
        Kind::Client,
        &[
            "clientBulkWrite",
            "createChangeStream",
            "dropDatabase",
            "listDatabaseNames",
            "listDatabaseObjects",
            "listDatabases",
            "watch",
        ],
    ),
    (
        Kind::Database,
        &[
            "aggregate",
            "createChangeStream",
            "createCollection",
            "createCommandCursor",
            "dropCollection",
            "listCollectionNames",
            "listCollectionObjects",
            "listCollections",
            "modifyCollection",
            "runCursorCommand",
            "watch",
        ],
    ),
    (
        Kind::Collection,
        &[
            "aggregate",
            "bulkWrite",
            "count",
            "countDocuments",
            "createChangeStream",
            "createFindCursor",
            "createIndex",
            "createSearchIndex",
            "createSearchIndexes",
            "deleteMany",
            "deleteOne",
            "distinct",
            "dropIndex",
            "dropIndexes",
            "dropSearchIndex",
            "estimatedDocumentCount",
            "find",
            "findOne",
            "findOneAndDelete",
            "findOneAndReplace",
            "findOneAndUpdate",
            "insertMany",
            "insertOne",
            "listIndexNames",
            "listIndexes",
            "listSearchIndexes",
            "mapReduce",
            "rename",
            "replaceOne",
            "updateMany",
            "updateOne",
            "updateSearchIndex",
            "watch",
        ],
    ),
];

/// The special operations that are about sessions.
const OF_SESSIONS: &[&str] = &[
    "assertDifferentLsidOnLastTwoCommands",
    "assertSameLsidOnLastTwoCommands",
    "assertSessionDirty",
    "assertSessionNotDirty",
    "assertSessionPinned",
    "assertSessionTransactionState",
    "assertSessionUnpinned",
    "targetedFailPoint",
];

/// Options that a driver need not have (CMAP, "Pool Options").
const WAIT_QUEUE: &[&str] = &["waitQueueSize", "waitQueueMultiple"];

const SESSIONS: &str = "sessions";
const ENCRYPTION: &str = "client-side encryption";

/// Returns what the client lacks for a test, in the order in which the test asks for it: the names
/// of operations, and of what stands above one command. None if it can be played.
pub fn needs(suite: &str, file: &File, test: &Test) -> Vec<String> {
    let has_collections = SUITES_ON_COLLECTIONS.iter().any(|it| suite.starts_with(it));
    let mut needs = Needs { has_collections, ..Needs::default() };
    for entity in &file.entities {
        needs.entity(entity);
    }
    for operation in &test.operations {
        needs.operation(operation);
    }
    asked(file, test).into_iter().for_each(|need| needs.add(need));
    needs.found
}

#[derive(Debug, Default)]
struct Needs {
    has_collections: bool,
    kinds: BTreeMap<String, Kind>,
    found: Vec<String>,
    /// Those that are in `found`.
    known: BTreeSet<String>,
}

impl Needs {
    fn add(&mut self, need: &str) {
        if self.known.insert(need.to_owned()) {
            self.found.push(need.to_owned());
        }
    }

    fn entity(&mut self, entity: &Entity) {
        let kind = match entity {
            Entity::Client(client) => {
                if client.auto_encryption.is_some() {
                    self.add(ENCRYPTION);
                }
                let given = |option: &&&str| client.uri_options.contains_key(option);
                WAIT_QUEUE.iter().filter(given).for_each(|option| self.add(option));
                Kind::Client
            }
            Entity::ClientEncryption { .. } => {
                self.add(ENCRYPTION);
                Kind::ClientEncryption
            }
            Entity::Database { .. } => Kind::Database,
            Entity::Collection { .. } => Kind::Collection,
            Entity::Session { .. } => Kind::Session,
            Entity::Bucket { .. } => Kind::Bucket,
            Entity::Thread { .. } => Kind::Thread,
        };
        self.kinds.insert(entity.id().to_owned(), kind);
    }

    fn operation(&mut self, operation: &Operation) {
        if operation.object == "testRunner" {
            return self.special(&operation.name, &operation.arguments);
        }
        let name = operation.name.as_str();
        match self.kinds.get(&operation.object).copied() {
            Some(Kind::Session) => self.add(SESSIONS),
            Some(Kind::Bucket) => self.add("GridFS"),
            Some(Kind::ClientEncryption) => self.add(ENCRYPTION),
            Some(kind) if OURS.contains(&(kind, name)) => {}
            Some(Kind::Collection) if self.has_collections && ON_COLLECTIONS.contains(&name) => {}
            // One that no specification defines fails its test, and is nothing to wait for.
            Some(kind) => {
                let mut lacking = LACKING.iter().filter(|(of, _)| *of == kind);
                if lacking.any(|(_, names)| names.contains(&name)) {
                    self.add(name);
                }
            }
            // What saves its result, such as a cursor, is needed itself.
            None => {}
        }
        if operation.arguments.contains_key("session") {
            self.add(SESSIONS);
        }
    }

    /// A malformed argument is none of this: the test fails for it when it is played.
    fn special(&mut self, name: &str, arguments: &Document) {
        match name {
            name if OF_SESSIONS.contains(&name) => self.add(SESSIONS),
            "createEntities" => {
                for entity in entities("", arguments).unwrap_or_default() {
                    self.entity(&entity);
                }
            }
            "runOnThread" => {
                let operation = arguments.get("operation").cloned().unwrap_or(Bson::Null);
                if let Ok(operation) = Operation::read(Node::at("operation", operation)) {
                    self.operation(&operation);
                }
            }
            _ => {}
        }
    }
}
