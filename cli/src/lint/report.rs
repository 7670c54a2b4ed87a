//! The printed form of judgements: text for people, or lines of JSON, which `LINT.md` describes.

use std::collections::BTreeMap;
use std::io;

use clap::builder::styling::AnsiColor;
use sdam_core::config::ServerAddress;
use serde::Serialize;
use serde_json::json;

use super::evidence::Kind;
use super::judge::Judgement;
use super::rule::Rule;
use crate::findings::{Allowed, Breach, Law, Rule as _, Severity, print_allowed};
use crate::printer::Printer;
use crate::text::{escaped, of_server};

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
    server: &'a str,
    severity: Severity,
    #[serde(flatten)]
    breach: &'a Breach<&'static Rule>,
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
    pub(super) allowed: Allowed,
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
            for (rule, count) in &judgement.allowed {
                *counts.allowed.entry(rule).or_default() += count;
            }
        }
        counts
    }
}

/// Prints each server, finding and rule that was not tried as an object, and then the counts.
pub(super) fn json(linted: &[Linted], out: &mut Printer<'_>) -> io::Result<()> {
    for it in linted {
        let server = it.server.to_string();
        out.json(&json!({ "server": {
            "address": server,
            "type": it.kind.map(|(kind, _)| kind.name()),
            "maxWireVersion": it.kind.and_then(|(_, version)| version),
            "error": it.error,
            "kept": it.judgement.kept,
        }}))?;
        for breach in &it.judgement.findings {
            let (severity, breaks) = (breach.rule.severity, breach.rule.breaks);
            out.json(&json!({ "finding": Line { server: &server, severity, breach, breaks } }))?;
        }
        for (rule, reason) in &it.judgement.not_tried {
            let not_tried = json!({ "server": server, "rule": rule.name, "reason": reason });
            out.json(&json!({ "notTried": not_tried }))?;
        }
    }
    out.json(&json!({ "counts": Counts::of(linted) }))
}

/// Prints servers and findings for people.
pub(super) fn text(linted: &[Linted], out: &mut Printer<'_>) -> io::Result<()> {
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
        out.line(format_args!("{}{kind}: {counts}", escaped(&server)))?;
        if let Some(error) = &it.error {
            let error = escaped(of_server(error, &it.server)).into_owned();
            let error = out.paint(AnsiColor::Red.on_default(), &error);
            out.line(format_args!("  {error}"))?;
        }
        for finding in &it.judgement.findings {
            let severity = finding.rule.severity;
            let severity = out.paint(severity.style(), severity.name());
            out.line(format_args!("{severity}: {}", finding.rule.name))?;
            finding.print(out)?;
            out.line(format_args!("  breaks:   {}", finding.rule.breaks))?;
        }
        let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
        for (_, reason) in &it.judgement.not_tried {
            *reasons.entry(reason).or_default() += 1;
        }
        for (reason, count) in reasons {
            out.line(format_args!("  not tried: {count}, as {}", escaped(reason)))?;
        }
    }
    print_allowed(&Counts::of(linted).allowed, out)
}

/// Prints every rule.
pub(super) fn list(is_json: bool, out: &mut Printer<'_>) -> io::Result<()> {
    for rule in <&Rule>::all() {
        let Law { name, text, specification, section } = rule.law();
        let (severity, needs) = (rule.severity.name(), rule.needs.argument());
        if is_json {
            let rule = json!({
                "rule": name, "severity": severity, "text": text,
                "specification": specification, "section": section, "breaks": rule.breaks,
                "needs": (!needs.is_empty()).then_some(needs),
            });
            out.json(&json!({ "rule": rule }))?;
            continue;
        }
        let needs = match needs {
            "" => String::new(),
            needs => format!(", needs {needs}"),
        };
        out.line(format_args!("{name} ({severity}{needs})"))?;
        rule.law().print(out)?;
        out.line(format_args!("  breaks:   {}", rule.breaks))?;
    }
    Ok(())
}
