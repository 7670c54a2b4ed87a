//! Servers for tests: real ones, and the embedded deployment where it takes mongos.

use std::net::SocketAddr;
use std::time::Duration;

use sdam_cluster::{EmbeddedCluster, EmbeddedOptions};

use super::deployment::Deployment;
use crate::adapter::world;
use crate::forwarder::Forwarder;
use crate::mongod::{Binary, Config, HarnessError, Options, ReplicaSet, Server, User};
use crate::unified::format::Topology;

/// The user of servers that demand a login, and the password.
const USER: &str = "sdam";

/// The kind of a deployment that tests are played on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A real server of its own.
    Single(Binary),
    /// The same, which demands a login.
    SingleWithAuth(Binary),
    /// A real replica set of so many members.
    Set(Binary, usize),
    /// Two embedded mongos.
    Sharded,
    /// Two embedded mongos behind load balancers: one that leads to both, and one for each.
    LoadBalanced,
}

/// The reason why a deployment does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A real server does not start.
    #[error(transparent)]
    Mongod(#[from] HarnessError),
    /// The embedded deployment does not start.
    #[error("the embedded deployment does not start: {0}")]
    Embedded(std::io::Error),
}

impl From<std::io::Error> for StartError {
    fn from(error: std::io::Error) -> Self {
        Self::Embedded(error)
    }
}

impl Kind {
    /// Returns the name in reports.
    pub fn name(&self) -> String {
        let of = |binary: &Binary, what: &str| {
            let version = binary.version();
            format!("{}.{} {what}", version.major, version.minor)
        };
        match self {
            Self::Single(binary) => of(binary, "single"),
            Self::SingleWithAuth(binary) => of(binary, "single, auth"),
            Self::Set(binary, members) => of(binary, &format!("set of {members}")),
            Self::Sharded => "embedded sharded".to_owned(),
            Self::LoadBalanced => "embedded load-balanced".to_owned(),
        }
    }
}

/// Starts a deployment.
///
/// # Errors
///
/// Says which server does not start.
pub fn start(kind: &Kind) -> Result<Deployment, StartError> {
    let name = kind.name();
    // No test elects a primary, and members that miss each other on a busy machine are not to.
    let calm = Options { election_timeout: Duration::from_secs(30), ..Options::default() };
    match kind {
        Kind::Single(binary) => {
            let server = Server::start(binary, Config::default())?;
            Ok(single(name, server, None))
        }
        Kind::SingleWithAuth(binary) => {
            let mut server = Server::start(binary, Config::default())?;
            server.enable_auth(&[User::new(USER, USER)])?;
            Ok(single(name, server, Some((USER.to_owned(), USER.to_owned()))))
        }
        Kind::Set(binary, members) => {
            let set = ReplicaSet::start(binary, *members, &calm)?;
            let hosts: Vec<String> = set.seed_list().iter().map(ToString::to_string).collect();
            Ok(Deployment {
                name,
                topology: Topology::ReplicaSet,
                is_embedded: false,
                one_host: hosts[0].clone(),
                hosts,
                mongos: Vec::new(),
                login: None,
                options: vec![("replicaSet".to_owned(), set.set_name().to_owned())],
                _servers: Box::new(set),
            })
        }
        Kind::Sharded => {
            let options = EmbeddedOptions::sharded(2).with_keeps_data(true);
            let cluster = world().block_on(EmbeddedCluster::start(options))?;
            let hosts: Vec<String> = cluster.addresses().iter().map(ToString::to_string).collect();
            Ok(Deployment {
                name,
                topology: Topology::Sharded,
                is_embedded: true,
                one_host: hosts[0].clone(),
                mongos: hosts.clone(),
                hosts,
                login: None,
                options: Vec::new(),
                _servers: Box::new(cluster),
            })
        }
        Kind::LoadBalanced => load_balanced(name),
    }
}

fn single(name: String, server: Server, login: Option<(String, String)>) -> Deployment {
    let host = server.address().to_string();
    Deployment {
        name,
        topology: Topology::Single,
        is_embedded: false,
        one_host: host.clone(),
        hosts: vec![host],
        mongos: Vec::new(),
        login,
        options: Vec::new(),
        _servers: Box::new(server),
    }
}

fn load_balanced(name: String) -> Result<Deployment, StartError> {
    let options = EmbeddedOptions::load_balanced(2).with_keeps_data(true);
    let cluster = world().block_on(EmbeddedCluster::start(options))?;
    let _entered = world().enter();
    let balancer = |targets: &[SocketAddr]| Forwarder::start(targets.to_vec());
    let both = balancer(cluster.addresses())?;
    let each = cluster.addresses().chunks(1).map(balancer).collect::<Result<Vec<_>, _>>()?;
    let mongos: Vec<String> = each.iter().map(|it| it.address().to_string()).collect();
    Ok(Deployment {
        name,
        topology: Topology::LoadBalanced,
        is_embedded: true,
        hosts: vec![both.address().to_string()],
        one_host: mongos[0].clone(),
        mongos,
        login: None,
        options: vec![("loadBalanced".to_owned(), "true".to_owned())],
        _servers: Box::new((cluster, both, each)),
    })
}
