//! The weight of a finding.

use clap::builder::styling::{AnsiColor, Style};
use serde::Serialize;

/// The weight of a finding, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Severity {
    /// Applications fail because of it, or take data or servers for what they are not.
    Error,
    /// Applications work in spite of it, or could, and some do something worse than they might.
    Warning,
    /// Few notice it.
    Note,
}

impl Severity {
    /// Returns the name.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Note => "note",
        }
    }

    /// Returns how it looks on a terminal.
    pub(crate) const fn style(self) -> Style {
        match self {
            Self::Error => AnsiColor::Red.on_default().bold(),
            Self::Warning => AnsiColor::Yellow.on_default().bold(),
            Self::Note => Style::new(),
        }
    }
}
