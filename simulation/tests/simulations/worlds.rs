//! Exhaustive small worlds: every order of messages, timers and a few faults.

use sdam_simulation::worlds::{Limits, search};

/// Every order of all that can happen.
const EVERY_ORDER: Limits = Limits::new(2, 4);

/// Long paths, on which nearly everything comes in turn.
const LONG: Limits = Limits::new(2, 16).with_delays(Some(0));

fn demand_success(limits: Limits, least: u64) {
    let report = search(limits);
    println!("{report}");
    assert!(report.is_complete(), "\n{report}");
    assert!(report.states >= least, "hardly anything can happen: {report}");
    assert!(report.merged > 0, "no two paths lead to the same world: {report}");
}

#[test]
fn clients_that_poll_break_no_rule_in_any_order() {
    demand_success(EVERY_ORDER, 4_000);
}

#[test]
fn clients_that_listen_break_no_rule_in_any_order() {
    demand_success(EVERY_ORDER.with_streaming(true), 8_000);
}

#[test]
fn clients_that_poll_break_no_rule_on_long_paths() {
    demand_success(LONG, 4_000);
}

#[test]
fn clients_that_listen_break_no_rule_on_long_paths() {
    demand_success(LONG.with_streaming(true), 8_000);
}
