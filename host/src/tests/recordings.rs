//! Recordings of clients: exact, bounded, and without secrets.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bson::rawdoc;

use super::fixture::{Fixture, Task};
use super::{host, lock};
use crate::observe::recording::{FLIGHT_RECORDER_LEN, Recording};
use sdam_core::operation::Timeout;
use sdam_core::selection::Criteria;
use sdam_core::time::Instant;
use sdam_core::trace::{Replay, Trace};

/// A client that has discovered a standalone while it was recorded.
pub(super) fn recorded(recording: &Recording, options: &str) -> Fixture {
    recorded_as("", recording, options)
}

/// The same, with what stands before the host.
fn recorded_as(login: &str, recording: &Recording, options: &str) -> Fixture {
    let host = host(&format!("mongodb://{login}a/?directConnection=true{options}"), false);
    host.record(recording);
    host.ring();
    Fixture::begin(host)
}

fn read_all(recording: &mut Recording) -> String {
    std::iter::from_fn(|| recording.try_next()).collect()
}

/// Runs a command with a document that the server quotes in an error.
pub(super) fn fail(fixture: &Fixture, code: i32) -> String {
    *lock(&fixture.server.reply) =
        Some(rawdoc! { "ok": 0, "code": code, "errmsg": "not now: { ssn: PLANTED }" });
    let criteria = Arc::new(Criteria::write());
    let timeout = Timeout::At(fixture.now() + Duration::from_secs(5));
    let command = rawdoc! { "insert": "people", "documents": [{ "ssn": "PLANTED" }] };
    let failed = fixture.host.run_command("admin", &command, criteria, timeout);
    fixture.run(failed).unwrap_err().to_string()
}

#[test]
fn a_recording_replays_exactly_and_has_no_word_of_the_application() {
    let mut recording = Recording::everything();
    let fixture = recorded(&recording, "");
    let error = fail(&fixture, 10107);
    assert!(error.contains("PLANTED"), "{error}");
    fixture.pass(Duration::from_millis(600));
    fixture.heartbeat();
    fixture.server.hangs_up.store(true, Ordering::Relaxed);
    fail(&fixture, 91);
    recording.note("said by\nthe application");
    fixture.pass(Duration::from_secs(30));
    fixture.host.close();
    let text = read_all(&mut recording);
    let trace = Trace::parse(&text).unwrap();
    assert!(trace.is_sealed());
    assert_eq!(Replay::new(&trace).unwrap().finish(), Ok(()));
    assert_eq!(Replay::new(&trace).unwrap().rewrite(), text);
    assert!(!text.contains("PLANTED") && !text.contains("people"), "{text}");
    for told in [
        "\"event\":\"connectionReady\"",
        "\"event\":\"poolCleared\"",
        "operation-failed s0 {",
        "\"message\":\"(message 1)\"",
        "# said by the application ~",
        "shutdown",
    ] {
        assert!(text.contains(told), "{told} is not in:\n{text}");
    }
    assert!(!text.contains("connectionCheckedOut"), "that happens with every operation");
}

#[test]
fn a_login_that_fails_is_recorded_without_who_and_what() {
    let mut recording = Recording::everything();
    let fixture = recorded_as("PLANTED-USER:PLANTED-PASSWORD@", &recording, "&authSource=PLANTED");
    let error = fail(&fixture, 18);
    assert!(error.contains("PLANTED"), "{error}");
    fixture.host.close();
    let text = read_all(&mut recording);
    assert!(!text.contains("PLANTED"), "{text}");
    assert!(text.contains(r#""stage":"authenticate""#), "{text}");
    assert_eq!(Replay::new(&Trace::parse(&text).unwrap()).unwrap().finish(), Ok(()));
}

#[test]
fn a_recording_ends_when_its_client_is_gone() {
    let mut recording = Recording::everything();
    let fixture = recorded(&recording, "");
    let mut task = {
        let mut recording = recording.clone();
        Task::new(async move {
            let mut text = String::new();
            while let Some(lines) = recording.next().await {
                text.push_str(&lines);
            }
            text
        })
    };
    assert!(task.poll().is_pending());
    drop(fixture);
    assert!(task.was_woken());
    let Poll::Ready(text) = task.poll() else { panic!("it does not end") };
    assert!(text.contains("shutdown"), "{text}");
    assert_eq!(recording.try_next(), None);
}

#[test]
fn a_recording_is_of_one_client() {
    let mut recording = Recording::everything();
    let first = recorded(&recording, "");
    let second = recorded(&recording, "");
    drop(second);
    first.host.request_check();
    drop(first);
    let text = read_all(&mut recording);
    assert_eq!(text.matches("seed").count(), 1, "{text}");
    assert!(text.contains("request-check") && text.contains("shutdown"), "{text}");
    assert_eq!(Replay::new(&Trace::parse(&text).unwrap()).unwrap().finish(), Ok(()));
}

#[test]
fn a_recording_that_nobody_reads_ends_early_and_says_so() {
    let mut recording = Recording::everything();
    let fixture = recorded(&recording, "");
    let long = "x".repeat(1 << 20);
    (0..20).for_each(|_| recording.note(&long));
    fixture.host.request_check();
    let text = read_all(&mut recording);
    assert!(text.len() <= (1 << 24) + 1000, "{}", text.len());
    let last = text.lines().last().unwrap();
    assert!(last.starts_with("# the recording ends here, as it is not read ~"), "{last}");
    let trace = Trace::parse(&text).unwrap();
    assert_eq!(Replay::new(&trace).unwrap().finish(), Ok(()), "what there is is a trace");
    assert_eq!(read_all(&mut recording), "");
}

#[test]
fn a_recording_that_begins_late_says_that_it_begins_in_the_middle() {
    let mut recording = Recording::everything();
    let fixture = Fixture::new("");
    fixture.host.record(&recording);
    fixture.host.request_check();
    let text = read_all(&mut recording);
    assert!(text.starts_with("sdam-trace 2 sealed tail\n"), "{text}");
    assert!(Replay::new(&Trace::parse(&text).unwrap()).is_none());
}

#[test]
fn a_flight_recorder_hands_out_a_trace_when_a_pool_is_cleared() {
    let mut recording = Recording::flight_recorder(FLIGHT_RECORDER_LEN);
    let fixture = recorded(&recording, "");
    assert_eq!(recording.try_next(), None, "nothing has gone wrong yet");
    fail(&fixture, 10107);
    assert_eq!(recording.try_next(), None, "nor has it now");
    fixture.pass(Duration::from_millis(600));
    fixture.heartbeat();
    fail(&fixture, 91);
    let text = recording.try_next().expect("a dump");
    assert!(!text.contains("PLANTED"), "{text}");
    assert!(text.contains("# dumped by a flight recorder: the pool of s0 was cleared ~"), "{text}");
    assert!(text.contains("\"event\":\"poolCleared\""), "{text}");
    let view = text.lines().last().unwrap();
    assert!(view.starts_with("# what is known at the end: {\"type\":\"Single\","), "{view}");
    assert!(view.contains("\"code\":91"), "{view}");
    let trace = Trace::parse(&text).unwrap();
    let mut replay = Replay::new(&trace).expect("nothing had to be let go");
    assert_eq!(replay.finish(), Ok(()));
}

#[test]
fn a_flight_recorder_hands_out_a_trace_when_a_selection_fails_but_not_when_the_client_closes() {
    let mut recording = Recording::flight_recorder(FLIGHT_RECORDER_LEN);
    let host = host("mongodb://a", false);
    host.record(&recording);
    host.ring();
    let criteria = Arc::new(Criteria::write());
    let mut cx = Context::from_waker(Waker::noop());
    let mut waits = Box::pin(host.select(&criteria, Some(Instant::from_millis(300))));
    let mut waits_on = Box::pin(host.select(&criteria, None));
    assert!(waits.as_mut().poll(&mut cx).is_pending());
    assert!(waits_on.as_mut().poll(&mut cx).is_pending());
    super::pass(&host, Duration::from_millis(300));
    let text = recording.try_next().expect("a dump");
    assert!(text.contains("# dumped by a flight recorder: a selection has failed, w0 ~"), "{text}");
    assert!(text.contains("  > wake w0 {\"verdict\":"), "{text}");
    assert_eq!(Replay::new(&Trace::parse(&text).unwrap()).unwrap().finish(), Ok(()));
    super::pass(&host, Duration::from_millis(2000));
    host.close();
    assert_eq!(recording.try_next(), None);
}

#[test]
fn a_flight_recorder_keeps_to_its_bound_and_then_says_what_is_lost() {
    let limit = 8000;
    let mut recording = Recording::flight_recorder(limit);
    let fixture = recorded(&recording, "&heartbeatFrequencyMS=500");
    for _ in 0..40 {
        fixture.pass(Duration::from_millis(500));
        fixture.heartbeat();
    }
    fail(&fixture, 91);
    let text = recording.try_next().expect("a dump");
    let calls = text.lines().skip(7).filter(|line| !line.starts_with("# what is known"));
    let kept: usize = calls.map(|line| line.len() - 5).sum();
    assert!(kept <= limit && kept > limit / 2, "{kept}");
    assert!(text.starts_with("sdam-trace 2 sealed tail\n"), "{text}");
    let lost = text.lines().find(|line| line.starts_with("# it begins in the middle: "));
    assert!(lost.is_some_and(|line| line.contains(" earlier entries are lost ~")), "{text}");
    let trace = Trace::parse(&text).unwrap();
    assert!(trace.steps().len() > 3 && Replay::new(&trace).is_none());
}

#[test]
fn what_one_cause_brings_about_is_dumped_once_and_unread_dumps_are_bounded() {
    let mut recording = Recording::flight_recorder(FLIGHT_RECORDER_LEN);
    let fixture = recorded(&recording, "");
    let mut dumps = 0;
    for _ in 0..9 {
        fail(&fixture, 91);
        // Less than a second, and more: every other one is news.
        fixture.pass(Duration::from_millis(600));
        fixture.heartbeat();
    }
    while recording.try_next().is_some() {
        dumps += 1;
    }
    assert_eq!(dumps, 4);
}

/// A client that could not be created has dropped its clone.
#[test]
fn whoever_reads_what_nobody_will_write_is_told_so() {
    let mut recording = Recording::everything();
    let creator = recording.clone();
    let mut task = Task::new(recording.next());
    assert!(task.poll().is_pending());
    drop(creator);
    assert!(task.was_woken());
    assert_eq!(task.poll(), Poll::Ready(None));
}

#[test]
fn whoever_waits_for_a_dump_is_woken_by_it_and_by_nothing_else() {
    let mut recording = Recording::flight_recorder(FLIGHT_RECORDER_LEN);
    let fixture = recorded(&recording, "");
    let mut task = Task::new(recording.next());
    assert!(task.poll().is_pending());
    fixture.pass(Duration::from_secs(10));
    fixture.heartbeat();
    assert!(!task.was_woken(), "nothing has gone wrong");
    fail(&fixture, 91);
    assert!(task.was_woken());
    let Poll::Ready(Some(text)) = task.poll() else { panic!("no dump") };
    assert!(!text.contains("it begins in the middle"), "{text}");
}

/// At most one dump a second: the second one is due when the second is over.
#[test]
fn the_next_dump_comes_a_second_after_the_last_one_at_the_earliest() {
    for (millis, dumps) in [(999, 1), (1000, 2)] {
        let mut recording = Recording::flight_recorder(FLIGHT_RECORDER_LEN);
        let fixture = recorded(&recording, "");
        fail(&fixture, 91);
        fixture.pass(Duration::from_millis(600));
        fixture.heartbeat();
        fixture.pass(Duration::from_millis(millis - 600));
        fail(&fixture, 91);
        let count = std::iter::from_fn(|| recording.try_next()).count();
        assert_eq!(count, dumps, "after {millis} ms");
    }
}

#[test]
fn a_recording_holds_as_much_unread_as_its_bound_and_no_more() {
    const BOUND: usize = 1 << 24;
    for (length, ends) in [(BOUND, false), (BOUND + 1, true)] {
        let mut recording = Recording::everything();
        let _stage = recorded(&recording, "");
        read_all(&mut recording);
        recording.note(&"x".repeat(length - "# \n".len()));
        assert_eq!(read_all(&mut recording).contains("the recording ends here"), ends, "{length}");
    }
}
