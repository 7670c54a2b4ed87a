//! Judges what a server has said by every rule.

use super::evidence::{Evidence, Objection};
use super::rule::Rule;
use crate::findings::{Allowed, Breach, Rule as _, Severity, allow};

/// The judgement of one server.
#[derive(Clone, Debug, Default)]
pub(super) struct Judgement {
    /// The broken rules, the worst first.
    pub(super) findings: Vec<Breach<&'static Rule>>,
    /// The names of the rules that are kept.
    pub(super) kept: Vec<&'static str>,
    /// The rules that could not be tried, and why.
    pub(super) not_tried: Vec<(&'static Rule, String)>,
    /// The broken rules that are allowed.
    pub(super) allowed: Allowed,
}

impl Judgement {
    /// Judges by every rule; what breaks one of `allowed` is counted only.
    pub(super) fn of(evidence: &Evidence, allowed: &[&'static Rule]) -> Self {
        let mut judgement = Self::default();
        for rule in <&Rule>::all() {
            match (rule.judge)(evidence) {
                Ok(()) => judgement.kept.push(rule.name),
                Err(Objection::NotTried(reason)) => judgement.not_tried.push((rule, reason)),
                Err(Objection::Broken { expected, found }) => {
                    judgement.findings.push(Breach { rule, expected, found });
                }
            }
        }
        judgement.allowed = allow(&mut judgement.findings, allowed, |finding| finding.rule);
        judgement.findings.sort_by_key(|finding| finding.rule.severity);
        judgement
    }

    /// Returns the number of findings of a severity.
    pub(super) fn count(&self, severity: Severity) -> usize {
        self.findings.iter().filter(|finding| finding.rule.severity == severity).count()
    }
}
