//! The likely causes for which change streams end that were begun before, by the error of the
//! server, and for which they soon will.

use std::time::Duration;

use bson::{DateTime, RawDocument, Timestamp};
use serde::Serialize;

use super::advice::Advice;
use super::verdict::{Verdict, named_or_not};
use crate::config::ServerAddress;
use crate::description::{millis, optional_date};
use crate::text::seconds;

/// The likely cause for which a change stream cannot go on.
///
/// It is one of the [verdicts](Verdict), and serialised as those are; times are in milliseconds
/// since 1970.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(tag = "verdict", rename_all = "camelCase", rename_all_fields = "camelCase")]
#[non_exhaustive]
pub enum ChangeStreamVerdict {
    /// The server does not have the changes any more that come next (286,
    /// ChangeStreamHistoryLost, of a stream that begins; 136, CappedPositionLost, of one that was
    /// open, and has fallen behind).
    #[error(
        "{} no longer has the changes that come next{}{}",
        named_or_not(server.as_ref()),
        read_until.map(|until| format!(", after {}", date(until))).unwrap_or_default(),
        oldest_words(*oldest, *read_until, *is_refused)
    )]
    HistoryLost {
        /// The server.
        server: Option<ServerAddress>,
        /// The time of the change that was read last, if the token shows it.
        #[serde(rename = "readUntilMS", serialize_with = "optional_date")]
        read_until: Option<DateTime>,
        /// The time of the oldest change that is there, if a server has said it.
        #[serde(rename = "oldestMS", serialize_with = "optional_date")]
        oldest: Option<DateTime>,
        /// True if the user may not ask for that.
        is_refused: bool,
    },
    /// The server does not find the change that was read last (280, ChangeStreamFatalError).
    #[error(
        "{} does not find the change that was read last: it was rolled back, or is not one of this \
         deployment, of what is watched or of what the pipeline lets through",
        named_or_not(server.as_ref())
    )]
    ResumeTokenNotFound {
        /// The server.
        server: Option<ServerAddress>,
    },
    /// The token is none, or may not be used in that way (260, InvalidResumeToken).
    #[error(
        "{} does not take the resume token: it is none, or is that of an invalidate, which only \
         start_after goes on from",
        named_or_not(server.as_ref())
    )]
    ResumeTokenRefused {
        /// The server.
        server: Option<ServerAddress>,
    },
    /// An event is longer than a document may be (10334, BSONObjectTooLarge).
    #[error("an event of the change stream is longer than the 16 MiB that a document may have")]
    EventTooLarge,
    /// The oplog will soon not reach back to a token any more.
    #[error(
        "{}",
        ends_words(server, *left, *window)
    )]
    HistoryEnds {
        /// The server.
        server: ServerAddress,
        /// The time of the change that was read last.
        #[serde(rename = "readUntilMS", serialize_with = "optional_date")]
        read_until: Option<DateTime>,
        /// The time after which that change is lost, at the rate of today; `None` if the oplog is
        /// not full, so that nothing is lost yet.
        #[serde(rename = "leftMS", serialize_with = "crate::description::optional_millis")]
        left: Option<Duration>,
        /// The time that the oplog reaches back for.
        #[serde(rename = "windowMS", serialize_with = "millis")]
        window: Duration,
    },
}

/// Returns the time of the change that a resume token is of, as far as it shows that: those of
/// MongoDB 4.2 and later begin with it. It is no more certain than the token.
///
/// ```
/// use sdam_core::bson::rawdoc;
/// use sdam_core::diagnosis::resume_token_time;
///
/// let token = rawdoc! { "_data": "826560A1B2000000032B0229296E04" };
/// assert_eq!(resume_token_time(&token).unwrap().increment, 3);
/// assert_eq!(resume_token_time(&rawdoc! { "_data": "82" }), None);
/// ```
pub fn resume_token_time(token: &RawDocument) -> Option<Timestamp> {
    /// The type of a value that is a timestamp, in the servers' form for keys of indexes.
    const TIMESTAMP: &str = "82";
    let digits = token.get_str("_data").ok()?.strip_prefix(TIMESTAMP)?;
    let number = |at| {
        let digits: &str = digits.get(at)?;
        let are_digits = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        are_digits.then(|| u32::from_str_radix(digits, 16).ok()).flatten()
    };
    Some(Timestamp { time: number(0..8)?, increment: number(8..16)? })
}

const CAPPED_POSITION_LOST: i32 = 136;
const INVALID_RESUME_TOKEN: i32 = 260;
const CHANGE_STREAM_FATAL_ERROR: i32 = 280;
const CHANGE_STREAM_HISTORY_LOST: i32 = 286;
const BSON_OBJECT_TOO_LARGE: i32 = 10334;

impl ChangeStreamVerdict {
    /// Finds the likely cause by the number of the error with which a server has ended a change
    /// stream, or has not begun one.
    pub fn of_code(code: i32, server: Option<&ServerAddress>) -> Option<Self> {
        let server = server.cloned();
        Some(match code {
            INVALID_RESUME_TOKEN => Self::ResumeTokenRefused { server },
            CHANGE_STREAM_FATAL_ERROR => Self::ResumeTokenNotFound { server },
            CHANGE_STREAM_HISTORY_LOST | CAPPED_POSITION_LOST => {
                Self::HistoryLost { server, read_until: None, oldest: None, is_refused: false }
            }
            BSON_OBJECT_TOO_LARGE => Self::EventTooLarge,
            _ => return None,
        })
    }

    /// Returns the name, as in JSON.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::HistoryLost { .. } => "historyLost",
            Self::ResumeTokenNotFound { .. } => "resumeTokenNotFound",
            Self::ResumeTokenRefused { .. } => "resumeTokenRefused",
            Self::EventTooLarge => "eventTooLarge",
            Self::HistoryEnds { .. } => "historyEnds",
        }
    }

    /// Returns what to do about it.
    pub(super) fn advice(&self) -> Advice {
        match self {
            Self::HistoryLost { .. } | Self::HistoryEnds { left: Some(Duration::ZERO), .. } => {
                READ_ANEW
            }
            Self::ResumeTokenNotFound { .. } => BEGIN_ANEW,
            Self::ResumeTokenRefused { .. } => START_AFTER,
            Self::EventTooLarge => SPLIT,
            Self::HistoryEnds { .. } => READ_ON,
        }
        .into()
    }
}

impl From<ChangeStreamVerdict> for Verdict {
    fn from(verdict: ChangeStreamVerdict) -> Self {
        Self::ChangeStream(verdict)
    }
}

const READ_ANEW: &str = "begin another stream, without the token (restart() where the stream has a \
    checkpoint), and then read what is watched as it is now, as the changes in between are lost; \
    have the servers keep more history, by a larger oplog or oplogMinRetentionHours";
const BEGIN_ANEW: &str = "begin another stream with the pipeline and the collection that the token \
    is of, or without the token (restart() where the stream has a checkpoint), and then read what \
    is watched as it is now";
const START_AFTER: &str = "give start_after the token as a stream has returned it";
const SPLIT: &str = "let the server split such events (split_large_events), or leave out fields of \
    theirs with a $project in the pipeline";
const READ_ON: &str = "have the reader of the stream go on before that, or let the oplog be larger \
    on each member (replSetResizeOplog, oplogMinRetentionHours)";

fn date(date: DateTime) -> String {
    date.try_to_rfc3339_string().unwrap_or_else(|_| "an unknown time".to_owned())
}

fn oldest_words(oldest: Option<DateTime>, until: Option<DateTime>, is_refused: bool) -> String {
    let Some(oldest) = oldest else {
        let refused = "; the user may not ask how far the oplog reaches back (find on local)";
        return if is_refused { refused.to_owned() } else { String::new() };
    };
    let gap = until.map(|until| oldest.saturating_duration_since(until));
    let gap = gap.map(|gap| format!(", {} later", seconds(gap))).unwrap_or_default();
    format!("; the oldest change that is there is of {}{gap}", date(oldest))
}

fn ends_words(server: &ServerAddress, left: Option<Duration>, window: Duration) -> String {
    let reach = format!("the oplog of {server} reaches back for {}", seconds(window));
    match left {
        None => format!("{reach} and is not full: the token is not about to be lost"),
        Some(Duration::ZERO) => format!("{reach}, which is not as far as the token"),
        Some(left) => format!("{reach}: the token is lost in {} at today's rate", seconds(left)),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bson::DateTime;

    use super::ChangeStreamVerdict;

    #[test]
    fn the_text_of_lost_history_has_what_is_known() {
        let server = Some("a:27017".parse().unwrap());
        let at = |seconds: i64| Some(DateTime::from_millis(seconds * 1000));
        let text = |read_until, oldest, is_refused| {
            let server = server.clone();
            ChangeStreamVerdict::HistoryLost { server, read_until, oldest, is_refused }.to_string()
        };
        let least = "a:27017 no longer has the changes that come next";
        assert_eq!(text(None, None, false), least);
        let read = format!("{least}, after 2025-01-01T00:00:00Z");
        let begun = 1_735_689_600;
        assert_eq!(
            text(at(begun), at(begun + 90), false),
            format!(
                "{read}; the oldest change that is there is of 2025-01-01T00:01:30Z, 90.0 s later"
            )
        );
        assert_eq!(
            text(at(begun), None, true),
            format!("{read}; the user may not ask how far the oplog reaches back (find on local)")
        );
    }

    #[test]
    fn of_a_token_that_is_lost_already_the_advice_is_to_begin_anew() {
        let advice = |left| {
            let (server, window) = ("a:27017".parse().unwrap(), Duration::from_secs(60));
            ChangeStreamVerdict::HistoryEnds { server, read_until: None, left, window }.advice()
        };
        assert!(advice(Some(Duration::ZERO)).text.starts_with("begin another stream"));
        assert!(advice(Some(Duration::from_secs(1))).text.contains("before that"));
    }

    /// The servers' error codes, as in "error_codes.yml".
    #[test]
    fn numbers_show_the_cause() {
        let name = |code| ChangeStreamVerdict::of_code(code, None).map_or("", |it| it.name());
        assert_eq!(
            [286, 136, 280, 260, 10334, 43].map(name),
            [
                "historyLost",
                "historyLost",
                "resumeTokenNotFound",
                "resumeTokenRefused",
                "eventTooLarge",
                ""
            ]
        );
    }
}
