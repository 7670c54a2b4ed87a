//! Our model of a topology: the descriptions of `sdam_core`, moved by what a log has found.

use std::collections::BTreeMap;
use std::rc::Rc;

use sdam_core::bson::RawDocumentBuf;
use sdam_core::config::{Options, ServerAddress};
use sdam_core::description::{
    CLIENT_MAX_WIRE_VERSION, ServerDescription, ServerType, TopologyDescription, TopologyType,
};
use sdam_core::failure::{Cause, Failure, Stage};
use sdam_core::topology::transitions;
use serde_json::{Map, Value, json};

use super::read::hello;
use super::record::Found;
use super::shape::{ServerShape, Shape};

/// The name of a replica set that a log never names: then none of its members has replied.
const UNNAMED: &str = "unnamed";

/// A topology as it should be.
#[derive(Debug)]
pub(super) struct Model {
    options: Rc<Options>,
    known: TopologyDescription,
}

impl Model {
    /// Begins with what a log reports; `replies` are the last ones, which say more than that.
    ///
    /// Returns `None` if it cannot have come about: by no replies to hello, that is.
    pub(super) fn reported(
        shape: &Shape,
        set_name: Option<&str>,
        replies: &BTreeMap<ServerAddress, RawDocumentBuf>,
    ) -> Option<Self> {
        let servers = shape.servers.as_ref()?;
        let set_name = shape.set_name.as_deref().or(set_name);
        let mut builder = Options::builder().seeds(servers.keys().cloned());
        builder = match shape.topology_type {
            TopologyType::Single => builder.direct_connection(true),
            TopologyType::LoadBalanced => builder.load_balanced(true),
            _ => builder,
        };
        if is_replica_set(shape.topology_type) {
            builder = builder.replica_set(set_name.unwrap_or(UNNAMED));
        }
        let options = Rc::new(builder.build().ok()?);
        let mut known = transitions::initial(&options);
        // A primary comes last: it would remove who is not among its hosts, and all of these are.
        let primaries_last =
            |(_, server): &(_, &ServerShape)| server.server_type == ServerType::RsPrimary;
        let mut heard: Vec<_> = servers.iter().collect();
        heard.sort_by_key(primaries_last);
        for (address, server) in heard {
            let reply = invented(server, shape, set_name);
            let of_type = |reply: &&RawDocumentBuf| {
                described(address, reply).is_some_and(|it| it.server_type == server.server_type)
            };
            let reply = replies.get(address).filter(of_type).cloned().or(reply);
            if let Some(reply) = reply {
                known = transitions::after_reply(&known, &options, address, &reply).ok()?;
            }
        }
        let model = Self { options, known };
        model.agrees_with(shape).then_some(model)
    }

    /// Returns what is known, as a log would report it.
    pub(super) fn shape(&self) -> Shape {
        Shape::of(&self.known)
    }

    /// Lists the servers.
    pub(super) fn addresses(&self) -> impl Iterator<Item = &ServerAddress> {
        self.known.servers().iter().map(|server| &server.address)
    }

    /// Returns whether a log that reports `shape` says the same, as far as it says anything.
    pub(super) fn agrees_with(&self, shape: &Shape) -> bool {
        let (name, stated) = (self.known.set_name.as_deref(), shape.set_name.as_deref());
        let types = || self.known.servers().iter().map(|it| (&it.address, it.server_type));
        self.known.topology_type == shape.topology_type
            && !matches!((name, stated), (Some(name), Some(stated)) if name != stated)
            && (shape.servers.is_none() || types().eq(shape.types()))
    }

    /// Returns the model after a heartbeat; where the log has no reply, it is taken from what the
    /// log `reports` of the server.
    pub(super) fn after(&self, address: &ServerAddress, found: &Found, reports: &Shape) -> Self {
        let known = match found {
            Found::Failure(detail) => self.failed(address, Cause::Io, detail),
            Found::Reply(reply) => {
                match transitions::after_reply(&self.known, &self.options, address, reply) {
                    Ok(known) => known,
                    Err(error) => self.failed(address, Cause::Malformed, &error.to_string()),
                }
            }
            Found::UnseenReply => return self.after_unseen(address, reports),
        };
        self.with(known)
    }

    fn after_unseen(&self, address: &ServerAddress, reports: &Shape) -> Self {
        let server = reports.servers.as_ref().and_then(|servers| servers.get(address));
        let known = match server {
            Some(server) => {
                let set_name = self.known.set_name.as_deref();
                let reply = invented(server, reports, set_name);
                let known = reply.and_then(|reply| {
                    transitions::after_reply(&self.known, &self.options, address, &reply).ok()
                });
                known.unwrap_or_else(|| self.failed(address, Cause::Io, "it is of no use"))
            }
            // It had to leave, for what it has said.
            None => {
                let removed = std::slice::from_ref(address);
                transitions::after_rescan(&self.known, &self.options, &[], removed)
            }
        };
        self.with(known)
    }

    /// Returns the model after an operation on a server has failed.
    pub(super) fn after_error(&self, address: &ServerAddress) -> Self {
        self.with(self.failed(address, Cause::Io, "an operation has failed"))
    }

    /// Returns the model after DNS has named other hosts.
    pub(super) fn after_rescan(&self, added: &[ServerAddress], removed: &[ServerAddress]) -> Self {
        self.with(transitions::after_rescan(&self.known, &self.options, added, removed))
    }

    /// Returns whether a server is Unknown because it was taken for a stale primary.
    pub(super) fn holds_for_stale(&self, address: &ServerAddress) -> bool {
        let error = self.known.server(address).and_then(|server| server.error.as_ref());
        error.is_some_and(|error| error.cause == Cause::StalePrimary)
    }

    fn failed(&self, address: &ServerAddress, cause: Cause, detail: &str) -> TopologyDescription {
        let failure = Failure::new(Stage::Hello, cause, detail);
        transitions::after_failure(&self.known, &self.options, address, failure)
    }

    fn with(&self, known: TopologyDescription) -> Self {
        Self { options: Rc::clone(&self.options), known }
    }
}

const fn is_replica_set(topology_type: TopologyType) -> bool {
    matches!(topology_type, TopologyType::ReplicaSetNoPrimary | TopologyType::ReplicaSetWithPrimary)
}

/// Describes the server that has sent this reply; `None` if it is malformed.
pub(super) fn described(
    address: &ServerAddress,
    reply: &RawDocumentBuf,
) -> Option<ServerDescription> {
    let options = Options::builder().seeds([address.clone()]).direct_connection(true).build();
    let options = options.ok()?;
    let known = transitions::after_reply(&transitions::initial(&options), &options, address, reply);
    Some(ServerDescription::clone(known.ok()?.server(address)?))
}

/// Makes up a reply from which the server would be described as it is; `None` of one that is
/// Unknown.
fn invented(
    server: &ServerShape,
    topology: &Shape,
    set_name: Option<&str>,
) -> Option<RawDocumentBuf> {
    let hosts: Vec<String> = topology.types().map(|(address, _)| address.to_string()).collect();
    let mut reply = Map::new();
    for (name, value) in [
        ("minWireVersion", json!(0)),
        ("maxWireVersion", json!(CLIENT_MAX_WIRE_VERSION)),
        ("setName", json!(topology.set_name.as_deref().or(set_name).unwrap_or(UNNAMED))),
        ("hosts", json!(hosts)),
    ] {
        reply.insert(name.to_owned(), value);
    }
    let stated = server.details.iter().filter(|(_, value)| !value.is_null());
    reply.extend(stated.map(|(name, value)| (name.clone(), value.clone())));
    reply.insert("ok".to_owned(), json!(1));
    let flag = match server.server_type {
        ServerType::RsPrimary => ("isWritablePrimary", json!(true)),
        ServerType::RsSecondary => ("secondary", json!(true)),
        ServerType::RsArbiter => ("arbiterOnly", json!(true)),
        ServerType::RsOther => ("hidden", json!(true)),
        ServerType::RsGhost => ("isreplicaset", json!(true)),
        ServerType::Mongos => ("msg", json!("isdbgrid")),
        ServerType::Standalone => ("setName", Value::Null),
        _ => return None,
    };
    reply.insert(flag.0.to_owned(), flag.1);
    hello(&reply)
}
