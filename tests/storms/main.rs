//! Faults under load: what becomes of every operation, and what is left of the client afterwards.
//!
//! One storm at a time, as each counts the sockets, tasks and memory of the whole process.

mod change_streams;
mod embedded;
mod faults;
mod load;
mod real;
mod residue;
mod storm;
#[path = "../support/mod.rs"]
mod support;
mod transactions;

use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use libtest_mimic::{Arguments, Failed, Trial};
use sdam_conformance::mongod::{Availability, Binary, Options, ReplicaSet};
use tokio::runtime::{Builder, Runtime};

/// The result of a storm.
type Outcome = Result<(), Box<dyn std::error::Error>>;

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    let availability = Availability::look();
    let mut trials = vec![
        trial("embedded::all_faults_on_one_thread".to_owned(), || {
            Builder::new_current_thread().enable_all().build()?.block_on(embedded::storm())
        }),
        trial("embedded::all_faults_on_several_threads".to_owned(), || {
            several_threads()?.block_on(embedded::storm())
        }),
    ];
    // The newest is enough: what servers do in a storm differs less than what a storm costs.
    if let Some(binary) = availability.binaries().last() {
        let shared = Arc::new(Mutex::new(None));
        for (name, storm) in
            real::STORMS.into_iter().chain([transactions::STORM, change_streams::STORM])
        {
            let (binary, shared) = (binary.clone(), Arc::clone(&shared));
            trials.push(trial(format!("{}::{name}", binary.version()), move || {
                on_a_shared_set(&shared, &binary, storm)
            }));
        }
    }
    let passed = !libtest_mimic::run(&arguments, trials).has_failed();
    availability.conclude(passed)
}

fn trial(name: String, storm: impl FnOnce() -> Outcome + Send + 'static) -> Trial {
    Trial::test(name, || storm().map_err(|error| Failed::from(error.to_string())))
}

fn several_threads() -> std::io::Result<Runtime> {
    Builder::new_multi_thread().worker_threads(2).enable_all().build()
}

/// Runs a storm on a set of three that the next storm uses, too, unless this one fails.
fn on_a_shared_set(
    shared: &Mutex<Option<ReplicaSet>>,
    binary: &Binary,
    storm: real::Storm,
) -> Outcome {
    let mut pending = shared.lock().unwrap_or_else(PoisonError::into_inner);
    let mut set = match pending.take() {
        Some(set) => set,
        None => {
            let arguments = ["--setParameter", transactions::LIFETIME].map(str::to_owned).to_vec();
            ReplicaSet::start(binary, 3, &Options { arguments, ..Options::default() })?
        }
    };
    set.wait_until_settled(real::GENEROUS)?;
    storm(&several_threads()?, &mut set)?;
    *pending = Some(set);
    Ok(())
}
