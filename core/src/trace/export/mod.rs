//! A trace becomes a case of the official suites of Server Discovery And Monitoring, which any
//! driver's runner can read: what servers answered, what errors operations met, and the description
//! after each.
//!
//! Such a case knows no time, no DNS and no pools, but for how often one was cleared. Where a trace
//! depends on those, it cannot be expressed, and [`ExportError`] says what and where.

mod operation;
mod outcome;
mod reply;
mod verify;

use std::collections::BTreeMap;
use std::fmt;

use super::{Difference, Replay, Trace, TraceStep};
use crate::config::{Options, OptionsError};
use crate::topology::Topology;
use serde_json::{Map, Value, json};

use operation::application_error;
use outcome::outcome;
use reply::Replies;
use verify::verify;

/// The number of reported things that cannot be expressed.
const MOST_TOLD: usize = 20;

/// The reason why a trace does not become a case.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// The beginning of the trace is missing.
    #[error("the trace begins in the middle: its first answers are missing")]
    Tail,
    /// A flight recorder has left something out.
    #[error("line {0}: a part of this call is missing, as it was too long for the flight recorder")]
    Omitted(usize),
    /// The trace differs from what this version of the core does.
    #[error("line {}: the replay differs, so that the trace does not say what follows", .0.line)]
    Differs(Difference),
    /// Nothing in the trace can be a part of a case.
    #[error("no server answers in the trace, and no operation reports an error")]
    Nothing,
    /// Something in the trace cannot be a part of a case.
    #[error("the format of the official tests cannot say this:{}", lines(.0))]
    Inexpressible(Vec<Inexpressible>),
    /// The case was written, and the core does not pass it.
    #[error("the test that this becomes does not pass here, where time stands still: {0}")]
    Fails(String),
    /// The options cannot be written as a connection string.
    #[error("the options cannot be written as a connection string: {0}")]
    Options(OptionsError),
}

/// Something that the format cannot say.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Inexpressible {
    /// The line of the trace that has it, from 1.
    pub line: usize,
    /// The part of the trace, in words.
    pub what: String,
}

fn lines(told: &[Inexpressible]) -> String {
    let shown = told.iter().take(MOST_TOLD).map(|it| format!("\n  {it}"));
    let more = told.len().saturating_sub(MOST_TOLD);
    let more = (more > 0).then(|| format!("\n  and {more} more"));
    shown.chain(more).collect()
}

impl fmt::Display for Inexpressible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

/// Writes a trace as a case of that name, in the JSON of the official suites, and runs it.
///
/// Every call in which a server answers a check or fails to, or an operation reports an error, is a
/// phase. The case ends where the client was closed. Of replies it has what descriptions are made
/// of.
///
/// # Errors
///
/// The trace says what the format cannot, or it is not what this version of the core does.
pub fn export(trace: &Trace, name: &str) -> Result<String, ExportError> {
    let mut replay = Replay::new(trace).ok_or(ExportError::Tail)?;
    let mut writer = Writer::new(trace);
    for (index, step) in trace.steps().enumerate() {
        if word(&step) == "shutdown" {
            break;
        }
        match replay.step() {
            Some(Ok(step)) if !step.omits_actions() => {}
            Some(Err(difference)) => return Err(ExportError::Differs(difference)),
            Some(Ok(_)) | None => return Err(ExportError::Omitted(step.line())),
        }
        writer.step(&step, index == 0, replay.topology());
    }
    writer.finish(trace, name, replay.topology())
}

/// Returns what kind of call a step is.
fn word<'t>(step: &TraceStep<'t>) -> &'t str {
    words(step).split(' ').next().unwrap_or_default()
}

/// Returns the first line of a step behind the times.
fn words<'t>(step: &TraceStep<'t>) -> &'t str {
    let line = step.lines().next().map_or("", |(_, line)| line);
    line.split_once(' ').map_or("", |(_, words)| words)
}

/// The actions of a step of one kind, with their lines.
fn actions<'t>(step: &TraceStep<'t>, kind: &'static str) -> impl Iterator<Item = (usize, &'t str)> {
    step.lines().filter_map(move |(number, line)| {
        Some((number, line.strip_prefix("  > ")?.strip_prefix(kind)?.strip_prefix(' ')?))
    })
}

/// The case so far.
struct Writer {
    phases: Vec<Value>,
    inexpressible: Vec<Inexpressible>,
    /// The addresses of servers, also of those that have left.
    addresses: BTreeMap<String, String>,
    /// The number of clears of each server's pool, if operations report errors.
    generations: Option<BTreeMap<String, u64>>,
}

impl Writer {
    fn new(trace: &Trace) -> Self {
        let mut writer = Self {
            phases: Vec::new(),
            inexpressible: Vec::new(),
            addresses: BTreeMap::new(),
            generations: trace
                .steps()
                .any(|step| word(&step) == "operation-failed")
                .then(BTreeMap::new),
        };
        if trace.header().options.srv().is_some() {
            let line = trace.lines().find(|(_, line)| line.starts_with("options "));
            writer.refuse(line.map_or(1, |(line, _)| line), "the seeds come from DNS");
        }
        writer
    }

    fn refuse(&mut self, line: usize, what: impl Into<String>) {
        self.inexpressible.push(Inexpressible { line, what: what.into() });
    }

    fn step(&mut self, step: &TraceStep<'_>, is_first: bool, topology: &Topology) {
        self.note_servers(step);
        let responses = self.responses(step);
        let mut errors = Vec::new();
        match word(step) {
            "resolved" => self.refuse(step.line(), "records come from DNS"),
            "operation-failed" => match application_error(words(step), &self.addresses, topology) {
                Ok(error) => errors.push(error),
                Err(what) => self.refuse(step.line(), what),
            },
            _ => {}
        }
        let is_news = |text: &str| text.contains("DescriptionChanged\"");
        let news = actions(step, "emit").find(|(_, text)| is_news(text));
        match (responses.is_empty() && errors.is_empty(), news) {
            (true, Some((line, _))) if !is_first && word(step) != "resolved" => {
                self.refuse(line, "the description changes because time has passed");
            }
            (true, _) => {}
            (false, _) => {
                let mut phase = Map::new();
                phase.insert("description".to_owned(), format!("line {}", step.line()).into());
                phase.insert("responses".to_owned(), responses.into());
                if !errors.is_empty() {
                    phase.insert("applicationErrors".to_owned(), errors.into());
                }
                phase.insert("outcome".to_owned(), self.outcome(topology));
                self.phases.push(phase.into());
            }
        }
    }

    fn outcome(&self, topology: &Topology) -> Value {
        outcome(topology.description(), self.generations.as_ref())
    }

    /// Follows which servers there are, and how often their pools are cleared.
    fn note_servers(&mut self, step: &TraceStep<'_>) {
        for (_, text) in actions(step, "join") {
            let Some((server, address)) = text.split_once(' ') else { continue };
            self.addresses.insert(server.to_owned(), address.to_owned());
            if let Some(generations) = &mut self.generations {
                generations.insert(address.to_owned(), 0);
            }
        }
        for (line, text) in actions(step, "pool") {
            let Some((server, command)) = text.split_once(' ') else { continue };
            if command.starts_with("clear service ") {
                self.refuse(line, "a pool is cleared for one service behind a load balancer");
            }
            let to = command.strip_prefix("clear to ");
            let to = to.and_then(|to| to.split([',', ' ']).next()?.parse().ok());
            let address = self.addresses.get(server).cloned();
            if let (Some(generations), Some(to), Some(address)) =
                (&mut self.generations, to, address)
            {
                generations.insert(address, to);
            }
        }
    }

    /// Returns what ended checks: replies, and `{}` for whatever is none.
    fn responses(&mut self, step: &TraceStep<'_>) -> Vec<Value> {
        let mut replies = Replies::of(words(step));
        let mut responses = Vec::new();
        for (line, text) in actions(step, "emit") {
            let Ok(event) = serde_json::from_str::<Value>(text) else { continue };
            let cause = event["failure"]["cause"].as_str();
            let reply = match (event["event"].as_str(), cause) {
                (Some("serverHeartbeatSucceeded"), _)
                | (Some("serverHeartbeatFailed"), Some("command" | "malformed")) => replies.next(),
                // It was given up, and says nothing of the server.
                (Some("serverHeartbeatFailed"), Some("canceled")) => continue,
                (Some("serverHeartbeatFailed"), _) => Some(json!({})),
                _ => continue,
            };
            match reply {
                Some(reply) => responses.push(json!([event["address"], reply])),
                None => self.refuse(line, "what a server answers is no reply that can be read"),
            }
        }
        responses
    }

    fn finish(
        mut self,
        trace: &Trace,
        name: &str,
        topology: &Topology,
    ) -> Result<String, ExportError> {
        if !self.inexpressible.is_empty() {
            return Err(ExportError::Inexpressible(self.inexpressible));
        }
        let options = &trace.header().options;
        if self.phases.is_empty() {
            if !options.load_balanced() {
                return Err(ExportError::Nothing);
            }
            // There are no inputs for a load balancer.
            self.phases.push(json!({ "outcome": self.outcome(topology) }));
        }
        let uri = uri(options).map_err(ExportError::Options)?;
        verify(&uri, &self.phases).map_err(ExportError::Fails)?;
        let case = json!({ "description": name, "uri": uri, "phases": self.phases });
        let text = serde_json::to_string_pretty(&case).expect("it is JSON already");
        Ok(text + "\n")
    }
}

/// Returns the connection string with what decides which servers there are, and nothing else.
fn uri(options: &Options) -> Result<String, OptionsError> {
    let mut builder = Options::builder().seeds(options.seeds().to_vec());
    if options.direct_connection() {
        builder = builder.direct_connection(true);
    }
    if options.load_balanced() {
        builder = builder.load_balanced(true);
    }
    if let Some(name) = options.replica_set() {
        builder = builder.replica_set(&**name);
    }
    builder.build().map(|options| options.to_string())
}
