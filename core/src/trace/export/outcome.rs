//! A description as the outcome of a phase.

use std::collections::BTreeMap;

use crate::description::{ServerDescription, TopologyDescription, TopologyVersion};
use bson::oid::ObjectId;
use serde_json::{Map, Value, json};

/// Writes a description, in which what is not known is `null`; and how often pools were cleared, if
/// that was counted.
pub(super) fn outcome(
    view: &TopologyDescription,
    generations: Option<&BTreeMap<String, u64>>,
) -> Value {
    let servers = view.servers().iter().map(|server| {
        let address = server.address.to_string();
        let mut written = of_server(server);
        if let (Some(generations), Value::Object(written)) = (generations, &mut written) {
            let generation = generations.get(&address).copied().unwrap_or_default();
            written.insert("pool".to_owned(), json!({ "generation": generation }));
        }
        (address, written)
    });
    json!({
        "servers": servers.collect::<Map<_, _>>(),
        "topologyType": view.topology_type.name(),
        "setName": view.set_name,
        "logicalSessionTimeoutMinutes": view.logical_session_timeout_minutes,
        "maxSetVersion": view.max_set_version,
        "maxElectionId": of_id(view.max_election_id),
        "compatible": view.incompatibility.is_none(),
    })
}

fn of_server(server: &ServerDescription) -> Value {
    json!({
        "type": server.server_type.name(),
        "setName": server.set_name,
        "setVersion": server.set_version,
        "electionId": of_id(server.election_id),
        "topologyVersion": server.topology_version.map(of_version),
    })
}

fn of_id(id: Option<ObjectId>) -> Option<Value> {
    id.map(|id| json!({ "$oid": id.to_hex() }))
}

/// As the suites write it: the number in the form that keeps its type.
fn of_version(version: TopologyVersion) -> Value {
    let TopologyVersion { process_id, counter } = version;
    let counter = json!({ "$numberLong": counter.to_string() });
    json!({ "processId": { "$oid": process_id.to_hex() }, "counter": counter })
}
