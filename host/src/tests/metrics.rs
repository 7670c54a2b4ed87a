//! Metrics: what a client counts in place agrees with its events.

use std::task::Poll;
use std::time::Duration;

use bson::rawdoc;

use super::fixture::{Fixture, Task};
use super::forks::in_child;
use super::lock;
use super::operations::{insert_one, run};
use sdam_core::metrics::{Exposition, Family, Metrics};
use sdam_core::topology::Topics;

/// Returns the lines of samples whose names begin so, without buckets.
fn lines(families: &[Family], beginning: &str) -> Vec<String> {
    let text = Exposition::new(families).to_string();
    let lines =
        text.lines().filter(|line| line.starts_with(beginning) && !line.contains("_bucket"));
    lines.map(str::to_owned).collect()
}

/// Uses a pool in every way: at once, after waiting, for several commands, without success.
fn work(fixture: &Fixture) {
    fixture.run(fixture.ping(None)).unwrap();
    let mut first = fixture.run(fixture.pool().check_out()).unwrap();
    fixture.pass(Duration::from_millis(700));
    fixture.run(first.command("admin", &rawdoc! { "ping": 1 })).unwrap();
    let pool = fixture.pool();
    let mut waiting = Task::new(pool.check_out());
    assert!(waiting.poll().is_pending());
    fixture.pass(Duration::from_millis(300));
    drop(first);
    assert!(matches!(waiting.poll(), Poll::Ready(Ok(_))));
    *lock(&fixture.server.reply) = Some(rawdoc! { "ok": 0, "code": 13, "errmsg": "no" });
    fixture.run(fixture.ping(None)).unwrap_err();
    *lock(&fixture.server.reply) = None;
    let kept = fixture.run(fixture.pool().check_out()).unwrap();
    let limit = fixture.now() + Duration::from_millis(5);
    let mut refused = Task::new(fixture.ping(Some(limit)));
    assert!(refused.poll().is_pending());
    fixture.pass(Duration::from_millis(10));
    assert!(matches!(refused.poll(), Poll::Ready(Err(_))));
    drop(kept);
}

/// A client with one connection at most.
fn fixture() -> Fixture {
    Fixture::new("&maxPoolSize=1")
}

#[test]
fn what_is_counted_in_place_is_what_events_tell() {
    let fixture = fixture();
    let mut events = fixture.host.subscribe_to(Topics::ALL);
    let mut told = Metrics::new();
    told.see(fixture.now(), &fixture.host.view());
    fixture.host.count();
    for _ in 0..3 {
        work(&fixture);
        while let Some(event) = events.try_next() {
            told.note(&event);
        }
        let counted = fixture.host.metrics();
        told.see(fixture.now(), &fixture.host.view());
        let told = told.snapshot(fixture.now());
        // Events do not have the duration of operations, nor the callers that have given up
        // waiting.
        let alone = ["_pending_requests{", "_operation_duration_"];
        let is_counted_alone = |line: &String| !alone.iter().any(|name| line.contains(name));
        for beginning in ["db_client", "sdam"] {
            let mut counted = lines(&counted, beginning);
            counted.retain(is_counted_alone);
            assert_eq!(counted, lines(&told, beginning));
        }
    }
    let waited = lines(&fixture.host.metrics(), "db_client_connection_wait_time_seconds_sum");
    assert!(waited[0].ends_with(" 0.9"), "{waited:?}");
}

/// OpenTelemetry's conventions for database clients, `db.client.operation.duration`: the operation
/// as its caller observes it, with all of its attempts; and once.
#[test]
fn an_operation_is_counted_once_whatever_it_sends() {
    let fixture = Fixture::with_sessions("");
    fixture.host.count();
    let refusal = rawdoc! { "ok": 0, "code": 6, "errorLabels": ["RetryableWriteError"] };
    lock(&fixture.server.replies).push_back(Some(refusal));
    run(&fixture, &insert_one()).unwrap();
    let count = |name: &str| lines(&fixture.host.metrics(), &format!("{name}_seconds_count"));
    let [operation] = &count("db_client_operation_duration")[..] else { panic!("one line") };
    assert!(operation.contains("=\"insert\"") && operation.ends_with("} 1"), "{operation}");
    assert!(operation.contains("server_address") && !operation.contains("error_type"));
    let commands = count("sdam_command_duration");
    assert!(commands.len() == 2 && commands[1].contains("error_type=\"6\""), "{commands:?}");
    // One that finds no server is of none.
    fixture.host.close();
    run(&fixture, &insert_one()).unwrap_err();
    let operations = count("db_client_operation_duration");
    let closed = operations.iter().find(|line| line.contains("error_type=\"closed\""));
    assert!(closed.is_some_and(|line| !line.contains("server_address")), "{operations:?}");
    assert_eq!(operations.len(), 2);
}

#[test]
fn those_who_wait_for_a_connection_are_counted() {
    let fixture = fixture();
    let pending = |fixture: &Fixture| {
        let lines = lines(&fixture.host.metrics(), "db_client_connection_pending_requests");
        lines[0].rsplit(' ').next().unwrap().to_owned()
    };
    let kept = fixture.run(fixture.pool().check_out()).unwrap();
    assert_eq!(pending(&fixture), "0");
    let pool = fixture.pool();
    let mut waiting = Task::new(pool.check_out());
    assert!(waiting.poll().is_pending());
    assert_eq!(pending(&fixture), "1");
    drop(waiting);
    assert_eq!(pending(&fixture), "0", "it was abandoned");
    drop(kept);
}

/// Before the first call, nothing is counted; what is in use then ends without a beginning.
#[test]
fn counting_begins_with_the_first_call() {
    let fixture = fixture();
    fixture.run(fixture.ping(None)).unwrap();
    let kept = fixture.run(fixture.pool().check_out()).unwrap();
    let families = fixture.host.metrics();
    assert!(lines(&families, "db_client_operation").is_empty());
    let used = lines(&families, "db_client_connections{").join("\n");
    assert!(used.contains("state=\"used\"} 1"), "{used}");
    drop(kept);
    let used = lines(&fixture.host.metrics(), "db_client_connection_use_time_seconds_count");
    assert!(used[0].ends_with(" 0"), "{used:?}");
    fixture.run(fixture.ping(None)).unwrap();
    let families = fixture.host.metrics();
    for name in ["db_client_operation_duration", "db_client_connection_use_time"] {
        let count = lines(&families, &format!("{name}_seconds_count"));
        assert!(count[0].ends_with(" 1"), "{count:?}");
    }
    assert_eq!(lines(&families, "sdam_topology_writable"), ["sdam_topology_writable 1"]);
}

/// A command whose caller has given up, and one whose server has hung up.
#[test]
fn commands_that_are_given_up_or_lost_are_failures() {
    let fixture = fixture();
    fixture.host.count();
    fixture.run(fixture.ping(None)).unwrap();
    fixture.server.mute.store(true, std::sync::atomic::Ordering::Relaxed);
    let mut given_up = Task::new(fixture.ping(None));
    assert!(given_up.poll().is_pending());
    drop(given_up);
    let failed = lines(&fixture.host.metrics(), "db_client_operation_duration_seconds_count");
    assert!(failed.iter().any(|line| line.contains("error_type=\"canceled\"")), "{failed:?}");
    let used = lines(&fixture.host.metrics(), "db_client_connection_use_time_seconds_count");
    assert!(used[0].ends_with(" 2"), "a connection that is closed was in use, too: {used:?}");
}

/// The counts of a server that has left are kept for a while, those included that came last.
#[test]
fn what_a_pool_has_counted_outlives_it() {
    let fixture = fixture();
    fixture.host.count();
    fixture.run(fixture.ping(None)).unwrap();
    fixture.host.close();
    let count = lines(&fixture.host.metrics(), "db_client_operation_duration_seconds_count");
    assert!(count.len() == 1 && count[0].ends_with(" 1"), "{count:?}");
}

#[test]
fn a_process_that_was_forked_off_has_no_metrics() {
    let fixture = fixture();
    in_child(|| {
        fixture.host.count();
        assert!(fixture.host.metrics().is_empty());
    });
    assert!(!fixture.host.shared.meter.is_on());
}

/// A thread that is not there may hold the lock of the pool.
#[test]
fn a_process_that_was_forked_off_counts_no_command_that_it_gives_up() {
    let fixture = fixture();
    fixture.host.count();
    fixture.run(fixture.ping(None)).unwrap();
    fixture.server.mute.store(true, std::sync::atomic::Ordering::Relaxed);
    let mut given_up = Task::new(fixture.ping(None));
    assert!(given_up.poll().is_pending());
    in_child(|| drop(given_up));
    let failed = lines(&fixture.host.metrics(), "db_client_operation_duration_seconds_count");
    assert!(failed.len() == 1 && failed[0].ends_with(" 1"), "{failed:?}");
}
