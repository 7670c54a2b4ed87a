//! Simulations: fixed seeds, incidents, and that equal seeds take equal steps. New seeds are a
//! matter of the runner, `sdam-simulation sim`, which is built to be fast.
//!
//! A failure prints its seed, the last steps of its client, and the command that shows it again.

use std::path::Path;
use std::process::{Command, Output};

use sdam_simulation::sim::{Case, FaultKind, Incidence, Part, SCENARIOS, Scenario, Swarm};

/// The number of seeds that are simulated on every run.
const FIXED: u64 = 120;

/// Panics with all that is known of the failures.
fn demand_success(swarm: &Swarm) {
    println!("{swarm}");
    let failures: Vec<String> = swarm.failures.iter().map(ToString::to_string).collect();
    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

#[test]
fn fixed_seeds_break_no_rule_and_meet_every_kind_of_fault() {
    let mut swarm = Swarm::default();
    (0..FIXED).for_each(|seed| _ = swarm.run(None, seed));
    demand_success(&swarm);
    for kind in FaultKind::ALL {
        assert!(swarm.statistics.faults.contains_key(&kind), "{kind:?} never happened");
    }
    assert!(swarm.statistics.documents > 1_000, "hardly any write lasts: {swarm}");
    let seconds = swarm.statistics.client_time.as_secs();
    assert!(swarm.statistics.operations > seconds / 2, "hardly any operation succeeds: {swarm}");
    let seconds = swarm.applications.client_time.as_secs();
    let operations = swarm.applications.operations;
    assert!(operations > seconds, "hardly any application is served: {swarm}");
    let seconds = swarm.transactions.client_time.as_secs();
    assert!(swarm.transactions.documents > seconds / 4, "hardly any commit lasts: {swarm}");
    let seconds = swarm.changes.client_time.as_secs();
    assert!(swarm.changes.documents > seconds, "hardly any change is read: {swarm}");
    let seconds = swarm.files.client_time.as_secs();
    assert!(swarm.files.documents > seconds / 4, "hardly any file is stored: {swarm}");
}

#[test]
fn incidents_that_others_had_take_place_here_and_do_no_harm() {
    let mut swarm = Swarm::default();
    for scenario in SCENARIOS {
        (0..3).for_each(|seed| _ = swarm.run(Some(scenario), seed));
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
    for part in Part::ALL {
        let run = |seed| Case::default().with_part(part).with_seed(seed).run();
        let digest = |seed| run(seed).map(|run| (run.digest, run.statistics)).unwrap();
        let first: Vec<_> = (0..12).map(digest).collect();
        let second: Vec<_> = (0..12).map(digest).collect();
        assert_eq!(first, second, "something but the seed decides");
        assert!(first.windows(2).all(|pair| pair[0].0 != pair[1].0), "seeds do not matter");
    }
}

/// Runs the runner.
fn command(arguments: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_sdam-simulation");
    Command::new(program).args(arguments).output().expect("a process")
}

#[test]
fn what_does_not_fail_cannot_be_shrunk_and_leaves_no_files() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("nothing-shrunk");
    let path = folder.to_str().expect("text");
    let only = "clients=0/faults=/work=0-9000";
    let output = command(&["shrink", "--seed", "1", "--only", only, "--keep", path]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    let again = format!("nothing fails: sim --seeds 1 --from 1 --only {only}");
    assert!(said.contains(&again), "{said}");
    assert!(!folder.exists());
    let output = command(&["sim", "--seeds", "1", "--from", "1", "--only", only]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

#[test]
fn what_cannot_be_left_out_is_refused_with_what_can() {
    let cases = [
        (["--seeds", "1", "--only", "clients=9"], "there is no client 9; this seed draws "),
        (["--seeds", "1", "--only", "faults=999"], "there is no fault 999; this seed draws "),
        (["--seeds", "2", "--only", "faults="], "add --seeds 1"),
        (["--seeds", "1", "--only", "less"], "clients=NUMBERS"),
    ];
    for (arguments, expected) in cases {
        let output = command(&[&["sim", "--from", "1"], &arguments[..]].concat());
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {output:?}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(expected), "{arguments:?}: {said}");
    }
}
