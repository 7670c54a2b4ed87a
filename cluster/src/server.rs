//! The model on loopback ports: one task turns sockets into inputs and actions into bytes.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use rustix::process::{Resource, getrlimit};
use sdam_core::config::Secret;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use super::authentication::User;
use super::engine::{Command, Engine};
use super::listening::{listener, server_address};
use super::model::{Cluster, Input};
use super::options::{
    ClusterOptions, Deployment, MAX_CONNECTIONS, MAX_MEMBERS, MemberId, MemberOptions,
    ServerVersion,
};
use super::tls::TlsIdentity;

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

/// The number of commands that may wait for the deployment's task.
const COMMANDS: usize = 16;

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
    /// The users; none by default, and then no login is needed.
    pub users: Vec<User>,
    /// The tokens by which MONGODB-OIDC logs in, as [`ClusterOptions::oidc_tokens`] says.
    pub oidc_tokens: Vec<Secret>,
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
            users: Vec::new(),
            oidc_tokens: Vec::new(),
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

    /// Replaces [`deployment`](Self::deployment).
    #[must_use]
    pub fn with_deployment(mut self, deployment: Deployment) -> Self {
        self.deployment = deployment;
        self
    }

    /// Replaces [`set_name`](Self::set_name).
    #[must_use]
    pub fn with_set_name(mut self, set_name: impl Into<String>) -> Self {
        self.set_name = set_name.into();
        self
    }

    /// Replaces [`members`](Self::members).
    #[must_use]
    pub fn with_members(mut self, members: usize) -> Self {
        self.members = members;
        self
    }

    /// Replaces [`version`](Self::version).
    #[must_use]
    pub fn with_version(mut self, version: ServerVersion) -> Self {
        self.version = version;
        self
    }

    /// Replaces [`keeps_data`](Self::keeps_data).
    #[must_use]
    pub fn with_keeps_data(mut self, keeps_data: bool) -> Self {
        self.keeps_data = keeps_data;
        self
    }

    /// Replaces [`users`](Self::users).
    #[must_use]
    pub fn with_users(mut self, users: Vec<User>) -> Self {
        self.users = users;
        self
    }

    /// Replaces [`oidc_tokens`](Self::oidc_tokens).
    #[must_use]
    pub fn with_oidc_tokens(mut self, oidc_tokens: Vec<Secret>) -> Self {
        self.oidc_tokens = oidc_tokens;
        self
    }

    /// Replaces [`tls`](Self::tls).
    #[must_use]
    pub fn with_tls(mut self, tls: Option<TlsIdentity>) -> Self {
        self.tls = tls;
        self
    }

    /// Replaces [`seed`](Self::seed).
    #[must_use]
    pub fn with_seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Replaces [`election_timeout`](Self::election_timeout).
    #[must_use]
    pub fn with_election_timeout(mut self, election_timeout: Duration) -> Self {
        self.election_timeout = election_timeout;
        self
    }

    /// Replaces [`first_port`](Self::first_port).
    #[must_use]
    pub fn with_first_port(mut self, first_port: Option<u16>) -> Self {
        self.first_port = first_port;
        self
    }
}

/// A deployment inside this process, on loopback ports.
///
/// Dropping it ends its task, which closes all its sockets.
#[derive(Debug)]
pub struct EmbeddedCluster {
    /// The name of the replica set, if it is one.
    replica_set: Option<String>,
    has_tls: bool,
    addresses: Vec<SocketAddr>,
    commands: mpsc::Sender<Command>,
    primary: watch::Receiver<Option<MemberId>>,
    task: JoinHandle<()>,
}

impl EmbeddedCluster {
    /// Binds a loopback port for each member and starts them all; they accept connections
    /// when this returns, and elect a primary shortly after.
    ///
    /// # Errors
    ///
    /// Fails if a port cannot be bound, and with [`io::ErrorKind::InvalidInput`] if an option is
    /// out of its range.
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime with I/O and time enabled.
    pub async fn start(options: EmbeddedOptions) -> io::Result<Self> {
        Self::start_with(options, |_, _| {}).await
    }

    /// As [`start`](Self::start), with members that `adjust` describes further: their tags and
    /// priorities, and which of them are hidden or arbiters. What it does to an address is undone.
    ///
    /// # Errors
    ///
    /// As [`start`](Self::start).
    ///
    /// # Panics
    ///
    /// As [`start`](Self::start).
    pub async fn start_with(
        options: EmbeddedOptions,
        mut adjust: impl FnMut(MemberId, &mut MemberOptions),
    ) -> io::Result<Self> {
        // One port beyond the limit is enough for the model to refuse the options.
        let count = options.members.min(options.deployment.max_members() + 1);
        let listeners: Vec<TcpListener> = (0..count)
            .map(|index| listener(options.first_port, index))
            .collect::<Result<_, _>>()?;
        let addresses: Vec<SocketAddr> =
            listeners.iter().map(TcpListener::local_addr).collect::<Result<_, _>>()?;
        let mut described = cluster_options(&options, &addresses);
        for (index, member) in described.members.iter_mut().enumerate() {
            adjusted(member, |member| adjust(MemberId(index), member));
        }
        let model = Cluster::new(described)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let (commands, received) = mpsc::channel(COMMANDS);
        let (publish, primary) = watch::channel(None);
        let tls = options.tls.as_ref().map(TlsIdentity::acceptor);
        let engine = Engine::new(model, tls, listeners, addresses.clone(), publish);
        Ok(Self {
            replica_set: options.deployment.has_set().then_some(options.set_name),
            has_tls: options.tls.is_some(),
            addresses,
            commands,
            primary,
            task: tokio::spawn(engine.run(received)),
        })
    }

    /// Returns the connection string that names all members, without a user or a certificate; of
    /// mongos behind a load balancer, too, it leads to the mongos themselves.
    pub fn uri(&self) -> String {
        let hosts: Vec<String> = self.addresses.iter().map(ToString::to_string).collect();
        let replica_set =
            self.replica_set.as_ref().map(|name| format!("replicaSet={}", encoded(name)));
        let tls = self.has_tls.then(|| "tls=true".to_owned());
        let options: Vec<String> = replica_set.into_iter().chain(tls).collect();
        let mark = if options.is_empty() { "" } else { "?" };
        format!("mongodb://{}/{mark}{}", hosts.join(","), options.join("&"))
    }

    /// Returns the addresses of the members of the beginning, in the order of their ids.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Returns the primary, if there is one at this moment.
    pub fn primary(&self) -> Option<MemberId> {
        *self.primary.borrow()
    }

    /// Waits until there is a primary, and returns it; mongos never have one.
    ///
    /// # Errors
    ///
    /// Fails if the deployment has ended.
    pub async fn elected(&self) -> io::Result<MemberId> {
        let mut primary = self.primary.clone();
        let elected = primary.wait_for(Option::is_some).await.map_err(|_| ended())?;
        elected.ok_or_else(ended)
    }

    /// Kills a member: its connections close, and its port refuses new ones.
    ///
    /// A member that is down stays down.
    ///
    /// # Errors
    ///
    /// Fails if the deployment has ended.
    pub async fn kill(&self, member: MemberId) -> io::Result<()> {
        self.command(Input::Kill { member }).await
    }

    /// Asks a member to end: it steps down, answers its clients for one and a half election
    /// timeouts that it is shutting down, and then dies as if it were killed. Before 5.0 it dies at
    /// once.
    ///
    /// This returns when it has begun; a member that is down stays down.
    ///
    /// # Errors
    ///
    /// Fails if the deployment has ended.
    pub async fn shutdown(&self, member: MemberId) -> io::Result<()> {
        self.command(Input::Shutdown { member }).await
    }

    /// Starts a killed member again, at its old address.
    ///
    /// A member that is up is left alone.
    ///
    /// # Errors
    ///
    /// Fails if somebody else has taken the port meanwhile, and the member stays down; or if the
    /// deployment has ended.
    pub async fn restart(&self, member: MemberId) -> io::Result<()> {
        self.command(Input::Start { member }).await
    }

    /// Makes the primary a secondary; another member is elected shortly after.
    ///
    /// A member that is not primary is left alone.
    ///
    /// # Errors
    ///
    /// Fails if the deployment has ended.
    pub async fn step_down(&self, member: MemberId) -> io::Result<()> {
        self.command(Input::StepDown { member }).await
    }

    /// Freezes a member: it accepts connections and reads, but does not answer; TLS is not even
    /// opened.
    ///
    /// Elections do not notice; a member that is down is left alone.
    ///
    /// # Errors
    ///
    /// Fails if the deployment has ended.
    pub async fn freeze(&self, member: MemberId) -> io::Result<()> {
        self.command(Input::Freeze { member }).await
    }

    /// Has a frozen member answer again, also what it was asked meanwhile.
    ///
    /// # Errors
    ///
    /// Fails if the deployment has ended.
    pub async fn thaw(&self, member: MemberId) -> io::Result<()> {
        self.command(Input::Thaw { member }).await
    }

    pub(super) async fn command(&self, input: Input<'static>) -> io::Result<()> {
        self.ask(|done| Command::Input { input, done }).await?
    }

    /// Gives the task a command and waits for what it says to it.
    pub(super) async fn ask<T>(
        &self,
        command: impl FnOnce(oneshot::Sender<T>) -> Command,
    ) -> io::Result<T> {
        let (done, outcome) = oneshot::channel();
        self.commands.send(command(done)).await.map_err(|_| ended())?;
        outcome.await.map_err(|_| ended())
    }
}

impl Drop for EmbeddedCluster {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Describes a member further, but for its address.
pub(super) fn adjusted(member: &mut MemberOptions, adjust: impl FnOnce(&mut MemberOptions)) {
    let address = member.address.clone();
    adjust(member);
    member.address = address;
}

/// Returns how many connections each of so many members may have, such that they all find a file
/// descriptor: one share is for whatever else the process does, and a replica set may grow.
pub(super) fn connections_each(members: usize, files: Option<u64>) -> usize {
    let files = files.map_or(usize::MAX, |it| usize::try_from(it).unwrap_or(usize::MAX));
    let shares = members.max(MAX_MEMBERS) + 1;
    (files / shares).clamp(MIN_CONNECTIONS, MAX_CONNECTIONS)
}

/// Writes a value of a connection string, with `%` and two digits for each byte that might mean
/// something else there.
pub fn encoded(value: &str) -> String {
    let encode = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'.' | b'_' | b'~' => {
            char::from(byte).to_string()
        }
        other => format!("%{other:02X}"),
    };
    value.bytes().map(encode).collect()
}

fn cluster_options(options: &EmbeddedOptions, addresses: &[SocketAddr]) -> ClusterOptions {
    let addresses = addresses.iter().copied().map(server_address);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let millis = now.unwrap_or_default().as_millis();
    ClusterOptions {
        deployment: options.deployment,
        version: options.version,
        keeps_data: options.keeps_data,
        users: options.users.clone(),
        oidc_tokens: options.oidc_tokens.clone(),
        seed: options.seed,
        election_timeout: options.election_timeout,
        max_connections: connections_each(options.members, getrlimit(Resource::Nofile).current),
        wall_epoch_millis: i64::try_from(millis).unwrap_or(i64::MAX),
        ..ClusterOptions::new(options.set_name.as_str(), addresses)
    }
}

fn ended() -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, "the embedded deployment has ended")
}
