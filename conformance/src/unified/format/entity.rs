//! Entities: what a test works with, by name (Unified Test Format, "entity").

use bson::Document;

use super::data::{CollectionOptions, collection_options};
use super::encryption::{EncryptionOptions, auto_encryption, encryption_options};
use super::error::FormatError;
use super::event::EventKind;
use super::log::{Component, Level};
use super::object::{Node, Object};

/// An entity to be made.
#[derive(Clone, Debug)]
pub enum Entity {
    /// A client.
    Client(Box<ClientEntity>),
    /// Explicit encryption with the keys that a client finds.
    ClientEncryption {
        /// Its name.
        id: String,
        /// Its options.
        options: Box<EncryptionOptions>,
    },
    /// A database.
    Database {
        /// Its name in the test.
        id: String,
        /// The client.
        client: String,
        /// Its name on the server.
        name: String,
        /// Its options.
        options: CollectionOptions,
    },
    /// A collection.
    Collection {
        /// Its name in the test.
        id: String,
        /// The database.
        database: String,
        /// Its name on the server.
        name: String,
        /// Its options.
        options: CollectionOptions,
    },
    /// An explicit session.
    Session {
        /// Its name.
        id: String,
        /// The client.
        client: String,
        /// Its options, which several specifications define.
        options: Document,
    },
    /// A bucket of GridFS.
    Bucket {
        /// Its name.
        id: String,
        /// The database.
        database: String,
        /// Its options, which the specification of GridFS defines.
        options: Document,
    },
    /// A thread, which runs operations beside the test.
    Thread {
        /// Its name.
        id: String,
    },
}

/// A client to be made.
#[derive(Clone, Debug)]
pub struct ClientEntity {
    /// Its name.
    pub id: String,
    /// Options beside those of the connection string.
    pub uri_options: Document,
    /// True if it connects to several mongos, or to one; neither matters if absent.
    pub use_multiple_mongoses: Option<bool>,
    /// The events that are collected.
    pub observe_events: Vec<EventKind>,
    /// The commands whose events are ignored.
    pub ignore_commands: Vec<String>,
    /// True if events of sensitive commands are collected, too.
    pub observe_sensitive_commands: bool,
    /// The messages that are collected: those of a component, from a level upwards.
    pub observe_log_messages: Vec<(Component, Level)>,
    /// True if spans are collected, and with the command in them.
    pub observe_tracing: Option<bool>,
    /// The version of the API that it declares.
    pub server_api: Option<ServerApi>,
    /// Options of automatic encryption.
    pub auto_encryption: Option<Document>,
    /// The time that its pools have to come to minPoolSize first, in milliseconds.
    pub await_min_pool_size_ms: Option<u64>,
}

/// A version of the API that a client declares (Unified Test Format, "serverApi").
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerApi {
    /// The version.
    pub version: String,
    /// True if commands outside it fail.
    pub strict: Option<bool>,
    /// True if commands that are to go fail.
    pub deprecation_errors: Option<bool>,
}

impl Entity {
    /// Reads an entity.
    ///
    /// # Errors
    ///
    /// Fails if it breaks a rule of the format.
    pub fn read(node: Node) -> Result<Self, FormatError> {
        let place = node.place().to_owned();
        let (kind, node) = node.single()?;
        let read: fn(&mut Object) -> Result<Entity, FormatError> = match kind.as_str() {
            "client" => client,
            "clientEncryption" => client_encryption,
            "database" => database,
            "collection" => collection,
            "session" => session,
            "bucket" => bucket,
            "thread" => |object| Ok(Entity::Thread { id: id(object)? }),
            _ => {
                let rule = format!("has a field {kind:?}, which is no kind of entity");
                return Err(FormatError::Broken { place, rule });
            }
        };
        let mut object = node.object()?;
        let entity = read(&mut object)?;
        object.finish()?;
        Ok(entity)
    }

    /// Returns the name.
    pub fn id(&self) -> &str {
        match self {
            Self::Client(client) => &client.id,
            Self::ClientEncryption { id, .. }
            | Self::Database { id, .. }
            | Self::Collection { id, .. }
            | Self::Session { id, .. }
            | Self::Bucket { id, .. }
            | Self::Thread { id } => id,
        }
    }
}

fn id(object: &mut Object) -> Result<String, FormatError> {
    object.required("id", Node::string)
}

fn client(object: &mut Object) -> Result<Entity, FormatError> {
    let events = |node: Node| node.filled(|node| node.one_of(EventKind::NAMES));
    let commands = |node: Node| node.filled(Node::string);
    let client = ClientEntity {
        id: id(object)?,
        uri_options: object.optional("uriOptions", Node::document)?.unwrap_or_default(),
        use_multiple_mongoses: object.optional("useMultipleMongoses", Node::boolean)?,
        observe_events: object.optional("observeEvents", events)?.unwrap_or_default(),
        ignore_commands: object
            .optional("ignoreCommandMonitoringEvents", commands)?
            .unwrap_or_default(),
        observe_sensitive_commands: object
            .optional("observeSensitiveCommands", Node::boolean)?
            .unwrap_or_default(),
        observe_log_messages: object
            .optional("observeLogMessages", observed_components)?
            .unwrap_or_default(),
        observe_tracing: object.optional("observeTracingMessages", observed_tracing)?,
        server_api: object.optional("serverApi", server_api)?,
        auto_encryption: object.optional("autoEncryptOpts", auto_encryption)?,
        await_min_pool_size_ms: object.optional("awaitMinPoolSizeMS", Node::count)?,
    };
    Ok(Entity::Client(Box::new(client)))
}

fn observed_components(node: Node) -> Result<Vec<(Component, Level)>, FormatError> {
    let mut object = node.object()?;
    if object.is_empty() {
        return Err(object.broken("must have a field at least"));
    }
    let mut observed = Vec::new();
    for (name, component) in Component::NAMES {
        let level = object.optional(name, |node| node.one_of(Level::NAMES))?;
        observed.extend(level.map(|level| (*component, level)));
    }
    object.finish()?;
    Ok(observed)
}

fn observed_tracing(node: Node) -> Result<bool, FormatError> {
    let mut object = node.object()?;
    let with_commands = object.optional("enableCommandPayload", Node::boolean)?;
    object.finish()?;
    Ok(with_commands.unwrap_or_default())
}

fn server_api(node: Node) -> Result<ServerApi, FormatError> {
    let mut object = node.object()?;
    let api = ServerApi {
        version: object.required("version", Node::string)?,
        strict: object.optional("strict", Node::boolean)?,
        deprecation_errors: object.optional("deprecationErrors", Node::boolean)?,
    };
    object.finish()?;
    Ok(api)
}

fn client_encryption(object: &mut Object) -> Result<Entity, FormatError> {
    let options = object.required("clientEncryptionOpts", encryption_options)?;
    Ok(Entity::ClientEncryption { id: id(object)?, options: Box::new(options) })
}

fn database(object: &mut Object) -> Result<Entity, FormatError> {
    Ok(Entity::Database {
        id: id(object)?,
        client: object.required("client", Node::string)?,
        name: object.required("databaseName", Node::string)?,
        options: object.optional("databaseOptions", collection_options)?.unwrap_or_default(),
    })
}

fn collection(object: &mut Object) -> Result<Entity, FormatError> {
    Ok(Entity::Collection {
        id: id(object)?,
        database: object.required("database", Node::string)?,
        name: object.required("collectionName", Node::string)?,
        options: object.optional("collectionOptions", collection_options)?.unwrap_or_default(),
    })
}

fn session(object: &mut Object) -> Result<Entity, FormatError> {
    Ok(Entity::Session {
        id: id(object)?,
        client: object.required("client", Node::string)?,
        options: object.optional("sessionOptions", Node::document)?.unwrap_or_default(),
    })
}

fn bucket(object: &mut Object) -> Result<Entity, FormatError> {
    Ok(Entity::Bucket {
        id: id(object)?,
        database: object.required("database", Node::string)?,
        options: object.optional("bucketOptions", Node::document)?.unwrap_or_default(),
    })
}
