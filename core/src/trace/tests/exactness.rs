//! Recordings that are replayed exactly, and changes that are found with their lines.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use proptest::prelude::*;

use super::world::{Event, URI, World};
use crate::config::Options;
use crate::machine::{Lawful, Machine};
use crate::time::{Instant, Time};
use crate::topology::Topology;
use crate::trace::{LineError, Recorder, Replay, Seal, Trace, TraceError};

pub(super) fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (0..3000_u16).prop_map(Event::Sleep),
        4 => any::<u8>().prop_map(Event::Opened),
        8 => (any::<u8>(), any::<u8>(), 0..2_u16).prop_map(|(a, b, c)| Event::Reply(a, b, c)),
        1 => any::<(u8, u8)>().prop_map(|(a, b)| Event::Garbage(a, b)),
        2 => any::<u8>().prop_map(Event::Closed),
        3 => any::<u8>().prop_map(Event::Wait),
        1 => (0..9_u8).prop_map(Event::Abandon),
        3 => any::<(u8, u8)>().prop_map(|(a, b)| Event::Failed(a, b)),
        1 => Just(Event::RequestCheck),
        1 => any::<u8>().prop_map(Event::Append),
        1 => any::<u8>().prop_map(Event::Resolved),
    ]
}

/// Options of every kind of client, and for deployments of every kind.
fn options(kind: u8) -> Options {
    let builder = |uri: &str| Options::builder().uri(uri).unwrap();
    match kind {
        0 => builder(URI).build().unwrap(),
        1 => builder(URI).single_threaded(true).build().unwrap(),
        2 => {
            let once = format!("{URI}&serverSelectionTryOnce=false");
            builder(&once).single_threaded(true).build().unwrap()
        }
        3 => builder("mongodb://a.example/?loadBalanced=true").build().unwrap(),
        _ => {
            let srv = builder("mongodb+srv://x.example.com/?srvMaxHosts=2").build().unwrap();
            srv.resolved(vec!["h1.example.com".parse().unwrap()], "").unwrap()
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn whatever_happens_a_trace_of_it_replays_exactly(
        events in proptest::collection::vec(event(), 0..60),
        kind in 0..5_u8,
    ) {
        let mut world = World::with(options(kind));
        events.into_iter().for_each(|event| world.happen(event));
        world.sleep(61_000);
        world.input(crate::topology::Input::Shutdown);
        let text = world.text();
        let trace = Trace::parse(&text).unwrap();
        let mut replay = Replay::new(&trace).unwrap();
        if let Err(difference) = replay.finish() {
            panic!("{text}\n{difference}");
        }
        prop_assert_eq!(Replay::new(&trace).unwrap().rewrite(), text);
        let (left, right) = (replay.topology().snapshot(), world.topology.machine.get().get().snapshot());
        prop_assert_eq!(format!("{left:?}"), format!("{right:?}"));
    }

    #[test]
    fn no_text_makes_the_reader_or_a_replay_panic(text in any::<String>(), line in "[ -~]{0,60}") {
        let _ = Trace::parse(&text);
        let header = "sdam-trace 1\nsdam 0\nmachine topology\noptions mongodb://a\nseed 1\n";
        if let Ok(trace) = Trace::parse(format!("{header}+0.000000000 {line}\n")) {
            let _ = Replay::new(&trace).unwrap().finish();
        }
    }
}

/// A short trace, sealed.
fn sealed() -> String {
    let mut world = World::new(URI);
    for event in [Event::Opened(0), Event::Reply(0, 10, 1), Event::Failed(0, 4)] {
        world.happen(event);
    }
    let text = world.text();
    let (first, rest) = text.split_once('\n').unwrap();
    format!("{first} sealed\n{}", Seal::new().seal(rest))
}

#[test]
fn any_changed_byte_of_a_sealed_trace_is_reported_with_its_line() {
    let text = sealed();
    let trace = Trace::parse(&text).unwrap();
    assert_eq!(Replay::new(&trace).unwrap().rewrite(), text);
    let mut line = 1;
    for index in 0..text.len() - 1 {
        let mut changed = text.clone().into_bytes();
        for change in [1, 0x20, 0x80] {
            changed[index] ^= change;
            let error = Trace::parse(&changed).unwrap_err();
            let TraceError::Line { line: reported, .. } = error else { panic!("{error}") };
            assert_eq!(reported, line, "byte {index} ^ {change}: {error}");
            changed[index] ^= change;
        }
        line += usize::from(text.as_bytes()[index] == b'\n');
    }
}

#[test]
fn a_missing_line_of_a_sealed_trace_is_reported_where_it_should_be() {
    let text = sealed();
    let mut lines: Vec<&str> = text.lines().collect();
    lines.remove(9);
    let error = Trace::parse(lines.join("\n")).unwrap_err();
    let is_seal = matches!(error, TraceError::Line { line: 10, error: LineError::Seal { .. } });
    assert!(is_seal, "{error}");
}

#[test]
fn an_action_that_was_changed_in_an_open_trace_is_the_first_difference() {
    let mut world = World::new(URI);
    world.happen(Event::Opened(0));
    let text = world.text();
    let at = text.lines().position(|line| line.starts_with("  > open s0.0")).unwrap();
    let changed = text.replace("  > open s0.0 a.example", "  > open s0.0 z.example");
    let trace = Trace::parse(&changed).unwrap();
    let difference = Replay::new(&trace).unwrap().finish().unwrap_err();
    assert_eq!(difference.line, at + 1);
    assert_eq!(difference.recorded.as_deref(), Some("open s0.0 z.example:27017"));
    assert_eq!(difference.replayed.as_deref(), Some("open s0.0 a.example:27017"));
    assert_eq!(Replay::new(&trace).unwrap().rewrite(), text, "it can be put right");
}

#[test]
fn what_the_clock_shows_besides_the_time_is_replayed_too() {
    let options = std::sync::Arc::new(crate::config::Options::parse(URI).unwrap());
    let text = std::sync::Arc::<std::sync::Mutex<String>>::default();
    let sink = std::sync::Arc::clone(&text);
    let mut recorder = Recorder::off(Topology::new(options.clone(), 3));
    recorder.record(&options, 3, move |lines| sink.lock().unwrap().push_str(lines));
    let mut out = Vec::new();
    recorder.tick(Instant::ZERO.into(), &mut out);
    let late = Time { judged: Instant::from_millis(4), clock: Instant::from_millis(5000) };
    recorder.handle(late, crate::topology::Input::RequestCheck, &mut out);
    recorder.handle(Instant::from_millis(6).into(), crate::topology::Input::Shutdown, &mut out);
    let text = text.lock().unwrap();
    assert!(text.contains("+0.004000000@+5.000000000 request-check\n"), "{text}");
    let trace = Trace::parse(&*text).unwrap();
    assert_eq!(Replay::new(&trace).unwrap().finish(), Ok(()));
}

#[test]
fn answers_that_no_predicate_was_asked_for_are_a_difference_and_are_not_written_again() {
    let header = "sdam-trace 1\nsdam 0\nmachine topology\noptions mongodb://a\nseed 1\n";
    let calls = "+0.000000000 tick\n+1.000000000 request-check\n  ? yes no\n";
    let trace = Trace::parse(format!("{header}{calls}")).unwrap();
    let difference = Replay::new(&trace).unwrap().finish().unwrap_err();
    assert_eq!(difference.line, 6, "the actions of the first call are missing");
    let text = Replay::new(&trace).unwrap().rewrite();
    assert!(!text.contains("yes"), "{text}");
    assert_eq!(Replay::new(&Trace::parse(&text).unwrap()).unwrap().finish(), Ok(()));
}

#[test]
fn no_machine_is_called_at_the_end_of_time() {
    let header = "sdam-trace 1\nsdam 0\nmachine topology\noptions mongodb://a\nseed 1\n";
    for times in ["+18446744073.709551615", "+1.000000000@+18446744073.709551615"] {
        let error = Trace::parse(format!("{header}{times} tick\n")).unwrap_err().to_string();
        assert_eq!(error, "line 6: the time is malformed: it is the end of time");
    }
    let last = format!("{header}+18446744073.709551614 tick\n");
    assert!(Replay::new(&Trace::parse(last).unwrap()).unwrap().finish().is_err());
}

#[test]
fn a_call_that_panics_is_the_last_one_of_its_trace() {
    let (text, sink) = shared();
    let options = options(0);
    let mut recorder = Recorder::off(Lawful::new(Topology::new(Arc::new(options.clone()), 7)));
    recorder.record(&options, 7, sink);
    recorder.tick(Instant::from_millis(5).into(), &mut Vec::new());
    let back =
        catch_unwind(AssertUnwindSafe(|| recorder.tick(Instant::ZERO.into(), &mut Vec::new())));
    assert!(back.is_err(), "law 1: time never goes back");
    assert!(!text.lock().unwrap().contains("+0.000000000 tick"));
    recorder.write_broken_call();
    recorder.write_broken_call();
    let text = text.lock().unwrap();
    assert_eq!(text.matches("+0.000000000 tick\n").count(), 1);
    assert!(text.ends_with("+0.000000000 tick\n"), "{text}");
}

fn shared() -> (Arc<Mutex<String>>, impl FnMut(&str) + Send) {
    let text = Arc::new(Mutex::new(String::new()));
    let sink = Arc::clone(&text);
    (text, move |lines: &str| sink.lock().unwrap().push_str(lines))
}
