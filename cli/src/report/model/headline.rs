//! The sentences at the top: who was primary when, how long there was none, and what that meant.

use std::collections::BTreeSet;
use std::time::Duration;

use sdam_core::time::Instant;
use serde::Serialize;

use super::{Fault, Judgement, Mark, Reign, Wait, WaitEnd};
use crate::duration::{precise, rounded};

/// The number of primaries that are listed one by one.
const MAX_NAMED: usize = 3;

/// The time from which milliseconds are left out.
const LONG: Duration = Duration::from_secs(120);

/// The summary, to be seen at first sight.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::report) struct Headline {
    pub(in crate::report) sentences: Vec<String>,
    /// True if nothing was wrong.
    pub(in crate::report) is_good: bool,
}

impl Headline {
    pub(super) fn new(
        reigns: &[Reign],
        writes: &[Judgement],
        (waits, errors): (&[Wait], &[Mark]),
        end: Instant,
    ) -> Self {
        let outages: Vec<(&Judgement, &Fault)> = writes
            .iter()
            .filter_map(|it| Some((it, it.fault.as_ref().filter(|fault| !fault.is_expected)?)))
            .collect();
        let has_worked = writes.iter().any(|judgement| judgement.fault.is_none());
        let mut sentences = of_primaries(reigns, &outages, end);
        sentences.extend(match (has_worked, outages.last()) {
            (_, None) if has_worked => of_quiet(reigns),
            (_, None) => Some("No server had answered when it ended.".to_owned()),
            (false, Some((_, fault))) => Some(format!(
                "No write would have found a server in all {}: {}.",
                lasting(end - Instant::ZERO),
                fault.cause
            )),
            (true, Some(_)) => of_outages(reigns, &outages, end),
        });
        sentences.extend(of_operations(waits, errors));
        let is_good = has_worked && outages.is_empty() && errors.is_empty();
        Self { sentences, is_good }
    }
}

/// Describes each primary, or gives their number.
fn of_primaries(reigns: &[Reign], outages: &[(&Judgement, &Fault)], end: Instant) -> Vec<String> {
    let named = reigns.iter().filter(|reign| reign.primary.is_some());
    match named.clone().count() {
        0 => return Vec::new(),
        count if count > MAX_NAMED => return vec![turns(reigns)],
        _ => {}
    }
    let mut sentences = Vec::new();
    for (index, reign) in reigns.iter().enumerate() {
        let after = reigns.get(index + 1);
        let since = format!("from {} on", seconds(reign.from));
        match (&reign.primary, after) {
            (Some(primary), None) => sentences.push(format!("{primary} is primary {since}.")),
            (Some(primary), Some(after)) => {
                let until = seconds(after.from);
                let reason = after.reason.as_deref().unwrap_or("it was none any more");
                sentences.push(format!("{primary} was primary until {until}: {reason}."));
            }
            (None, _) if index == 0 => {
                // Else it was only looked for.
                if outages.iter().any(|it| is_in(it, reign)) {
                    let until = seconds(reign.to);
                    sentences.push(format!("Until {until} there was none, and writes failed."));
                }
            }
            (None, _) => {
                let is_outage = |it: &(&Judgement, &Fault)| is_in(it, reign);
                let meant = match outages.iter().any(is_outage) {
                    true => ", and writes failed",
                    false => "",
                };
                let lasts = lasting(reign.to - reign.from);
                let until = if reign.to == end { " until the end" } else { "" };
                sentences.push(format!("For {lasts}{until} there was none{meant}."));
            }
        }
    }
    sentences
}

fn is_in((outage, _): &(&Judgement, &Fault), reign: &Reign) -> bool {
    outage.from < reign.to && reign.from < outage.to
}

/// Says how often the primary was another one, or how often the same one was it again.
fn turns(reigns: &[Reign]) -> String {
    let gaps = reigns.iter().skip(1).filter(|reign| reign.primary.is_none());
    let gaps: Vec<Duration> = gaps.map(|gap| gap.to - gap.from).collect();
    let (all, longest) = (gaps.iter().sum(), gaps.iter().max().copied().unwrap_or_default());
    let named: Vec<&str> = reigns.iter().filter_map(|it| it.primary.as_deref()).collect();
    let servers = named.iter().collect::<BTreeSet<_>>().len();
    let said = match named.windows(2).filter(|pair| pair[0] != pair[1]).count() {
        0 => format!("{} was primary {} times", named[0], named.len()),
        1 => format!("The primary has changed once, among {servers} servers"),
        changes => format!("The primary has changed {changes} times, among {servers} servers"),
    };
    let (all, longest) = (lasting(all), lasting(longest));
    format!("{said}; there was none for {all} in all, {longest} at the longest.")
}

/// Says that all went well.
fn of_quiet(reigns: &[Reign]) -> Option<String> {
    match reigns.len() {
        0 => Some("Writes have found a server since the first check.".to_owned()),
        _ => Some("Writes have found a server ever since there was a primary.".to_owned()),
    }
}

/// Describes the outages, unless the primaries have said it.
fn of_outages(reigns: &[Reign], outages: &[(&Judgement, &Fault)], end: Instant) -> Option<String> {
    let all: Duration = outages.iter().map(|(it, _)| it.to - it.from).sum();
    let (longest, fault) = outages.iter().max_by_key(|(it, _)| it.to - it.from)?;
    let named = reigns.iter().filter(|reign| reign.primary.is_some()).count();
    let is_explained = outages.iter().all(|(_, fault)| fault.verdict == "noPrimary");
    if is_explained && (1..=MAX_NAMED).contains(&named) {
        return None;
    }
    let count = match outages.len() {
        1 => "once".to_owned(),
        count => format!("{count} times"),
    };
    let lasts = lasting(longest.to - longest.from);
    let until = if longest.to == end { " and until the end" } else { "" };
    Some(format!(
        "Writes found no server {count}, for {} in all; the longest time was {lasts}, from {} \
         on{until}: {}.",
        lasting(all),
        seconds(longest.from),
        fault.cause,
    ))
}

/// Says how operations fared, if there are any.
fn of_operations(waits: &[Wait], errors: &[Mark]) -> Option<String> {
    let failed = waits.iter().filter(|wait| matches!(wait.end, WaitEnd::Failed(_))).count();
    let longest = waits.iter().map(|wait| wait.to - wait.from).max().unwrap_or_default();
    let mut clauses = Vec::new();
    if !errors.is_empty() {
        let (first, last) = (seconds(errors[0].at), seconds(errors[errors.len() - 1].at));
        clauses.push(match errors.len() {
            1 => format!("1 operation failed at {first}: {}", errors[0].text),
            count => format!("{count} operations failed, from {first} to {last}"),
        });
    }
    if !waits.is_empty() {
        let longest = lasting(longest);
        clauses.push(match failed {
            0 => format!("{} waited for a server, {longest} at most", operations(waits.len())),
            _ => format!(
                "{} waited for a server, {failed} without finding one",
                operations(waits.len())
            ),
        });
    }
    let (first, rest) = clauses.split_first()?;
    let rest: String = rest.iter().map(|clause| format!("; {clause}")).collect();
    Some(format!("{first}{rest}."))
}

fn operations(count: usize) -> String {
    match count {
        1 => "1 operation".to_owned(),
        _ => format!("{count} operations"),
    }
}

/// Writes a time as the seconds since the beginning: `+1.234 s`.
pub(in crate::report) fn seconds(at: Instant) -> String {
    format!("+{:.3} s", at.since_origin().as_secs_f64())
}

/// Writes how long something went on.
pub(in crate::report) fn lasting(duration: Duration) -> String {
    if duration < LONG { precise(duration) } else { rounded(duration) }
}
