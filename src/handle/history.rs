//! The likely cause for which a server refuses a change stream, with what it has to say of its
//! history.

use std::time::Duration;

use bson::{DateTime, Document, Timestamp, doc};
use sdam_core::diagnosis::ChangeStreamVerdict;
use sdam_host::Runtime;

use super::collection::Collection;
use super::perform::Handle;
use crate::change_stream::ResumeToken;
use crate::error::{DriverError as _, Error};

/// The longest time that is waited for what a server says of its oplog.
const LIMIT: Duration = Duration::from_secs(2);

/// Unauthorized: the user may not read `local`.
const UNAUTHORIZED: i32 = 13;

/// Adds the likely cause to an error of a change stream that was to go on behind this token. If its
/// history is lost, a server is asked once how far that reaches back.
pub(super) async fn explain<R: Runtime>(
    handle: &Handle<R>,
    token: Option<ResumeToken>,
    error: Error,
) -> Error {
    let verdict = error.code().and_then(|code| ChangeStreamVerdict::of_code(code, error.server()));
    let Some(mut verdict) = verdict else { return error };
    if let ChangeStreamVerdict::HistoryLost { read_until, oldest, is_refused, .. } = &mut verdict {
        *read_until = token.and_then(|token| token.cluster_time()).map(date);
        match ask_for_oldest(handle).await {
            Ok(time) => *oldest = time.map(date),
            Err(error) => *is_refused = error.code() == Some(UNAUTHORIZED),
        }
    }
    error.explained(verdict.into())
}

/// Asks for the time of the oldest change in the oplog. A mongos has none, which is an error.
async fn ask_for_oldest<R: Runtime>(handle: &Handle<R>) -> Result<Option<Timestamp>, Error> {
    let own = handle.timeout_of_operations().filter(|timeout| !timeout.is_zero());
    let limit = own.map_or(LIMIT, |timeout| timeout.min(LIMIT));
    let mut handle = handle.with(|concerns| {
        concerns.timeout = Some(limit);
        concerns.read_concern = Default::default();
    });
    handle.session = None;
    let oplog = Collection::<R, Document>::new(handle, "local".into(), "oplog.rs");
    let first = oplog.find_one(doc! {}).sort(doc! { "$natural": 1 }).projection(doc! { "ts": 1 });
    Ok(first.await?.and_then(|first| first.get_timestamp("ts").ok()))
}

fn date(time: Timestamp) -> DateTime {
    DateTime::from_millis(i64::from(time.time) * 1000)
}
