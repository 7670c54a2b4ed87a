//! The roles of servers, beside what was asked for.

use sdam_core::config::ServerAddress;
use sdam_core::description::ServerType;
use sdam_core::diagnosis::Verdict;

use super::members::names;
use crate::doctor::evidence::{Evidence, Role, ServerSeen};
use crate::doctor::finding::Finding;

pub(super) fn judge(evidence: &Evidence, explained: &[ServerAddress], findings: &mut Vec<Finding>) {
    let servers: Vec<&ServerSeen> =
        evidence.servers.iter().filter(|it| !explained.contains(&it.address)).collect();
    set_name(evidence, &servers, findings);
    no_set(evidence, &servers, findings);
    not_initiated(evidence, &servers, findings);
}

fn with_role<'e>(servers: &[&'e ServerSeen], wanted: impl Fn(Role) -> bool) -> Vec<&'e ServerSeen> {
    let has = |it: &&&ServerSeen| it.greeting().is_some_and(|greeting| wanted(greeting.role));
    servers.iter().filter(has).copied().collect()
}

fn set_name(evidence: &Evidence, servers: &[&ServerSeen], findings: &mut Vec<Finding>) {
    let members = with_role(servers, Role::is_member);
    let name = |server: &ServerSeen| server.greeting().and_then(|it| it.set_name.clone());
    let first = members.iter().find_map(|it| name(it));
    let Some(wanted) = evidence.options.replica_set.clone().or(first) else { return };
    let others: Vec<_> =
        members.into_iter().filter(|it| name(it).as_ref() != Some(&wanted)).collect();
    let Some(found) = others.first().and_then(|it| name(it)) else { return };
    let cause = format!("{} belongs to replica set {found:?}, not to {wanted:?}", names(&others));
    let verdict = Verdict::SetNameDiffers { wanted, found: Some(found) };
    findings.push(Finding::error(verdict).because(cause).warning_if(works(evidence)));
}

fn no_set(evidence: &Evidence, servers: &[&ServerSeen], findings: &mut Vec<Finding>) {
    let strangers = with_role(servers, |role| matches!(role, Role::Mongos | Role::Standalone));
    let Some(role) = strangers.first().and_then(|it| it.greeting()).map(|it| it.role) else {
        return;
    };
    let others = evidence.servers.iter().any(|it| it.is_seed && it.address != strangers[0].address);
    let is_alone = evidence.options.replica_set.is_none();
    if is_alone && (role == Role::Mongos || !others) {
        return;
    }
    let server_type = match role {
        Role::Mongos => ServerType::Mongos,
        _ => ServerType::Standalone,
    };
    let verdict = Verdict::NotAReplicaSet { server: strangers[0].address.clone(), server_type };
    let finding = match is_alone {
        false => Finding::error(verdict),
        true => Finding::error(verdict).advising("name that one server, or members of one set"),
    };
    findings.push(finding.warning_if(works(evidence)));
}

fn not_initiated(evidence: &Evidence, servers: &[&ServerSeen], findings: &mut Vec<Finding>) {
    let ghosts = with_role(servers, |role| role == Role::Ghost);
    let Some(first) = ghosts.first() else { return };
    let set = evidence.servers.iter().find_map(|it| it.greeting()?.set_name.clone());
    let finding = match set {
        Some(set_name) => not_a_member(first, set_name),
        None => {
            let cause = format!(
                "{} was started as a member of a replica set, and is in none",
                names(&ghosts)
            );
            Finding::error(Verdict::NotInitiated).because(cause)
        }
    };
    findings.push(finding.warning_if(works(evidence)));
}

/// Describes a server that is in no set beside one that is: whose members may list it all the same,
/// by a name that it does not take for its own.
fn not_a_member(server: &ServerSeen, set_name: String) -> Finding {
    let address = &server.address;
    let Some(by) = server.named_by.first() else {
        return Finding::error(Verdict::NotAMember { server: address.clone(), set_name });
    };
    let cause = format!(
        "{by} lists {address} as a member of replica set {set_name:?}, but that server finds \
         itself in no set: it may not take that name for its own"
    );
    let advice = format!(
        "check on that server that {} resolves to an address of its own on which it listens, and \
         that it reaches the other members",
        address.host()
    );
    let verdict = Verdict::NotAMember { server: address.clone(), set_name };
    Finding::error(verdict).because(cause).advising(advice)
}

/// Returns whether applications work beside a server that does not belong there.
fn works(evidence: &Evidence) -> bool {
    evidence.client.is_writable && !evidence.options.direct
}
