//! Members as their set knows them, and as each other sees them.

use std::collections::BTreeSet;
use std::net::IpAddr;

use sdam_core::config::ServerAddress;
use sdam_core::description::ServerType;
use sdam_core::diagnosis::{Disagreement, Verdict};

use super::reach::reason;
use crate::doctor::evidence::{Evidence, Greeting, Role, ServerSeen};
use crate::doctor::finding::{Finding, listed};
use crate::findings::Severity;

/// Finds that the set knows members by addresses that lead elsewhere from here, and returns those
/// addresses, which need no other explanation.
pub(super) fn elsewhere(evidence: &Evidence, findings: &mut Vec<Finding>) -> Vec<ServerAddress> {
    if evidence.options.direct || evidence.options.load_balanced {
        return Vec::new();
    }
    let at = |address: &ServerAddress| evidence.servers.iter().find(|it| it.address == *address);
    let mut pairs: Vec<(&ServerSeen, &ServerAddress)> = Vec::new();
    for seed in evidence.servers.iter().filter(|it| it.is_seed) {
        if let Some(greeting) = seed.greeting().filter(|it| it.role.is_member())
            && let Some(me) = greeting.me.as_ref().filter(|me| **me != seed.address)
            && at(me).is_none_or(|it| !it.is_way_cut() && !is_member_of(it, greeting))
        {
            pairs.push((seed, me));
        }
    }
    let Some((seed, me)) = pairs.first().copied() else { return Vec::new() };
    let members = &seed.greeting().expect("it has answered").members;
    let knows = match members.as_slice() {
        [_] => format!("says that {me} is the only member of its set"),
        _ => format!("says that its set knows it as {me}"),
    };
    let cause = format!("{} answered and {knows}, which {}", seed.address, why(at(me), me, seed));
    let verdict = Verdict::MembersElsewhere {
        seed: seed.address.clone(),
        called: Some(me.clone()),
        members: members.clone(),
    };
    // The advice has the line for the first one.
    let others = pairs.iter().skip(1).map(|(seed, me)| format!("--map {me}={}", seed.address));
    let finding = others.fold(Finding::error(verdict).because(cause), Finding::with_line);
    findings.push(finding.warning_if(evidence.client.is_writable));
    // The others are named by the same configuration, and fail in the same way.
    let first = at(me).and_then(reason).map(|it| it.name());
    let is_alike = |it: &ServerSeen| {
        let has_answered = it.greeting().is_some() || it.is_way_cut();
        !has_answered && reason(it).map(|it| it.name()) == first
    };
    let same = members.iter().filter(|member| at(member).is_none_or(is_alike));
    same.chain(pairs.iter().map(|(_, me)| *me)).cloned().collect()
}

fn is_member_of(server: &ServerSeen, of: &Greeting) -> bool {
    server.greeting().is_some_and(|it| it.role.is_member() && it.set_name == of.set_name)
}

/// Says what is at the address by which a set knows its member.
fn why(server: Option<&ServerSeen>, me: &ServerAddress, seed: &ServerSeen) -> String {
    let Some(server) = server else { return "was not looked at".to_owned() };
    if let Some(greeting) = server.greeting() {
        return format!("from here is {}, and no member of that set", greeting.role.words());
    }
    if is_local(me) && !is_local(&seed.address) {
        return "from here is this machine itself".to_owned();
    }
    match reason(server) {
        Some(Verdict::NamesDoNotResolve | Verdict::LookupFailed { .. }) => "does not resolve here",
        Some(Verdict::ConnectionRefused) => "refuses connections from here",
        Some(Verdict::NoAnswer | Verdict::ServersSilent { .. }) => "does not answer from here",
        _ => "does not lead to it from here",
    }
    .to_owned()
}

fn is_local(address: &ServerAddress) -> bool {
    let host = address.host();
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// Finds disagreement: primaries that claim to be one, members that do not see each other.
pub(super) fn judge(evidence: &Evidence, findings: &mut Vec<Finding>) {
    primaries(evidence, findings);
    let disagreements = disagreements(evidence);
    if !disagreements.is_empty() {
        findings.push(Finding::warning(Verdict::MembersDisagree { disagreements }));
    }
    let lost = evidence.client.why_not.as_ref();
    if let Some(verdict) = lost.filter(|it| matches!(it, Verdict::NoPrimary { .. }))
        && findings.iter().all(|it| it.severity != Severity::Error)
    {
        let (up, all) = counted(evidence);
        let cause = format!(
            "the replica set has no primary: {up} of its {all} members answer, and none of them \
             was elected"
        );
        findings.push(Finding::error(verdict.clone()).because(cause).with_line("rs.status()"));
    }
}

/// Counts the members that answer, and all that are known; one may have several names.
fn counted(evidence: &Evidence) -> (usize, usize) {
    let (mut up, mut all) = (BTreeSet::new(), BTreeSet::new());
    for server in &evidence.servers {
        let greeting = server.greeting();
        let name = greeting.and_then(|it| it.me.as_ref()).unwrap_or(&server.address);
        all.insert(name);
        up.extend(greeting.filter(|it| it.role.is_member()).map(|_| name));
    }
    (up.len(), all.len())
}

/// Finds members that others do not reach, although they answer here.
fn disagreements(evidence: &Evidence) -> Vec<Disagreement> {
    let here = |address: &str| {
        let server = evidence.servers.iter().find(|it| it.address.to_string() == address)?;
        let role = server.greeting()?.role;
        role.is_member().then(|| (server.address.clone(), role.words()))
    };
    let seen = evidence.servers.iter().flat_map(|server| {
        let members = server.login.iter().flat_map(|login| &login.members);
        members.filter(|member| !member.is_up).map(move |member| (&server.address, member))
    });
    let unseen = seen.filter_map(|(by, member)| {
        let (address, role) = here(&member.address)?;
        let message = member.message.as_deref().map(|it| format!(" ({it})")).unwrap_or_default();
        Some(Disagreement::new(by.clone(), address, format!("{}{message}", member.state), role))
    });
    unseen.collect()
}

/// Finds two that claim to be primary of the same set, one by an older election than the other.
fn primaries(evidence: &Evidence, findings: &mut Vec<Finding>) {
    let mut claims: Vec<(&ServerAddress, &Greeting)> = evidence
        .servers
        .iter()
        .filter_map(|server| Some((&server.address, server.greeting()?)))
        .filter(|(_, greeting)| greeting.role == Role::Primary)
        .collect();
    let age = |greeting: &Greeting| (greeting.election.clone(), greeting.set_version);
    // Of one that has several names, the last greeting counts, by the name that its set has for it.
    claims.sort_by_key(|(address, claim)| (age(claim), claim.me.as_ref() == Some(*address)));
    let others = |(position, (_, claim)): &(usize, &(_, &Greeting))| {
        let mut later = claims[position + 1..].iter();
        claim.me.is_none() || later.all(|(_, other)| other.me != claim.me)
    };
    let claims: Vec<_> = claims.iter().enumerate().filter(others).map(|(_, claim)| claim).collect();
    let newest_of = |old: &Greeting| {
        let newest = claims.iter().rev().find(|(_, new)| new.set_name == old.set_name);
        newest.filter(|(_, new)| age(old) < age(new))
    };
    let pair = claims.iter().rev().find_map(|old| Some((old, newest_of(old.1)?)));
    let verdict = if let Some(((old, old_claim), (new, new_claim))) = pair {
        Some(Verdict::StalePrimary {
            server: (*old).clone(),
            claim: election(old_claim),
            newest: format!("{} of {new}", election(new_claim)),
        })
    } else {
        evidence.client.stale.first().map(|stale| Verdict::StalePrimary {
            server: stale.address.clone(),
            claim: "an earlier election".to_owned(),
            newest: stale.detail.clone(),
        })
    };
    let Some(verdict) = verdict else { return };
    findings.push(match is_over(evidence, &verdict) {
        false => Finding::error(verdict),
        true => {
            let cause = format!("{verdict}; that is over");
            Finding::warning(verdict).because(cause)
        }
    });
}

/// Returns whether the server has become something else meanwhile, or primary by a new election.
fn is_over(evidence: &Evidence, verdict: &Verdict) -> bool {
    let Verdict::StalePrimary { server, .. } = verdict else { return false };
    let known = evidence.servers.iter().find(|it| it.address == *server);
    let server_type = known.and_then(|it| it.server_type);
    server_type.is_some_and(|it| it != ServerType::Unknown)
}

/// Writes the number of an election, whose place is at the end of its id.
fn election(greeting: &Greeting) -> String {
    let number = greeting.election.as_deref().and_then(|id| id.get(8..));
    let number = number.and_then(|digits| u64::from_str_radix(digits, 16).ok());
    match (number, greeting.set_version) {
        (Some(number), _) => format!("election {number}"),
        (None, Some(version)) => format!("version {version} of the set"),
        (None, None) => "no election".to_owned(),
    }
}

/// Names servers for a sentence about one of them, or about each.
pub(super) fn names(servers: &[&ServerSeen]) -> String {
    let names = listed(&servers.iter().map(|it| &it.address).collect::<Vec<_>>());
    if servers.len() == 1 { names } else { format!("each of {names}") }
}
