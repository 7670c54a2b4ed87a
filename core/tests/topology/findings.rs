//! Findings beside what operations meet: pauses of the process, idle connections that are cut,
//! primaries that refuse writes, slow lookups, other protocols.

use std::time::Duration;

use bson::rawdoc;
use sdam_core::description::ServerType;
use sdam_core::diagnosis::Verdict;
use sdam_core::failure::{Cause, Failure, Stage as Step};
use sdam_core::id::Generation;
use sdam_core::machine::Machine;
use sdam_core::operation::{CommandError, OperationError, OperationFailure};
use sdam_core::selection::Criteria;
use sdam_core::time::{Instant, Time};
use sdam_core::topology::{Action, EventKind, Input};

use super::fixture::{Fixture, fresh, ms, primary, secondary};
use super::waiting::{HOSTS, POLLING, error};

/// Returns what was found out since the last call.
fn found(fixture: &mut Fixture) -> Vec<Verdict> {
    let found = fixture.topology.actions.iter().filter_map(|action| match action {
        Action::Emit { event } => match &event.kind {
            EventKind::Diagnosed { verdict } => Some(verdict.clone()),
            _ => None,
        },
        _ => None,
    });
    let found = found.collect();
    fixture.forget();
    found
}

fn closed(fixture: &Fixture, name: &str) -> Input<'static> {
    let failure = Failure::new(Step::Hello, Cause::Closed, "the server closed the connection");
    Input::Closed { link: fixture.link(name), failure }
}

/// Reports to the machine at `clock` that a stream was closed, and returns what it finds out.
fn closed_at(fixture: &mut Fixture, name: &str, clock: u64) -> Vec<Verdict> {
    let input = closed(fixture, name);
    let machine = &mut fixture.topology.machine;
    let now = Time::before(machine.deadline(), Instant::from_millis(clock));
    machine.handle(now, input, &mut fixture.topology.actions);
    found(fixture)
}

#[test]
fn failures_right_after_a_time_in_which_the_process_did_not_run_are_told_so_once() {
    let mut fixture = Fixture::new("mongodb://a,b/?replicaSet=rs");
    fixture.greet("a.0", &fresh(primary("a", &HOSTS, 1), 1));
    fixture.greet("b.0", &fresh(secondary("b", &HOSTS), 1));
    fixture.forget();
    // The pingers were to be given up at 10 s, and there was no tick.
    let told = closed_at(&mut fixture, "a.0", 28_000);
    assert_eq!(told, [Verdict::ProcessPaused { paused: ms(18_000), since: Duration::ZERO }]);
    assert_eq!(closed_at(&mut fixture, "b.0", 28_010), [], "once is enough");
    let evidence = fixture.topology.machine.get().evidence(Instant::from_millis(28_500));
    let error = evidence.diagnose(&Criteria::write()).unwrap();
    assert!(matches!(error.also[..], [Verdict::ProcessPaused { .. }]), "{error}");
    assert!(error.to_string().contains(" Also: this process did not run for at least 18.0 s"));
    let later = fixture.topology.machine.get().evidence(Instant::from_millis(30_000));
    assert_eq!(later.diagnose(&Criteria::write()).unwrap().also, []);
}

#[test]
fn a_ring_that_is_a_little_late_is_no_pause_and_a_pause_without_failures_is_no_news() {
    let mut fixture = Fixture::new("mongodb://a,b/?replicaSet=rs");
    fixture.greet("a.0", &fresh(primary("a", &HOSTS, 1), 1));
    fixture.greet("b.0", &fresh(secondary("b", &HOSTS), 1));
    fixture.forget();
    assert_eq!(closed_at(&mut fixture, "a.0", 11_900), []);
    let reply = fixture.answer("b.0", &fresh(secondary("b", &HOSTS), 2), Default::default());
    let link = fixture.link("b.0");
    let now = Time::before(fixture.topology.machine.deadline(), Instant::from_millis(90_000));
    let input = Input::Received { link, bytes: &reply };
    fixture.topology.machine.handle(now, input, &mut fixture.topology.actions);
    assert_eq!(found(&mut fixture), []);
}

/// Closes connections when they have waited for news for so many milliseconds each, and returns
/// what is reported then.
fn cut_after(fixture: &mut Fixture, lasted: &[u64]) -> Vec<Vec<Verdict>> {
    let reply = fresh(primary("a", &HOSTS, 1), 1);
    let (mut told, mut time) = (Vec::new(), 0);
    for lasted in lasted {
        // It may connect again a moment later only.
        fixture.at(time + 500);
        let name = fixture.links().into_iter().find(|link| fixture.is_opening(link)).unwrap();
        time += 500 + lasted;
        fixture.greet(&name, &reply).at(time);
        fixture.closed(&name);
        told.push(found(fixture));
        for pinger in fixture.links() {
            if !fixture.is_opening(&pinger) {
                fixture.closed(&pinger);
            }
        }
    }
    told
}

#[test]
fn connections_that_are_cut_by_a_sweep_are_told_with_advice_for_the_shortest_time() {
    let mut fixture = Fixture::new("mongodb://a/?directConnection=true");
    let told = cut_after(&mut fixture, &[5_000, 4_000, 8_000]);
    let [.., last] = told.as_slice() else { panic!("{told:?}") };
    let cut = Verdict::IdleConnectionsCut {
        server: "a:27017".parse().unwrap(),
        times: 3,
        shortest: ms(4_000),
        after: ms(8_000),
        heartbeat: ms(10_000),
    };
    assert_eq!(last[..], [cut]);
    let line = last[0].advice().line;
    assert_eq!(line.as_deref(), Some("heartbeatFrequencyMS=3000&maxIdleTimeMS=3000"));
}

#[test]
fn connections_that_are_cut_as_soon_as_they_wait_are_not_idle() {
    let mut fixture = Fixture::new("mongodb://a/?directConnection=true");
    let told = cut_after(&mut fixture, &[499, 499, 499]);
    let server = "a:27017".parse().unwrap();
    let refused = Verdict::StreamingRefused { server, times: 3, after: ms(499) };
    assert_eq!(told, [vec![], vec![], vec![refused.clone()]]);
    assert_eq!(refused.advice().line.as_deref(), Some("serverMonitoringMode=poll"));
    let mut fixture = Fixture::new("mongodb://a/?directConnection=true");
    let told = cut_after(&mut fixture, &[500, 500, 500]);
    assert!(matches!(told[2][..], [Verdict::IdleConnectionsCut { .. }]), "{told:?}");
}

#[test]
fn connections_that_are_cut_after_the_same_time_again_and_again_are_told_at_the_third() {
    let mut fixture = Fixture::new("mongodb://a/?directConnection=true");
    let told = cut_after(&mut fixture, &[4_000; 4]);
    let cut = |times| Verdict::IdleConnectionsCut {
        server: "a:27017".parse().unwrap(),
        times,
        shortest: ms(4_000),
        after: ms(4_000),
        heartbeat: ms(10_000),
    };
    assert_eq!(told, [vec![], vec![], vec![cut(3)], vec![]]);
    let error = error(&mut fixture, Criteria::write());
    assert_eq!(error.also, [cut(4)]);
    assert!(error.to_string().contains("heartbeatFrequencyMS=3000&maxIdleTimeMS=3000"), "{error}");
}

fn refused(fixture: &mut Fixture, code: i32) {
    let reply = rawdoc! { "ok": 0, "code": code, "codeName": "NotWritablePrimary", "errmsg": "no" };
    let error = CommandError::in_reply(&reply).unwrap();
    let error = OperationError::Reply { stage: Step::Operate, error };
    let server = fixture.server("a").id;
    let failure = OperationFailure::new(Generation::default(), 17, error);
    fixture.input(Input::OperationFailed { server, failure });
}

#[test]
fn a_primary_that_refuses_writes_contradicts_itself_at_the_third_in_a_row() {
    let mut fixture = Fixture::new(POLLING);
    fixture.greet("a.0", &primary("a", &HOSTS, 1)).greet("b.0", &secondary("b", &HOSTS));
    let mut told = Vec::new();
    for time in 1..=4 {
        refused(&mut fixture, 10107);
        refused(&mut fixture, 10107);
        told.extend(found(&mut fixture));
        assert_eq!(fixture.server("a").server_type, ServerType::Unknown);
        fixture.at(time * 1000).reply("a.0", &primary("a", &HOSTS, 1));
        assert_eq!(fixture.server("a").server_type, ServerType::RsPrimary);
    }
    let [Verdict::PrimaryRefusesWrites { server, refusals: 3, code_name }] = &told[..] else {
        panic!("{told:?}")
    };
    assert_eq!((server.host(), &**code_name), ("a", "NotWritablePrimary"));
    let machine = fixture.topology.machine.get();
    let evidence = machine.server_evidence(fixture.server("a").id, fixture.topology.now());
    assert_eq!(evidence.refusals, 4);
}

#[test]
fn refusals_that_are_far_apart_are_no_contradiction() {
    let mut fixture = Fixture::new(
        "mongodb://a,b/?replicaSet=rs&serverMonitoringMode=poll&heartbeatFrequencyMS=100000",
    );
    fixture.greet("a.0", &primary("a", &HOSTS, 1)).greet("b.0", &secondary("b", &HOSTS));
    for time in 1..=4 {
        fixture.at(time * 70_000);
        refused(&mut fixture, 10107);
        fixture.at(time * 70_000 + 1_000).reply("a.0", &primary("a", &HOSTS, 1));
    }
    assert_eq!(found(&mut fixture), []);
    fixture.at(350_000);
    let machine = fixture.topology.machine.get();
    let evidence = machine.server_evidence(fixture.server("a").id, fixture.topology.now());
    assert_eq!(evidence.refusals, 0);
}

#[test]
fn a_primary_that_steps_down_and_is_elected_again_does_not_contradict_itself() {
    let mut fixture = Fixture::new(POLLING);
    fixture.greet("a.0", &primary("a", &HOSTS, 1)).greet("b.0", &secondary("b", &HOSTS));
    for time in 0..4 {
        refused(&mut fixture, 10107);
        fixture.at(time * 2000 + 1000).reply("a.0", &secondary("a", &HOSTS));
        fixture.at(time * 2000 + 2000).input(Input::RequestCheck);
        fixture.reply("a.0", &primary("a", &HOSTS, 2 + time as u8));
    }
    refused(&mut fixture, 13435);
    assert_eq!(found(&mut fixture), []);
}

#[test]
fn a_name_that_takes_long_to_look_up_is_told_once_and_in_errors() {
    let mut fixture = Fixture::new("mongodb://a/?replicaSet=rs");
    let link = fixture.link("a.0");
    fixture.input(Input::Reached { link, stage: Step::Resolve }).at(5_000);
    fixture.input(Input::Reached { link, stage: Step::Connect });
    let slow = Verdict::LookupSlow { name: "a".to_owned(), took: ms(5_000), silent: Vec::new() };
    assert_eq!(found(&mut fixture), std::slice::from_ref(&slow));
    assert_eq!(error(fixture.closed("a.0"), Criteria::write()).also, [slow]);
    fixture.at(15_000);
    let link = fixture.link("a.1");
    fixture.input(Input::Reached { link, stage: Step::Resolve }).at(20_000);
    fixture.input(Input::Reached { link, stage: Step::Connect });
    assert_eq!(found(&mut fixture), []);
    fixture.closed("a.1").at(30_000);
    let link = fixture.link("a.2");
    fixture.input(Input::Reached { link, stage: Step::Resolve }).at(30_001);
    fixture.input(Input::Reached { link, stage: Step::Connect });
    assert_eq!(error(fixture.closed("a.2"), Criteria::write()).also, [], "it is quick again");
}

/// A provider of certificates that is slow comes before the lookup, and is none of it.
#[test]
fn the_time_of_a_lookup_begins_with_it() {
    let mut fixture = Fixture::new("mongodb://a/?replicaSet=rs");
    let link = fixture.link("a.0");
    fixture.input(Input::Reached { link, stage: Step::Certificates }).at(5_000);
    let verdict = error(&mut fixture, Criteria::write()).verdict;
    assert_eq!(verdict.name(), "certificatesUnavailable", "{verdict}");
    assert!(verdict.to_string().contains("for 5.0 s"), "{verdict}");
    fixture.input(Input::Reached { link, stage: Step::Resolve }).at(5_001);
    fixture.input(Input::Reached { link, stage: Step::Connect });
    assert_eq!(found(&mut fixture), []);
}

#[test]
fn what_answers_in_another_protocol_is_named() {
    for (answer, expected) in [
        (&b"HTTP/1.1 400 Bad Request\r\n"[..], "HTTP"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "SSH"),
        (b"-ERR unknown command\r\n", "the protocol of Redis"),
    ] {
        let mut fixture = Fixture::new("mongodb://a/?directConnection=true");
        fixture.opened("a.0").bytes("a.0", answer);
        let error = error(&mut fixture, Criteria::write());
        let Verdict::NotMongo { protocol, .. } = &error.verdict else { panic!("{error}") };
        assert_eq!(protocol, expected);
        assert!(error.to_string().contains("is not a MongoDB port"), "{error}");
    }
    let mut fixture = Fixture::new("mongodb://a/?directConnection=true");
    fixture.opened("a.0").bytes("a.0", &[21, 3, 3, 0, 2, 2, 70]);
    let expected = Verdict::TlsExpected { certain: true };
    assert_eq!(error(&mut fixture, Criteria::write()).verdict, expected);
}

#[test]
fn an_alert_without_a_reason_is_no_access_and_others_are_not() {
    for (alert, is_access) in [(Some(80), true), (Some(49), true), (Some(70), false), (None, false)]
    {
        let mut fixture = Fixture::new("mongodb://a.x.mongodb.net/?tls=true");
        let link = fixture.link("a.x.mongodb.net.0");
        let failure = Failure::new(Step::Tls, Cause::TlsRefused { alert }, "the end");
        fixture.input(Input::Closed { link, failure });
        let verdict = error(&mut fixture, Criteria::write()).verdict;
        assert_eq!(verdict == Verdict::AccessRefused { atlas: true }, is_access, "{verdict}");
    }
}

#[test]
fn a_stale_primary_is_told_with_both_elections() {
    let mut fixture = Fixture::new(POLLING);
    fixture.greet("b.0", &primary("b", &HOSTS, 2)).closed("a.0");
    fixture.at(10_000).reply("b.0", &secondary("b", &HOSTS)).greet("a.1", &primary("a", &HOSTS, 1));
    let found = error(&mut fixture, Criteria::write());
    let Verdict::StalePrimary { server, claim, newest } = &found.verdict else { panic!("{found}") };
    assert_eq!(server.host(), "a");
    assert_eq!(
        (&**claim, &**newest),
        ("(010101010101010101010101, 1)", "(020202020202020202020202, 1)")
    );
    fixture.at(20_000).reply("a.1", &secondary("a", &HOSTS));
    let found = error(&mut fixture, Criteria::write());
    assert!(matches!(found.verdict, Verdict::NoPrimary { .. }), "{found}");
}
