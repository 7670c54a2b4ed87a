//! Descriptions as PyMongo prints them: `<TopologyDescription id: …>`.

use std::collections::BTreeMap;

use sdam_core::config::ServerAddress;
use serde_json::Map;

use super::super::shape::{ServerShape, Shape, server_type, topology_type};

/// The rest of a text.
struct Rest<'a>(&'a str);

/// Reads a topology; `None` if the text has another form.
pub(super) fn read(text: &str) -> Option<Shape> {
    let mut rest = Rest(text.trim());
    rest.expect("<TopologyDescription ")?;
    if rest.expect("id: ").is_some() {
        rest.until(", ")?;
    }
    rest.expect("topology_type: ")?;
    let topology_type = topology_type(rest.until(", servers: [")?)?;
    let mut servers = BTreeMap::new();
    if rest.expect("]>").is_none() {
        loop {
            let (address, server) = rest.server()?;
            servers.insert(address, server);
            match rest.expect(", ") {
                Some(()) => {}
                None => break rest.expect("]>")?,
            }
        }
    }
    let servers = Some(servers);
    let (set_name, max_election, session_timeout) = (None, None, None);
    Some(Shape { topology_type, set_name, max_election, session_timeout, servers })
}

impl<'a> Rest<'a> {
    fn expect(&mut self, text: &str) -> Option<()> {
        self.0 = self.0.strip_prefix(text)?;
        Some(())
    }

    /// Takes what comes before `end`, and that itself.
    fn until(&mut self, end: &str) -> Option<&'a str> {
        let (taken, rest) = self.0.split_once(end)?;
        self.0 = rest;
        Some(taken)
    }

    /// Reads `<ServerDescription ('a', 27017) server_type: RSPrimary, rtt: 0.001>`, and the error
    /// that may stand behind that.
    fn server(&mut self) -> Option<(ServerAddress, ServerShape)> {
        self.expect("<ServerDescription (")?;
        let host = self.literal()?;
        self.expect(", ")?;
        let address = match self.until(") server_type: ")? {
            "None" => host.parse().ok()?,
            port if host.contains(':') => format!("[{host}]:{port}").parse().ok()?,
            port => format!("{host}:{port}").parse().ok()?,
        };
        let server_type = server_type(self.until(", rtt: ")?)?;
        let (seconds, _) = self.0.split_at_checked(self.0.find(['>', ','])?)?;
        self.0 = &self.0[seconds.len()..];
        let round_trip_time = Some(seconds.parse::<f64>().ok().map(|seconds| seconds * 1e3));
        let has_error = self.expect(", error=").is_some();
        if has_error {
            self.value()?;
        }
        self.expect(">")?;
        let details = Map::new();
        let tells_error = has_error;
        let server = ServerShape { server_type, has_error, tells_error, round_trip_time, details };
        Some((address, server))
    }

    /// Reads a text in quotes; what is escaped in it is of no interest in host names.
    fn literal(&mut self) -> Option<&'a str> {
        let quote = self.0.chars().next().filter(|c| matches!(c, '\'' | '"'))?;
        let mut escaped = false;
        let end = self.0[1..].find(|c| {
            let ends = c == quote && !escaped;
            escaped = c == '\\' && !escaped;
            ends
        })?;
        let literal = &self.0[1..=end];
        self.0 = &self.0[end + 2..];
        Some(literal)
    }

    /// Passes over the form of any value: it ends where the server does, which is not within
    /// quotes or brackets.
    fn value(&mut self) -> Option<()> {
        let mut depth = 0_usize;
        loop {
            match self.0.chars().next()? {
                '\'' | '"' => {
                    self.literal()?;
                    continue;
                }
                '(' | '[' | '{' | '<' => depth += 1,
                '>' if depth == 0 => return Some(()),
                ')' | ']' | '}' | '>' => depth = depth.checked_sub(1)?,
                _ => {}
            }
            let mut characters = self.0.chars();
            characters.next();
            self.0 = characters.as_str();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::read;

    #[test]
    fn a_topology_is_read_whatever_its_errors_quote() {
        let text = [
            "<TopologyDescription id: 6b01, topology_type: ReplicaSetWithPrimary, servers: [",
            "<ServerDescription ('a', 27017) server_type: RSPrimary, rtt: 0.002>, ",
            "<ServerDescription ('b', 1) server_type: Unknown, rtt: None, error=AutoReconnect(",
            r#""it's <ServerDescription ('c', 2) server_type: Mongos, rtt: None>]>, (")>, "#,
            "<ServerDescription ('::1', 2) server_type: Unknown, rtt: None, error=NotPrimaryError(",
            r"'x \'', {'ok': 0.0, 'tv': <object at 0x1>})>, ",
            "<ServerDescription ('/tmp/m.sock', None) server_type: RSOther, rtt: 1>]>",
        ];
        let shape = read(&text.concat()).expect("a description");
        let expected = "ReplicaSetWithPrimary: [::1]:2 Unknown, a:27017 RSPrimary, b:1 Unknown, \
                        /tmp/m.sock RSOther";
        assert_eq!(shape.to_string(), expected);
        let errors = shape.servers.expect("servers").into_values().map(|it| it.has_error);
        assert_eq!(errors.collect::<Vec<_>>(), [true, false, true, false]);
    }

    #[test]
    fn a_topology_may_be_empty() {
        let shape = read("<TopologyDescription id: 6b01, topology_type: Unknown, servers: []>");
        assert!(shape.expect("a description").is_empty());
    }

    #[test]
    fn what_is_cut_or_of_another_form_is_not_read() {
        let whole = "<TopologyDescription id: 1, topology_type: Single, servers: \
                     [<ServerDescription ('a', 1) server_type: Mongos, rtt: 1>]>";
        assert!(read(whole).is_some());
        for length in 0..whole.len() {
            assert!(read(&whole[..length]).is_none(), "{}", &whole[..length]);
        }
        assert!(read(&whole.replace("Mongos", "Mango")).is_none());
    }
}
