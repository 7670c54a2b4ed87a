//! The report: findings first, then the evidence in sections; and the same as JSON, which
//! `DOCTOR.md` describes.

mod sections;

use std::io;
use std::time::Duration;

use clap::builder::styling::{AnsiColor, Style};
use serde_json::json;

use super::evidence::Evidence;
use super::finding::Finding;
use crate::duration::precise;
use crate::printer::Printer;
use crate::text::escaped;

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
    /// Returns the things that are wrong, the worst first.
    fn wrong(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|finding| finding.is_wrong())
    }

    /// Returns whether nothing is wrong.
    pub(super) fn is_healthy(&self) -> bool {
        self.wrong().next().is_none()
    }

    /// Prints one object.
    pub(super) fn print_json(&self, out: &mut Printer<'_>) -> io::Result<()> {
        out.json(&json!({
            "time": self.time,
            "elapsedMs": self.elapsed.as_nanos() as f64 / 1e6,
            "healthy": self.is_healthy(),
            "verdict": self.wrong().next().map(|finding| finding.verdict.name()),
            "findings": self.findings,
            "evidence": self.evidence,
        }))
    }

    /// Prints what is wrong, what to do, and the evidence.
    pub(super) fn print(&self, out: &mut Printer<'_>) -> io::Result<()> {
        let bold = Style::new().bold();
        if self.is_healthy() {
            let healthy = out.paint(AnsiColor::Green.on_default().bold(), "Nothing is wrong");
            let took = precise(self.elapsed);
            out.line(format_args!("{healthy}, as far as can be seen in {took}."))?;
        }
        for finding in &self.findings {
            let cause = out.paint(finding.severity.style(), &escaped(&sentence(&finding.cause)));
            out.line(format_args!("{cause}."))?;
            if !finding.advice.is_empty() {
                out.line(format_args!("  {}.", escaped(&sentence(&finding.advice))))?;
            }
            for line in &finding.lines {
                let line = out.paint(bold, &escaped(line));
                out.line(format_args!("      {line}"))?;
            }
            out.line(format_args!(""))?;
        }
        for (name, lines) in sections::of(&self.evidence) {
            let name = out.paint(bold, name);
            out.line(format_args!("{name}"))?;
            lines.iter().try_for_each(|line| out.line(format_args!("  {}", escaped(line))))?;
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
