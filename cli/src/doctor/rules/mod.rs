//! The rules: what evidence means. They touch nothing, and wait for nothing.

mod dns;
mod gridfs;
mod load;
mod login;
mod members;
mod options;
mod reach;
mod roles;
mod time;
mod transactions;

use std::time::Duration;

use sdam_core::diagnosis::Verdict;

use super::evidence::Evidence;
use super::finding::Finding;
use crate::findings::Severity;

/// The time that is enough for most deployments.
const MORE: Duration = Duration::from_secs(60);

/// Finds what is wrong: errors first, and of those what lies first on the way.
pub(super) fn judge(evidence: &Evidence) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(refused) = options::refused(evidence) {
        return vec![refused];
    }
    dns::judge(evidence, &mut findings);
    time::pauses(evidence, &mut findings);
    let explained = members::elsewhere(evidence, &mut findings);
    reach::judge(evidence, &explained, &mut findings);
    roles::judge(evidence, &explained, &mut findings);
    let before = findings.len();
    login::judge(evidence, &mut findings);
    options::mechanism(evidence, before, &mut findings);
    members::judge(evidence, &mut findings);
    time::judge(evidence, &mut findings);
    load::judge(evidence, &mut findings);
    transactions::judge(evidence, &mut findings);
    gridfs::judge(evidence, &mut findings);
    options::time_outs(evidence, &mut findings);
    options::faults(evidence, &mut findings);
    whatever_else(evidence, &mut findings);
    findings.sort_by_key(|finding| finding.severity);
    findings
}

/// Finds what a client says that no other rule has explained, and that time was over too soon.
fn whatever_else(evidence: &Evidence, findings: &mut Vec<Finding>) {
    if findings.iter().any(|finding| finding.severity == Severity::Error) {
        return;
    }
    if !evidence.complete {
        let more = evidence.limit.as_secs().saturating_mul(2).max(MORE.as_secs());
        let finding = Finding::error(Verdict::NotCheckedYet)
            .because("time was over before everything was known")
            .advising("allow more of it")
            .with_line(format!("--for {more}s"));
        let is_beside_others = findings.iter().any(Finding::is_wrong);
        return findings.push(finding.warning_if(is_beside_others));
    }
    let why_not = evidence.client.why_not.as_ref().or(evidence.client.why_not_read.as_ref());
    findings.extend(why_not.map(|verdict| Finding::error(verdict.clone())));
}
