//! The lanes over time. Every place is a share of all time, so that a page without a script shows
//! them, and one with a script only makes the canvas wider.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::time::Duration;

use sdam_core::time::Instant;

use super::html::{Axis, Text};
use crate::duration::precise;
use crate::report::model::{
    Judgement, Lane, Mark, Reign, Report, RoundTrip, Span, Wait, WaitEnd, seconds,
};
use crate::watch::State;

/// The size of the drawing of round trip times in its own units, which are stretched.
const WIDTH: f64 = 100_000.0;
const HEIGHT: f64 = 30.0;

/// The height of the highest and the lowest round trip time, from the top, and of a check.
const TOP: f64 = 3.0;
const BOTTOM: f64 = 22.0;
const CHECK: f64 = 26.0;

/// The least time that the full height may stand for, in milliseconds.
const LEAST_TOP: f64 = 1.0;

/// The number of times on the scale, at least half of it.
const TICKS: u64 = 10;

/// Draws all lanes; `lines` are those that the table of events has.
pub(super) fn draw(report: &Report, lines: &BTreeSet<usize>) -> String {
    let mut drawing = Drawing { html: String::new(), axis: Axis { end: report.end }, lines };
    drawing.scale(report.end);
    drawing.outages(&report.writes);
    if !report.primaries.is_empty() {
        drawing.row("primary", "", |it| it.reigns(&report.primaries));
    }
    drawing.row("writes", "", |it| it.judgements(&report.writes));
    drawing.row("reads", "of any server", |it| it.judgements(&report.reads));
    for lane in &report.lanes {
        drawing.row(&lane.address, "", |it| it.states(&lane.spans));
        let range = lane.tally.round_trips;
        let range = range.map(|(_, longest)| format!("trips up to {}", precise(of(longest))));
        drawing.detail(&range.unwrap_or_default(), |it| it.checks(lane));
    }
    if !(report.errors.is_empty() && report.waits.is_empty()) {
        let (more, sign) = ("errors, waits", ("error", "!"));
        drawing.row("operations", more, |it| it.marks(&report.errors, sign));
        if !report.waits.is_empty() {
            drawing.detail("", |it| it.waits(&report.waits));
        }
    }
    drawing.html
}

/// The HTML so far.
struct Drawing<'a> {
    html: String,
    axis: Axis,
    lines: &'a BTreeSet<usize>,
}

impl Drawing<'_> {
    fn push(&mut self, html: &str) {
        self.html.push_str(html);
    }

    /// The times, which the script replaces when it zooms.
    fn scale(&mut self, end: Instant) {
        self.push(
            "<div class=\"row scale\"><div class=\"name\"></div><div class=\"track\" id=\"axis\">",
        );
        for at in ticks(end) {
            let (place, digits) = (self.axis.at(at), digits(end));
            let text = format!("{:.digits$} s", at.since_origin().as_secs_f64());
            let _ = write!(self.html, "<span style=\"{place}\">{text}</span>");
        }
        self.push("</div></div>\n");
    }

    /// The times in which writes fail, behind all lanes.
    fn outages(&mut self, writes: &[Judgement]) {
        self.push("<div class=\"behind\" aria-hidden=\"true\">");
        for it in writes.iter().filter(|it| is_outage(it)) {
            let place = self.axis.span(it.from, it.to);
            let _ = write!(self.html, "<i class=\"outage\" style=\"{place}\"></i>");
        }
        self.push("<i id=\"cursor\" hidden></i><i id=\"selection\" hidden></i></div>\n");
    }

    fn row(&mut self, name: &str, more: &str, content: impl FnOnce(&mut Self)) {
        let more = match more {
            "" => String::new(),
            more => format!(" <small>{}</small>", Text(more)),
        };
        let _ = write!(
            self.html,
            "<div class=\"row\"><div class=\"name\" title=\"{0}\">{0}{more}</div>\
             <div class=\"track\" role=\"group\" aria-label=\"{0}\">",
            Text(name)
        );
        content(self);
        self.push("</div></div>\n");
    }

    /// The lower half of a server's row.
    fn detail(&mut self, name: &str, content: impl FnOnce(&mut Self)) {
        let name = Text(name);
        let _ = write!(
            self.html,
            "<div class=\"row detail\"><div class=\"name\"><small>{name}</small></div>\
             <div class=\"track\">"
        );
        content(self);
        self.push("</div></div>\n");
    }

    /// Something that lasts, with a link to its line if that is in the table.
    fn lasting(&mut self, (from, to): (Instant, Instant), line: usize, class: &str, label: &str) {
        let place = self.axis.span(from, to);
        let (tag, link) = self.link(line);
        let title = format!("{label}, from {} to {}", seconds(from), seconds(to));
        let _ = write!(
            self.html,
            "<{tag}{link} class=\"span {class}\" style=\"{place}\" title=\"{}\"><b>{}</b></{tag}>",
            Text(&title),
            Text(label)
        );
    }

    /// Returns the element that leads to a line, and its attributes: the keyboard does not stop at
    /// them, as they are in the table too.
    fn link(&self, line: usize) -> (&'static str, String) {
        match self.lines.contains(&line) {
            true => ("a", format!(" href=\"#line-{line}\" tabindex=\"-1\"")),
            false => ("span", String::new()),
        }
    }

    fn reigns(&mut self, reigns: &[Reign]) {
        for (index, reign) in reigns.iter().enumerate() {
            let (class, label) = match &reign.primary {
                Some(primary) => ("primary", primary.as_str()),
                // It was looked for.
                None if index == 0 => ("unchecked", ""),
                None => ("none", "none"),
            };
            self.lasting((reign.from, reign.to), reign.line, class, label);
        }
    }

    fn judgements(&mut self, judgements: &[Judgement]) {
        for it in judgements {
            let (class, label) = match &it.fault {
                None => ("works", "find a server".to_owned()),
                Some(fault) if fault.is_expected => ("unchecked", String::new()),
                Some(fault) => ("fails", format!("fail: {}", fault.cause)),
            };
            self.lasting((it.from, it.to), it.line, class, &label);
        }
    }

    fn states(&mut self, spans: &[Span]) {
        for span in spans {
            let label = match &span.error {
                Some(error) => format!("failing: {error}"),
                None if span.state == State::Unchecked => String::new(),
                None => span.state.name().to_owned(),
            };
            self.lasting((span.from, span.to), span.line, class(span.state), &label);
        }
    }

    /// The checks of a server, its round trip times, and when its pool was cleared.
    fn checks(&mut self, lane: &Lane) {
        let (steps, dots, ticks) = self.paths(lane);
        let _ = write!(
            self.html,
            "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" preserveAspectRatio=\"none\" \
             aria-hidden=\"true\"><path class=\"trips\" d=\"{steps}\"/>\
             <path class=\"dots\" d=\"{dots}\"/><path class=\"ticks\" d=\"{ticks}\"/></svg>"
        );
        let failed = lane.checks.iter().filter_map(|check| {
            let text = format!("check failed: {}", check.failure.as_ref()?);
            Some(Mark { at: check.at, line: check.line, subject: String::new(), text })
        });
        let failed: Vec<Mark> = failed.collect();
        self.marks(&failed, ("failed", "×"));
        self.marks(&lane.clears, ("clear", "▾"));
    }

    /// Returns the path of the average round trip times, of those that were measured by checks, and
    /// of checks that went well.
    fn paths(&self, lane: &Lane) -> (String, String, String) {
        let (mut steps, mut dots, mut ticks) = (String::new(), String::new(), String::new());
        let Some((_, longest)) = lane.tally.round_trips else { return (steps, dots, ticks) };
        let x = |at: Instant| WIDTH * self.axis.share(at);
        let y = |took: f64| BOTTOM - (BOTTOM - TOP) * (took / longest.max(LEAST_TOP)).min(1.0);
        let mut until = None;
        for (index, trip) in lane.round_trips.iter().enumerate() {
            let RoundTrip { at, took } = *trip;
            let known = known_until(lane, at);
            let next = lane.round_trips.get(index + 1).map_or(known, |next| next.at.min(known));
            let joint = if until == Some(at) {
                format!("V{:.1}", y(took))
            } else {
                format!("M{:.1} {:.1}", x(at), y(took))
            };
            let _ = write!(steps, "{joint}H{:.1}", x(next.max(at)));
            until = Some(next);
        }
        for check in lane.checks.iter().filter(|check| check.failure.is_none()) {
            let _ = write!(ticks, "M{:.1} {CHECK}v3", x(check.at));
            if let Some(took) = check.took.filter(|_| !check.awaited) {
                let _ = write!(dots, "M{:.1} {:.1}h0", x(check.at), y(took));
            }
        }
        (steps, dots, ticks)
    }

    fn waits(&mut self, waits: &[Wait]) {
        for wait in waits {
            let (class, label) = match &wait.end {
                WaitEnd::Found => ("waited", "waited for a server".to_owned()),
                WaitEnd::Failed(error) => ("fails", format!("found no server: {error}")),
                WaitEnd::Abandoned => ("waited", "gave up waiting for a server".to_owned()),
                WaitEnd::Open => ("waited", "waits for a server".to_owned()),
            };
            self.lasting((wait.from, wait.to), wait.line, class, &label);
        }
    }

    fn marks(&mut self, marks: &[Mark], (class, sign): (&str, &str)) {
        for mark in marks {
            let (tag, link) = self.link(mark.line);
            let title = format!("{} {}, {}", mark.subject, mark.text, seconds(mark.at));
            let place = self.axis.at(mark.at);
            let title = Text(title.trim());
            let _ = write!(
                self.html,
                "<{tag}{link} class=\"mark {class}\" style=\"{place}\" title=\"{title}\">\
                 {sign}</{tag}>"
            );
        }
    }
}

/// Returns whether operations have failed then for a reason that matters.
pub(super) fn is_outage(judgement: &Judgement) -> bool {
    judgement.fault.as_ref().is_some_and(|fault| !fault.is_expected)
}

/// Returns the name of a state in the style sheet.
pub(super) const fn class(state: State) -> &'static str {
    match state {
        State::Primary => "primary",
        State::Secondary => "secondary",
        State::Standalone | State::Mongos | State::LoadBalancer => "single",
        State::Arbiter => "arbiter",
        State::Other | State::Ghost => "other",
        State::Unchecked => "unchecked",
        State::Failing => "failing",
    }
}

/// Returns until when a server is known without a break.
fn known_until(lane: &Lane, at: Instant) -> Instant {
    let is_known = |it: &&Span| !matches!(it.state, State::Failing | State::Unchecked);
    let spans = lane.spans.iter().skip_while(|span| span.to <= at);
    let mut until = at;
    for span in spans.take_while(is_known) {
        if span.from > until {
            break;
        }
        until = span.to;
    }
    until
}

/// Converts milliseconds.
pub(super) fn of(millis: f64) -> Duration {
    Duration::try_from_secs_f64(millis / 1e3).unwrap_or_default()
}

/// Returns the interval of the scale, in nanoseconds: 1, 2 or 5 times a power of ten.
fn interval(end: Instant) -> u64 {
    let wanted = end.as_nanos() / TICKS;
    let mut unit = 1_000_000_u64;
    loop {
        if let Some(found) = [1, 2, 5].into_iter().map(|it| it * unit).find(|it| *it >= wanted) {
            return found;
        }
        unit *= 10;
    }
}

fn ticks(end: Instant) -> Vec<Instant> {
    let interval = interval(end);
    (0..=end.as_nanos() / interval).map(|it| Instant::from_nanos(it * interval)).collect()
}

/// Returns the number of digits behind the point that distinguish the times of the scale.
fn digits(end: Instant) -> usize {
    match interval(end) {
        1_000_000_000.. => 0,
        100_000_000.. => 1,
        10_000_000.. => 2,
        _ => 3,
    }
}
