//! The model on loopback ports: one task turns sockets into inputs and actions into bytes.

mod administration;
mod engine;
mod listening;
pub(crate) mod options;
pub(crate) mod socket;
mod tls;

use std::io;
use std::net::SocketAddr;

use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

pub use self::administration::PAUSE;
use self::engine::{Command, Engine};
use self::listening::listener;
use self::options::cluster_options;
pub use self::options::{EmbeddedOptions, MAX_PENDING_IN_ALL, MAX_PENDING_OUTPUT, PENDING_SHARE};
pub use self::tls::{MAX_PEM_LEN, TlsIdentity, TlsIdentityError};
use crate::model::{Cluster, Input};
use crate::options::{MemberId, MemberOptions};

/// The number of commands that may wait for the deployment's task.
const COMMANDS: usize = 16;

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

    pub(crate) async fn command(&self, input: Input<'static>) -> io::Result<()> {
        self.ask(|done| Command::Input { input, done }).await?
    }

    /// Gives the task a command and waits for what it says to it.
    pub(crate) async fn ask<T>(
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
pub(crate) fn adjusted(member: &mut MemberOptions, adjust: impl FnOnce(&mut MemberOptions)) {
    let address = member.address.clone();
    adjust(member);
    member.address = address;
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

fn ended() -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, "the embedded deployment has ended")
}
