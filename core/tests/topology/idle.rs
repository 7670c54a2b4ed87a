//! The cost of an idle client: wake-ups and memory.

use bson::RawDocumentBuf;

use super::fixture::{Fixture, fresh, primary, secondary};

const HOSTS: [&str; 3] = ["a", "b", "c"];

fn reply(host: &str) -> RawDocumentBuf {
    match host {
        "a" => fresh(primary(host, &HOSTS, 1), 1),
        _ => fresh(secondary(host, &HOSTS), 1),
    }
}

/// A client of an idle replica set of three, which streams and measures.
fn idle_client() -> Fixture {
    let mut fixture = Fixture::new("mongodb://a,b,c/?replicaSet=rs");
    for host in HOSTS {
        fixture.greet(&format!("{host}.0"), &reply(host)).greet(&format!("{host}.1"), &reply(host));
    }
    fixture
}

/// Lets ten seconds pass, in which every server streams a reply and answers a measurement.
fn heartbeat(fixture: &mut Fixture, round: u64) {
    fixture.at(round * 10_000);
    for host in HOSTS {
        fixture
            .stream(&format!("{host}.0"), &reply(host))
            .reply(&format!("{host}.1"), &reply(host));
    }
    fixture.forget();
}

#[test]
fn an_idle_client_wakes_up_three_times_per_heartbeat_and_server_at_most() {
    let mut fixture = idle_client();
    let before = fixture.topology.calls;
    (1..=1_000).for_each(|round| heartbeat(&mut fixture, round));
    let per_heartbeat = (fixture.topology.calls - before) as f64 / 1_000.0 / 3.0;
    // A streamed reply, the answer to a measurement, and the timer that began it; the timer of
    // three servers is one.
    assert!(per_heartbeat <= 3.0, "{per_heartbeat}");
}

#[test]
fn an_idle_client_does_not_grow_over_ten_thousand_heartbeats() {
    let mut fixture = idle_client();
    (1..=10).for_each(|round| heartbeat(&mut fixture, round));
    let counted = allocation_counter::measure(|| {
        (11..=10_010).for_each(|round| heartbeat(&mut fixture, round));
    });
    assert!(counted.count_total > 10_000, "the allocations are counted at all");
    assert!(counted.bytes_current.abs() < 1024, "{} bytes more than before", counted.bytes_current);
}

#[test]
fn a_monitored_server_costs_about_four_kib() {
    let bytes = |count: usize| {
        let mut kept = None;
        let counted = allocation_counter::measure(|| {
            let hosts: Vec<String> = (0..count).map(|host| format!("h{host:03}")).collect();
            let names: Vec<&str> = hosts.iter().map(String::as_str).collect();
            let mut fixture =
                Fixture::new(&format!("mongodb://{}/?replicaSet=rs", hosts.join(",")));
            for (index, host) in names.iter().enumerate() {
                let reply = match index {
                    0 => fresh(primary(host, &names, 1), 1),
                    _ => fresh(secondary(host, &names), 1),
                };
                fixture.greet(&format!("{host}.0"), &reply).greet(&format!("{host}.1"), &reply);
                fixture.stream(&format!("{host}.0"), &reply);
            }
            kept = Some(fixture.into_topology());
        });
        assert!(kept.is_some());
        counted.bytes_current
    };
    // A set has at most 50 members; what each says of all others is part of its cost.
    let per_server = (bytes(50) - bytes(3)) / 47;
    println!("{per_server} bytes for each monitored server");
    // 4,192 were seen, with pointers of 64 bits.
    assert!((500..4200).contains(&per_server), "{per_server} bytes");
}
