//! The property that a trace keeps while it gets smaller.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use sdam_core::machine::Machine;
use sdam_core::selection::{Criteria, Reason};
use sdam_core::time::Instant;
use sdam_core::topology::Topology;
use sdam_core::trace::Script;

use crate::replay::selected;

/// The property to look for at the end of a trace.
#[derive(Clone, Debug)]
pub(super) enum Property {
    /// A selection fails, with a certain verdict.
    Fails(Criteria),
    /// A selection chooses among certain servers.
    Chooses(Criteria),
    /// The deployment and its servers are of certain types.
    View,
    /// The machine panics, or breaks a law.
    Breaks,
}

/// The finding: equal for two traces if the property is the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    /// The key of the finding.
    key: String,
}

/// The result of a replay.
pub(super) struct Replayed {
    pub(super) finding: Option<Finding>,
    /// The number of calls that were done, with the one that panicked.
    pub(super) calls: usize,
    /// True if the last one panicked.
    pub(super) panicked: bool,
}

impl Property {
    /// Does calls of a script, and looks.
    pub(super) fn look(&self, script: &Script, calls: &[usize]) -> Replayed {
        let (mut replay, mut now) = (script.perform(), Instant::ZERO);
        let judges = matches!(self, Self::Breaks);
        for (before, call) in calls.iter().enumerate() {
            now = script.at(*call);
            let early = judges && breaks_third_law(replay.topology(), now);
            let done = catch_unwind(AssertUnwindSafe(|| replay.call(*call)));
            let panic = done.err().map(|panic| {
                let text = panic.downcast_ref::<String>().map(String::as_str);
                text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("?").to_owned()
            });
            let panicked = panic.is_some();
            let late =
                judges && !panicked && replay.topology().deadline().is_some_and(|due| due <= now);
            let law = match (early, late) {
                (true, _) => Some("law 3: a tick before the deadline does something".to_owned()),
                (_, true) => Some("law 2: a deadline stays in the past".to_owned()),
                _ => None,
            };
            if let Some(broken) = panic.or(law) {
                let finding = judges.then(|| Finding::of_break(&broken));
                return Replayed { finding, calls: before + 1, panicked };
            }
        }
        let finding = self.find(replay.topology(), now);
        Replayed { finding, calls: calls.len(), panicked: false }
    }

    fn find(&self, topology: &Topology, now: Instant) -> Option<Finding> {
        let key = match self {
            Self::Breaks => return None,
            Self::Fails(criteria) => {
                let error = selected(topology, criteria, now)?.err()?;
                format!("{criteria} fails: {}", error.verdict.name())
            }
            Self::Chooses(criteria) => {
                selected(topology, criteria, now)?.ok()?;
                let explained = topology.snapshot().explain(criteria).servers;
                let chosen = explained.iter().filter(|it| it.reason == Reason::InWindow);
                let chosen: Vec<String> = chosen.map(|it| it.address.to_string()).collect();
                format!("{criteria} chooses {}", chosen.join(" or "))
            }
            Self::View => {
                let view = topology.description();
                let servers = view.servers().iter();
                let mut servers: Vec<String> =
                    servers.map(|it| format!("{} {}", it.address, it.server_type)).collect();
                servers.sort_unstable();
                let set = view.set_name.as_deref().unwrap_or("no set");
                format!("{} of {set}: {}", view.topology_type, servers.join(", "))
            }
        };
        Some(Finding { key })
    }

    /// Says what does not hold at the end of a trace.
    pub(super) fn complaint(&self) -> String {
        match self {
            Self::Fails(criteria) => format!("a selection for {criteria} does not fail"),
            Self::Chooses(criteria) => format!("a selection for {criteria} chooses no server"),
            Self::View => "nothing can be known".to_owned(),
            Self::Breaks => "the replay does not panic, and breaks no law of machines".to_owned(),
        }
    }
}

/// Returns whether a tick does something at a time before the deadline.
fn breaks_third_law(topology: &Topology, now: Instant) -> bool {
    if topology.deadline().is_some_and(|due| due <= now) {
        return false;
    }
    let (mut copy, mut actions) = (topology.clone(), Vec::new());
    // If it panics, the call itself will.
    let done = catch_unwind(AssertUnwindSafe(|| copy.tick(now.into(), &mut actions)));
    done.is_ok() && (!actions.is_empty() || copy.deadline() != topology.deadline())
}

impl Finding {
    /// Two panics are the same if they begin alike: behind a colon are the particulars.
    fn of_break(text: &str) -> Self {
        let key = text.split(':').next().unwrap_or_default();
        Self { key: format!("it breaks: {key}") }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.key)
    }
}

#[cfg(test)]
mod tests {
    use super::Finding;

    #[test]
    fn two_panics_are_the_same_if_only_their_particulars_differ() {
        let index = Finding::of_break("index out of bounds: the len is 3 but the index is 3");
        assert_eq!(
            index,
            Finding::of_break("index out of bounds: the len is 9 but the index is 12")
        );
        assert_ne!(index, Finding::of_break("law 2: at 3 s the deadline is still 2 s"));
    }
}
