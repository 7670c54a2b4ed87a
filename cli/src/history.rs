//! The history that the oplogs of members keep, and for how long a resume token is within it.

use std::path::Path;
use std::time::Duration;

use sdam_core::bson::{DateTime, RawBsonRef, RawDocument, RawDocumentBuf, rawdoc};
use sdam_core::config::ServerAddress;
use sdam_core::diagnosis::{ChangeStreamVerdict, Verdict, resume_token_time};
use serde::Serialize;

use crate::duration::millis;
use crate::file;
use crate::findings::Severity;

/// The time below which a token is about to be lost.
const DAY: Duration = Duration::from_secs(24 * 3600);

/// The oplog of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Oplog {
    /// The time from its first entry to its last: `serverStatus`.
    #[serde(rename = "windowMS", serialize_with = "millis")]
    pub(crate) window: Duration,
    /// The time of its last entry, in seconds since 1970.
    #[serde(skip)]
    pub(crate) last: u64,
    /// The bytes that it has: `collStats`.
    pub(crate) size: u64,
    /// The bytes that it may have.
    pub(crate) max_size: u64,
}

impl Oplog {
    /// Returns whether new entries take the place of old ones, or soon will.
    pub(crate) const fn is_full(self) -> bool {
        self.size >= self.max_size / 10 * 9
    }

    /// Reads it from the replies to `serverStatus` and to `collStats` of `local.oplog.rs`.
    pub(crate) fn read(status: &RawDocument, stats: &RawDocument) -> Option<Self> {
        let (window, last) = window(status)?;
        let (size, max_size) = (number(stats, "size")?, number(stats, "maxSize")?);
        Some(Self { window, last, size, max_size })
    }
}

/// Reads the time from the first entry of an oplog to its last, and that of the last.
fn window(status: &RawDocument) -> Option<(Duration, u64)> {
    let oplog = status.get_document("oplog").ok()?;
    let time = |field| oplog.get_timestamp(field).ok().map(|it| u64::from(it.time));
    let (first, last) = (time("earliestOptime")?, time("latestOptime")?);
    (first > 0).then(|| (Duration::from_secs(last.saturating_sub(first)), last))
}

/// Reads a number that servers write in several types.
pub(crate) fn number(document: &RawDocument, field: &str) -> Option<u64> {
    match document.get(field).ok()?? {
        RawBsonRef::Int32(number) => u64::try_from(number).ok(),
        RawBsonRef::Int64(number) => u64::try_from(number).ok(),
        RawBsonRef::Double(number) => Some(number as u64),
        _ => None,
    }
}

/// The most that the file of a checkpoint may have, as `FileCheckpointStore` reads it.
const MAX_CHECKPOINT_LEN: u64 = 16 << 20;

/// Reads the time of a resume token, in seconds since 1970: of its JSON, which begins with a brace,
/// of the hexadecimal digits of its `_data`, or of the file of a checkpoint, which any other text
/// names, and one that begins with an `@` behind that.
pub(crate) fn token_time(text: &str) -> Result<u64, String> {
    let token = text.trim();
    let is_token = token.starts_with('{') || token.bytes().all(|byte| byte.is_ascii_hexdigit());
    match text.strip_prefix('@') {
        Some(path) => time_in_file(path),
        None if is_token => time_in_text(token),
        None => time_in_file(text).map_err(|error| format!("it is no token, and {error}")),
    }
}

fn time_in_text(text: &str) -> Result<u64, String> {
    let json: Option<serde_json::Value> = serde_json::from_str(text).ok();
    let data = json.as_ref().and_then(|json| json.get("_data")?.as_str()).unwrap_or(text);
    let time = time_of(&rawdoc! { "_data": data });
    time.ok_or_else(|| r#"write it as {"_data": "82..."}, or the digits alone"#.to_owned())
}

fn time_in_file(path: &str) -> Result<u64, String> {
    let bytes = file::read(Path::new(path), MAX_CHECKPOINT_LEN);
    let bytes = bytes.map_err(|error| format!("the file {path} cannot be read: {error}"))?;
    let token = RawDocumentBuf::from_bytes(bytes);
    let token = token.map_err(|_| {
        format!(
            "{path} is no file of a checkpoint: that has one document of BSON, as \
             FileCheckpointStore writes it; a token in JSON is given as it is"
        )
    })?;
    time_of(&token).ok_or_else(|| format!("the document in {path} is no token that has a time"))
}

fn time_of(token: &RawDocument) -> Option<u64> {
    resume_token_time(token).map(|time| u64::from(time.time))
}

/// Finds whether the oplogs still reach back to the change of a token, and for how long: a stream
/// may go on at any member, and so at the one which is the first to lose it. An oplog that has room
/// left loses nothing. Returns `None` if there is no oplog.
pub(crate) fn reach<'a>(
    token: u64,
    oplogs: impl IntoIterator<Item = (&'a ServerAddress, Oplog)>,
) -> Option<(Severity, Verdict)> {
    let reaches = oplogs.into_iter().map(|(server, oplog)| {
        let behind = Duration::from_secs(oplog.last.saturating_sub(token));
        let left = match oplog.window.checked_sub(behind) {
            None => Some(Duration::ZERO),
            left => left.filter(|_| oplog.is_full()),
        };
        (server, oplog, left)
    });
    let soonest = |left: Option<Duration>| left.unwrap_or(Duration::MAX);
    let (server, oplog, left) =
        reaches.min_by_key(|(_, oplog, left)| (soonest(*left), oplog.window))?;
    let millis = i64::try_from(token).ok()?.checked_mul(1000)?;
    let verdict = ChangeStreamVerdict::HistoryEnds {
        server: server.clone(),
        read_until: Some(DateTime::from_millis(millis)),
        left,
        window: oplog.window,
    };
    let severity = match left {
        Some(Duration::ZERO) => Severity::Error,
        Some(left) if left < DAY => Severity::Warning,
        Some(_) | None => Severity::Note,
    };
    Some((severity, verdict.into()))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use sdam_core::bson::{Timestamp, rawdoc};
    use sdam_core::config::ServerAddress;

    use super::{DAY, Oplog, reach, token_time, window};
    use crate::findings::Severity;

    #[test]
    fn an_oplog_without_a_first_entry_has_no_window() {
        let status = |first, last| {
            let at = |time| Timestamp { time, increment: 1 };
            rawdoc! { "oplog": { "latestOptime": at(last), "earliestOptime": at(first) } }
        };
        assert_eq!(window(&status(10, 70)), Some((Duration::from_secs(60), 70)));
        assert_eq!(window(&status(0, 70)), None);
        assert_eq!(window(&rawdoc! {}), None);
    }

    #[test]
    fn a_token_is_its_json_or_its_digits() {
        let digits = "820000000A000000032B0229296E04";
        assert_eq!(token_time(digits), Ok(10));
        assert_eq!(token_time(&format!(r#"{{"_data": "{digits}"}}"#)), Ok(10));
        for text in ["", "82", r#"{"data": "820000000A00000003"}"#, "{}"] {
            let error = token_time(text).unwrap_err();
            assert!(error.contains("the digits alone"), "{text}: {error}");
        }
    }

    /// As `FileCheckpointStore` writes it.
    #[test]
    fn a_token_may_be_in_the_file_of_a_checkpoint() {
        let folder = tempfile::tempdir().unwrap();
        // Its name may have digits alone, too.
        let path = |name| folder.path().join(name).to_str().unwrap().to_owned();
        let write = |name, bytes: &[u8]| fs::write(path(name), bytes).unwrap();
        let token = rawdoc! { "_data": "820000000A000000032B0229296E04" };
        write("orders.token", token.as_bytes());
        assert_eq!(token_time(&path("orders.token")), Ok(10));
        assert_eq!(token_time(&format!("@{}", path("orders.token"))), Ok(10));
        write("json", br#"{"_data": "820000000A000000032B0229296E04"}"#);
        write("other", rawdoc! { "a": 1 }.as_bytes());
        for (name, words) in [
            ("json", "has one document of BSON, as FileCheckpointStore writes it"),
            ("other", "is no token that has a time"),
            ("none", "cannot be read: "),
        ] {
            for given in [path(name), format!("@{}", path(name))] {
                let error = token_time(&given).unwrap_err();
                assert!(error.contains(words) && error.contains(&path(name)), "{error}");
                assert_eq!(error.contains("it is no token, and "), !given.starts_with('@'));
            }
        }
    }

    #[test]
    fn something_is_to_be_done_about_a_token_that_is_about_to_be_lost() {
        let server: ServerAddress = "a:27017".parse().unwrap();
        let full = |window| Oplog { window, last: 1_000_000, size: 9, max_size: 9 };
        let second = Duration::from_secs(1);
        for (window, severity) in [
            (DAY, Severity::Note),
            (DAY - second, Severity::Warning),
            (Duration::ZERO, Severity::Error),
        ] {
            let behind = u64::from(window.is_zero());
            let (found, verdict) = reach(1_000_000 - behind, [(&server, full(window))]).unwrap();
            assert_eq!(found, severity);
            assert_eq!(verdict.advice().text.is_empty(), severity == Severity::Note, "{window:?}");
        }
    }
}
