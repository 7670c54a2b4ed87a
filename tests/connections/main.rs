//! The client against real servers of every version there is.

mod handshakes;
mod logins;
mod pools;
#[path = "../support/mod.rs"]
mod support;
mod transport;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};
use sdam_conformance::mongod::{Availability, Version};

/// The result of a test.
type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

const V4_2: Version = Version { major: 4, minor: 2, patch: 0 };
const V4_4: Version = Version { major: 4, minor: 4, patch: 0 };
const V5_0: Version = Version { major: 5, minor: 0, patch: 0 };

fn main() -> ExitCode {
    if let Ok(uri) = std::env::var(logins::GREETING) {
        return logins::greet(&uri);
    }
    let mut arguments = Arguments::from_args();
    // Two at a time: more servers than that get in each other's way, and in that of elections.
    arguments.test_threads.get_or_insert(2);
    let availability = Availability::look();
    let binaries = availability.binaries();
    let mut trials = handshakes::trials(binaries);
    trials.extend(logins::trials(binaries));
    trials.extend(pools::trials(binaries));
    trials.extend(transport::trials(binaries));
    let passed = !libtest_mimic::run(&arguments, trials).has_failed();
    availability.conclude(passed && transport::conclude())
}

fn trial(name: String, test: impl FnOnce() -> Outcome + Send + 'static) -> Trial {
    Trial::test(name, || test().map_err(|error| Failed::from(error.to_string())))
}
