//! Clocks, pauses of this process, and what a client has found in the course of time.

use std::time::Duration;

use sdam_core::config::ServerAddress;
use sdam_core::diagnosis::Verdict;

use crate::doctor::evidence::{Diagnosed, Evidence, cut};
use crate::doctor::finding::Finding;

/// The difference between clocks from which it matters, in milliseconds.
const CLOCKS: u64 = 10_000;

/// The time that there may be no primary when one steps down.
const ELECTION: Duration = Duration::from_secs(1);

/// Finds that this process did not run.
pub(super) fn pauses(evidence: &Evidence, findings: &mut Vec<Finding>) {
    let Some(pause) = evidence.pauses.iter().max_by_key(|pause| pause.length) else { return };
    let since = evidence.client.watched.saturating_sub(pause.ended);
    findings.push(Finding::warning(Verdict::ProcessPaused { paused: pause.length, since }));
}

pub(super) fn judge(evidence: &Evidence, findings: &mut Vec<Finding>) {
    let ahead = evidence
        .servers
        .iter()
        .filter_map(|server| Some((&server.address, server.greeting()?.ahead_millis?)));
    if let Some((address, ahead)) = ahead.max_by_key(|(_, ahead)| ahead.unsigned_abs())
        && ahead.unsigned_abs() > CLOCKS
    {
        let by = Duration::from_millis(ahead.unsigned_abs());
        let verdict = Verdict::ClocksDiffer { server: address.clone(), by, ahead: ahead > 0 };
        findings.push(Finding::warning(verdict));
    }
    for Diagnosed { verdict, is_over } in &evidence.client.diagnosed {
        let is_same = |it: &Finding| {
            it.verdict.known().is_some_and(|known| {
                known.name() == verdict.name() && cut_server(known) == cut_server(verdict)
            })
        };
        if findings.iter().any(is_same) {
            continue;
        }
        let finding = Finding::error(verdict.clone());
        let finding = match is_over {
            true => finding.because(format!("{verdict}; that is over")),
            false => finding,
        };
        findings.push(finding.warning_if(*is_over || cut(verdict).is_none()));
    }
    let since = evidence.client.without_primary;
    if evidence.client.is_writable && since >= ELECTION {
        let cause = format!(
            "the replica set had no primary for {}, and has one again",
            crate::duration::precise(since)
        );
        findings.push(Finding::warning(Verdict::NoPrimary { since }).because(cause));
    }
}

/// Returns the server if connections to it are cut while they wait.
fn cut_server(verdict: &Verdict) -> Option<&ServerAddress> {
    cut(verdict).map(|it| it.0)
}
