//! Servers that invite a client to connect again and again: how often it does.

use sdam_core::machine::Machine;
use sdam_core::selection::Criteria;
use sdam_core::time::Instant;
use sdam_core::wire::Flags;

use super::monitoring::{POLLING, STREAMING, streaming};
use super::stage::{Stage, fresh, standalone};
use super::waiting::wait;

/// For how long, and how many streams may be opened in it: after each 500 ms a check and, where the
/// server can stream, a measurement; and what comes first.
const MILLIS: u64 = 10_000;
const MOST: usize = 2 * (MILLIS as usize / 500 + 2);

/// Lets a server do this on every stream of its client, without any delay, and returns how many
/// streams were opened in ten seconds.
fn opened(stage: &mut Stage, act: impl Fn(&mut Stage, &str)) -> usize {
    let mut count = 0;
    loop {
        while let Some(name) = stage.links().into_iter().find(|name| stage.is_opening(name)) {
            act(stage, &name);
            count += 1;
            if count > 4 * MOST {
                return count;
            }
        }
        match stage.topology.machine.deadline().map(|due| due.since_origin().as_millis()) {
            Some(due) if due < u128::from(MILLIS) => stage.at(u64::try_from(due).unwrap() + 1),
            _ => return count,
        };
    }
}

/// Server Monitoring, "Retry hello or legacy hello calls once".
#[test]
fn a_server_that_answers_one_hello_per_connection_is_connected_to_every_500_ms_at_most() {
    let mut stage = Stage::new(STREAMING);
    let count = opened(&mut stage, |stage, name| {
        stage.greet(name, &fresh(standalone(), 1));
        if stage.has_link(name) {
            stage.closed(name);
        }
    });
    assert!((20..=MOST).contains(&count), "{count} streams");
}

#[test]
fn so_is_one_that_hangs_up_in_the_middle_of_a_stream_of_replies() {
    let mut stage = Stage::new(STREAMING);
    let count = opened(&mut stage, |stage, name| {
        stage.greet(name, &fresh(standalone(), 1));
        stage.stream(name, &fresh(standalone(), 2));
        if stage.has_link(name) {
            stage.closed(name);
        }
    });
    assert!((20..=MOST).contains(&count), "{count} streams");
}

#[test]
fn so_is_one_that_hangs_up_or_talks_nonsense_between_two_checks_while_somebody_waits() {
    for nonsense in [true, false] {
        let mut stage = Stage::new(POLLING);
        wait(&mut stage, 1, Criteria::write().with_predicate(|_| false), 60_000);
        let count = opened(&mut stage, |stage, name| {
            stage.greet(name, &standalone());
            match nonsense {
                true => {
                    let unasked = stage.answer(name, &standalone(), Flags::NONE);
                    stage.bytes(name, &unasked);
                }
                false => {
                    stage.closed(name);
                }
            }
        });
        assert!((10..=MOST).contains(&count), "{count} streams");
    }
}

#[test]
fn a_server_that_fails_once_more_within_500_ms_is_checked_when_they_are_over() {
    let mut stage = streaming();
    stage.at(100).closed("a.0").at(110).greet("a.2", &fresh(standalone(), 1));
    stage.at(120).quiet().closed("a.2").at(599);
    let log = stage.log();
    assert!(!log.iter().any(|line| line.starts_with("open")), "{log:?}");
    stage.at(600);
    assert_eq!(stage.log(), ["started a", "open a.4"]);
    stage.greet("a.4", &fresh(standalone(), 1)).at(1100).quiet().closed("a.4");
    assert!(stage.log().contains(&"open a.6".into()), "500 ms after that, at once again");
}

/// Server Monitoring, "minHeartbeatFrequencyMS": what another server was due for when the alarm rang
/// late makes no pause shorter.
#[test]
fn a_pause_begins_by_the_clock_and_not_by_what_was_judged() {
    let mut stage = Stage::new("mongodb://a/?serverMonitoringMode=poll&heartbeatFrequencyMS=500");
    stage.topology.set_clock(Instant::from_millis(700));
    stage.greet("a.0", &standalone());
    assert_eq!(stage.topology.machine.deadline(), Some(Instant::from_millis(1200)));
}
