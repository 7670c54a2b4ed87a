//! `sdam watch` follows real servers of every version there is, through all that befalls them, and
//! `sdam lint` finds what a gateway in front of one does wrong.
//!
//! Scenarios on a replica set share one set for each version, one after the other, as starting a
//! set takes longer than most scenarios; a scenario that fails takes its set with it.

mod footprint;
mod last_night;
mod lint;
mod local_ports;
mod own_log;
mod recordings;
mod scenarios;
mod tunnels;
mod watch;
mod writes;

use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use libtest_mimic::{Arguments, Failed, Trial};
use sdam_conformance::mongod::{Availability, Binary, Options, ReplicaSet, private_names_work};

/// The result of a scenario.
type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

/// A replica set of three that scenarios share, started when the first one needs it.
#[derive(Default)]
struct Shared(Mutex<Option<ReplicaSet>>);

impl Shared {
    /// Runs a scenario on a set that has settled; if it fails, the next one gets a new set.
    fn run(&self, binary: &Binary, scenario: impl FnOnce(&mut ReplicaSet) -> Outcome) -> Outcome {
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
    // What the application observes does not depend on the version.
    if let Some((binary, shared)) = sets.last() {
        let (binary, shared) = (binary.clone(), Arc::clone(shared));
        let name = format!("{}::a_failover_under_writes_becomes_a_page", binary.version());
        let scenario = writes::a_failover_under_writes_becomes_a_page;
        trials.push(Trial::test(name, move || report(shared.run(&binary, scenario))));
    }
    if let Some((binary, _)) = sets.last() {
        let (name, binary) = (format!("{}::last_night", binary.version()), binary.clone());
        trials.push(Trial::test(name, move || report(last_night::last_night(&binary))));
    }
    if let Some((binary, _)) = sets.last() {
        let (name, binary) = (format!("{}::what_clients_cost", binary.version()), binary.clone());
        trials.push(Trial::test(name, move || report(footprint::what_clients_cost(&binary))));
    }
    for (name, scenario) in scenarios::ON_THEIR_OWN {
        for (binary, _) in &sets {
            let binary = binary.clone();
            let name = format!("{}::{name}", binary.version());
            trials.push(Trial::test(name, move || report(scenario(&binary))));
        }
    }
    if let Some((binary, _)) = sets.last() {
        trials.extend(lint::trials(binary));
    }
    let private_names = private_names_work();
    for (binary, _) in &sets {
        let binary = binary.clone();
        let name = format!("{}::a_set_behind_tunnels", binary.version());
        let trial = Trial::test(name, move || report(tunnels::a_set_behind_tunnels(&binary)));
        trials.push(trial.with_ignored_flag(private_names.is_err()));
    }
    // The oldest knows no hello and no streams; the newest is reached in all ways.
    for (index, (binary, _)) in sets.iter().enumerate() {
        let all = index == sets.len() - 1;
        if index == 0 || all {
            let (name, binary) = (binary.version().to_string(), binary.clone());
            let scenario = move || report(local_ports::members_at_local_ports(&binary, all));
            let trial = Trial::test(format!("{name}::members_at_local_ports"), scenario);
            trials.push(trial.with_ignored_flag(private_names.is_err()));
        }
    }
    let passed = !libtest_mimic::run(&arguments, trials).has_failed();
    drop(sets);
    if let Err(reason) = private_names {
        let tests = "a_set_behind_tunnels, members_at_local_ports";
        eprintln!("left out: {tests}, as this machine {reason}");
    }
    availability.conclude(passed)
}

fn report(outcome: Outcome) -> Result<(), Failed> {
    outcome.map_err(|error| Failed::from(error.to_string()))
}
