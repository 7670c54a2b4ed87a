//! The meaning of one failure by itself: what the rules for several and for one operation share.

use std::time::Duration;

use super::verdict::Verdict;
use crate::config::ServerAddress;
use crate::failure::{Cause, Failure, Stage};

/// The alerts by which TLS ends without a word of what is wrong: `access_denied`, and
/// `internal_error`, which proxies send to whom they do not let in (RFC 8446, section 6).
const NO_ACCESS: [u8; 2] = [49, 80];

/// The protocol in which a peer answers that expects TLS.
pub(super) const TLS: &str = "TLS";

/// Returns the verdict on a failure to connect that needs no other evidence, if there is one.
pub(super) fn of_connecting(server: &ServerAddress, failure: &Failure) -> Option<Verdict> {
    let atlas = is_of_atlas(server);
    match &failure.cause {
        Cause::CertificateUnsupported { unsupported } => {
            let (server, unsupported) = (server.clone(), *unsupported);
            Some(Verdict::CertificateUnsupported { server, unsupported })
        }
        Cause::CertificateRevoked => {
            let (server, reason) = (server.clone(), failure.detail.to_string());
            Some(Verdict::CertificateRevoked { server, reason })
        }
        Cause::InvalidStaple => {
            let (server, reason) = (server.clone(), failure.detail.to_string());
            Some(Verdict::StapleInvalid { server, reason })
        }
        _ if failure.stage == Stage::Certificates => {
            Some(Verdict::CertificatesUnavailable { reason: failure.detail.to_string() })
        }
        _ if is_about_certificate(&failure.cause) => Some(Verdict::CertificatesRefused),
        _ if is_without_access(&failure.cause) => Some(Verdict::AccessRefused { atlas }),
        Cause::OtherProtocol { protocol } if &**protocol == TLS => {
            Some(Verdict::TlsExpected { certain: true })
        }
        Cause::OtherProtocol { protocol } => {
            Some(Verdict::NotMongo { server: server.clone(), protocol: protocol.to_string() })
        }
        Cause::NotTls => Some(Verdict::TlsNotExpected { certain: true }),
        Cause::LookupFailed => Some(Verdict::LookupFailed { reason: None }),
        _ if failure.stage == Stage::Proxy => Some(Verdict::ProxyFailed),
        _ => None,
    }
}

/// Returns the verdict on a failure to reach a server, as far as the failure alone shows it;
/// `waited` is the time after which an attempt without an answer was given up.
pub(super) fn of_reaching(
    server: &ServerAddress,
    failure: &Failure,
    waited: Duration,
) -> Option<Verdict> {
    of_connecting(server, failure).or_else(|| match (failure.stage, &failure.cause) {
        _ if is_without_socket(server, failure) => Some(Verdict::SocketUnusable),
        (_, Cause::Unreachable) => Some(Verdict::Unreachable),
        (_, Cause::NotResolved) => Some(Verdict::NamesDoNotResolve),
        (Stage::Resolve, Cause::Timeout) => Some(Verdict::LookupFailed { reason: None }),
        (Stage::Connect, Cause::Refused) => Some(Verdict::ConnectionRefused),
        (Stage::Connect, Cause::Timeout) => Some(Verdict::NoAnswer),
        (stage @ (Stage::Tls | Stage::Hello), Cause::Timeout) => {
            Some(Verdict::ServersSilent { stage, waited, atlas: is_of_atlas(server) })
        }
        (_, Cause::Configuration) => {
            Some(Verdict::InvalidOptions { reason: failure.detail.to_string() })
        }
        _ => None,
    })
}

/// Returns whether the system has opened no Unix domain socket: there is none at that path, no
/// server listens there any more, or this user may not use it.
pub(super) fn is_without_socket(server: &ServerAddress, failure: &Failure) -> bool {
    let is_refused = matches!(failure.cause, Cause::Refused | Cause::Io);
    server.port().is_none() && failure.stage == Stage::Connect && is_refused
}

/// Returns whether a server is one of MongoDB Atlas, by its name.
pub(super) fn is_of_atlas(address: &ServerAddress) -> bool {
    address.host().ends_with(".mongodb.net")
}

/// Returns whether the server has accepted the connection, and is to answer.
pub(super) const fn is_answer_due(stage: Stage) -> bool {
    matches!(stage, Stage::Tls | Stage::Hello)
}

pub(super) const fn is_about_certificate(cause: &Cause) -> bool {
    matches!(
        cause,
        Cause::CertificateExpired
            | Cause::UnknownIssuer
            | Cause::CertificateName
            | Cause::CertificateUnsupported { .. }
            | Cause::CertificateRevoked
            | Cause::InvalidStaple
            | Cause::CertificateInvalid
    )
}

pub(super) fn is_without_access(cause: &Cause) -> bool {
    matches!(cause, Cause::TlsRefused { alert: Some(alert) } if NO_ACCESS.contains(alert))
}

/// Returns whether the address may lead to no server, or to another one. That the resolver gives no
/// answer says nothing of an address.
pub(super) const fn leads_nowhere(failure: &Failure) -> bool {
    let leads_nowhere = matches!(
        failure.cause,
        Cause::NotResolved
            | Cause::Refused
            | Cause::Unreachable
            | Cause::Timeout
            | Cause::Closed
            | Cause::Io
            | Cause::Malformed
            | Cause::OtherProtocol { .. }
            | Cause::NotTls
    );
    leads_nowhere && !matches!(failure.stage, Stage::Proxy) && !failure.stage.is_elsewhere()
}

pub(super) const fn is_without_address(cause: &Cause) -> bool {
    matches!(cause, Cause::NotResolved | Cause::LookupFailed)
}

/// A server that does not expect TLS either says something else, or hangs up.
pub(super) const fn is_without_tls(failure: &Failure) -> bool {
    matches!((failure.stage, &failure.cause), (Stage::Tls, Cause::NotTls | Cause::Closed))
}

pub(super) const fn is_closed_at_hello(failure: &Failure) -> bool {
    matches!((failure.stage, &failure.cause), (Stage::Hello, Cause::Closed))
}
