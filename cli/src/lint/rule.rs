//! The promises that drivers rely on, each with the place where it is written.

use super::evidence::{Evidence, Judged};
use super::rules;
use crate::findings::{self, Law, Severity};

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

/// A rule of severity error that is tried without any argument, but for what makes it one.
pub(super) const ERROR: Rule = Rule {
    name: "",
    severity: Severity::Error,
    needs: Needs::Nothing,
    text: "",
    source: ("", ""),
    breaks: "",
    judge: |_| Ok(()),
};

/// The same of severity warning.
pub(super) const WARNING: Rule = Rule { severity: Severity::Warning, ..ERROR };

/// The same of severity note.
pub(super) const NOTE: Rule = Rule { severity: Severity::Note, ..ERROR };

impl findings::Rule for &'static Rule {
    fn law(self) -> Law {
        let (specification, section) = self.source;
        Law { name: self.name, text: self.text, specification, section }
    }

    fn all() -> impl Iterator<Item = Self> {
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
}
