//! A trace of which some calls are left out.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use sdam_core::trace::{Replay, Script, Seal, Trace, TraceError};

/// The inputs of a trace, and what stands before them.
pub(super) struct Draft {
    sealed: bool,
    first: String,
    header: String,
    calls: Vec<Call>,
}

/// A call of the machine: its line, and what predicates answered.
struct Call {
    text: String,
    /// The server that it is about, or else what kind of call it is.
    subject: String,
}

impl Draft {
    /// Takes the inputs of a trace up to a number of calls, without their actions and comments.
    pub(super) fn of(trace: &Trace, calls: usize) -> Self {
        let end = trace.steps().next().map_or(usize::MAX, |step| step.line());
        let mut lines = trace.lines().take_while(|(number, _)| *number < end);
        let first = lines.next().map_or("", |(_, line)| line);
        let header = lines.map(|(_, line)| format!("{line}\n")).collect();
        let calls = trace.steps().take(calls).map(|step| {
            let kept = step.lines().filter(|(_, line)| is_kept(line));
            let text: String = kept.map(|(_, line)| format!("{line}\n")).collect();
            let mut words = text.split(' ').skip(1);
            let (kind, name) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
            let server = name.strip_prefix('s').filter(|rest| {
                rest.split('.').next().is_some_and(|number| number.parse::<u32>().is_ok())
            });
            let subject = match server {
                Some(_) => name.split('.').next().unwrap_or_default(),
                None => kind.trim_end(),
            };
            Call { subject: subject.to_owned(), text }
        });
        Self {
            sealed: trace.is_sealed(),
            first: first.replace(" sealed", ""),
            header,
            calls: calls.collect(),
        }
    }

    /// Returns the calls by what they are about.
    pub(super) fn by_subject(&self) -> Vec<Vec<usize>> {
        let mut groups: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (index, call) in self.calls.iter().enumerate() {
            groups.entry(&call.subject).or_default().push(index);
        }
        groups.into_values().collect()
    }

    /// Returns the text of the trace with these calls, with what follows from them; but for the
    /// last call if that panics. It is sealed if the trace was.
    pub(super) fn finish(
        &self,
        script: &Script,
        calls: &[usize],
        panics: bool,
    ) -> Result<String, TraceError> {
        let mut replay = script.perform();
        let lines = calls.iter().map(|index| {
            // The last one may panic.
            let _ = catch_unwind(AssertUnwindSafe(|| replay.call(*index)));
            let (written, below) = self.calls[*index].text.split_once('\n').unwrap_or_default();
            format!("{}\n{below}", replay.changed_line().as_deref().unwrap_or(written))
        });
        let lines: Vec<String> = lines.collect();
        let (whole, broken) = lines.split_at(lines.len().saturating_sub(usize::from(panics)));
        let trace = Trace::parse(format!("{}\n{}{}", self.first, self.header, whole.concat()))?;
        let text = Replay::new(&trace).map_or(String::new(), Replay::rewrite) + &broken.concat();
        if !self.sealed {
            return Ok(text);
        }
        let rest = text.split_once('\n').map_or("", |(_, rest)| rest);
        Ok(format!("{} sealed\n{}", self.first, Seal::new().seal(rest)))
    }
}

/// Returns whether a line of a call is an input of the machine.
fn is_kept(line: &str) -> bool {
    line.starts_with('+') || line.starts_with("  ? ")
}
