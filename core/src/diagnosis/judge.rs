//! The search for the likely cause of a failed selection.

use std::time::Duration;

use super::error::{Check, Trouble};
use super::failure::{
    TLS, is_about_certificate, is_answer_due, is_closed_at_hello, is_of_atlas, is_without_access,
    is_without_address, is_without_socket, is_without_tls, leads_nowhere, of_connecting,
};
use super::verdict::Verdict;
use crate::config::{ReadMode, ServerAddress};
use crate::description::{Removal, RemovalReason, ServerDescription, ServerType, TopologyType};
use crate::failure::{Cause, Stage};
use crate::selection::{Criteria, Explanation, Reason, Snapshot, is_replica_set};
use crate::text::seconds;

/// The time that a check must have been in progress for its server to count as one that does not
/// answer.
const TIMEOUT: Duration = Duration::from_secs(1);

const WRONG_TYPE: Verdict = Verdict::WrongServerType { direct: None, server_type: None };

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
    /// The time that each step of connecting may take.
    pub(crate) connect_timeout: Option<Duration>,
    /// The last server that claimed to be primary after another one was elected.
    pub(crate) stale: Option<&'a Staleness>,
    /// The time that there has been no primary.
    pub(crate) without_primary: Duration,
}

/// A server that claims to be primary though another one was elected since.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Staleness {
    /// The server.
    pub(crate) server: ServerAddress,
    /// Its election: electionId and setVersion.
    pub(crate) claim: String,
    /// The newest election that is known.
    pub(crate) newest: String,
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
            return of_removal(self.emptied);
        }
        if let Some(member) = criteria.member() {
            return self.of_member(member, explanation);
        }
        let mode = criteria.mode_in(description);
        if let Some(verdict) = self.of_stale_primary(mode) {
            return verdict;
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
            .unwrap_or_else(|| self.of_types(description.topology_type, mode, &types))
    }

    /// A primary is wanted, and the one that claims to be is not any more.
    fn of_stale_primary(self, mode: ReadMode) -> Option<Verdict> {
        let Staleness { server, claim, newest } = self.stale?;
        let still_claims = self.troubles.iter().any(|trouble| {
            trouble.address == *server && trouble.failure.cause == Cause::StalePrimary
        });
        (still_claims && mode == ReadMode::Primary).then(|| Verdict::StalePrimary {
            server: server.clone(),
            claim: claim.clone(),
            newest: newest.clone(),
        })
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
                    (ServerType::Unknown, None, Some(check)) => check.lasts >= TIMEOUT,
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

    /// One member alone will do, whatever the others are.
    fn of_member(self, member: &ServerAddress, explanation: &Explanation) -> Verdict {
        let is_it = |address: &ServerAddress| address == member;
        let troubles = self.troubles.iter().filter(|it| is_it(&it.address)).cloned();
        let checks = self.checks.iter().filter(|it| is_it(&it.address)).cloned();
        let servers = explanation.servers.iter().filter(|it| is_it(&it.address)).cloned();
        let (troubles, checks): (Vec<_>, Vec<_>) = (troubles.collect(), checks.collect());
        let only = Circumstances { troubles: &troubles, checks: &checks, ..self };
        only.of_troubles(&Explanation { servers: servers.collect() })
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
        } else if all(|trouble| trouble.failure.stage == Stage::Certificates) {
            self.of_own_certificates()
        } else if all(is_silence_of_server) {
            self.of_timeouts()
        } else if any_open {
            Verdict::NoServerAvailable
        } else if all(|trouble| is_about_certificate(&trouble.failure.cause)) {
            self.of_certificates()
        } else if all(|trouble| is_without_access(&trouble.failure.cause)) {
            let atlas = self.troubles.iter().all(|trouble| is_of_atlas(&trouble.address));
            Verdict::AccessRefused { atlas }
        } else if all(|trouble| matches!(trouble.failure.cause, Cause::OtherProtocol { .. })) {
            self.of_protocols()
        } else if all(|trouble| is_without_tls(&trouble.failure)) {
            let certain = all(|trouble| trouble.failure.cause == Cause::NotTls);
            Verdict::TlsNotExpected { certain }
        } else if all(|trouble| trouble.failure.cause == Cause::LookupFailed) {
            Verdict::LookupFailed { reason: None }
        } else if all(|trouble| is_without_address(&trouble.failure.cause)) {
            Verdict::NamesDoNotResolve
        } else if all(|trouble| is_without_socket(&trouble.address, &trouble.failure)) {
            Verdict::SocketUnusable
        } else if all(|trouble| trouble.failure.cause == Cause::Refused) {
            Verdict::ConnectionRefused
        } else if all(|trouble| trouble.failure.cause == Cause::Unreachable) {
            Verdict::Unreachable
        } else if !self.tls && all(|trouble| is_closed_at_hello(&trouble.failure)) {
            match all(|trouble| !trouble.has_answered) {
                true => Verdict::TlsExpected { certain: false },
                false => Verdict::ConnectionsClosed,
            }
        } else {
            Verdict::NoServerAvailable
        }
    }

    /// The client itself has not what TLS needs.
    fn of_own_certificates(self) -> Verdict {
        let first = self.troubles.first().map(|trouble| trouble.failure.detail.to_string());
        Verdict::CertificatesUnavailable { reason: first.unwrap_or_default() }
    }

    /// No certificate is acceptable; one of which more can be said is named.
    fn of_certificates(self) -> Verdict {
        let verdicts =
            self.troubles.iter().filter_map(|it| of_connecting(&it.address, &it.failure));
        let mut special = verdicts.filter(|verdict| *verdict != Verdict::CertificatesRefused);
        special.next().unwrap_or(Verdict::CertificatesRefused)
    }

    /// Checks have ended, and nothing came in time; others may be in progress.
    fn of_timeouts(self) -> Verdict {
        let silent = |trouble: &Trouble| {
            // The first check that failed may have waited on a connection that was there before.
            let is_new = !trouble.has_answered || trouble.attempts > 1;
            is_new && is_answer_due(trouble.failure.stage)
        };
        match self.troubles.first() {
            Some(first) if self.troubles.iter().all(silent) => {
                let waited = self.connect_timeout.unwrap_or_default();
                self.silent(first.failure.stage, waited)
            }
            _ => Verdict::NoAnswer,
        }
    }

    /// Something else than MongoDB answers everywhere.
    fn of_protocols(self) -> Verdict {
        let mut others = self.troubles.iter().filter_map(|trouble| match &trouble.failure.cause {
            Cause::OtherProtocol { protocol } if &**protocol != TLS => Some((trouble, protocol)),
            _ => None,
        });
        match others.next() {
            None => Verdict::TlsExpected { certain: true },
            Some((trouble, protocol)) => {
                let server = trouble.address.clone();
                Verdict::NotMongo { server, protocol: protocol.to_string() }
            }
        }
    }

    /// No check has ended.
    fn of_checks(self) -> Verdict {
        let Some(oldest) = self.checks.iter().max_by_key(|check| check.lasts) else {
            return Verdict::NotCheckedYet;
        };
        let is_silent = |check: &Check| is_answer_due(check.stage) && check.lasts >= TIMEOUT;
        if self.checks.iter().all(is_silent) {
            return self.silent(oldest.stage, oldest.lasts);
        }
        let same = self.checks.iter().all(|check| check.stage == oldest.stage);
        if same && oldest.stage == Stage::Certificates && oldest.lasts >= TIMEOUT {
            let reason = format!("they are being read for {}", seconds(oldest.lasts));
            return Verdict::CertificatesUnavailable { reason };
        }
        Verdict::NoAnswerYet { stage: same.then_some(oldest.stage), lasts: oldest.lasts }
    }

    fn silent(self, stage: Stage, waited: Duration) -> Verdict {
        let addresses = self.troubles.iter().map(|trouble| &trouble.address);
        let mut addresses = addresses.chain(self.checks.iter().map(|check| &check.address));
        Verdict::ServersSilent { stage, waited, atlas: addresses.all(is_of_atlas) }
    }

    /// Servers are available, but of the wrong types.
    fn of_types(self, topology: TopologyType, mode: ReadMode, types: &[ServerType]) -> Verdict {
        if !is_replica_set(topology) {
            return WRONG_TYPE;
        }
        match mode {
            ReadMode::Primary => Verdict::NoPrimary { since: self.without_primary },
            ReadMode::Secondary => Verdict::NoSecondary,
            ReadMode::PrimaryPreferred | ReadMode::SecondaryPreferred | ReadMode::Nearest => {
                debug_assert!(!types.is_empty());
                WRONG_TYPE
            }
        }
    }
}

/// The last server had to leave.
fn of_removal(removal: Option<&Removal>) -> Verdict {
    match removal {
        Some(Removal { address, removal_reason: RemovalReason::NoMember { server_type } }) => {
            Verdict::NotAReplicaSet { server: address.clone(), server_type: *server_type }
        }
        removal => Verdict::NoServersLeft { removal: removal.cloned() },
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

/// Returns whether nothing came in time from the server, or on the way to it.
fn is_silence_of_server(trouble: &Trouble) -> bool {
    trouble.failure.cause == Cause::Timeout && !trouble.failure.stage.is_elsewhere()
}

/// Returns whether the address may lead to no server, or to another one; a server that has answered
/// before is where it was.
const fn is_elsewhere(trouble: &Trouble) -> bool {
    leads_nowhere(&trouble.failure) && !trouble.has_answered
}
