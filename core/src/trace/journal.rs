//! Writes down what a machine is told and what it does.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use serde_json::Value;

use super::criteria::Answers;
use super::withheld::Withheld;
use super::{ACTION, ANSWERS, action, input, message, time};
use crate::id::LinkId;
use crate::time::Instant;
use crate::topology::{Action, Input};
use crate::wire::{HEADER_LEN, MAX_MESSAGE_LEN};

/// Writes down what a machine is told and what it does, call by call.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    /// Bytes of messages that are not whole yet, of every link that is open.
    parts: BTreeMap<LinkId, Vec<u8>>,
    withheld: Withheld,
    answers: Answers,
    /// What the clock shows, if that was told.
    clock: Option<Instant>,
    /// The call that is being written.
    text: String,
}

impl Journal {
    /// The clock shows this when the machine is called next.
    pub(crate) fn set_clock(&mut self, clock: Instant) {
        self.clock = self.clock.max(Some(clock));
    }

    /// The machine is about to be called; returns the input that it is to be called with.
    pub(crate) fn begin<'a>(
        &mut self,
        now: Instant,
        input: Option<Input<'a>>,
    ) -> Option<Input<'a>> {
        self.text.clear();
        self.text.push_str(&time::written(now));
        if let Some(clock) = self.clock.take().filter(|clock| *clock > now) {
            let _ = write!(self.text, "@{}", time::written(clock));
        }
        let Some(input) = input else {
            self.text.push_str(" tick\n");
            return None;
        };
        let text = match &input {
            Input::Received { link, bytes } => {
                let messages = self.messages(*link, bytes);
                input::written(&input, &messages)
            }
            Input::OperationFailed { server, failure } => {
                let failure = self.withheld.operation(failure);
                input::written(&Input::OperationFailed { server: *server, failure }, &[])
            }
            input => {
                if let Input::Closed { link, .. } = input {
                    self.parts.remove(link);
                }
                input::written(input, &[])
            }
        };
        let _ = writeln!(self.text, " {text}");
        Some(match input {
            Input::Wait { waiter, criteria, deadline } => {
                let criteria = Arc::new(self.answers.listen_to(&criteria));
                Input::Wait { waiter, criteria, deadline }
            }
            input => input,
        })
    }

    /// The machine has done this; returns all that was written of the call.
    pub(crate) fn end(&mut self, actions: &[Action]) -> &str {
        let answers = self.answers.take();
        if !answers.is_empty() {
            let answers: Vec<_> = answers.iter().map(ToString::to_string).collect();
            let _ = writeln!(self.text, "{ANSWERS}{}", answers.join(" "));
        }
        for action in actions {
            match action {
                Action::Open { link, .. } => drop(self.parts.insert(*link, Vec::new())),
                Action::Close { link } => drop(self.parts.remove(link)),
                _ => {}
            }
            let _ = writeln!(self.text, "{ACTION}{}", action::written(action));
        }
        &self.text
    }

    /// Shows the messages that bytes complete, and how many bytes are held back until they do.
    /// Bytes of a link that is not open reach nobody, and are counted only.
    fn messages(&mut self, link: LinkId, bytes: &[u8]) -> Vec<Value> {
        let Some(part) = self.parts.get_mut(&link) else {
            return vec![bytes.len().into()];
        };
        part.extend_from_slice(bytes);
        let mut messages = Vec::new();
        while let Some(length) = part.first_chunk().map(|length| i32::from_le_bytes(*length)) {
            match usize::try_from(length) {
                Ok(length) if (HEADER_LEN..=MAX_MESSAGE_LEN).contains(&length) => {
                    if part.len() < length {
                        break;
                    }
                    let rest = part.split_off(length);
                    messages.push(message::to_json(part));
                    *part = rest;
                }
                // No message, now and for ever.
                _ => messages.push(message::to_json(&std::mem::take(part))),
            }
        }
        if !part.is_empty() {
            messages.push(part.len().into());
        }
        messages
    }
}
