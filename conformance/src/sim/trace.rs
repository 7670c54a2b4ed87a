//! The last steps of a client, kept only when a failure is looked at again.

use std::collections::VecDeque;

use sdam_core::time::Instant;

/// How many steps are kept.
const LAST: usize = 60;

/// The last steps of a client.
#[derive(Clone, Debug, Default)]
pub(super) struct Trace(Option<VecDeque<String>>);

impl Trace {
    pub(super) fn new(kept: bool) -> Self {
        Self(kept.then(VecDeque::new))
    }

    /// Notes a step, which is put into words only if it is kept.
    pub(super) fn step(&mut self, now: Instant, words: impl FnOnce() -> String) {
        if let Some(steps) = &mut self.0 {
            if steps.len() == LAST {
                steps.pop_front();
            }
            let seconds = now.since_origin().as_secs_f64();
            let words: String = words().chars().take(200).collect();
            steps.push_back(format!("{seconds:11.6} {words}"));
        }
    }

    pub(super) fn into_lines(self) -> Vec<String> {
        self.0.unwrap_or_default().into()
    }
}
