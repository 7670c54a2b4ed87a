//! A machine that is recorded.

use std::fmt;

use super::{Header, Journal};
use crate::config::Options;
use crate::machine::Machine;
use crate::time::{Instant, Time};
use crate::topology::{Action, Input};

/// Takes whole lines of a trace.
type Sink = Box<dyn FnMut(&str) + Send>;

/// A topology, or a machine around one, that writes a trace of its inputs and actions.
///
/// Each call hands whole lines to a sink. A recorder may also be off, and then costs nothing.
///
/// ```
/// use std::sync::{Arc, Mutex};
/// use sdam_core::machine::Machine;
/// use sdam_core::config::Options;
/// use sdam_core::time::Time;
/// use sdam_core::topology::Topology;
/// use sdam_core::trace::{Recorder, Replay, Trace};
///
/// let options = Arc::new(Options::parse("mongodb://db.example")?);
/// let text = Arc::new(Mutex::new(String::new()));
/// let sink = Arc::clone(&text);
/// let mut recorder = Recorder::off(Topology::new(Arc::clone(&options), 7));
/// recorder.record(&options, 7, move |lines| sink.lock().unwrap().push_str(lines));
/// recorder.tick(Time::ZERO, &mut Vec::new());
///
/// let trace = Trace::parse(text.lock().unwrap().as_str())?;
/// let mut replay = Replay::new(&trace).expect("it begins at the beginning");
/// assert_eq!(replay.finish(), Ok(()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Recorder<M> {
    machine: M,
    recording: Option<Box<Recording>>,
}

struct Recording {
    journal: Journal,
    sink: Sink,
    /// True if the machine was called and has not returned.
    is_open: bool,
}

impl Recording {
    /// Writes the call that the machine has returned from.
    fn end(&mut self, actions: &[Action]) {
        self.is_open = false;
        (self.sink)(self.journal.end(actions));
    }
}

impl<M> Recorder<M> {
    /// Wraps a new machine, and does nothing else yet.
    pub const fn off(machine: M) -> Self {
        Self { machine, recording: None }
    }

    /// Writes the header, and from now on all inputs and actions of the machine, which must not
    /// have received an input yet. `options` and `seed` are what it was made of.
    pub fn record(
        &mut self,
        options: &Options,
        seed: u64,
        mut sink: impl FnMut(&str) + Send + 'static,
    ) {
        let (first, rest) = Header::new(options, seed).lines(false);
        sink(&first);
        sink(&rest);
        self.resume(Journal::default(), sink);
    }

    /// As [`record`](Self::record), for a sink that has the header already, and with a journal that
    /// may be limited.
    pub fn resume(&mut self, journal: Journal, sink: impl FnMut(&str) + Send + 'static) {
        let sink = Box::new(sink);
        self.recording = Some(Box::new(Recording { journal, sink, is_open: false }));
    }

    /// Writes the call that the machine never returned from, because it has panicked, without
    /// actions; nothing if there is none.
    pub fn write_broken_call(&mut self) {
        if let Some(recording) = self.recording.as_mut().filter(|recording| recording.is_open) {
            recording.end(&[]);
        }
    }

    /// Returns the machine itself.
    pub const fn get(&self) -> &M {
        &self.machine
    }

    /// Returns the machine itself, for what it offers besides inputs; what you pass to it this way
    /// is in no trace.
    pub const fn get_mut(&mut self) -> &mut M {
        &mut self.machine
    }
}

impl<M> Machine for Recorder<M>
where
    M: for<'a> Machine<Input<'a> = Input<'a>, Action = Action>,
{
    type Input<'a> = Input<'a>;
    type Action = Action;

    fn handle(&mut self, now: Time, input: Input<'_>, out: &mut Vec<Action>) {
        let Some(recording) = &mut self.recording else {
            return self.machine.handle(now, input, out);
        };
        let start = out.len();
        recording.is_open = true;
        let is_due = self.machine.deadline().is_some_and(|due| due <= now.judged);
        if let Some(input) = recording.journal.begin(now, is_due, Some(input)) {
            self.machine.handle(now, input, out);
        }
        recording.end(&out[start..]);
    }

    fn tick(&mut self, now: Time, out: &mut Vec<Action>) {
        let Some(recording) = &mut self.recording else {
            return self.machine.tick(now, out);
        };
        let start = out.len();
        recording.is_open = true;
        recording.journal.begin(now, true, None);
        self.machine.tick(now, out);
        recording.end(&out[start..]);
    }

    fn deadline(&self) -> Option<Instant> {
        self.machine.deadline()
    }
}

impl<M: fmt::Debug> fmt::Debug for Recorder<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder")
            .field("machine", &self.machine)
            .field("records", &self.recording.is_some())
            .finish()
    }
}
