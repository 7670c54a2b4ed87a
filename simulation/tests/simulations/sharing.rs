//! Clients that share monitors, in virtual time and through faults: all know the same, each
//! receives a whole life, and every operation ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use sdam_cluster::{Input, MemberId};
use sdam_core::bson::rawdoc;
use sdam_core::config::Options;
use sdam_core::description::TopologyType;
use sdam_core::topology::{Event, EventKind, Topics};
use sdam_host::{ErrorKind, Events};
use sdam_simulation::virtual_time::{Simulation, Topology};

/// The number of clients of one set of monitors.
const CLIENTS: u64 = 5;

/// Does something to the deployment that ends within some seconds.
fn disturb(simulation: &mut Simulation, kind: u64) {
    let member = MemberId(usize::try_from(kind % 3).unwrap());
    match kind % 4 {
        0 => drop(simulation.step_down()),
        1 => {
            simulation.inject(Input::Kill { member });
            simulation.run_for(Duration::from_secs(4));
            simulation.inject(Input::Start { member });
        }
        2 => {
            simulation.inject(Input::Freeze { member });
            simulation.run_for(Duration::from_secs(9));
            simulation.inject(Input::Thaw { member });
        }
        _ => {
            simulation.inject(Input::Shutdown { member });
            simulation.run_for(Duration::from_secs(12));
            simulation.inject(Input::Start { member });
        }
    }
}

/// Has a client run one command after another until it is closed, and returns how many have
/// succeeded so far.
fn work(simulation: &mut Simulation, client: &Topology, pause: u64) -> Arc<AtomicU32> {
    let (client, time) = (client.clone(), simulation.time());
    let succeeded = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&succeeded);
    simulation.spawn(async move {
        let ping = rawdoc! { "ping": 1 };
        loop {
            match client.run_command("admin", &ping).await {
                Ok(_) => drop(counted.fetch_add(1, Ordering::Relaxed)),
                Err(error) if error.kind() == ErrorKind::Closed => return,
                Err(_) => {}
            }
            time.sleep(Duration::from_millis(pause)).await;
        }
    });
    succeeded
}

/// A client with what it does and receives.
struct Sharing {
    client: Topology,
    events: Events,
    told: Vec<Event>,
    succeeded: Arc<AtomicU32>,
}

/// Lets so much time pass, in which all clients receive less than they can keep unread.
fn pass(simulation: &mut Simulation, clients: &mut [Sharing], time: Duration) {
    let until = simulation.time().elapsed() + time;
    while simulation.time().elapsed() < until {
        simulation.run_for(Duration::from_secs(1));
        for client in &mut *clients {
            client.told.extend(std::iter::from_fn(|| client.events.try_next()));
        }
    }
}

/// Checks that the events are those of a life from its beginning to its end: servers open once and
/// close once, and each description follows from the one before.
fn check_life(seed: u64, told: Vec<Event>) {
    let (mut kinds, mut known, mut open) = (Vec::new(), None, std::collections::BTreeSet::new());
    for event in told {
        match &event.kind {
            EventKind::TopologyDescriptionChanged { previous, new } => {
                if let Some(known) = &known {
                    assert!(Arc::ptr_eq(known, previous) || known.same_as(previous), "seed {seed}");
                }
                known = Some(Arc::clone(new));
            }
            EventKind::ServerOpening { server, .. } => {
                assert!(open.insert(*server), "seed {seed}: {server:?} opens twice");
            }
            EventKind::ServerClosed { server, .. } => {
                assert!(open.remove(server), "seed {seed}: {server:?} was not open");
            }
            _ => {}
        }
        kinds.push(event.kind.name());
    }
    assert!(open.is_empty(), "seed {seed}: {open:?} did not close");
    assert_eq!(kinds.first(), Some(&"topologyOpening"), "seed {seed}");
    assert_eq!(kinds.last(), Some(&"topologyClosed"), "seed {seed}");
    let lives = kinds.iter().filter(|kind| **kind == "topologyOpening").count();
    assert_eq!(lives, 1, "seed {seed}");
}

/// Checks that each client succeeds within some seconds.
fn check_work(seed: u64, simulation: &mut Simulation, clients: &mut [Sharing]) {
    clients.iter().for_each(|client| client.succeeded.store(0, Ordering::Relaxed));
    pass(simulation, clients, Duration::from_secs(8));
    for client in clients {
        assert!(
            client.succeeded.load(Ordering::Relaxed) > 0,
            "seed {seed}: a client does not work"
        );
    }
}

fn run(seed: u64) {
    let mut simulation = Simulation::new(seed);
    let own = |number: u64| {
        let uri = format!("{}&maxPoolSize={}", simulation.uri(), number + 1);
        Options::parse(&uri).unwrap()
    };
    let options: Vec<_> = (0..CLIENTS).map(own).collect();
    let monitors = simulation.monitors(options[0].clone()).unwrap();
    let mut clients = Vec::new();
    for (number, options) in (0..).zip(options) {
        // Some come before anything is known, and others in the middle of an outage.
        if number == CLIENTS / 2 {
            pass(&mut simulation, &mut clients, Duration::from_secs(20));
            disturb(&mut simulation, seed / 4);
        }
        let client = simulation.sharing_topology(&monitors, options).unwrap();
        let events = client.subscribe_to(Topics::TOPOLOGY);
        let succeeded = work(&mut simulation, &client, 50 + 130 * number);
        clients.push(Sharing { client, events, told: Vec::new(), succeeded });
    }
    let watch = Arc::downgrade(&monitors);
    drop(monitors);
    for round in 0..3 {
        pass(&mut simulation, &mut clients, Duration::from_millis(2500 + 700 * (seed % 7)));
        disturb(&mut simulation, seed + round);
    }
    pass(&mut simulation, &mut clients, Duration::from_secs(60));
    let view = clients[0].client.view();
    assert_eq!(view.topology_type, TopologyType::ReplicaSetWithPrimary, "seed {seed}");
    for sharing in &clients {
        assert!(Arc::ptr_eq(&sharing.client.view(), &view), "seed {seed}: the views differ");
    }
    check_work(seed, &mut simulation, &mut clients);
    // One after another ends, and takes nothing from the others.
    while let Some(Sharing { client, mut events, mut told, .. }) = clients.pop() {
        client.close_now();
        drop(client);
        simulation.run_for(Duration::from_secs(1));
        told.extend(std::iter::from_fn(|| events.try_next()));
        check_life(seed, told);
        check_work(seed, &mut simulation, &mut clients);
    }
    assert!(simulation.run(Duration::from_secs(60)), "seed {seed}: an operation does not end");
    assert_eq!(watch.strong_count(), 0, "seed {seed}: the monitors go on");
}

#[test]
fn clients_that_share_monitors_know_the_same_and_end_one_by_one() {
    (0..60).for_each(run);
}

#[test]
fn monitors_are_shared_only_with_those_who_would_have_the_same() {
    let mut simulation = Simulation::new(1);
    let options = Options::parse(simulation.uri()).unwrap();
    let monitors = simulation.monitors(options.clone()).unwrap();
    let other = format!("{}&heartbeatFrequencyMS=5000", simulation.uri());
    let refused = simulation.sharing_topology(&monitors, Options::parse(&other).unwrap());
    let error = refused.unwrap_err().to_string();
    assert!(error.contains("the options differ"), "{error}");
    // With its last client, the monitors end, and no client can share them any more.
    let client = simulation.sharing_topology(&monitors, options.clone()).unwrap();
    simulation.run_for(Duration::from_secs(20));
    client.close_now();
    let error = simulation.sharing_topology(&monitors, options).unwrap_err().to_string();
    assert!(error.contains("closed"), "{error}");
}
