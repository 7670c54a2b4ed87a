//! Judges what a server has said by every rule.

use super::evidence::{Evidence, Objection};
use super::rule::{self, Rule, Severity};

/// A promise that a server does not keep.
#[derive(Clone, Debug)]
pub(super) struct Finding {
    pub(super) rule: &'static Rule,
    pub(super) expected: String,
    pub(super) found: String,
}

/// The judgement of one server.
#[derive(Clone, Debug, Default)]
pub(super) struct Judgement {
    /// The broken rules, the worst first.
    pub(super) findings: Vec<Finding>,
    /// The names of the rules that are kept.
    pub(super) kept: Vec<&'static str>,
    /// The rules that could not be tried, and why.
    pub(super) not_tried: Vec<(&'static Rule, String)>,
    /// The broken rules that are allowed.
    pub(super) allowed: Vec<&'static str>,
}

impl Judgement {
    /// Judges by every rule; what breaks one of `allowed` is counted only.
    pub(super) fn of(evidence: &Evidence, allowed: &[&'static Rule]) -> Self {
        let mut judgement = Self::default();
        for rule in rule::all() {
            match (rule.judge)(evidence) {
                Ok(()) => judgement.kept.push(rule.name),
                Err(Objection::NotTried(reason)) => judgement.not_tried.push((rule, reason)),
                Err(Objection::Broken { .. }) if is_allowed(rule, allowed) => {
                    judgement.allowed.push(rule.name);
                }
                Err(Objection::Broken { expected, found }) => {
                    judgement.findings.push(Finding { rule, expected, found });
                }
            }
        }
        judgement.findings.sort_by_key(|finding| std::cmp::Reverse(finding.rule.severity));
        judgement
    }

    /// Returns the number of findings of a severity.
    pub(super) fn count(&self, severity: Severity) -> usize {
        self.findings.iter().filter(|finding| finding.rule.severity == severity).count()
    }
}

fn is_allowed(rule: &Rule, allowed: &[&'static Rule]) -> bool {
    allowed.iter().any(|it| it.name == rule.name)
}
