//! A report as one page of HTML: all of it can be read without a script and without a network; the
//! script adds the verdict at the pointer, zoom and keys.

mod html;
mod tables;
mod timeline;

use std::collections::BTreeSet;
use std::fmt::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

use self::html::{Text, embedded};
use super::model::{Origin, Report, lasting};
use crate::watch::State;

/// The style sheet and the script.
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// Prints a report as a page.
pub(super) fn print(report: &Report) -> String {
    let lines: BTreeSet<usize> = report.events.iter().map(|event| event.line).collect();
    let mut page = String::new();
    head(report, &mut page);
    summary(report, &mut page);
    page.push_str(BEFORE);
    page.push_str(&timeline::draw(report, &lines));
    page.push_str(BEHIND);
    legend(report, &mut page);
    page.push_str("</section>\n");
    tables::outages(report, &mut page);
    tables::servers(report, &mut page);
    tables::events(report, &mut page);
    notes(report, &mut page);
    let json = serde_json::to_string(report).expect("it has the form of JSON");
    let _ = writeln!(
        page,
        "</main>\n<script type=\"application/json\" id=\"data\">{}</script>\n\
         <script>{SCRIPT}</script>\n</body>\n</html>",
        embedded(&json)
    );
    page
}

/// The part before the lanes: controls for those who have a script.
const BEFORE: &str = "\
<section class=\"time\" aria-labelledby=\"over-time\">
<h2 id=\"over-time\">Over time</h2>
<div class=\"controls\">
<button type=\"button\" id=\"in\" title=\"Zoom in (+)\" aria-label=\"Zoom in\">+</button>
<button type=\"button\" id=\"out\" title=\"Zoom out (-)\" aria-label=\"Zoom out\">−</button>
<button type=\"button\" id=\"all\" title=\"Show all (0)\">all</button>
<label for=\"time\">moment</label>
<input type=\"range\" id=\"time\" min=\"0\" max=\"1\" step=\"any\" value=\"0\">
<span id=\"window\" role=\"status\"></span>
</div>
<div id=\"plot\" tabindex=\"0\" role=\"group\" aria-label=\"Lanes over time\" \
aria-describedby=\"keys\">
<div id=\"canvas\">
";

/// The part behind them.
const BEHIND: &str = "\
</div>
</div>
<p class=\"keys\" id=\"keys\">Point at a moment, or move there with <kbd>←</kbd> <kbd>→</kbd>. \
Zoom by dragging, with <kbd>+</kbd> <kbd>-</kbd> <kbd>0</kbd>, or with the wheel after a click or \
with <kbd>Ctrl</kbd>. <kbd>n</kbd> and <kbd>p</kbd> go from event to event.</p>
<div id=\"moment\" role=\"region\" aria-label=\"What was known at the moment\"></div>
";

fn head(report: &Report, page: &mut String) {
    let Origin { deployment, began, .. } = &report.origin;
    let hash = STANDARD.encode(Sha256::digest(SCRIPT));
    let lasted = lasting(report.end.since_origin());
    let began = match began {
        Some(began) => format!("{lasted} from <time datetime=\"{0}\">{0}</time> on", Text(began)),
        None => lasted,
    };
    let _ = write!(
        page,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
         style-src 'unsafe-inline'; script-src 'sha256-{hash}'; base-uri 'none'; \
         form-action 'none'\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta name=\"generator\" content=\"sdam {version}\">\n\
         <title>{deployment}: report</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n\
         <header>\n<h1>{deployment}</h1>\n<p>{read}, {began}</p>\n</header>\n\
         <main>\n",
        version = env!("CARGO_PKG_VERSION"),
        deployment = Text(deployment),
        read = Text(&report.origin.text()),
    );
}

fn summary(report: &Report, page: &mut String) {
    let class = if report.headline.is_good { "good" } else { "bad" };
    let _ = writeln!(page, "<section id=\"summary\" class=\"{class}\" aria-label=\"Summary\">");
    for sentence in &report.headline.sentences {
        let _ = writeln!(page, "<p>{}</p>", Text(sentence));
    }
    page.push_str("</section>\n");
}

/// Explains what is there to be seen.
fn legend(report: &Report, page: &mut String) {
    page.push_str("<ul class=\"legend\" aria-label=\"Legend\">");
    let spans = || report.lanes.iter().flat_map(|lane| &lane.spans);
    let mut seen = BTreeSet::new();
    for state in State::ALL.into_iter().filter(|state| spans().any(|it| it.state == *state)) {
        let class = timeline::class(state);
        if seen.insert(class) {
            let mut names = State::ALL.into_iter().filter(|it| timeline::class(*it) == class);
            let names = names.by_ref().filter(|it| spans().any(|span| span.state == *it));
            let names: Vec<&str> = names.map(State::name).collect();
            let _ = write!(page, "<li><i class=\"span {class}\"></i>{}</li>", names.join(", "));
        }
    }
    let lanes = || report.lanes.iter();
    let has_failed = lanes().any(|lane| lane.checks.iter().any(|check| check.failure.is_some()));
    for (is_there, item) in [
        (report.writes.iter().any(timeline::is_outage), "<i class=\"span fails\"></i>no server"),
        (has_failed, "<i class=\"sign failed\">×</i>check failed"),
        (lanes().any(|it| !it.clears.is_empty()), "<i class=\"sign clear\">▾</i>pool cleared"),
        (!report.errors.is_empty(), "<i class=\"sign error\">!</i>error of an operation"),
        (!report.waits.is_empty(), "<i class=\"span waited\"></i>waits for a server"),
        (lanes().any(|it| !it.round_trips.is_empty()), "<i class=\"line\"></i>round trip time"),
    ] {
        if is_there {
            let _ = write!(page, "<li>{item}</li>");
        }
    }
    page.push_str("</ul>\n");
}

fn notes(report: &Report, page: &mut String) {
    if report.notes.is_empty() {
        return;
    }
    page.push_str("<section aria-labelledby=\"notes\"><h2 id=\"notes\">Notes</h2><ul>\n");
    for note in &report.notes {
        let _ = writeln!(page, "<li>{}</li>", Text(note));
    }
    page.push_str("</ul></section>\n");
}
