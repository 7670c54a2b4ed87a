//! `sdam watch` follows real servers of every version there is, through all that befalls them.
//!
//! Scenarios on a replica set share one set for each version, one after the other, as starting a
//! set takes longer than most scenarios; a scenario that fails takes its set with it.

mod recordings;
mod scenarios;
mod tunnels;
mod watch;

use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use libtest_mimic::{Arguments, Failed, Trial};
use sdam_conformance::mongod::{Availability, Binary, Options, ReplicaSet, private_names_work};

/// The result of a scenario.
type Outcome = Result<(), Box<dyn std::error::Error>>;

/// A replica set of three that scenarios share, started when the first one needs it.
#[derive(Default)]
struct Shared(Mutex<Option<ReplicaSet>>);

impl Shared {
    /// Runs a scenario on a set that has settled; if it fails, the next one gets a new set.
    fn run(&self, binary: &Binary, scenario: fn(&mut ReplicaSet) -> Outcome) -> Outcome {
        let mut slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut set = match slot.take() {
            Some(set) => set,
            None => ReplicaSet::start(binary, 3, &Options::default())?,
        };
        set.wait_until_settled(watch::GENEROUS)?;
        scenario(&mut set)?;
        *slot = Some(set);
        Ok(())
    }
}

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // Two at a time: more servers than that get in each other's way, and in that of elections.
    arguments.test_threads.get_or_insert(2);
    let availability = Availability::look();
    let mut trials = Vec::new();
    let sets: Vec<(Binary, Arc<Shared>)> =
        availability.binaries().iter().map(|binary| (binary.clone(), Arc::default())).collect();
    for (name, scenario) in scenarios::ON_A_SHARED_SET {
        for (binary, shared) in &sets {
            let (binary, shared) = (binary.clone(), Arc::clone(shared));
            let name = format!("{}::{name}", binary.version());
            trials.push(Trial::test(name, move || report(shared.run(&binary, *scenario))));
        }
    }
    for (name, scenario) in scenarios::ON_THEIR_OWN {
        for (binary, _) in &sets {
            let binary = binary.clone();
            let name = format!("{}::{name}", binary.version());
            trials.push(Trial::test(name, move || report(scenario(&binary))));
        }
    }
    let private_names = private_names_work();
    for (binary, _) in &sets {
        let binary = binary.clone();
        let name = format!("{}::a_set_behind_tunnels", binary.version());
        let trial = Trial::test(name, move || report(tunnels::a_set_behind_tunnels(&binary)));
        trials.push(trial.with_ignored_flag(private_names.is_err()));
    }
    let passed = !libtest_mimic::run(&arguments, trials).has_failed();
    drop(sets);
    if let Err(reason) = private_names {
        eprintln!("left out: a_set_behind_tunnels, as this machine {reason}");
    }
    availability.conclude(passed)
}

fn report(outcome: Outcome) -> Result<(), Failed> {
    outcome.map_err(|error| Failed::from(error.to_string()))
}
