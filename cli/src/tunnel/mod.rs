//! `sdam tunnel`: a local address for each member of a deployment, by which clients of any kind use
//! all of it through one way.
//!
//! The map: `dialer` leads to the members, perhaps through `ssh`, of which `owner` says whether it
//! is who listens at its port; `local_addresses` says which local address a member has, `listening`
//! waits for clients there, and `session` is the connection of one of them. `news` is what is
//! printed, and `uri` what clients connect by.

mod dialer;
mod listening;
mod local_addresses;
mod news;
mod owner;
mod session;
mod ssh;
mod uri;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sdam_cluster::{TlsIdentity, TlsIdentityError};
use sdam_core::config::{AddressError, Options, ReadMode, ReadPreference, ServerAddress};
use sdam_core::description::{ServerDescription, ServerType, TopologyDescription, TopologyType};
use sdam_core::diagnosis::Verdict;
use sdam_core::selection::Criteria;
use sdam_host::Views;
use sdam_tokio::Topology;
use tokio::time::{Instant, timeout};

use self::dialer::Dialer;
use self::listening::{Clients, Tunnel};
use self::local_addresses::{LocalAddressError, LocalAddresses, Plan};
use self::news::{News, NewsReceiver, NewsSender};
use self::ssh::{Kept, Place, Ssh, SshError};
use self::uri::{ClientTls, connection_string};
use crate::duration::precise;
use crate::news::Report;
use crate::open_files;
use crate::preparation::{self, Observation, Preparation, PreparationError};
use crate::shutdown::{End, Shutdown};

/// Examples and exit codes.
const MORE: &str = "\
Examples:
  sdam tunnel --ssh bastion.example 'mongodb://db1.internal,db2.internal/?replicaSet=rs0'
  sdam tunnel --uri-file production.uri --port 27100
  sdam tunnel 'mongodb://db1.internal/?replicaSet=rs0' --map '*.internal=*.example.com'

Exit codes:
  0    --for is over, or it was stopped
  1    no server was found, or it cannot listen, or ssh fails
  2    the arguments or the connection string are invalid
  130  SIGINT came before any server was found (143: SIGTERM)";

/// Forwards clients of any kind to a deployment that cannot be reached from here directly.
///
/// Each member gets a local port, and the members call each other by these: a driver or a program
/// with a window sees the whole deployment, follows its failovers and reads from secondaries. The
/// connection string to use is printed first, and then a line for each event. The way to the
/// members is that of the connection string, with its TLS and its SOCKS5 proxy, or --ssh.
#[derive(Debug, clap::Args)]
#[command(after_long_help = MORE)]
pub(crate) struct Args {
    #[command(flatten)]
    observation: Observation,
    /// Go through this SSH server, as `ssh -D` does, with the ssh of this machine
    #[arg(long, value_name = "[USER@]HOST")]
    ssh: Option<String>,
    /// A configuration file for ssh, instead of its own
    #[arg(long, value_name = "FILE", requires = "ssh")]
    ssh_config: Option<PathBuf>,
    /// Listen at this address; by default 127.0.0.1, with --tls-passthrough 127.0.0.2 and further
    ///
    /// Anyone who reaches it reaches the deployment.
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<IpAddr>,
    /// The port of the first member, those of the others following it as far as they are free;
    /// free ones by default, and if it is 0
    #[arg(long, conflicts_with = "tls_passthrough")]
    port: Option<u16>,
    /// The name by which clients know this machine, if not by the address that they connect to
    #[arg(long, value_name = "HOST", conflicts_with = "tls_passthrough")]
    advertise: Option<String>,
    /// Speak TLS with clients, with the certificate and the key in this PEM file
    #[arg(long, value_name = "FILE", conflicts_with = "tls_passthrough")]
    tls_certificate: Option<PathBuf>,
    /// Leave TLS to the clients: nothing is decrypted, and no reply changed. Each host has an
    /// address of its own then, and what /etc/hosts needs for that is printed
    #[arg(long)]
    tls_passthrough: bool,
    /// Print one JSON object for each event, as TUNNEL.md describes them
    #[arg(long)]
    json: bool,
}

/// The reason why there is no tunnel, or no more.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TunnelError {
    /// It cannot begin.
    #[error(transparent)]
    Preparation(#[from] PreparationError),
    /// There is no way through ssh.
    #[error(transparent)]
    Ssh(#[from] SshError),
    /// Streams cannot be opened.
    #[error(transparent)]
    Dialer(#[from] sdam_host::ClientError),
    /// Clients know no such host.
    #[error("--advertise {host}: {error}")]
    Advertise {
        /// The name.
        host: String,
        /// The reason.
        error: AddressError,
    },
    /// There is no good certificate.
    #[error("--tls-certificate {}: {error}", path.display())]
    Certificate {
        /// The file.
        path: PathBuf,
        /// The reason.
        error: TlsIdentityError,
    },
    /// There are not enough addresses of that kind.
    #[error("--listen {0}: with --tls-passthrough each host needs an address, from an IPv4 one on")]
    NotIpv4(IpAddr),
    /// There is no TLS to pass on.
    #[error(
        "--tls-passthrough passes TLS on, and the connection string asks for none; write tls=true, \
         or leave --tls-passthrough out"
    )]
    NoTls,
    /// A member has no local address.
    #[error("no port for {member}: {error}")]
    LocalAddress {
        /// The member.
        member: ServerAddress,
        /// The reason.
        error: LocalAddressError,
    },
    /// No server is available.
    #[error("no server was found in {}: {}", precise(*limit), cause.sentence())]
    NothingFound {
        /// The time that it was looked for.
        limit: Duration,
        /// The likely cause.
        cause: Box<Verdict>,
    },
    /// No server is available where ssh leads to.
    #[error(
        "no server was found in {}: ssh reaches {host}, and none from there; check the hosts and \
         ports from there, and that it forwards connections (AllowTcpForwarding)",
        precise(*limit)
    )]
    NothingThroughSsh {
        /// The time that it was looked for.
        limit: Duration,
        /// The other end of ssh.
        host: String,
    },
    /// The time was up before ssh was there.
    #[error("ssh was not there in {}", precise(*.0))]
    NoSsh(Duration),
    /// Nothing more can be printed.
    #[error("cannot write: {0}")]
    Output(io::Error),
}

impl TunnelError {
    /// Returns 2 for what the user can write differently, else 1.
    pub(crate) const fn exit_code(&self) -> u8 {
        match self {
            Self::Preparation(error) => error.exit_code(),
            Self::Ssh(error) => error.exit_code(),
            Self::Dialer(_)
            | Self::Advertise { .. }
            | Self::Certificate { .. }
            | Self::NotIpv4(_)
            | Self::NoTls => 2,
            Self::LocalAddress { .. }
            | Self::NothingFound { .. }
            | Self::NothingThroughSsh { .. }
            | Self::NoSsh(_)
            | Self::Output(_) => 1,
        }
    }
}

impl Args {
    fn plan(&self) -> Result<Plan, TunnelError> {
        match (self.tls_passthrough, self.listen) {
            (false, address) => {
                let address = address.unwrap_or(Ipv4Addr::LOCALHOST.into());
                Ok(Plan::Ports { address, first: self.port })
            }
            (true, None) => Ok(Plan::Hosts(Ipv4Addr::new(127, 0, 0, 2))),
            (true, Some(IpAddr::V4(first))) => Ok(Plan::Hosts(first)),
            (true, Some(address)) => Err(TunnelError::NotIpv4(address)),
        }
    }

    fn clients(&self) -> Result<Clients, TunnelError> {
        let host = self.advertise.as_ref().map(|host| {
            // An IPv6 address may stand without its brackets.
            let written = match host.parse::<IpAddr>() {
                Ok(IpAddr::V6(address)) => format!("[{address}]:1"),
                _ => format!("{host}:1"),
            };
            let address: Result<ServerAddress, _> = written.parse();
            address
                .map(|address| Arc::from(address.host()))
                .map_err(|error| TunnelError::Advertise { host: host.clone(), error })
        });
        let identity = self.tls_certificate.as_ref().map(|path| {
            TlsIdentity::from_pem_file(path)
                .map_err(|error| TunnelError::Certificate { path: path.clone(), error })
        });
        let pass_tls = self.tls_passthrough;
        Ok(Clients { host: host.transpose()?, identity: identity.transpose()?, pass_tls })
    }

    const fn client_tls(&self) -> ClientTls {
        match (self.tls_passthrough, &self.tls_certificate) {
            (true, _) => ClientTls::Members,
            (false, Some(_)) => ClientTls::Tunnel,
            (false, None) => ClientTls::None,
        }
    }

    /// Returns the address by which clients reach this machine.
    fn address(&self) -> IpAddr {
        let address = self.listen.unwrap_or(Ipv4Addr::LOCALHOST.into());
        match address {
            IpAddr::V4(address) if address.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(address) if address.is_unspecified() => std::net::Ipv6Addr::LOCALHOST.into(),
            address => address,
        }
    }
}

/// Runs a tunnel until the user, a signal or the time limit ends it.
pub(crate) fn run(args: &Args) -> Result<(), TunnelError> {
    match preparation::run(tunnel(args)) {
        // The reader has seen enough.
        Err(TunnelError::Output(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

async fn tunnel(args: &Args) -> Result<(), TunnelError> {
    let begun = Instant::now();
    let (plan, clients) = (args.plan()?, args.clients()?);
    let ssh = args.ssh.clone().map(|host| Ssh::new(host, args.ssh_config.clone())).transpose()?;
    let proxy = ssh.is_some().then(Ssh::proxy);
    let place = ssh.as_ref().map(Ssh::place);
    let (mut preparation, written) = Preparation::through(&args.observation, proxy)?;
    if args.tls_passthrough && written.tls().is_none() {
        return Err(TunnelError::NoTls);
    }
    open_files::allow_many();
    let (sender, receiver) = news::channel();
    let ssh = match ssh {
        None => None,
        Some(ssh) => Some(start(ssh, &mut preparation, &sender).await?),
    };
    let way = (plan, clients, place);
    let outcome = lead(args, way, preparation, &written, (sender, receiver), begun).await;
    if let Some(ssh) = ssh {
        ssh.end().await;
    }
    outcome
}

/// Leads clients to the members, once there are any.
async fn lead(
    args: &Args,
    (plan, clients, place): (Plan, Clients, Option<Place>),
    mut preparation: Preparation,
    written: &Options,
    (sender, receiver): (NewsSender, NewsReceiver),
    begun: Instant,
) -> Result<(), TunnelError> {
    let mut builder = Topology::builder(preparation.options.clone());
    if let Some(place) = place.clone() {
        builder = builder.dialer(move |_| {
            let place = place.clone();
            async move { place.connect().await }
        });
    }
    let client = preparation.connected(builder.connect()).await?;
    let Preparation { mut shutdown, .. } = preparation;
    let dialer = Dialer::new(client.options(), place, args.tls_passthrough)?;
    find(&client, &mut shutdown, begun, args.ssh.as_deref()).await?;
    let reporting = Reporting {
        views: client.watch_topology(),
        tunnel: Tunnel::new(dialer, LocalAddresses::new(plan), clients, sender),
        receiver,
        report: Report::new(io::stdout(), args.json, false),
        begun,
        by: args.address(),
        members: BTreeSet::new(),
        pass_tls: args.tls_passthrough,
        hosts: Vec::new(),
        primary: None,
    };
    let outcome = reporting.run(args, written, &mut shutdown).await;
    client.close().await;
    outcome
}

/// Starts ssh, and keeps it running.
async fn start(
    ssh: Ssh,
    preparation: &mut Preparation,
    sender: &NewsSender,
) -> Result<Kept, TunnelError> {
    let ssh = ssh.with(preparation.shutdown.companion());
    let started = preparation.shutdown.or(ssh.start(sender)).await;
    match (started, preparation.shutdown.end()) {
        (Some(running), _) => Ok(ssh.keep(running?, sender.clone())),
        (None, Some(End::Signal(signal))) => {
            Err(PreparationError::Interrupted { signal, before: "ssh was there" }.into())
        }
        (None, _) => Err(TunnelError::NoSsh(preparation.limit.unwrap_or_default())),
    }
}

/// Waits until it is known which members there are, no longer than the selection of a server may
/// take. The proxy is an ssh to `ssh`, if there is one.
async fn find(
    client: &Topology,
    shutdown: &mut Shutdown,
    begun: Instant,
    ssh: Option<&str>,
) -> Result<(), TunnelError> {
    let mut views = client.watch_topology();
    let found = async {
        while let Some(view) = views.next().await {
            if is_found(&view) {
                return;
            }
        }
    };
    let limit = client.options().server_selection_timeout();
    let outcome = timeout(limit, shutdown.or(found)).await;
    if let Some(End::Signal(signal)) = shutdown.end() {
        let before = "any server was found";
        return Err(PreparationError::Interrupted { signal, before }.into());
    }
    let any = Criteria::read(ReadPreference::new(ReadMode::Nearest));
    let cause = match (outcome, client.diagnose(&any)) {
        (Ok(Some(())), _) | (_, None) => return Ok(()),
        (_, Some(error)) => error.verdict,
    };
    let limit = begun.elapsed();
    Err(match (ssh, cause) {
        // It is no proxy of the connection string.
        (Some(host), Verdict::ProxyFailed) => {
            TunnelError::NothingThroughSsh { limit, host: host.to_owned() }
        }
        (_, cause) => TunnelError::NothingFound { limit, cause: cause.into() },
    })
}

/// Returns whether a view names the members that there are: a primary lists them, and without one
/// all that are known have answered or failed.
fn is_found(view: &TopologyDescription) -> bool {
    let is_open = |server: &ServerDescription| {
        server.server_type == ServerType::Unknown && server.error.is_none()
    };
    let is_there = |server: &ServerDescription| server.server_type != ServerType::Unknown;
    let mut servers = view.servers().iter();
    view.topology_type == TopologyType::LoadBalanced
        || view.primary().is_some()
        || (servers.any(|server| is_there(server))
            && !view.servers().iter().any(|server| is_open(server)))
}

/// A tunnel, and what is reported of it.
struct Reporting<W> {
    tunnel: Arc<Tunnel>,
    views: Views,
    receiver: NewsReceiver,
    report: Report<W>,
    begun: Instant,
    /// The address by which clients reach this machine.
    by: IpAddr,
    /// The members, as they were reported last.
    members: BTreeSet<ServerAddress>,
    /// True if names of hosts have to lead here.
    pass_tls: bool,
    /// The lines that `/etc/hosts` needs for that, as far as they were reported.
    hosts: Vec<String>,
    primary: Option<ServerAddress>,
}

impl<W: io::Write> Reporting<W> {
    async fn run(
        mut self,
        args: &Args,
        written: &Options,
        shutdown: &mut Shutdown,
    ) -> Result<(), TunnelError> {
        let Some(view) = self.views.next().await else { return Ok(()) };
        let ready = self.ready(args.client_tls(), written, &view)?;
        self.print(&ready)?;
        self.follow(&view)?;
        loop {
            tokio::select! {
                view = self.views.next() => match view {
                    Some(view) => self.follow(&view)?,
                    None => return Ok(()),
                },
                news = self.receiver.next() => self.print(&news)?,
                () = shutdown.reached() => break,
            }
        }
        while let Some(news) = self.receiver.try_next() {
            self.print(&news)?;
        }
        Ok(())
    }

    fn print(&mut self, news: &News) -> Result<(), TunnelError> {
        self.report.print(self.begun.elapsed(), news).map_err(TunnelError::Output)
    }

    /// Listens for each member there is, and says by what clients connect.
    fn ready(
        &mut self,
        client_tls: ClientTls,
        written: &Options,
        view: &TopologyDescription,
    ) -> Result<News, TunnelError> {
        let (mut members, mut hosts) = (BTreeMap::new(), Vec::new());
        for server in view.servers() {
            let member = &server.address;
            let (local, _) = self
                .tunnel
                .open(member)
                .map_err(|error| TunnelError::LocalAddress { member: member.clone(), error })?;
            let name = self.tunnel.name(local, self.by);
            members.insert(member.to_string(), name.to_string());
            hosts.push(if self.pass_tls { member.clone() } else { name });
            self.new_host(member, local);
            self.members.insert(member.clone());
        }
        let uri = connection_string(written, view, &hosts, client_tls);
        Ok(News::Ready { uri, members, hosts: self.hosts.clone() })
    }

    /// Returns the line that `/etc/hosts` needs for a member, if that is a new one.
    fn new_host(&mut self, member: &ServerAddress, local: SocketAddr) -> Option<String> {
        let line = format!("{} {}", local.ip(), member.host());
        let is_new = self.pass_tls && !self.hosts.contains(&line);
        is_new.then(|| {
            self.hosts.push(line.clone());
            line
        })
    }

    /// Reports which members come and go, and which one is primary.
    fn follow(&mut self, view: &TopologyDescription) -> Result<(), TunnelError> {
        let now: BTreeSet<_> = view.servers().iter().map(|it| it.address.clone()).collect();
        let before = std::mem::replace(&mut self.members, now.clone());
        for member in before.difference(&now) {
            self.print(&News::Left { member: member.to_string() })?;
        }
        for member in now.difference(&before) {
            let news = self.joined(member);
            self.print(&news)?;
        }
        let primary = view.primary().map(|primary| primary.address.clone());
        if primary != self.primary {
            self.primary.clone_from(&primary);
            let news = match primary {
                None => News::NoPrimary,
                Some(primary) => {
                    let local = self.tunnel.open(&primary).ok();
                    let address =
                        local.map(|(local, _)| self.tunnel.name(local, self.by).to_string());
                    News::Primary { member: primary.to_string(), address }
                }
            };
            self.print(&news)?;
        }
        Ok(())
    }

    /// Gives a server that has become a member its local address, if there is one for it.
    fn joined(&mut self, member: &ServerAddress) -> News {
        match self.tunnel.open(member) {
            Ok((local, _)) => {
                let (host, member) = (self.new_host(member, local), member.to_string());
                News::Joined { member, address: self.tunnel.name(local, self.by).to_string(), host }
            }
            Err(error) => News::NotOpened { member: member.to_string(), reason: error.to_string() },
        }
    }
}
