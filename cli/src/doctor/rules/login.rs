//! Logins, which monitoring never does, and commands over them.

use sdam_core::diagnosis::Verdict;

use super::members::names;
use super::reach::lost;
use crate::doctor::evidence::{Evidence, Refusal, ServerSeen};
use crate::doctor::finding::Finding;
use crate::findings::Severity;

/// The number of refusals in a row by which a primary contradicts itself.
const CONTRADICTIONS: u32 = 3;

pub(super) fn judge(evidence: &Evidence, findings: &mut Vec<Finding>) {
    for server in &evidence.servers {
        let found = [of_login(server), of_commands(server)].into_iter().flatten();
        for finding in found {
            // What holds for one of them mostly holds for the others.
            if findings.iter().all(|it| it.verdict.name() != finding.verdict.name()) {
                findings.push(finding);
            }
        }
    }
    if evidence.options.login.is_none() {
        no_user(evidence, findings);
    }
}

/// Finds why there is no connection to a server that has answered.
fn of_login(server: &ServerSeen) -> Option<Finding> {
    let error = server.login.as_ref()?.error.as_ref()?;
    if error.is_of_network && lost(server).is_some() {
        return None;
    }
    match &error.verdict {
        Some(verdict @ Verdict::LoginRefused { auth_source, .. }) => {
            let finding = Finding::error(verdict.clone());
            // Most users are there, and what names a database alone looks for them in that.
            Some(match auth_source.as_deref() {
                Some("admin" | "$external") | None => finding,
                Some(_) => finding.with_line("authSource=admin"),
            })
        }
        Some(verdict) => Some(Finding::error(verdict.clone())),
        // Its pool has just been cleared, for a reason that the client knows.
        None if error.kind == "checkOut" => None,
        None => Some(failed(server, "connect", &error.text)),
    }
}

/// Finds what a server does not do that it is asked for.
fn of_commands(server: &ServerSeen) -> Option<Finding> {
    let login = server.login.as_ref()?;
    let refused = |it: &&Refusal| it.command == "delete" && it.is_about_state;
    let contradicting = login.refusals.iter().find(refused);
    if let Some(refusal) = contradicting.filter(|_| login.contradictions >= CONTRADICTIONS) {
        return Some(Finding::error(Verdict::PrimaryRefusesWrites {
            server: server.address.clone(),
            refusals: login.contradictions,
            code_name: refusal.name.clone(),
        }));
    }
    let refusal = first_unexplained(server, &login.refusals)?;
    Some(match &refusal.verdict {
        Some(verdict) => Finding::error(verdict.clone()),
        None => failed(server, &refusal.command, &refusal.text),
    })
}

/// Finds that a server does not answer a question by which more would be known.
pub(super) fn unanswered(server: &ServerSeen) -> Option<Finding> {
    let refusal = first_unexplained(server, &server.login.as_ref()?.failed)?;
    let severity = Severity::Note;
    Some(Finding { severity, ..failed(server, &refusal.command, &refusal.text) })
}

/// Returns the first refusal that is neither for want of a privilege, nor follows from what else
/// has become of the server.
fn first_unexplained<'a>(server: &ServerSeen, refusals: &'a [Refusal]) -> Option<&'a Refusal> {
    let is_lost = lost(server).is_some();
    let counts = |it: &&Refusal| {
        let is_explained = it.is_about_state || (it.is_of_network && is_lost);
        !it.is_unauthorised() && !is_explained
    };
    refusals.iter().find(counts)
}

fn failed(server: &ServerSeen, command: &str, reason: &str) -> Finding {
    Finding::error(Verdict::OperationFailed {
        server: server.address.clone(),
        command: command.to_owned(),
        reason: reason.to_owned(),
    })
}

/// Finds that the servers want a login, and no user is named.
fn no_user(evidence: &Evidence, findings: &mut Vec<Finding>) {
    let wants = |server: &&ServerSeen| {
        let refusals = server.login.iter().flat_map(|it| &it.refusals);
        let mut lists = refusals.filter(|it| it.command == "listDatabases");
        lists.any(Refusal::is_unauthorised)
    };
    let servers: Vec<&ServerSeen> = evidence.servers.iter().filter(wants).collect();
    let Some(first) = servers.first() else { return };
    let verdict = Verdict::LoginRefused {
        server: Some(first.address.clone()),
        user: None,
        auth_source: None,
        mechanism: None,
        reason: "the connection string names no user".to_owned(),
    };
    let cause =
        format!("{} wants a login, and the connection string names no user", names(&servers));
    let advice = "name a user and its password in the connection string";
    findings.push(Finding::error(verdict).because(cause).advising(advice));
}
