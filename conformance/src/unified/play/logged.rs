//! Messages that clients have logged, and those that are expected (Unified Test Format,
//! "expectedLogMessagesForClient").

use bson::{Bson, Document};

use super::failed::Failed;
use super::machine::Compared;
use super::wrong;
use crate::spec::Difference;
use crate::unified::format::{Component, ExpectedLogMessages, ExpectedMessage, Level};
use crate::unified::matching::Matcher;

/// A message that a client has logged.
#[derive(Clone, Debug)]
pub struct Logged {
    /// Its severity.
    pub level: Level,
    /// The part of the driver that has logged it.
    pub component: Component,
    /// Its fields, the message itself among them.
    pub data: Document,
}

/// Compares messages with those that are expected. Failures are those of the calls of the test.
pub(super) fn compare_all(
    place: &str,
    expected: &ExpectedLogMessages,
    logged: &[Logged],
    failures: &[Failed],
    matcher: Matcher<'_>,
) -> Result<Compared, Difference> {
    let matches = |expected, message| compare(place, expected, message, failures, matcher).is_ok();
    let is_ignored = |message| expected.ignored.iter().any(|ignored| matches(ignored, message));
    let actual: Vec<&Logged> = logged.iter().filter(|message| !is_ignored(message)).collect();
    for (index, message) in expected.messages.iter().enumerate() {
        let place = format!("{place}.messages[{index}]");
        match actual.get(index) {
            Some(actual) => compare(&place, message, actual, failures, matcher)?,
            None => {
                let missing = wrong(place, message.data.to_string(), "no further message");
                return Ok(Compared::Missing(missing));
            }
        }
    }
    match actual.get(expected.messages.len()) {
        Some(extra) if !expected.ignore_extra => {
            Err(wrong(format!("{place}.messages"), "no further message", &extra.data))
        }
        _ => Ok(Compared::Equal),
    }
}

/// Compares a message with what is expected of it.
fn compare(
    place: &str,
    expected: &ExpectedMessage,
    actual: &Logged,
    failures: &[Failed],
    matcher: Matcher<'_>,
) -> Result<(), Difference> {
    let kind = |level: Level, component: Component| format!("{level:?} of {component:?}");
    let (wanted, found) =
        (kind(expected.level, expected.component), kind(actual.level, actual.component));
    if wanted != found {
        return Err(wrong(place, wanted, format!("{found}: {}", actual.data)));
    }
    let data = Bson::Document(expected.data.clone());
    let found = Bson::Document(actual.data.clone());
    matcher.root(&format!("{place}.data"), &data, Some(&found))?;
    match expected.failure_is_redacted {
        Some(is_redacted) => compare_failure(place, is_redacted, &actual.data, failures),
        None => Ok(()),
    }
}

/// Compares the failure in a message with those of the calls: a redacted one has none of the words
/// of a server's error, another one all the words of an error.
fn compare_failure(
    place: &str,
    is_redacted: bool,
    data: &Document,
    failures: &[Failed],
) -> Result<(), Difference> {
    let place = format!("{place}.failureIsRedacted");
    let Ok(text) = data.get_str("failure") else {
        return Err(wrong(place, "a failure", data));
    };
    let words = |failed: &Failed| {
        let words = failed.reply.as_ref().and_then(|reply| reply.get_str("errmsg").ok());
        words.filter(|words| !words.is_empty()).map(str::to_owned)
    };
    let quotes = |failed: &Failed| words(failed).is_some_and(|words| text.contains(&words));
    let is_whole = |failed: &Failed| {
        failed.message.contains(text) && (words(failed).is_none() || quotes(failed))
    };
    match is_redacted {
        true if text.is_empty() || failures.iter().any(quotes) => {
            Err(wrong(place, "a failure without the words of the server", text))
        }
        false if !failures.iter().any(is_whole) => {
            Err(wrong(place, "the failure of a call as it is", text))
        }
        _ => Ok(()),
    }
}
