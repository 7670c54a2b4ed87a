//! The connection string: what is refused, ignored, or the wrong knob.

use sdam_core::diagnosis::Verdict;

use super::reach::{answers_late, reason};
use crate::doctor::evidence::Evidence;
use crate::doctor::finding::Finding;

/// Finds that no driver takes the connection string.
pub(super) fn refused(evidence: &Evidence) -> Option<Finding> {
    let reason = evidence.options.error.clone()?;
    Some(Finding::error(Verdict::InvalidOptions { reason }))
}

/// Finds that another mechanism was meant, if a login is refused: that comes before the refusal,
/// which is the finding `place` or a later one.
pub(super) fn mechanism(evidence: &Evidence, place: usize, findings: &mut Vec<Finding>) {
    let is_refused = |it: &Finding| {
        let verdict = it.verdict.known();
        matches!(verdict, Some(Verdict::LoginRefused { .. } | Verdict::MechanismUnavailable { .. }))
    };
    if let Some(fault) = &evidence.options.mechanism_fault
        && findings.iter().skip(place).any(is_refused)
    {
        findings.insert(place, Finding::error(not_followed(fault)));
    }
}

fn not_followed(fault: &str) -> Verdict {
    let reason = format!("the connection string is not followed to the letter: {fault}");
    Verdict::InvalidOptions { reason }
}

/// Finds parts of the connection string that do not do what their writer meant.
pub(super) fn faults(evidence: &Evidence, findings: &mut Vec<Finding>) {
    for fault in &evidence.options.faults {
        let verdict = not_followed(fault);
        if !findings.iter().any(|it| it.verdict.known() == Some(&verdict)) {
            findings.push(Finding::warning(verdict));
        }
    }
    let error = evidence.client.error.clone();
    findings.extend(error.map(|reason| Finding::error(Verdict::InvalidOptions { reason })));
}

/// Finds that another time-out was set than the one that applications wait for.
pub(super) fn time_outs(evidence: &Evidence, findings: &mut Vec<Finding>) {
    let Some(verdict) = &evidence.options.other_timeout else { return };
    let is_silent = |reason| matches!(reason, Verdict::NoAnswer | Verdict::ServersSilent { .. });
    let in_time = evidence.servers.iter().filter(|it| !answers_late(evidence, it));
    let mut reasons = in_time.filter_map(reason);
    if !evidence.client.is_writable && reasons.any(is_silent) {
        findings.push(Finding::warning(verdict.clone()));
    }
}
