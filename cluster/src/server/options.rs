//! The description of an embedded deployment, and how much it holds for slow clients.

use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use rustix::process::{Resource, getrlimit};
use sdam_core::config::Secret;

use super::listening::server_address;
use super::tls::TlsIdentity;
use crate::options::{
    ClusterOptions, Deployment, MAX_CONNECTIONS, MAX_MEMBERS, MAX_OPLOG_ENTRIES, ServerVersion,
    User, setters,
};

/// The number of bytes that a connection holds for a client that does not read them; more close it.
///
/// It is as much as a message may have, as the members say in hello.
pub const MAX_PENDING_OUTPUT: usize = 48_000_000;

/// The number of bytes that all connections together hold for clients that do not read them; one
/// that then has more than [`PENDING_SHARE`] is closed.
pub const MAX_PENDING_IN_ALL: usize = 128 << 20;

/// The number of bytes that each connection may hold in any case.
pub const PENDING_SHARE: usize = 1 << 20;

/// The number of connections that each member takes at least, however few files may be open.
const MIN_CONNECTIONS: usize = 16;

/// The description of an embedded deployment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EmbeddedOptions {
    /// The kind of the deployment, a replica set by default.
    pub deployment: Deployment,
    /// The name of the replica set, `demo` by default.
    pub set_name: String,
    /// The number of members that there are, three by default.
    pub members: usize,
    /// The server version that they imitate.
    pub version: ServerVersion,
    /// True if the members keep what is written, as [`ClusterOptions::keeps_data`] says.
    pub keeps_data: bool,
    /// The number of entries that the log of a member keeps, as
    /// [`ClusterOptions::oplog_entries`] says.
    pub oplog_entries: usize,
    /// The users; none by default, and then no login is needed.
    pub users: Vec<User>,
    /// The tokens by which MONGODB-OIDC logs in, as [`ClusterOptions::oidc_tokens`] says.
    pub oidc_tokens: Vec<Secret>,
    /// The users who log in with GSSAPI, as [`ClusterOptions::gssapi_users`] says.
    pub gssapi_users: Vec<String>,
    /// The certificate of members that speak TLS, which they do not by default.
    pub tls: Option<TlsIdentity>,
    /// Determines who wins the elections.
    pub seed: u64,
    /// The time from the loss of a primary until an election begins, 2 s by default.
    pub election_timeout: Duration,
    /// The port of the first member, those of the others following it; free ones by default, and
    /// if it is 0.
    pub first_port: Option<u16>,
}

impl Default for EmbeddedOptions {
    fn default() -> Self {
        Self {
            deployment: Deployment::default(),
            set_name: "demo".to_owned(),
            members: 3,
            version: ServerVersion::default(),
            keeps_data: false,
            oplog_entries: MAX_OPLOG_ENTRIES,
            users: Vec::new(),
            oidc_tokens: Vec::new(),
            gssapi_users: Vec::new(),
            tls: None,
            seed: 0,
            election_timeout: Duration::from_secs(2),
            first_port: None,
        }
    }
}

impl EmbeddedOptions {
    /// Describes so many mongos.
    pub fn sharded(count: usize) -> Self {
        Self { deployment: Deployment::Sharded, members: count, ..Self::default() }
    }

    /// Describes so many mongos that know of a load balancer, which anything can be that forwards
    /// streams to all their addresses.
    pub fn load_balanced(count: usize) -> Self {
        Self { deployment: Deployment::LoadBalanced, members: count, ..Self::default() }
    }

    /// Describes a server of its own, which is no member of a replica set.
    pub fn standalone() -> Self {
        Self { deployment: Deployment::Standalone, members: 1, ..Self::default() }
    }

    /// Replaces [`set_name`](Self::set_name).
    #[must_use]
    pub fn with_set_name(mut self, set_name: impl Into<String>) -> Self {
        self.set_name = set_name.into();
        self
    }

    setters! {
        with_deployment: deployment Deployment,
        with_members: members usize,
        with_version: version ServerVersion,
        with_keeps_data: keeps_data bool,
        with_oplog_entries: oplog_entries usize,
        with_users: users Vec<User>,
        with_oidc_tokens: oidc_tokens Vec<Secret>,
        with_gssapi_users: gssapi_users Vec<String>,
        with_tls: tls Option<TlsIdentity>,
        with_seed: seed u64,
        with_election_timeout: election_timeout Duration,
        with_first_port: first_port Option<u16>,
    }
}

/// Returns how many connections each of so many members may have, such that they all find a file
/// descriptor: one share is for whatever else the process does, and a replica set may grow.
pub(crate) fn connections_each(members: usize, files: Option<u64>) -> usize {
    let files = files.map_or(usize::MAX, |it| usize::try_from(it).unwrap_or(usize::MAX));
    let shares = members.max(MAX_MEMBERS) + 1;
    (files / shares).clamp(MIN_CONNECTIONS, MAX_CONNECTIONS)
}

/// Describes the deployment to the model.
pub(super) fn cluster_options(
    options: &EmbeddedOptions,
    addresses: &[SocketAddr],
) -> ClusterOptions {
    let addresses = addresses.iter().copied().map(server_address);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let millis = now.unwrap_or_default().as_millis();
    ClusterOptions {
        deployment: options.deployment,
        version: options.version,
        keeps_data: options.keeps_data,
        oplog_entries: options.oplog_entries,
        users: options.users.clone(),
        oidc_tokens: options.oidc_tokens.clone(),
        gssapi_users: options.gssapi_users.clone(),
        seed: options.seed,
        election_timeout: options.election_timeout,
        max_connections: connections_each(options.members, getrlimit(Resource::Nofile).current),
        wall_epoch_millis: i64::try_from(millis).unwrap_or(i64::MAX),
        ..ClusterOptions::new(options.set_name.as_str(), addresses)
    }
}
