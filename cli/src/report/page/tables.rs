//! The tables below the lanes: why operations failed, the servers, and the events.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::time::Duration;

use super::html::Text;
use super::timeline::{is_outage, of};
use crate::duration::precise;
use crate::report::model::{Judgement, Report, Tally, lasting, seconds};
use crate::watch::{State, Tone};

/// The number of outages that are listed one by one.
const MAX_OUTAGES: usize = 20;

/// Writes each time in which operations would have found no server.
pub(super) fn outages(report: &Report, page: &mut String) {
    let of = |what: &'static str, judgements: &'_ [Judgement]| {
        let outages = judgements.iter().filter(|it| is_outage(it)).cloned();
        outages.map(|it| (what, it)).collect::<Vec<_>>()
    };
    let mut outages = of("Writes", &report.writes);
    outages.extend(of("Reads", &report.reads));
    outages.sort_by_key(|(_, it)| it.from);
    if outages.is_empty() {
        return;
    }
    page.push_str("<section aria-labelledby=\"outages\"><h2 id=\"outages\">Outages</h2>\n");
    for (what, it) in outages.iter().take(MAX_OUTAGES) {
        let Some(fault) = &it.fault else { continue };
        let _ = writeln!(
            page,
            "<article><h3>{what} failed for {lasted}, from {from} to {to}</h3>\
             <p>{cause} <code>{verdict}</code></p><p>What to do: {advice}.</p>",
            lasted = lasting(it.to - it.from),
            from = seconds(it.from),
            to = seconds(it.to),
            cause = Text(&sentence(&fault.cause)),
            verdict = Text(fault.verdict),
            advice = Text(&fault.advice),
        );
        if let Some(line) = &fault.copy {
            let _ = writeln!(page, "<pre>{}</pre>", Text(line));
        }
        if let Some(quoted) = &fault.quoted {
            let _ = writeln!(
                page,
                "<details><summary>What an operation would have got at the end</summary>\
                 <p>{}</p></details>",
                Text(quoted)
            );
        }
        page.push_str("</article>\n");
    }
    if let Some(rest) = outages.len().checked_sub(MAX_OUTAGES).filter(|rest| *rest > 0) {
        let _ = writeln!(page, "<p>{rest} more are in the lanes and among the events.</p>");
    }
    page.push_str("</section>\n");
}

/// Makes a sentence of a clause.
fn sentence(clause: &str) -> String {
    let mut letters = clause.chars();
    let first = letters.next().map(|first| first.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}.", letters.as_str())
}

/// Writes each server in a row.
pub(super) fn servers(report: &Report, page: &mut String) {
    page.push_str(
        "<section aria-labelledby=\"servers\"><h2 id=\"servers\">Servers</h2>\n\
         <div class=\"wide\"><table><thead><tr><th scope=\"col\">server</th>\
         <th scope=\"col\">at the end</th><th scope=\"col\" class=\"number\">primary for</th>\
         <th scope=\"col\" class=\"number\">failing for</th>\
         <th scope=\"col\" class=\"number\">checks</th>\
         <th scope=\"col\" class=\"number\">failed</th>\
         <th scope=\"col\" class=\"number\">round trips</th>\
         <th scope=\"col\" class=\"number\">pool cleared</th></tr></thead><tbody>\n",
    );
    for lane in &report.lanes {
        let Tally { last, primary, failing, checks, failed, round_trips, clears } = &lane.tally;
        let trips = round_trips.map_or_else(String::new, |(least, most)| {
            format!("{} to {}", precise(of(least)), precise(of(most)))
        });
        let _ = writeln!(
            page,
            "<tr><th scope=\"row\">{address}</th><td>{last}</td>\
             <td class=\"number\">{primary}</td><td class=\"number\">{failing}</td>\
             <td class=\"number\">{checks}</td><td class=\"number\">{failed}</td>\
             <td class=\"number\">{trips}</td><td class=\"number\">{clears}</td></tr>",
            address = Text(&lane.address),
            last = last.map_or("not there", State::name),
            primary = in_all(*primary),
            failing = in_all(*failing),
        );
    }
    page.push_str("</tbody></table></div></section>\n");
}

fn in_all(time: Duration) -> String {
    if time.is_zero() { "–".to_owned() } else { lasting(time) }
}

/// Writes all that has happened; each line is there once by its number.
pub(super) fn events(report: &Report, page: &mut String) {
    page.push_str(
        "<section aria-labelledby=\"events\"><h2 id=\"events\">Events</h2>\n\
         <div class=\"wide\"><table id=\"log\"><thead><tr><th scope=\"col\">time</th>\
         <th scope=\"col\">about</th><th scope=\"col\">what happened</th>\
         <th scope=\"col\" class=\"number\">line</th></tr></thead><tbody>\n",
    );
    let mut seen = BTreeSet::new();
    for event in &report.events {
        let id = match seen.insert(event.line) {
            true => format!(" id=\"line-{}\"", event.line),
            false => String::new(),
        };
        let tone = match event.tone {
            Tone::Bad | Tone::Notice => "bad",
            Tone::Good => "good",
            Tone::Neutral | Tone::Quiet => "plain",
        };
        let _ = writeln!(
            page,
            "<tr{id} class=\"{tone}\" data-at=\"{at}\"><td><a href=\"#plot\" class=\"at\">{time}\
             </a></td><td>{subject}</td><td><details><summary>{text}</summary>\
             <code>{raw}</code></details></td><td class=\"number\">{line}</td></tr>",
            at = crate::report::model::in_millis(event.at),
            time = seconds(event.at),
            subject = Text(&event.subject),
            text = Text(&event.text),
            line = event.line,
            raw = Text(&event.raw),
        );
    }
    page.push_str("</tbody></table></div></section>\n");
}
