//! A TCP forwarder on loopback: a network that tests can disturb, or a balancer of connections.
//!
//! A [`Forwarder`] sits between a client and its servers, and passes their bytes on. What it does
//! with them can be changed at any moment, for connections that are open and for new ones alike.
//!
//! ```no_run
//! # async fn example(server: std::net::SocketAddr) -> std::io::Result<()> {
//! use sdam_conformance::forwarder::{Forwarder, Traffic};
//!
//! let forwarder = Forwarder::start(vec![server])?;
//! let uri = format!("mongodb://{}/?directConnection=true", forwarder.address());
//! forwarder.set(Traffic::Blackhole); // neither side hears the other any more
//! forwarder.set(Traffic::Pass);
//! forwarder.reset_all();
//! # Ok(())
//! # }
//! ```

mod connection;

#[cfg(test)]
mod tests;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::sleep;

/// The number of connections that are forwarded at once; further ones are refused.
pub const MAX_CONNECTIONS: usize = 1024;

/// The number of connections that the system may hold before they are accepted.
const BACKLOG: u32 = 1024;

/// The pause after a failed accept: the system is short of something, and asking again at once
/// would only burn the processor.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// The fate of connections and their bytes.
///
/// Bytes that were swallowed never come later: after that, a stream makes no sense to a receiver in
/// the middle of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Traffic {
    /// Everything is passed on.
    #[default]
    Pass,
    /// Connections are accepted and stay open, but all bytes are swallowed; neither side hears
    /// that the other has closed or reset its end, until that is passed on again.
    Blackhole,
    /// New connections are accepted and closed at once; open ones go on.
    Refuse,
    /// As [`Blackhole`](Self::Blackhole), but only from the client to the server.
    DropToServer,
    /// As [`Blackhole`](Self::Blackhole), but only from the server to the client.
    DropToClient,
    /// Everything is passed on, little by little.
    Slow {
        /// The number of bytes that are written at once; zero counts as one.
        bytes: usize,
        /// The time to wait before each write.
        pause: Duration,
    },
}

/// The counts of a forwarder since it was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Counters {
    /// Connections that were accepted and not refused.
    pub accepted: u64,
    /// Connections that were closed at once, as [`Traffic::Refuse`] or a limit wants.
    pub refused: u64,
    /// Accepted connections whose clients have not closed them, and that were not closed.
    pub open: u64,
    /// Bytes that were passed on to servers.
    pub bytes_to_server: u64,
    /// Bytes that were passed on to clients.
    pub bytes_to_client: u64,
}

/// The counters as all tasks share them.
#[derive(Debug, Default)]
struct Shared {
    accepted: AtomicU64,
    refused: AtomicU64,
    open: AtomicU64,
    to_server: AtomicU64,
    to_client: AtomicU64,
}

/// A TCP forwarder on a loopback port; dropping it ends its tasks, which closes its connections.
#[derive(Debug)]
pub struct Forwarder {
    address: SocketAddr,
    traffic: watch::Sender<Traffic>,
    /// Counts how often all connections were reset.
    resets: watch::Sender<u64>,
    counters: Arc<Shared>,
    task: JoinHandle<()>,
}

impl Forwarder {
    /// Listens at a free loopback port, and leads each new connection to the next of `targets`, in
    /// turn.
    ///
    /// # Errors
    ///
    /// Fails if no port can be bound, and with [`io::ErrorKind::InvalidInput`] without a target.
    ///
    /// # Panics
    ///
    /// Panics outside a tokio runtime with I/O and time enabled.
    pub fn start(targets: Vec<SocketAddr>) -> io::Result<Self> {
        if targets.is_empty() {
            let reason = "a forwarder needs at least one target";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
        }
        let socket = TcpSocket::new_v4()?;
        socket.bind((Ipv4Addr::LOCALHOST, 0).into())?;
        let listener = socket.listen(BACKLOG)?;
        let address = listener.local_addr()?;
        let (traffic, resets) = (watch::Sender::new(Traffic::Pass), watch::Sender::new(0));
        let counters = Arc::new(Shared::default());
        let wires = Wires {
            traffic: traffic.subscribe(),
            resets: resets.subscribe(),
            counters: Arc::clone(&counters),
        };
        let task = tokio::spawn(serve(listener, targets, wires));
        Ok(Self { address, traffic, resets, counters, task })
    }

    /// Returns the address to connect to.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sets what happens from now on to open connections and new ones.
    pub fn set(&self, traffic: Traffic) {
        self.traffic.send_replace(traffic);
    }

    /// Closes all open connections towards both sides with RST.
    pub fn reset_all(&self) {
        self.resets.send_modify(|count| *count += 1);
    }

    /// Returns what was seen and done so far.
    pub fn counters(&self) -> Counters {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counters {
            accepted: read(&self.counters.accepted),
            refused: read(&self.counters.refused),
            open: read(&self.counters.open),
            bytes_to_server: read(&self.counters.to_server),
            bytes_to_client: read(&self.counters.to_client),
        }
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The state that every connection's task is given.
#[derive(Clone, Debug)]
struct Wires {
    traffic: watch::Receiver<Traffic>,
    resets: watch::Receiver<u64>,
    counters: Arc<Shared>,
}

/// Accepts connections for as long as the forwarder lives; its end ends them all.
async fn serve(listener: TcpListener, targets: Vec<SocketAddr>, wires: Wires) {
    let mut connections = JoinSet::new();
    let mut turn = targets.iter().copied().cycle();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((client, _)) => {
                    let full = connections.len() >= MAX_CONNECTIONS;
                    if let Some(wires) = admitted(&client, full, &wires) {
                        let target = turn.next().expect("there is at least one target");
                        connections.spawn(connection::forward(client, target, wires));
                    }
                }
                Err(_) => sleep(ACCEPT_PAUSE).await,
            },
            _ = connections.join_next(), if !connections.is_empty() => {}
        }
    }
}

/// Counts a new connection, and returns what its task needs unless it is refused.
fn admitted(client: &TcpStream, full: bool, wires: &Wires) -> Option<Wires> {
    // Without it small messages may be late, but they come.
    let _ = client.set_nodelay(true);
    if full || *wires.traffic.borrow() == Traffic::Refuse {
        wires.counters.refused.fetch_add(1, Ordering::Relaxed);
        return None;
    }
    wires.counters.accepted.fetch_add(1, Ordering::Relaxed);
    wires.counters.open.fetch_add(1, Ordering::Relaxed);
    let mut wires = wires.clone();
    // Earlier resets are not this connection's.
    wires.resets.mark_unchanged();
    Some(wires)
}
