//! Puts a report together from facts, in the order in which they happened.

use std::collections::BTreeMap;
use std::time::Duration;

use sdam_core::time::Instant;

use super::secrets::without_secrets;
use super::thinned::{self, Thinned};
use super::{
    Check, Event, Fault, Headline, Judgement, Lane, Mark, Origin, Reign, Report, RoundTrip, Span,
    Tally, Wait, WaitEnd, headline,
};
use crate::text::abridged;
use crate::watch::{State, Tone};

/// The maximum length of a line that is shown as it is, in characters.
const MAX_RAW_LEN: usize = 500;

/// A report that is being put together. Texts of others lose their secrets where they come in, so
/// that nothing that is made of them has any.
#[derive(Debug, Default)]
pub(in crate::report) struct Builder {
    lanes: BTreeMap<String, Open>,
    /// True if the deployment is a replica set.
    is_set: bool,
    reigns: Vec<Reign>,
    writes: Vec<Judgement>,
    reads: Vec<Judgement>,
    waits: Vec<Wait>,
    /// The indexes of the waits that go on, by who waits.
    waiting: BTreeMap<u64, usize>,
    errors: Vec<Mark>,
    events: Vec<Event>,
    notes: Vec<String>,
}

/// A lane that may go on.
#[derive(Debug)]
struct Open {
    lane: Lane,
    /// True if the server is a member now.
    is_member: bool,
    /// The last failure, while the server is not known.
    error: Option<String>,
}

impl Builder {
    /// A server has this state from now on; of one that is failing, [`failing`](Self::failing) says
    /// why.
    pub(in crate::report) fn state(
        &mut self,
        (at, line): (Instant, usize),
        address: &str,
        state: State,
    ) {
        let open = self.open(address);
        let state = match state {
            State::Unchecked if open.error.is_some() && open.is_member => State::Failing,
            state => state,
        };
        if state != State::Failing {
            open.error = None;
        }
        open.enter(at, line, state);
    }

    /// The checks of a server fail for this reason, if it is not known.
    pub(in crate::report) fn failing(
        &mut self,
        (at, line): (Instant, usize),
        address: &str,
        error: &str,
    ) {
        let open = self.open(address);
        open.error = Some(clean(error));
        let last = open.lane.spans.last();
        if open.is_member
            && last.is_some_and(|it| matches!(it.state, State::Unchecked | State::Failing))
        {
            open.enter(at, line, State::Failing);
        }
    }

    /// Returns the state of a server now, if it is a member.
    pub(in crate::report) fn state_of(&self, address: &str) -> Option<State> {
        let open = self.lanes.get(&*without_secrets(address)).filter(|open| open.is_member)?;
        open.lane.spans.last().map(|span| span.state)
    }

    /// Returns the first member that has this state.
    pub(in crate::report) fn find(&self, state: State) -> Option<String> {
        let mut servers = self.lanes.keys().filter(|it| self.state_of(it) == Some(state));
        servers.next().cloned()
    }

    /// Returns the states of all members.
    pub(in crate::report) fn states(&self) -> impl Iterator<Item = State> {
        let members = self.lanes.values().filter(|open| open.is_member);
        members.filter_map(|open| open.lane.spans.last()).map(|span| span.state)
    }

    /// A server is a member no more.
    pub(in crate::report) fn left(&mut self, at: Instant, address: &str) {
        let open = self.open(address);
        open.is_member = false;
        open.error = None;
        if let Some(span) = open.lane.spans.last_mut() {
            span.to = at;
        }
    }

    /// The set has this primary from now on, or none.
    pub(in crate::report) fn primary(
        &mut self,
        (at, line): (Instant, usize),
        primary: Option<&str>,
    ) {
        self.is_set = true;
        let primary = primary.map(clean);
        let last = self.reigns.last_mut();
        if last.as_ref().is_some_and(|last| last.primary == primary) {
            return;
        }
        if let Some(last) = last {
            last.to = at;
            if last.from == at {
                self.reigns.pop();
            }
        }
        self.reigns.push(Reign { from: at, to: at, line, primary, reason: None });
    }

    /// Returns whether another member has become primary since the beginning, or the same again.
    pub(in crate::report) fn has_changed_primary(&self) -> bool {
        self.reigns.iter().filter(|reign| reign.primary.is_some()).count() > 1
    }

    /// Returns since when there has been no primary, if there is none.
    pub(in crate::report) fn without_primary(&self) -> Option<Instant> {
        let last = self.reigns.last().filter(|last| last.primary.is_none())?;
        Some(last.from)
    }

    /// Operations meet this from now on.
    pub(in crate::report) fn judge(
        &mut self,
        moment: (Instant, usize),
        writes: Option<Fault>,
        reads: Option<Fault>,
    ) {
        // A server without an answer so far may be the one.
        let is_asking = self.states().any(|state| state == State::Unchecked);
        for (judgements, fault) in [(&mut self.writes, writes), (&mut self.reads, reads)] {
            let has_worked = judgements.iter().any(|it| it.fault.is_none());
            let is_expected = is_asking && !has_worked;
            let fault = fault.map(|it| Fault { is_expected: it.is_expected || is_expected, ..it });
            judge(judgements, moment, fault);
        }
    }

    /// A check has ended.
    pub(in crate::report) fn check(&mut self, address: &str, mut check: Check) {
        check.failure = check.failure.as_deref().map(clean);
        self.open(address).lane.checks.push(check);
    }

    /// The average round trip time of a server.
    pub(in crate::report) fn round_trip(&mut self, at: Instant, address: &str, took: Duration) {
        let took = took.as_nanos() as f64 / 1e6;
        let trips = &mut self.open(address).lane.round_trips;
        if trips.last().is_none_or(|last| last.took != took) {
            trips.push(RoundTrip { at, took });
        }
    }

    /// The pool of a server was cleared.
    pub(in crate::report) fn cleared(&mut self, mark: Mark) {
        let mark = cleaned(mark);
        self.open(&mark.subject).lane.clears.push(mark);
    }

    /// An operation has met an error.
    pub(in crate::report) fn error(&mut self, mark: Mark) {
        self.errors.push(cleaned(mark));
    }

    /// An operation waits for a server.
    pub(in crate::report) fn waits(&mut self, (at, line): (Instant, usize), waiter: u64) {
        self.waiting.insert(waiter, self.waits.len());
        self.waits.push(Wait { from: at, to: at, line, end: WaitEnd::Open });
    }

    /// An operation waits no more.
    pub(in crate::report) fn waited(&mut self, at: Instant, waiter: u64, end: WaitEnd) {
        let end = match end {
            WaitEnd::Failed(error) => WaitEnd::Failed(clean(&error)),
            end => end,
        };
        if let Some(index) = self.waiting.remove(&waiter) {
            let wait = &mut self.waits[index];
            (wait.to, wait.end) = (at, end);
        }
    }

    /// Something has happened that is worth a line.
    pub(in crate::report) fn add(&mut self, event: Event) {
        let (subject, text) = (clean(&event.subject), clean(&event.text));
        self.events.push(Event { subject, text, ..event });
    }

    /// Something is missing, or the reader has to know it.
    pub(in crate::report) fn note(&mut self, mut note: String) {
        note = clean(&note);
        self.notes.push(note);
    }

    /// Ends the report; `raw` returns a line of what was read.
    pub(in crate::report) fn finish<'t>(
        mut self,
        origin: Origin,
        end: Instant,
        raw: impl Fn(usize) -> &'t str,
    ) -> Report {
        self.close(end);
        let origin = Origin { deployment: clean(&origin.deployment), ..origin };
        let primaries = if self.is_set { self.with_reasons() } else { Vec::new() };
        self.add_primaries(&primaries);
        self.add_judgements();
        self.events.sort_by_key(|event| (event.at, event.line));
        self.events = gathered(&self.events);
        let headline = Headline::new(&primaries, &self.writes, (&self.waits, &self.errors), end);
        let lanes = self.lanes.into_values().map(|open| open.lane);
        let mut report = Report {
            origin,
            end,
            headline,
            primaries,
            writes: self.writes,
            reads: self.reads,
            // Of all that there was: what is left out counts too.
            lanes: lanes.map(|lane| Lane { tally: Tally::new(&lane, end), ..lane }).collect(),
            waits: self.waits,
            errors: self.errors,
            events: self.events,
            notes: self.notes,
        };
        let left_out: Vec<Thinned> = thinned::thin(&mut report);
        report.notes.extend(left_out.iter().map(ToString::to_string));
        for event in &mut report.events {
            let line = without_secrets(raw(event.line).trim());
            event.raw = abridged(&line, MAX_RAW_LEN).into_owned();
        }
        report
    }

    fn open(&mut self, address: &str) -> &mut Open {
        let address = clean(address);
        self.lanes.entry(address.clone()).or_insert_with(|| Open {
            lane: Lane {
                address,
                spans: Vec::new(),
                checks: Vec::new(),
                round_trips: Vec::new(),
                clears: Vec::new(),
                tally: Tally::default(),
            },
            is_member: false,
            error: None,
        })
    }

    /// Lets everything that goes on go on until the end.
    fn close(&mut self, end: Instant) {
        let lanes = self.lanes.values_mut().filter(|open| open.is_member);
        let spans = lanes.filter_map(|open| open.lane.spans.last_mut()).map(|span| &mut span.to);
        let reigns = self.reigns.last_mut().map(|reign| &mut reign.to);
        let judgements = [self.writes.last_mut(), self.reads.last_mut()];
        let judgements = judgements.into_iter().flatten().map(|judgement| &mut judgement.to);
        let waits = self.waits.iter_mut().filter(|wait| wait.end == WaitEnd::Open);
        let waits = waits.map(|wait| &mut wait.to);
        spans.chain(reigns).chain(judgements).chain(waits).for_each(|to| *to = end);
    }

    /// Says of each primary that is none any more what has become of it.
    fn with_reasons(&self) -> Vec<Reign> {
        let mut reigns = self.reigns.clone();
        for index in 1..reigns.len() {
            let Some(old) = reigns[index - 1].primary.clone() else { continue };
            let at = reigns[index].from;
            let span = self.lanes.get(&old).and_then(|open| open.lane.at(at));
            reigns[index].reason = Some(match span {
                None => "it left".to_owned(),
                Some(Span { error: Some(error), .. }) => error.clone(),
                Some(span) if span.state == State::Primary => "another one was elected".to_owned(),
                Some(span) if matches!(span.state, State::Secondary | State::Other) => {
                    "it stepped down".to_owned()
                }
                Some(span) => format!("its state is now {}", span.state.name()),
            });
        }
        reigns
    }

    fn add_primaries(&mut self, reigns: &[Reign]) {
        let mut is_first = true;
        for (index, reign) in reigns.iter().enumerate() {
            let Some(primary) = &reign.primary else { continue };
            let before = index.checked_sub(1).map(|before| &reigns[before]);
            let text = match before {
                _ if is_first => "primary".to_owned(),
                Some(gap) if gap.primary.is_none() => {
                    format!("primary, after {} without one", headline::lasting(gap.to - gap.from))
                }
                _ => "primary, while there was another".to_owned(),
            };
            is_first = false;
            let moment = (reign.from, reign.line);
            self.events.push(Event::new(moment, Tone::Good, primary, text));
        }
    }

    fn add_judgements(&mut self) {
        for (subject, judgements) in [("writes", &self.writes), ("reads", &self.reads)] {
            for (index, judgement) in judgements.iter().enumerate() {
                let before = index.checked_sub(1).and_then(|it| judgements[it].fault.as_ref());
                let lasts = headline::lasting(judgement.to - judgement.from);
                let (tone, text) = match &judgement.fault {
                    Some(fault) if !fault.is_expected => {
                        (Tone::Bad, format!("fail for {lasts}: {}", fault.cause))
                    }
                    None if before.is_some_and(|before| !before.is_expected) => {
                        (Tone::Good, "find a server again".to_owned())
                    }
                    _ => continue,
                };
                let moment = (judgement.from, judgement.line);
                self.events.push(Event::new(moment, tone, subject, text));
            }
        }
    }
}

impl Open {
    fn enter(&mut self, at: Instant, line: usize, state: State) {
        let error = if state == State::Failing { self.error.clone() } else { None };
        let spans = &mut self.lane.spans;
        if let Some(last) = spans.last_mut().filter(|_| self.is_member) {
            last.to = at;
            if last.state == state {
                // Why it began matters more than how it goes on.
                last.error = last.error.take().or(error);
                return;
            }
            // It was never visible.
            if last.from == at {
                spans.pop();
                if let Some(before) = spans.last_mut()
                    && before.state == state
                    && before.to == at
                {
                    return;
                }
            }
        }
        self.is_member = true;
        spans.push(Span { from: at, to: at, line, state, error });
    }
}

impl Lane {
    /// Returns what the server was at a moment.
    pub(in crate::report) fn at(&self, at: Instant) -> Option<&Span> {
        let begun = self.spans.partition_point(|span| span.from <= at);
        self.spans[..begun].last().filter(|span| at < span.to)
    }
}

fn clean(text: &str) -> String {
    without_secrets(text).into_owned()
}

fn cleaned(mut mark: Mark) -> Mark {
    (mark.subject, mark.text) = (clean(&mark.subject), clean(&mark.text));
    mark
}

/// Joins equal events in a row into one that says how often it has happened.
fn gathered(events: &[Event]) -> Vec<Event> {
    let same = |one: &Event, next: &Event| one.subject == next.subject && one.text == next.text;
    let runs = events.chunk_by(same).map(|run| {
        let mut event = run[0].clone();
        if let [_, .., last] = run {
            let (count, until) = (run.len(), headline::seconds(last.at));
            event.text += &format!(" ({count} times, until {until})");
        }
        event
    });
    runs.collect()
}

fn judge(judgements: &mut Vec<Judgement>, (at, line): (Instant, usize), fault: Option<Fault>) {
    let verdict =
        |fault: &Option<Fault>| fault.as_ref().map(|fault| (fault.verdict, fault.is_expected));
    if let Some(last) = judgements.last_mut() {
        last.to = at;
        if verdict(&last.fault) == verdict(&fault) {
            last.fault = fault;
            return;
        }
        if last.from == at {
            judgements.pop();
            if let Some(before) = judgements.last_mut()
                && verdict(&before.fault) == verdict(&fault)
            {
                before.fault = fault;
                return;
            }
        }
    }
    judgements.push(Judgement { from: at, to: at, line, fault });
}
