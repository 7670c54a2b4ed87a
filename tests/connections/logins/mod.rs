//! Logging in to real servers of every version there is, and talking to them: authentication,
//! compression, TLS, metadata and messages.
//!
//! The ids in comments, such as AUTH-P1, are those of the specifications' prose tests.

mod authentication;
mod compression;
mod fixture;
mod handshake;
mod members;
mod messages;
mod recorder;
mod refusal;
mod tls;

pub(crate) use handshake::{GREETING, greet};
use libtest_mimic::Trial;
use sdam_conformance::mongod::{Binary, Version};

use crate::{Outcome, V4_2, V4_4, V5_0, trial};

/// A scenario, and the first version that can play it.
type Scenario = (&'static str, Version, fn(&Binary) -> Outcome);

pub(crate) fn trials(binaries: &[Binary]) -> Vec<Trial> {
    let scenarios: [&[Scenario]; 7] = [
        &authentication::SCENARIOS,
        &refusal::SCENARIOS,
        &compression::scenarios(),
        &tls::SCENARIOS,
        &handshake::SCENARIOS,
        &messages::SCENARIOS,
        &members::SCENARIOS,
    ];
    let mut trials = Vec::new();
    for &(name, since, scenario) in scenarios.into_iter().flatten() {
        for binary in binaries.iter().filter(|binary| binary.version() >= since) {
            let (name, binary) = (format!("logins::{}::{name}", binary.version()), binary.clone());
            trials.push(trial(name, move || scenario(&binary)));
        }
    }
    trials
}
