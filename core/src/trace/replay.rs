//! Does again what a trace tells, and compares.

use std::fmt;
use std::sync::Arc;

use super::criteria::Answers;
use super::input::Call;
use super::{ACTION, Step, Trace, action};
use crate::machine::Machine;
use crate::time::Instant;
use crate::topology::{Action, Input, Topology};

/// A topology that is told what a trace says, call by call, and compared with it.
pub struct Replay<'t> {
    steps: Box<dyn Iterator<Item = Step<'t>> + 't>,
    topology: Topology,
    answers: Answers,
    actions: Vec<Action>,
}

/// The first thing that a replay did in another way than the trace tells.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Difference {
    /// The line that tells it, or the first line of the call that it belongs to if there is none.
    pub line: usize,
    /// When the machine was called.
    pub at: Instant,
    /// What the trace tells, if anything.
    pub recorded: Option<String>,
    /// What the machine did, if anything.
    pub replayed: Option<String>,
}

impl<'t> Replay<'t> {
    /// Begins with a new machine; `None` if the beginning of the trace is missing.
    pub fn new(trace: &'t Trace) -> Option<Self> {
        let header = trace.header();
        (!header.is_tail).then(|| Self {
            steps: Box::new(trace.steps()),
            topology: Topology::new(Arc::clone(&header.options), header.seed),
            answers: Answers::default(),
            actions: Vec::new(),
        })
    }

    /// Returns the machine, after the steps so far.
    pub const fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Calls the machine once more; `None` at the end of the trace.
    ///
    /// # Errors
    ///
    /// The machine did not do what the trace tells. It can go on.
    pub fn step(&mut self) -> Option<Result<Step<'t>, Difference>> {
        let step = self.steps.next()?;
        if let Some(clock) = step.clock() {
            self.topology.set_clock(clock);
        }
        self.answers.give(step.answers());
        self.actions.clear();
        let (now, out) = (step.at(), &mut self.actions);
        // It was read before.
        match step.call(&self.answers) {
            Ok(Call::Received { link, bytes }) => {
                self.topology.handle(now, Input::Received { link, bytes: &bytes }, out);
            }
            Ok(Call::Other(input)) => self.topology.handle(now, input, out),
            Ok(Call::Tick) | Err(_) => self.topology.tick(now, out),
        }
        Some(self.compare(step))
    }

    /// Does all that is left.
    ///
    /// # Errors
    ///
    /// The first thing that the machine did not do as the trace tells.
    pub fn finish(&mut self) -> Result<(), Difference> {
        while let Some(outcome) = self.step() {
            outcome?;
        }
        Ok(())
    }

    fn compare(&self, step: Step<'t>) -> Result<Step<'t>, Difference> {
        let (mut recorded, mut replayed) =
            (step.actions(), self.actions.iter().map(action::written));
        loop {
            let (one, other) = (recorded.next(), replayed.next());
            match (&one, &other) {
                (None, None) => break,
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
