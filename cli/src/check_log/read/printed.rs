//! Descriptions as the Rust driver and the Go driver print them in their logs:
//! `{ Type: Sharded, Set Name: rs, Servers: [ { Address: a:1, Type: Mongos, .. } ] }` and
//! `Type: Sharded, Servers: [{ Addr: a:1, Type: Mongos, .. }, ]`.

use std::collections::BTreeMap;

use sdam_core::config::ServerAddress;
use serde_json::Map;

use super::super::shape::{ServerShape, Shape, server_type, topology_type};

/// By what a server begins, and a description ends, in the order of [`ERRORS`].
const SERVERS: [&str; 2] = ["{ Address: ", "{ Addr: "];

/// By what the error of a server begins; it is the last of what is said, and quotes anything.
const ERRORS: [&str; 2] = [", Error: ", ", Last error: "];

/// Reads a topology; `None` of a text in any other form, or one that was cut.
pub(super) fn read(text: &str) -> Option<Shape> {
    let text = text.trim();
    let (text, is_braced) = match text.strip_prefix("{ ") {
        Some(inner) => (inner.strip_suffix(" }")?, true),
        None => (text, false),
    };
    let (head, list) = match text.split_once("Servers: [") {
        Some((head, list)) => (head, list.strip_suffix(']')?),
        // One of them prints no list if it is empty.
        None if is_braced => (text, ""),
        None => return None,
    };
    let field = |name: &str| head.split(", ").find_map(|it| it.trim().strip_prefix(name));
    let version = field("Max Set Version: ").and_then(|it| it.parse().ok());
    let election = field("Max Election ID: ").map(str::to_owned);
    Some(Shape {
        topology_type: topology_type(field("Type: ")?)?,
        set_name: field("Set Name: ").map(|name| name.trim_matches('"').to_owned()),
        max_election: election.zip(version),
        session_timeout: None,
        servers: Some(servers(list)?),
    })
}

fn servers(list: &str) -> Option<BTreeMap<ServerAddress, ServerShape>> {
    let form = usize::from(!list.contains(SERVERS[0]));
    let mut servers = list.split(SERVERS[form]);
    servers.next().filter(|before| before.trim().is_empty())?;
    servers.map(|text| server(text, ERRORS[form])).collect()
}

/// Reads what follows the beginning of a server, until the next one.
fn server(text: &str, error: &str) -> Option<(ServerAddress, ServerShape)> {
    let text = text.trim_end().trim_end_matches(',').trim_end().strip_suffix('}')?;
    let (address, rest) = text.split_once(", Type: ")?;
    let end = rest.find(',').unwrap_or(rest.len());
    let has_error = rest[end..].contains(error);
    let server = ServerShape {
        server_type: server_type(rest[..end].trim_end())?,
        has_error,
        tells_error: has_error,
        round_trip_time: None,
        details: Map::new(),
    };
    Some((address.parse().ok()?, server))
}

#[cfg(test)]
mod tests {
    use super::read;

    const RUST: &str = "{ Type: ReplicaSetNoPrimary, Set Name: rs, Max Set Version: 1, \
        Max Election ID: 7fffffff0000000000000002, Servers: [ { Address: a:1, Type: RsSecondary, \
        Average RTT: 5.3ms, Max Wire Version: 17, Tags: {\"dc\": \"x\"} }, { Address: [::1]:2, \
        Type: Unknown, Error: Kind: I/O error: unexpected, labels: {} }, { Address: b:3, \
        Type: Unknown } ] }";

    const GO: &str = "Type: ReplicaSetNoPrimary, Servers: [{ Addr: a:1, Type: RSSecondary, \
        Average RTT: 5300000 }, { Addr: [::1]:2, Type: Unknown, Last error: connection() error \
        {x} }, { Addr: b:3, Type: Unknown }, ]";

    #[test]
    fn a_topology_is_read_in_both_forms() {
        for text in [RUST, GO] {
            let shape = read(text).expect("a description");
            let expected = "ReplicaSetNoPrimary: [::1]:2 Unknown, a:1 RSSecondary, b:3 Unknown";
            assert_eq!(shape.to_string(), expected);
            let errors = shape.servers.expect("servers").into_values().map(|it| it.has_error);
            assert_eq!(errors.collect::<Vec<_>>(), [true, false, false]);
        }
        let shape = read(RUST).expect("a description");
        assert_eq!(shape.set_name.as_deref(), Some("rs"));
        assert_eq!(shape.max_election, Some(("7fffffff0000000000000002".to_owned(), 1)));
    }

    #[test]
    fn a_topology_may_have_no_servers() {
        for text in ["{ Type: Unknown }", "Type: Unknown, Servers: []"] {
            assert!(read(text).expect("a description").is_empty(), "{text}");
        }
    }

    #[test]
    fn what_is_cut_or_of_another_form_is_not_read() {
        for whole in [RUST, GO] {
            for length in 0..whole.len() {
                assert!(read(&whole[..length]).is_none(), "{}", &whole[..length]);
            }
        }
        for text in ["{type=REPLICA_SET, servers=[{address=a:1}]}", &RUST.replace("RsS", "Ss")] {
            assert!(read(text).is_none(), "{text}");
        }
    }
}
