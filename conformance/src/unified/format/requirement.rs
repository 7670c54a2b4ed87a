//! Requirements on the deployment (Unified Test Format, "runOnRequirement").

use bson::{Bson, Document};

use super::error::FormatError;
use super::object::Node;
use super::version::version;
use crate::mongod::Version;

/// A set of requirements, all of which must be met.
#[derive(Clone, Debug)]
pub struct Requirement {
    /// The oldest server that will do.
    pub min_server_version: Option<Version>,
    /// The newest server that will do.
    pub max_server_version: Option<Version>,
    /// The deployments that will do, if it matters.
    pub topologies: Option<Vec<Topology>>,
    /// The relation to deployments without servers of their own, if it matters.
    pub serverless: Option<Serverless>,
    /// Values that parameters of the server must have.
    pub server_parameters: Document,
    /// True if authentication must be enabled, false if it must not, if it matters.
    pub auth: Option<bool>,
    /// The mechanism that the server must support.
    pub auth_mechanism: Option<String>,
    /// The ability of the client to encrypt fields, if it matters.
    pub csfle: Option<Csfle>,
}

/// The kind of a deployment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topology {
    /// A server of its own.
    Single,
    /// A replica set.
    ReplicaSet,
    /// A sharded cluster.
    Sharded,
    /// A sharded cluster behind a load balancer.
    LoadBalanced,
    /// A sharded cluster whose shards are replica sets.
    ShardedReplicaSet,
}

/// The relation to deployments without servers of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Serverless {
    /// It has to.
    Require,
    /// It must not.
    Forbid,
    /// It does not matter.
    Allow,
}

/// The ability of the client to encrypt fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Csfle {
    /// It must, with this version of the library at least if one is given.
    Required(Option<Version>),
    /// It must not.
    Forbidden,
}

impl Topology {
    /// The kinds and their names.
    const NAMES: &[(&str, Self)] = &[
        ("single", Self::Single),
        ("replicaset", Self::ReplicaSet),
        ("sharded", Self::Sharded),
        ("load-balanced", Self::LoadBalanced),
        ("sharded-replicaset", Self::ShardedReplicaSet),
    ];
}

const SERVERLESS: &[(&str, Serverless)] = &[
    ("require", Serverless::Require),
    ("forbid", Serverless::Forbid),
    ("allow", Serverless::Allow),
];

pub(super) fn requirement(node: Node) -> Result<Requirement, FormatError> {
    let mut object = node.object()?;
    if object.is_empty() {
        return Err(object.broken("must have a field at least"));
    }
    let topologies = |node: Node| node.filled(|node| node.one_of(Topology::NAMES));
    let parameters = object.optional("serverParameters", Node::document)?;
    let requirement = Requirement {
        min_server_version: object.optional("minServerVersion", version)?,
        max_server_version: object.optional("maxServerVersion", version)?,
        topologies: object.optional("topologies", topologies)?,
        serverless: object.optional("serverless", |node| node.one_of(SERVERLESS))?,
        server_parameters: parameters.unwrap_or_default(),
        auth: object.optional("auth", Node::boolean)?,
        auth_mechanism: object.optional("authMechanism", Node::string)?,
        csfle: object.optional("csfle", csfle)?,
    };
    object.finish()?;
    Ok(requirement)
}

fn csfle(node: Node) -> Result<Csfle, FormatError> {
    let (place, value) = (node.place().to_owned(), node.any()?);
    match value {
        Bson::Boolean(true) => Ok(Csfle::Required(None)),
        Bson::Boolean(false) => Ok(Csfle::Forbidden),
        other => {
            let mut object = Node::at(place, other).object()?;
            let least = object.optional("minLibmongocryptVersion", version)?;
            object.finish()?;
            Ok(Csfle::Required(least))
        }
    }
}
