//! Needs of a test: what it asks of the client that the client does not have.

use std::collections::{BTreeMap, BTreeSet};

use bson::{Bson, Document};

use super::asked::asked;
use super::runner::entities;
use crate::unified::format::{Entity, File, Node, Operation, Test};

/// The kind of an entity that operations are called on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Client,
    ClientEncryption,
    Database,
    Collection,
    Session,
    Bucket,
    Thread,
}

/// The operations that call the driver's interface.
pub(super) const OPERATIONS: &[(Kind, &[&str])] = &[
    (Kind::Client, &["dropDatabase", "listDatabaseNames", "listDatabases"]),
    (
        Kind::Database,
        &[
            "aggregate",
            "createCollection",
            "createCommandCursor",
            "dropCollection",
            "dropDatabase",
            "listCollectionNames",
            "listCollections",
            "modifyCollection",
            "runCommand",
            "runCursorCommand",
        ],
    ),
    (
        Kind::Collection,
        &[
            "aggregate",
            "bulkWrite",
            "count",
            "countDocuments",
            "createFindCursor",
            "createIndex",
            "deleteMany",
            "deleteOne",
            "distinct",
            "dropIndex",
            "dropIndexes",
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
            "rename",
            "replaceOne",
            "updateMany",
            "updateOne",
        ],
    ),
];

/// The suites that call them, whole or by what their names begin with: the others come when their
/// tests are judged with them.
const SUITES: &[&str] = &[
    "causal-consistency",
    "client-backpressure",
    "command-logging-and-monitoring",
    "crud/unified",
    "open-telemetry",
    "run-command",
    "runner",
    "sessions",
];

/// The operation that every suite calls.
const RUN_COMMAND: &str = "runCommand";

/// The operations on cursors.
pub(super) const ON_CURSORS: &[&str] = &["close", "iterateOnce", "iterateUntilDocumentOrError"];

/// The operations that specifications define, and that the driver has no interface for yet, or the
/// runner no call.
const LACKING: &[(Kind, &[&str])] = &[
    (Kind::Client, &["clientBulkWrite", "createChangeStream", "listDatabaseObjects", "watch"]),
    (Kind::Database, &["createChangeStream", "listCollectionObjects", "watch"]),
    (
        Kind::Collection,
        &[
            "createChangeStream",
            "createSearchIndex",
            "createSearchIndexes",
            "dropSearchIndex",
            "listSearchIndexes",
            "mapReduce",
            "updateSearchIndex",
            "watch",
        ],
    ),
];

/// The operations of sessions and of the runner that are about transactions.
const OF_TRANSACTIONS: &[&str] = &[
    "abortTransaction",
    "assertSessionPinned",
    "assertSessionTransactionState",
    "assertSessionUnpinned",
    "commitTransaction",
    "startTransaction",
    "targetedFailPoint",
    "withTransaction",
];

/// The operations of the runner that are about other sessions, too.
const OF_SESSIONS: &[&str] = &[
    "assertDifferentLsidOnLastTwoCommands",
    "assertSameLsidOnLastTwoCommands",
    "assertSessionDirty",
    "assertSessionNotDirty",
];

/// Options that a driver need not have (CMAP, "Pool Options").
const WAIT_QUEUE: &[&str] = &["waitQueueSize", "waitQueueMultiple"];

const SESSIONS: &str = "sessions";
const TRANSACTIONS: &str = "transactions";
const ENCRYPTION: &str = "client-side encryption";

/// Returns what the client lacks for a test, in the order in which the test asks for it: the names
/// of operations, and of what stands above them. None if it can be played.
pub fn needs(suite: &str, file: &File, test: &Test) -> Vec<String> {
    let calls_all = SUITES.iter().any(|it| suite.starts_with(it));
    let mut needs = Needs { calls_all, ..Needs::default() };
    for entity in &file.entities {
        needs.entity(entity);
    }
    for operation in &test.operations {
        needs.operation(operation);
    }
    if !calls_all {
        asked(file, test).into_iter().for_each(|need| needs.add(need));
    }
    needs.found
}

#[derive(Debug, Default)]
struct Needs {
    /// True if the suite calls whatever there is.
    calls_all: bool,
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
            Entity::Session { options, .. } => {
                if options.contains_key("defaultTransactionOptions") {
                    self.add(TRANSACTIONS);
                }
                Kind::Session
            }
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
            Some(Kind::Session) if !self.calls_all => self.add(SESSIONS),
            Some(Kind::Session) if OF_TRANSACTIONS.contains(&name) => self.add(TRANSACTIONS),
            Some(Kind::Bucket) => self.add("GridFS"),
            Some(Kind::ClientEncryption) => self.add(ENCRYPTION),
            // One that no specification defines fails its test, and is nothing to wait for.
            Some(kind) => {
                let has = |table: &[(Kind, &[&str])]| {
                    table.iter().any(|(of, names)| *of == kind && names.contains(&name))
                };
                let is_left = !self.calls_all && name != RUN_COMMAND && has(OPERATIONS);
                if is_left || has(LACKING) {
                    self.add(name);
                }
            }
            // What saves its result, such as a cursor, is needed itself.
            None => {}
        }
        if !self.calls_all && operation.arguments.contains_key("session") {
            self.add(SESSIONS);
        }
    }

    /// A malformed argument is none of this: the test fails for it when it is played.
    fn special(&mut self, name: &str, arguments: &Document) {
        match name {
            name if OF_TRANSACTIONS.contains(&name) => self.add(TRANSACTIONS),
            name if OF_SESSIONS.contains(&name) && !self.calls_all => self.add(SESSIONS),
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
