//! The pools of the client on real sockets: prose tests of Connection Monitoring and Pooling, of
//! SDAM, of discovery and selection, and of the step-down of primaries, on the embedded deployment
//! and on real servers.
//!
//! The names of the tests begin with those that the cited sections' tests have here: CMAP, SDAM,
//! SEL for Server Selection, STALE for Max Staleness, STEP, RR for retryable reads, CSOT for Client
//! Side Operations Timeout.

mod discovery;
mod embedded;
mod in_use;
mod observer;
mod real;
mod step_down;
mod time_outs;

use std::fmt::Display;
use std::sync::{Arc, Mutex, PoisonError};

use libtest_mimic::Trial;
use sdam_conformance::mongod::{Binary, Config, Options, ReplicaSet, Server};
use tokio::runtime::{Builder, Runtime};

use crate::{Outcome, support};

pub(crate) fn trials(binaries: &[Binary]) -> Vec<Trial> {
    let mut trials = embedded::trials();
    trials.extend(discovery::trials());
    trials.extend(time_outs::trials());
    trials.extend(in_use::trials());
    for binary in binaries {
        let version = binary.version();
        for (name, since, test) in
            real::ON_A_STANDALONE.into_iter().chain(discovery::ON_A_STANDALONE)
        {
            if version >= since {
                let binary = binary.clone();
                trials.push(trial(format!("{version}::{name}"), move || {
                    test(&Server::start(&binary, Config::default())?)
                }));
            }
        }
        let shared = Arc::default();
        for (name, test) in
            step_down::ON_A_SET.into_iter().chain(in_use::ON_A_SET).chain(discovery::ON_A_SET)
        {
            let (binary, shared) = (binary.clone(), Arc::clone(&shared));
            trials.push(trial(format!("{version}::{name}"), move || {
                on_a_shared_set(&shared, &binary, test)
            }));
        }
    }
    trials
}

fn trial(name: impl Display, test: impl FnOnce() -> Outcome + Send + 'static) -> Trial {
    crate::trial(format!("pools::{name}"), test)
}

/// A runtime in which nothing happens between the end of an operation and the next line of a test.
fn runtime() -> std::io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

/// Runs a test on a set of three that the next test uses, too, unless this one fails.
fn on_a_shared_set(
    shared: &Mutex<Option<ReplicaSet>>,
    binary: &Binary,
    test: fn(&ReplicaSet) -> Outcome,
) -> Outcome {
    let mut pending = shared.lock().unwrap_or_else(PoisonError::into_inner);
    let set = match pending.take() {
        Some(set) => set,
        None => ReplicaSet::start(binary, 3, &Options::calm())?,
    };
    set.wait_until_settled(support::GENEROUS)?;
    test(&set)?;
    *pending = Some(set);
    Ok(())
}
