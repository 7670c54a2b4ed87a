//! TLS and SOCKS5 between the client and real servers of every version there is.

mod scenarios;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};
use sdam_conformance::mongod::{Availability, Binary};
use sdam_conformance::proxy::Proxy;

/// What a scenario comes to.
type Outcome = Result<(), Box<dyn std::error::Error>>;

type Scenario = (&'static str, fn(&Binary) -> Outcome);

fn main() -> ExitCode {
    let availability = Availability::look();
    let mut scenarios: Vec<Scenario> = scenarios::WITHOUT_A_PROXY.to_vec();
    let has_proxy = Proxy::is_installed();
    if has_proxy {
        scenarios.extend(scenarios::THROUGH_A_PROXY);
    } else {
        eprintln!("left out: the tests of SOCKS5, for want of microsocks: install the package");
    }
    let mut trials = Vec::new();
    for (name, scenario) in scenarios {
        for binary in availability.binaries().to_vec() {
            let name = format!("{}::{name}", binary.version());
            trials.push(Trial::test(name, move || {
                scenario(&binary).map_err(|error| Failed::from(error.to_string()))
            }));
        }
    }
    let passed = !libtest_mimic::run(&Arguments::from_args(), trials).has_failed();
    let on_ci = std::env::var_os("CI").is_some_and(|value| value == "true");
    availability.conclude(passed && (has_proxy || !on_ci))
}
