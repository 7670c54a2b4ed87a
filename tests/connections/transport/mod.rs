//! TLS and SOCKS5 between the client and real servers of every version there is.

mod scenarios;

use libtest_mimic::Trial;
use sdam_conformance::mongod::Binary;
use sdam_conformance::proxy::Proxy;

use crate::{Outcome, trial};

type Scenario = (&'static str, fn(&Binary) -> Outcome);

pub(crate) fn trials(binaries: &[Binary]) -> Vec<Trial> {
    let mut scenarios: Vec<Scenario> = scenarios::WITHOUT_A_PROXY.to_vec();
    if Proxy::is_installed() {
        scenarios.extend(scenarios::THROUGH_A_PROXY);
    }
    let mut trials = Vec::new();
    for (name, scenario) in scenarios {
        for binary in binaries {
            let name = format!("transport::{}::{name}", binary.version());
            let binary = binary.clone();
            trials.push(trial(name, move || scenario(&binary)));
        }
    }
    trials
}

/// Says what was left out, and returns whether that may be: not on CI.
pub(crate) fn conclude() -> bool {
    if Proxy::is_installed() {
        return true;
    }
    eprintln!("left out: the tests of SOCKS5, for want of microsocks: install the package");
    std::env::var_os("CI").is_none_or(|value| value != "true")
}
