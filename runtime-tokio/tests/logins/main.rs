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
#[path = "../support/mod.rs"]
mod support;
mod tls;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};
use sdam_conformance::mongod::{Availability, Binary, Version};

/// What a scenario comes to.
type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

/// A scenario, and the first version that can play it.
type Scenario = (&'static str, Version, fn(&Binary) -> Outcome);

const V4_2: Version = Version { major: 4, minor: 2, patch: 0 };
const V4_4: Version = Version { major: 4, minor: 4, patch: 0 };
const V5_0: Version = Version { major: 5, minor: 0, patch: 0 };

fn main() -> ExitCode {
    let availability = Availability::look();
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
        for binary in availability.binaries().to_vec() {
            if binary.version() < since {
                continue;
            }
            let name = format!("{}::{name}", binary.version());
            trials.push(Trial::test(name, move || {
                scenario(&binary).map_err(|error| Failed::from(error.to_string()))
            }));
        }
    }
    let passed = !libtest_mimic::run(&Arguments::from_args(), trials).has_failed();
    availability.conclude(passed)
}
