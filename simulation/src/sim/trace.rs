//! The memory of a client that is kept only when a failure is looked at again: its last steps, or
//! all that its topology receives and does.

use std::collections::VecDeque;

use sdam_core::time::Instant;

/// The number of steps that are kept.
const LAST: usize = 60;

/// The part that is kept of each client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Observed {
    Nothing,
    /// The last steps of the client of this index.
    Steps(usize),
    /// All that the topology of the client of this index receives and does.
    Topology(usize),
}

/// The part that is kept of one client.
#[derive(Clone, Debug)]
pub(super) enum Trace {
    Nothing,
    Steps(VecDeque<String>),
    /// All of its topology, which the host records.
    Topology,
}

impl Trace {
    /// Keeps of the client of this index what is to be.
    pub(super) fn of(client: usize, observed: Observed) -> Self {
        match observed {
            Observed::Steps(index) if index == client => Self::Steps(VecDeque::new()),
            Observed::Topology(index) if index == client => Self::Topology,
            _ => Self::Nothing,
        }
    }

    /// Returns whether all that its topology receives and does is to be kept.
    pub(super) const fn is_of_topology(&self) -> bool {
        matches!(self, Self::Topology)
    }

    /// Notes a step, which is put into words only if it is kept.
    pub(super) fn step(&mut self, now: Instant, words: impl FnOnce() -> String) {
        if let Self::Steps(steps) = self {
            if steps.len() == LAST {
                steps.pop_front();
            }
            let seconds = now.since_origin().as_secs_f64();
            let words: String = words().chars().take(200).collect();
            steps.push_back(format!("{seconds:11.6} {words}"));
        }
    }

    pub(super) fn take_lines(&mut self) -> Vec<String> {
        match self {
            Self::Steps(steps) => std::mem::take(steps).into(),
            _ => Vec::new(),
        }
    }
}
