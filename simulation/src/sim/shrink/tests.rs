//! A demand that no client can meet while members die is a failure that needs nothing else.

use std::time::Duration;

use sdam_core::trace::{Replay, Trace};

use super::super::fault::FaultKind as Kind;
use super::super::run::run;
use super::super::scenario::{Demand, Scenario, USUAL, incident};
use super::{Case, shrink};
use sdam_core::trace::export;

const ALL: &[usize] = &[0, 1, 2];

/// Of six faults, one clears pools, and that must not be.
static DEMANDING: Scenario = Scenario {
    name: "demanding",
    story: "Members die, and no client is to notice.",
    faults: &[
        incident(Kind::TornBytes, (1, 9), ALL),
        incident(Kind::Fork, (3, 4), &[]),
        incident(Kind::RateLimit, (4, 6), &[1]),
        incident(Kind::TornBytes, (6, 7), &[2]),
        incident(Kind::Kill, (12, 20), ALL),
        incident(Kind::TornBytes, (15, 25), ALL),
    ],
    demand: Demand::NothingCleared,
    ..USUAL
};

const KILL: usize = 4;

fn case(seed: u64) -> Case {
    Case { scenario: Some(&DEMANDING), seed, ..Case::default() }
}

#[test]
fn a_failing_simulation_shrinks_to_the_one_fault_and_the_one_client_that_it_takes() {
    let shrunk = shrink(&case(0)).expect("a seed that fails");
    assert_eq!((shrunk.before.faults, shrunk.before.clients), (6, 2));
    assert_eq!((shrunk.after.faults, shrunk.after.clients), (1, 1), "{shrunk}");
    assert_eq!(shrunk.failure.case.reduction.faults, Some(vec![KILL]), "{shrunk}");
    assert_eq!(shrunk.failure.violation.check, shrunk.original.violation.check);
    assert!(shrunk.after.steps * 2 < shrunk.before.steps, "{shrunk}");
    assert!(shrunk.faults[0].contains("Kill"), "{shrunk}");
    // No time is left in which nothing needs to happen. It is drawn to begin after 12 s, to last
    // for 8 s, and to be over for 10 s until all is calm.
    assert!(shrunk.after.time * 3 < shrunk.before.time * 2, "{shrunk}");
    let (plan, _) = shrunk.failure.case.plan();
    let kill = &plan.faults[KILL];
    assert!(kill.begins.since_origin() < Duration::from_secs(4), "{shrunk}");
    assert!(kill.lasts() < Duration::from_secs(4), "{shrunk}");
    assert!(plan.calm - kill.ends < Duration::from_secs(1), "{shrunk}");
    let closes = plan.reduction.closes(&plan).expect("clients are closed early");
    assert!(closes - kill.ends < Duration::from_secs(4), "{shrunk}");
    // What is printed is enough to see it again.
    let said = shrunk.failure.case.to_string();
    let only = said.rsplit_once("--only ").expect("a reduction").1.parse().expect("one");
    let again = Case { reduction: only, ..case(0) }.run().expect_err("it fails again");
    assert_eq!((again.at, again.steps), (shrunk.failure.at, shrunk.failure.steps));
    assert_eq!(again.violation, shrunk.failure.violation);
}

#[test]
fn nothing_fails_because_a_client_is_closed_early() {
    for seed in 0..4 {
        let reduction = "close=0".parse().expect("a reduction");
        let early = Case { seed, reduction, ..Case::default() }.run().expect("nothing fails");
        let late = run(seed).expect("nothing fails");
        assert!(early.statistics.client_time < late.statistics.client_time);
    }
}

#[test]
fn a_simulation_in_which_nothing_fails_cannot_be_shrunk() {
    let mut harmless = case(1);
    harmless.reduction = "faults=0,3".parse().expect("a reduction");
    assert!(harmless.run().is_ok());
    assert!(shrink(&harmless).is_none());
}

#[test]
fn the_client_of_a_failure_is_recorded_and_the_recording_replays_exactly() {
    let failure = case(0).run().expect_err("a seed that fails");
    let text = failure.record().expect("a recording");
    let trace = Trace::parse(&text).expect("a trace");
    let mut replay = Replay::new(&trace).expect("it begins at the beginning");
    assert_eq!(replay.finish(), Ok(()));
    assert!(text.contains("serverHeartbeatFailed"), "nothing died in it");
}

/// It has passed our runner when it is handed out.
#[test]
fn what_is_left_of_a_failure_becomes_a_case_of_the_official_suites() {
    let shrunk = shrink(&case(0)).expect("a seed that fails");
    let text = shrunk.failure.record().expect("a recording");
    let trace = Trace::parse(&text).expect("a trace");
    let exported = export(&trace, "A member dies").expect("it is about descriptions");
    assert!(exported.contains("\"outcome\""), "{exported}");
}

#[test]
fn who_is_left_does_the_same_until_somebody_who_is_left_out_would_have_mattered() {
    // Nothing goes wrong so early, so that neither client can know of the other.
    let story = |only: &str| {
        let reduction = only.parse().expect("a reduction");
        let text = Case { reduction, ..case(3) }.run().expect_err("it fails").record();
        let text = text.expect("a recording");
        let second = |line: &str| line.strip_prefix('+')?.split(['.', ' ']).next()?.parse().ok();
        let is_early = |line: &&str| second(line).is_none_or(|second: u64| second < 2);
        let early = text.lines().take_while(is_early);
        // Replies differ in what the deployment numbers: messages, and connections.
        let done = early.filter(|line| line.starts_with("  > "));
        done.map(without_server_connection_id).collect::<Vec<_>>()
    };
    let (both, alone) = (story("faults=4"), story("faults=4/clients=0"));
    assert!(both.len() > 20 && both == alone, "{both:#?}\n{alone:#?}");
}

/// Returns what was done but for the number that the server has given its connection, and the seal,
/// which is of all lines before.
fn without_server_connection_id(line: &str) -> String {
    let line = line.rsplit_once(" ~").map_or(line, |(line, _)| line);
    let Some((before, id)) = line.split_once(",\"serverConnectionId\":") else {
        return line.to_owned();
    };
    format!("{before}{}", id.trim_start_matches(|digit: char| digit.is_ascii_digit()))
}
