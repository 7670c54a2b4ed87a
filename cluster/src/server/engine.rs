//! The task that drives the model: it owns the listeners and a task for each connection.

use std::collections::BTreeMap;
use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use sdam_core::machine::Machine;
use sdam_core::time::Instant;
use tokio::io::DuplexStream;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{broadcast, mpsc, oneshot, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::sleep_until;
use tokio_rustls::TlsAcceptor;

use super::listening::{BACKLOG, accept, bind, socket_address};
use super::socket::{Conversation, Report};
use super::{MAX_PENDING_IN_ALL, MAX_PENDING_OUTPUT, PENDING_SHARE};
use crate::model::{
    Action, Change, Cluster, ClusterEvent, ClusterState, ConnectionId, Input, MAX_UNREAD_EVENTS,
};
use crate::options::{MemberId, MemberOptions, User};

/// The number of reports of all connections that may wait for the engine.
const REPORTS: usize = 256;

/// The time that nothing is accepted after an accept that failed: the system is short of something,
/// and asking again at once would only burn the processor.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// The longest sleep; a tick too early does no harm, and the timer has limits of its own.
const LONGEST_SLEEP: Duration = Duration::from_secs(3600);

/// A command of the owner of the deployment, and the sender that completes it.
#[derive(Debug)]
pub(crate) enum Command {
    Input {
        input: Input<'static>,
        done: oneshot::Sender<io::Result<()>>,
    },
    Reconfig {
        changes: Vec<Change>,
        /// The listener of the first new server, if it is bound already.
        listener: Option<TcpListener>,
        done: oneshot::Sender<io::Result<()>>,
    },
    Users {
        users: Vec<User>,
        done: oneshot::Sender<io::Result<()>>,
    },
    /// Opens a connection that needs neither TLS nor a login.
    Connect {
        member: MemberId,
        stream: DuplexStream,
        done: oneshot::Sender<io::Result<()>>,
    },
    Subscribe {
        answer: oneshot::Sender<broadcast::Receiver<ClusterEvent>>,
    },
    State {
        answer: oneshot::Sender<ClusterState>,
    },
}

/// The engine's end of a connection; dropping it lets the task send the rest and close.
struct Socket {
    output: mpsc::UnboundedSender<Vec<u8>>,
    /// The number of bytes that are handed over but not written.
    pending: Arc<AtomicUsize>,
    task: AbortHandle,
    /// Its client has said hello.
    said_hello: bool,
}

/// The channel on which the tasks of all connections report.
type Reports = mpsc::Sender<(ConnectionId, Report)>;

pub(crate) struct Engine {
    model: Cluster,
    /// The acceptor of TLS, if the members speak it.
    tls: Option<TlsAcceptor>,
    addresses: Vec<SocketAddr>,
    /// One place for each member; dropping a listener closes the port at that moment.
    listeners: Vec<Option<TcpListener>>,
    /// Holds the port of a member that is down, so that the system gives it to no other socket.
    reserved: Vec<Option<TcpSocket>>,
    /// The members that are frozen, for connections on which TLS is being opened.
    frozen: Vec<watch::Sender<bool>>,
    sockets: BTreeMap<ConnectionId, Socket>,
    last_connection: u64,
    /// Dropping the engine ends them all.
    tasks: JoinSet<()>,
    primary: watch::Sender<Option<MemberId>>,
    events: broadcast::Sender<ClusterEvent>,
    origin: tokio::time::Instant,
}

impl Engine {
    pub(super) fn new(
        model: Cluster,
        tls: Option<TlsAcceptor>,
        listeners: Vec<TcpListener>,
        addresses: Vec<SocketAddr>,
        primary: watch::Sender<Option<MemberId>>,
    ) -> Self {
        Self {
            model,
            tls,
            reserved: addresses.iter().map(|_| None).collect(),
            frozen: addresses.iter().map(|_| watch::Sender::new(false)).collect(),
            addresses,
            listeners: listeners.into_iter().map(Some).collect(),
            sockets: BTreeMap::new(),
            last_connection: 0,
            tasks: JoinSet::new(),
            primary,
            events: broadcast::Sender::new(MAX_UNREAD_EVENTS),
            origin: tokio::time::Instant::now(),
        }
    }

    /// Runs until the other end of `commands` is dropped.
    pub(crate) async fn run(mut self, mut commands: mpsc::Receiver<Command>) {
        let (reports, mut reported) = mpsc::channel(REPORTS);
        let mut accepts_from = self.origin;
        loop {
            self.tick();
            let deadline = self.deadline();
            tokio::select! {
                (member, accepted) = accept(&self.listeners, accepts_from) => match accepted {
                    Ok(stream) => self.accepted(member, stream, &reports),
                    Err(_) => accepts_from = tokio::time::Instant::now() + ACCEPT_PAUSE,
                },
                Some((connection, report)) = reported.recv() => self.reported(connection, report),
                command = commands.recv() => match command {
                    Some(command) => self.obey(command, &reports),
                    None => return,
                },
                _ = self.tasks.join_next(), if !self.tasks.is_empty() => {}
                () = deadline => {}
            }
        }
    }

    fn now(&self) -> Instant {
        let nanos = self.origin.elapsed().as_nanos();
        Instant::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    fn deadline(&self) -> impl Future<Output = ()> + use<> {
        let due = self.model.deadline().map(|at| (at - self.now()).min(LONGEST_SLEEP));
        let due = due.map(|after| tokio::time::Instant::now() + after);
        async move {
            match due {
                Some(due) => sleep_until(due).await,
                None => pending().await,
            }
        }
    }

    fn tick(&mut self) {
        let mut actions = Vec::new();
        self.model.tick(self.now().into(), &mut actions);
        // The listeners are there when the first tick asks for them.
        let _ = self.perform(actions);
    }

    fn handle(&mut self, input: Input<'_>) -> io::Result<()> {
        self.handle_at(self.now(), input)
    }

    fn handle_at(&mut self, now: Instant, input: Input<'_>) -> io::Result<()> {
        let mut actions = Vec::new();
        self.model.handle(now.into(), input, &mut actions);
        self.perform(actions)
    }

    /// Does what the owner wants, who may have lost interest meanwhile.
    fn obey(&mut self, command: Command, reports: &Reports) {
        match command {
            Command::Input { input, done } => {
                let outcome = self.handle(input);
                self.show_frozen();
                let _ = done.send(outcome);
            }
            Command::Reconfig { changes, listener, done } => {
                let _ = done.send(self.reconfig(&changes, listener));
            }
            Command::Users { users, done } => drop(done.send(self.change_users(&users))),
            Command::Connect { member, stream, done } => {
                let _ = done.send(self.connect(member, stream, reports));
            }
            Command::Subscribe { answer } => drop(answer.send(self.events.subscribe())),
            Command::State { answer } => drop(answer.send(self.model.state(None))),
        }
    }

    fn change_users(&mut self, users: &[User]) -> io::Result<()> {
        let invalid = |error| io::Error::new(io::ErrorKind::InvalidInput, error);
        self.model.check_users(users).map_err(invalid)?;
        self.handle(Input::Users { users })
    }

    /// Changes the configuration, or nothing if it cannot be changed so.
    fn reconfig(&mut self, changes: &[Change], bound: Option<TcpListener>) -> io::Result<()> {
        let now = self.now();
        let mut actions = Vec::new();
        self.model.tick(now.into(), &mut actions);
        self.perform(actions)?;
        let invalid = |error| io::Error::new(io::ErrorKind::InvalidInput, error);
        self.model.check_reconfig(changes).map_err(invalid)?;
        let (mut bound, mut listeners) = (bound, Vec::new());
        for change in changes {
            if let Change::Add(MemberOptions { address, .. }) = change
                && !self.model.has_server_at(address)
            {
                let listener = match bound.take() {
                    Some(listener) => listener,
                    None => bind(socket_address(address)?)?.listen(BACKLOG)?,
                };
                listeners.push((listener.local_addr()?, listener));
            }
        }
        for (address, listener) in listeners {
            self.addresses.push(address);
            self.listeners.push(Some(listener));
            self.reserved.push(None);
            self.frozen.push(watch::Sender::new(false));
        }
        self.handle_at(now, Input::Reconfig { changes })
    }

    /// Does what the model asks; a member whose port cannot be bound is down again.
    fn perform(&mut self, actions: Vec<Action>) -> io::Result<()> {
        let mut outcome = Ok(());
        for action in actions {
            match action {
                Action::Send { connection, bytes } => self.send(connection, bytes),
                Action::Close { connection } => drop(self.sockets.remove(&connection)),
                Action::Unlisten { member } => {
                    self.publish(ClusterEvent::Ended { member });
                    self.listeners[member.0] = None;
                    self.reserved[member.0] = bind(self.addresses[member.0]).ok();
                }
                Action::Listen { member } => {
                    self.publish(ClusterEvent::Started { member });
                    if let Err(error) = self.listen(member) {
                        let _ = self.handle(Input::Kill { member });
                        outcome = Err(error);
                    }
                }
                Action::Publish { event } => self.publish(event),
            }
        }
        let primary = self.model.primary();
        self.primary.send_if_modified(|it| std::mem::replace(it, primary) != primary);
        outcome
    }

    /// Sends an event to the subscribers.
    fn publish(&self, event: ClusterEvent) {
        // There may be none.
        let _ = self.events.send(event);
    }

    fn listen(&mut self, member: MemberId) -> io::Result<()> {
        let listener = &mut self.listeners[member.0];
        if listener.is_none() {
            let socket = match self.reserved[member.0].take() {
                Some(socket) => socket,
                None => bind(self.addresses[member.0])?,
            };
            *listener = Some(socket.listen(BACKLOG)?);
        }
        Ok(())
    }

    fn send(&mut self, connection: ConnectionId, bytes: Vec<u8>) {
        let Some(socket) = self.sockets.get(&connection) else {
            return;
        };
        let length = bytes.len();
        let pending = socket.pending.fetch_add(length, Ordering::Relaxed) + length;
        let in_all = || -> usize {
            self.sockets.values().map(|it| it.pending.load(Ordering::Relaxed)).sum()
        };
        let is_too_much = pending > MAX_PENDING_OUTPUT
            || (pending > PENDING_SHARE && in_all() > MAX_PENDING_IN_ALL);
        if is_too_much {
            socket.task.abort();
            self.ended(connection);
        } else {
            // A task that has ended reports so itself.
            let _ = socket.output.send(bytes);
        }
    }

    fn accepted(&mut self, member: MemberId, stream: TcpStream, reports: &Reports) {
        let peer = stream.peer_addr();
        let tls = self.tls.clone().map(|tls| (tls, self.frozen[member.0].subscribe()));
        let connection = self.open(member, reports, |it| it.with_client(stream, tls));
        if let Ok(address) = peer {
            // Only a start can fail.
            let _ = self.handle(Input::Peer { connection, address });
        }
    }

    /// Updates the tasks of connections on which members are frozen.
    fn show_frozen(&self) {
        for (index, shown) in self.frozen.iter().enumerate() {
            let frozen = self.model.is_frozen(MemberId(index));
            shown.send_if_modified(|it| std::mem::replace(it, frozen) != frozen);
        }
    }

    /// Opens a connection of the deployment itself.
    fn connect(
        &mut self,
        member: MemberId,
        stream: DuplexStream,
        reports: &Reports,
    ) -> io::Result<()> {
        if member.0 >= self.addresses.len() {
            return Err(io::ErrorKind::AddrNotAvailable.into());
        }
        if !self.model.is_running(member) {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let connection = self.open(member, reports, |it| it.run(stream));
        self.handle(Input::Trusted { connection })
    }

    fn open<T: Future<Output = ()> + Send + 'static>(
        &mut self,
        member: MemberId,
        reports: &Reports,
        converse: impl FnOnce(Conversation) -> T,
    ) -> ConnectionId {
        self.last_connection += 1;
        let connection = ConnectionId(self.last_connection);
        let (sender, output) = mpsc::unbounded_channel();
        let pending = Arc::new(AtomicUsize::new(0));
        let (reports, unwritten) = (reports.clone(), Arc::clone(&pending));
        let conversation = Conversation { connection, reports, output, pending: unwritten };
        let task = self.tasks.spawn(converse(conversation));
        self.sockets
            .insert(connection, Socket { output: sender, pending, task, said_hello: false });
        // Only a start can fail.
        let _ = self.handle(Input::Accepted { connection, member });
        connection
    }

    fn reported(&mut self, connection: ConnectionId, report: Report) {
        // Only a start can fail.
        let _ = match report {
            Report::ServerName(name) => self.handle(Input::ServerName { connection, name: &name }),
            Report::Read(bytes) => {
                let outcome = self.handle(Input::Received { connection, bytes: &bytes });
                self.note_hello(connection);
                outcome
            }
            Report::Ended => return self.ended(connection),
        };
    }

    /// Publishes, once, that a client has said hello.
    fn note_hello(&mut self, connection: ConnectionId) {
        let Some(socket) = self.sockets.get_mut(&connection).filter(|it| !it.said_hello) else {
            return;
        };
        if let Some((member, client)) = self.model.client(connection) {
            socket.said_hello = true;
            let client = client.clone();
            self.publish(ClusterEvent::SaidHello { member, client });
        }
    }

    fn ended(&mut self, connection: ConnectionId) {
        self.sockets.remove(&connection);
        // Only a start can fail.
        let _ = self.handle(Input::Disconnected { connection });
    }
}
