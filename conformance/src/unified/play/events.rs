//! Comparison of events (Unified Test Format, "expectedEvent" and "expectedEventsForClient").

use bson::Bson;

use super::entities::Client;
use super::machine::Compared;
use super::observed::Observed;
use super::wrong;
use crate::spec::Difference;
use crate::unified::format::{ExpectedEvent, ExpectedEvents};
use crate::unified::matching::Matcher;

/// Compares an event with what is expected of it.
pub(super) fn compare(
    place: &str,
    expected: &ExpectedEvent,
    actual: &Observed,
    matcher: Matcher<'_>,
) -> Result<(), Difference> {
    if expected.kind != actual.kind {
        let found = format!("{} {}", actual.kind.name(), actual.fields);
        return Err(wrong(place, expected.kind.name(), found));
    }
    for (name, value) in &expected.fields {
        let (place, actual) = (format!("{place}.{name}"), &actual.fields);
        match (name.as_str(), value) {
            ("command" | "reply" | "previousDescription" | "newDescription", value) => {
                matcher.root(&place, value, actual.get(name))?;
            }
            ("hasServiceId", Bson::Boolean(has)) => {
                is_set(&place, *has, actual.get("serviceId"))?;
            }
            ("hasServerConnectionId", Bson::Boolean(has)) => {
                is_set(&place, *has, actual.get("serverConnectionId"))?;
            }
            (_, value) => matcher.value(&place, value, actual.get(name))?,
        }
    }
    Ok(())
}

fn is_set(place: &str, has: bool, actual: Option<&Bson>) -> Result<(), Difference> {
    match (has, actual) {
        (true, None) => Err(wrong(place, "a value", "none")),
        (false, Some(value)) => Err(wrong(place, "no value", value)),
        _ => Ok(()),
    }
}

/// Returns how many events match.
pub(super) fn count(client: &Client, expected: &ExpectedEvent, matcher: Matcher<'_>) -> usize {
    let matches = |event: &&Observed| compare("", expected, event, matcher).is_ok();
    client.observed.iter().filter(matches).count()
}

/// Compares the events of a client with those that are expected.
pub(super) fn compare_all(
    place: &str,
    expected: &ExpectedEvents,
    client: &Client,
    matcher: Matcher<'_>,
) -> Result<Compared, Difference> {
    let of_type = |event: &&Observed| event.kind.event_type() == expected.event_type;
    let actual: Vec<&Observed> = client.observed.iter().filter(of_type).collect();
    for (index, event) in expected.events.iter().enumerate() {
        let place = format!("{place}.events[{index}]");
        match actual.get(index) {
            Some(actual) => compare(&place, event, actual, matcher)?,
            None => {
                let missing = wrong(place, event.kind.name(), "no further event");
                return Ok(Compared::Missing(missing));
            }
        }
    }
    match actual.get(expected.events.len()) {
        Some(extra) if !expected.ignore_extra_events => {
            let found = format!("{} {}", extra.kind.name(), extra.fields);
            Err(wrong(format!("{place}.events"), "no further event", found))
        }
        _ => Ok(Compared::Equal),
    }
}
