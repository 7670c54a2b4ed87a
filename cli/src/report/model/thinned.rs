//! The limits of what is shown: of each stretch of time the worst, and how much that leaves out.

use std::fmt;

use sdam_core::time::Instant;

use super::{Check, Event, Fault, Judgement, Reign, Report, Wait, WaitEnd};
use crate::watch::{State, Tone};

/// The maximum number of checks, of round trip times, of clears and of states of each server, of
/// verdicts, of waits and of errors.
const MAX_POINTS: usize = 1000;

/// The maximum number of events.
const MAX_EVENTS: usize = 2000;

/// Something of which less is shown than there is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Thinned {
    what: String,
    shown: usize,
    of: usize,
}

impl fmt::Display for Thinned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, shown, of } = self;
        write!(f, "{shown} of {of} {what} are shown: the worst of each stretch of time")
    }
}

/// Leaves out of a report what is too much to look at one by one.
pub(super) fn thin(report: &mut Report) -> Vec<Thinned> {
    let (end, mut left_out) = (report.end, Vec::new());
    let mut note = |what: &str, (of, shown): (usize, usize)| {
        if shown < of {
            left_out.push(Thinned { what: what.to_owned(), shown, of });
        }
    };
    for lane in &mut report.lanes {
        let address = lane.address.clone();
        let of = |what: &str| format!("{what} of {address}");
        let limit = (MAX_POINTS, end);
        let spans =
            worst_lasting(&mut lane.spans, limit, |it| (it.from, it.to), |it| badness(it.state));
        note(&of("states"), spans);
        let check = |it: &Check| (it.failure.is_some(), nanos(it.took.unwrap_or_default()));
        note(&of("checks"), worst(&mut lane.checks, limit, |it| it.at, check));
        let trips = worst(&mut lane.round_trips, limit, |it| it.at, |it| nanos(it.took));
        note(&of("round trip times"), trips);
        note(&of("clears"), worst(&mut lane.clears, limit, |it| it.at, |_| ()));
    }
    let limit = (MAX_POINTS, end);
    for (what, judgements) in [("writes", &mut report.writes), ("reads", &mut report.reads)] {
        let judged = worst_lasting(judgements, limit, |it| (it.from, it.to), of_judgement);
        note(&format!("verdicts on {what}"), judged);
    }
    let reigning = |it: &Reign| (it.primary.is_none(), it.to - it.from);
    let reigns = &mut report.primaries;
    note("primaries", worst_lasting(reigns, limit, |it| (it.from, it.to), reigning));
    let waiting = |it: &Wait| (matches!(it.end, WaitEnd::Failed(_)), it.to - it.from);
    note("waits", worst(&mut report.waits, limit, |it| it.from, waiting));
    note("errors", worst(&mut report.errors, limit, |it| it.at, |_| ()));
    note("events", worst(&mut report.events, (MAX_EVENTS, end), |it| it.at, of_event));
    left_out
}

/// Keeps at most so many items: of each of so many stretches of time the worst one, the first of
/// those that are equally bad. Returns how many there were, and how many there are.
fn worst<T, K: Ord>(
    items: &mut Vec<T>,
    (most, end): (usize, Instant),
    at: impl Fn(&T) -> Instant,
    badness: impl Fn(&T) -> K,
) -> (usize, usize) {
    let of = items.len();
    if of > most {
        let stretch = end.as_nanos() / most as u64 + 1;
        let number = |item: &T| at(item).as_nanos() / stretch;
        let mut kept: Vec<T> = Vec::with_capacity(most);
        for item in items.drain(..) {
            match kept.last_mut() {
                Some(last) if number(last) == number(&item) => {
                    if badness(&item) > badness(last) {
                        *last = item;
                    }
                }
                _ => kept.push(item),
            }
        }
        *items = kept;
    }
    (of, items.len())
}

/// The same for what lasts: whatever is not short stays, so that only what is short leaves a gap.
fn worst_lasting<T, K: Ord>(
    items: &mut Vec<T>,
    (most, end): (usize, Instant),
    span: impl Fn(&T) -> (Instant, Instant),
    badness: impl Fn(&T) -> K,
) -> (usize, usize) {
    let of = items.len();
    if of > most {
        // There cannot be more of these than that.
        let half = most / 2;
        let is_long = |item: &T| {
            let (from, to) = span(item);
            (to - from).as_nanos() > u128::from(end.as_nanos() / half as u64)
        };
        let (mut kept, mut short): (Vec<T>, Vec<T>) = items.drain(..).partition(is_long);
        worst(&mut short, (half, end), |item| span(item).0, badness);
        kept.append(&mut short);
        kept.sort_by_key(|item| span(item).0);
        *items = kept;
    }
    (of, items.len())
}

/// Returns how much a state matters where there is room for one.
const fn badness(state: State) -> u8 {
    match state {
        State::Failing => 3,
        State::Unchecked | State::Ghost | State::Other => 2,
        State::Primary => 1,
        _ => 0,
    }
}

fn of_judgement(judgement: &Judgement) -> u8 {
    match &judgement.fault {
        None => 0,
        Some(Fault { is_expected: true, .. }) => 1,
        Some(_) => 2,
    }
}

const fn of_event(event: &Event) -> u8 {
    match event.tone {
        Tone::Quiet => 0,
        Tone::Neutral => 1,
        Tone::Good => 2,
        Tone::Bad | Tone::Notice => 3,
    }
}

/// Times that took some milliseconds, which can be compared.
fn nanos(millis: f64) -> u64 {
    (millis * 1e6) as u64
}

#[cfg(test)]
mod tests {
    use sdam_core::diagnosis::Verdict;

    use super::*;

    #[test]
    fn of_each_stretch_the_worst_is_kept_and_the_first_of_equals() {
        let at = |millis: u64| Instant::from_millis(millis);
        let mut items: Vec<(u64, u8)> = (0..100).map(|it| (it, u8::from(it % 10 == 7))).collect();
        let kept = worst(&mut items, (10, at(99)), |it| at(it.0), |it| it.1);
        assert_eq!(kept, (100, 10));
        assert!(items.iter().all(|it| it.1 == 1), "{items:?}");
        let mut equal: Vec<(u64, u8)> = (0..100).map(|it| (it, 0)).collect();
        worst(&mut equal, (10, at(99)), |it| at(it.0), |it| it.1);
        assert_eq!((equal[0].0, equal[1].0), (0, 10));
    }

    #[test]
    fn as_many_as_are_allowed_stay_as_they_are() {
        let at = |millis: u64| Instant::from_millis(millis);
        let mut items: Vec<u64> = vec![1; 10];
        assert_eq!(worst(&mut items, (10, at(1)), |it| at(*it), |it| *it), (10, 10));
        // All at one moment.
        let mut items: Vec<u64> = vec![1; 11];
        assert_eq!(worst(&mut items, (10, at(1)), |it| at(*it), |it| *it), (11, 1));
    }

    #[test]
    fn of_what_lasts_the_long_stay_and_of_the_short_the_worst() {
        let at = |millis: u64| Instant::from_millis(millis);
        let judgement = |from: u64, to: u64| {
            let since = std::time::Duration::ZERO;
            let fault = (from % 50 == 7).then(|| Fault::new(&Verdict::NoPrimary { since }, None));
            Judgement { from: at(from), to: at(to), line: 1, fault }
        };
        let short = (0..400).map(|from| judgement(from, from + 1));
        let mut items: Vec<Judgement> = short.chain([judgement(400, 1000)]).collect();
        let limit = (20, at(1000));
        let (of, kept) = worst_lasting(&mut items, limit, |it| (it.from, it.to), of_judgement);
        assert!(of == 401 && kept <= 20, "{kept} of {of}");
        assert_eq!(items.last(), Some(&judgement(400, 1000)));
        let (short, _) = items.split_at(items.len() - 1);
        assert!(short.iter().all(|it| it.fault.is_some() && it.to - it.from < it.to - at(0)));
        assert!(items.windows(2).all(|pair| pair[0].to <= pair[1].from), "{items:?}");
    }
}
