//! Clients that have no thread: who calls does all the work, on embedded and on real sets.

#[expect(dead_code, reason = "what is there for clients that work in the background")]
mod deployment;

use std::net::TcpStream;
use std::process::ExitCode;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Failed, Trial};
use sdam_blocking::Topology;
use sdam_cluster::EmbeddedOptions;
use sdam_conformance::mongod::{self, Availability, Binary, ReplicaSet};
use sdam_core::bson::rawdoc;
use sdam_core::config::{Options, ReadMode, ReadPreference};
use sdam_core::description::TopologyType;
use sdam_core::selection::Criteria;
use sdam_core::topology::EventKind;

use deployment::{Deployment, SOON, is_whole};

type Outcome = Result<(), Box<dyn std::error::Error>>;

type Scenario = (&'static str, fn() -> Outcome);

const ON_THE_EMBEDDED_SET: [Scenario; 11] = [
    ("nothing_happens_before_the_first_operation", nothing_happens_before_the_first_operation),
    ("an_operation_scans_and_needs_no_thread", an_operation_scans_and_needs_no_thread),
    ("selection_fails_after_one_scan", selection_fails_after_one_scan),
    ("no_connection_is_used_after_max_idle_time", no_connection_is_used_after_max_idle_time),
    ("time_between_calls_is_no_round_trip_time", time_between_calls_is_no_round_trip_time),
    ("a_dialer_that_panics_has_failed", a_dialer_that_panics_has_failed),
    ("a_primary_that_is_killed_is_given_up_soon", a_primary_that_is_killed_is_given_up_soon),
    ("threads_take_turns", threads_take_turns),
    ("who_waits_for_events_works_for_the_others", who_waits_for_events_works_for_the_others),
    ("a_slow_command_makes_nobody_else_late", a_slow_command_makes_nobody_else_late),
    ("closing_and_dropping_end_everything", closing_and_dropping_end_everything),
];

fn main() -> ExitCode {
    let availability = Availability::look();
    let mut trials: Vec<Trial> = Vec::new();
    for (name, scenario) in ON_THE_EMBEDDED_SET {
        trials.push(Trial::test(name, move || judged(scenario())));
    }
    for binary in availability.binaries().to_vec() {
        let name = format!("{}::a_real_set_is_followed_through_a_step_down", binary.version());
        trials.push(Trial::test(name, move || judged(follow(&binary))));
    }
    let passed = !libtest_mimic::run(&Arguments::from_args(), trials).has_failed();
    availability.conclude(passed)
}

fn judged(outcome: Outcome) -> Result<(), Failed> {
    outcome.map_err(|error| Failed::from(error.to_string()))
}

fn with_primary() -> Result<Deployment, Box<dyn std::error::Error>> {
    let deployment = Deployment::start(EmbeddedOptions::default());
    deployment.runtime.block_on(deployment.cluster.elected())?;
    Ok(deployment)
}

fn client(uri: &str) -> Result<Topology, Box<dyn std::error::Error>> {
    Ok(Topology::new(Options::builder().uri(uri)?.single_threaded(true).build()?)?)
}

/// Returns how many threads of clients this process has.
fn threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").expect("this is Linux").flatten();
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    names.filter(|name| name.starts_with("sdam-")).count()
}

/// SDAM, "Single-threaded client construction".
fn nothing_happens_before_the_first_operation() -> Outcome {
    let deployment = Deployment::start(EmbeddedOptions::default());
    let idle = client(&deployment.cluster.uri())?;
    let mut events = idle.subscribe();
    // In the time in which the set elects a primary, and another client finds all members.
    deployment.runtime.block_on(deployment.cluster.elected())?;
    let busy = client(&deployment.cluster.uri())?;
    busy.run_command("admin", &rawdoc! { "ping": 1 })?;
    assert!(is_whole(&busy.view()), "{:?}", busy.view());
    assert_eq!(idle.view().topology_type, TopologyType::ReplicaSetNoPrimary);
    assert!(events.try_next().is_none());
    Ok(())
}

fn an_operation_scans_and_needs_no_thread() -> Outcome {
    let deployment = with_primary()?;
    let client = client(&deployment.cluster.uri())?;
    let mut events = client.subscribe();
    let reply = client.run_command("admin", &rawdoc! { "buildInfo": 1 })?;
    assert!(reply.get_str("version")?.starts_with("6.0"));
    assert!(is_whole(&client.view()), "a scan checks all servers: {:?}", client.view());
    let nearest = Criteria::read(ReadPreference::new(ReadMode::Nearest));
    let mut checked_out = client.select(nearest)?.check_out()?;
    checked_out.command("admin", &rawdoc! { "ping": 1 })?;
    assert_eq!(threads(), 0);
    let checks = std::iter::from_fn(|| events.try_next());
    let checks = checks.filter(
        |event| matches!(event.kind, EventKind::ServerHeartbeatStarted { awaited, .. } if !awaited),
    );
    assert_eq!(checks.count(), 3, "one check for each server");
    Ok(())
}

/// Server Selection, "serverSelectionTryOnce", which is the default.
fn selection_fails_after_one_scan() -> Outcome {
    // serverSelectionTimeoutMS, 30 s, does not matter.
    let once = client("mongodb://127.0.0.1:1")?;
    let mut events = once.subscribe();
    let error = once.select(Criteria::write()).unwrap_err();
    assert!(error.to_string().contains("127.0.0.1:1"), "{error}");
    let events = std::iter::from_fn(|| events.try_next());
    let is_check = |kind: &EventKind| matches!(kind, EventKind::ServerHeartbeatStarted { .. });
    assert_eq!(events.filter(|event| is_check(&event.kind)).count(), 1);
    let keeps_trying = "mongodb://127.0.0.1:1/?serverSelectionTryOnce=false&\
                        serverSelectionTimeoutMS=1500";
    let begun = Instant::now();
    let error = client(keeps_trying)?.select(Criteria::write()).unwrap_err();
    assert!(error.to_string().contains("127.0.0.1:1"), "{error}");
    // "Raise an error if the target scan time would exceed the maximum time": if there are less
    // than 500 ms left, however long the scans before took.
    assert!(begun.elapsed() >= Duration::from_millis(1000), "{:?}", begun.elapsed());
    Ok(())
}

/// No monitor checks it, and a connection that fails is no proof that it is gone: a scan is.
fn a_primary_that_is_killed_is_given_up_soon() -> Outcome {
    let deployment = with_primary()?;
    let client = client(&deployment.cluster.uri())?;
    let ping = rawdoc! { "ping": 1 };
    client.run_command("admin", &ping)?;
    let old = client.view().primary().ok_or("there is a primary")?.address.clone();
    let killed = deployment.cluster.primary().ok_or("there is a primary")?;
    deployment.runtime.block_on(deployment.cluster.kill(killed))?;
    let end = Instant::now() + SOON;
    while let Err(error) = client.run_command("admin", &ping) {
        assert!(Instant::now() < end, "{error}");
    }
    let new = client.view().primary().ok_or("there is a primary")?.address.clone();
    assert_ne!(old, new);
    Ok(())
}

/// Connection Monitoring and Pooling, "maxIdleTimeMS": nothing closes it in the background.
fn no_connection_is_used_after_max_idle_time() -> Outcome {
    let deployment = with_primary()?;
    let client = client(&format!("{}&maxIdleTimeMS=50", deployment.cluster.uri()))?;
    let server = client.select(Criteria::write())?;
    let first = server.check_out()?.connection_id();
    thread::sleep(Duration::from_millis(60));
    assert_ne!(server.check_out()?.connection_id(), first);
    Ok(())
}

/// The reply to a check whose operation gave up is read by the next one, a while later.
fn time_between_calls_is_no_round_trip_time() -> Outcome {
    let (deployment, pause) = (with_primary()?, Duration::from_millis(1500));
    let client = client(&deployment.cluster.uri())?;
    deployment.freeze_primary();
    let begun = client.now();
    let _ = client.with_timeout(Duration::from_millis(100)).select(Criteria::write());
    let primary = deployment.cluster.primary().ok_or("there is a primary")?;
    deployment.runtime.block_on(deployment.cluster.thaw(primary))?;
    thread::sleep(pause);
    client.select(Criteria::write())?;
    let view = client.view();
    let primary = view.primary().ok_or("there is a primary")?;
    // Whatever the rest took, the pause is no part of it.
    let rest = (client.now() - begun).saturating_sub(pause);
    assert!(primary.round_trip_time.is_some_and(|time| time <= rest), "{primary:?}, {rest:?}");
    Ok(())
}

/// As with threads: the caller on whose thread it was may be somebody else's.
fn a_dialer_that_panics_has_failed() -> Outcome {
    let options = Options::builder().uri("mongodb://127.0.0.1:1")?.single_threaded(true).build()?;
    let dialer = |_| -> std::io::Result<TcpStream> { panic!("as it should, in this test") };
    let client = Topology::builder(options).dialer(dialer).build()?;
    let error = client.select(Criteria::write()).unwrap_err();
    assert!(error.to_string().contains("panicked"), "{error}");
    assert!(client.close(SOON));
    Ok(())
}

fn threads_take_turns() -> Outcome {
    let deployment = with_primary()?;
    let client = client(&deployment.cluster.uri())?;
    thread::scope(|scope| {
        let callers: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    for _ in 0..20 {
                        client.run_command("admin", &rawdoc! { "ping": 1 }).unwrap();
                    }
                })
            })
            .collect();
        assert!(callers.into_iter().all(|caller| caller.join().is_ok()));
    });
    Ok(())
}

fn who_waits_for_events_works_for_the_others() -> Outcome {
    let deployment = with_primary()?;
    let client = client(&deployment.cluster.uri())?;
    let events = client.subscribe();
    let subscriber = thread::spawn(move || events.count());
    let (sender, receiver) = mpsc::channel();
    let other = client.clone();
    thread::spawn(move || sender.send(other.run_command("admin", &rawdoc! { "ping": 1 }).is_ok()));
    assert_eq!(receiver.recv_timeout(SOON), Ok(true), "nothing has to wait for the last event");
    assert!(client.close(SOON));
    assert!(subscriber.join().is_ok_and(|events| events > 0));
    Ok(())
}

fn a_slow_command_makes_nobody_else_late() -> Outcome {
    let deployment = with_primary()?;
    let client = client(&deployment.cluster.uri())?;
    let mut checked_out = client.select(Criteria::write())?.check_out()?;
    deployment.freeze_primary();
    checked_out.set_deadline(Some(client.now() + 4 * SOON));
    let slow = thread::spawn(move || checked_out.command("admin", &rawdoc! { "ping": 1 }).is_err());
    let begun = Instant::now();
    let limited = client.with_timeout(Duration::from_millis(200));
    assert!(limited.run_command("admin", &rawdoc! { "ping": 1 }).is_err());
    assert!(begun.elapsed() < 2 * SOON, "{:?}", begun.elapsed());
    assert!(!slow.is_finished(), "it would have been late, too");
    // Its server goes away.
    drop(deployment);
    assert!(slow.join().is_ok_and(|failed| failed));
    Ok(())
}

fn closing_and_dropping_end_everything() -> Outcome {
    let deployment = with_primary()?;
    let closed = client(&deployment.cluster.uri())?;
    let events = closed.subscribe();
    closed.run_command("admin", &rawdoc! { "ping": 1 })?;
    assert!(closed.close(SOON));
    assert!(matches!(events.last().map(|event| event.kind), Some(EventKind::TopologyClosed)));

    let dropped = client(&deployment.cluster.uri())?;
    let events = dropped.subscribe();
    let mut checked_out = dropped.select(Criteria::write())?.check_out()?;
    drop(dropped);
    assert!(matches!(events.last().map(|event| event.kind), Some(EventKind::TopologyClosed)));
    checked_out.command("admin", &rawdoc! { "ping": 1 })?;
    Ok(())
}

/// On a real set: discovery from one seed, and operations before and after a step-down.
fn follow(binary: &Binary) -> Outcome {
    let set = ReplicaSet::start(binary, 3, &mongod::Options::calm())?;
    let uri = format!("mongodb://{}/?serverSelectionTryOnce=false", set.seed_list()[0]);
    let client = client(&uri)?;
    client.run_command("admin", &rawdoc! { "ping": 1 })?;
    assert!(is_whole(&client.view()), "{:?}", client.view());
    let old = client.view().primary().ok_or("there is a primary")?.address.clone();
    set.step_down()?;
    // The first write that the old primary refuses makes the next selection scan.
    let insert = rawdoc! { "insert": "things", "documents": [{ "x": 1 }] };
    let end = Instant::now() + SOON;
    while let Err(error) = write(&client, &insert) {
        assert!(Instant::now() < end, "{error}");
    }
    let new = client.view().primary().ok_or("there is a primary")?.address.clone();
    assert_ne!(old, new);
    assert_eq!(threads(), 0);
    Ok(())
}

fn write(client: &Topology, insert: &sdam_core::bson::RawDocument) -> Outcome {
    client.run_command_on(Criteria::write(), "test", insert)?;
    Ok(())
}
