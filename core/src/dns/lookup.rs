//! One question, until it is answered or no name server is left to ask.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use super::message::{self, DnsReply};
use super::{
    DnsCause, DnsError, DnsRecords, MAX_MESSAGE_LEN, NameServers, Question, ServerFailure,
    Transport, Unanswered,
};
use crate::machine::Machine;
use crate::rng::Rng;
use crate::time::{Instant, Time};

/// The size of the length field of a message over TCP, in bytes.
const PREFIX_LEN: usize = 2;

/// One conversation with one name server; never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExchangeId(u32);

impl fmt::Display for ExchangeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// An input of a lookup; one for an exchange that is over is ignored.
///
/// The enum is exhaustive on purpose: code that drives, records or replays the machine must know
/// all inputs, so that a new one is a breaking change.
#[derive(Clone, Debug)]
pub enum Input<'a> {
    /// A datagram came from the server, or bytes of the TCP stream, split anywhere.
    Received {
        /// The exchange.
        exchange: ExchangeId,
        /// The bytes that have arrived.
        bytes: &'a [u8],
    },
    /// The socket failed, or the server closed the connection.
    Failed {
        /// The exchange.
        exchange: ExchangeId,
        /// The reason, in one clause.
        detail: Arc<str>,
    },
}

/// An action that a lookup asks for.
///
/// The enum is exhaustive on purpose: code that performs actions must miss none, so that a new one
/// is a breaking change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Drop the socket of any exchange before this one, open one to `server`, write `query`, and
    /// report what comes.
    ///
    /// A UDP socket must be connected, so that it takes datagrams of that server only, and have an
    /// unpredictable port, as operating systems choose by themselves.
    Ask {
        /// The exchange's name from now on.
        exchange: ExchangeId,
        /// The name server to ask.
        server: SocketAddr,
        /// The transport.
        transport: Transport,
        /// The bytes to write: a datagram, or the beginning of the stream.
        query: Vec<u8>,
    },
    /// Drop the socket; the lookup is over.
    Finish {
        /// The outcome.
        outcome: Result<DnsRecords, DnsError>,
    },
}

/// One question, until it is answered or no name server is left to ask.
///
/// Name servers are asked in turn. "There is no such name" is an answer; an error, silence and
/// nonsense are not. An answer that does not fit in a datagram is asked for again over TCP, from
/// the same server.
///
/// Queries allow answers of 1,232 bytes over UDP, by EDNS (RFC 6891). A server that does not
/// understand that is asked without at once, and one that gave no answer in its next turn.
#[derive(Clone, Debug)]
pub struct Lookup {
    question: Question,
    servers: NameServers,
    rng: Rng,
    /// The number of times that a server was chosen.
    turns: usize,
    exchanges: u32,
    state: LookupState,
    /// The last error of each server.
    unanswered: Vec<Unanswered>,
}

#[derive(Clone, Debug)]
enum LookupState {
    New,
    Asking(Exchange),
    Finished,
}

#[derive(Clone, Debug)]
struct Exchange {
    id: ExchangeId,
    query_id: u16,
    server: SocketAddr,
    transport: Transport,
    /// True if the query has EDNS.
    edns: bool,
    deadline: Instant,
    /// The bytes received over TCP.
    stream: Vec<u8>,
}

impl Lookup {
    /// Begins a lookup, for which the first [`tick`](Machine::tick) is due at once; the numbers of
    /// its queries are made of `seed`, which must be unpredictable.
    pub const fn new(question: Question, servers: NameServers, seed: u64) -> Self {
        Self {
            question,
            servers,
            rng: Rng::new(seed),
            turns: 0,
            exchanges: 0,
            state: LookupState::New,
            unanswered: Vec::new(),
        }
    }

    /// Returns the last error of each server that gave no answer.
    pub fn unanswered(&self) -> &[Unanswered] {
        &self.unanswered
    }

    /// Asks the next server, or finishes if all had their turns.
    fn ask_next(&mut self, now: Instant, out: &mut Vec<Action>) {
        match self.servers.in_turn(self.turns) {
            Some(server) => {
                self.turns += 1;
                // Some that know nothing of EDNS answer by silence, or with any error.
                let edns = self.unanswered.iter().all(|earlier| earlier.server != server);
                self.ask(server, Transport::Udp, edns, now, out);
            }
            None => {
                let servers = std::mem::take(&mut self.unanswered);
                let cause = match servers.is_empty() {
                    true => DnsCause::NoNameServer,
                    false => DnsCause::Unanswered { servers },
                };
                self.fail(cause, out);
            }
        }
    }

    fn ask(
        &mut self,
        server: SocketAddr,
        transport: Transport,
        edns: bool,
        now: Instant,
        out: &mut Vec<Action>,
    ) {
        let [high, low, ..] = self.rng.next_u64().to_be_bytes();
        let query_id = u16::from_be_bytes([high, low]);
        let mut query = match message::query(&self.question, query_id, edns) {
            Ok(query) => query,
            Err(error) => return self.fail(DnsCause::Name(error), out),
        };
        if transport == Transport::Tcp {
            let length = u16::try_from(query.len()).expect("a query is short");
            query.splice(..0, length.to_be_bytes());
        }
        let (id, deadline) = (ExchangeId(self.exchanges), now + self.servers.patience());
        self.exchanges += 1;
        let stream = Vec::new();
        self.state = LookupState::Asking(Exchange {
            id,
            query_id,
            server,
            transport,
            edns,
            deadline,
            stream,
        });
        out.push(Action::Ask { exchange: id, server, transport, query });
    }

    fn fail(&mut self, cause: DnsCause, out: &mut Vec<Action>) {
        self.finish(Err(DnsError::new(self.question.clone(), cause)), out);
    }

    fn finish(&mut self, outcome: Result<DnsRecords, DnsError>, out: &mut Vec<Action>) {
        self.state = LookupState::Finished;
        out.push(Action::Finish { outcome });
    }

    /// Notes what is wrong with the server that was asked, and asks the next one.
    fn give_up_on_server(&mut self, failure: ServerFailure, now: Instant, out: &mut Vec<Action>) {
        if let LookupState::Asking(Exchange { server, transport, .. }) = self.state {
            self.unanswered.retain(|earlier| earlier.server != server);
            self.unanswered.push(Unanswered { server, transport, failure });
            self.ask_next(now, out);
        }
    }

    fn received(&mut self, id: ExchangeId, bytes: &[u8], now: Instant, out: &mut Vec<Action>) {
        let LookupState::Asking(exchange) = &mut self.state else { return };
        if exchange.id != id {
            return;
        }
        let reply = match exchange.transport {
            Transport::Udp => message::read(bytes, &self.question, exchange.query_id),
            Transport::Tcp => {
                let room = (PREFIX_LEN + MAX_MESSAGE_LEN) - exchange.stream.len();
                exchange.stream.extend_from_slice(&bytes[..bytes.len().min(room)]);
                match first_message(&exchange.stream) {
                    Some(message) => message::read(message, &self.question, exchange.query_id),
                    None => return,
                }
            }
        };
        let Exchange { server, transport, edns, .. } = *exchange;
        match (reply, transport) {
            (DnsReply::Records(answer), _) => self.finish(Ok(answer), out),
            (DnsReply::NoSuchName, _) => self.fail(DnsCause::NoSuchName { server }, out),
            (DnsReply::NoRecords, _) => self.fail(DnsCause::NoRecords { server }, out),
            (DnsReply::Truncated, Transport::Udp) => {
                self.ask(server, Transport::Tcp, edns, now, out);
            }
            (DnsReply::NotUnderstood(_), _) if edns => self.ask(server, transport, false, now, out),
            (DnsReply::NotUnderstood(code), _) => {
                self.give_up_on_server(ServerFailure::Refused(code), now, out);
            }
            // Late, or forged: the answer may still come.
            (DnsReply::Foreign, Transport::Udp) => {}
            (DnsReply::Truncated, Transport::Tcp) => {
                self.give_up_on_server(ServerFailure::Malformed("it was cut over TCP"), now, out);
            }
            (DnsReply::Foreign, Transport::Tcp) => {
                let failure = ServerFailure::Malformed("it answers another question");
                self.give_up_on_server(failure, now, out);
            }
            (DnsReply::Failed(failure), _) => self.give_up_on_server(failure, now, out),
        }
    }
}

/// Returns the first message of a stream, once all of it has come.
fn first_message(stream: &[u8]) -> Option<&[u8]> {
    let (prefix, rest) = stream.split_first_chunk::<PREFIX_LEN>()?;
    rest.get(..u16::from_be_bytes(*prefix).into())
}

impl Machine for Lookup {
    type Input<'a> = Input<'a>;
    type Action = Action;

    fn handle(&mut self, now: Time, input: Input<'_>, out: &mut Vec<Action>) {
        self.tick(now, out);
        let now = now.clock;
        match input {
            Input::Received { exchange, bytes } => self.received(exchange, bytes, now, out),
            Input::Failed { exchange, detail } => {
                if let LookupState::Asking(asking) = &self.state
                    && asking.id == exchange
                {
                    self.give_up_on_server(ServerFailure::Unreachable(detail), now, out);
                }
            }
        }
    }

    fn tick(&mut self, now: Time, out: &mut Vec<Action>) {
        match &self.state {
            LookupState::New => self.ask_next(now.clock, out),
            LookupState::Asking(exchange) if exchange.deadline <= now.judged => {
                let failure = ServerFailure::Timeout(self.servers.patience());
                self.give_up_on_server(failure, now.clock, out);
            }
            LookupState::Asking(_) | LookupState::Finished => {}
        }
    }

    fn deadline(&self) -> Option<Instant> {
        match &self.state {
            LookupState::New => Some(Instant::ZERO),
            LookupState::Asking(exchange) => Some(exchange.deadline),
            LookupState::Finished => None,
        }
    }
}
