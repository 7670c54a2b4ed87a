//! The error of an operation as one of a case.

use std::collections::BTreeMap;

use crate::topology::Topology;
use serde_json::{Map, Value, json};

/// Returns the error that a call reports, `operation-failed SERVER FAILURE`; or why it cannot be
/// expressed.
pub(super) fn application_error(
    words: &str,
    addresses: &BTreeMap<String, String>,
    topology: &Topology,
) -> Result<Value, &'static str> {
    let mut words = words.splitn(3, ' ').skip(1);
    let server = words.next().unwrap_or_default();
    let failure = words.next().and_then(|json| serde_json::from_str::<Value>(json).ok());
    let failure = failure.unwrap_or_default();
    if failure.get("service").is_some() {
        return Err("an operation fails on one service behind a load balancer");
    }
    let known = addresses.get(server).filter(|address| {
        let servers = topology.description().servers();
        servers.iter().any(|server| server.address.to_string() == **address)
    });
    let Some(address) = known else {
        return Err("an operation fails on a server that has left, or leaves because of it");
    };
    let mut error = Map::new();
    error.insert("address".to_owned(), address.as_str().into());
    error.insert("generation".to_owned(), failure["generation"].clone());
    error.insert("maxWireVersion".to_owned(), failure["maxWireVersion"].clone());
    let (stage, kind, response) = match (failure.get("stream"), failure.get("reply")) {
        (Some(stream), _) => (&stream["stage"], network(&stream["cause"])?, None),
        (_, Some(reply)) => (&reply["stage"], "command", Some(response(reply))),
        _ => return Err("an operation fails because of itself, which says nothing of a server"),
    };
    let when = match stage.as_str() {
        Some("certificates" | "revocation") => {
            return Err(
                "a connection waits for others than its server, of which formats know nothing",
            );
        }
        Some("operate") => "afterHandshakeCompletes",
        _ => "beforeHandshakeCompletes",
    };
    error.insert("when".to_owned(), when.into());
    error.insert("type".to_owned(), kind.into());
    if let Some(response) = response {
        error.insert("response".to_owned(), response);
    }
    Ok(error.into())
}

fn network(cause: &Value) -> Result<&'static str, &'static str> {
    match cause.as_str() {
        Some("timeout") => Ok("timeout"),
        Some("closed" | "io" | "refused") => Ok("network"),
        _ => Err("a connection fails for a reason that is neither the network nor a time-out"),
    }
}

/// Returns a reply that says the same.
fn response(error: &Value) -> Value {
    let mut response = Map::new();
    response.insert("ok".to_owned(), 0.into());
    let fields = [
        ("message", "errmsg"),
        ("code", "code"),
        ("codeName", "codeName"),
        ("labels", "errorLabels"),
    ];
    for (name, official) in fields {
        if let Some(value) = error.get(name) {
            response.insert(official.to_owned(), value.clone());
        }
    }
    if let Some(version) = error.get("topologyVersion") {
        let counter = version["counter"].as_i64().unwrap_or_default().to_string();
        let version = json!({
            "processId": { "$oid": version["processId"] },
            "counter": { "$numberLong": counter },
        });
        response.insert("topologyVersion".to_owned(), version);
    }
    response.into()
}
