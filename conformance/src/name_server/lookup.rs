//! Lookups over blocking sockets.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use sdam_core::dns::{
    Action, DnsError, DnsRecords, ExchangeId, Input, Lookup, MAX_MESSAGE_LEN, NameServers,
    Question, Transport,
};
use sdam_core::machine::Machine;
use sdam_core::time;

/// Sockets refuse to wait for no time at all.
const SHORTEST_WAIT: Duration = Duration::from_millis(1);

/// A socket over which one name server is being asked.
enum Socket {
    Udp(UdpSocket),
    Tcp(TcpStream),
}

/// Asks name servers, and blocks until one has answered or all have failed.
///
/// # Errors
///
/// There are no such records, or no server knows them.
pub fn lookup(question: Question, servers: NameServers) -> Result<DnsRecords, DnsError> {
    let (epoch, mut lookup) = (Instant::now(), Lookup::new(question, servers, seed()));
    let now = || time::Instant::ZERO + epoch.elapsed();
    let (mut buffer, mut out) = (vec![0; MAX_MESSAGE_LEN], Vec::new());
    let mut exchange: Option<(ExchangeId, io::Result<Socket>)> = None;
    lookup.tick(time::Instant::ZERO.into(), &mut out);
    loop {
        let deadline = lookup.deadline();
        for action in out.drain(..) {
            match action {
                Action::Ask { exchange: id, server, transport, query } => {
                    let wait = deadline.map_or(Duration::ZERO, |deadline| deadline - now());
                    exchange = Some((id, Socket::open(server, transport, &query, wait)));
                }
                Action::Finish { outcome } => return outcome,
            }
        }
        let (Some((id, socket)), Some(deadline)) = (&mut exchange, deadline) else {
            unreachable!("a lookup that is not over has an exchange and a deadline");
        };
        let received = match socket {
            Ok(socket) => socket.receive(&mut buffer, deadline - now()),
            Err(error) => Err(io::Error::new(error.kind(), error.to_string())),
        };
        match received {
            Ok(0) => {
                let detail = "the server closed the connection".into();
                lookup.handle(now().into(), Input::Failed { exchange: *id, detail }, &mut out);
            }
            Ok(length) => {
                let bytes = &buffer[..length];
                lookup.handle(now().into(), Input::Received { exchange: *id, bytes }, &mut out);
            }
            Err(error) if is_timeout(&error) => lookup.tick(now().into(), &mut out),
            Err(error) => {
                let detail = error.to_string().into();
                lookup.handle(now().into(), Input::Failed { exchange: *id, detail }, &mut out);
            }
        }
    }
}

/// Numbers of queries need not be secret on this machine, only different.
fn seed() -> u64 {
    u64::from_le_bytes(*bson::oid::ObjectId::new().bytes().last_chunk().expect("12 bytes"))
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

impl Socket {
    fn open(
        server: SocketAddr,
        transport: Transport,
        query: &[u8],
        wait: Duration,
    ) -> io::Result<Self> {
        match transport {
            Transport::Udp => {
                let any: SocketAddr = match server {
                    SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
                    SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
                };
                let socket = UdpSocket::bind(any)?;
                socket.connect(server)?;
                socket.send(query)?;
                Ok(Self::Udp(socket))
            }
            Transport::Tcp => {
                let mut stream = TcpStream::connect_timeout(&server, wait.max(SHORTEST_WAIT))?;
                stream.set_write_timeout(Some(wait.max(SHORTEST_WAIT)))?;
                stream.write_all(query)?;
                Ok(Self::Tcp(stream))
            }
        }
    }

    fn receive(&mut self, buffer: &mut [u8], wait: Duration) -> io::Result<usize> {
        let wait = Some(wait.max(SHORTEST_WAIT));
        match self {
            Self::Udp(socket) => {
                socket.set_read_timeout(wait)?;
                socket.recv(buffer)
            }
            Self::Tcp(stream) => {
                stream.set_read_timeout(wait)?;
                stream.read(buffer)
            }
        }
    }
}
