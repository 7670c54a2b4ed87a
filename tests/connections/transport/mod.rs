//! TLS and SOCKS5 between the client and real servers of every version there is.

mod revocation;
mod scenarios;

use libtest_mimic::Trial;
use sdam_conformance::mongod::Binary;
use sdam_conformance::proxy::Proxy;

use crate::{Outcome, V4_4, trial};

type Scenario = (&'static str, fn(&Binary) -> Outcome);

pub(crate) fn trials(binaries: &[Binary]) -> Vec<Trial> {
    let mut scenarios: Vec<Scenario> = scenarios::WITHOUT_A_PROXY.to_vec();
    if Proxy::is_installed() {
        scenarios.extend(scenarios::THROUGH_A_PROXY);
    }
    let since_4_4: Vec<_> =
        binaries.iter().filter(|binary| binary.version() >= V4_4).cloned().collect();
    let mut trials = all(&scenarios, binaries);
    trials.extend(all(&revocation::WITHOUT_STAPLES, &since_4_4));
    trials.extend(all(&revocation::OF_STAPLES, &revocation::stapling_binaries()));
    trials
}

/// Makes a test of each scenario with each server.
fn all(scenarios: &[Scenario], binaries: &[Binary]) -> Vec<Trial> {
    let mut trials = Vec::new();
    for (name, scenario) in scenarios {
        for binary in binaries {
            let name = format!("transport::{}::{name}", binary.version());
            let (scenario, binary) = (*scenario, binary.clone());
            trials.push(trial(name, move || scenario(&binary)));
        }
    }
    trials
}

/// Says what was left out, and returns whether that may be: not on CI.
pub(crate) fn conclude() -> bool {
    let mut is_whole = true;
    let mut left_out = |what: &str| {
        eprintln!("left out: {what}");
        is_whole = false;
    };
    if !Proxy::is_installed() {
        left_out("the tests of SOCKS5, for want of microsocks: install the package");
    }
    if revocation::stapling_binaries().is_empty() {
        left_out("the tests of staples, for want of a server: run scripts/fetch-mongod 6.0.5");
    }
    is_whole || std::env::var_os("CI").is_none_or(|value| value != "true")
}
