//! Traces: whatever a file says, and what a recorder writes of whatever happens.

use sdam_core::rng::Rng;
use sdam_core::trace::{Difference, Replay, Seal, Trace, TraceError};

use super::topology;

/// The beginning of the first line of a trace.
const MAGIC: &[u8] = b"sdam-trace";

/// The number of bytes of a sealed trace that are changed, one after the other.
const CHANGES: usize = 2;

/// The input is a trace; if it begins otherwise, it is also what happens to a client that is
/// recorded, in the form of the target `topology`.
///
/// # Panics
///
/// Panics if a law is broken.
pub fn traces(bytes: &[u8]) {
    match Trace::parse(bytes) {
        Ok(trace) => is_replayed(&trace),
        Err(error) => names_a_line(bytes, &error),
    }
    if !bytes.starts_with(MAGIC) {
        // The same with all bytes torn takes as long again, so that the first byte says whether.
        let torn = bytes.first().is_some_and(|first| first.is_multiple_of(4));
        is_recorded(&topology::recorded(bytes, torn));
    }
}

/// The line is there, or is the one that is missing at the end.
fn names_a_line(bytes: &[u8], error: &TraceError) {
    let TraceError::Line { line, .. } = error else { panic!("the trace is short: {error}") };
    let lines = bytes.split(|byte| *byte == b'\n').count();
    assert!((1..=lines + 1).contains(line), "there are {lines} lines: {error}");
    assert!(error.to_string().starts_with(&format!("line {line}: ")), "{error}");
}

/// Asserts that a trace can be replayed, and that the replay's own trace is replayed exactly.
fn is_replayed(trace: &Trace) {
    let Some(mut replay) = Replay::new(trace) else {
        assert!(trace.header().is_tail, "only the beginning may be missing");
        return;
    };
    let mut exact = true;
    let gap = trace.gap().map_or(usize::MAX, |gap| gap.line());
    for step in trace.steps().take_while(|step| step.line() < gap) {
        match replay.step().expect("as many calls as there are") {
            Ok(done) => assert_eq!(done.line(), step.line(), "calls are in order"),
            Err(difference) => {
                exact = false;
                let mut lines = step.lines().map(|(line, _)| line);
                assert!(lines.any(|line| line == difference.line), "another call: {difference}");
            }
        }
    }
    assert!(replay.step().is_none(), "no call is left, or none that can be replayed");
    let text = rewritten(trace);
    let again = Trace::parse(&text).unwrap_or_else(|error| panic!("{text}\n{error}"));
    assert_eq!(again.header(), trace.header(), "{text}");
    replays_exactly(&text, &again);
    if exact {
        let of = |trace: &Trace| -> Vec<_> { trace.steps().map(|step| step.at()).collect() };
        assert_eq!(of(&again), of(trace), "{text}");
    }
    if again.is_sealed() {
        every_change_is_noticed(&text);
    }
}

/// Asserts that a recorder's text is read and replayed, and that no byte of it changes unnoticed.
fn is_recorded(text: &str) {
    if text.is_empty() {
        return;
    }
    let trace = Trace::parse(text).unwrap_or_else(|error| panic!("{text}\n{error}"));
    replays_exactly(text, &trace);
    let (first, rest) = text.split_once('\n').expect("a first line");
    let sealed = format!("{first} sealed\n{}", Seal::new().seal(rest));
    assert!(Trace::parse(&sealed).is_ok_and(|trace| trace.is_sealed()), "{sealed}");
    every_change_is_noticed(&sealed);
}

fn replays_exactly(text: &str, trace: &Trace) {
    let outcome: Result<(), Difference> = Replay::new(trace).expect("a beginning").finish();
    outcome.unwrap_or_else(|difference| panic!("{text}\n{difference}"));
    assert_eq!(rewritten(trace), text, "what is replayed exactly is written as it was");
}

fn rewritten(trace: &Trace) -> String {
    Replay::new(trace).expect("a beginning").rewrite()
}

/// Changes a few bytes, always the same ones of a text, but no ends of lines: two lines that become
/// one are noticed with every likelihood, and not with certainty.
fn every_change_is_noticed(text: &str) {
    let mut rng = Rng::new(text.len() as u64);
    let mut below = |limit: usize| usize::try_from(rng.next_u64() % limit as u64).expect("less");
    for _ in 0..CHANGES {
        let mut changed = text.as_bytes().to_vec();
        let at = below(changed.len() - 1);
        changed[at] ^= below(255) as u8 + 1;
        if text.as_bytes()[at] == b'\n' || changed[at] == b'\n' {
            continue;
        }
        let line = text.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count() + 1;
        match Trace::parse(&changed) {
            Err(TraceError::Line { line: named, .. }) if named == line => {}
            Err(error) => panic!("line {line}, byte {at} has changed: {error}"),
            Ok(_) => panic!("line {line}, byte {at} has changed unnoticed: {text}"),
        }
    }
}
