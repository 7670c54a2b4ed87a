//! Writes the inputs and the actions of a machine.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use super::criteria::Answers;
use super::part::{MAX_SPARE_LEN, Part};
use super::redaction::Redaction;
use super::{ACTION, ANSWERS, OMITTED, action, input, time};
use crate::id::LinkId;
use crate::time::Time;
use crate::topology::{Action, Input};

/// The writer of a trace: the inputs and the actions of a machine, call by call. A
/// [`Recorder`](super::Recorder) drives it.
#[derive(Debug)]
pub struct Journal {
    /// The maximum length of the text of a call.
    limit: usize,
    /// Bytes of messages that are not whole yet, of every link that is open.
    parts: BTreeMap<LinkId, Part>,
    redaction: Redaction,
    answers: Answers,
    /// The call that is being written.
    text: String,
    /// True if the call does not matter unless it has actions.
    is_idle: bool,
}

impl Default for Journal {
    fn default() -> Self {
        Self::of_calls_up_to(usize::MAX)
    }
}

impl Journal {
    /// Writes calls in so many bytes at most: an input that takes more than half of them is left
    /// out, and actions from the first that there is no room for; how long that was is said
    /// instead.
    pub fn of_calls_up_to(limit: usize) -> Self {
        Self {
            limit,
            parts: BTreeMap::new(),
            redaction: Redaction::default(),
            answers: Answers::default(),
            text: String::new(),
            is_idle: false,
        }
    }

    /// The machine is about to be called; returns the input that it is to be called with. `is_due`
    /// says whether time alone would have it do something.
    pub(crate) fn begin<'a>(
        &mut self,
        now: Time,
        is_due: bool,
        input: Option<Input<'a>>,
    ) -> Option<Input<'a>> {
        self.is_idle = false;
        self.text.clear();
        self.text.shrink_to(MAX_SPARE_LEN);
        self.text.push_str(&time::of_call(now));
        let Some(input) = input else {
            self.text.push_str(" tick\n");
            return None;
        };
        let mut omitted = 0;
        let text = match &input {
            Input::Received { link, bytes } => match self.parts.get_mut(link) {
                Some(part) => {
                    let messages = part.receive(bytes, self.limit / 2);
                    self.is_idle = messages.is_no_news && !is_due && now.clock == now.judged;
                    omitted = messages.omitted;
                    input::written(&input, &messages.shown)
                }
                // Bytes of a link that is not open reach no monitor, and are counted only.
                None => input::written(&input, &[bytes.len().into()]),
            },
            Input::OperationFailed { server, failure } => {
                let failure = self.redaction.operation(failure);
                input::written(&Input::OperationFailed { server: *server, failure }, &[])
            }
            Input::Closed { link, failure } => {
                self.parts.remove(link);
                let failure = self.redaction.failure(failure);
                input::written(&Input::Closed { link: *link, failure }, &[])
            }
            input => input::written(input, &[]),
        };
        let _ = writeln!(self.text, " {text}");
        // Half of the room is for what the machine does.
        if omitted > 0 || text.len() > self.limit / 2 {
            self.omit(omitted.max(text.len()));
        }
        Some(match input {
            Input::Wait { waiter, criteria, deadline } => {
                let criteria = Arc::new(self.answers.listen_to(&criteria));
                Input::Wait { waiter, criteria, deadline }
            }
            input => input,
        })
    }

    /// Leaves out the input of the call, which has so many bytes.
    fn omit(&mut self, length: usize) {
        let (times, input) = self.text.trim_end().split_once(' ').unwrap_or_default();
        self.text = format!("{times} {OMITTED} {length} {}\n", input::about(input));
    }

    /// The machine has done this; returns all that was written of the call, which is nothing if
    /// there is a limit and the call is of no news.
    pub(crate) fn end(&mut self, actions: &[Action]) -> &str {
        let answers = self.answers.take();
        if !answers.is_empty() {
            let answers: Vec<_> = answers.iter().map(ToString::to_string).collect();
            let answers = answers.join(" ");
            match answers.len() > self.limit / 4 {
                // Without them the input is of no use.
                true => self.omit(answers.len()),
                false => drop(writeln!(self.text, "{ANSWERS}{answers}")),
            }
        }
        let mut omitted = 0;
        for action in actions {
            match action {
                Action::Open { link, .. } => drop(self.parts.insert(*link, Part::default())),
                Action::Close { link } => drop(self.parts.remove(link)),
                _ => {}
            }
            let line = format!("{ACTION}{}\n", action::written(action));
            if omitted > 0 || self.text.len().saturating_add(line.len()) > self.limit {
                omitted += line.len();
            } else {
                self.text.push_str(&line);
            }
        }
        if omitted > 0 {
            let _ = writeln!(self.text, "{ACTION}{OMITTED} {omitted}");
        }
        if self.is_idle && actions.is_empty() && self.limit < usize::MAX {
            self.text.clear();
        }
        &self.text
    }
}
