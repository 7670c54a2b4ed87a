//! A trace as a report: its lines say what happened, and the machine, where it can do all that
//! again, what operations would have met.

mod lines;

use sdam_core::config::Options;
use sdam_core::time::Instant;
use sdam_core::trace::{Replay, Trace, TraceStep};

use self::lines::Reader;
use super::judged::{by_machine, by_states};
use crate::replay::{BEGAN, closes, is_cut};
use crate::report::model::{Builder, Event, Origin, Report};
use crate::watch::Tone;

/// Makes a report of a trace.
pub(in crate::report) fn read(name: &str, trace: &Trace) -> Report {
    let (mut reader, mut replay) = (Reader::default(), Replay::new(trace));
    if replay.is_none() {
        reader.builder.note(without_machine("the trace begins in the middle"));
    }
    let mut end = trace.steps().last().map_or(Instant::ZERO, |step| step.at());
    for step in trace.steps() {
        let (at, line) = (step.at(), step.line());
        // What a view means may depend on how long it lasts.
        judge(&mut reader.builder, replay.as_ref(), (at, line));
        if closes(&step) {
            let text = "the client was closed".to_owned();
            reader.builder.add(Event::new((at, line), Tone::Neutral, lines::TOPOLOGY, text));
            end = at;
            break;
        }
        step.lines().for_each(|(line, text)| reader.line(at, line, text));
        if let Some(machine) = &mut replay
            && let Some(reason) = go_on(machine, trace, &step)
        {
            reader.builder.note(reason);
            replay = None;
        }
        judge(&mut reader.builder, replay.as_ref(), (at, reader.changed.unwrap_or(line)));
    }
    let origin = Origin {
        name: name.to_owned(),
        deployment: deployment(&trace.header().options),
        began: trace.lines().find_map(|(_, line)| Some(line.strip_prefix(BEGAN)?.to_owned())),
        lines: trace.lines().count(),
    };
    let lines: Vec<&str> = trace.lines().map(|(_, line)| line).collect();
    reader.builder.finish(origin, end, |line| {
        line.checked_sub(1).and_then(|index| lines.get(index)).copied().unwrap_or_default()
    })
}

/// Finds what operations meet now.
fn judge(builder: &mut Builder, replay: Option<&Replay<'_>>, moment: (Instant, usize)) {
    let (writes, reads) = match replay {
        Some(replay) => by_machine(replay.topology(), moment.0),
        None => by_states(builder, moment.0),
    };
    builder.judge(moment, writes, reads);
}

/// Does what a step says; returns why the machine knows no more what was known, if so.
fn go_on(replay: &mut Replay<'_>, trace: &Trace, step: &TraceStep<'_>) -> Option<String> {
    let line = step.line();
    match replay.step() {
        Some(Ok(_)) => None,
        None => {
            let reason = format!("from line {line} on, where an input was too long to be kept");
            Some(without_machine(&reason))
        }
        Some(Err(difference)) if is_cut(trace, &difference) => {
            Some(format!("the trace is cut off: the end of what line {line} did is missing"))
        }
        Some(Err(difference)) => {
            let line = difference.line;
            let reason = format!("this version does otherwise than line {line} says, from where");
            Some(without_machine(&reason))
        }
    }
}

fn without_machine(reason: &str) -> String {
    format!("{reason}: verdicts are those that the types of servers show")
}

/// Names a deployment by what the connection string said.
fn deployment(options: &Options) -> String {
    let hosts: Vec<String> = match options.srv() {
        Some(srv) => vec![srv.hostname.to_string()],
        None => options.seeds().iter().map(ToString::to_string).collect(),
    };
    super::deployment(options.replica_set().map(AsRef::as_ref), &hosts)
}
