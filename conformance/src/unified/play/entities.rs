//! The entities of a test, by name (Unified Test Format, "Entity Map").

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bson::{Bson, Document};
use sdam_core::command::{CommandEvent, MonitoredCommand};
use sdam_core::config::ServerAddress;
use sdam_core::description::{ServerDescription, ServerType, TopologyDescription, TopologyType};
use sdam_core::id::ConnectionId;
use sdam_core::pool::PoolEvent;
use sdam_core::topology::EventKind;

use super::logged::Logged;
use super::observed::Observed;
use super::traced::Traced;
use super::wrong;
use crate::spec::Difference;
use crate::unified::format::{ClientEntity, CollectionOptions, EventKind as Kind};
use crate::unified::matching;

/// An entity.
#[derive(Debug)]
pub(super) enum Entity {
    Client(Box<Client>),
    Database(Box<Database>),
    Collection(Box<Collection>),
    Bucket(Box<Bucket>),
    /// A session, by its logical session id once it has started.
    Session(Option<Document>),
    /// A cursor of a client.
    Cursor(String),
    /// An entity that the client has no interface for; operations that name it are not played.
    Unavailable,
    /// A thread, by its place among the actors.
    Thread(usize),
    /// The topology as it was known at some moment.
    Topology(Topology),
    /// A result that was saved.
    Value(Bson),
}

/// A client, and what it has reported so far.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) entity: ClientEntity,
    /// The events that the test observes.
    pub(super) observed: Vec<Observed>,
    /// The messages that the test observes.
    pub(super) logged: Vec<Logged>,
    /// The spans that it has reported.
    pub(super) traced: Vec<Traced>,
    /// The connections that are checked out.
    pub(super) checked_out: i64,
    /// The numbers of commands whose events are ignored.
    ignored: BTreeSet<i64>,
    /// The connections that are established, by server.
    established: BTreeMap<ServerAddress, BTreeSet<ConnectionId>>,
    /// The latest description.
    description: Option<Arc<TopologyDescription>>,
}

/// A database.
#[derive(Clone, Debug)]
pub(super) struct Database {
    pub(super) client: String,
    pub(super) name: String,
    pub(super) options: CollectionOptions,
}

/// A collection.
#[derive(Clone, Debug)]
pub(super) struct Collection {
    pub(super) database: Database,
    pub(super) name: String,
    pub(super) options: CollectionOptions,
}

/// A bucket of GridFS.
#[derive(Clone, Debug)]
pub(super) struct Bucket {
    pub(super) database: Database,
    pub(super) options: Document,
}

/// The type and the primary of a topology at some moment.
#[derive(Clone, Debug)]
pub(super) struct Topology {
    pub(super) topology_type: TopologyType,
    pub(super) primary: Option<ServerAddress>,
}

impl Client {
    pub(super) fn new(entity: ClientEntity) -> Self {
        Self {
            entity,
            observed: Vec::new(),
            logged: Vec::new(),
            traced: Vec::new(),
            checked_out: 0,
            ignored: BTreeSet::new(),
            established: BTreeMap::new(),
            description: None,
        }
    }

    /// Takes an event.
    pub(super) fn event(&mut self, event: &EventKind) {
        match event {
            EventKind::TopologyDescriptionChanged { new, .. } => {
                self.description = Some(new.clone());
            }
            EventKind::Pool { address, event, .. } => match event {
                PoolEvent::ConnectionCheckedOut { .. } => self.checked_out += 1,
                PoolEvent::ConnectionCheckedIn { .. } => self.checked_out -= 1,
                PoolEvent::ConnectionReady { connection, .. } => {
                    self.established.entry(address.clone()).or_default().insert(*connection);
                }
                // Also of those that were never established.
                PoolEvent::ConnectionClosed { connection, .. } => {
                    self.established.entry(address.clone()).or_default().remove(connection);
                }
                _ => {}
            },
            _ => {}
        }
        if let EventKind::Command { command, event, .. } = event
            && self.is_ignored(command, event)
        {
            return;
        }
        let wanted = &self.entity.observe_events;
        self.observed.extend(Observed::of(event).filter(|it| wanted.contains(&it.kind)));
    }

    /// Returns whether an event is of a command that the test ignores: of those it names, of fail
    /// points, and of sensitive ones, which begin without a document.
    fn is_ignored(&mut self, command: &MonitoredCommand, event: &CommandEvent) -> bool {
        let id = command.request_id;
        let CommandEvent::CommandStarted { command: document } = event else {
            return self.ignored.contains(&id);
        };
        let name = command.command_name.as_str();
        let is_sensitive = document.iter().next().is_none();
        let is_ignored = name == "configureFailPoint"
            || self.entity.ignore_commands.iter().any(|ignored| ignored == name)
            || (is_sensitive && !self.entity.observe_sensitive_commands);
        if is_ignored {
            self.ignored.insert(id);
        }
        is_ignored
    }

    /// Returns whether the last two commands that were reported had the same logical session id;
    /// `None` if there were fewer, or if one had none.
    pub(super) fn has_same_lsid(&self) -> Option<bool> {
        let started = |event: &&Observed| event.kind == Kind::CommandStarted;
        let mut ids = self.observed.iter().rev().filter(started).map(|event| {
            let command = event.fields.get_document("command").ok();
            command.and_then(|command| command.get_document("lsid").ok())
        });
        Some(ids.next()?? == ids.next()??)
    }

    /// Returns whether the pools of all servers with data have minPoolSize connections, once it is
    /// known of every server whether it has data.
    pub(super) fn is_populated(&self) -> bool {
        let options = self.entity.uri_options.iter();
        let mut sizes = options.filter(|(name, _)| name.eq_ignore_ascii_case("minPoolSize"));
        let size = sizes.next().map(|(_, size)| match size {
            Bson::Int32(size) => usize::try_from(*size).unwrap_or_default(),
            Bson::Int64(size) => usize::try_from(*size).unwrap_or_default(),
            _ => 0,
        });
        let Some(size) = size.filter(|size| *size > 0) else {
            return true;
        };
        self.description.as_ref().is_some_and(|known| {
            let servers = known.servers();
            let count = |address: &_| self.established.get(address).map_or(0, BTreeSet::len);
            let is_full = |server: &Arc<ServerDescription>| match server.server_type {
                ServerType::Unknown => false,
                kind => !kind.is_data_bearing() || count(&server.address) >= size,
            };
            !servers.is_empty() && servers.iter().all(is_full)
        })
    }

    /// Returns what is known of the topology.
    pub(super) fn topology(&self) -> Topology {
        let description = self.description.as_deref();
        Topology {
            topology_type: description.map_or(TopologyType::Unknown, |known| known.topology_type),
            primary: description.and_then(|known| known.primary()).map(|it| it.address.clone()),
        }
    }
}

impl Entity {
    const fn kind(&self) -> &'static str {
        match self {
            Self::Client(_) => "a client",
            Self::Database(_) => "a database",
            Self::Collection(_) => "a collection",
            Self::Bucket(_) => "a bucket",
            Self::Session(_) => "a session",
            Self::Cursor(_) => "a cursor",
            Self::Unavailable => "an entity without an interface",
            Self::Thread(_) => "a thread",
            Self::Topology(_) => "a topology description",
            Self::Value(_) => "a value",
        }
    }
}

/// The entities; no name is used twice.
#[derive(Debug, Default)]
pub(super) struct Entities(BTreeMap<String, Entity>);

impl Entities {
    /// Adds an entity.
    pub(super) fn add(
        &mut self,
        place: &str,
        name: &str,
        entity: Entity,
    ) -> Result<(), Difference> {
        if let Some(there) = self.0.get(name) {
            let found = format!("{} of this name", there.kind());
            return Err(wrong(place, format!("no entity called {name:?}"), found));
        }
        self.0.insert(name.to_owned(), entity);
        Ok(())
    }

    /// Looks an entity up.
    pub(super) fn any(&self, place: &str, name: &str) -> Result<&Entity, Difference> {
        self.0.get(name).ok_or_else(|| missing(place, "an entity", name, None))
    }

    pub(super) fn client(&self, place: &str, name: &str) -> Result<&Client, Difference> {
        match self.0.get(name) {
            Some(Entity::Client(client)) => Ok(client),
            other => Err(missing(place, "a client", name, other)),
        }
    }

    pub(super) fn database(&self, place: &str, name: &str) -> Result<&Database, Difference> {
        match self.0.get(name) {
            Some(Entity::Database(database)) => Ok(database),
            other => Err(missing(place, "a database", name, other)),
        }
    }

    /// Returns the name of the client with this name, or with a database or collection of it.
    pub(super) fn client_of<'a>(
        &'a self,
        place: &str,
        name: &'a str,
    ) -> Result<&'a str, Difference> {
        match self.0.get(name) {
            Some(Entity::Client(_)) => Ok(name),
            Some(Entity::Database(database)) => Ok(&database.client),
            Some(Entity::Collection(collection)) => Ok(&collection.database.client),
            Some(Entity::Bucket(bucket)) => Ok(&bucket.database.client),
            other => Err(missing(place, "a client, a database or a collection", name, other)),
        }
    }

    pub(super) fn session(&self, place: &str, name: &str) -> Result<(), Difference> {
        match self.0.get(name) {
            Some(Entity::Session(_)) => Ok(()),
            other => Err(missing(place, "a session", name, other)),
        }
    }

    /// Takes the logical session id of a session.
    pub(super) fn started(&mut self, name: &str, id: Document) {
        if let Some(Entity::Session(known)) = self.0.get_mut(name) {
            *known = Some(id);
        }
    }

    pub(super) fn thread(&self, place: &str, name: &str) -> Result<usize, Difference> {
        match self.0.get(name) {
            Some(Entity::Thread(index)) => Ok(*index),
            other => Err(missing(place, "a thread", name, other)),
        }
    }

    pub(super) fn topology(&self, place: &str, name: &str) -> Result<&Topology, Difference> {
        match self.0.get(name) {
            Some(Entity::Topology(topology)) => Ok(topology),
            other => Err(missing(place, "a topology description", name, other)),
        }
    }

    /// Returns a client that has something to report; `None` if it is not known any more.
    pub(super) fn reporter(&mut self, name: &str) -> Option<&mut Client> {
        match self.0.get_mut(name) {
            Some(Entity::Client(client)) => Some(client),
            _ => None,
        }
    }
}

fn missing(place: &str, kind: &str, name: &str, found: Option<&Entity>) -> Difference {
    wrong(place, format!("{kind} called {name:?}"), found.map_or("nothing", Entity::kind))
}

impl matching::Entities for Entities {
    fn value(&self, name: &str) -> Option<Bson> {
        match self.0.get(name) {
            Some(Entity::Value(value)) => Some(value.clone()),
            _ => None,
        }
    }

    fn session_id(&self, name: &str) -> Option<Document> {
        match self.0.get(name) {
            Some(Entity::Session(id)) => id.clone(),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use bson::{Document, doc};

    use super::{Client, Kind, Observed};
    use crate::unified::format::{Entity, Node};

    fn has_same_lsid(events: &[(Kind, Document)]) -> Option<bool> {
        let node = Node::at("entity", doc! { "client": { "id": "client0" } });
        let Ok(Entity::Client(entity)) = Entity::read(node) else { panic!("a client") };
        let mut client = Client::new(*entity);
        let observed = events.iter().map(|(kind, command)| Observed {
            kind: *kind,
            fields: doc! { "command": command.clone() },
        });
        client.observed.extend(observed);
        client.has_same_lsid()
    }

    #[test]
    fn the_last_two_commands_have_one_session_or_two() {
        let with = |id| (Kind::CommandStarted, doc! { "ping": 1, "lsid": { "id": id } });
        let done = || (Kind::CommandSucceeded, doc! {});
        assert_eq!(has_same_lsid(&[with(2), with(1), done(), with(1), done()]), Some(true));
        assert_eq!(has_same_lsid(&[with(1), with(1), with(2)]), Some(false));
        assert_eq!(has_same_lsid(&[with(1), done()]), None);
        let without = (Kind::CommandStarted, doc! { "ping": 1 });
        assert_eq!(has_same_lsid(&[with(1), without, with(1)]), None);
    }
}
