//! Looks up SRV and TXT records: asks name servers, or a resolver of the application's own.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::time::Duration;

use sdam_core::dns::{
    Action, Answer, DnsCause, DnsError, ExchangeId, Input, Lookup, MAX_MESSAGE_LEN, NameServers,
    Question, Transport,
};
use sdam_core::machine::Machine;
use sdam_core::options::Options;
use sdam_core::srv::{self, SrvError, SrvRecord};
use sdam_core::time::Instant;
use tokio::net::{TcpStream, UdpSocket};
use tokio::task::spawn_blocking;
use tokio::time;

use crate::client::ClientError;

/// Where the name servers of this machine are listed.
const RESOLV_CONF: &str = "/etc/resolv.conf";

/// How long a question may take, all name servers and rounds included.
const LOOKUP_LIMIT: Duration = Duration::from_secs(60);

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

/// Completes options whose seeds are in DNS; others stay as they are.
pub(crate) async fn resolve(
    options: &Options,
    resolver: &dyn Resolver,
) -> Result<Options, ClientError> {
    let Some(srv) = options.srv().filter(|_| options.seeds().is_empty()) else {
        return Ok(options.clone());
    };
    let question = Question::srv(&srv.service_name, &srv.hostname);
    let records = lookup_srv(resolver, question).await.map_err(SrvError::from)?;
    let question = Question::txt(&srv.hostname);
    let answer = lookup(resolver, question.clone()).await;
    let txt = answer.and_then(|answer| answer.into_txt(&question));
    Ok(srv::complete(options, &records, txt, getrandom::u64()?)?)
}

pub(crate) async fn lookup_srv(
    resolver: &dyn Resolver,
    question: Question,
) -> Result<Vec<SrvRecord>, DnsError> {
    let answer = lookup(resolver, question.clone()).await;
    answer.and_then(|answer| answer.into_srv(&question))
}

/// Looks something up, in bounded time whatever the resolver does.
async fn lookup(resolver: &dyn Resolver, question: Question) -> Result<Answer, DnsError> {
    match time::timeout(LOOKUP_LIMIT, resolver.lookup(question.clone())).await {
        Ok(outcome) => outcome,
        Err(_elapsed) => {
            let detail = format!("no answer within {LOOKUP_LIMIT:?}");
            Err(DnsError::new(question, DnsCause::Resolver(detail.into())))
        }
    }
}

/// Asks name servers: moves the bytes that a [`Lookup`] wants moved.
async fn ask(question: Question, servers: NameServers) -> Result<Answer, DnsError> {
    let seed = getrandom::u64().map_err(|error| {
        let detail = format!("the operating system gave no randomness: {error}");
        DnsError::new(question.clone(), DnsCause::Resolver(detail.into()))
    })?;
    let (epoch, mut lookup) = (time::Instant::now(), Lookup::new(question, servers, seed));
    let (mut buffer, mut out) = (vec![0; MAX_MESSAGE_LEN], Vec::new());
    let mut exchange: Option<Exchange> = None;
    lookup.tick(Instant::ZERO, &mut out);
    loop {
        for action in out.drain(..) {
            match action {
                Action::Ask { exchange: id, server, transport, query } => {
                    exchange = Some(Exchange { id, server, transport, query, socket: None });
                }
                Action::Finish { outcome } => return outcome,
                _ => {}
            }
        }
        let (Some(exchange), Some(deadline)) = (&mut exchange, lookup.deadline()) else {
            unreachable!("a lookup that is not over has an exchange and a deadline");
        };
        let received =
            time::timeout_at(epoch + deadline.since_origin(), exchange.receive(&mut buffer)).await;
        let (id, now) = (exchange.id, Instant::ZERO + epoch.elapsed());
        match received {
            Err(_elapsed) => lookup.tick(now, &mut out),
            Ok(Ok(length)) => {
                let bytes = &buffer[..length];
                lookup.handle(now, Input::Received { exchange: id, bytes }, &mut out);
            }
            Ok(Err(error)) => {
                let detail = error.to_string().into();
                lookup.handle(now, Input::Failed { exchange: id, detail }, &mut out);
            }
        }
    }
}

/// One conversation with one name server.
struct Exchange {
    id: ExchangeId,
    server: SocketAddr,
    transport: Transport,
    query: Vec<u8>,
    /// Once the query was sent.
    socket: Option<DnsSocket>,
}

enum DnsSocket {
    Udp(UdpSocket),
    Tcp(TcpStream),
}

impl Exchange {
    /// Sends the query unless it was sent, and waits for a datagram or the next bytes.
    async fn receive(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let socket = match &mut self.socket {
            Some(socket) => socket,
            none => none.insert(open(self.server, self.transport, &self.query).await?),
        };
        match socket {
            DnsSocket::Udp(socket) => socket.recv(buffer).await,
            DnsSocket::Tcp(stream) => match read(stream, buffer).await? {
                0 => Err(io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    "the server closed the connection",
                )),
                length => Ok(length),
            },
        }
    }
}

async fn open(server: SocketAddr, transport: Transport, query: &[u8]) -> io::Result<DnsSocket> {
    match transport {
        Transport::Udp => {
            let any: SocketAddr = match server {
                SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
                SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
            };
            let socket = UdpSocket::bind(any).await?;
            socket.connect(server).await?;
            socket.send(query).await?;
            Ok(DnsSocket::Udp(socket))
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
            Ok(DnsSocket::Tcp(stream))
        }
    }
}

async fn read(stream: &TcpStream, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        stream.readable().await?;
        match stream.try_read(buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            outcome => return outcome,
        }
    }
}
