//! Simulations: fixed seeds, incidents, and that equal seeds take equal steps. New seeds are a
//! matter of the runner, `sdam-conformance sim`, which is built to be fast.
//!
//! A failure prints its seed, the last steps of its client, and the command that shows it again.

use sdam_conformance::sim::{FaultKind, Incidence, SCENARIOS, Scenario, Swarm, run};

/// How many seeds are simulated on every run.
const FIXED: u64 = 300;

/// Panics with all that is known of the failures.
fn demand_success(swarm: &Swarm) {
    println!("{swarm}");
    let failures: Vec<String> = swarm.failures.iter().map(ToString::to_string).collect();
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

#[test]
fn fixed_seeds_break_no_rule_and_meet_every_kind_of_fault() {
    let mut swarm = Swarm::default();
    (0..FIXED).for_each(|seed| drop(swarm.run(None, seed).map(ToString::to_string)));
    demand_success(&swarm);
    for kind in FaultKind::ALL {
        assert!(swarm.statistics.faults.contains_key(&kind), "{kind:?} never happened");
    }
    let seconds = swarm.statistics.client_time.as_secs();
    assert!(swarm.statistics.operations > seconds / 2, "hardly any operation succeeds: {swarm}");
}

#[test]
fn incidents_that_others_had_take_place_here_and_do_no_harm() {
    let mut swarm = Swarm::default();
    for scenario in SCENARIOS {
        (0..5).for_each(|seed| drop(swarm.run(Some(scenario), seed).map(ToString::to_string)));
    }
    demand_success(&swarm);
    for Scenario { name, often, .. } in SCENARIOS {
        let Incidence { simulations, took_place, .. } = swarm.incidents[name];
        let enough = took_place * 100 >= often * simulations;
        assert!(enough, "{name}: the incident took place in {took_place} of {simulations} only");
    }
}

#[test]
fn equal_seeds_take_equal_steps_and_others_do_not() {
    let digest = |seed| run(seed).map(|run| (run.digest, run.statistics)).unwrap();
    let first: Vec<_> = (0..12).map(digest).collect();
    let second: Vec<_> = (0..12).map(digest).collect();
    assert_eq!(first, second, "something but the seed decides");
    assert!(first.windows(2).all(|pair| pair[0].0 != pair[1].0), "seeds do not matter");
}
