//! Peers that say nothing: one that accepts connections and reads, and one that does not accept.

use std::io::{self, Read};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::net::TcpSocket;

use super::fixture::world;
use super::port::Port;

/// Accepts every client and reads what it says, for ever, and answers nothing.
pub(super) struct Silent {
    port: Port,
    spoken_to: Arc<AtomicUsize>,
}

impl Silent {
    pub(super) fn start() -> io::Result<Self> {
        let spoken_to = Arc::<AtomicUsize>::default();
        let count = Arc::clone(&spoken_to);
        let port = Port::open(move |mut stream| {
            let mut buffer = [0; 4096];
            while let Ok(1..) = stream.read(&mut buffer) {
                count.fetch_add(1, Ordering::Relaxed);
            }
        })?;
        Ok(Self { port, spoken_to })
    }

    pub(super) const fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// Returns whether anybody has said anything.
    pub(super) fn was_spoken_to(&self) -> bool {
        self.spoken_to.load(Ordering::Relaxed) > 0
    }
}

/// A port whose queue is full, so that connecting to it takes for ever.
pub(super) struct Full {
    address: SocketAddr,
    _listener: tokio::net::TcpListener,
    _queue: Vec<TcpStream>,
}

/// The number of connections that a queue for one may take; further ones wait.
const QUEUE: usize = 8;

impl Full {
    pub(super) fn start() -> io::Result<Self> {
        let _entered = world().enter();
        let socket = TcpSocket::new_v4()?;
        socket.bind((Ipv4Addr::LOCALHOST, 0).into())?;
        let listener = socket.listen(1)?;
        let address = listener.local_addr()?;
        let mut queue = Vec::new();
        for _ in 0..QUEUE {
            match TcpStream::connect_timeout(&address, Duration::from_millis(200)) {
                Ok(stream) => queue.push(stream),
                Err(_) => return Ok(Self { address, _listener: listener, _queue: queue }),
            }
        }
        Err(io::Error::other("the system queues more connections than its limit"))
    }

    pub(super) const fn address(&self) -> SocketAddr {
        self.address
    }
}
