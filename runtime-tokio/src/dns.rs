//! Looks up SRV and TXT records: asks name servers.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;

use sdam_core::dns::{
    Answer, DnsCause, DnsError, NameServers, Question, Transport, any_address_for,
};
use sdam_core::time::Instant;
use sdam_host::system::{lookup_seed, name_servers};
use sdam_host::{LookupFuture, NameServerSocket, Resolver, ask_name_servers};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::{TcpStream, UdpSocket};
use tokio::task::spawn_blocking;
use tokio::time;

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
            let servers = spawn_blocking(move || name_servers(&asked)).await;
            match servers {
                Ok(servers) => ask(question, servers?).await,
                Err(error) => {
                    Err(DnsError::new(question, DnsCause::Resolver(error.to_string().into())))
                }
            }
        })
    }
}

async fn ask(question: Question, servers: NameServers) -> Result<Answer, DnsError> {
    let seed = lookup_seed(&question)?;
    let epoch = time::Instant::now();
    let now = || Instant::ZERO + epoch.elapsed();
    let sleep = |at| sleep_until(epoch, at);
    ask_name_servers::<DnsSocket, _>(question, servers, seed, now, sleep).await
}

enum DnsSocket {
    Udp(UdpSocket),
    Tcp(TcpStream),
}

impl NameServerSocket for DnsSocket {
    async fn open(server: SocketAddr, transport: Transport, query: &[u8]) -> io::Result<Self> {
        match transport {
            Transport::Udp => {
                let socket = UdpSocket::bind(any_address_for(server)).await?;
                socket.connect(server).await?;
                socket.send(query).await?;
                Ok(Self::Udp(socket))
            }
            Transport::Tcp => {
                let stream = TcpStream::connect(server).await?;
                let mut rest = query;
                while !rest.is_empty() {
                    stream.writable().await?;
                    match stream.try_write(rest) {
                        Ok(written) => rest = &rest[written..],
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                        Err(error) => return Err(error),
                    }
                }
                Ok(Self::Tcp(stream))
            }
        }
    }

    async fn receive(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Udp(socket) => socket.recv(buffer).await,
            Self::Tcp(stream) => {
                std::future::poll_fn(|cx| {
                    let mut buffer = ReadBuf::new(buffer);
                    let read = Pin::new(&mut *stream).poll_read(cx, &mut buffer);
                    read.map_ok(|()| buffer.filled().len())
                })
                .await
            }
        }
    }
}
