//! The omissions of a bounded recording, and that the rest of it is as exact as it says.

use bson::{RawDocumentBuf, rawdoc};
use proptest::prelude::*;

use super::exactness::event;
use super::world::{Event, URI, World};
use crate::config::Options;
use crate::topology::Input;
use crate::trace::part::{MAX_SPARE_LEN, Part};
use crate::trace::{Difference, Replay, Trace};
use crate::wire::{Flags, MAX_HELLO_LEN, write_op_msg};

/// A world whose calls are recorded in so many bytes each.
fn bounded(uri: &str, limit: usize) -> World {
    World::bounded(Options::parse(uri).unwrap(), limit)
}

/// A reply with a field of so many bytes.
fn padded(length: usize) -> RawDocumentBuf {
    rawdoc! { "ok": 1, "msg": "isdbgrid", "maxWireVersion": 17, "padding": "x".repeat(length) }
}

fn message(reply: &RawDocumentBuf) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_op_msg(&mut bytes, 9, 0, Flags::NONE, reply);
    bytes
}

fn replayed(text: &str) -> (Trace, Result<(), Difference>) {
    let trace = Trace::parse(text).unwrap_or_else(|error| panic!("{text}\n{error}"));
    let outcome = Replay::new(&trace).unwrap().finish();
    (trace, outcome)
}

#[test]
fn a_reply_that_is_too_long_is_told_by_its_length_and_nothing_else_is_lost() {
    let mut world = bounded(URI, 20_000);
    world.happen(Event::Opened(0));
    world.say(0, &padded(1_000_000), 4096);
    world.sleep(1000);
    world.happen(Event::Opened(1));
    let text = world.text();
    assert!(text.len() < 20_000, "{}", text.len());
    let gap = text.lines().position(|line| line.contains(" omitted ")).expect("a gap");
    let length = message(&padded(1_000_000)).len();
    let line = text.lines().nth(gap).unwrap();
    assert!(line.ends_with(&format!(" omitted {length} received s0.0")), "{line}");
    assert!(text.lines().nth(gap + 1).unwrap().starts_with("  > "), "what it led to is reported");
    let (trace, outcome) = replayed(&text);
    assert_eq!(outcome, Ok(()), "until there it is exact");
    assert_eq!(trace.gap().expect("a gap").line(), gap + 1);
    assert!(trace.steps().last().unwrap().line() > gap + 1, "what follows can be read");
    assert_eq!(Replay::new(&trace).unwrap().rewrite(), text);
}

#[test]
fn a_message_that_never_becomes_whole_leaves_few_lines_and_no_gap() {
    let mut world = bounded(URI, 20_000);
    world.happen(Event::Opened(0));
    let before = world.text();
    world.say_partly(0, &padded(1_000_000), 100);
    let lines = world.text().lines().count() - before.lines().count();
    assert!((2..30).contains(&lines), "{lines}");
    assert!(world.text().contains(" received s0.0 [5243"), "{}", world.text());
    world.sleep(30_000);
    let (trace, outcome) = replayed(&world.text());
    assert_eq!(outcome, Ok(()));
    assert!(trace.gap().is_none() && world.text().contains("  > close s0.0\n"));
}

#[test]
fn a_part_of_a_message_takes_no_more_memory_than_is_allowed() {
    let mut part = Part::default();
    let claims = i32::try_from(MAX_HELLO_LEN).unwrap().to_le_bytes();
    part.receive(&claims, 1000);
    for _ in 0..200 {
        part.receive(&[0; 4096], 1000);
        assert!(part.reserved() <= MAX_SPARE_LEN, "{}", part.reserved());
    }
    let rest = MAX_HELLO_LEN - 4 - 200 * 4096;
    let next = message(&padded(10));
    let messages = part.receive(&[vec![0; rest], next.clone()].concat(), 1000);
    assert_eq!(messages.omitted, MAX_HELLO_LEN);
    assert_eq!(messages.shown.len(), 1, "the next one is found behind it");
    assert_eq!(part.receive(&next, next.len()).omitted, 0, "it may be as long as that");
    assert_eq!(part.receive(&next, next.len() - 1).omitted, next.len());
}

#[test]
fn actions_that_are_too_many_are_counted_and_their_call_is_replayed() {
    let hosts: Vec<String> = (0..200).map(|number| format!("h{number}.example")).collect();
    let mut world = bounded(&format!("mongodb://{}", hosts.join(",")), 4000);
    world.happen(Event::Opened(0));
    let text = world.text();
    let (trace, outcome) = replayed(&text);
    assert_eq!(outcome, Ok(()));
    let mut steps = trace.steps();
    let first = steps.next().unwrap();
    assert!(first.omits_actions(), "{text}");
    let length: usize = first.lines().map(|(_, line)| line.len() + 1).sum();
    assert!((3000..4100).contains(&length), "{length}");
    assert!(steps.all(|step| !step.omits_actions()), "{text}");
    let whole = Replay::new(&trace).unwrap().rewrite();
    assert!(!whole.contains("omitted") && whole.contains("join s199 "), "{whole}");
    let changed = text.replacen("  > join s0 h0", "  > join s0 x0", 1);
    assert!(replayed(&changed).1.is_err(), "what is there is compared");
}

#[test]
fn any_input_that_is_too_long_is_a_gap() {
    let mut world = bounded(URI, 60);
    world.happen(Event::Append(1));
    let text = world.text();
    let (trace, outcome) = replayed(&text);
    assert_eq!(outcome, Ok(()));
    let gap = trace.gap().expect("a gap").lines().next().unwrap().1;
    assert_eq!(gap, "+0.000000000 omitted 45 append-metadata");
}

#[test]
fn what_was_omitted_has_a_length() {
    let header = "sdam-trace 1\nsdam 0\nmachine topology\noptions mongodb://a\nseed 1\n";
    for (call, is_read) in [("omitted 9 tick", true), ("omitted tick", false), ("omitted", false)] {
        let trace = Trace::parse(format!("{header}+0.000000000 {call}\n"));
        assert_eq!(trace.is_ok(), is_read, "{call}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn whatever_is_left_out_the_rest_is_exact_up_to_the_first_gap(
        events in proptest::collection::vec(event(), 0..60),
        limit in 0..3000_usize,
    ) {
        let mut world = bounded(URI, limit);
        events.into_iter().for_each(|event| world.happen(event));
        world.sleep(61_000);
        world.input(Input::Shutdown);
        let text = world.text();
        let (trace, outcome) = replayed(&text);
        prop_assert_eq!(outcome, Ok(()), "{}", text);
        let mut replay = Replay::new(&trace).unwrap();
        while replay.step().is_some() {}
        if trace.gap().is_none() {
            let left = replay.topology().snapshot();
            let right = world.topology.machine.get().get().snapshot();
            prop_assert_eq!(format!("{left:?}"), format!("{right:?}"));
        }
        for step in trace.steps() {
            let length: usize = step.lines().map(|(_, line)| line.len() + 1).sum();
            prop_assert!(length <= limit + 100, "{} of {}:\n{}", length, limit, text);
        }
    }
}
