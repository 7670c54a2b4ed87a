//! What an idle client costs: wake-ups and memory.

use bson::RawDocumentBuf;

use super::stage::{Stage, fresh, primary, secondary};

const HOSTS: [&str; 3] = ["a", "b", "c"];

fn reply(host: &str) -> RawDocumentBuf {
    match host {
        "a" => fresh(primary(host, &HOSTS, 1), 1),
        _ => fresh(secondary(host, &HOSTS), 1),
    }
}

/// A client of an idle replica set of three, which streams and measures.
fn idle_client() -> Stage {
    let mut stage = Stage::new("mongodb://a,b,c/?replicaSet=rs");
    for host in HOSTS {
        stage.greet(&format!("{host}.0"), &reply(host)).greet(&format!("{host}.1"), &reply(host));
    }
    stage
}

/// Lets ten seconds pass, in which every server streams a reply and answers a measurement.
fn heartbeat(stage: &mut Stage, round: u64) {
    stage.at(round * 10_000);
    for host in HOSTS {
        stage.stream(&format!("{host}.0"), &reply(host)).reply(&format!("{host}.1"), &reply(host));
    }
    stage.forget();
}

#[test]
fn an_idle_client_wakes_up_three_times_per_heartbeat_and_server_at_most() {
    let mut stage = idle_client();
    let before = stage.calls;
    (1..=10_000).for_each(|round| heartbeat(&mut stage, round));
    let per_heartbeat = (stage.calls - before) as f64 / 10_000.0 / 3.0;
    // A streamed reply, the answer to a measurement, and the timer that began it; the timer of
    // three servers is one.
    assert!(per_heartbeat <= 3.0, "{per_heartbeat}");
}

#[test]
fn an_idle_client_does_not_grow_over_ten_thousand_heartbeats() {
    let mut stage = idle_client();
    (1..=10).for_each(|round| heartbeat(&mut stage, round));
    let counted = allocation_counter::measure(|| {
        (11..=10_010).for_each(|round| heartbeat(&mut stage, round));
    });
    assert!(counted.count_total > 10_000, "the allocations are counted at all");
    assert!(counted.bytes_current.abs() < 1024, "{} bytes more than before", counted.bytes_current);
}
