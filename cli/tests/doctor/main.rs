//! `sdam doctor` against every signature of an incident that is known, each made to happen for
//! real, and against deployments of all kinds that are well.
//!
//! The table of `cli/DOCTOR.md` is made from what is said: `UPDATE_PAGE=1` writes it.

mod buckets;
mod fakes;
mod forked;
mod healthy;
mod kerberos;
mod network;
mod others;
mod signatures;
mod support;
mod table;
mod transactions;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use libtest_mimic::{Arguments, Failed, Trial};
use sdam_conformance::mongod::Availability;
use sdam_conformance::proxy::Proxy;

use crate::support::Fixture;
use crate::table::Row;

/// The time limit of steps that depend on the load of the machine.
pub(crate) const GENEROUS: Duration = Duration::from_secs(90);

fn main() -> ExitCode {
    if let Some(code) = forked::play() {
        return code;
    }
    let without_network = match network::enter() {
        Ok(Some(code)) => return code,
        Ok(None) => None,
        Err(reason) => Some(reason),
    };
    let mut arguments = Arguments::from_args();
    // Most of them wait; more servers than that get in each other's way.
    arguments.test_threads.get_or_insert(4);
    let availability = Availability::look();
    let has_servers = !availability.binaries().is_empty();
    let fixture = Arc::new(Fixture::new(availability.binaries()));
    let rows = Arc::<Mutex<BTreeMap<u32, Row>>>::default();
    let mut trials = Vec::new();
    for signature in signatures::ALL {
        let (fixture, rows) = (Arc::clone(&fixture), Arc::clone(&rows));
        let name = format!("signature_{:02}_{}", signature.number, signature.name);
        let is_left_out = !has_servers
            || (signature.needs_network && !network::is_own())
            || (signature.name == "logins_without_a_context" && kerberos::missing().is_some());
        let trial = Trial::test(name, move || {
            let row =
                (signature.test)(&fixture).map_err(|error| Failed::from(error.to_string()))?;
            rows.lock().unwrap_or_else(PoisonError::into_inner).insert(signature.number, row);
            Ok(())
        });
        trials.push(trial.with_ignored_flag(is_left_out));
    }
    for (name, needs_network, test) in healthy::ALL {
        let (fixture, needs_network) = (Arc::clone(&fixture), *needs_network);
        let is_left_out = !has_servers
            || (needs_network && !network::is_own())
            || (*name == "a_proxy" && !Proxy::is_installed());
        let trial = Trial::test(format!("healthy_{name}"), move || {
            test(&fixture).map_err(|error| Failed::from(error.to_string()))
        });
        trials.push(trial.with_ignored_flag(is_left_out));
    }
    for (name, needs_network, test) in others::ALL {
        let (fixture, needs_network) = (Arc::clone(&fixture), *needs_network);
        let is_left_out = !has_servers
            || (needs_network && !network::is_own())
            || (*name == "a_proxy_that_refuses" && !Proxy::is_installed());
        let trial = Trial::test(format!("other_{name}"), move || {
            test(&fixture).map_err(|error| Failed::from(error.to_string()))
        });
        trials.push(trial.with_ignored_flag(is_left_out));
    }
    let mut passed = !libtest_mimic::run(&arguments, trials).has_failed();
    drop(fixture);
    let rows = rows.lock().unwrap_or_else(PoisonError::into_inner);
    // A run of some tests only makes no table.
    if rows.len() == signatures::ALL.len()
        && let Err(error) = table::check(&rows)
    {
        eprintln!("{error}");
        passed = false;
    }
    conclude(&availability, without_network, passed)
}

/// Says what was left out, and how the target ends: on CI nothing may be left out.
fn conclude(
    availability: &Availability,
    without_network: Option<String>,
    passed: bool,
) -> ExitCode {
    let mut left_out = network::missing();
    left_out.extend(without_network);
    if !Proxy::is_installed() {
        left_out.push("a proxy: install microsocks".to_owned());
    }
    left_out.extend(kerberos::missing().map(str::to_owned));
    for reason in &left_out {
        eprintln!("left out: {reason}");
    }
    let on_ci = std::env::var_os("CI").is_some_and(|value| value == "true");
    availability.conclude(passed && (left_out.is_empty() || !on_ci))
}
