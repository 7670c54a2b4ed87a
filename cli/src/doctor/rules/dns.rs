//! Lookups: which name server said what, and how long it took.

use std::time::Duration;

use sdam_core::diagnosis::{SLOW_LOOKUP, Verdict};

use crate::doctor::evidence::{Asked, Evidence, Lookups, NameServerSeen, Said};
use crate::doctor::finding::{Finding, listed};
use crate::duration::precise;

pub(super) fn judge(evidence: &Evidence, findings: &mut Vec<Finding>) {
    if let Some(lookups) = &evidence.lookups {
        records(lookups, findings);
    }
    let slow = evidence.servers.iter().find_map(|server| {
        let resolved = server.resolved.as_ref().filter(|it| !it.addresses.is_empty())?;
        let name = server.dialled.as_ref().unwrap_or(&server.address).host();
        (resolved.took >= SLOW_LOOKUP).then(|| lookup_slow(name, resolved.took, Vec::new()))
    });
    findings.extend(slow);
}

fn records(lookups: &Lookups, findings: &mut Vec<Finding>) {
    if let Some(refused) = &lookups.refused {
        return findings.push(Finding::error(refused.clone()));
    }
    let configured = || lookups.name_servers.iter().filter(|it| it.is_configured);
    let answers = |it: &&NameServerSeen| matches!(it.srv.said, Said::Answered { .. });
    let Some(good) = configured().find(answers) else {
        // A resolver that asks in turn, and again, may have had an answer all the same.
        match lookups.in_turn() {
            Some(took) if took >= SLOW_LOOKUP => {
                findings.push(lookup_slow(&lookups.question, took, Vec::new()));
            }
            None if !lookups.is_cut() => findings.push(failed(lookups)),
            _ => {}
        }
        return;
    };
    let before = configured().take_while(|it| it.address != good.address);
    let silent: Vec<_> = before.filter(|it| it.srv.said == Said::Silent).collect();
    if let Some(first) = silent.first().filter(|it| !it.srv.is_cut()) {
        let names = silent.iter().map(|it| it.address.ip().to_string()).collect();
        let finding = lookup_slow(&lookups.question, first.srv.took, names);
        findings.push(finding.with_line(format!("nameserver {}", good.address.ip())));
    } else if good.srv.took >= SLOW_LOOKUP {
        findings.push(lookup_slow(&lookups.question, good.srv.took, Vec::new()));
    }
}

/// Names a lookup that took long, and the name servers that did not answer.
fn lookup_slow(name: &str, took: Duration, silent: Vec<String>) -> Finding {
    Finding::warning(Verdict::LookupSlow { name: name.to_owned(), took, silent })
}

fn failed(lookups: &Lookups) -> Finding {
    let answers: Vec<String> = lookups.name_servers.iter().map(answer_of).collect();
    let answers = match answers.is_empty() {
        true => "no name server is configured".to_owned(),
        false => listed(&answers),
    };
    let question = &lookups.question;
    let addresses = match lookups.addresses_resolve {
        Some(true) => ", although questions for addresses are answered",
        _ => "",
    };
    let reason = format!("the SRV records of {question} cannot be looked up{addresses}: {answers}");
    let finding = Finding::error(Verdict::LookupFailed { reason: Some(reason) });
    let mut others = lookups.name_servers.iter().filter(|it| !it.is_configured);
    match others.find(|it| matches!(it.srv.said, Said::Answered { .. })) {
        Some(other) => finding
            .advising("have this machine ask the name server that knows them")
            .with_line(format!("nameserver {}", other.address.ip())),
        None => finding.with_line(format!("dig +short SRV {question} @1.1.1.1")),
    }
}

/// Says what a name server said, for the middle of a sentence.
fn answer_of(seen: &NameServerSeen) -> String {
    let address = seen.address;
    let Asked { took, said } = &seen.srv;
    match said {
        Said::Answered { records } => format!("{address} knows {} of them", records.len()),
        Said::Absent { detail } | Said::Failed { detail } => match detail.contains("name server") {
            true => detail.clone(),
            false => format!("name server {address}: {detail}"),
        },
        Said::Silent => format!("{address} did not answer within {}", precise(*took)),
    }
}
