//! Exhaustive small worlds: every order of messages, timers and a few faults.

use std::ops::Range;

use sdam_simulation::worlds::{Limits, search};

/// Every order of all that can happen.
const EVERY_ORDER: Limits = Limits::new(2, 4);

/// Long paths, on which nearly everything comes in turn.
const LONG: Limits = Limits::new(2, 16).with_delays(Some(0));

/// Checks that nothing goes wrong, and how many worlds there are. More than the last of `expected`
/// are distinguished by a field that decides nothing, or by one that is new (`worlds::digest`).
fn demand_success(limits: Limits, expected: Range<u64>) {
    let report = search(limits);
    println!("{report}");
    assert!(report.is_complete(), "\n{report}");
    assert!(expected.contains(&report.states), "not in {expected:?}: {report}");
    assert!(report.merged > 0, "no two paths lead to the same world: {report}");
}

#[test]
fn clients_that_poll_break_no_rule_in_any_order() {
    demand_success(EVERY_ORDER, 4_000..5_070);
}

#[test]
fn clients_that_listen_break_no_rule_in_any_order() {
    demand_success(EVERY_ORDER.with_streaming(true), 8_000..8_570);
}

#[test]
fn clients_that_poll_break_no_rule_on_long_paths() {
    demand_success(LONG, 15_000..21_500);
}

#[test]
fn clients_that_listen_break_no_rule_on_long_paths() {
    demand_success(LONG.with_streaming(true), 25_000..35_000);
}
