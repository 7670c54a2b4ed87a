//! Applications in virtual time: what a seed shows, it shows again.

#[path = "../../examples/failover.rs"]
#[expect(dead_code, reason = "the test reads no arguments and prints nothing")]
mod failover;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use failover::failover;
use sdam_cluster::{ClusterOptions, Input, MemberId};
use sdam_core::bson::rawdoc;
use sdam_core::config::{Options, ReadMode, ReadPreference};
use sdam_core::description::ServerType;
use sdam_core::selection::Criteria;
use sdam_simulation::virtual_time::{Simulation, VirtualTime};

#[test]
fn the_same_seed_shows_the_same_failover_and_another_seed_another_one() {
    let first = failover(7).unwrap();
    assert_eq!(first, failover(7).unwrap(), "something but the seed decides");
    assert_ne!(first, failover(8).unwrap(), "the seed does not matter");
    let has = |what: &str| first.iter().any(|line| line.contains(what));
    for what in [
        "the topology is ReplicaSetWithPrimary",
        "deployment: StepDown",
        "was RSPrimary and is",
        "the topology is ReplicaSetNoPrimary",
        "all orders are in",
    ] {
        assert!(has(what), "nothing of {what:?} in\n{}", first.join("\n"));
    }
}

#[test]
fn waiting_takes_no_time_and_ends_when_it_is_due() {
    let begun = std::time::Instant::now();
    let mut simulation = Simulation::new(1);
    let time = simulation.time();
    let hours = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&hours);
    simulation.spawn(async move {
        loop {
            time.sleep(Duration::from_secs(3600)).await;
            counted.fetch_add(1, Ordering::Relaxed);
        }
    });
    assert!(!simulation.run(Duration::from_secs(36_000)), "it goes on for ever");
    assert_eq!(hours.load(Ordering::Relaxed), 10);
    assert!(begun.elapsed() < Duration::from_secs(3600));
}

/// Runs one task, which time stands still for.
fn stand_still<T: Future<Output = ()> + Send + 'static>(task: impl FnOnce(VirtualTime) -> T) {
    let mut simulation = Simulation::new(1);
    simulation.run_for(Duration::from_secs(5));
    let time = simulation.time();
    simulation.spawn(task(time));
    simulation.run(Duration::from_secs(60));
}

#[test]
#[should_panic(
    expected = "time stands still at 5.000000 s after 1000000 steps; the last is task 1"
)]
fn a_task_that_wakes_itself_for_ever_is_found() {
    stand_still(|_| {
        std::future::poll_fn(|context| {
            context.waker().wake_by_ref();
            std::task::Poll::Pending
        })
    });
}

#[test]
#[should_panic(
    expected = "time stands still at 5.000000 s after 1000000 steps; the last is task 1"
)]
fn a_task_that_goes_round_without_waiting_is_found() {
    stand_still(async |time: VirtualTime| {
        while time.elapsed() < Duration::from_secs(6) {
            time.sleep(Duration::ZERO).await;
        }
    });
}

#[test]
fn a_read_finds_another_member_when_all_but_one_are_down() {
    let mut simulation = Simulation::new(3);
    let client = simulation.topology(Options::parse(simulation.uri()).unwrap()).unwrap();
    simulation.run_for(Duration::from_secs(30));
    simulation.inject(Input::Kill { member: MemberId(0) });
    simulation.inject(Input::Kill { member: MemberId(1) });
    simulation.run_for(Duration::from_secs(60));
    let (found, finds) = (Arc::new(AtomicU32::new(0)), client.clone());
    let counted = Arc::clone(&found);
    simulation.spawn(async move {
        let nearest = Criteria::read(ReadPreference::new(ReadMode::Nearest));
        let selected = finds.select(nearest).await.unwrap();
        assert!(selected.address().to_string().starts_with("m2"));
        assert!(finds.select(Criteria::write()).await.is_err(), "there is no primary");
        counted.fetch_add(1, Ordering::Relaxed);
    });
    assert!(simulation.run(Duration::from_secs(60)));
    assert_eq!(found.load(Ordering::Relaxed), 1);
    drop(client);
}

/// RFC 4752, by the script that stands for Kerberos: in each simulation, at the same times.
#[test]
fn a_client_logs_in_by_gssapi() {
    let log = |user: &'static str| {
        let members = ["m0:1", "m1:1", "m2:1"].map(|address| address.parse().unwrap());
        let options = ClusterOptions::new("rs", members);
        let options = options.with_gssapi_users(vec!["ann@HERE".to_owned()]);
        let mut simulation = Simulation::of(options, 5).unwrap();
        let uri = simulation.uri().replacen("://", &format!("://{user}%40HERE@"), 1);
        let options = Options::parse(&format!("{uri}&authMechanism=GSSAPI")).unwrap();
        let (client, time) = (simulation.topology(options).unwrap(), simulation.time());
        simulation.spawn(async move {
            let find = rawdoc! { "find": "things" };
            time.log(match client.run_command("test", &find).await {
                Ok(_) => "found".to_owned(),
                Err(error) => error.to_string(),
            });
        });
        assert!(simulation.run(Duration::from_secs(60)));
        simulation.log()
    };
    let has = |log: &[String], what: &str| log.iter().any(|line| line.contains(what));
    let first = log("ann");
    assert!(has(&first, "found"), "{first:#?}");
    assert_eq!(first, log("ann"), "something but the seed decides");
    let refused = log("bob");
    assert!(has(&refused, "Authentication failed"), "{refused:#?}");
}

/// Returns how long after its restart a killed member is used again, in many simulations.
fn found_again(eager: bool) -> Vec<Duration> {
    let mut found = Vec::new();
    for seed in 0..60 {
        let mut simulation = Simulation::new(seed);
        let options = Options::builder().uri(simulation.uri()).unwrap().eager_checks(eager);
        let client = simulation.topology(options.build().unwrap()).unwrap();
        simulation.run_for(Duration::from_secs(30));
        let member = MemberId(usize::try_from(seed % 3).unwrap());
        simulation.inject(Input::Kill { member });
        // mongod takes some seconds to be there again, and never the same time.
        simulation.run_for(Duration::from_millis(1500 + seed * 97));
        simulation.inject(Input::Start { member });
        let (time, restarted) = (simulation.time(), simulation.time().elapsed());
        let (told, seen) = (Arc::new(std::sync::Mutex::new(None)), client.clone());
        let tell = Arc::clone(&told);
        simulation.spawn(async move {
            let mut views = seen.watch_topology();
            while let Some(view) = views.next().await {
                if view.servers().iter().all(|it| it.server_type != ServerType::Unknown) {
                    *tell.lock().unwrap() = Some(time.elapsed() - restarted);
                    return;
                }
            }
        });
        assert!(simulation.run(Duration::from_secs(60)));
        found.push(told.lock().unwrap().unwrap());
    }
    found.sort();
    found
}

#[test]
fn a_member_that_restarts_is_used_again_within_600_ms_by_eager_checks() {
    let (eager, default) = (found_again(true), found_again(false));
    let median = |found: &[Duration]| found[found.len() / 2];
    println!("eager {:?}, default {:?}", median(&eager), median(&default));
    assert!(median(&eager) < Duration::from_millis(600), "{eager:?}");
    assert!(median(&default) > Duration::from_secs(2), "the option makes no difference");
    // A pause is an eighth of at most 9 s, and a quarter of that.
    assert!(*eager.last().unwrap() < Duration::from_millis(1600), "{eager:?}");
}
