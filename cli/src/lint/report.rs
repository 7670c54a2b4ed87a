//! The printed form of judgements: text for people, or lines of JSON, which `LINT.md` describes.

use std::collections::BTreeMap;
use std::io::{self, Write};

use clap::builder::styling::{AnsiColor, Style};
use sdam_core::config::ServerAddress;
use serde::Serialize;
use serde_json::json;

use super::evidence::Kind;
use super::judge::{Finding, Judgement};
use super::rule::{self, Severity};
use crate::finding::Broken;
use crate::text::{escaped, of_server};
use crate::watch::ascii_controls;

/// A server, and its judgement.
#[derive(Clone, Debug)]
pub(super) struct Linted {
    pub(super) server: ServerAddress,
    /// The kind of server that it says it is, and its wire version.
    pub(super) kind: Option<(Kind, Option<i64>)>,
    /// The reason why it could not be asked everything.
    pub(super) error: Option<String>,
    pub(super) judgement: Judgement,
}

/// A finding as a line of JSON.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Line<'a> {
    server: String,
    severity: &'static str,
    #[serde(flatten)]
    broken: Broken<'a>,
    breaks: &'static str,
}

/// The numbers at the end.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Counts {
    pub(super) servers: usize,
    /// The servers that could not be asked everything.
    pub(super) failed_servers: usize,
    pub(super) errors: usize,
    pub(super) warnings: usize,
    pub(super) notes: usize,
    pub(super) kept: usize,
    pub(super) not_tried: usize,
    /// The broken rules that are allowed, by rule.
    pub(super) allowed: BTreeMap<&'static str, usize>,
}

impl Counts {
    pub(super) fn of(linted: &[Linted]) -> Self {
        let mut counts = Self { servers: linted.len(), ..Self::default() };
        for Linted { error, judgement, .. } in linted {
            counts.failed_servers += usize::from(error.is_some());
            counts.errors += judgement.count(Severity::Error);
            counts.warnings += judgement.count(Severity::Warning);
            counts.notes += judgement.count(Severity::Note);
            counts.kept += judgement.kept.len();
            counts.not_tried += judgement.not_tried.len();
            for rule in &judgement.allowed {
                *counts.allowed.entry(rule).or_default() += 1;
            }
        }
        counts
    }
}

impl Finding {
    fn broken(&self) -> Broken<'_> {
        let (specification, section) = self.rule.source;
        Broken {
            rule: self.rule.name,
            text: self.rule.text,
            specification,
            section,
            expected: &self.expected,
            found: &self.found,
        }
    }
}

/// Prints each server, finding and rule that was not tried as an object, and then the counts.
pub(super) fn json(linted: &[Linted], out: &mut dyn Write) -> io::Result<()> {
    let mut line =
        |value: serde_json::Value| writeln!(out, "{}", ascii_controls(value.to_string()));
    for it in linted {
        let server = it.server.to_string();
        line(json!({ "server": {
            "address": server,
            "type": it.kind.map(|(kind, _)| kind.name()),
            "maxWireVersion": it.kind.and_then(|(_, version)| version),
            "error": it.error,
            "kept": it.judgement.kept,
        }}))?;
        for finding in &it.judgement.findings {
            let (severity, breaks) = (finding.rule.severity.name(), finding.rule.breaks);
            let server = server.clone();
            let finding = Line { server, severity, broken: finding.broken(), breaks };
            line(json!({ "finding": finding }))?;
        }
        for (rule, reason) in &it.judgement.not_tried {
            let not_tried = json!({ "server": server, "rule": rule.name, "reason": reason });
            line(json!({ "notTried": not_tried }))?;
        }
    }
    line(json!({ "counts": Counts::of(linted) }))
}

/// Prints servers and findings for people.
pub(super) fn text(linted: &[Linted], color: bool, out: &mut dyn Write) -> io::Result<()> {
    let paint = |style: Style, text: &str| match color {
        true => format!("{style}{text}{style:#}"),
        false => text.to_owned(),
    };
    for it in linted {
        let server = it.server.to_string();
        let kind = match it.kind {
            Some((kind, Some(version))) => format!(", {}, wire version {version}", kind.name()),
            Some((kind, None)) => format!(", {}", kind.name()),
            None => String::new(),
        };
        let (kept, findings) = (it.judgement.kept.len(), it.judgement.findings.len());
        let not_tried = it.judgement.not_tried.len();
        let counts = format!("{kept} rules kept, {findings} broken, {not_tried} not tried");
        writeln!(out, "{}{kind}: {counts}", escaped(&server))?;
        if let Some(error) = &it.error {
            let error = escaped(of_server(error, &it.server)).into_owned();
            writeln!(out, "  {}", paint(AnsiColor::Red.on_default(), &error))?;
        }
        for finding in &it.judgement.findings {
            let severity = finding.rule.severity;
            let style = match severity {
                Severity::Error => AnsiColor::Red.on_default().bold(),
                Severity::Warning => AnsiColor::Yellow.on_default(),
                Severity::Note => Style::new(),
            };
            writeln!(out, "{}: {}", paint(style, severity.name()), finding.rule.name)?;
            finding.broken().print(out)?;
            writeln!(out, "  breaks:   {}", finding.rule.breaks)?;
        }
        let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
        for (_, reason) in &it.judgement.not_tried {
            *reasons.entry(reason).or_default() += 1;
        }
        for (reason, count) in reasons {
            writeln!(out, "  not tried: {count}, as {}", escaped(reason))?;
        }
    }
    for (rule, count) in Counts::of(linted).allowed {
        writeln!(out, "{count} times {rule}, which is allowed")?;
    }
    Ok(())
}

/// Prints every rule.
pub(super) fn list(is_json: bool, out: &mut dyn Write) -> io::Result<()> {
    for rule in rule::all() {
        let (specification, section) = rule.source;
        let needs = rule.needs.argument();
        if is_json {
            let rule = json!({
                "rule": rule.name, "severity": rule.severity.name(), "text": rule.text,
                "specification": specification, "section": section, "breaks": rule.breaks,
                "needs": (!needs.is_empty()).then_some(needs),
            });
            writeln!(out, "{}", json!({ "rule": rule }))?;
            continue;
        }
        let needs = match needs {
            "" => String::new(),
            needs => format!(", needs {needs}"),
        };
        writeln!(out, "{} ({}{needs})", rule.name, rule.severity.name())?;
        writeln!(out, "  rule:     {}", rule.text)?;
        writeln!(out, "            ({specification}, \"{section}\")")?;
        writeln!(out, "  breaks:   {}", rule.breaks)?;
    }
    Ok(())
}
