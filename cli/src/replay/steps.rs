//! Shows a trace call by call.

use std::io::{BufRead, Write};
use std::path::Path;

use sdam_core::trace::{Replay, Trace};

use super::{ReplayError, is_cut, show_difference};
use crate::text::escaped;

/// Shows the lines of each call, and the view when it has changed, and waits for a line of input
/// before the next; at the end of the input nothing is waited for.
///
/// A trace that begins in the middle is shown without being replayed, and so is what follows an
/// input that was left out.
pub(super) fn run(
    path: &Path,
    trace: &Trace,
    input: &mut dyn BufRead,
    out: &mut dyn Write,
) -> Result<(), ReplayError> {
    let mut replay = Replay::new(trace);
    for step in trace.steps() {
        for (number, line) in step.lines() {
            writeln!(out, "{number:>6}  {}", escaped(line))?;
        }
        if let Some(Err(difference)) = replay.as_mut().and_then(Replay::step) {
            if is_cut(trace, &difference) {
                let line = trace.lines().count();
                return Err(ReplayError::Cut { path: path.to_owned(), line });
            }
            show_difference(&difference, out)?;
            return Err(ReplayError::Differs { path: path.to_owned(), difference });
        }
        out.flush()?;
        let mut answer = String::new();
        input.read_line(&mut answer)?;
        if answer.trim() == "q" {
            return Ok(());
        }
    }
    match (replay, trace.gap()) {
        (Some(_), Some(gap)) => {
            let line = gap.line();
            Ok(writeln!(out, "the trace ends here, replayed exactly until line {line} only")?)
        }
        (Some(_), None) => Ok(writeln!(out, "the trace ends here, replayed exactly")?),
        (None, _) => Ok(writeln!(out, "the trace ends here; it was not replayed")?),
    }
}
