//! Servers, in the forms in which drivers name them.

use sdam_core::config::ServerAddress;
use serde_json::{Map, Value};

/// Reads of which server a line speaks: a host and its port, or both in one value.
pub(super) fn of_line(line: &Map<String, Value>) -> Option<ServerAddress> {
    if let Some(host) = line.get("serverHost").and_then(Value::as_str) {
        return of_parts(host, line.get("serverPort"));
    }
    let named = ["address", "serverAddress", "connectionId"].iter().find_map(|it| line.get(*it));
    let described = || line.get("newDescription")?.get("address");
    of_value(named.or_else(described)?)
}

/// Reads a text `host:port`, or what serde makes of an address in Rust: `{"Tcp": {"host": ..,
/// "port": ..}}` or `{"Unix": {"path": ..}}`.
pub(super) fn of_value(value: &Value) -> Option<ServerAddress> {
    if let Some(text) = value.as_str() {
        return without_connection(text).parse().ok();
    }
    if let Some(path) = value.get("Unix") {
        return path.get("path")?.as_str()?.parse().ok();
    }
    let tcp = value.get("Tcp")?;
    of_parts(tcp.get("host")?.as_str()?, tcp.get("port"))
}

fn of_parts(host: &str, port: Option<&Value>) -> Option<ServerAddress> {
    let port = port.and_then(|port| match port {
        Value::Number(number) => number.as_u64(),
        Value::String(text) => text.parse().ok(),
        _ => None,
    });
    match port {
        Some(port) if host.contains(':') => format!("[{host}]:{port}").parse().ok(),
        Some(port) => format!("{host}:{port}").parse().ok(),
        None => host.parse().ok(),
    }
}

/// Cuts off the number of a connection: the Go driver names one `host:port[-5]`.
fn without_connection(text: &str) -> &str {
    let is_number = |inner: &str| inner.parse::<i64>().is_ok();
    match text.strip_suffix(']').and_then(|text| text.rsplit_once('[')) {
        Some((address, inner)) if !address.is_empty() && is_number(inner) => address,
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{of_line, of_value};

    #[test]
    fn addresses_are_read_in_the_forms_of_drivers() {
        for (value, expected) in [
            (json!("a.example:27017"), "a.example:27017"),
            (json!("a.example:27017[-5]"), "a.example:27017"),
            (json!("[::1]:27017[-12]"), "[::1]:27017"),
            (json!("[::1]"), "[::1]:27017"),
            (json!("/tmp/m.sock"), "/tmp/m.sock"),
            (json!({ "Tcp": { "host": "a.example", "port": 1 } }), "a.example:1"),
            (json!({ "Tcp": { "host": "a.example", "port": null } }), "a.example:27017"),
            (json!({ "Tcp": { "host": "::1", "port": 2 } }), "[::1]:2"),
            (json!({ "Unix": { "path": "/tmp/m.sock" } }), "/tmp/m.sock"),
        ] {
            let read = of_value(&value).map(|it| it.to_string());
            assert_eq!(read.as_deref(), Some(expected), "{value}");
        }
        for value in [json!("a:b[c]"), json!({ "Udp": {} }), json!(5), Value::Null] {
            assert_eq!(of_value(&value), None, "{value}");
        }
    }

    #[test]
    fn a_line_names_its_server_by_one_field_or_by_two() {
        for line in [
            json!({ "serverHost": "a", "serverPort": "1" }),
            json!({ "serverHost": "a", "serverPort": 1 }),
            json!({ "serverAddress": { "Tcp": { "host": "a", "port": 1 } } }),
            json!({ "connectionId": "a:1[-7]" }),
            json!({ "newDescription": { "address": "a:1" } }),
        ] {
            let Value::Object(line) = line else { unreachable!("a line is an object") };
            assert_eq!(of_line(&line).map(|it| it.to_string()).as_deref(), Some("a:1"), "{line:?}");
        }
    }
}
