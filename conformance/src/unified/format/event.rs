//! Events that are expected of clients (Unified Test Format, "expectedEvent").

use bson::Document;

use super::error::FormatError;
use super::object::{Node, Object};

/// The events that a client is to have seen, in order.
#[derive(Clone, Debug)]
pub struct ExpectedEvents {
    /// The client.
    pub client: String,
    /// The monitor that sees them; other events do not matter.
    pub event_type: EventType,
    /// The events.
    pub events: Vec<ExpectedEvent>,
    /// True if more may follow.
    pub ignore_extra_events: bool,
}

/// An event that is expected; what it does not name does not matter.
#[derive(Clone, Debug)]
pub struct ExpectedEvent {
    /// Its kind.
    pub kind: EventKind,
    /// The fields that are compared, each of those that its kind has.
    pub fields: Document,
}

/// The monitor that sees an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EventType {
    /// That of commands.
    #[default]
    Command,
    /// That of pools.
    Cmap,
    /// That of the topology.
    Sdam,
}

impl EventType {
    const NAMES: &[(&str, Self)] =
        &[("command", Self::Command), ("cmap", Self::Cmap), ("sdam", Self::Sdam)];
}

/// Reads the fields of a kind of events.
type ReadFields = fn(&mut Object) -> Result<(), FormatError>;

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident, $name:literal, $monitor:ident, $fields:expr;)*) => {
        /// The kind of an event.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum EventKind {
            $($(#[$doc])* $kind,)*
        }

        impl EventKind {
            /// The kinds and their names in the format.
            pub const NAMES: &[(&str, Self)] = &[$(($name, Self::$kind)),*];

            /// Returns the name in the format.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$kind => $name,)*
                }
            }

            /// Returns the monitor that sees it.
            pub const fn event_type(self) -> EventType {
                match self {
                    $(Self::$kind => EventType::$monitor,)*
                }
            }

            fn fields(self) -> ReadFields {
                match self {
                    $(Self::$kind => $fields,)*
                }
            }
        }
    };
}

kinds! {
    /// A command is sent.
    CommandStarted, "commandStartedEvent", Command, |object| {
        object.optional("command", Node::document)?;
        command(object)
    };
    /// A command has succeeded.
    CommandSucceeded, "commandSucceededEvent", Command, |object| {
        object.optional("reply", Node::document)?;
        command(object)
    };
    /// A command has failed.
    CommandFailed, "commandFailedEvent", Command, command;
    /// A pool is there.
    PoolCreated, "poolCreatedEvent", Cmap, nothing;
    /// A pool is ready.
    PoolReady, "poolReadyEvent", Cmap, nothing;
    /// A pool was cleared.
    PoolCleared, "poolClearedEvent", Cmap, |object| {
        object.optional("hasServiceId", Node::boolean)?;
        object.optional("interruptInUseConnections", Node::boolean).map(drop)
    };
    /// A pool was closed.
    PoolClosed, "poolClosedEvent", Cmap, nothing;
    /// A connection is to be established.
    ConnectionCreated, "connectionCreatedEvent", Cmap, nothing;
    /// A connection is established.
    ConnectionReady, "connectionReadyEvent", Cmap, nothing;
    /// A connection was closed.
    ConnectionClosed, "connectionClosedEvent", Cmap, reason;
    /// A check-out has begun.
    CheckOutStarted, "connectionCheckOutStartedEvent", Cmap, nothing;
    /// A check-out has failed.
    CheckOutFailed, "connectionCheckOutFailedEvent", Cmap, reason;
    /// A connection was checked out.
    CheckedOut, "connectionCheckedOutEvent", Cmap, nothing;
    /// A connection was checked in.
    CheckedIn, "connectionCheckedInEvent", Cmap, nothing;
    /// A server's description has changed.
    ServerChanged, "serverDescriptionChangedEvent", Sdam, |object| descriptions(object, SERVERS);
    /// A check of a server has begun.
    HeartbeatStarted, "serverHeartbeatStartedEvent", Sdam, awaited;
    /// A check of a server has succeeded.
    HeartbeatSucceeded, "serverHeartbeatSucceededEvent", Sdam, awaited;
    /// A check of a server has failed.
    HeartbeatFailed, "serverHeartbeatFailedEvent", Sdam, awaited;
    /// The topology's description has changed.
    TopologyChanged, "topologyDescriptionChangedEvent", Sdam, |object| {
        descriptions(object, TOPOLOGIES)
    };
    /// The monitoring has begun.
    TopologyOpening, "topologyOpeningEvent", Sdam, nothing;
    /// The monitoring has ended.
    TopologyClosed, "topologyClosedEvent", Sdam, nothing;
}

/// The types of servers.
const SERVERS: &[(&str, ())] = &[
    ("Standalone", ()),
    ("Mongos", ()),
    ("PossiblePrimary", ()),
    ("RSPrimary", ()),
    ("RSSecondary", ()),
    ("RSArbiter", ()),
    ("RSOther", ()),
    ("RSGhost", ()),
    ("LoadBalancer", ()),
    ("Unknown", ()),
];

/// The types of topologies.
const TOPOLOGIES: &[(&str, ())] = &[
    ("Single", ()),
    ("Unknown", ()),
    ("ReplicaSetNoPrimary", ()),
    ("ReplicaSetWithPrimary", ()),
    ("Sharded", ()),
    ("LoadBalanced", ()),
];

pub(super) fn expected_events(node: Node) -> Result<ExpectedEvents, FormatError> {
    let mut object = node.object()?;
    let event_type = object.optional("eventType", |node| node.one_of(EventType::NAMES))?;
    let event_type = event_type.unwrap_or_default();
    let event = |node: Node| {
        let place = node.place().to_owned();
        let event = ExpectedEvent::read(node)?;
        match event.kind.event_type() == event_type {
            true => Ok(event),
            false => {
                let rule = format!("is no event of the type {event_type:?}").to_lowercase();
                Err(FormatError::Broken { place, rule })
            }
        }
    };
    let events = ExpectedEvents {
        client: object.required("client", Node::string)?,
        event_type,
        events: object.required("events", |node| node.list(event))?,
        ignore_extra_events: object
            .optional("ignoreExtraEvents", Node::boolean)?
            .unwrap_or_default(),
    };
    object.finish()?;
    Ok(events)
}

impl ExpectedEvent {
    /// Reads an event.
    ///
    /// # Errors
    ///
    /// Fails if it breaks a rule of the format.
    pub fn read(node: Node) -> Result<Self, FormatError> {
        let outer = node.place().to_owned();
        let (name, node) = node.single()?;
        let Some((_, kind)) = EventKind::NAMES.iter().find(|(known, _)| *known == name) else {
            let rule = format!("has a field {name:?}, which is no kind of event");
            return Err(FormatError::Broken { place: outer, rule });
        };
        let (place, fields) = (node.place().to_owned(), node.document()?);
        let mut object = Node::at(place, fields.clone()).object()?;
        kind.fields()(&mut object)?;
        object.finish()?;
        Ok(Self { kind: *kind, fields })
    }
}

fn nothing(_: &mut Object) -> Result<(), FormatError> {
    Ok(())
}

fn command(object: &mut Object) -> Result<(), FormatError> {
    object.optional("commandName", Node::string)?;
    object.optional("databaseName", Node::string)?;
    object.optional("hasServiceId", Node::boolean)?;
    object.optional("hasServerConnectionId", Node::boolean).map(drop)
}

fn reason(object: &mut Object) -> Result<(), FormatError> {
    object.optional("reason", Node::string).map(drop)
}

fn awaited(object: &mut Object) -> Result<(), FormatError> {
    object.optional("awaited", Node::boolean).map(drop)
}

fn descriptions(object: &mut Object, types: &[(&str, ())]) -> Result<(), FormatError> {
    for name in ["previousDescription", "newDescription"] {
        object.optional(name, |node| {
            let mut description = node.object()?;
            description.optional("type", |node| node.one_of(types))?;
            description.finish()
        })?;
    }
    Ok(())
}
