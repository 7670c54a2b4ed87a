//! Looks up SRV and TXT records: asks name servers.

use std::io;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::pin::Pin;
use std::time;

use async_io::Async;
use blocking::unblock;
use futures_io::{AsyncRead, AsyncWrite};
use sdam_core::dns::{Answer, DnsError, NameServers, Question, Transport, any_address_for};
use sdam_core::time::Instant;
use sdam_host::system::{lookup_seed, name_servers};
use sdam_host::{LookupFuture, NameServerSocket, Resolver, ask_name_servers};

use crate::runtime::sleep_until;

/// Asks certain name servers.
#[derive(Clone, Debug)]
pub struct StubResolver(pub NameServers);

impl Resolver for StubResolver {
    fn lookup(&self, question: Question) -> LookupFuture<'_> {
        Box::pin(ask(question, self.0.clone()))
    }
}

/// Asks the name servers that `/etc/resolv.conf` names at the time.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemResolver;

impl Resolver for SystemResolver {
    fn lookup(&self, question: Question) -> LookupFuture<'_> {
        Box::pin(async {
            let asked = question.clone();
            let servers = unblock(move || name_servers(&asked)).await?;
            ask(question, servers).await
        })
    }
}

async fn ask(question: Question, servers: NameServers) -> Result<Answer, DnsError> {
    let (seed, epoch) = (lookup_seed(&question)?, time::Instant::now());
    let now = || Instant::ZERO + epoch.elapsed();
    let sleep = |at| sleep_until(epoch, at);
    ask_name_servers::<DnsSocket, _>(question, servers, seed, now, sleep).await
}

enum DnsSocket {
    Udp(Async<UdpSocket>),
    Tcp(Async<TcpStream>),
}

impl NameServerSocket for DnsSocket {
    async fn open(server: SocketAddr, transport: Transport, query: &[u8]) -> io::Result<Self> {
        if transport == Transport::Udp {
            let socket = Async::<UdpSocket>::bind(any_address_for(server))?;
            socket.get_ref().connect(server)?;
            socket.send(query).await?;
            return Ok(Self::Udp(socket));
        }
        let (mut stream, mut rest) = (Async::<TcpStream>::connect(server).await?, query);
        while !rest.is_empty() {
            let write = std::future::poll_fn(|cx| Pin::new(&mut stream).poll_write(cx, rest));
            rest = &rest[write.await?..];
        }
        Ok(Self::Tcp(stream))
    }

    async fn receive(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Udp(socket) => socket.recv(buffer).await,
            Self::Tcp(stream) => {
                std::future::poll_fn(|cx| Pin::new(&mut *stream).poll_read(cx, buffer)).await
            }
        }
    }
}
