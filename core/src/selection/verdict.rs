//! The likely cause of a selection that found no server.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use super::error::seconds;
use super::snapshot::Refusal;
use crate::config::ServerAddress;
use crate::description::{Incompatibility, Removal, millis};
use crate::failure::Stage;
use crate::process::Forked;

/// The advice about another replica set.
const CORRECT_SET: &str = "correct replicaSet or the hosts in the connection string";

/// The number of members that a text names.
const MAX_NAMED: usize = 5;

/// The text about name servers that do not answer.
const LOOKUPS_FAIL: &str = "no host name can be looked up, because the name servers do not answer; \
    check them and the network";

/// The text about closed connections to servers that may expect TLS.
const TLS_EXPECTED: &str = "servers close the connection at the first message; they may expect TLS \
    (tls=true) or accept no more connections";

/// The text about closed connections to servers that have answered before.
const CONNECTIONS_CLOSED: &str = "servers close the connection at the first message, and have \
    answered without TLS before; they may be shutting down, or accept no more connections";

/// The likely cause of a selection that found no server; serialised, its kind is under `verdict`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "verdict", rename_all = "camelCase", rename_all_fields = "camelCase")]
#[non_exhaustive]
pub enum Verdict {
    /// The client and a server share no version of the wire protocol.
    IncompatibleWireVersion {
        /// Which server, and which versions.
        incompatibility: Incompatibility,
    },
    /// The maximum of staleness is too small for this deployment.
    MaxStalenessTooSmall {
        /// The value that was asked for.
        #[serde(rename = "givenMS", serialize_with = "millis")]
        given: Duration,
        /// The least that is allowed.
        #[serde(rename = "leastMS", serialize_with = "millis")]
        least: Duration,
    },
    /// The client was closed.
    Closed,
    /// The client is another process's.
    Forked(Forked),
    /// The servers are in another replica set than was asked for.
    SetNameDiffers {
        /// The name that was asked for.
        wanted: String,
        /// The name that a server gave.
        found: Option<String>,
    },
    /// Every server has left the topology, and the seeds, if they have joined again, have not been
    /// checked yet.
    NoServersLeft {
        /// Which was the last one, and why it was removed.
        removal: Option<Removal>,
    },
    /// No check has begun yet.
    NotCheckedYet,
    /// The first checks are in progress.
    NoAnswerYet {
        /// The stage that all have reached, if it is the same.
        stage: Option<Stage>,
        /// For how long the oldest one has been in progress.
        #[serde(rename = "lastsMS", serialize_with = "millis")]
        lasts: Duration,
    },
    /// A server answered, but its replica set lists other addresses only, and none of them leads to
    /// a member from here.
    MembersElsewhere {
        /// The server that answered.
        seed: ServerAddress,
        /// The address by which its set knows it.
        called: Option<ServerAddress>,
        /// All addresses that the set lists.
        members: Vec<ServerAddress>,
    },
    /// No name of a server resolves.
    NamesDoNotResolve,
    /// No name of a server can be looked up: the resolver gives no answer.
    LookupsFail,
    /// Every server refused the connection.
    ConnectionRefused,
    /// Servers close the connection at the first message: they may expect TLS.
    TlsExpected,
    /// Servers close the connection at the first message, and have answered without TLS before.
    ConnectionsClosed,
    /// Servers do not answer in TLS: they may not want it.
    TlsNotExpected,
    /// No server has a certificate that is acceptable.
    CertificatesRefused,
    /// The proxy cannot be reached, or leads to no server.
    ProxyFailed,
    /// No server answers.
    NoAnswer,
    /// No server answers as it should, each for its own reason.
    NoServerAvailable,
    /// The server is a member of no replica set, or not yet.
    NotInitiated,
    /// The members that answer have no primary.
    NoPrimary {
        /// For how long.
        #[serde(rename = "sinceMS", serialize_with = "millis")]
        since: Duration,
    },
    /// No secondary is available.
    NoSecondary,
    /// No available server has the tags asked for.
    NoTagMatch,
    /// Every secondary is too stale.
    TooStale {
        /// By how much the freshest of them is.
        #[serde(rename = "byMS", serialize_with = "millis")]
        by: Duration,
    },
    /// The application's own condition refuses every suitable server.
    PredicateRefused,
    /// Servers are available, but none of a type that would do.
    WrongServerType,
}

impl Verdict {
    /// Returns the name, as in JSON: a label for metrics, which stays as it is.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::IncompatibleWireVersion { .. } => "incompatibleWireVersion",
            Self::MaxStalenessTooSmall { .. } => "maxStalenessTooSmall",
            Self::Closed => "closed",
            Self::Forked(_) => "forked",
            Self::SetNameDiffers { .. } => "setNameDiffers",
            Self::NoServersLeft { .. } => "noServersLeft",
            Self::NotCheckedYet => "notCheckedYet",
            Self::NoAnswerYet { .. } => "noAnswerYet",
            Self::MembersElsewhere { .. } => "membersElsewhere",
            Self::NamesDoNotResolve => "namesDoNotResolve",
            Self::LookupsFail => "lookupsFail",
            Self::ConnectionRefused => "connectionRefused",
            Self::TlsExpected => "tlsExpected",
            Self::ConnectionsClosed => "connectionsClosed",
            Self::TlsNotExpected => "tlsNotExpected",
            Self::CertificatesRefused => "certificatesRefused",
            Self::ProxyFailed => "proxyFailed",
            Self::NoAnswer => "noAnswer",
            Self::NoServerAvailable => "noServerAvailable",
            Self::NotInitiated => "notInitiated",
            Self::NoPrimary { .. } => "noPrimary",
            Self::NoSecondary => "noSecondary",
            Self::NoTagMatch => "noTagMatch",
            Self::TooStale { .. } => "tooStale",
            Self::PredicateRefused => "predicateRefused",
            Self::WrongServerType => "wrongServerType",
        }
    }
}

impl From<Refusal> for Verdict {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Incompatible(incompatibility) => {
                Self::IncompatibleWireVersion { incompatibility }
            }
            Refusal::MaxStaleness { given, least } => Self::MaxStalenessTooSmall { given, least },
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::IncompatibleWireVersion { incompatibility } => {
                f.write_str(incompatibility.to_string().trim_end_matches('.'))
            }
            Self::MaxStalenessTooSmall { given, least } => {
                Refusal::MaxStaleness { given: *given, least: *least }.fmt(f)
            }
            Self::Closed => f.write_str("the client was closed"),
            Self::Forked(forked) => forked.fmt(f),
            Self::SetNameDiffers { wanted, found } => differs(f, wanted, found.as_deref()),
            Self::NoServersLeft { removal: Some(removal) } => {
                write!(f, "no server is left: {removal}; {}", removal.removal_reason.remedy())
            }
            Self::NoServersLeft { removal: None } => {
                f.write_str("no server is left; check the seeds and the replicaSet option")
            }
            Self::NotCheckedYet => f.write_str("no server has been checked yet"),
            Self::NoAnswerYet { stage, lasts } => {
                let lasts = seconds(*lasts);
                write!(f, "no server has answered yet; checks have been in progress for {lasts}")?;
                stage.map_or(Ok(()), |stage| write!(f, " (stage: {})", stage.words()))
            }
            Self::MembersElsewhere { seed, called, members } => {
                elsewhere(f, seed, called.as_ref(), members)
            }
            Self::NamesDoNotResolve => f.write_str(
                "no host name of a server has an address; check the hosts in the connection string",
            ),
            Self::LookupsFail => f.write_str(LOOKUPS_FAIL),
            Self::ConnectionRefused => f.write_str(
                "every server refused the connection; check the ports, and that the servers run",
            ),
            Self::TlsExpected => f.write_str(TLS_EXPECTED),
            Self::ConnectionsClosed => f.write_str(CONNECTIONS_CLOSED),
            Self::TlsNotExpected => {
                f.write_str("servers do not answer in TLS; they may not support it")
            }
            Self::CertificatesRefused => f.write_str(
                "no server has a certificate that is trusted; check tlsCAFile and the certificates",
            ),
            Self::ProxyFailed => f.write_str(
                "the proxy cannot be reached, or does not reach a server; check proxyHost and its \
                 rules",
            ),
            Self::NoAnswer => {
                f.write_str("no server answers; check the network, and that the servers run")
            }
            Self::NoServerAvailable => f.write_str("no server is available"),
            Self::NotInitiated => {
                f.write_str("the server is not a member of a replica set yet; initiate the set")
            }
            Self::NoPrimary { since } => {
                write!(f, "the replica set has had no primary for {}", seconds(*since))
            }
            Self::NoSecondary => f.write_str("no secondary is available"),
            Self::NoTagMatch => {
                f.write_str("no available server has the tags of the read preference")
            }
            Self::TooStale { by } => {
                write!(f, "every secondary is too stale, the freshest by {}", seconds(*by))
            }
            Self::PredicateRefused => {
                f.write_str("the application's predicate refuses every suitable server")
            }
            Self::WrongServerType => {
                f.write_str("servers are available, but none has the type that the operation needs")
            }
        }
    }
}

fn differs(f: &mut fmt::Formatter<'_>, wanted: &str, found: Option<&str>) -> fmt::Result {
    let place = match found {
        Some(found) => format!("in replica set {found:?}, not in {wanted:?}"),
        None => format!("not in replica set {wanted:?}"),
    };
    write!(f, "the servers are {place} as asked for; {CORRECT_SET}")
}

fn elsewhere(
    f: &mut fmt::Formatter<'_>,
    seed: &ServerAddress,
    called: Option<&ServerAddress>,
    members: &[ServerAddress],
) -> fmt::Result {
    write!(f, "{seed} answered, but its replica set lists only ")?;
    let named: Vec<String> = members.iter().take(MAX_NAMED).map(ToString::to_string).collect();
    f.write_str(&named.join(", "))?;
    match members.len().saturating_sub(MAX_NAMED) {
        0 => {}
        rest => write!(f, " and {rest} more")?,
    }
    f.write_str(
        ", which do not lead to its members from here; reconfigure the set with addresses that do, \
         map those addresses",
    )?;
    if let Some(called) = called {
        write!(f, " (as in --map {called}={seed})")?;
    }
    f.write_str(", or connect directly to one member (directConnection=true)")
}
