//! Routes, proxies, TLS, and whether what answers is a MongoDB server.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use sdam_core::config::ServerAddress;
use sdam_core::diagnosis::Verdict;
use sdam_core::failure::{Cause, Failure, Stage};
use sdam_core::revocation::Status;

use super::members::names;
use crate::doctor::evidence::{Certificate, Evidence, Responder, ServerSeen, Way};
use crate::doctor::finding::{Finding, listed};
use crate::duration::precise;

/// The days that a certificate should last at least, unless it is one that never lasts long.
const DAYS: i64 = 14;

/// The part of its lifetime that a certificate should last at least: those that are renewed by a
/// program are renewed before that.
const PART: i64 = 4;

/// Returns why a server cannot be reached; `None` if it can, or if time was over before that was
/// known.
pub(super) fn reason(server: &ServerSeen) -> Option<Verdict> {
    if server.is_way_cut() {
        return None;
    }
    let ways = || server.more.iter().chain([&server.way]);
    let Some(failure) = &server.way.failure else {
        let limit = || ways().any(is_closed).then(|| limit(server));
        return lost(server).or_else(limit);
    };
    if ways().any(|way| way.greeting.is_some()) {
        return Some(limit(server));
    }
    Some(of_failures(server, failure))
}

/// Returns the failure to reach it, at first or in the end.
fn failure(server: &ServerSeen) -> Option<&Failure> {
    server.way.failure.as_ref().or(server.lost.as_ref())
}

/// Returns why a server cannot be reached any more that has answered at first.
pub(super) fn lost(server: &ServerSeen) -> Option<Verdict> {
    Verdict::of_failure(&server.address, server.lost.as_ref()?, server.way.took)
}

/// Returns whether a server answers, but later than clients wait for that.
pub(super) fn answers_late(evidence: &Evidence, server: &ServerSeen) -> bool {
    let is_given_up = server.lost.as_ref().is_some_and(|lost| lost.cause == Cause::Timeout);
    let limit = evidence.options.connect_timeout;
    is_given_up && limit.is_some_and(|limit| server.way.took > limit)
}

/// Describes servers that answer later than clients wait for that.
fn late(evidence: &Evidence, finding: Finding, servers: &[&ServerSeen]) -> Finding {
    let took = servers.iter().map(|it| it.way.took).max().unwrap_or_default();
    let limit = evidence.options.connect_timeout.unwrap_or_default();
    let cause = format!(
        "{} answers after {}, which is longer than connectTimeoutMS ({}) allows",
        names(servers),
        precise(took),
        precise(limit)
    );
    let enough = (took * 2).as_secs() + 1;
    finding
        .because(cause)
        .advising("allow more time to connect, or find out why that is slow")
        .with_line(format!("connectTimeoutMS={}", enough * 1000))
}

/// One that agrees on TLS and then hangs up wants a certificate of the client: in TLS 1.3 the
/// client is done before the server looks at that.
fn of_failures(server: &ServerSeen, failure: &Failure) -> Verdict {
    let other = server.other_way.as_ref();
    let other_failure = other.and_then(|way| way.failure.as_ref());
    let of = |failure| Verdict::of_failure(&server.address, failure, server.way.took);
    let mut alien = [Some(failure), other_failure].into_iter().flatten().filter_map(of);
    if let Some(not_mongo) = alien.find(|it| matches!(it, Verdict::NotMongo { .. })) {
        return not_mongo;
    }
    if let Some(protocol) = &server.protocol {
        let (server, protocol) = (server.address.clone(), protocol.clone());
        return Verdict::NotMongo { server, protocol };
    }
    let is_refused = |failure: &Failure| matches!(failure.cause, Cause::TlsRefused { .. });
    let answers = other.is_some_and(|way| way.greeting.is_some());
    match (&failure.cause, server.way.tls) {
        (Cause::Closed, true) if server.way.opened.is_some() => Verdict::CertificatesRefused,
        (Cause::NotTls, _) => Verdict::TlsNotExpected { certain: answers },
        (cause, true) if answers && !matches!(cause, Cause::TlsRefused { .. }) => {
            Verdict::TlsNotExpected { certain: true }
        }
        (_, false) if answers || other_failure.is_some_and(is_refused) => {
            Verdict::TlsExpected { certain: true }
        }
        (cause, _) => of(failure).unwrap_or_else(|| match cause {
            Cause::TlsRefused { .. } => Verdict::CertificatesRefused,
            Cause::Closed if other.is_none_or(is_closed) => limit(server),
            _ => Verdict::NoServerAvailable,
        }),
    }
}

fn limit(server: &ServerSeen) -> Verdict {
    Verdict::ConnectionLimit { server: server.address.clone(), open: open(server) }
}

/// Returns how many of the connections to a server were answered.
fn open(server: &ServerSeen) -> usize {
    server.more.iter().chain([&server.way]).filter(|way| way.greeting.is_some()).count()
}

fn is_closed(way: &Way) -> bool {
    let is_closed = |failure: &Failure| failure.cause == Cause::Closed;
    way.greeting.is_none() && way.failure.as_ref().is_some_and(is_closed)
}

/// Finds why servers cannot be reached, but for those that are `explained` already: what lies first
/// on the way comes first.
pub(super) fn judge(evidence: &Evidence, explained: &[ServerAddress], findings: &mut Vec<Finding>) {
    let mut reasons: Vec<(Verdict, bool, Vec<&ServerSeen>)> = Vec::new();
    for server in evidence.servers.iter().filter(|it| !explained.contains(&it.address)) {
        let Some(reason) = reason(server) else { continue };
        let is_late = answers_late(evidence, server);
        let is_same = |(known, late, _): &&mut (Verdict, bool, _)| {
            known.name() == reason.name() && *late == is_late
        };
        match reasons.iter_mut().find(is_same) {
            Some((.., servers)) => servers.push(server),
            None => reasons.push((reason, is_late, vec![server])),
        }
    }
    let stage = |server: &ServerSeen| failure(server).map(|failure| failure.stage);
    reasons.sort_by_key(|(.., servers)| stage(servers[0]));
    for (reason, is_late, servers) in reasons {
        let finding = Finding::error(reason);
        let finding = match is_late {
            true => late(evidence, finding, &servers),
            false => describe(evidence, finding, &servers),
        };
        findings.push(finding.warning_if(evidence.is_writable()));
    }
    for server in &evidence.servers {
        of_certificate(server, findings);
    }
}

/// Says of which servers it is found, and what else is known of it.
fn describe(evidence: &Evidence, finding: Finding, servers: &[&ServerSeen]) -> Finding {
    let (server, who) = (servers[0], format!("{}{}", names(servers), whence(servers)));
    let all = listed(&servers.iter().map(|it| &it.address).collect::<Vec<_>>());
    let detail = failure(server).map(ToString::to_string).unwrap_or_default();
    let Some(verdict) = finding.verdict.known() else { return finding };
    let cause = match verdict {
        Verdict::LookupFailed { .. } => {
            format!("the name of {all} cannot be looked up, as no name server answers")
        }
        Verdict::NamesDoNotResolve => {
            format!("the name of {all}{} has no address here", whence(servers))
        }
        Verdict::ProxyFailed => format!("the proxy does not lead to {all}: {detail}"),
        Verdict::Unreachable => format!("there is no route from here to {all}: {detail}"),
        Verdict::SocketUnusable => {
            format!("no server listens on the Unix domain socket {all}: {detail}")
        }
        Verdict::ConnectionRefused => {
            if let Some(other) = server.other_loopback {
                return on_other_loopback(finding, &server.address, other);
            }
            format!("{who} refuses connections{}", seen(evidence, servers))
        }
        Verdict::NoAnswer => format!(
            "{who} does not take a connection: no packet comes back{}",
            seen(evidence, servers)
        ),
        Verdict::TlsExpected { .. } => format!("{who} hangs up without TLS, and answers with it"),
        Verdict::TlsNotExpected { certain: true } => {
            format!("{who} speaks no TLS, and answers without it")
        }
        Verdict::AccessRefused { .. } => {
            format!("{who} takes the connection and refuses TLS at once: {detail}")
        }
        Verdict::ServersSilent { stage, .. } => format!(
            "TCP connects to {who} {}, but nothing answers {}: a firewall or an allow-list in \
             between, or a server that is frozen",
            connected_in(servers),
            if *stage == Stage::Tls { "the opening of TLS" } else { "hello" }
        ),
        Verdict::ConnectionLimit { open: 0, .. } => {
            let cause = format!(
                "{who} closes every connection that it has taken, with TLS and without: a limit \
                 of connections, or a forwarder behind which nothing listens"
            );
            let advice =
                format!("check that a server runs behind it; if one does, {}", finding.advice);
            return finding.because(cause).advising(advice);
        }
        Verdict::ConnectionLimit { open, .. } => format!(
            "{who} answers {open} of {} connections, and closes the others",
            server.more.len() + 1
        ),
        Verdict::CertificatesRefused => return of_refused_certificate(&who, server, finding),
        Verdict::CertificateRevoked { .. } | Verdict::StapleInvalid { .. } => {
            format!("{who}: {detail}")
        }
        Verdict::NoServerAvailable => format!("{who}: {detail}"),
        _ => return finding,
    };
    let finding = finding.because(cause);
    match finding.verdict.known() {
        Some(Verdict::NamesDoNotResolve) => {
            finding.with_line(format!("--map {}=HOST:PORT", server.address))
        }
        _ => finding,
    }
}

/// Something listens on the loopback address of one family, and the other one is asked for.
fn on_other_loopback(finding: Finding, asked: &ServerAddress, other: SocketAddr) -> Finding {
    let cause = format!(
        "{asked} refuses connections, and {other} takes them: a server listens there on that \
         address only"
    );
    finding
        .because(cause)
        .advising("name that address, or have the server listen on both (net.bindIp, net.ipv6)")
        .with_line(format!("--map {asked}={other}"))
}

fn of_refused_certificate(who: &str, server: &ServerSeen, finding: Finding) -> Finding {
    let Some(failure) = &server.way.failure else { return finding };
    let certificate = server.certificate.as_ref();
    let issuer = certificate.map(|it| format!(" (issuer: {})", it.issuer)).unwrap_or_default();
    let refused = finding.because(format!("{who}: {failure}{issuer}"));
    match &failure.cause {
        Cause::CertificateExpired => {
            refused.advising("renew the certificate of the server, or check the clock here")
        }
        Cause::UnknownIssuer => refused
            .advising("name the certificate of the authority that has issued it")
            .with_line("tlsCAFile=/path/to/ca.pem"),
        Cause::CertificateName => {
            let target = server.dialled.as_ref().unwrap_or(&server.address);
            let name = certificate.and_then(|it| it.names.iter().find(|name| is_host(name)));
            let map = name.map(|name| format!("--map {name}={target}"));
            let refused = refused.advising(
                "connect by a name that the certificate is for, mapped to this address if need be",
            );
            map.into_iter().fold(refused, Finding::with_line)
        }
        Cause::CertificateInvalid => refused,
        cause => refused
            .because(match cause {
                Cause::Closed => format!("{who} agrees on TLS and hangs up, without a word of why"),
                _ => format!("{who} refuses TLS: {failure}"),
            })
            .advising(
                "give a certificate of the client that the server trusts, or agree on a version \
                 of TLS",
            )
            .with_line("tlsCertificateKeyFile=/path/to/client.pem"),
    }
}

/// Returns whether a name of a certificate is that of one host: neither one of many, nor an
/// address, nor a name of another kind.
fn is_host(name: &str) -> bool {
    let is_plain = name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    is_plain && name.parse::<IpAddr>().is_err()
}

/// Finds what will be wrong with a certificate that is good now, or is for others.
fn of_certificate(server: &ServerSeen, findings: &mut Vec<Finding>) {
    let Some(certificate) = &server.certificate else { return };
    if server.way.greeting.is_some() && server.way.tls && ends_soon(certificate) {
        let days = u64::try_from(certificate.days_left).unwrap_or_default();
        let (server, left) = (server.address.clone(), Duration::from_secs(days * 24 * 3600));
        findings.push(Finding::warning(Verdict::CertificateExpiresSoon { server, left }));
    }
    findings.extend(certificate.responder.as_ref().and_then(|it| of_responder(server, it)));
}

/// Finds that a responder does not say whether the certificate was revoked.
fn of_responder(server: &ServerSeen, asked: &Responder) -> Option<Finding> {
    let (server, responder) = (server.address.clone(), asked.url.clone());
    if asked.is_silent {
        let verdict = Verdict::RevocationSlow { server, responder, waited: asked.took };
        return Some(Finding::warning(verdict).with_line("tlsDisableOCSPEndpointCheck=true"));
    }
    let unknown = Status::Unknown.to_string();
    let reason = match (&asked.failure, &asked.status) {
        (Some(failure), _) => failure.clone(),
        (None, Some(status)) if *status == unknown => "it does not know the certificate".to_owned(),
        (None, _) => return None,
    };
    let verdict = Verdict::RevocationUnknown { server, responder, reason };
    asked.is_asked.then(|| Finding::warning(verdict))
}

fn ends_soon(certificate: &Certificate) -> bool {
    certificate.days_left < DAYS && certificate.days_left < certificate.days_in_all / PART
}

/// Says by whom servers are named that the connection string does not name.
fn whence(servers: &[&ServerSeen]) -> String {
    match servers.iter().find(|it| !it.is_seed).and_then(|it| it.named_by.first()) {
        Some(by) if servers.iter().all(|it| !it.is_seed) => {
            format!(", which {by} names as a member,")
        }
        _ => String::new(),
    }
}

/// Says that members see a server which does not answer here.
fn seen(evidence: &Evidence, servers: &[&ServerSeen]) -> String {
    let name = servers[0].address.to_string();
    let sees = evidence.servers.iter().find_map(|other| {
        let members = &other.login.as_ref()?.members;
        let member = members.iter().find(|it| it.address == name && it.is_up)?;
        Some(format!(", although {} sees it as {}", other.address, member.state))
    });
    sees.unwrap_or_default()
}

fn connected_in(servers: &[&ServerSeen]) -> String {
    let routes = servers.iter().flat_map(|it| &it.routes).filter(|it| it.failure.is_none());
    let slowest = routes.map(|route| route.took).max();
    slowest.map_or_else(String::new, |it| format!("within {}", precise(it)))
}
