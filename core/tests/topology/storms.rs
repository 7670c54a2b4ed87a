//! Servers that invite a client to connect again and again: how often it does.

use sdam_core::machine::Machine;
use sdam_core::selection::Criteria;
use sdam_core::time::Instant;
use sdam_core::wire::Flags;

use super::fixture::{Fixture, fresh, standalone};
use super::monitoring::{POLLING, STREAMING, streaming};
use super::waiting::wait;

/// For how long, and how many streams may be opened in it: after each 500 ms a check and, where the
/// server can stream, a measurement; and what comes first.
const MILLIS: u64 = 10_000;
const MOST: usize = 2 * (MILLIS as usize / 500 + 2);

/// Lets a server do this on every stream of its client, without any delay, and returns how many
/// streams were opened in ten seconds.
fn opened(fixture: &mut Fixture, act: impl Fn(&mut Fixture, &str)) -> usize {
    let mut count = 0;
    loop {
        while let Some(name) = fixture.links().into_iter().find(|name| fixture.is_opening(name)) {
            act(fixture, &name);
            count += 1;
            if count > 4 * MOST {
                return count;
            }
        }
        match fixture.topology.machine.deadline().map(|due| due.since_origin().as_millis()) {
            Some(due) if due < u128::from(MILLIS) => fixture.at(u64::try_from(due).unwrap() + 1),
            _ => return count,
        };
    }
}

/// Server Monitoring, "Retry hello or legacy hello calls once".
#[test]
fn a_server_that_answers_one_hello_per_connection_is_connected_to_every_500_ms_at_most() {
    let mut fixture = Fixture::new(STREAMING);
    let count = opened(&mut fixture, |fixture, name| {
        fixture.greet(name, &fresh(standalone(), 1));
        if fixture.has_link(name) {
            fixture.closed(name);
        }
    });
    assert!((20..=MOST).contains(&count), "{count} streams");
}

#[test]
fn so_is_one_that_hangs_up_in_the_middle_of_a_stream_of_replies() {
    let mut fixture = Fixture::new(STREAMING);
    let count = opened(&mut fixture, |fixture, name| {
        fixture.greet(name, &fresh(standalone(), 1));
        fixture.stream(name, &fresh(standalone(), 2));
        if fixture.has_link(name) {
            fixture.closed(name);
        }
    });
    assert!((20..=MOST).contains(&count), "{count} streams");
}

#[test]
fn so_is_one_that_hangs_up_or_talks_nonsense_between_two_checks_while_somebody_waits() {
    for nonsense in [true, false] {
        let mut fixture = Fixture::new(POLLING);
        wait(&mut fixture, 1, Criteria::write().with_predicate(|_| false), 60_000);
        let count = opened(&mut fixture, |fixture, name| {
            fixture.greet(name, &standalone());
            match nonsense {
                true => {
                    let unasked = fixture.answer(name, &standalone(), Flags::NONE);
                    fixture.bytes(name, &unasked);
                }
                false => {
                    fixture.closed(name);
                }
            }
        });
        assert!((10..=MOST).contains(&count), "{count} streams");
    }
}

#[test]
fn a_server_that_fails_once_more_within_500_ms_is_checked_when_they_are_over() {
    let mut fixture = streaming();
    fixture.at(100).closed("a.0").at(110).greet("a.2", &fresh(standalone(), 1));
    fixture.at(120).quiet().closed("a.2").at(599);
    let log = fixture.log();
    assert!(!log.iter().any(|line| line.starts_with("open")), "{log:?}");
    fixture.at(600);
    assert_eq!(fixture.log(), ["started a", "open a.4"]);
    fixture.greet("a.4", &fresh(standalone(), 1)).at(1100).quiet().closed("a.4");
    assert!(fixture.log().contains(&"open a.6".into()), "500 ms after that, at once again");
}

/// Server Monitoring, "minHeartbeatFrequencyMS": what another server was due for when the alarm
/// rang late makes no pause shorter.
#[test]
fn a_pause_begins_by_the_clock_and_not_by_what_was_judged() {
    let mut fixture =
        Fixture::new("mongodb://a/?serverMonitoringMode=poll&heartbeatFrequencyMS=500");
    fixture.topology.set_clock(Instant::from_millis(700));
    fixture.greet("a.0", &standalone());
    assert_eq!(fixture.topology.machine.deadline(), Some(Instant::from_millis(1200)));
}
