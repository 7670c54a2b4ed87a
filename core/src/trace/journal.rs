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

/// How much memory is kept for what comes next, in bytes, however long the last message was.
const MAX_SPARE_LEN: usize = 1 << 16;

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
        self.text.shrink_to(MAX_SPARE_LEN);
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
            Input::Closed { link, failure } => {
                self.parts.remove(link);
                let failure = self.withheld.failure(failure);
                input::written(&Input::Closed { link: *link, failure }, &[])
            }
            input => input::written(input, &[]),
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
        let (mut messages, mut shown) = (Vec::new(), 0);
        while let Some(length) = part[shown..].first_chunk() {
            let length = match usize::try_from(i32::from_le_bytes(*length)) {
                Ok(length) if (HEADER_LEN..=MAX_MESSAGE_LEN).contains(&length) => length,
                // No message, now and for ever.
                _ => part.len() - shown,
            };
            let Some(message) = part[shown..].get(..length) else { break };
            messages.push(message::to_json(message));
            shown += length;
        }
        if shown > 0 {
            part.drain(..shown);
            part.shrink_to(MAX_SPARE_LEN);
        }
        if !part.is_empty() {
            messages.push(part.len().into());
        }
        messages
    }
}
