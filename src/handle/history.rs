//! The likely cause for which a server refuses a change stream, with what it has to say of its
//! history.

use std::time::Duration;

use bson::{DateTime, Document, Timestamp, doc};
use sdam_core::config::ServerAddress;
use sdam_core::diagnosis::{ChangeStreamErrorFacts, ChangeStreamVerdict};
use sdam_core::time::Instant;
use sdam_host::Runtime;

use super::collection::Collection;
use super::perform::Handle;
use crate::change_stream::ResumeToken;
use crate::error::{DriverError as _, Error};

/// The longest time that is waited for what a server says of its oplog, and not longer than the
/// call has which is to fail.
const LIMIT: Duration = Duration::from_secs(2);

/// Unauthorized: the user may not read `local`.
const UNAUTHORIZED: i32 = 13;

/// Adds the likely cause to an error of a change stream that was to go on behind this token. If its
/// history is lost, the server that says so is asked once how far that reaches back, within the
/// time of the call.
pub(super) async fn explain<R: Runtime>(
    handle: &Handle<R>,
    token: Option<ResumeToken>,
    error: Error,
    deadline: Option<Instant>,
) -> Error {
    let facts = ChangeStreamErrorFacts {
        code: error.code(),
        message: error.reply().map_or("", |reply| &reply.message),
        server: error.server(),
        has_token: token.is_some(),
    };
    let Some(mut verdict) = ChangeStreamVerdict::of_error(facts) else { return error };
    if let ChangeStreamVerdict::HistoryLost { server, read_until, oldest, is_refused } =
        &mut verdict
    {
        *read_until = token.and_then(|token| token.cluster_time()).map(date);
        match ask_for_oldest(handle, server.as_ref(), deadline).await {
            Ok(time) => *oldest = time.map(date),
            Err(error) => *is_refused = error.code() == Some(UNAUTHORIZED),
        }
    }
    error.explained(verdict.into())
}

/// Asks for the time of the oldest change in the oplog. A mongos has none, which is an error.
async fn ask_for_oldest<R: Runtime>(
    handle: &Handle<R>,
    server: Option<&ServerAddress>,
    deadline: Option<Instant>,
) -> Result<Option<Timestamp>, Error> {
    let limit = handle.client.now() + LIMIT;
    let mut handle = handle.with(|concerns| {
        concerns.timeout = None;
        concerns.read_concern = Default::default();
        concerns.member = server.cloned();
    });
    let deadline = deadline.map_or(limit, |deadline| deadline.min(limit));
    handle.client = handle.client.with_deadline(deadline);
    handle.session = None;
    let oplog = Collection::<R, Document>::new(handle, "local".into(), "oplog.rs");
    let first = oplog.find_one(doc! {}).sort(doc! { "$natural": 1 }).projection(doc! { "ts": 1 });
    Ok(first.await?.and_then(|first| first.get_timestamp("ts").ok()))
}

fn date(time: Timestamp) -> DateTime {
    DateTime::from_millis(i64::from(time.time) * 1000)
}
