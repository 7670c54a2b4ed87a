//! Flight recorders keep the history, whatever a server sends.

use std::time::Duration;

use bson::rawdoc;

use super::fixture::Fixture;
use super::recordings::{fail, recorded};
use crate::observe::recording::Recording;
use sdam_core::time::Instant;
use sdam_core::trace::{Replay, Trace};
use sdam_core::wire::{Flags, write_op_msg};

/// A bound that a hello of this server and all that follows from it is a small part of.
const LIMIT: usize = 64 << 10;

/// Answers the hello of the monitor by so many bytes, as they come from a socket.
fn answer_with(fixture: &Fixture, padding: usize) {
    let usual = Fixture::reply_to_hello(&fixture.link);
    let request = i32::from_le_bytes(usual[8..12].try_into().unwrap());
    let reply = rawdoc! {
        "ok": 1, "isWritablePrimary": true, "minWireVersion": 0, "maxWireVersion": 17,
        "padding": "x".repeat(padding),
    };
    let mut bytes = Vec::new();
    write_op_msg(&mut bytes, 1, request, Flags::NONE, &reply);
    bytes.chunks(4096).for_each(|bytes| fixture.link.received(bytes));
}

fn dumped(recording: &mut Recording) -> String {
    let text = recording.try_next().expect("a dump");
    assert!(text.len() < LIMIT * 5 / 4, "{}", text.len());
    text
}

#[test]
fn a_reply_of_a_megabyte_does_not_empty_it_and_the_replay_goes_as_far_as_that() {
    let mut recording = Recording::flight_recorder(LIMIT);
    let fixture = recorded(&recording, "&heartbeatFrequencyMS=500");
    for padding in [0, 1_000_000, 500_000, 20_000, 0] {
        fixture.pass(Duration::from_millis(500));
        answer_with(&fixture, padding);
    }
    fixture.pass(Duration::from_millis(500));
    fixture.heartbeat();
    fail(&fixture, 91);
    let text = dumped(&mut recording);
    assert!(text.starts_with("sdam-trace 2 sealed\n"), "nothing before is lost");
    let omitted: Vec<&str> = text.lines().filter(|line| line.contains(" omitted ")).collect();
    assert_eq!(omitted.len(), 3, "{omitted:#?}");
    for (line, length) in omitted.iter().zip(["1000", "500", "20"]) {
        let told = line.split(' ').nth(2).unwrap();
        assert!(told.starts_with(length), "{line}");
        assert!(line.contains(" received s0.0 ~"), "{line}");
    }
    let trace = Trace::parse(&text).unwrap();
    assert_eq!(Replay::new(&trace).expect("the beginning is there").finish(), Ok(()));
    assert_eq!(Replay::new(&trace).unwrap().rewrite(), text);
    let gap = trace.gap().expect("a gap");
    assert!(gap.at().since_origin() == Duration::from_millis(1000), "{gap:?}");
    assert!(trace.steps().last().unwrap().at() > gap.at(), "what came later is there");
}

#[test]
fn a_long_comment_of_the_application_does_not_empty_it() {
    let mut recording = Recording::flight_recorder(LIMIT);
    let fixture = recorded(&recording, "");
    recording.note(&"x".repeat(1 << 20));
    recording.note("and this");
    fail(&fixture, 91);
    let text = dumped(&mut recording);
    assert!(text.contains("# a comment of 1048579 bytes is left out ~"), "{text}");
    assert!(text.contains("# and this ~"), "{text}");
    assert_eq!(Replay::new(&Trace::parse(&text).unwrap()).unwrap().finish(), Ok(()));
}

#[test]
fn attempts_that_fail_all_the_time_do_not_empty_it() {
    let mut recording = Recording::flight_recorder(LIMIT);
    let fixture = recorded(&recording, "");
    let fails = |at: Duration| recording.put_attempt(Instant::ZERO + at, "# ping has failed\n");
    (0..1000).for_each(|number| fails(Duration::from_millis(number)));
    fails(Duration::from_secs(1));
    recording.dump(fixture.now(), &fixture.host.view(), || "a test has asked for it".to_owned());
    let text = dumped(&mut recording);
    assert_eq!(text.matches("# ping has failed").count(), 2, "{text}");
    assert!(text.contains("# 999 attempts that failed before are left out ~"), "{text}");
    assert_eq!(Replay::new(&Trace::parse(&text).unwrap()).unwrap().finish(), Ok(()));
}

#[test]
fn a_bound_of_nothing_keeps_nothing() {
    for limit in [0, 1, 100] {
        let mut recording = Recording::flight_recorder(limit);
        let fixture = recorded(&recording, "");
        fail(&fixture, 91);
        let text = recording.try_next().expect("a dump");
        assert!(text.starts_with("sdam-trace 2 sealed tail\n"), "{text}");
        assert!(Trace::parse(&text).is_ok(), "{text}");
    }
}

#[test]
fn a_comment_of_a_quarter_of_the_bound_is_kept_and_a_longer_one_left_out() {
    for (length, is_kept) in [(LIMIT / 4, true), (LIMIT / 4 + 1, false)] {
        let mut recording = Recording::flight_recorder(LIMIT);
        let fixture = recorded(&recording, "");
        recording.note(&"x".repeat(length - "# \n".len()));
        fail(&fixture, 91);
        let text = dumped(&mut recording);
        assert_eq!(!text.contains("is left out"), is_kept, "{length}");
    }
}

#[test]
fn calls_that_are_as_long_as_the_bound_are_all_kept() {
    let mut recording = Recording::flight_recorder(LIMIT);
    let fixture = recorded(&recording, "");
    for letter in ["a", "b", "c", "d"] {
        recording.note(&letter.repeat(LIMIT / 4 - "# \n".len()));
    }
    recording.dump(fixture.now(), &fixture.host.view(), || "a test has asked for it".to_owned());
    let text = dumped(&mut recording);
    let kept = |letter: &&str| text.contains(&format!("# {}", letter.repeat(100)));
    assert_eq!(["a", "b", "c", "d"].iter().filter(|letter| kept(letter)).count(), 4);
}
