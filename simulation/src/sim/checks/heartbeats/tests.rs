//! Heartbeats that are made up, and are too many, too few, or too soon.

use sdam_core::description::ServerDescription;
use sdam_core::failure::{Cause, Failure, Stage};
use sdam_core::topology::Topology;

use super::{
    DISPLACED, Duration, Heartbeats, Instant, MANY_AWAITED, MIN_HEARTBEAT_FREQUENCY, ONCE_MORE,
    Options, ServerId,
};
use crate::sim::checks::tests::servers;

fn options() -> Options {
    Options::parse("mongodb://a").unwrap()
}

fn heartbeats() -> (Heartbeats, ServerId) {
    (Heartbeats::new(&options()), servers()[0])
}

fn at(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

fn failure() -> Failure {
    Failure::new(Stage::Hello, Cause::Closed, "made up")
}

/// Returns a description of the first server, of which something was wrong.
fn known(cause: Cause) -> ServerDescription {
    let topology = Topology::new(std::sync::Arc::new(options()), 1);
    let mut first = (*topology.snapshot().description().servers()[0]).clone();
    first.id = servers()[0];
    first.error = Some(Failure::new(Stage::Hello, cause, "made up"));
    first
}

/// Returns which rule is broken.
fn broken(finding: super::Finding) -> Option<&'static str> {
    finding.err().map(|violation| violation.check)
}

/// Returns how many awaited replies may come, the given time apart, before it is too much.
fn replies_allowed(apart: Duration, news: bool, trusted: bool) -> u32 {
    let (mut heartbeats, server) = heartbeats();
    if trusted {
        heartbeats.trust_servers();
    }
    let mut now = Instant::from_millis(1_000);
    (0..1_000)
        .find(|_| {
            let refused = heartbeats.started(server, true, now).is_err();
            now = now + apart;
            heartbeats.ended(server, None, now).unwrap();
            if news {
                heartbeats.changed(&known(Cause::Closed), now);
            }
            refused
        })
        .unwrap_or(1_000)
}

#[test]
fn replies_that_are_awaited_come_in_time_or_with_news() {
    let apart = Duration::from_millis(1);
    assert_eq!(replies_allowed(apart, false, true), MANY_AWAITED);
    assert_eq!(replies_allowed(apart, false, false), 1_000, "the server floods the client");
    assert_eq!(replies_allowed(apart, true, true), 1_000);
    assert_eq!(replies_allowed(Duration::from_secs(10), false, true), 1_000);
}

/// Server Monitoring, "minHeartbeatFrequencyMS".
#[test]
fn a_server_is_checked_once_at_a_time_and_500_ms_after_the_last_check_unless_it_streams() {
    let started = |pause: u64, awaited: bool| {
        let (mut heartbeats, server) = heartbeats();
        heartbeats.started(server, false, at(1_000)).unwrap();
        heartbeats.ended(server, None, at(1_010)).unwrap();
        broken(heartbeats.started(server, awaited, at(1_010 + pause)))
    };
    assert_eq!((started(500, false), started(0, true)), (None, None));
    assert_eq!(started(499, false), Some("500 ms between checks"));
    let (mut heartbeats, server) = heartbeats();
    heartbeats.started(server, false, at(1_000)).unwrap();
    let again = heartbeats.started(server, false, at(1_600));
    assert_eq!(broken(again), Some("one check of a server at a time"));
}

#[test]
fn a_server_that_is_back_has_its_500_ms_to_wait() {
    let (mut heartbeats, server) = heartbeats();
    let (back, address) = (servers()[1], "a:27017".parse().unwrap());
    heartbeats.joined(server, &address);
    heartbeats.started(server, false, at(1_000)).unwrap();
    heartbeats.ended(server, None, at(1_010)).unwrap();
    heartbeats.left(server).unwrap();
    heartbeats.joined(back, &address);
    let soon = heartbeats.started(back, false, at(1_400));
    assert_eq!(broken(soon), Some("500 ms between checks"));
}

#[test]
fn every_check_that_has_begun_ends_and_no_other_does() {
    let (mut heartbeats, server) = heartbeats();
    let ended = heartbeats.ended(server, None, at(1_000));
    assert_eq!(broken(ended), Some("only what started ends"));
    heartbeats.started(server, false, at(2_000)).unwrap();
    let ends = Some("every heartbeat that started ends");
    assert_eq!((broken(heartbeats.over()), broken(heartbeats.left(server))), (ends, ends));
    assert_eq!(broken(heartbeats.over()), None, "it has left");
}

/// Server Monitoring, "Network or command error during server check".
#[test]
fn a_known_server_is_checked_once_more_at_once_and_one_that_is_not_after_its_pause() {
    let after_failure = |known: bool, again: bool| {
        let (mut heartbeats, server) = heartbeats();
        heartbeats.known.extend(known.then_some(server));
        heartbeats.started(server, false, at(1_000)).unwrap();
        heartbeats.ended(server, Some(&failure()), at(1_010)).unwrap();
        let second = again.then(|| heartbeats.started(server, false, at(1_010)));
        broken(second.unwrap_or(Ok(()))).or_else(|| broken(heartbeats.after_step(at(1_010))))
    };
    assert_eq!((after_failure(true, true), after_failure(false, false)), (None, None));
    assert_eq!(after_failure(true, false), Some(ONCE_MORE));
    assert_eq!(after_failure(false, true), Some("500 ms between checks"));
}

/// A server that answers one hello per connection is known each time, and fails each time.
#[test]
fn a_known_server_that_fails_again_within_500_ms_is_checked_when_they_are_over() {
    let second_failure = |then: Option<u64>, later: u64| {
        let (mut heartbeats, server) = heartbeats();
        heartbeats.known.insert(server);
        for begins in [1_000, 1_010] {
            heartbeats.started(server, false, at(begins)).unwrap();
            heartbeats.ended(server, Some(&failure()), at(1_010)).unwrap();
        }
        let third = then.map(|begins| heartbeats.started(server, false, at(begins)));
        broken(third.unwrap_or(Ok(()))).or_else(|| broken(heartbeats.after_step(at(later))))
    };
    assert_eq!(second_failure(Some(1_010), 1_010), Some("500 ms between checks"));
    assert_eq!(second_failure(Some(1_509), 1_509), Some("500 ms between checks"));
    assert_eq!((second_failure(None, 1_510), second_failure(Some(1_510), 1_600)), (None, None));
    assert_eq!(second_failure(None, 1_511), Some(ONCE_MORE));
}

/// SDAM, "A note on invalidating the old primary".
#[test]
fn a_primary_that_is_displaced_is_checked_when_500_ms_have_passed_since_its_last_check() {
    let displaced = |displaced: bool, checking: bool, later: u64| {
        let (mut heartbeats, server) = heartbeats();
        heartbeats.started(server, false, at(1_000)).unwrap();
        if !checking {
            heartbeats.ended(server, None, at(1_010)).unwrap();
        }
        let cause = if displaced { Cause::NewerPrimary } else { Cause::Closed };
        heartbeats.changed(&known(cause), at(1_100));
        broken(heartbeats.after_step(at(later)))
    };
    assert_eq!(
        (displaced(true, false, 1_510), displaced(true, false, 1_511)),
        (None, Some(DISPLACED))
    );
    assert_eq!((displaced(false, false, 9_000), displaced(true, true, 9_000)), (None, None));
}

#[test]
fn whoever_polls_awaits_no_reply() {
    let poll = Options::parse("mongodb://a/?serverMonitoringMode=poll").unwrap();
    let mut heartbeats = Heartbeats::new(&poll);
    let awaits = broken(heartbeats.started(servers()[0], true, at(1_000)));
    assert_eq!(awaits, Some("who polls awaits nothing"));
}

/// Server Selection, "Multi-threaded or asynchronous server selection".
#[test]
fn while_somebody_waits_servers_are_checked_every_500_ms() {
    let step = |wanted: bool, later: u64| {
        let (mut heartbeats, server) = heartbeats();
        heartbeats.started(server, false, at(1_000)).unwrap();
        heartbeats.ended(server, None, at(1_010)).unwrap();
        heartbeats.wanted(wanted, at(1_100));
        broken(heartbeats.after_step(at(later)))
    };
    assert_eq!((step(true, 1_510), step(false, 9_000)), (None, None));
    let late = Some("while an operation waits, servers are checked every 500 ms");
    assert_eq!(step(true, 1_511), late);
}

#[test]
fn no_monitor_sleeps_for_longer_than_its_options_allow() {
    let (mut heartbeats, server) = heartbeats();
    let longest = heartbeats.longest;
    heartbeats.started(server, true, at(1_000)).unwrap();
    assert_eq!(broken(heartbeats.audit(at(1_000) + longest)), None);
    let late = at(1_001) + longest;
    assert_eq!(broken(heartbeats.audit(late)), Some("monitors never stop"));
    heartbeats.ended(server, None, late).unwrap();
    heartbeats.started(server, true, late).unwrap();
    let measures = Some("measuring goes on while a server streams");
    assert_eq!(broken(heartbeats.audit(late)), measures, "nothing was measured meanwhile");
    heartbeats.measures(server, late);
    assert_eq!(broken(heartbeats.audit(late)), None);
    heartbeats.resumed(late + longest * 2);
    assert_eq!(broken(heartbeats.audit(late + longest * 2)), None, "the process was stopped");
}

#[test]
fn a_topology_without_servers_begins_again_after_a_heartbeat_or_500_ms_and_not_before() {
    let emptied = at(1_000);
    let begins = |now: Instant, wanted: bool| {
        let (mut heartbeats, _) = heartbeats();
        heartbeats.emptied = Some(emptied);
        heartbeats.wanted(wanted, emptied);
        broken(heartbeats.begins_again(now))
    };
    let late = Some("a topology without servers begins again");
    assert_eq!((begins(at(11_000), false), begins(at(11_001), false)), (None, late));
    assert_eq!((begins(at(1_500), true), begins(at(1_501), true)), (None, late));
    let topology = Topology::new(std::sync::Arc::new(options()), 1);
    let publish = |pause: Duration| {
        let (mut heartbeats, _) = heartbeats();
        heartbeats.emptied = Some(emptied);
        broken(heartbeats.published(topology.snapshot(), emptied + pause))
    };
    assert_eq!(publish(MIN_HEARTBEAT_FREQUENCY), None);
    assert_eq!(publish(Duration::from_millis(499)), Some("500 ms without servers"));
}
