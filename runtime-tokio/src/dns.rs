//! Looks up SRV and TXT records: asks name servers, or a resolver of the application's own.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;

use sdam_core::dns::{Answer, DnsCause, DnsError, NameServers, Question, Transport};
use sdam_core::host::{NameServerSocket, ask_name_servers};
use sdam_core::time::Instant;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::{TcpStream, UdpSocket};
use tokio::task::spawn_blocking;
use tokio::time;

use crate::runtime::sleep_until;

/// Where the name servers of this machine are listed.
const RESOLV_CONF: &str = "/etc/resolv.conf";

/// A lookup in progress.
pub type LookupFuture<'a> = Pin<Box<dyn Future<Output = Result<Answer, DnsError>> + Send + 'a>>;

/// Looks up the records of a `mongodb+srv://` deployment.
///
/// [`NameServers`] is one: it asks those servers. An application can bring its own, where the
/// system's configuration is not in a file, say.
pub trait Resolver: fmt::Debug + Send + Sync + 'static {
    /// Looks up the records that `question` asks for.
    ///
    /// A lookup that has not ended after a minute is given up. That there are no records is
    /// [`DnsCause::NoRecords`] or [`DnsCause::NoSuchName`], which for TXT records is no failure;
    /// for errors of its own it has [`DnsCause::Resolver`].
    fn lookup(&self, question: Question) -> LookupFuture<'_>;
}

impl Resolver for NameServers {
    fn lookup(&self, question: Question) -> LookupFuture<'_> {
        Box::pin(ask(question, self.clone()))
    }
}

/// Asks the name servers that `/etc/resolv.conf` names at the time.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemResolver;

impl Resolver for SystemResolver {
    fn lookup(&self, question: Question) -> LookupFuture<'_> {
        Box::pin(async {
            let text = spawn_blocking(|| std::fs::read(RESOLV_CONF)).await;
            let servers = match text {
                Ok(Ok(text)) => NameServers::from_resolv_conf(&text).map_err(|e| e.to_string()),
                Ok(Err(error)) => Err(error.to_string()),
                Err(error) => Err(error.to_string()),
            };
            match servers {
                Ok(servers) => ask(question, servers).await,
                Err(error) => {
                    let detail = format!("{RESOLV_CONF} cannot be used: {error}");
                    Err(DnsError::new(question, DnsCause::Resolver(detail.into())))
                }
            }
        })
    }
}

async fn ask(question: Question, servers: NameServers) -> Result<Answer, DnsError> {
    let seed = getrandom::u64().map_err(|error| {
        let detail = format!("the operating system gave no randomness: {error}");
        DnsError::new(question.clone(), DnsCause::Resolver(detail.into()))
    })?;
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
                let any: SocketAddr = match server {
                    SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
                    SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
                };
                let socket = UdpSocket::bind(any).await?;
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
