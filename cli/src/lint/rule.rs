//! The promises that drivers rely on, each with the place where it is written.

use super::evidence::{Evidence, Judged};
use super::rules;

/// A promise of servers, and how to check that it is kept.
#[derive(Debug)]
pub(super) struct Rule {
    /// The name, as `--allow` takes it.
    pub(super) name: &'static str,
    pub(super) severity: Severity,
    /// The permission without which it is not tried.
    pub(super) needs: Needs,
    /// The promise.
    pub(super) text: &'static str,
    /// The specification and the section that say so.
    pub(super) source: (&'static str, &'static str),
    /// The consequence in drivers if it is broken.
    pub(super) breaks: &'static str,
    /// Finds out whether it is kept.
    pub(super) judge: fn(&Evidence) -> Judged,
}

/// The weight of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Severity {
    /// Drivers do without, or few of them notice.
    Note,
    /// Drivers work, and do something worse than they could.
    Warning,
    /// Operations fail or hang, or data or servers are taken for what they are not.
    Error,
}

impl Severity {
    /// Returns the name.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// The permission that a rule needs to be tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Needs {
    Nothing,
    Write,
    StepDown,
    Idle,
}

impl Needs {
    /// Returns the argument that gives it.
    pub(super) const fn argument(self) -> &'static str {
        match self {
            Self::Nothing => "",
            Self::Write => "--write",
            Self::StepDown => "--step-down",
            Self::Idle => "--idle",
        }
    }
}

/// Returns every rule, in the order of the page.
pub(super) fn all() -> impl Iterator<Item = &'static Rule> {
    let groups = [
        rules::messages::RULES,
        rules::hello::RULES,
        rules::members::RULES,
        rules::logins::RULES,
        rules::versions::RULES,
        rules::streaming::RULES,
        rules::commands::RULES,
        rules::sessions::RULES,
        rules::writes::RULES,
        rules::step_down::RULES,
    ];
    groups.into_iter().flatten()
}

/// Finds the rule of that name.
pub(super) fn named(name: &str) -> Result<&'static Rule, String> {
    let names = || all().map(|rule| rule.name).collect::<Vec<_>>().join(", ");
    all().find(|rule| rule.name == name).ok_or_else(|| format!("there are: {}", names()))
}
