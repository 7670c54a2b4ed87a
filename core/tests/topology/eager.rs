//! Eager checks, an option of our own: a server that may be back is asked sooner than
//! heartbeatFrequencyMS says, and never sooner than minHeartbeatFrequencyMS does.

use sdam_core::config::Options;
use sdam_core::description::ServerType;
use sdam_core::failure::{Cause, Failure, Stage};
use sdam_core::id::Generation;
use sdam_core::operation::{OperationError, OperationFailure};
use sdam_core::topology::Input;

use super::fixture::{Fixture, fresh, primary, secondary};

const HOSTS: [&str; 3] = ["a", "b", "c"];

/// A replica set whose primary is `a`; all stream, and 5 s have passed.
fn replica_set(eager: bool) -> Fixture {
    let options = Options::builder().uri("mongodb://a,b,c/?replicaSet=rs").unwrap();
    let mut fixture = Fixture::with(options.eager_checks(eager).build().unwrap());
    fixture.greet("a.0", &fresh(primary("a", &HOSTS, 1), 1));
    fixture.greet("b.0", &fresh(secondary("b", &HOSTS), 1));
    fixture.greet("c.0", &fresh(secondary("c", &HOSTS), 1)).at(5000).quiet();
    fixture
}

/// Refuses every connection to `host` until then, and returns when each was asked for.
fn refused_until(fixture: &mut Fixture, host: &str, from: u64, until: u64) -> Vec<u64> {
    let mut asked = Vec::new();
    for now in from..until {
        fixture.at(now);
        let opening = |link: &String| link.starts_with(host) && fixture.is_opening(link);
        if let Some(link) = fixture.links().into_iter().find(opening) {
            asked.push(now);
            fixture.closed(&link);
        }
    }
    asked
}

fn pauses(asked: &[u64]) -> Vec<u64> {
    asked.windows(2).map(|pair| pair[1] - pair[0]).collect()
}

#[test]
fn a_server_that_refuses_connections_is_asked_at_the_floor_and_less_often_as_it_goes_on() {
    let mut fixture = replica_set(true);
    fixture.closed("b.0");
    let asked = refused_until(&mut fixture, "b", 5000, 305_000);
    let pauses = pauses(&asked);
    assert!(pauses.iter().all(|pause| (500..=10_000).contains(pause)), "{pauses:?}");
    let within = |from: u64, to: u64| {
        let times = asked.iter().zip(&pauses).filter(|it| (from..to).contains(it.0));
        times.map(|(_, pause)| *pause).collect::<Vec<_>>()
    };
    // The retry at once is followed by the first pause.
    assert!(within(5000, 9000).iter().all(|pause| *pause <= 626), "{pauses:?}");
    let later = within(25_000, 65_000);
    assert!(later.iter().all(|pause| *pause >= 20_000 / 8), "{pauses:?}");
    assert!(within(100_000, 295_000).iter().all(|pause| *pause == 10_000), "{pauses:?}");
    let minute = asked.iter().filter(|at| **at < 65_000).count();
    assert!((15..=30).contains(&minute), "{minute} checks in a minute");
    // Not all at the same distance, or all clients would ask together.
    assert!(within(5000, 9000).iter().any(|pause| *pause != pauses[0]), "{pauses:?}");
}

#[test]
fn without_the_option_it_is_asked_every_heartbeat() {
    let mut fixture = replica_set(false);
    fixture.closed("b.0");
    let asked = refused_until(&mut fixture, "b", 5000, 65_000);
    assert!(pauses(&asked).iter().all(|pause| *pause == 10_000), "{asked:?}");
}

#[test]
fn a_server_that_has_answered_begins_again_at_the_floor() {
    let mut fixture = replica_set(true);
    fixture.closed("b.0");
    refused_until(&mut fixture, "b", 5000, 100_000);
    let link = (100_000..).find_map(|now| {
        fixture.at(now);
        fixture.links().into_iter().find(|it| it.starts_with('b') && fixture.is_opening(it))
    });
    let link = link.unwrap();
    fixture.greet(&link, &fresh(secondary("b", &HOSTS), 1));
    assert_eq!(fixture.server("b").server_type, ServerType::RsSecondary);
    let now = u64::try_from(fixture.topology.now().since_origin().as_millis()).unwrap();
    fixture.closed(&link);
    let asked = refused_until(&mut fixture, "b", now, now + 3000);
    assert!(asked.len() >= 4, "{asked:?}");
}

/// A machine that swallows packets holds every check for connectTimeoutMS, and would be asked
/// without a pause.
#[test]
fn a_server_that_does_not_answer_at_all_is_not_asked_sooner() {
    let mut fixture = replica_set(true);
    fixture.closed("b.0");
    fixture.at(5001);
    let opening = |fixture: &Fixture| {
        fixture.links().into_iter().find(|it| it.starts_with('b') && fixture.is_opening(it))
    };
    // The one that was open is followed by another at once, which has 10 s.
    let first = opening(&fixture).unwrap();
    fixture.at(15_001);
    assert_ne!(opening(&fixture), Some(first));
    fixture.at(24_999);
    assert_eq!(opening(&fixture), None);
    fixture.at(25_001);
    assert!(opening(&fixture).is_some());
}

#[test]
fn another_members_news_that_name_a_server_have_it_asked_but_not_within_the_floor() {
    for eager in [false, true] {
        let mut fixture = replica_set(eager);
        fixture.closed("b.0");
        // It hangs: connecting is given up.
        fixture.at(15_100);
        // Another primary is elected.
        fixture.at(15_200).stream("c.0", &fresh(primary("c", &HOSTS, 2), 2));
        let asked = |fixture: &Fixture| {
            fixture.links().iter().any(|it| it.starts_with('b') && fixture.is_opening(it))
        };
        fixture.at(15_499);
        assert!(!asked(&fixture), "within 500 ms of the last check");
        fixture.at(15_501);
        assert_eq!(asked(&fixture), eager);
    }
}

#[test]
fn an_operation_whose_connection_breaks_has_its_server_asked_but_not_within_the_floor() {
    for eager in [false, true] {
        let mut fixture = replica_set(eager);
        let broken = Failure::new(Stage::Operate, Cause::Closed, "it broke");
        let error = OperationError::Stream(broken);
        let failure = OperationFailure::new(Generation::new(0), 17, error);
        let server = fixture.server("b").id;
        fixture.at(6000).input(Input::OperationFailed { server, failure });
        let asked = |fixture: &Fixture| {
            fixture.links().iter().any(|it| it.starts_with('b') && fixture.is_opening(it))
        };
        fixture.at(6499);
        assert!(!asked(&fixture), "within 500 ms of the check that was abandoned");
        fixture.at(6501);
        assert_eq!(asked(&fixture), eager);
    }
}
