//! Servers for tests: real ones, and the embedded deployment where it takes mongos.

use std::any::Any;
use std::net::SocketAddr;
use std::time::Duration;

use sdam_cluster::{EmbeddedCluster, EmbeddedOptions, ServerVersion};
use sdam_core::auth::MIN_ITERATIONS;

use super::deployment::Deployment;
use super::simulated;
use crate::adapter::world;
use crate::forwarder::Forwarder;
use crate::mongod::{Binary, Config, HarnessError, Options, ReplicaSet, Server, User};
use crate::unified::format::{File, Topology};

/// The user of servers that demand a login, and the password.
const USER: &str = "sdam";

/// The mechanism of logins by tokens, and the token that servers with it take.
const OIDC: &str = "MONGODB-OIDC";
pub(super) const TOKEN: &str = "a-token-for-tests";

/// The parameter of servers that accept version 2 of the API.
const API_VERSION_2: &str = "acceptApiVersion2";

/// The kind of a deployment that tests are played on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A real server of its own.
    Single(Binary),
    /// The same, which demands a login.
    SingleWithAuth(Binary),
    /// A real server of its own that accepts version 2 of the API, which servers know for tests
    /// only: for the files that ask for that.
    SingleWithApiVersion2(Binary),
    /// A real replica set of so many members.
    Set(Binary, usize),
    /// One of one member, which demands a login: for the files that ask for that.
    SetWithAuth(Binary),
    /// An embedded server of its own that imitates a version.
    Standalone(ServerVersion),
    /// Two embedded mongos that imitate a version.
    Sharded(ServerVersion),
    /// An embedded mongos that imitates a version, demands a login, and takes tokens: for the files
    /// that are about these.
    ShardedWithTokens(ServerVersion),
    /// Two behind load balancers: one that leads to both, and one for each.
    LoadBalanced(ServerVersion),
    /// A replica set in virtual time, a new one for each test.
    Simulated(ServerVersion),
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
        let imitated = |version: ServerVersion, what: &str| {
            let (major, minor) = version.number();
            format!("{major}.{minor} embedded {what}")
        };
        match self {
            Self::Single(binary) => of(binary, "single"),
            Self::SingleWithAuth(binary) => of(binary, "single, auth"),
            Self::SingleWithApiVersion2(binary) => of(binary, &format!("single, {API_VERSION_2}")),
            Self::Set(binary, members) => of(binary, &format!("set of {members}")),
            Self::SetWithAuth(binary) => of(binary, "set of 1, auth"),
            Self::Standalone(version) => imitated(*version, "single"),
            Self::Sharded(version) => imitated(*version, "sharded"),
            Self::ShardedWithTokens(version) => imitated(*version, "sharded, OIDC"),
            Self::LoadBalanced(version) => imitated(*version, "load-balanced"),
            Self::Simulated(version) => imitated(*version, "set of 3"),
        }
    }

    /// Returns whether a file is played on it: on a server with parameters of its own, and on a set
    /// with logins, only one that asks for them.
    pub fn wants(&self, file: &File) -> bool {
        let of_tests = file.tests.iter().flat_map(|test| &test.requirements);
        let mut requirements = file.requirements.iter().chain(of_tests);
        match self {
            Self::SingleWithApiVersion2(_) => {
                requirements.any(|it| it.server_parameters.contains_key(API_VERSION_2))
            }
            Self::ShardedWithTokens(_) => {
                requirements.any(|it| it.auth_mechanism.as_deref() == Some(OIDC))
            }
            Self::SetWithAuth(_) => requirements.any(|it| it.auth == Some(true)),
            _ => true,
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
        Kind::SingleWithApiVersion2(binary) => {
            let mut config = Config::default();
            config.arguments.extend(["--setParameter".to_owned(), format!("{API_VERSION_2}=1")]);
            Ok(single(name, Server::start(binary, config)?, None))
        }
        Kind::Set(binary, members) => {
            Ok(set(name, ReplicaSet::start(binary, *members, &calm)?, None))
        }
        Kind::SetWithAuth(binary) => {
            let mut members = ReplicaSet::start(binary, 1, &calm)?;
            members.enable_auth(&[User::new(USER, USER)])?;
            Ok(set(name, members, Some((USER.to_owned(), USER.to_owned()))))
        }
        Kind::Standalone(version) => {
            let options = EmbeddedOptions::standalone().with_keeps_data(true);
            let options = options.with_version(*version);
            let cluster = world().block_on(EmbeddedCluster::start(options))?;
            let host = cluster.addresses()[0].to_string();
            let alone = (Topology::Single, vec![host]);
            Ok(Deployment { is_embedded: true, ..deployment(name, alone, cluster) })
        }
        Kind::Sharded(version) => {
            let options = EmbeddedOptions::sharded(2).with_keeps_data(true).with_version(*version);
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
                compressor: None,
                _servers: Box::new(cluster),
            })
        }
        Kind::ShardedWithTokens(version) => with_tokens(name, *version),
        Kind::LoadBalanced(version) => load_balanced(name, *version),
        Kind::Simulated(_) => Ok(simulated::deployment(name)),
    }
}

fn single(name: String, server: Server, login: Option<(String, String)>) -> Deployment {
    let alone = (Topology::Single, vec![server.address().to_string()]);
    Deployment { login, ..deployment(name, alone, server) }
}

fn set(name: String, set: ReplicaSet, login: Option<(String, String)>) -> Deployment {
    let hosts = set.seed_list().iter().map(ToString::to_string).collect();
    let options = vec![("replicaSet".to_owned(), set.set_name().to_owned())];
    Deployment { login, options, ..deployment(name, (Topology::ReplicaSet, hosts), set) }
}

/// Describes servers without mongos, which are to be connected to without a login.
fn deployment(
    name: String,
    (topology, hosts): (Topology, Vec<String>),
    servers: impl Any + Send + Sync,
) -> Deployment {
    Deployment {
        name,
        topology,
        is_embedded: false,
        one_host: hosts[0].clone(),
        hosts,
        mongos: Vec::new(),
        login: None,
        options: Vec::new(),
        compressor: None,
        _servers: Box::new(servers),
    }
}

/// Starts a mongos that demands a login, and takes tokens.
fn with_tokens(name: String, version: ServerVersion) -> Result<Deployment, StartError> {
    let user = sdam_cluster::User::new(USER, USER).with_iterations(MIN_ITERATIONS);
    let options = EmbeddedOptions::sharded(1).with_keeps_data(true).with_version(version);
    let options = options.with_users(vec![user]).with_oidc_tokens(vec![TOKEN.into()]);
    let cluster = world().block_on(EmbeddedCluster::start(options))?;
    let host = cluster.addresses()[0].to_string();
    Ok(Deployment {
        name,
        topology: Topology::Sharded,
        is_embedded: true,
        one_host: host.clone(),
        mongos: vec![host.clone()],
        hosts: vec![host],
        login: Some((USER.to_owned(), USER.to_owned())),
        options: Vec::new(),
        compressor: None,
        _servers: Box::new(cluster),
    })
}

fn load_balanced(name: String, version: ServerVersion) -> Result<Deployment, StartError> {
    let options = EmbeddedOptions::load_balanced(2).with_keeps_data(true).with_version(version);
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
        compressor: None,
        _servers: Box::new((cluster, both, each)),
    })
}
