//! DNS as bytes and deadlines: the SRV and TXT questions of seed lists, and their answers.
//!
//! A [`Lookup`] is one question: the machine says which name server to ask what, and over which
//! transport, and a runtime moves the bytes. Implements as much of RFC 1035, RFC 2782, RFC 6891 and
//! RFC 7766 as a client of a recursive name server needs; addresses of hosts are left to the
//! operating system.

mod lookup;
mod message;
mod servers;
pub mod srv;
#[cfg(test)]
mod tests;

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

pub use lookup::{Action, ExchangeId, Input, Lookup};
pub use servers::{LeftOut, MAX_SERVERS, NameServers};

use crate::dns::srv::SrvRecord;

/// The greatest number of records that an answer may have.
pub const MAX_RECORDS: usize = 1000;

/// The longest message over TCP, in bytes; a datagram is never longer.
pub const MAX_MESSAGE_LEN: usize = 65_535;

/// Returns the address that a socket for datagrams to `server` is bound to: any of its family.
pub const fn any_address_for(server: SocketAddr) -> SocketAddr {
    let any = match server {
        SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    SocketAddr::new(any, 0)
}

/// The kind of record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RecordType {
    /// The place of a service: hosts and ports.
    Srv,
    /// Free text: the default options of a deployment.
    Txt,
}

impl fmt::Display for RecordType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Srv => "SRV",
            Self::Txt => "TXT",
        })
    }
}

/// A question for a name server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Question {
    /// The name, without a dot at its end.
    pub name: Arc<str>,
    /// The kind of record.
    pub record_type: RecordType,
}

impl Question {
    /// Asks for the hosts of a deployment: the SRV records of `_{service}._tcp.{hostname}`
    /// (Initial DNS Seedlist Discovery, "Querying DNS").
    pub fn srv(service: &str, hostname: &str) -> Self {
        let name = format!("_{service}._tcp.{}", without_final_dot(hostname));
        Self { name: name.into(), record_type: RecordType::Srv }
    }

    /// Asks for the default options of a deployment: the TXT records of `hostname` ("Default
    /// Connection String Options").
    pub fn txt(hostname: &str) -> Self {
        Self { name: without_final_dot(hostname).into(), record_type: RecordType::Txt }
    }
}

impl fmt::Display for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} records of {}", self.record_type, self.name)
    }
}

/// Returns a name without the dot that says that it is complete.
pub(crate) fn without_final_dot(name: &str) -> &str {
    name.strip_suffix('.').unwrap_or(name)
}

/// The answer of a name server: at least one record.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DnsRecords {
    /// SRV records, in the order of the answer.
    Srv(Vec<SrvRecord>),
    /// TXT records, the strings of each joined in their order.
    Txt(Vec<String>),
}

impl DnsRecords {
    /// Returns the SRV records.
    ///
    /// # Errors
    ///
    /// These are others, which only a resolver of the application's own can have brought about.
    pub fn into_srv(self, question: &Question) -> Result<Vec<SrvRecord>, DnsError> {
        match self {
            Self::Srv(records) => Ok(records),
            Self::Txt(_) => Err(DnsError::other_records(question)),
        }
    }

    /// Returns the TXT records.
    ///
    /// # Errors
    ///
    /// As [`into_srv`](Self::into_srv).
    pub fn into_txt(self, question: &Question) -> Result<Vec<String>, DnsError> {
        match self {
            Self::Txt(records) => Ok(records),
            Self::Srv(_) => Err(DnsError::other_records(question)),
        }
    }
}

/// The transport of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Transport {
    /// One datagram each way.
    Udp,
    /// A stream, on which the length of each message precedes it in two bytes.
    Tcp,
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Udp => "UDP",
            Self::Tcp => "TCP",
        })
    }
}

/// The reason why a lookup gave no records.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot look up the {question}: {cause}")]
#[non_exhaustive]
pub struct DnsError {
    /// The question.
    pub question: Question,
    /// The cause.
    pub cause: DnsCause,
}

impl DnsError {
    /// Says why `question` has no answer.
    pub const fn new(question: Question, cause: DnsCause) -> Self {
        Self { question, cause }
    }

    fn other_records(question: &Question) -> Self {
        let detail = "the resolver answered with records of another type";
        Self::new(question.clone(), DnsCause::Resolver(detail.into()))
    }

    /// Returns whether a name server said that there are no such records, as opposed to the lookup
    /// having failed.
    pub const fn is_absence(&self) -> bool {
        match self.cause {
            DnsCause::NoSuchName { .. } | DnsCause::NoRecords { .. } => true,
            DnsCause::Name(_)
            | DnsCause::NoNameServer
            | DnsCause::Unanswered { .. }
            | DnsCause::Resolver(_) => false,
        }
    }

    /// Returns whether every name server let its time pass.
    pub fn is_timeout(&self) -> bool {
        match &self.cause {
            DnsCause::Unanswered { servers } => {
                let failures = || servers.iter().map(|unanswered| &unanswered.failure);
                failures().all(|failure| matches!(failure, ServerFailure::Timeout(_)))
            }
            DnsCause::Name(_)
            | DnsCause::NoNameServer
            | DnsCause::NoSuchName { .. }
            | DnsCause::NoRecords { .. }
            | DnsCause::Resolver(_) => false,
        }
    }
}

/// The cause of a failed lookup.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DnsCause {
    /// The name is none that DNS can have.
    #[error("it is no name that DNS can have: {0}")]
    Name(NameError),
    /// There is no name server to ask.
    #[error("no name server is configured")]
    NoNameServer,
    /// The name does not exist (NXDOMAIN).
    #[error("name server {server} says that there is no such name (NXDOMAIN)")]
    NoSuchName {
        /// The name server.
        server: SocketAddr,
    },
    /// The name exists, but has no records of this type.
    #[error("name server {server} says that there are no such records")]
    NoRecords {
        /// The name server.
        server: SocketAddr,
    },
    /// No name server gave an answer that can be used.
    #[error("{}", join(servers))]
    Unanswered {
        /// The last error of each name server, in the order in which they were asked.
        servers: Vec<Unanswered>,
    },
    /// A resolver of the application's own failed.
    #[error("{0}")]
    Resolver(Arc<str>),
}

/// The reason why a text is no name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// It is empty, or two dots follow each other.
    #[error("a part of it is empty")]
    EmptyPart,
    /// The text between two dots is too long.
    #[error("a part of it has {0} bytes, and at most 63 are allowed")]
    LongPart(usize),
    /// It is too long.
    #[error("it has {0} bytes, and at most 253 are allowed")]
    TooLong(usize),
}

/// A name server that gave no answer, and the reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("name server {server} over {transport}: {failure}")]
#[non_exhaustive]
pub struct Unanswered {
    /// The name server.
    pub server: SocketAddr,
    /// The transport of the question.
    pub transport: Transport,
    /// The error.
    pub failure: ServerFailure,
}

impl Unanswered {
    /// Says why this server gave no answer.
    pub const fn new(server: SocketAddr, transport: Transport, failure: ServerFailure) -> Self {
        Self { server, transport, failure }
    }
}

/// The reason why a name server gave no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ServerFailure {
    /// Nothing came in the time allowed.
    #[error("no answer within {} ms", .0.as_millis())]
    Timeout(Duration),
    /// It cannot be reached, or closed the connection.
    #[error("{0}")]
    Unreachable(Arc<str>),
    /// It answered with an error.
    #[error("it answered with {0}")]
    Refused(&'static str),
    /// Its answer is no DNS message, has more records than allowed, or is not to the question.
    #[error("its answer is malformed: {0}")]
    Malformed(&'static str),
}

fn join(servers: &[Unanswered]) -> String {
    servers.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}
