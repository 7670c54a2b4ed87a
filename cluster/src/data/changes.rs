//! Change streams: how they are opened (Change Streams, "Server Specification").

use bson::{Bson, Document, RawDocumentBuf};
use sdam_core::bson;
use sdam_core::time::Instant;

use super::arguments::{Arguments, count, flag};
use super::reads::{collection_of, cursor_option, explained};
use crate::model::{Cluster, Role};
use crate::options::MemberId;
use crate::store::{ChangeStream, Cursor, Scope, StreamOptions, check_watchable, whole};
use crate::wire::{CommandError, Request};

/// The number of events of a first batch that does not say how many it wants.
const FIRST_BATCH: usize = 101;

/// Returns what `$changeStream` says, if a pipeline begins with it, and the stages behind it.
pub(super) fn stream_of(pipeline: &[Bson]) -> Option<(&Bson, &[Bson])> {
    let (first, rest) = pipeline.split_first()?;
    Some((first.as_document()?.get("$changeStream")?, rest))
}

/// Returns whether a request opens a change stream.
pub(crate) fn opens_change_stream(request: &Request<'_>) -> bool {
    if request.command_name() != "aggregate" {
        return false;
    }
    let first = request.body.get_array("pipeline").ok().and_then(|it| it.into_iter().next());
    let stage = first.and_then(Result::ok);
    let stage = stage.and_then(bson::RawBsonRef::as_document);
    stage.is_some_and(|it| it.get("$changeStream").is_ok_and(|it| it.is_some()))
}

impl Cluster {
    /// Opens a change stream, and answers with its first batch, which is empty if a mongos answers.
    pub(super) fn open_change_stream(
        &mut self,
        now: Instant,
        member: MemberId,
        (arguments, namespace): (&Arguments, String),
        stage: &Bson,
        pipeline: &[Bson],
    ) -> Result<RawDocumentBuf, CommandError> {
        let body = &arguments.body;
        let version = self.version_of(member);
        let options = StreamOptions::parse(stage, version)?;
        if self.process(member).is_none_or(|it| it.role == Role::Standalone) {
            let reason = "The $changeStream stage is only supported on replica sets";
            return Err(CommandError::numbered(40573, reason));
        }
        let scope = scope(arguments, &namespace, &options)?;
        if flag(body, "explain") {
            return explained(&namespace);
        }
        let cursor = cursor_option(body)?;
        check_read_concern(body)?;
        let size = count(cursor, "batchSize")?;
        let context = self.context(now, arguments)?;
        let data = self.data_of(member);
        if data.store.collection(&namespace).is_some_and(|it| it.kind() == "view") {
            let reason = format!("Namespace {namespace} is a view, not a collection");
            return Err(CommandError::coded(166, reason));
        }
        let newest = data.entries().next_back().map(|it| it.timestamp);
        let newest = newest.unwrap_or_else(|| self.timestamp(now));
        let mut stream = ChangeStream::open(scope, options, pipeline, (newest, version), context)?;
        let past = self.past(member, &stream);
        stream.check_history(&past)?;
        let mut cursor = Cursor::over(namespace, Default::default(), arguments.owner());
        if !self.options.deployment.has_mongos() {
            stream.advance(&past, &mut cursor.rest, size.unwrap_or(FIRST_BATCH))?;
        }
        cursor.stream = Some(Box::new(stream));
        self.open(member, cursor, size, false)
    }
}

/// Returns what a stream watches: that which `aggregate` names.
fn scope(
    arguments: &Arguments,
    namespace: &str,
    options: &StreamOptions,
) -> Result<Scope, CommandError> {
    let database = &arguments.database;
    let is_of_database = arguments.body.get("aggregate").and_then(whole) == Some(1);
    if options.is_of_cluster {
        return match database == "admin" && is_of_database {
            true => Ok(Scope::Cluster),
            false => Err(CommandError::coded(
                72,
                format!(
                    "A $changeStream with 'allChangesForCluster:true' may only be opened on the \
                     'admin' database, and with no collection name; found {namespace}"
                ),
            )),
        };
    }
    let collection = Some(collection_of(namespace)).filter(|_| !is_of_database);
    check_watchable(database, collection)?;
    Ok(match collection {
        Some(_) => Scope::Collection(namespace.to_owned()),
        None => Scope::Database(database.clone()),
    })
}

/// Checks that a stream is not to report what may be rolled back.
fn check_read_concern(body: &Document) -> Result<(), CommandError> {
    let level = body.get_document("readConcern").and_then(|it| it.get_str("level"));
    match level {
        Err(_) | Ok("majority") => Ok(()),
        Ok(level) => {
            let reason = format!(
                "Aggregation stage $changeStream cannot run with a readConcern other than \
                 'majority'. Current readConcern: {level}"
            );
            Err(CommandError::coded(72, reason))
        }
    }
}
