//! Needs of a test: what it asks of the client that the client does not have.

use std::collections::{BTreeMap, BTreeSet};

use bson::{Bson, Document};

use super::runner::entities;
use super::transaction::callback;
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

/// The operations on cursors.
pub(super) const ON_CURSORS: &[&str] = &["close", "iterateOnce", "iterateUntilDocumentOrError"];

/// Options that a driver need not have (CMAP, "Pool Options").
const WAIT_QUEUE: &[&str] = &["waitQueueSize", "waitQueueMultiple"];

const ENCRYPTION: &str = "client-side encryption";

/// Returns what the client lacks for a test, in the order in which the test asks for it: the names
/// of operations, and of what stands above them. None if it can be played.
pub fn needs(file: &File, test: &Test) -> Vec<String> {
    Needs::default().of(file, test)
}

/// Returns the same for a test that its requirements say to need client-side encryption.
pub fn needs_with_encryption(file: &File, test: &Test) -> Vec<String> {
    let mut needs = Needs::default();
    needs.add(ENCRYPTION);
    needs.of(file, test)
}

#[derive(Debug, Default)]
struct Needs {
    kinds: BTreeMap<String, Kind>,
    found: Vec<String>,
    /// Those that are in `found`.
    known: BTreeSet<String>,
}

impl Needs {
    fn of(mut self, file: &File, test: &Test) -> Vec<String> {
        for entity in &file.entities {
            self.entity(entity);
        }
        for operation in &test.operations {
            self.operation(operation);
        }
        self.found
    }

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
            Some(Kind::Session) if name == "withTransaction" => {
                callback(&operation.arguments).iter().for_each(|it| self.operation(it));
            }
            Some(Kind::ClientEncryption) => self.add(ENCRYPTION),
            // One that no specification defines fails its test, and is nothing to wait for. What
            // saves its result, such as a cursor, is needed itself.
            _ => {}
        }
    }

    /// A malformed argument is none of this: the test fails for it when it is played.
    fn special(&mut self, name: &str, arguments: &Document) {
        match name {
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
