//! Lookups of a deployment's hosts: which questions are asked, of which name server, and the task
//! that does so when it is time to look again.

use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use sdam_core::config::{Options, TcpOptions};
use sdam_core::diagnosis::{SLOW_LOOKUP, Verdict};
use sdam_core::dns::srv::{self, SrvError, SrvRecord};
use sdam_core::dns::{
    Action, DnsCause, DnsError, DnsRecords, ExchangeId, Input, Lookup, MAX_MESSAGE_LEN,
    NameServers, Question, Transport,
};
use sdam_core::machine::Machine;

use crate::net::reactor::{Lane, Reactor};
use crate::net::socket::{Socket, write_all};
use crate::sync::{CoopBudget, before};
use crate::system::{lookup_seed, name_servers};

/// A lookup in progress.
pub type LookupFuture<'a> = Pin<Box<dyn Future<Output = Result<DnsRecords, DnsError>> + Send + 'a>>;

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

/// The time that a question may take, all name servers and rounds included.
const LOOKUP_LIMIT: Duration = Duration::from_secs(60);

/// The function of an application that judges the hosts that DNS names.
#[derive(Clone)]
pub(crate) struct HostValidator(Arc<Judge>);

type Judge = dyn Fn(&str) -> Result<(), Arc<str>> + Send + Sync;

impl HostValidator {
    pub(crate) fn new<E: fmt::Display>(
        judge: impl Fn(&str) -> Result<(), E> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(move |host| judge(host).map_err(|error| error.to_string().into())))
    }

    /// Marks the hosts that it refuses.
    pub(crate) fn judge(&self, records: Vec<SrvRecord>) -> Vec<SrvRecord> {
        records.into_iter().map(|record| record.judged(&*self.0)).collect()
    }
}

impl fmt::Debug for HostValidator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostValidator").finish_non_exhaustive()
    }
}

/// The source of SRV and TXT records.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Records {
    /// The name servers that `/etc/resolv.conf` names at the time.
    System,
    /// Certain name servers.
    NameServers(NameServers),
    /// The application.
    Application(Arc<dyn Resolver>),
}

impl Records {
    /// Looks the records up that a question asks for.
    pub(crate) async fn look_up<R: Reactor>(
        &self,
        reactor: &R,
        question: Question,
    ) -> Result<DnsRecords, DnsError> {
        self.look_up_noting(reactor, question, &mut Vec::new()).await
    }

    /// As [`look_up`](Self::look_up), and takes note of name servers that gave no answer.
    async fn look_up_noting<R: Reactor>(
        &self,
        reactor: &R,
        question: Question,
        silent: &mut Vec<SocketAddr>,
    ) -> Result<DnsRecords, DnsError> {
        let asked = question.clone();
        let failed =
            |error: io::Error| DnsError::new(asked, DnsCause::Resolver(error.to_string().into()));
        let servers = match self {
            Self::NameServers(servers) => servers.clone(),
            Self::System => {
                let asked = question.clone();
                let read = reactor.block(Lane::Records, move || name_servers(&asked));
                read.await.map_err(failed)??
            }
            Self::Application(resolver) => {
                let resolver = Arc::clone(resolver);
                let work = async move { resolver.lookup(question).await };
                return reactor.drive(Lane::Records, work).await.map_err(failed)?;
            }
        };
        ask_name_servers(reactor, question, servers, silent).await
    }

    /// Returns a resolver that asks the same over the sockets of `reactor`, whose tasks poll it.
    pub fn resolver<R: Reactor>(self, reactor: R) -> impl Resolver {
        Asked { records: self, reactor }
    }
}

#[derive(Debug)]
struct Asked<R> {
    records: Records,
    reactor: R,
}

impl<R: Reactor> Resolver for Asked<R> {
    fn lookup(&self, question: Question) -> LookupFuture<'_> {
        Box::pin(self.records.look_up(&self.reactor, question))
    }
}

/// Asks name servers: moves the bytes that a [`Lookup`] wants moved.
async fn ask_name_servers<R: Reactor>(
    reactor: &R,
    question: Question,
    servers: NameServers,
    silent: &mut Vec<SocketAddr>,
) -> Result<DnsRecords, DnsError> {
    let seed = lookup_seed(&question)?;
    let mut lookup = Lookup::new(question, servers, seed);
    let (mut buffer, mut out) = (vec![0; MAX_MESSAGE_LEN], Vec::new());
    let (mut exchange, mut budget): (Option<Exchange<R::Socket>>, _) =
        (None, CoopBudget::default());
    lookup.tick(reactor.now().into(), &mut out);
    loop {
        for action in out.drain(..) {
            match action {
                Action::Ask { exchange: id, server, transport, query } => {
                    exchange = Some(Exchange { id, server, transport, query, socket: None });
                }
                Action::Finish { outcome } => {
                    silent.extend(lookup.unanswered().iter().map(|unanswered| unanswered.server));
                    return outcome;
                }
            }
        }
        let (Some(exchange), Some(deadline)) = (&mut exchange, lookup.deadline()) else {
            unreachable!("a lookup that is not over has an exchange and a deadline");
        };
        let receiving =
            before(reactor.sleep_until(deadline), exchange.receive(reactor, &mut buffer));
        let received = budget.step(receiving).await;
        let (exchange, now) = (exchange.id, reactor.now());
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

impl<S: Socket> Exchange<S> {
    /// Sends the query unless it was sent, and waits for a datagram or the next bytes.
    async fn receive<R: Reactor<Socket = S>>(
        &mut self,
        reactor: &R,
        buffer: &mut [u8],
    ) -> io::Result<usize> {
        let socket = match &mut self.socket {
            Some(socket) => socket,
            none => {
                let mut socket = match self.transport {
                    Transport::Udp => reactor.open_udp(self.server).await?,
                    Transport::Tcp => reactor.open_tcp(self.server, TcpOptions::default()).await?,
                };
                write_all(&mut socket, &self.query, None).await?;
                none.insert(socket)
            }
        };
        match (poll_fn(|cx| socket.poll_read(cx, buffer, None)).await?, self.transport) {
            (0, Transport::Tcp) => Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the server closed the connection",
            )),
            (length, _) => Ok(length),
        }
    }
}

/// Completes options whose seeds are in DNS; others stay as they are. Every lookup may take a
/// minute, whatever it does; one that took long is logged as well.
///
/// # Errors
///
/// Fails if DNS gives no hosts or options that can be used.
pub(crate) async fn complete<R: Reactor>(
    options: &Options,
    (records, validator): (&Records, Option<&HostValidator>),
    reactor: &R,
    seed: u64,
) -> Result<(Options, Option<Verdict>), SrvError> {
    let Some(srv) = options.srv().filter(|_| options.seeds().is_empty()) else {
        return Ok((options.clone(), None));
    };
    let (hosts, text) =
        (Question::srv(&srv.service_name, &srv.hostname), Question::txt(&srv.hostname));
    let (begun, mut silent) = (reactor.now(), Vec::new());
    let lookup = records.look_up_noting(reactor, hosts.clone(), &mut silent);
    let answer = in_time(&hosts, lookup, reactor.sleep(LOOKUP_LIMIT)).await;
    let hosts = answer.and_then(|answer| answer.into_srv(&hosts))?;
    let hosts = match validator {
        Some(validator) => validator.judge(hosts),
        None => hosts,
    };
    let lookup = records.look_up_noting(reactor, text.clone(), &mut silent);
    let answer = in_time(&text, lookup, reactor.sleep(LOOKUP_LIMIT)).await;
    let text = answer.and_then(|answer| answer.into_txt(&text));
    let took = reactor.now() - begun;
    let options = srv::complete(options, &hosts, text, seed)?;
    Ok((options, (took >= SLOW_LOOKUP).then(|| slow(&srv.hostname, took, silent))))
}

fn slow(hostname: &str, took: Duration, mut silent: Vec<SocketAddr>) -> Verdict {
    silent.sort_unstable();
    silent.dedup();
    let silent = silent.iter().map(ToString::to_string).collect();
    Verdict::LookupSlow { name: hostname.to_owned(), took, silent }
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
    L: Future<Output = Result<DnsRecords, DnsError>>,
    T: Future,
{
    let answer = in_time(&question, lookup(question.clone()), sleep(LOOKUP_LIMIT)).await;
    answer.and_then(|answer| answer.into_srv(&question))
}

async fn in_time(
    question: &Question,
    lookup: impl Future<Output = Result<DnsRecords, DnsError>>,
    end: impl Future,
) -> Result<DnsRecords, DnsError> {
    before(end, lookup).await.unwrap_or_else(|| {
        let detail = format!("no answer within {LOOKUP_LIMIT:?}");
        Err(DnsError::new(question.clone(), DnsCause::Resolver(detail.into())))
    })
}
