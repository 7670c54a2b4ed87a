//! Exhaustive small worlds: every order of messages, timers and a few faults.

use sdam_conformance::worlds::{Limits, search};

fn demand_success(faults: u8, steps: u8, streaming: bool, least: u64) {
    let report = search(Limits { faults, steps, time: None, streaming });
    println!("{report}");
    assert!(report.is_complete(), "\n{report}");
    assert!(report.states >= least, "hardly anything can happen: {report}");
    assert!(report.merged > 0, "no two paths lead to the same world: {report}");
    assert!(report.settled > 0, "no world came to rest: {report}");
}

#[test]
fn clients_that_poll_break_no_rule_in_any_order() {
    demand_success(2, 3, false, 1_000);
}

#[test]
fn clients_that_listen_break_no_rule_in_any_order() {
    demand_success(2, 3, true, 1_000);
}
