//! A report as a plot in the terminal: a line for each lane, and the events below.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::io::{self, IsTerminal};
use std::time::Duration;

use ratatui::crossterm::terminal;
use sdam_core::time::Instant;

use super::model::{Event, Judgement, Lane, Reign, Report, Span, lasting, seconds};
use crate::duration::precise;
use crate::text::{abridged, escaped};
use crate::watch::{State, Tone, bars, worst_within};

/// The width if the output is no terminal, and the least one.
const WIDTH: usize = 100;
const LEAST_WIDTH: usize = 60;

/// The greatest width of the names before the lanes.
const MAX_NAME_LEN: usize = 28;

/// The least number of letters that an address may be cut to.
const LEAST_NAME_LEN: usize = 8;

/// The least number of cells between two times of the scale.
const LEAST_TICK: usize = 12;

/// Returns the width of the terminal, or the usual one.
pub(super) fn width() -> usize {
    let size = match io::stdout().is_terminal() {
        true => terminal::size().ok(),
        false => None,
    };
    size.map_or(WIDTH, |(columns, _)| usize::from(columns)).max(LEAST_WIDTH)
}

/// Draws a report, at most so many characters wide but for its texts.
pub(super) fn print(report: &Report, width: usize, color: bool) -> String {
    let names = report.lanes.iter().map(|lane| lane.address.chars().count());
    let gutter = names.max().unwrap_or_default().clamp(12, MAX_NAME_LEN);
    let scale = Scale { end: report.end, width: width.saturating_sub(gutter + 2).max(1) };
    let mut plot = Plot { text: String::new(), gutter, scale, color };
    plot.head(report);
    plot.lanes(report);
    plot.events(&report.events);
    for note in &report.notes {
        plot.line(&format!("note: {note}"), Paint::Quiet);
    }
    plot.text
}

/// The time that each cell stands for.
#[derive(Clone, Copy, Debug)]
struct Scale {
    end: Instant,
    width: usize,
}

impl Scale {
    /// Returns when a cell begins and ends.
    fn cell(self, cell: usize) -> (Instant, Instant) {
        let at = |cell: usize| {
            let nanos = u128::from(self.end.as_nanos()) * cell as u128 / self.width as u128;
            Instant::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
        };
        let (begin, end) = (at(cell), at(cell + 1));
        (begin, end.max(begin + Duration::from_nanos(1)))
    }

    fn cells<T>(self, of: impl Fn(Instant, Instant) -> T) -> Vec<T> {
        (0..self.width).map(|cell| self.cell(cell)).map(|(begin, end)| of(begin, end)).collect()
    }

    /// Returns whether a moment is in a cell; what is at the very end is in the last one.
    fn has(self, begin: Instant, end: Instant, at: Instant) -> bool {
        begin <= at && (at < end || (at == self.end && end >= self.end))
    }
}

/// The colour of a piece of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Paint {
    Plain,
    Quiet,
    Good,
    Bad,
    Calm,
}

impl Paint {
    const fn code(self) -> &'static str {
        match self {
            Self::Plain => "0",
            Self::Quiet => "2",
            Self::Good => "32",
            Self::Bad => "31",
            Self::Calm => "36",
        }
    }

    const fn of_state(state: State) -> Self {
        match state {
            State::Primary | State::Standalone | State::Mongos | State::LoadBalancer => Self::Good,
            State::Failing => Self::Bad,
            State::Secondary => Self::Calm,
            State::Unchecked => Self::Quiet,
            State::Arbiter | State::Other | State::Ghost => Self::Plain,
        }
    }
}

/// The text so far.
struct Plot {
    text: String,
    gutter: usize,
    scale: Scale,
    color: bool,
}

impl Plot {
    fn head(&mut self, report: &Report) {
        let origin = &report.origin;
        let lasted = lasting(report.end.since_origin());
        let began = origin.began.as_ref().map(|began| format!(" since {began}"));
        let began = began.unwrap_or_default();
        self.line(&origin.deployment, Paint::Plain);
        self.line(&format!("{}, {lasted}{began}", origin.text()), Paint::Quiet);
        self.text.push('\n');
        let paint = if report.headline.is_good { Paint::Good } else { Paint::Bad };
        report.headline.sentences.iter().for_each(|sentence| self.line(sentence, paint));
        let faults = report.writes.iter().chain(&report.reads).filter_map(|it| it.fault.as_ref());
        let advice: BTreeSet<String> = faults
            .filter(|fault| !fault.is_expected)
            .map(|fault| match &fault.copy {
                Some(line) => format!("{}: {line}", fault.advice),
                None => fault.advice.clone(),
            })
            .collect();
        advice.iter().for_each(|advice| self.line(&format!("advice: {advice}"), Paint::Plain));
        self.text.push('\n');
    }

    fn lanes(&mut self, report: &Report) {
        let scale = self.scale;
        self.row("", &ticks(scale).chars().map(|c| (c, Paint::Quiet)).collect::<Vec<_>>());
        if !report.primaries.is_empty() {
            self.row("primary", &reigns(&report.primaries, scale));
        }
        self.row("writes", &judged(&report.writes, scale));
        self.row("reads", &judged(&report.reads, scale));
        for lane in &report.lanes {
            self.row(&lane.address, &states(lane, scale));
            self.checks(lane);
        }
        let errors: Vec<Instant> = report.errors.iter().map(|error| error.at).collect();
        if !errors.is_empty() {
            self.row("errors", &marks(&errors, ('!', Paint::Bad), scale));
        }
        if !report.waits.is_empty() {
            let waits = scale.cells(|begin, end| {
                let mut waits = report.waits.iter();
                waits.any(|wait| wait.from < end && (begin < wait.to || begin <= wait.from))
            });
            let cell = |waits| if waits { ('w', Paint::Bad) } else { (' ', Paint::Plain) };
            self.row("waiting", &waits.into_iter().map(cell).collect::<Vec<_>>());
        }
        self.line(
            "P primary, S secondary, x failing, ? not checked yet; + works, x fails; \
             checks: . fine, x failed, ! pool cleared",
            Paint::Quiet,
        );
        self.text.push('\n');
    }

    /// Draws the checks of a server, and its round trip times.
    fn checks(&mut self, lane: &Lane) {
        let scale = self.scale;
        let mut cells = scale.cells(|begin, end| {
            let within = lane.checks.iter().filter(|check| scale.has(begin, end, check.at));
            within.fold((' ', Paint::Plain), |cell, check| match (&check.failure, cell) {
                (Some(_), _) | (None, ('x', _)) => ('x', Paint::Bad),
                (None, _) => ('.', Paint::Quiet),
            })
        });
        let clears: Vec<Instant> = lane.clears.iter().map(|clear| clear.at).collect();
        for (cell, mark) in cells.iter_mut().zip(marks(&clears, ('!', Paint::Bad), scale)) {
            // A check that fails clears the pool too.
            if mark.0 != ' ' && cell.0 != 'x' {
                *cell = mark;
            }
        }
        self.row("  checks", &cells);
        let Some(longest) = lane.round_trips.iter().map(|it| it.took).max_by(f64::total_cmp) else {
            return;
        };
        let time = |millis: f64| Duration::try_from_secs_f64(millis / 1e3).unwrap_or_default();
        let trips = scale.cells(|begin, end| {
            let known = lane.round_trips.iter().take_while(|it| it.at < end);
            let last = known.clone().last()?;
            let within = known.filter(|it| it.at >= begin).map(|it| it.took);
            let is_known = |it: &&Span| !matches!(it.state, State::Failing | State::Unchecked);
            lane.at(begin.max(last.at)).filter(is_known)?;
            Some(time(within.fold(last.took, f64::max)))
        });
        let cells: Vec<_> = bars(trips.into_iter()).chars().map(|c| (c, Paint::Calm)).collect();
        self.row(&format!("  ≤ {}", precise(time(longest))), &cells);
    }

    fn events(&mut self, events: &[Event]) {
        let width = events.iter().map(|event| event.subject.chars().count()).max();
        let width = width.unwrap_or_default().min(MAX_NAME_LEN);
        for event in events {
            let (subject, text) = (escaped(&event.subject), escaped(&event.text));
            let subject = abridged(&subject, width);
            let at = seconds(event.at);
            let _ = write!(self.text, "{at:>12}  {subject:width$}  ");
            let paint = match event.tone {
                Tone::Bad | Tone::Notice => Paint::Bad,
                Tone::Good => Paint::Good,
                Tone::Neutral => Paint::Plain,
                Tone::Quiet => Paint::Quiet,
            };
            self.paint(&text, paint);
            self.paint(&format!("  line {}", event.line), Paint::Quiet);
            self.text.push('\n');
        }
    }

    /// Draws a lane behind its name.
    fn row(&mut self, name: &str, cells: &[(char, Paint)]) {
        let (gutter, name) = (self.gutter, escaped(name).into_owned());
        let _ = write!(self.text, "{:gutter$}  ", abridged(&name, gutter));
        let is_blank = |(c, _): &(char, Paint)| *c == ' ';
        let shown = cells.iter().rposition(|cell| !is_blank(cell)).map_or(0, |last| last + 1);
        for run in cells[..shown].chunk_by(|one, next| one.1 == next.1) {
            let text: String = run.iter().map(|(c, _)| c).collect();
            self.paint(&text, run[0].1);
        }
        self.text.truncate(self.text.trim_end().len());
        self.text.push('\n');
    }

    fn line(&mut self, text: &str, paint: Paint) {
        self.paint(&escaped(text), paint);
        self.text.push('\n');
    }

    fn paint(&mut self, text: &str, paint: Paint) {
        match self.color && paint != Paint::Plain {
            true => _ = write!(self.text, "\u{1b}[{}m{text}\u{1b}[0m", paint.code()),
            false => self.text.push_str(text),
        }
    }
}

/// Writes the times at which some cells begin, whole ones if they can be.
fn ticks(scale: Scale) -> String {
    let mut ticks = String::new();
    let between = scale.cell(LEAST_TICK).0.since_origin();
    let digits = match between.as_millis() {
        1000.. => 1,
        100.. => 2,
        _ => 3,
    };
    for cell in (0..scale.width).step_by(LEAST_TICK) {
        let text = format!("{:.digits$}s", scale.cell(cell).0.since_origin().as_secs_f64());
        if cell + text.len() <= scale.width {
            ticks.extend(std::iter::repeat_n(' ', cell.saturating_sub(ticks.len())));
            ticks.push_str(&text);
        }
    }
    ticks
}

fn marks(at: &[Instant], mark: (char, Paint), scale: Scale) -> Vec<(char, Paint)> {
    scale.cells(|begin, end| match at.iter().any(|at| scale.has(begin, end, *at)) {
        true => mark,
        false => (' ', Paint::Plain),
    })
}

/// Draws each state's letter where it begins, and its stroke where it goes on.
fn states(lane: &Lane, scale: Scale) -> Vec<(char, Paint)> {
    let states = scale.cells(|begin, end| {
        let within = lane.spans.iter().filter(|span| span.from < end && begin < span.to);
        worst_within(within.map(|span| (span.from, span.state)), begin, end)
    });
    let mut before = None;
    let cells = states.into_iter().map(|state| {
        let cell = match state {
            None => (' ', Paint::Plain),
            Some(it) if before == Some(it) => (it.stroke(), Paint::of_state(it)),
            Some(it) => (it.letter(), Paint::of_state(it)),
        };
        before = state;
        cell
    });
    cells.collect()
}

/// Writes the name of each primary where it begins, as far as there is room.
fn reigns(reigns: &[Reign], scale: Scale) -> Vec<(char, Paint)> {
    let found = scale.cells(|begin, end| {
        // Before the first one, it was looked for.
        let found = reigns.iter().skip_while(|it| it.primary.is_none());
        let mut within = found.filter(|it| it.from < end && begin < it.to);
        let gap = within.clone().find(|it| it.primary.is_none());
        gap.or_else(|| within.next())
    });
    let mut cells = Vec::with_capacity(found.len());
    for run in found.chunk_by(|one, next| match (one, next) {
        (Some(one), Some(next)) => one.from == next.from,
        (one, next) => one.is_none() && next.is_none(),
    }) {
        let (name, stroke, paint) = match run[0] {
            None => (String::new(), ' ', Paint::Plain),
            Some(Reign { primary: Some(primary), .. }) => {
                (escaped(primary).into_owned(), State::Primary.stroke(), Paint::Good)
            }
            Some(_) => ("none".to_owned(), State::Failing.stroke(), Paint::Bad),
        };
        let room = run.len();
        let name = if name.chars().count() > room && room < LEAST_NAME_LEN {
            Cow::Borrowed("")
        } else {
            abridged(&name, room)
        };
        let cell = name.chars().chain(std::iter::repeat(stroke)).take(room);
        cells.extend(cell.map(|c| (c, paint)));
    }
    cells
}

fn judged(judgements: &[Judgement], scale: Scale) -> Vec<(char, Paint)> {
    scale.cells(|begin, end| {
        let within = judgements.iter().filter(|it| it.from < end && begin < it.to);
        within.fold((' ', Paint::Plain), |cell, it| match (&it.fault, cell) {
            (_, ('x', _)) => cell,
            (Some(fault), _) if fault.is_expected => ('?', Paint::Quiet),
            (Some(_), _) => ('x', Paint::Bad),
            (None, _) => ('+', Paint::Good),
        })
    })
}
