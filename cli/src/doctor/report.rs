//! The report: findings first, then the evidence in sections; and the same as JSON, which
//! `DOCTOR.md` describes.

mod sections;

use std::io::{self, Write};
use std::time::Duration;

use clap::builder::styling::{AnsiColor, Style};
use serde_json::json;

use super::evidence::Evidence;
use super::finding::{Finding, Severity};
use crate::duration::precise;
use crate::text::escaped;
use crate::watch::ascii_controls;

/// All that there is to say.
#[derive(Debug)]
pub(super) struct Report {
    /// The time when it was over.
    pub(super) time: String,
    /// The time that it took.
    pub(super) elapsed: Duration,
    /// The things that are wrong.
    pub(super) findings: Vec<Finding>,
    /// The evidence that they were found from.
    pub(super) evidence: Evidence,
}

impl Report {
    /// Prints one object.
    pub(super) fn print_json(&self, out: &mut dyn Write) -> io::Result<()> {
        let object = json!({
            "time": self.time,
            "elapsedMs": self.elapsed.as_nanos() as f64 / 1e6,
            "healthy": self.findings.is_empty(),
            "verdict": self.findings.first().map(|finding| finding.verdict.name()),
            "findings": self.findings,
            "evidence": self.evidence,
        });
        writeln!(out, "{}", ascii_controls(object.to_string()))
    }

    /// Prints what is wrong, what to do, and the evidence.
    pub(super) fn print(&self, out: &mut dyn Write, color: bool) -> io::Result<()> {
        let paint = |style: Style, text: &str| match color {
            true => format!("{style}{text}{style:#}"),
            false => text.to_owned(),
        };
        if self.findings.is_empty() {
            let healthy = paint(AnsiColor::Green.on_default().bold(), "Nothing is wrong");
            writeln!(out, "{healthy}, as far as can be seen in {}.", precise(self.elapsed))?;
        }
        for finding in &self.findings {
            let style = match finding.severity {
                Severity::Error => AnsiColor::Red.on_default().bold(),
                Severity::Warning => AnsiColor::Yellow.on_default().bold(),
            };
            writeln!(out, "{}.", paint(style, &escaped(&sentence(&finding.cause))))?;
            writeln!(out, "  {}.", escaped(&sentence(&finding.advice)))?;
            for line in &finding.lines {
                writeln!(out, "      {}", paint(Style::new().bold(), &escaped(line)))?;
            }
            writeln!(out)?;
        }
        for section in sections::of(&self.evidence) {
            let (name, lines) = section;
            writeln!(out, "{}", paint(Style::new().bold(), name))?;
            for line in lines {
                writeln!(out, "  {}", escaped(&line))?;
            }
        }
        Ok(())
    }
}

/// Begins a sentence with a capital letter, unless it begins with a name or an address.
fn sentence(text: &str) -> String {
    let first = text.split(' ').next().unwrap_or_default();
    let is_word = first.chars().all(|c| c.is_ascii_lowercase());
    let mut characters = text.chars();
    match characters.next() {
        Some(c) if is_word => c.to_ascii_uppercase().to_string() + characters.as_str(),
        _ => text.to_owned(),
    }
}
