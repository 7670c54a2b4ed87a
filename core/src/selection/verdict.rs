//! The likely cause of a selection that found no server.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use super::error::{Trouble, seconds};
use super::explain::{Explanation, Reason};
use super::snapshot::{Refusal, Snapshot};
use super::suitable::is_replica_set;
use crate::description::{Incompatibility, ServerType, TopologyType, millis};
use crate::failure::{Cause, Failure, Stage};
use crate::process::Forked;
use crate::selection::{Criteria, ReadMode};

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
        /// What was asked for.
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
    NoServersLeft,
    /// No check has ended yet.
    NotCheckedYet,
    /// A seed answered, but the names by which members know each other do not resolve here.
    MembersDoNotResolve,
    /// No name of a server resolves.
    NamesDoNotResolve,
    /// Every server refused the connection.
    ConnectionRefused,
    /// Servers close the connection when they are greeted: they may want TLS.
    TlsExpected,
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

/// What is known beside the snapshot when a verdict is to be found.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Circumstances<'a> {
    /// The replica set name that was asked for.
    pub(crate) wanted_set: Option<&'a str>,
    /// The name of another set, by which a server was removed.
    pub(crate) found_set: Option<&'a str>,
    /// Whether any server has ever answered.
    pub(crate) any_answered: bool,
    /// Whether the last server was removed, and none has answered since that stays.
    pub(crate) emptied: bool,
    /// Whether connections use TLS.
    pub(crate) tls: bool,
    /// How long there has been no primary.
    pub(crate) without_primary: Duration,
}

impl Verdict {
    /// Finds the likely cause; the most specific one that the evidence supports wins.
    pub(crate) fn find(
        snapshot: &Snapshot,
        criteria: &Criteria,
        explanation: &Explanation,
        troubles: &[Trouble],
        circumstances: Circumstances<'_>,
    ) -> Self {
        let description = snapshot.description();
        let is_empty =
            description.servers().is_empty() || (circumstances.emptied && troubles.is_empty());
        let wrong_set = troubles.iter().any(|t| t.failure.cause == Cause::WrongSetName);
        if let Some(wanted) = circumstances.wanted_set
            && (wrong_set || (is_empty && circumstances.found_set.is_some()))
        {
            let found = circumstances.found_set.map(str::to_owned);
            return Self::SetNameDiffers { wanted: wanted.to_owned(), found };
        }
        if is_empty {
            return Self::NoServersLeft;
        }
        let available = |server: &ServerType| *server != ServerType::Unknown;
        let types: Vec<ServerType> =
            explanation.servers.iter().map(|server| server.server_type).filter(available).collect();
        if types.is_empty() {
            return Self::of_troubles(troubles, circumstances);
        }
        if types.iter().all(|server| *server == ServerType::RsGhost) {
            return Self::NotInitiated;
        }
        Self::of_reasons(explanation).unwrap_or_else(|| {
            Self::of_types(description.topology_type, criteria, &types, circumstances)
        })
    }

    /// No server is available: what do their failures have in common?
    fn of_troubles(troubles: &[Trouble], circumstances: Circumstances<'_>) -> Self {
        let all = |holds: fn(&Trouble) -> bool| troubles.iter().all(holds);
        if troubles.is_empty() {
            Self::NotCheckedYet
        } else if all(|trouble| trouble.failure.stage == Stage::Proxy) {
            Self::ProxyFailed
        } else if all(|trouble| is_about_certificate(&trouble.failure.cause)) {
            Self::CertificatesRefused
        } else if all(|trouble| is_without_tls(&trouble.failure)) {
            Self::TlsNotExpected
        } else if all(|trouble| trouble.failure.cause == Cause::NotResolved) {
            match circumstances.any_answered {
                true => Self::MembersDoNotResolve,
                false => Self::NamesDoNotResolve,
            }
        } else if all(|trouble| trouble.failure.cause == Cause::Refused) {
            Self::ConnectionRefused
        } else if !circumstances.tls
            && all(|t| t.failure.stage == Stage::Hello && t.failure.cause == Cause::Closed)
        {
            Self::TlsExpected
        } else if all(|trouble| trouble.failure.cause == Cause::Timeout) {
            Self::NoAnswer
        } else {
            Self::NoServerAvailable
        }
    }

    /// Servers are of the right type, yet something else is wrong with each of them.
    fn of_reasons(explanation: &Explanation) -> Option<Self> {
        let reasons = || explanation.servers.iter().map(|server| &server.reason);
        let stale = reasons().filter_map(|reason| match reason {
            Reason::TooStale { by } => Some(*by),
            _ => None,
        });
        if reasons().any(|reason| *reason == Reason::Predicate) {
            Some(Self::PredicateRefused)
        } else if reasons().any(|reason| *reason == Reason::NoTagMatch) {
            Some(Self::NoTagMatch)
        } else {
            stale.min().map(|by| Self::TooStale { by })
        }
    }

    /// Servers are available, but of the wrong types.
    fn of_types(
        topology: TopologyType,
        criteria: &Criteria,
        types: &[ServerType],
        circumstances: Circumstances<'_>,
    ) -> Self {
        if !is_replica_set(topology) {
            return Self::WrongServerType;
        }
        match criteria.mode() {
            ReadMode::Primary => Self::NoPrimary { since: circumstances.without_primary },
            ReadMode::Secondary => Self::NoSecondary,
            ReadMode::PrimaryPreferred | ReadMode::SecondaryPreferred | ReadMode::Nearest => {
                debug_assert!(!types.is_empty());
                Self::WrongServerType
            }
        }
    }
}

const fn is_about_certificate(cause: &Cause) -> bool {
    matches!(
        cause,
        Cause::CertificateExpired
            | Cause::UnknownIssuer
            | Cause::CertificateName
            | Cause::CertificateInvalid
    )
}

/// A server that does not expect TLS either says something else, or hangs up.
const fn is_without_tls(failure: &Failure) -> bool {
    matches!((failure.stage, &failure.cause), (Stage::Tls, Cause::NotTls | Cause::Closed))
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
            Self::SetNameDiffers { wanted, found: Some(found) } => {
                write!(f, "the servers are in replica set {found:?}, not {wanted:?} as asked for")
            }
            Self::SetNameDiffers { wanted, found: None } => {
                write!(f, "the servers are not in replica set {wanted:?} as asked for")
            }
            Self::NoServersLeft => f.write_str(
                "every server has left the topology, because it was not what the others or the \
                 options said; check the seeds and the replicaSet option",
            ),
            Self::NotCheckedYet => f.write_str("no server has been checked yet"),
            Self::MembersDoNotResolve => f.write_str(
                "the members of the replica set know each other by names that do not resolve here; \
                 make the names resolve, or connect directly to one member",
            ),
            Self::NamesDoNotResolve => f.write_str("no name of a server resolves"),
            Self::ConnectionRefused => f.write_str("every server refused the connection"),
            Self::TlsExpected => f.write_str(
                "servers close the connection when they are greeted; they may expect TLS",
            ),
            Self::TlsNotExpected => {
                f.write_str("servers do not answer in TLS; they may not expect it")
            }
            Self::CertificatesRefused => {
                f.write_str("no server has a certificate that is acceptable")
            }
            Self::ProxyFailed => f.write_str("the proxy cannot be reached, or leads to no server"),
            Self::NoAnswer => f.write_str("no server answers"),
            Self::NoServerAvailable => f.write_str("no server is available"),
            Self::NotInitiated => {
                f.write_str("the server belongs to no replica set yet; initiate it")
            }
            Self::NoPrimary { since } => {
                write!(f, "the replica set has had no primary for {}", seconds(*since))
            }
            Self::NoSecondary => f.write_str("no secondary is available"),
            Self::NoTagMatch => f.write_str("no available server has the tags asked for"),
            Self::TooStale { by } => {
                write!(f, "every secondary is too stale, the freshest by {}", seconds(*by))
            }
            Self::PredicateRefused => {
                f.write_str("the application's predicate refuses every suitable server")
            }
            Self::WrongServerType => {
                f.write_str("servers are available, but none of a type that would do")
            }
        }
    }
}
