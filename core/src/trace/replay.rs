//! Replays a trace, and compares.

use std::fmt;
use std::sync::Arc;

use super::criteria::Answers;
use super::input::Call;
use super::read::is_omitted;
use super::{ACTION, ANSWERS, Seal, Trace, TraceStep, action};
use crate::time::Instant;
use crate::topology::{Action, Topology};

/// A topology that receives the inputs of a trace, call by call, and is compared with it.
pub struct Replay<'t> {
    trace: &'t Trace,
    /// The number of calls that were done.
    done: usize,
    topology: Topology,
    answers: Answers,
    actions: Vec<Action>,
}

/// The first thing that a replay did in another way than the trace says.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Difference {
    /// The line that says it, or the first line of the call that it belongs to if there is none.
    pub line: usize,
    /// The time when the machine was called.
    pub at: Instant,
    /// The trace's line, if there is one.
    pub recorded: Option<String>,
    /// The machine's action, if there is one.
    pub replayed: Option<String>,
}

impl<'t> Replay<'t> {
    /// Begins with a new machine; `None` if the beginning of the trace is missing.
    pub fn new(trace: &'t Trace) -> Option<Self> {
        let header = trace.header();
        (!header.is_tail).then(|| Self {
            trace,
            done: 0,
            topology: Topology::new(Arc::clone(&header.options), header.seed),
            answers: Answers::default(),
            actions: Vec::new(),
        })
    }

    /// Returns the machine, after the steps so far.
    pub const fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Returns the actions of the last call.
    pub fn actions(&self) -> &[Action] {
        &self.actions
    }

    /// Calls the machine once more; `None` at the end of the trace, or at its [`gap`](Trace::gap).
    ///
    /// # Errors
    ///
    /// The machine did not do what the trace says. It can go on.
    pub fn step(&mut self) -> Option<Result<TraceStep<'t>, Difference>> {
        let step = self.call()?;
        Some(self.compare(step))
    }

    /// Calls the machine once more, and notes its actions.
    fn call(&mut self) -> Option<TraceStep<'t>> {
        let gap = self.trace.gap().map(|gap| gap.line());
        let step = self.trace.step(self.done).filter(|step| Some(step.line()) != gap)?;
        self.done += 1;
        self.answers.give(step.answers());
        self.actions.clear();
        let (now, out) = (step.time(), &mut self.actions);
        // It was read before.
        step.call(&self.answers).unwrap_or(Call::Tick).apply(&mut self.topology, now, out);
        Some(step)
    }

    /// Writes the trace as this machine would: the same inputs and comments, with the actions that
    /// follow from them now, and without answers that no predicate was asked for; from a gap on as
    /// it is. It is the text that was read if nothing differs and no actions were left out.
    pub fn rewrite(mut self) -> String {
        let trace = self.trace;
        let end_of_header = trace.steps().next().map_or(usize::MAX, |step| step.line());
        let (mut first, mut rest) = (String::new(), String::new());
        for (number, line) in trace.lines().take_while(|(number, _)| *number < end_of_header) {
            let text = if number == 1 { &mut first } else { &mut rest };
            text.extend([line, "\n"]);
        }
        while let Some(step) = self.call() {
            let lines = step.lines().map(|(_, line)| line);
            let (above, below): (Vec<_>, Vec<_>) = lines
                .filter(|line| !line.starts_with(ACTION))
                .partition(|line| line.starts_with('+') || line.starts_with(ANSWERS));
            let mut asked = step.answers().count() - self.answers.take().len();
            for line in above {
                let Some(said) = line.strip_prefix(ANSWERS) else {
                    rest.extend([line, "\n"]);
                    continue;
                };
                let said: Vec<&str> = said.split(' ').take(asked).collect();
                asked -= said.len();
                if !said.is_empty() {
                    rest.extend([ANSWERS, &said.join(" "), "\n"]);
                }
            }
            for action in &self.actions {
                rest.extend([ACTION, &action::written(action), "\n"]);
            }
            below.iter().for_each(|line| rest.extend([line, "\n"]));
        }
        let gap = trace.gap().map_or(usize::MAX, |gap| gap.line());
        let left = trace.lines().skip_while(|(number, _)| *number < gap);
        left.for_each(|(_, line)| rest.extend([line, "\n"]));
        match trace.is_sealed() {
            true => first + &Seal::new().seal(&rest),
            false => first + &rest,
        }
    }

    /// Does all that is left, until the end or a [`gap`](Trace::gap).
    ///
    /// # Errors
    ///
    /// The first thing that the machine did not do as the trace says.
    pub fn finish(&mut self) -> Result<(), Difference> {
        while let Some(outcome) = self.step() {
            outcome?;
        }
        Ok(())
    }

    fn compare(&self, step: TraceStep<'t>) -> Result<TraceStep<'t>, Difference> {
        let (mut recorded, mut replayed) =
            (step.actions(), self.actions.iter().map(action::written));
        loop {
            let (one, other) = (recorded.next(), replayed.next());
            match (&one, &other) {
                (None, None) => break,
                (Some((_, one)), _) if is_omitted(one) => break,
                (Some((_, one)), Some(other)) if one == other => continue,
                _ => {}
            }
            return Err(Difference {
                line: one.map_or(step.line(), |(line, _)| line),
                at: step.at(),
                recorded: one.map(|(_, text)| text.to_owned()),
                replayed: other,
            });
        }
        match self.answers.take().is_empty() {
            true => Ok(step),
            false => Err(Difference {
                line: step.line(),
                at: step.at(),
                recorded: Some("more answers of predicates than were asked for".to_owned()),
                replayed: None,
            }),
        }
    }
}

impl fmt::Debug for Replay<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replay").field("topology", &self.topology).finish_non_exhaustive()
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let or_nothing = |text: &Option<String>| match text {
            Some(text) => format!("{ACTION}{text}"),
            None => "  (nothing)".to_owned(),
        };
        write!(
            f,
            "line {}: the replay differs\nrecorded:\n{}\nreplayed:\n{}",
            self.line,
            or_nothing(&self.recorded),
            or_nothing(&self.replayed)
        )
    }
}
