//! The state of the topology and of its servers that a phase must end in.

use std::collections::BTreeMap;

use bson::oid::ObjectId;
use sdam_core::description::{ServerDescription, TopologyVersion};
use serde::Deserialize;

use super::super::difference::{Differences, Expected};
use super::super::format::{Address, ServerKind, TopologyKind, list};
use super::Expectation;
use sdam_core::harness::Harness;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct ExpectedState {
    topology_type: TopologyKind,
    servers: BTreeMap<Address, ExpectedServer>,
    #[serde(default)]
    set_name: Expected<String>,
    #[serde(default)]
    logical_session_timeout_minutes: Expected<i64>,
    #[serde(default)]
    max_set_version: Expected<i64>,
    #[serde(default)]
    max_election_id: Expected<ObjectId>,
    compatible: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct ExpectedServer {
    #[serde(rename = "type")]
    server_type: ServerKind,
    #[serde(default)]
    set_name: Expected<String>,
    #[serde(default)]
    set_version: Expected<i64>,
    #[serde(default)]
    election_id: Expected<ObjectId>,
    #[serde(default)]
    logical_session_timeout_minutes: Expected<i64>,
    #[serde(default)]
    min_wire_version: Expected<i32>,
    #[serde(default)]
    max_wire_version: Expected<i32>,
    #[serde(default)]
    topology_version: Expected<ExpectedVersion>,
    /// A part of the error.
    error: Option<String>,
    pool: Option<ExpectedPool>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct ExpectedVersion {
    process_id: ObjectId,
    counter: i64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExpectedPool {
    generation: u32,
}

impl Expectation for ExpectedState {
    fn compare(&self, fixture: &mut Harness, differences: &mut Differences) {
        let view = fixture.view();
        differences.equal("topologyType", &self.topology_type.0, &view.topology_type);
        let set_name = view.set_name.as_deref().map(str::to_owned);
        differences.expect("setName", &self.set_name, set_name.as_ref());
        differences.expect(
            "logicalSessionTimeoutMinutes",
            &self.logical_session_timeout_minutes,
            view.logical_session_timeout_minutes.as_ref(),
        );
        let max_set_version = view.max_set_version.as_ref();
        differences.expect("maxSetVersion", &self.max_set_version, max_set_version);
        let max_election_id = view.max_election_id.as_ref();
        differences.expect("maxElectionId", &self.max_election_id, max_election_id);
        if let Some(compatible) = &self.compatible {
            differences.equal("compatible", compatible, &view.incompatibility.is_none());
        }
        let found = list(view.servers().iter().map(|server| &server.address));
        differences.text("servers", &list(self.servers.keys()), &found);
        for (address, expected) in &self.servers {
            if let Some(server) = view.server(&address.0) {
                differences.within(format!("server {address}"), |differences| {
                    expected.compare(server, fixture.generation(&address.0), differences);
                });
            }
        }
    }
}

impl ExpectedServer {
    fn compare(&self, found: &ServerDescription, generation: u32, differences: &mut Differences) {
        differences.equal("type", &self.server_type.0, &found.server_type);
        let set_name = found.set_name.as_deref().map(str::to_owned);
        differences.expect("setName", &self.set_name, set_name.as_ref());
        differences.expect("setVersion", &self.set_version, found.set_version.as_ref());
        differences.expect("electionId", &self.election_id, found.election_id.as_ref());
        differences.expect(
            "logicalSessionTimeoutMinutes",
            &self.logical_session_timeout_minutes,
            found.logical_session_timeout_minutes.as_ref(),
        );
        // "Default 0": a server that has sent no wire version has 0, so 0 is what unset looks like.
        let told = |version: &i32| *version != 0;
        let min_wire_version = Some(&found.min_wire_version).filter(|version| told(version));
        let max_wire_version = Some(&found.max_wire_version).filter(|version| told(version));
        differences.expect("minWireVersion", &self.min_wire_version, min_wire_version);
        differences.expect("maxWireVersion", &self.max_wire_version, max_wire_version);
        let expected = match self.topology_version {
            Expected::Anything => Expected::Anything,
            Expected::Unset => Expected::Unset,
            Expected::Exactly(ExpectedVersion { process_id, counter }) => {
                Expected::Exactly(TopologyVersion::new(process_id, counter))
            }
        };
        differences.expect("topologyVersion", &expected, found.topology_version.as_ref());
        if let Some(expected) = &self.error {
            let error = found.error.as_ref().map_or("unset".to_owned(), ToString::to_string);
            if !error.contains(expected.as_str()) {
                differences.differs("error", format!("an error that says {expected:?}"), error);
            }
        }
        if let Some(pool) = &self.pool {
            differences.equal("pool.generation", &pool.generation, &generation);
        }
    }
}
