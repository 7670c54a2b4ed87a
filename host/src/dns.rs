//! Lookups of a deployment's hosts: which questions are asked, of which name server, and the task
//! that does so when it is time to look again.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::time::Duration;
use std::{fmt, io};

use sdam_core::config::Options;
use sdam_core::dns::srv::{self, SrvError, SrvRecord};
use sdam_core::dns::{
    Action, Answer, DnsCause, DnsError, ExchangeId, Input, Lookup, MAX_MESSAGE_LEN, NameServers,
    Question, Transport,
};
use sdam_core::machine::Machine;
use sdam_core::time::Instant;

use crate::sync::{Streak, before};

/// A lookup in progress.
pub type LookupFuture<'a> = Pin<Box<dyn Future<Output = Result<Answer, DnsError>> + Send + 'a>>;

/// Looks up the records of a `mongodb+srv://` deployment.
///
/// Runtimes ask the name servers that the system is configured with. An application can bring its
/// own resolver, where that configuration is not in a file, say.
pub trait Resolver: fmt::Debug + Send + Sync + 'static {
    /// Looks up the records that `question` asks for.
    ///
    /// A lookup that has not ended after a minute is given up. That there are no records is
    /// [`DnsCause::NoRecords`](sdam_core::dns::DnsCause::NoRecords) or
    /// [`DnsCause::NoSuchName`](sdam_core::dns::DnsCause::NoSuchName), which for TXT records is no
    /// failure; for errors of its own it has
    /// [`DnsCause::Resolver`](sdam_core::dns::DnsCause::Resolver).
    fn lookup(&self, question: Question) -> LookupFuture<'_>;
}

/// How long a question may take, all name servers and rounds included.
const LOOKUP_LIMIT: Duration = Duration::from_secs(60);

/// A conversation with one name server, over a socket of the runtime.
pub trait NameServerSocket: Sized + Send {
    /// Opens a socket to `server`, and sends `query`.
    fn open(
        server: SocketAddr,
        transport: Transport,
        query: &[u8],
    ) -> impl Future<Output = io::Result<Self>> + Send;

    /// Waits for a datagram, or for the next bytes; 0 at the end of a stream.
    fn receive(&mut self, buffer: &mut [u8]) -> impl Future<Output = io::Result<usize>> + Send;
}

/// Asks name servers over sockets of kind `S`: moves the bytes that a [`Lookup`] wants moved.
///
/// `seed` is random; `now` reads a clock whose origin is the beginning of this call, and
/// `sleep_until` waits for a time of it.
///
/// # Errors
///
/// Fails if no name server has an answer.
pub async fn ask_name_servers<S: NameServerSocket, T: Future>(
    question: Question,
    servers: NameServers,
    seed: u64,
    now: impl Fn() -> Instant,
    sleep_until: impl Fn(Instant) -> T,
) -> Result<Answer, DnsError> {
    let mut lookup = Lookup::new(question, servers, seed);
    let (mut buffer, mut out) = (vec![0; MAX_MESSAGE_LEN], Vec::new());
    let (mut exchange, mut streak): (Option<Exchange<S>>, _) = (None, Streak::default());
    lookup.tick(Instant::ZERO.into(), &mut out);
    loop {
        for action in out.drain(..) {
            match action {
                Action::Ask { exchange: id, server, transport, query } => {
                    exchange = Some(Exchange { id, server, transport, query, socket: None });
                }
                Action::Finish { outcome } => return outcome,
            }
        }
        let (Some(exchange), Some(deadline)) = (&mut exchange, lookup.deadline()) else {
            unreachable!("a lookup that is not over has an exchange and a deadline");
        };
        let receiving = before(sleep_until(deadline), exchange.receive(&mut buffer));
        let received = streak.step(receiving).await;
        let (exchange, now) = (exchange.id, now());
        match received {
            None => lookup.tick(now.into(), &mut out),
            Some(Ok(length)) => {
                let bytes = &buffer[..length];
                lookup.handle(now.into(), Input::Received { exchange, bytes }, &mut out);
            }
            Some(Err(error)) => {
                let detail = error.to_string().into();
                lookup.handle(now.into(), Input::Failed { exchange, detail }, &mut out);
            }
        }
    }
}

/// One conversation with one name server.
struct Exchange<S> {
    id: ExchangeId,
    server: SocketAddr,
    transport: Transport,
    query: Vec<u8>,
    /// Once the query was sent.
    socket: Option<S>,
}

impl<S: NameServerSocket> Exchange<S> {
    /// Sends the query unless it was sent, and waits for a datagram or the next bytes.
    async fn receive(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let socket = match &mut self.socket {
            Some(socket) => socket,
            none => none.insert(S::open(self.server, self.transport, &self.query).await?),
        };
        match (socket.receive(buffer).await?, self.transport) {
            (0, Transport::Tcp) => Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the server closed the connection",
            )),
            (length, _) => Ok(length),
        }
    }
}

/// Completes options whose seeds are in DNS; others stay as they are. `seed` is random, and every
/// lookup may take a minute, whatever it does.
///
/// # Errors
///
/// Fails if DNS gives no hosts or options that can be used.
pub async fn complete_from_dns<L, T>(
    options: &Options,
    seed: u64,
    lookup: impl Fn(Question) -> L,
    sleep: impl Fn(Duration) -> T,
) -> Result<Options, SrvError>
where
    L: Future<Output = Result<Answer, DnsError>>,
    T: Future,
{
    let Some(srv) = options.srv().filter(|_| options.seeds().is_empty()) else {
        return Ok(options.clone());
    };
    let question = Question::srv(&srv.service_name, &srv.hostname);
    let records = srv_records(question, &lookup, &sleep).await?;
    let question = Question::txt(&srv.hostname);
    let answer = in_time(&question, lookup(question.clone()), sleep(LOOKUP_LIMIT)).await;
    let txt = answer.and_then(|answer| answer.into_txt(&question));
    srv::complete(options, &records, txt, seed)
}

/// Looks SRV records up, which may take a minute, whatever `lookup` does.
///
/// # Errors
///
/// Fails if there are none.
pub async fn srv_records<L, T>(
    question: Question,
    lookup: impl Fn(Question) -> L,
    sleep: impl Fn(Duration) -> T,
) -> Result<Vec<SrvRecord>, DnsError>
where
    L: Future<Output = Result<Answer, DnsError>>,
    T: Future,
{
    let answer = in_time(&question, lookup(question.clone()), sleep(LOOKUP_LIMIT)).await;
    answer.and_then(|answer| answer.into_srv(&question))
}

async fn in_time(
    question: &Question,
    lookup: impl Future<Output = Result<Answer, DnsError>>,
    end: impl Future,
) -> Result<Answer, DnsError> {
    before(end, lookup).await.unwrap_or_else(|| {
        let detail = format!("no answer within {LOOKUP_LIMIT:?}");
        Err(DnsError::new(question.clone(), DnsCause::Resolver(detail.into())))
    })
}
