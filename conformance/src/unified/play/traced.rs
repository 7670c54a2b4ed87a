//! Spans that clients have reported, and those that are expected (Unified Test Format,
//! "expectTracingMessages").

use bson::{Bson, Document};

use super::wrong;
use crate::spec::Difference;
use crate::unified::format::{ExpectedSpan, ExpectedTracing};
use crate::unified::matching::Matcher;

/// A span that a client has reported, and that has ended.
#[derive(Clone, Debug)]
pub struct Traced {
    /// Its name.
    pub name: String,
    /// Its attributes.
    pub attributes: Document,
    /// The spans within it.
    pub nested: Vec<Traced>,
}

/// Compares spans with those that are expected.
pub(super) fn compare_all(
    place: &str,
    expected: &ExpectedTracing,
    traced: &[Traced],
    matcher: Matcher<'_>,
) -> Result<(), Difference> {
    let place = format!("{place}.spans");
    compare(&place, &expected.spans, traced, expected.ignore_extra_spans, matcher)
}

/// Compares the spans within one, or within none.
fn compare(
    place: &str,
    expected: &[ExpectedSpan],
    traced: &[Traced],
    ignores_extra: bool,
    matcher: Matcher<'_>,
) -> Result<(), Difference> {
    let mut traced = traced.iter();
    for (index, expected) in expected.iter().enumerate() {
        let place = format!("{place}[{index}]");
        // How the first span of that name differs: others are not meant.
        let mut nearest = None;
        loop {
            let Some(span) = traced.next() else {
                let missing = || wrong(place, &expected.name, "no further span");
                return Err(nearest.unwrap_or_else(missing));
            };
            match compare_one(&place, expected, span, ignores_extra, matcher) {
                Ok(()) => break,
                Err(difference) if !ignores_extra => return Err(difference),
                Err(difference) if span.name == expected.name => {
                    nearest.get_or_insert(difference);
                }
                Err(_) => {}
            }
        }
    }
    match traced.next() {
        Some(extra) if !ignores_extra => Err(wrong(place, "no further span", &extra.name)),
        _ => Ok(()),
    }
}

fn compare_one(
    place: &str,
    expected: &ExpectedSpan,
    traced: &Traced,
    ignores_extra: bool,
    matcher: Matcher<'_>,
) -> Result<(), Difference> {
    if expected.name != traced.name {
        return Err(wrong(format!("{place}.name"), &expected.name, &traced.name));
    }
    let attributes = Bson::Document(expected.attributes.clone());
    let found = Bson::Document(traced.attributes.clone());
    matcher.root(&format!("{place}.attributes"), &attributes, Some(&found))?;
    let place = format!("{place}.nested");
    compare(&place, &expected.nested, &traced.nested, ignores_extra, matcher)
}
