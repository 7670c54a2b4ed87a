//! The faults that happen to the primary of a real replica set, again and again.
//!
//! There are six, or as many as `SDAM_STORM_FAULTS` says.

use std::error::Error;
use std::time::Duration;

use sdam_conformance::mongod::{HarnessError, ReplicaSet};

/// The environment variable that says how many faults there are to be.
const COUNT: &str = "SDAM_STORM_FAULTS";

/// The number of faults without it: two of each kind.
const FEW: usize = 6;

/// The kinds of faults.
const KINDS: [Fault; 3] = [Fault::Kill, Fault::Freeze, Fault::StepDown];

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    /// The primary is killed, and started again.
    Kill,
    /// The primary is stopped (SIGSTOP), and goes on.
    Freeze,
    /// The primary steps down.
    StepDown,
}

impl Fault {
    /// Returns the faults of a storm, the kinds in turn.
    pub(crate) fn all() -> Result<Vec<Self>, Box<dyn Error + Send + Sync>> {
        let count = match std::env::var(COUNT) {
            Ok(count) => count.parse()?,
            Err(_) => FEW,
        };
        Ok(KINDS.into_iter().cycle().take(count).collect())
    }

    /// Has it happen to this member.
    pub(crate) fn begin(self, set: &mut ReplicaSet, primary: usize) -> Result<(), HarnessError> {
        match self {
            Self::Kill => set.kill(primary),
            Self::Freeze => set.freeze(primary),
            Self::StepDown => set.step_down(),
        }
    }

    /// Ends it, so that the set is whole again.
    pub(crate) fn end(self, set: &mut ReplicaSet, member: usize) -> Result<(), HarnessError> {
        match self {
            Self::Kill => set.restart(member),
            Self::Freeze => set.thaw(member),
            Self::StepDown => Ok(()),
        }
    }
}

/// Prints how long it took after the faults of each kind until all went on.
pub(crate) fn print_recoveries(recoveries: &[(Fault, Duration)]) {
    for kind in KINDS {
        let of_kind = recoveries.iter().filter(|(fault, _)| *fault == kind);
        let longest = of_kind.clone().map(|(_, took)| *took).max().unwrap_or_default();
        eprintln!("{kind:?}: {} times, all goes on after {longest:.2?}", of_kind.count());
    }
}
