//! A file, and the tests in it (Unified Test Format, "Top-level Fields" and "test").

use super::data::{CollectionData, collection_data};
use super::entity::{ClientEntity, Entity};
use super::error::FormatError;
use super::event::{ExpectedEvents, expected_events};
use super::log::{ExpectedLogMessages, expected_log_messages};
use super::object::Node;
use super::operation::Operation;
use super::requirement::{Requirement, requirement};
use super::tracing::{ExpectedTracing, expected_tracing};
use super::version::version;
use crate::mongod::Version;

/// A file.
#[derive(Clone, Debug)]
pub struct File {
    /// The file's name, or what it is about.
    pub description: String,
    /// The version of the format.
    pub schema_version: Version,
    /// The requirements, of which a deployment must meet one, if there are any.
    pub requirements: Vec<Requirement>,
    /// The entities that are made before every test, in order.
    pub entities: Vec<Entity>,
    /// The contents of collections before every test.
    pub initial_data: Vec<CollectionData>,
    /// The tests; there is at least one.
    pub tests: Vec<Test>,
}

/// A test.
#[derive(Clone, Debug)]
pub struct Test {
    /// The test's name.
    pub description: String,
    /// Further requirements, of which a deployment must meet one, if there are any.
    pub requirements: Vec<Requirement>,
    /// The reason why it is skipped.
    pub skip_reason: Option<String>,
    /// The operations, in order.
    pub operations: Vec<Operation>,
    /// The events that clients are to have seen afterwards.
    pub expect_events: Vec<ExpectedEvents>,
    /// The messages that clients are to have logged afterwards.
    pub expect_log_messages: Vec<ExpectedLogMessages>,
    /// The spans that clients are to have reported afterwards.
    pub expect_tracing: Vec<ExpectedTracing>,
    /// The contents of collections afterwards.
    pub outcome: Vec<CollectionData>,
}

impl File {
    /// Returns the clients of the file that operations of a test are called on, also on a database
    /// of theirs.
    pub fn clients_of(&self, test: &Test) -> Vec<&ClientEntity> {
        let is_used = |name: &str| test.operations.iter().any(|it| it.object == name);
        let has_used_database = |wanted: &str| {
            self.entities.iter().any(|entity| match entity {
                Entity::Database { id, client, .. } => client == wanted && is_used(id),
                _ => false,
            })
        };
        let clients = self.entities.iter().filter_map(|entity| match entity {
            Entity::Client(client) => Some(&**client),
            _ => None,
        });
        clients.filter(|client| is_used(&client.id) || has_used_database(&client.id)).collect()
    }
}

/// Reads a file; the schema version decides whether the rest is read at all.
pub(super) fn read(node: Node) -> Result<File, FormatError> {
    let mut object = node.object()?;
    let schema_version = object.required("schemaVersion", version)?;
    if schema_version.major != super::NEWEST.major || schema_version > super::NEWEST {
        return Err(FormatError::Unsupported(schema_version));
    }
    let file = File {
        schema_version,
        description: object.required("description", Node::string)?,
        requirements: list(object.optional("runOnRequirements", |node| node.filled(requirement))?),
        entities: list(object.optional("createEntities", |node| node.filled(Entity::read))?),
        initial_data: list(object.optional("initialData", |node| node.filled(collection_data))?),
        tests: object.required("tests", |node| node.filled(test))?,
    };
    object.optional("_yamlAnchors", Node::document)?;
    object.finish()?;
    Ok(file)
}

fn test(node: Node) -> Result<Test, FormatError> {
    let mut object = node.object()?;
    let messages = |node: Node| node.filled(expected_log_messages);
    let test = Test {
        description: object.required("description", Node::string)?,
        requirements: list(object.optional("runOnRequirements", |node| node.filled(requirement))?),
        skip_reason: object.optional("skipReason", Node::string)?,
        operations: object.required("operations", |node| node.list(Operation::read))?,
        expect_events: list(object.optional("expectEvents", |node| node.filled(expected_events))?),
        expect_log_messages: list(object.optional("expectLogMessages", messages)?),
        expect_tracing: list(object.optional("expectTracingMessages", expected_tracing)?),
        outcome: list(object.optional("outcome", |node| node.filled(collection_data))?),
    };
    object.finish()?;
    Ok(test)
}

fn list<T>(read: Option<Vec<T>>) -> Vec<T> {
    read.unwrap_or_default()
}
