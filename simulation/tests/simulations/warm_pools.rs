//! Pools that an application has filled before it needs them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use sdam_cluster::{Input, MemberId};
use sdam_core::config::Options;
use sdam_core::pool::Counts;
use sdam_simulation::virtual_time::Simulation;

/// Has an application fill its pools as the first thing it does; returns how many connections each
/// then has, and how long that took.
fn warm(simulation: &mut Simulation, options: &str) -> (Vec<Counts>, Duration) {
    let options = Options::parse(&format!("{}{options}", simulation.uri())).unwrap();
    let topology = simulation.topology(options).unwrap();
    let (time, warmed) = (simulation.time(), Arc::new(Mutex::new(None)));
    let (begun, result) = (time.elapsed(), Arc::clone(&warmed));
    simulation.spawn(async move {
        topology.warm_connection_pool().await;
        let counts = topology.members().iter().map(sdam_host::SelectedServer::counts).collect();
        *result.lock().unwrap() = Some((counts, time.elapsed() - begun));
    });
    assert!(simulation.run(Duration::from_secs(120)), "it comes to an end");
    warmed.lock().unwrap().take().expect("it has ended")
}

#[test]
fn each_pool_has_min_pool_size_connections_once_it_was_waited_for() {
    for seed in 0..20 {
        let mut simulation = Simulation::new(seed);
        simulation.run_for(Duration::from_secs(30));
        let (counts, time) = warm(&mut simulation, "&minPoolSize=5");
        assert_eq!(counts.len(), 3);
        assert!(counts.iter().all(|counts| counts.available == 5), "{seed}: {counts:?}");
        assert!(time < Duration::from_secs(5), "{seed}: {time:?}");
    }
}

#[test]
fn a_member_that_is_down_is_not_waited_for() {
    let mut simulation = Simulation::new(1);
    simulation.run_for(Duration::from_secs(30));
    simulation.inject(Input::Kill { member: MemberId(2) });
    simulation.run_for(Duration::from_secs(30));
    let (counts, time) = warm(&mut simulation, "&minPoolSize=2&serverSelectionTimeoutMS=20000");
    let mut available: Vec<_> = counts.iter().map(|counts| counts.available).collect();
    available.sort_unstable();
    assert_eq!(available, [0, 2, 2]);
    assert!(time < Duration::from_secs(15), "{time:?}");
}

#[test]
fn members_that_never_answer_are_waited_for_until_the_time_is_over() {
    let mut simulation = Simulation::new(2);
    simulation.run_for(Duration::from_secs(30));
    for member in 0..3 {
        simulation.inject(Input::Freeze { member: MemberId(member) });
    }
    let options = "&minPoolSize=2&serverSelectionTimeoutMS=3000&connectTimeoutMS=60000";
    let (counts, time) = warm(&mut simulation, options);
    assert!(counts.iter().all(|counts| counts.total() == 0), "{counts:?}");
    assert_eq!(time.as_secs(), 3);
}

#[test]
fn nothing_is_waited_for_without_min_pool_size() {
    let (counts, time) = warm(&mut Simulation::new(3), "");
    assert!(counts.iter().all(|counts| counts.total() == 0), "{counts:?}");
    assert_eq!(time, Duration::ZERO);
}
