//! The search for the likely cause of a failed selection.

use std::time::Duration;

use super::criteria::Criteria;
use super::error::{Check, Trouble};
use super::explain::{Explanation, Reason};
use super::snapshot::Snapshot;
use super::suitable::is_replica_set;
use super::verdict::Verdict;
use crate::config::ReadMode;
use crate::description::{Removal, ServerDescription, ServerType, TopologyType};
use crate::failure::{Cause, Failure, Stage};

/// The time that a check must have been in progress for its server to count as one that does not
/// answer.
const PATIENCE: Duration = Duration::from_secs(1);

/// The facts beside the snapshot from which a verdict is found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Circumstances<'a> {
    /// The replica set name that was asked for.
    pub(crate) wanted_set: Option<&'a str>,
    /// The name of another set, by which a server was removed.
    pub(crate) found_set: Option<&'a str>,
    /// A member that answered, and was removed because its set lists other addresses only.
    pub(crate) guide: Option<&'a ServerDescription>,
    /// The reason why the last server was removed, if none has answered since that stays.
    pub(crate) emptied: Option<&'a Removal>,
    /// Servers whose last check failed.
    pub(crate) troubles: &'a [Trouble],
    /// The checks in progress of servers that are Unknown.
    pub(crate) checks: &'a [Check],
    /// True if connections use TLS.
    pub(crate) tls: bool,
    /// The time that there has been no primary.
    pub(crate) without_primary: Duration,
}

impl Circumstances<'_> {
    /// Finds the likely cause; the most specific one that the evidence supports wins.
    pub(crate) fn find(
        self,
        snapshot: &Snapshot,
        criteria: &Criteria,
        explanation: &Explanation,
    ) -> Verdict {
        let description = snapshot.description();
        let is_empty = description.servers().is_empty()
            || (self.emptied.is_some() && self.troubles.is_empty());
        if let Some(verdict) = self.of_guide(explanation, is_empty) {
            return verdict;
        }
        let wrong_set = self.troubles.iter().any(|t| t.failure.cause == Cause::WrongSetName);
        if let Some(wanted) = self.wanted_set
            && (wrong_set || (is_empty && self.found_set.is_some()))
        {
            let found = self.found_set.map(str::to_owned);
            return Verdict::SetNameDiffers { wanted: wanted.to_owned(), found };
        }
        if is_empty {
            return Verdict::NoServersLeft { removal: self.emptied.cloned() };
        }
        let available = |server: &ServerType| *server != ServerType::Unknown;
        let types: Vec<ServerType> =
            explanation.servers.iter().map(|server| server.server_type).filter(available).collect();
        if types.is_empty() {
            return self.of_troubles(explanation);
        }
        if types.iter().all(|server| *server == ServerType::RsGhost) {
            return Verdict::NotInitiated;
        }
        of_reasons(explanation)
            .unwrap_or_else(|| self.of_types(description.topology_type, criteria, &types))
    }

    /// A member answered, and what its set lists leads to no other.
    fn of_guide(self, explanation: &Explanation, is_empty: bool) -> Option<Verdict> {
        let guide = self.guide?;
        let leads_nowhere = match (is_empty, self.emptied) {
            (true, Some(last)) => guide.members().any(|member| *member == last.address),
            (true, None) => false,
            (false, _) => explanation.servers.iter().all(|server| {
                let trouble = self.troubles.iter().find(|it| it.address == server.address);
                let check = self.checks.iter().find(|it| it.address == server.address);
                match (server.server_type, trouble, check) {
                    (ServerType::RsGhost, ..) => true,
                    (ServerType::Unknown, Some(trouble), _) => is_elsewhere(trouble),
                    (ServerType::Unknown, None, Some(check)) => check.lasts >= PATIENCE,
                    _ => false,
                }
            }),
        };
        leads_nowhere.then(|| Verdict::MembersElsewhere {
            seed: guide.address.clone(),
            called: guide.me.clone().filter(|me| *me != guide.address),
            members: guide.members().cloned().collect(),
        })
    }

    /// No server is available: what do their failures have in common?
    fn of_troubles(self, explanation: &Explanation) -> Verdict {
        if self.troubles.is_empty() {
            return self.of_checks();
        }
        let any_open = self.troubles.len() < explanation.servers.len();
        let all = |holds: fn(&Trouble) -> bool| self.troubles.iter().all(holds);
        if all(|trouble| trouble.failure.stage == Stage::Proxy) {
            Verdict::ProxyFailed
        } else if all(|trouble| trouble.failure.cause == Cause::Timeout) {
            Verdict::NoAnswer
        } else if any_open {
            Verdict::NoServerAvailable
        } else if all(|trouble| is_about_certificate(&trouble.failure.cause)) {
            Verdict::CertificatesRefused
        } else if all(|trouble| is_without_tls(&trouble.failure)) {
            Verdict::TlsNotExpected
        } else if all(|trouble| trouble.failure.cause == Cause::LookupFailed) {
            Verdict::LookupsFail
        } else if all(|trouble| is_without_address(&trouble.failure.cause)) {
            Verdict::NamesDoNotResolve
        } else if all(|trouble| trouble.failure.cause == Cause::Refused) {
            Verdict::ConnectionRefused
        } else if !self.tls && all(|trouble| is_closed_at_hello(&trouble.failure)) {
            match all(|trouble| !trouble.has_answered) {
                true => Verdict::TlsExpected,
                false => Verdict::ConnectionsClosed,
            }
        } else {
            Verdict::NoServerAvailable
        }
    }

    /// No check has ended.
    fn of_checks(self) -> Verdict {
        let Some(oldest) = self.checks.iter().max_by_key(|check| check.lasts) else {
            return Verdict::NotCheckedYet;
        };
        let same = self.checks.iter().all(|check| check.stage == oldest.stage);
        Verdict::NoAnswerYet { stage: same.then_some(oldest.stage), lasts: oldest.lasts }
    }

    /// Servers are available, but of the wrong types.
    fn of_types(
        self,
        topology: TopologyType,
        criteria: &Criteria,
        types: &[ServerType],
    ) -> Verdict {
        if !is_replica_set(topology) {
            return Verdict::WrongServerType;
        }
        match criteria.mode() {
            ReadMode::Primary => Verdict::NoPrimary { since: self.without_primary },
            ReadMode::Secondary => Verdict::NoSecondary,
            ReadMode::PrimaryPreferred | ReadMode::SecondaryPreferred | ReadMode::Nearest => {
                debug_assert!(!types.is_empty());
                Verdict::WrongServerType
            }
        }
    }
}

/// Servers are of the right type, yet something else is wrong with each of them.
fn of_reasons(explanation: &Explanation) -> Option<Verdict> {
    let reasons = || explanation.servers.iter().map(|server| &server.reason);
    let stale = reasons().filter_map(|reason| match reason {
        Reason::TooStale { by } => Some(*by),
        _ => None,
    });
    if reasons().any(|reason| *reason == Reason::Predicate) {
        Some(Verdict::PredicateRefused)
    } else if reasons().any(|reason| *reason == Reason::NoTagMatch) {
        Some(Verdict::NoTagMatch)
    } else {
        stale.min().map(|by| Verdict::TooStale { by })
    }
}

/// Returns whether the address may lead to nobody, or to somebody else. That the resolver gives no
/// answer says nothing of an address; and whoever has answered before is where it was.
const fn is_elsewhere(trouble: &Trouble) -> bool {
    let leads_nowhere = matches!(
        trouble.failure.cause,
        Cause::NotResolved
            | Cause::Refused
            | Cause::Timeout
            | Cause::Closed
            | Cause::Io
            | Cause::Malformed
            | Cause::NotTls
    );
    leads_nowhere && !trouble.has_answered && !matches!(trouble.failure.stage, Stage::Proxy)
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

const fn is_without_address(cause: &Cause) -> bool {
    matches!(cause, Cause::NotResolved | Cause::LookupFailed)
}

/// A server that does not expect TLS either says something else, or hangs up.
const fn is_without_tls(failure: &Failure) -> bool {
    matches!((failure.stage, &failure.cause), (Stage::Tls, Cause::NotTls | Cause::Closed))
}

const fn is_closed_at_hello(failure: &Failure) -> bool {
    matches!((failure.stage, &failure.cause), (Stage::Hello, Cause::Closed))
}
