//! The calls of a trace, read once, to be done in part and again and again.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::criteria::{Answers, PredicateResult};
use super::input::{self, Call};
use super::{Header, Trace, message, time};
use crate::id::LinkId;
use crate::time::{Instant, Time};
use crate::topology::{Action, Input, Topology};
use crate::wire::{Flags, HEADER_LEN, op_code};

/// The calls of a trace, read once: any of them can be passed to machines, again and again.
pub struct Script {
    header: Header,
    calls: Vec<RecordedCall>,
    answers: Answers,
}

/// A call of a machine, and what goes with it.
struct RecordedCall {
    time: Time,
    call: Call,
    answers: Vec<PredicateResult>,
    /// Of each message that came, whether it answers what the machine was waiting for.
    due: Vec<bool>,
}

/// A new machine that receives calls of a script, all or some of them.
///
/// A reply answers the request before it, or the reply before it in a stream of replies. If that is
/// left out, it answers what the machine is waiting for instead, so that leaving out one reply does
/// not make garbage of all that come after it.
pub struct Performance<'s> {
    script: &'s Script,
    topology: Topology,
    awaited: Awaited,
    actions: Vec<Action>,
    /// The call that was done last, and the bytes that it received.
    last: Option<(usize, Vec<u8>)>,
}

impl Script {
    /// Takes the first calls of a trace; `None` if its beginning is missing.
    pub fn new(trace: &Trace, calls: usize) -> Option<Self> {
        let header = trace.header().clone();
        if header.is_tail {
            return None;
        }
        let (answers, mut awaited) = (Answers::default(), Awaited::default());
        let told = trace.steps().take(calls).map(|step| {
            // It was read before.
            let call = step.call(&answers).unwrap_or(Call::Tick);
            let due = match &call {
                Call::Received { link, bytes } => awaited.receive(*link, &mut bytes.clone(), None),
                _ => Vec::new(),
            };
            for (_, action) in step.actions() {
                if let Some((link, bytes)) = input::read_send(action) {
                    awaited.send(link, &bytes);
                }
            }
            let (time, answers) = (step.time(), step.answers().collect());
            RecordedCall { time, call, answers, due }
        });
        Some(Self { header, calls: told.collect(), answers })
    }

    /// Returns when the machine was called.
    ///
    /// # Panics
    ///
    /// Panics if there is no such call.
    pub fn at(&self, call: usize) -> Instant {
        self.calls[call].time.judged
    }

    /// Begins with a new machine.
    pub fn perform(&self) -> Performance<'_> {
        Performance {
            script: self,
            topology: Topology::new(Arc::clone(&self.header.options), self.header.seed),
            awaited: Awaited::default(),
            actions: Vec::new(),
            last: None,
        }
    }
}

impl Performance<'_> {
    /// Returns the machine, after the calls so far.
    pub const fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Does a call, which must not come before those that were done.
    ///
    /// # Panics
    ///
    /// Panics if there is no such call, or if the machine does.
    pub fn call(&mut self, index: usize) {
        let RecordedCall { time, call, answers, due } = &self.script.calls[index];
        self.script.answers.give(answers.iter().copied());
        self.actions.clear();
        let mut call = call.clone();
        if let Call::Received { link, bytes } = &mut call {
            self.awaited.receive(*link, bytes, Some(due));
            self.last = Some((index, bytes.clone()));
        } else {
            self.last = None;
        }
        call.apply(&mut self.topology, *time, &mut self.actions);
        for action in &self.actions {
            if let Action::Send { link, bytes } = action {
                self.awaited.send(*link, bytes);
            }
        }
    }

    /// Returns the line of the call that was done last, if it received replies that answer
    /// something else than in the trace.
    pub fn changed_line(&self) -> Option<String> {
        let (index, told) = self.last.as_ref()?;
        let RecordedCall { time, call, .. } = &self.script.calls[*index];
        let Call::Received { link, bytes } = call else { return None };
        if bytes == told {
            return None;
        }
        let mut messages = Vec::new();
        each_message(&mut told.clone(), |it| messages.push(message::to_json(it)));
        let input = Input::Received { link: *link, bytes: told };
        Some(format!("{} {}", time::of_call(*time), input::written(&input, &messages)))
    }
}

/// The number of the message that the next reply over each link must answer.
#[derive(Default)]
struct Awaited(BTreeMap<LinkId, i32>);

impl Awaited {
    /// A request is sent.
    fn send(&mut self, link: LinkId, request: &[u8]) {
        if request.len() >= HEADER_LEN {
            self.0.insert(link, number(request, 4));
        }
    }

    /// Messages come; returns of each whether it was waited for. Those which are said to be due
    /// become replies to what is waited for.
    fn receive(&mut self, link: LinkId, bytes: &mut [u8], due: Option<&[bool]>) -> Vec<bool> {
        let mut found = Vec::new();
        each_message(bytes, |message| {
            let awaited = self.0.get(&link).copied();
            let is_due = due.and_then(|due| due.get(found.len())).is_some_and(|due| *due);
            if let (Some(awaited), true) = (awaited, is_due) {
                message[8..12].copy_from_slice(&awaited.to_le_bytes());
            }
            found.push(awaited == Some(number(message, 8)));
            match is_stream(message) {
                true => self.0.insert(link, number(message, 4)),
                false => self.0.remove(&link),
            };
        });
        found
    }
}

/// Returns a number in the header of a message.
fn number(message: &[u8], at: usize) -> i32 {
    i32::from_le_bytes([message[at], message[at + 1], message[at + 2], message[at + 3]])
}

/// Returns whether another reply follows without a request.
fn is_stream(message: &[u8]) -> bool {
    let has_flags = message.len() >= HEADER_LEN + 4 && number(message, 12) == op_code::OP_MSG;
    has_flags && number(message, HEADER_LEN).cast_unsigned() & Flags::MORE_TO_COME.bits() != 0
}

/// Looks at each whole message.
fn each_message(mut bytes: &mut [u8], mut look: impl FnMut(&mut [u8])) {
    while let Some(length) = bytes.first_chunk() {
        let length = usize::try_from(i32::from_le_bytes(*length)).unwrap_or_default();
        if !(HEADER_LEN..=bytes.len()).contains(&length) {
            return;
        }
        let (message, rest) = std::mem::take(&mut bytes).split_at_mut(length);
        look(message);
        bytes = rest;
    }
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Script").field("calls", &self.calls.len()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Performance<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Performance").field("topology", &self.topology).finish_non_exhaustive()
    }
}
