//! Operations that wait for a server, and the errors of those that find none.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bson::rawdoc;
use sdam_core::config::{ReadMode, ReadPreference, TagSet};
use sdam_core::diagnosis::{SelectionError, Verdict};
use sdam_core::id::WaiterId;
use sdam_core::machine::Machine;
use sdam_core::selection::{Criteria, Reason};
use sdam_core::time::Instant;
use sdam_core::topology::{Action, Input};

use super::fixture::{Fixture, fresh, mongos, primary, secondary, standalone};

pub(super) const HOSTS: [&str; 2] = ["a", "b"];
pub(super) const POLLING: &str = "mongodb://a,b/?replicaSet=rs&serverMonitoringMode=poll";

pub(super) fn read(mode: ReadMode) -> Criteria {
    Criteria::read(ReadPreference::new(mode))
}

/// Operation `id` begins to wait until that many milliseconds after the beginning.
pub(super) fn wait(fixture: &mut Fixture, id: u64, criteria: Criteria, until: u64) {
    let deadline = Instant::from_millis(until);
    let (waiter, criteria) = (WaiterId(id), Arc::new(criteria));
    fixture.input(Input::Wait { waiter, criteria, deadline: Some(deadline) });
}

/// Returns which operations were woken since the last call, and whether there is a server.
fn woken(fixture: &mut Fixture) -> Vec<(u64, bool)> {
    let mut woken = Vec::new();
    for action in &fixture.topology.actions {
        if let Action::Wake { waiter, outcome } = action {
            woken.push((waiter.0, outcome.is_ok()));
        }
    }
    fixture.forget();
    woken
}

/// Returns why an operation that waits no longer than now finds no server.
pub(super) fn error(fixture: &mut Fixture, criteria: Criteria) -> SelectionError {
    fixture.forget();
    let (waiter, criteria) = (WaiterId(u64::MAX), Arc::new(criteria));
    fixture.input(Input::Wait { waiter, criteria, deadline: Some(Instant::ZERO) });
    match fixture.topology.actions.last() {
        Some(Action::Wake { outcome: Err(error), .. }) => (**error).clone(),
        other => panic!("no refusal: {other:?}"),
    }
}

#[test]
fn a_waiter_is_woken_as_soon_as_one_server_is_suitable_even_if_others_are_not_checked_yet() {
    let mut fixture = Fixture::new(POLLING);
    wait(&mut fixture, 1, read(ReadMode::PrimaryPreferred), 30_000);
    wait(&mut fixture, 2, Criteria::write(), 30_000);
    assert_eq!(woken(&mut fixture), []);
    fixture.greet("b.0", &secondary("b", &HOSTS));
    assert_eq!(woken(&mut fixture), [(1, true)]);
    fixture.greet("a.0", &primary("a", &HOSTS, 1));
    assert_eq!(woken(&mut fixture), [(2, true)]);
}

#[test]
fn a_waiter_is_answered_at_once_if_the_view_has_changed_since_it_was_read() {
    let mut fixture = Fixture::new(POLLING);
    fixture.greet("a.0", &primary("a", &HOSTS, 1));
    wait(&mut fixture, 1, Criteria::write(), 30_000);
    assert_eq!(woken(&mut fixture), [(1, true)]);
}

/// A command that goes on with a cursor needs the server where that was opened, in whatever role.
#[test]
fn a_waiter_for_one_member_is_woken_when_that_is_known_and_when_it_has_left() {
    let at = |host: &str| Criteria::write().at(format!("{host}:27017").parse().unwrap());
    let mut fixture = Fixture::new(POLLING);
    wait(&mut fixture, 1, at("b"), 30_000);
    fixture.greet("a.0", &primary("a", &HOSTS, 1));
    assert_eq!(woken(&mut fixture), [], "another one will not do");
    let unknown = error(&mut fixture, at("b"));
    let reasons: Vec<_> = unknown.explanation.servers.iter().map(|it| &it.reason).collect();
    assert_eq!(reasons, [&Reason::OtherMember, &Reason::Unknown]);
    assert_eq!(unknown.verdict.name(), "noAnswerYet", "{unknown}");
    assert!(unknown.to_string().starts_with("no server was found for a write at b:27017"));
    fixture.forget();
    fixture.greet("b.0", &secondary("b", &HOSTS));
    assert_eq!(woken(&mut fixture), [(1, true)], "it takes no writes, and will do");
    assert_eq!(fixture.topology.machine.get().snapshot().select(&at("b"), |_| 0, 0), Ok(Some(1)));

    wait(&mut fixture, 2, at("c"), 30_000);
    assert_eq!(woken(&mut fixture), [(2, true)], "a second look finds no such member");
}

#[test]
fn a_waiter_is_told_at_its_deadline_that_there_is_no_server() {
    let mut fixture = Fixture::new("mongodb://a/?connectTimeoutMS=0");
    wait(&mut fixture, 1, Criteria::write(), 700);
    fixture.at(699);
    assert_eq!(woken(&mut fixture), []);
    fixture.at(700);
    assert_eq!(woken(&mut fixture), [(1, false)]);
    fixture.at(100_000);
    assert_eq!(woken(&mut fixture), [], "and only once");
}

#[test]
fn an_abandoned_waiter_is_never_woken() {
    let mut fixture = Fixture::new("mongodb://a/?connectTimeoutMS=0");
    wait(&mut fixture, 1, Criteria::write(), 700);
    fixture.input(Input::Abandon { waiter: WaiterId(1) });
    assert_eq!(fixture.topology.machine.deadline(), None);
    fixture.greet("a.0", &standalone());
    assert_eq!(woken(&mut fixture), []);
}

#[test]
fn waiters_are_answered_when_the_client_is_closed_and_after_that() {
    let mut fixture = Fixture::new(POLLING);
    wait(&mut fixture, 1, Criteria::write(), 30_000);
    fixture.input(Input::Shutdown);
    assert_eq!(woken(&mut fixture), [(1, false)]);
    assert_eq!(error(&mut fixture, Criteria::write()).verdict, Verdict::Closed);
    assert_eq!(fixture.topology.machine.deadline(), None);
}

#[test]
fn while_an_operation_waits_servers_are_checked_every_500_ms() {
    let mut fixture = Fixture::new("mongodb://a/?serverMonitoringMode=poll&replicaSet=rs");
    fixture.greet("a.0", &secondary("a", &["a"])).at(5000).quiet();
    wait(&mut fixture, 1, Criteria::write(), 30_000);
    assert_eq!(fixture.log(), ["started a", "send a.0 hello"], "a check is requested at once");
    for round in 1..=4 {
        fixture.reply("a.0", &secondary("a", &["a"])).quiet().at(5000 + round * 500 - 1);
        assert_eq!(fixture.log(), [""; 0]);
        fixture.at(5000 + round * 500);
        assert_eq!(fixture.log(), ["started a", "send a.0 hello"]);
    }
    fixture.input(Input::Abandon { waiter: WaiterId(1) });
    fixture.reply("a.0", &secondary("a", &["a"])).quiet().at(16_999);
    assert_eq!(fixture.log(), [""; 0], "and no more often once nothing waits");
}

#[test]
fn ten_thousand_waiters_are_all_answered() {
    let mut fixture = Fixture::new(POLLING);
    (0..10_000).for_each(|id| wait(&mut fixture, id, Criteria::write(), 30_000));
    fixture.forget();
    fixture.greet("a.0", &primary("a", &HOSTS, 1));
    let expected: Vec<_> = (0..10_000).map(|id| (id, true)).collect();
    assert_eq!(woken(&mut fixture), expected);
}

#[test]
fn max_staleness_that_is_too_small_is_refused_at_once_for_replica_sets_only() {
    let criteria = |seconds| {
        let preference = ReadPreference::new(ReadMode::Secondary);
        Criteria::read(preference.with_max_staleness(Duration::from_secs(seconds)).unwrap())
    };
    let uri = "mongodb://a/?replicaSet=rs&heartbeatFrequencyMS=100000";
    let mut fixture = Fixture::new(uri);
    let error = error(&mut fixture, criteria(109));
    assert_eq!(
        error.verdict,
        Verdict::MaxStalenessTooSmall {
            given: Duration::from_secs(109),
            least: Duration::from_secs(110)
        }
    );
    wait(&mut fixture, 1, criteria(110), 30_000);
    assert_eq!(woken(&mut fixture), [(u64::MAX, false)], "the other one waits");
    let mut fixture = Fixture::new("mongodb://a");
    wait(&mut fixture, 1, criteria(1), 30_000);
    assert_eq!(woken(&mut fixture), []);
}

#[test]
fn incompatible_servers_are_refused_at_once() {
    let old = rawdoc! { "ok": 1, "ismaster": true, "maxWireVersion": 7 };
    let mut fixture = Fixture::new("mongodb://a");
    fixture.greet("a.0", &old);
    let error = error(&mut fixture, Criteria::write());
    assert!(matches!(error.verdict, Verdict::IncompatibleWireVersion { .. }));
    assert!(error.to_string().contains("reports wire version 7"), "{error}");
}

#[test]
fn selection_prefers_the_less_loaded_of_two_and_draws_every_server_of_the_window() {
    let hosts = ["a", "b", "c"];
    let mut fixture = Fixture::new("mongodb://a,b,c/?replicaSet=rs&serverMonitoringMode=poll");
    fixture.greet("a.0", &primary("a", &hosts, 1));
    fixture.greet("b.0", &secondary("b", &hosts)).greet("c.0", &secondary("c", &hosts));
    let snapshot = Arc::clone(fixture.topology.machine.get().snapshot());
    let mut rng = sdam_core::rng::Rng::new(5);
    let nearest = read(ReadMode::Nearest);
    let mut counts = [0; 3];
    for _ in 0..3000 {
        counts[snapshot.select(&nearest, |_| 0, rng.next_u64()).unwrap().unwrap()] += 1;
    }
    assert!(counts.iter().all(|count| (900..1100).contains(count)), "{counts:?}");
    let busy = |index| if index == 1 { 10 } else { 0 };
    for _ in 0..1000 {
        assert_ne!(snapshot.select(&nearest, busy, rng.next_u64()), Ok(Some(1)));
    }
}

#[test]
fn selecting_allocates_nothing() {
    let hosts = ["a", "b", "c"];
    let mut fixture = Fixture::new("mongodb://a,b,c/?replicaSet=rs&serverMonitoringMode=poll");
    fixture.greet("a.0", &fresh(primary("a", &hosts, 1), 1)).greet("b.0", &secondary("b", &hosts));
    let snapshot = Arc::clone(fixture.topology.machine.get().snapshot());
    let plain = read(ReadMode::Nearest);
    let tags = vec![TagSet::from([("dc".into(), "east".into())]), TagSet::new()];
    let preference = ReadPreference::new(ReadMode::SecondaryPreferred).with_tag_sets(tags).unwrap();
    let choosy = Criteria::read(preference).deprioritize(["b:27017".parse().unwrap()]);
    let counted = allocation_counter::measure(|| {
        for random in 0..100 {
            assert!(snapshot.select(&plain, |_| 0, random).unwrap().is_some());
            assert!(snapshot.select(&choosy, |_| 0, random).unwrap().is_some());
        }
    });
    assert_eq!(counted.count_total, 0);
}

#[test]
fn a_predicate_that_panics_harms_nobody_but_the_operation_it_belongs_to() {
    let mut fixture = Fixture::new("mongodb://a/?replicaSet=rs&serverMonitoringMode=poll");
    let choosy = read(ReadMode::Nearest).with_predicate(|server| server.tags["dc"] == "east");
    wait(&mut fixture, 1, choosy, 30_000);
    wait(&mut fixture, 2, Criteria::write(), 30_000);
    fixture.greet("a.0", &primary("a", &["a"], 1));
    assert_eq!(woken(&mut fixture), [(1, true), (2, true)], "it looks again, and panics there");
    fixture.quiet().at(10_000);
    assert!(fixture.log().contains(&"started a".into()), "monitoring goes on");
}

proptest::proptest! {
    /// Windows that are updated at publish, step by step, equal those of a look at every server.
    #[test]
    fn latency_windows_stay_right_through_any_sequence_of_heartbeats(
        count in 2_usize..70,
        heartbeats in proptest::collection::vec((0_usize..70, 0_u64..40, 0_u8..8), 1..60),
    ) {
        let hosts: Vec<String> = (0..count).map(|host| format!("h{host:02}")).collect();
        let names: Vec<&str> = hosts.iter().map(String::as_str).collect();
        let uri = format!(
            "mongodb://{}/?replicaSet=rs&serverMonitoringMode=poll&connectTimeoutMS=0",
            hosts.join(",")
        );
        let (mut fixture, mut now) = (Fixture::new(&uri), 0);
        let mut links = vec![0; count];
        for (index, time, kind) in heartbeats {
            let index = index % count;
            let (host, link) = (names[index], format!("{}.{}", names[index], links[index]));
            now += 10_000;
            fixture.at(now);
            if fixture.is_opening(&link) {
                fixture.opened(&link);
            }
            now += time;
            fixture.at(now);
            match kind {
                0 => {
                    fixture.closed(&link);
                    links[index] += 1;
                }
                1 => drop(fixture.reply(&link, &primary(host, &names, 1))),
                _ => drop(fixture.reply(&link, &secondary(host, &names))),
            }
            fixture.forget();
            let snapshot = Arc::clone(fixture.topology.machine.get().snapshot());
            for mode in [ReadMode::Secondary, ReadMode::Nearest, ReadMode::PrimaryPreferred] {
                let criteria = read(mode);
                let explained = snapshot.explain(&criteria).servers.into_iter().enumerate();
                let wanted: Vec<usize> = explained
                    .filter(|(_, server)| server.reason == Reason::InWindow)
                    .map(|(index, _)| index)
                    .collect();
                let mut found: Vec<usize> = (0..400_u64)
                    .filter_map(|n| {
                        let random = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                        // The first drawn wins where loads are equal.
                        snapshot.select(&criteria, |_| 0, random).unwrap()
                    })
                    .collect();
                found.sort_unstable();
                found.dedup();
                proptest::prop_assert!(found.iter().all(|index| wanted.contains(index)));
                proptest::prop_assert_eq!(found.is_empty(), wanted.is_empty());
                if wanted.len() <= 20 {
                    proptest::prop_assert_eq!(found, wanted);
                }
            }
        }
    }
}

/// The positions that reads from the nearest server are led to.
fn nearest(fixture: &Fixture) -> BTreeSet<usize> {
    let snapshot = Arc::clone(fixture.topology.machine.get().snapshot());
    let mut rng = sdam_core::rng::Rng::new(7);
    let criteria = read(ReadMode::Nearest);
    let draw = |_| snapshot.select(&criteria, |_| 0, rng.next_u64()).unwrap().unwrap();
    (0..100).map(draw).collect()
}

#[test]
fn a_server_that_is_nearer_than_all_others_leaves_them_outside_the_window() {
    let mut fixture = Fixture::new("mongodb://a,b/?serverMonitoringMode=poll");
    fixture.opened("a.0").opened("b.0").at(10).reply("a.0", &mongos());
    assert_eq!(nearest(&fixture), [0].into());
    fixture.at(25).reply("b.0", &mongos());
    assert_eq!(nearest(&fixture), [0, 1].into(), "15 ms farther, which is localThresholdMS");
    let mut fixture = Fixture::new("mongodb://a,b/?serverMonitoringMode=poll");
    fixture.opened("a.0").at(100).reply("a.0", &mongos());
    fixture.greet("b.0", &mongos());
    assert_eq!(nearest(&fixture), [1].into(), "100 ms nearer");
}

/// There are more servers than a word has bits.
#[test]
fn the_last_of_many_seeds_may_be_the_first_that_answers() {
    let names: Vec<String> = (0..70).map(|number| format!("m{number:02}")).collect();
    let hosts: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut fixture = Fixture::new(&format!("mongodb://{}", hosts.join(",")));
    fixture.greet("m69.0", &primary("m69", &hosts, 1));
    assert_eq!(nearest(&fixture), [69].into());
    let snapshot = Arc::clone(fixture.topology.machine.get().snapshot());
    assert_eq!(snapshot.select(&Criteria::write(), |_| 0, 0), Ok(Some(69)));
    assert_eq!(snapshot.select(&read(ReadMode::Secondary), |_| 0, 0), Ok(None));
}
