//! Descriptions of topologies and servers, in the forms that drivers give them.

use std::collections::BTreeMap;

use sdam_core::config::ServerAddress;
use serde_json::{Map, Value};

use super::super::shape::{ServerShape, Shape, server_type, topology_type};
use super::{address, printed, repr};

/// Reads a topology: an object, a text of one, or what PyMongo prints.
pub(super) fn topology(value: &Value) -> Option<Shape> {
    match value {
        Value::Object(object) => of_object(object),
        Value::String(text) => match serde_json::from_str(text) {
            Ok(object) => of_object(&object),
            Err(_) => repr::read(text).or_else(|| printed::read(text)),
        },
        _ => None,
    }
}

fn of_object(object: &Map<String, Value>) -> Option<Shape> {
    let topology_type = topology_type(object.get("type")?.as_str()?)?;
    let text = |name: &str| object.get(name)?.as_str().map(str::to_owned);
    let oid = |name: &str| Some(object.get(name)?.get("$oid")?.as_str()?.to_owned());
    let election = text("maxElectionId").or_else(|| oid("maxElectionId"));
    let version = object.get("maxSetVersion").and_then(Value::as_i64);
    let session_timeout = object.get("logicalSessionTimeoutMinutes").map(Value::as_i64);
    Some(Shape {
        topology_type,
        set_name: text("setName"),
        max_election: election.zip(version),
        session_timeout,
        servers: object
            .get("servers")
            .and_then(|servers| of_servers(servers, topology_type.name())),
    })
}

/// Reads servers: an array, or an object by address. A `Map` that was lost in printing looks like
/// an object without any, which is believed of topologies that have none only.
fn of_servers(value: &Value, topology: &str) -> Option<BTreeMap<ServerAddress, ServerShape>> {
    let server = |value: &Value| {
        let address = address::of_value(value.get("address")?)?;
        Some((address, self::server(value)?))
    };
    match value {
        Value::Array(servers) => servers.iter().map(server).collect(),
        Value::Object(servers) if servers.is_empty() && topology != "Unknown" => None,
        Value::Object(servers) => servers.values().map(server).collect(),
        _ => None,
    }
}

/// Reads a server that is an object.
pub(super) fn server(value: &Value) -> Option<ServerShape> {
    if let Some(server_type) = value.get("server_type") {
        return of_serde(server_type, value);
    }
    let server_type = server_type(value.get("type")?.as_str()?)?;
    let error = value.get("error");
    let has_error = error.is_some_and(|error| !error.is_null());
    // The Node.js driver says -1 of a server that is Unknown.
    let millis = value.get("roundTripTimeMS").or_else(|| value.get("roundTripTime"));
    let round_trip_time = millis.map(|millis| millis.as_f64().filter(|millis| *millis >= 0.0));
    let mut details = value.as_object()?.clone();
    ["address", "type"].iter().for_each(|name| {
        details.remove(*name);
    });
    let tells_error = error.is_some();
    Some(ServerShape { server_type, has_error, tells_error, round_trip_time, details })
}

/// Reads a server as serde prints that of the Rust driver: the reply to hello, or why there is
/// none, is a part of it.
fn of_serde(server_type: &Value, value: &Value) -> Option<ServerShape> {
    let server_type = self::server_type(server_type.as_str()?)?;
    let reply = value.get("reply");
    let said = reply.and_then(|reply| reply.get("Ok")?.get("command_response")?.as_object());
    let mut details = said.cloned().unwrap_or_default();
    let error = reply.and_then(|reply| reply.get("Err"));
    details.extend(error.map(|error| ("error".to_owned(), error.clone())));
    let round_trip_time = value.get("average_round_trip_time").map(|time| {
        let part = |name: &str| time.get(name)?.as_f64();
        Some(part("secs")? * 1e3 + part("nanos")? / 1e6)
    });
    let (has_error, tells_error) = (error.is_some(), reply.is_some());
    Some(ServerShape { server_type, has_error, tells_error, round_trip_time, details })
}
