//! Streams that miss changes, or have one twice, are found.

use bson::{Bson, Timestamp};
use sdam_core::bson;
use sdam_core::time::Instant;

use super::{From, Known, Seen, Stories, Watched};

fn seen(second: u32) -> Seen {
    let time = Timestamp { time: second, increment: 1 };
    Seen::new(time, "insert".to_owned(), Some(Bson::Int64(second.into())))
}

fn at(second: u32) -> Instant {
    Instant::from_millis(u64::from(second) * 1_000)
}

/// A stream, and changes of the first to the fifth second.
fn stories(is_copied: bool) -> Stories {
    let mut stories = Stories::default();
    let known =
        (1..=5).map(|second| Known { at: at(second), entry: second.into(), seen: seen(second) });
    stories.changes.insert(Watched::Collection, known.collect());
    stories.begin(0, Watched::Collection, is_copied);
    stories
}

/// Returns what is found if a stream hands out these changes after this beginning.
fn judge(stories: &mut Stories, from: From, seconds: &[u32]) -> Option<&'static str> {
    stories.begins(0, from);
    seconds.iter().for_each(|second| stories.hands_out(0, seen(*second)));
    let learned = stories.learn(Default::default());
    learned.err().map(|(_, violation)| violation.check)
}

const ONCE: Option<&str> = Some("streams hand out each change once and in order");

#[test]
fn changes_that_are_missed_or_come_again_are_found() {
    let from = From::Now(at(2));
    for (seconds, found) in [
        (&[3, 4, 5][..], None),
        (&[2, 3, 4], None),
        (&[4], ONCE),
        (&[3, 5], ONCE),
        (&[3, 3], ONCE),
        (&[3, 4, 3], ONCE),
        (&[3, 9], ONCE),
    ] {
        assert_eq!(judge(&mut stories(false), from, seconds), found, "{seconds:?}");
    }
}

#[test]
fn another_life_goes_on_where_it_is_to() {
    let of = |second| From::At(Timestamp { time: second, increment: 1 });
    let (stored, late) = (From::Stored { may_be_late: false }, From::Stored { may_be_late: true });
    for (from, next, found) in [
        (From::Behind, 4, None),
        (From::Behind, 3, ONCE),
        (From::Behind, 5, ONCE),
        (of(3), 3, None),
        (of(3), 4, ONCE),
        (stored, 3, None),
        (stored, 4, None),
        (stored, 2, ONCE),
        (stored, 5, ONCE),
        (late, 2, None),
        (late, 5, ONCE),
        (From::Now(at(9)), 4, Some("streams go on where they have ended")),
    ] {
        let mut stories = stories(false);
        assert_eq!(judge(&mut stories, From::Now(at(1)), &[2, 3]), None);
        assert_eq!(judge(&mut stories, from, &[next]), found, "{from:?}, {next}");
    }
}

#[test]
fn a_stream_whose_history_is_lost_begins_anew() {
    let mut stories = stories(false);
    assert_eq!(judge(&mut stories, From::Now(at(0)), &[1]), None);
    stories.is_lost(0);
    assert_eq!(judge(&mut stories, From::Now(at(3)), &[4, 5]), None);
}

#[test]
fn a_stream_that_has_not_handed_out_everything_is_found() {
    let mut stories = stories(false);
    assert_eq!(judge(&mut stories, From::Now(at(3)), &[4]), None);
    assert!(!stories.is_done(0), "it is not known whether more is to come");
    stories.is_final = true;
    let (_, found) = stories.finish().unwrap_err();
    assert_eq!(found.check, "streams hand out all changes in the end");
    assert_eq!(judge(&mut stories, From::Behind, &[5]), None);
    stories.finish().unwrap();
}

/// Returns whether something is wrong with these copies.
fn is_wrong(stories: &mut Stories, seconds: &[u32]) -> bool {
    let copies = seconds.iter().map(|second| (at(9), seen(*second).to_copy(0, 1)));
    stories.copies = copies.collect();
    stories.learn(Default::default()).is_err()
}

#[test]
fn copies_that_are_missing_or_there_twice_are_found() {
    for (seconds, is_found) in [(&[2, 3][..], false), (&[2, 2], true), (&[3], true)] {
        let mut stories = stories(true);
        assert_eq!(judge(&mut stories, From::Now(at(1)), &[2, 3]), None);
        assert_eq!(is_wrong(&mut stories, seconds), is_found, "{seconds:?}");
    }
}

#[test]
fn a_life_that_is_left_does_not_stand_for_the_copies_of_the_one_before() {
    let mut stories = stories(true);
    assert_eq!(judge(&mut stories, From::Now(at(1)), &[2]), None);
    assert_eq!(judge(&mut stories, From::Left(at(8)), &[]), None);
    assert!(!is_wrong(&mut stories, &[2]));
    assert!(is_wrong(&mut stories, &[2]));
}

#[test]
fn what_was_under_way_when_history_was_lost_may_be_copied_later() {
    for (before, after, is_found) in [
        (&[][..], &[3][..], false),
        (&[], &[3, 5], false),
        (&[3, 4], &[5], false),
        (&[3], &[5], false),
        (&[3], &[3], true),
        (&[2], &[5], true),
        (&[], &[4, 3], true),
    ] {
        let mut stories = stories(true);
        assert_eq!(judge(&mut stories, From::Now(at(1)), &[2, 3]), None);
        assert!(!is_wrong(&mut stories, &[2]));
        stories.is_lost(0);
        let is_wrong_before = is_wrong(&mut stories, before);
        assert_eq!(judge(&mut stories, From::Now(at(4)), &[5]), None);
        let is_wrong_after = is_wrong(&mut stories, after);
        assert_eq!(is_wrong_before || is_wrong_after, is_found, "{before:?}, {after:?}");
    }
}
