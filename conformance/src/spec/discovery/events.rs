//! The events that a phase must emit: all of them, in order.

use sdam_core::config::ServerAddress;
use sdam_core::description::{ServerDescription, TopologyDescription};
use sdam_core::topology::{Event, EventKind};
use serde::Deserialize;

use super::super::difference::Differences;
use super::super::format::{Address, ServerKind, TopologyKind, list};
use super::Expectation;
use sdam_core::harness::Harness;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ExpectedEvents {
    events: Vec<ExpectedEvent>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
enum ExpectedEvent {
    #[serde(rename = "topology_opening_event")]
    TopologyOpening(OfTopology),
    #[serde(rename = "topology_description_changed_event")]
    TopologyChanged(TopologyChange),
    #[serde(rename = "topology_closed_event")]
    TopologyClosed(OfTopology),
    #[serde(rename = "server_opening_event")]
    ServerOpening(OfServer),
    #[serde(rename = "server_description_changed_event")]
    ServerChanged(Box<ServerChange>),
    #[serde(rename = "server_closed_event")]
    ServerClosed(OfServer),
}

/// The id of a topology is always "42" in the suite, which stands for any; ours is compared with
/// that of the topology instead.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct OfTopology {
    #[serde(rename = "topologyId")]
    _topology_id: AnyTopology,
}

#[derive(Debug, Deserialize)]
enum AnyTopology {
    #[serde(rename = "42")]
    Any,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct OfServer {
    #[serde(rename = "topologyId")]
    _topology_id: AnyTopology,
    address: Address,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct TopologyChange {
    #[serde(rename = "topologyId")]
    _topology_id: AnyTopology,
    previous_description: ExpectedTopology,
    new_description: ExpectedTopology,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct ServerChange {
    #[serde(rename = "topologyId")]
    _topology_id: AnyTopology,
    address: Address,
    previous_description: ExpectedServer,
    new_description: ExpectedServer,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct ExpectedTopology {
    topology_type: TopologyKind,
    set_name: Option<String>,
    servers: Vec<ExpectedServer>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct ExpectedServer {
    address: Address,
    #[serde(rename = "type")]
    server_type: ServerKind,
    hosts: Vec<Address>,
    passives: Vec<Address>,
    arbiters: Vec<Address>,
    primary: Option<Address>,
    set_name: Option<String>,
}

impl Expectation for ExpectedEvents {
    fn compare(&self, fixture: &mut Harness, differences: &mut Differences) {
        let events = fixture.take_events();
        let names = |names: Vec<String>| match names.is_empty() {
            true => "none".to_owned(),
            false => names.join(", "),
        };
        let expected: Vec<String> = self.events.iter().map(ExpectedEvent::name).collect();
        let found: Vec<String> = events.iter().map(|event| name(&event.kind)).collect();
        if expected != found {
            return differences.differs("events", names(expected), names(found));
        }
        for (index, (expected, found)) in self.events.iter().zip(&events).enumerate() {
            let place = format!("event {} ({})", index + 1, expected.name());
            differences.within(place, |differences| {
                differences.equal("topologyId", &fixture.id(), &found.topology);
                expected.compare(found, differences);
            });
        }
    }
}

impl ExpectedEvent {
    fn name(&self) -> String {
        match self {
            Self::TopologyOpening(_) => "topology opening".into(),
            Self::TopologyChanged(_) => "topology changed".into(),
            Self::TopologyClosed(_) => "topology closed".into(),
            Self::ServerOpening(OfServer { address, .. }) => format!("{address} opening"),
            Self::ServerChanged(change) => format!("{} changed", change.address),
            Self::ServerClosed(OfServer { address, .. }) => format!("{address} closed"),
        }
    }

    /// Compares the descriptions that an event of the same name carries.
    fn compare(&self, found: &Event, differences: &mut Differences) {
        match (self, &found.kind) {
            (
                Self::TopologyChanged(expected),
                EventKind::TopologyDescriptionChanged { previous, new },
            ) => {
                let before = &expected.previous_description;
                differences.within("previousDescription", |d| before.compare(previous, d));
                let after = &expected.new_description;
                differences.within("newDescription", |d| after.compare(new, d));
            }
            (
                Self::ServerChanged(expected),
                EventKind::ServerDescriptionChanged { previous, new },
            ) => {
                let before = &expected.previous_description;
                differences.within("previousDescription", |d| before.compare(previous, d));
                let after = &expected.new_description;
                differences.within("newDescription", |d| after.compare(new, d));
            }
            _ => {}
        }
    }
}

fn name(kind: &EventKind) -> String {
    match kind {
        EventKind::TopologyOpening => "topology opening".into(),
        EventKind::TopologyDescriptionChanged { .. } => "topology changed".into(),
        EventKind::TopologyClosed => "topology closed".into(),
        EventKind::ServerOpening { address, .. } => format!("{address} opening"),
        EventKind::ServerDescriptionChanged { new, .. } => format!("{} changed", new.address),
        EventKind::ServerClosed { address, .. } => format!("{address} closed"),
        other => format!("{other:?}"),
    }
}

impl ExpectedTopology {
    fn compare(&self, found: &TopologyDescription, differences: &mut Differences) {
        differences.equal("topologyType", &self.topology_type.0, &found.topology_type);
        if let Some(set_name) = &self.set_name {
            differences.text("setName", set_name, found.set_name.as_deref().unwrap_or("unset"));
        }
        let expected = list(self.servers.iter().map(|server| &server.address));
        let addresses = list(found.servers().iter().map(|server| &server.address));
        differences.text("servers", &expected, &addresses);
        for expected in &self.servers {
            if let Some(server) = found.server(&expected.address.0) {
                let place = format!("server {}", expected.address);
                differences.within(place, |differences| expected.compare(server, differences));
            }
        }
    }
}

impl ExpectedServer {
    fn compare(&self, found: &ServerDescription, differences: &mut Differences) {
        differences.equal("address", &self.address.0, &found.address);
        differences.equal("type", &self.server_type.0, &found.server_type);
        let mut members = |field, expected: &[Address], found: &[ServerAddress]| {
            differences.text(field, &list(expected), &list(found));
        };
        members("hosts", &self.hosts, &found.hosts);
        members("passives", &self.passives, &found.passives);
        members("arbiters", &self.arbiters, &found.arbiters);
        if let Some(primary) = &self.primary {
            let found = found.primary.as_ref().map_or("unset".into(), ToString::to_string);
            differences.text("primary", &primary.to_string(), &found);
        }
        if let Some(set_name) = &self.set_name {
            differences.text("setName", set_name, found.set_name.as_deref().unwrap_or("unset"));
        }
    }
}
