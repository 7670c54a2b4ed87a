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
    /// The pipeline changes what the stream goes on by (280, ChangeStreamFatalError).
    #[error("the pipeline leaves out, or changes, the _id of an event, which is its resume token")]
    PipelineChangesId,
    /// The token is none (9, FailedToParse; 15, Overflow; 207, InvalidUUID; 40647, 40649 and
    /// 50811), or may not be used in that way (260, InvalidResumeToken).
    #[error(
        "{} does not take the resume token: it is none, or is that of an invalidate, which only \
         start_after goes on from",
        named_or_not(server.as_ref())
    )]
    ResumeTokenRefused {
        /// The server.
        server: Option<ServerAddress>,
    },
    /// The server is a standalone, which has no oplog (40573).
    #[error("{} is a standalone, which keeps no history of changes", named_or_not(server.as_ref()))]
    NeedsReplicaSet {
        /// The server.
        server: Option<ServerAddress>,
    },
    /// The user has no privilege for what is watched (13, Unauthorized).
    #[error(
        "the user has not the privileges find and changeStream on what is to be watched at {}",
        named_or_not(server.as_ref())
    )]
    WatchNotPermitted {
        /// The server.
        server: Option<ServerAddress>,
    },
    /// A document that the stream requires was not recorded with the change (47,
    /// NoMatchingDocument).
    #[error(
        "the document before or after a change, which the stream requires, was not recorded, or is \
         not kept any more"
    )]
    ImageNotRecorded,
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

/// The error of a change stream, as far as it shows a cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ChangeStreamErrorFacts<'a> {
    /// The number of the error.
    pub code: Option<i32>,
    /// The words of the server.
    pub message: &'a str,
    /// The server that has replied.
    pub server: Option<&'a ServerAddress>,
    /// True if the stream was to go on behind a token.
    pub has_token: bool,
}

const FAILED_TO_PARSE: i32 = 9;
const UNAUTHORIZED: i32 = 13;
const OVERFLOW: i32 = 15;
const NO_MATCHING_DOCUMENT: i32 = 47;
const CAPPED_POSITION_LOST: i32 = 136;
const INVALID_UUID: i32 = 207;
const INVALID_RESUME_TOKEN: i32 = 260;
const CHANGE_STREAM_FATAL_ERROR: i32 = 280;
const CHANGE_STREAM_HISTORY_LOST: i32 = 286;
const BSON_OBJECT_TOO_LARGE: i32 = 10334;
const ONLY_ON_REPLICA_SETS: i32 = 40573;
const TOKEN_WITHOUT_DATA: i32 = 40647;
const EMPTY_TOKEN: i32 = 40649;
const UNKNOWN_TYPE_IN_TOKEN: i32 = 50811;

/// The words of servers since 4.2 for what a pipeline has done to the `_id` of an event.
const MODIFIED: &str = "was modified by the pipeline";

impl ChangeStreamVerdict {
    /// Finds the likely cause for which a server has ended a change stream, or has not begun one.
    pub fn of_error(error: ChangeStreamErrorFacts<'_>) -> Option<Self> {
        let server = error.server.cloned();
        Some(match error.code? {
            INVALID_RESUME_TOKEN => Self::ResumeTokenRefused { server },
            code if error.has_token && is_of_no_token(code, error.message) => {
                Self::ResumeTokenRefused { server }
            }
            CHANGE_STREAM_FATAL_ERROR if error.has_token && !error.message.contains(MODIFIED) => {
                Self::ResumeTokenNotFound { server }
            }
            CHANGE_STREAM_FATAL_ERROR => Self::PipelineChangesId,
            CHANGE_STREAM_HISTORY_LOST | CAPPED_POSITION_LOST => {
                Self::HistoryLost { server, read_until: None, oldest: None, is_refused: false }
            }
            BSON_OBJECT_TOO_LARGE => Self::EventTooLarge,
            ONLY_ON_REPLICA_SETS => Self::NeedsReplicaSet { server },
            UNAUTHORIZED => Self::WatchNotPermitted { server },
            NO_MATCHING_DOCUMENT => Self::ImageNotRecorded,
            _ => return None,
        })
    }

    /// Finds the likely cause by the number of an error that a command of this name has met, if
    /// change streams alone have errors of that number.
    pub fn of_code(code: i32, command: &str, server: Option<&ServerAddress>) -> Option<Self> {
        // A token is looked for when a stream begins, and pipelines meet events later.
        let has_token = command != "getMore";
        let is_of_streams = matches!(
            code,
            CHANGE_STREAM_FATAL_ERROR
                | CHANGE_STREAM_HISTORY_LOST
                | INVALID_RESUME_TOKEN
                | ONLY_ON_REPLICA_SETS
                | TOKEN_WITHOUT_DATA
                | EMPTY_TOKEN
        );
        let facts = ChangeStreamErrorFacts { code: Some(code), message: "", server, has_token };
        is_of_streams.then(|| Self::of_error(facts)).flatten()
    }

    /// Returns the name, as in JSON.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::HistoryLost { .. } => "historyLost",
            Self::ResumeTokenNotFound { .. } => "resumeTokenNotFound",
            Self::PipelineChangesId => "pipelineChangesId",
            Self::ResumeTokenRefused { .. } => "resumeTokenRefused",
            Self::NeedsReplicaSet { .. } => "needsReplicaSet",
            Self::WatchNotPermitted { .. } => "watchNotPermitted",
            Self::ImageNotRecorded => "imageNotRecorded",
            Self::EventTooLarge => "eventTooLarge",
            Self::HistoryEnds { .. } => "historyEnds",
        }
    }

    /// Returns what to do about it: nothing if a token is not about to be lost.
    pub(super) fn advice(&self) -> Advice {
        match self {
            Self::HistoryLost { .. } | Self::HistoryEnds { left: Some(Duration::ZERO), .. } => {
                READ_ANEW
            }
            Self::ResumeTokenNotFound { .. } => BEGIN_ANEW,
            Self::PipelineChangesId => KEEP_ID,
            Self::ResumeTokenRefused { .. } => START_AFTER,
            Self::NeedsReplicaSet { .. } => MAKE_SET,
            Self::WatchNotPermitted { .. } => GRANT,
            Self::ImageNotRecorded => RECORD,
            Self::EventTooLarge => SPLIT,
            Self::HistoryEnds { left: Some(left), .. } if *left < DAY => READ_ON,
            Self::HistoryEnds { .. } => NOTHING,
        }
        .into()
    }
}

impl From<ChangeStreamVerdict> for Verdict {
    fn from(verdict: ChangeStreamVerdict) -> Self {
        Self::ChangeStream(verdict)
    }
}

/// Returns whether a server that was given a token says by this error that it is none. Some of
/// these numbers are those of other errors, too, which have other words.
fn is_of_no_token(code: i32, message: &str) -> bool {
    match code {
        FAILED_TO_PARSE => message.contains("resume token"),
        OVERFLOW => message.contains("past end of buffer"),
        INVALID_UUID | TOKEN_WITHOUT_DATA | EMPTY_TOKEN | UNKNOWN_TYPE_IN_TOKEN => true,
        _ => false,
    }
}

/// The time below which something is to be done about a token.
const DAY: Duration = Duration::from_secs(24 * 3600);

const READ_ANEW: &str = "begin another stream, without the token (restart() where the stream has a \
    checkpoint), and then read what is watched as it is now, as the changes in between are lost; \
    have the servers keep more history, by a larger oplog or oplogMinRetentionHours";
const BEGIN_ANEW: &str = "begin another stream with the pipeline and the collection that the token \
    is of, or without the token (restart() where the stream has a checkpoint), and then read what \
    is watched as it is now";
const KEEP_ID: &str = "keep _id in the pipeline, as it is: no _id: 0 in a $project, and no other \
    value of it; the type that events are read as need not have it";
const START_AFTER: &str = "give start_after the token, whole and as a stream has returned it, or \
    begin another stream without it (restart() where the stream has a checkpoint)";
const MAKE_SET: &str = "make it a replica set, if only of one member: start it with --replSet \
    NAME, and run rs.initiate() in mongosh once";
const GRANT: &str = "log in as a user with a role that has both: read on its database for a \
    collection or a database, readAnyDatabase for client.watch()";
const RECORD: &str = "enable changeStreamPreAndPostImages of the collection (collMod), and begin \
    behind the changes from before that; or ask for FullDocumentType::WhenAvailable";
const SPLIT: &str = "let the server split such events (split_large_events), or leave out fields of \
    theirs with a $project in the pipeline";
const NOTHING: &str = "";
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

    use super::{ChangeStreamErrorFacts, ChangeStreamVerdict, DAY};
    use crate::diagnosis::Verdict;

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
            let verdict =
                ChangeStreamVerdict::HistoryEnds { server, read_until: None, left, window };
            (verdict.advice().text, Verdict::from(verdict).sentence())
        };
        assert!(advice(Some(Duration::ZERO)).0.starts_with("begin another stream"));
        assert!(advice(Some(Duration::from_secs(1))).0.contains("before that"));
        assert!(advice(Some(DAY - Duration::from_secs(1))).0.contains("before that"));
        for left in [Some(DAY), None] {
            let (advice, sentence) = advice(left);
            assert_eq!(advice, "", "nothing is wrong");
            assert!(!sentence.contains(';'), "{sentence}");
        }
    }

    fn of(code: i32, message: &str, has_token: bool) -> &'static str {
        let facts = ChangeStreamErrorFacts { code: Some(code), message, server: None, has_token };
        ChangeStreamVerdict::of_error(facts).map_or("", |it| it.name())
    }

    /// The servers' error codes, as in "error_codes.yml".
    #[test]
    fn numbers_show_the_cause() {
        for (code, name) in [
            (286, "historyLost"),
            (136, "historyLost"),
            (280, "resumeTokenNotFound"),
            (260, "resumeTokenRefused"),
            (10334, "eventTooLarge"),
            (40573, "needsReplicaSet"),
            (13, "watchNotPermitted"),
            (47, "imageNotRecorded"),
            (43, ""),
        ] {
            assert_eq!(of(code, "", true), name, "{code}");
        }
        assert_eq!(ChangeStreamVerdict::of_error(ChangeStreamErrorFacts::default()), None);
    }

    /// The words are those of 4.2.6 and of 6.0.27.
    #[test]
    fn a_pipeline_that_changes_the_token_is_no_token_that_is_not_found() {
        let modified = "PlanExecutor error during aggregation :: caused by :: Encountered an event \
                        whose _id field, which contains the resume token, was modified by the \
                        pipeline. Modifying the _id field of an event makes it impossible to \
                        resume the stream from that point.";
        let not_found = "cannot resume stream; the resume token was not found. {_data: \"82\"}";
        assert_eq!(of(280, modified, false), "pipelineChangesId");
        assert_eq!(of(280, modified, true), "pipelineChangesId");
        assert_eq!(of(280, not_found, true), "resumeTokenNotFound");
        assert_eq!(of(280, "", false), "pipelineChangesId", "there is no token to be found");
    }

    /// The words are those of 4.2.6 and of 6.0.27, for tokens and for what is none of them.
    #[test]
    fn a_token_that_is_none_is_refused() {
        for (code, message) in [
            (9, "resume token string was not a valid hex string"),
            (15, "Invalid advance (1) past end of buffer[0] at offset: 0"),
            (207, "uuid must be a 16-byte binary field with UUID (4) subtype"),
            (40647, "Bad resume token: _data of missing or of wrong type. Expected string, got {}"),
            (40649, "invalid empty resume token"),
            (50811, "KeyString format error: Unknown type: 129"),
        ] {
            assert_eq!(of(code, message, true), "resumeTokenRefused", "{code}");
            assert_eq!(of(code, message, false), "", "{code}: there is no token");
        }
        assert_eq!(of(9, "Hint must be a string or an object", true), "");
        assert_eq!(of(9, "Unknown $jsonSchema keyword: x", true), "");
        assert_eq!(of(15, "date overflow in $add", true), "");
    }

    #[test]
    fn the_number_alone_shows_what_change_streams_alone_meet() {
        let name = |code, command| {
            ChangeStreamVerdict::of_code(code, command, None).map_or("", |it| it.name())
        };
        assert_eq!(name(280, "aggregate"), "resumeTokenNotFound");
        assert_eq!(name(280, "getMore"), "pipelineChangesId");
        assert_eq!(name(286, "getMore"), "historyLost");
        assert_eq!(name(40573, "aggregate"), "needsReplicaSet");
        assert_eq!(name(40647, "aggregate"), "resumeTokenRefused");
        for of_others in [9, 13, 15, 47, 136, 10334, 11000] {
            assert_eq!(name(of_others, "aggregate"), "", "{of_others}");
        }
    }
}
