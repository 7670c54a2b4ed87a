//! The command that opens a change stream.
//!
//! Implements "Driver API" of Change Streams.

use std::time::Duration;

use bson::raw::{CStr, cstr};
use bson::{RawArrayBuf, RawBsonRef, RawDocumentBuf, Timestamp};
use sdam_core::session::TransactionError;
use sdam_core::wire::ReplyDocument;
use serde::{Deserialize, Serialize};

use super::single::{Body, Rules, SingleCommand, Target};
use super::{Scope, find};
use crate::change_stream::{ChangeStreamState, Checkpoint, CheckpointStore, ResumeToken, Start};
use crate::cursor::{CursorState, Settings, Timing};
use crate::error::Error;

/// The options of the stage `$changeStream`; all others are those of the command.
const OF_STAGE: [&CStr; 6] = [
    cstr!("fullDocument"),
    cstr!("fullDocumentBeforeChange"),
    RESUME_AFTER,
    START_AFTER,
    START_TIME,
    cstr!("showExpandedEvents"),
];

const SPLIT: &CStr = cstr!("$changeStreamSplitLargeEvent");
const PIPELINE: &CStr = cstr!("pipeline");
const RESUME_AFTER: &CStr = cstr!("resumeAfter");
const START_AFTER: &CStr = cstr!("startAfter");
const START_TIME: &CStr = cstr!("startAtOperationTime");

operation! {
    /// A change stream, and how it is watched.
    ///
    /// ```
    /// use bson::doc;
    /// use sdam::operation::{FullDocumentType, Watch};
    ///
    /// let inserts = [doc! { "$match": { "operationType": "insert" } }];
    /// let watch = Watch::new().pipeline(inserts).full_document(FullDocumentType::UpdateLookup);
    /// # let _ = watch;
    /// ```
    #[derive(Clone, Debug)]
    pub struct Watch as ChangeStreamOptions {
        max_await_time: Option<Duration>,
        settings: Settings,
        is_of_deployment: bool,
        start: Start,
        opening: Opening,
        splits: bool,
        checkpoint: Option<Checkpoint>,
        restarts: bool,
    }

    arguments {
        /// Watches for all changes.
        new();
    }

    options {
        /// Sets how many events a batch has.
        batch_size: u32 = "batchSize";
        /// Sets the rules for comparing texts.
        collation: collation = "collation";
        /// Adds a comment, which servers write to their logs; it is sent with each getMore, too.
        comment: value = "comment";
        /// Sets which whole document comes with an update: a [`FullDocumentType`].
        full_document: text = "fullDocument";
        /// Sets whether the document before a change comes with it: a [`FullDocumentType`]
        /// (MongoDB 6.0).
        full_document_before_change: text = "fullDocumentBeforeChange";
        /// Sets how long the server waits for new events before it returns an empty batch.
        max_await_time: millis = "maxAwaitTimeMS" in max_await_time;
        /// Runs the stages of a pipeline on the events: `$match`, `$project` and the like. They
        /// must leave `_id` as it is.
        pipeline: documents = "pipeline";
        /// Begins behind a token, which must not be that of an `invalidate`.
        resume_after: document = "resumeAfter";
        /// Has collections that are created, indexes and the like be events, too (MongoDB 6.0).
        show_expanded_events: bool = "showExpandedEvents";
        /// Has the server split events that are longer than a document may be, and puts their
        /// parts together again: an event may be three times as long (MongoDB 6.0.9 and 7.0).
        split_large_events: bool = "splitLargeEvents" in splits;
        /// Begins behind a token, which may be that of an `invalidate`.
        start_after: document = "startAfter";
        /// Begins at a time in the history of the servers.
        start_at_operation_time: Timestamp = "startAtOperationTime";
    }
}

impl Default for Watch {
    fn default() -> Self {
        Self::new()
    }
}

/// The whole documents that come with events.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum FullDocumentType {
    /// That of now, which may have changed since: of updates alone.
    UpdateLookup,
    /// That of then, if it is recorded (`changeStreamPreAndPostImages`).
    WhenAvailable,
    /// That of then; without it, the stream fails.
    Required,
    /// Another value, as servers call it.
    #[serde(untagged)]
    Other(String),
}

impl From<FullDocumentType> for String {
    fn from(kind: FullDocumentType) -> Self {
        match kind {
            FullDocumentType::UpdateLookup => "updateLookup".to_owned(),
            FullDocumentType::WhenAvailable => "whenAvailable".to_owned(),
            FullDocumentType::Required => "required".to_owned(),
            FullDocumentType::Other(name) => name,
        }
    }
}

/// The facts that the reply to the command has beside the cursor.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Opening {
    pub(crate) operation_time: Option<Timestamp>,
    pub(crate) max_wire_version: i32,
}

impl Watch {
    /// Goes on behind the token that a [store](CheckpointStore) has, and saves there those that the
    /// stream comes to: of each event after it was handed out and before the next one is, and
    /// of quiet times every ten seconds. Where the options say otherwise to begin, that holds
    /// while the store has none.
    #[must_use]
    pub fn checkpoint(mut self, store: impl CheckpointStore) -> Self {
        self.checkpoint = Some(Checkpoint::new(store));
        self
    }

    /// Begins as if the store of the [checkpoint](Self::checkpoint) had no token: what has happened
    /// since that one is not read. It is the way to go on when the servers do not have its history
    /// any more.
    #[must_use]
    pub const fn restart(mut self) -> Self {
        self.restarts = true;
        self
    }

    /// Returns the store, if there is one.
    pub(crate) fn store(&self) -> Option<Checkpoint> {
        self.checkpoint.clone()
    }

    /// Begins behind the token that the store has, which is returned.
    pub(crate) async fn load(&mut self) -> Result<Option<ResumeToken>, Error> {
        let loaded = match &self.checkpoint {
            Some(checkpoint) if !self.restarts => checkpoint.load().await?,
            Some(_) | None => None,
        };
        if let Some(token) = &loaded {
            // It may be that of an `invalidate`.
            self.start = Start::After(token.clone());
        }
        Ok(loaded)
    }

    /// Returns whether it begins with the changes of now, and has a store: the first batch is to be
    /// empty then, so that there is a token before the first event, and a process that ends while
    /// it deals with that receives it again.
    fn begins_with_a_token(&self) -> bool {
        let is_placed = [RESUME_AFTER, START_AFTER, START_TIME].map(|name| self.options.has(name));
        self.checkpoint.is_some() && self.start == Start::Given && !is_placed.contains(&true)
    }

    /// Returns whether the parts of large events are to be put together.
    pub(crate) const fn splits(&self) -> bool {
        self.splits
    }

    /// Watches all databases.
    pub(crate) fn of_deployment(mut self) -> Self {
        self.is_of_deployment = true;
        self
    }

    /// Begins elsewhere than the options say.
    pub(crate) fn starting(mut self, start: Start) -> Self {
        self.start = start;
        self
    }

    /// Returns what the last reply had beside the cursor.
    pub(crate) const fn opening(&self) -> Opening {
        self.opening
    }

    /// Returns the state of the stream that this begins.
    pub(crate) fn state(&self) -> ChangeStreamState {
        if let Start::After(token) = &self.start {
            return ChangeStreamState::new(Some(token.clone()), None, false);
        }
        let token = |name| {
            let token = self.options.get(name).and_then(RawBsonRef::as_document);
            token.map(ResumeToken::from)
        };
        let has_time = self.options.has(START_TIME);
        ChangeStreamState::new(token(START_AFTER), token(RESUME_AFTER), has_time)
    }

    fn stage(&self) -> Result<RawDocumentBuf, Error> {
        let mut stage = RawDocumentBuf::new();
        let is_given = self.start == Start::Given;
        self.options.write_if(&mut stage, |name| {
            let places = [RESUME_AFTER, START_AFTER, START_TIME].contains(&name);
            OF_STAGE.contains(&name) && (is_given || !places)
        })?;
        match &self.start {
            Start::Given => {}
            Start::Resume(token) => stage.append(RESUME_AFTER, token.document()),
            Start::After(token) => stage.append(START_AFTER, token.document()),
            Start::At(time) => stage.append(START_TIME, *time),
        }
        if self.is_of_deployment {
            stage.append(cstr!("allChangesForCluster"), true);
        }
        let mut first = RawDocumentBuf::new();
        first.append(cstr!("$changeStream"), stage);
        Ok(first)
    }
}

impl SingleCommand for Watch {
    type Output = CursorState;

    const COMMAND: &'static CStr = cstr!("aggregate");
    const RULES: Rules = Rules::READ.opening();

    fn target(&self) -> Target<'_> {
        match self.is_of_deployment {
            true => Target::Deployment,
            false => Target::Collection,
        }
    }

    /// No server runs it in a transaction.
    fn check_in_transaction(&self) -> Result<(), TransactionError> {
        let instead = "watch outside of it, as changes are seen when they are committed";
        Err(TransactionError::NotInTransaction { operation: "watch", instead })
    }

    fn cursor_timing(&self) -> Timing {
        let (tailable, await_data) = (true, true);
        Timing { tailable, await_data, max_await_time: self.max_await_time, ..Timing::default() }
    }

    fn write(&mut self, body: &mut Body<'_>) -> Result<(), Error> {
        self.settings = Settings {
            max_await_time: self.max_await_time,
            tailable: true,
            await_data: true,
            ..find::settings(&self.options, body.facts)
        };
        self.opening.max_wire_version = body.facts.max_wire_version;
        let mut pipeline = RawArrayBuf::new();
        pipeline.push(self.stage()?);
        let mut splits_already = false;
        if let Some(RawBsonRef::Array(stages)) = self.options.get(PIPELINE) {
            for stage in stages.into_iter().filter_map(Result::ok) {
                let document = stage.as_document();
                splits_already = document.is_some_and(|it| matches!(it.get(SPLIT), Ok(Some(_))));
                pipeline.push(stage);
            }
        }
        if self.splits && !splits_already {
            let mut stage = RawDocumentBuf::new();
            stage.append(SPLIT, RawDocumentBuf::new());
            // "must be the last stage"
            pipeline.push(stage);
        }
        body.append(PIPELINE, pipeline);
        body.cursor(match self.begins_with_a_token() {
            true => Some(RawBsonRef::Int32(0)),
            false => self.options.get(cstr!("batchSize")),
        });
        let mut others = OF_STAGE.to_vec();
        others.extend([cstr!("batchSize"), PIPELINE]);
        body.options(&self.options, &others)
    }

    fn read(&mut self, scope: &Scope, reply: &ReplyDocument) -> Result<CursorState, Error> {
        self.opening.operation_time = reply.get_timestamp("operationTime").ok();
        let settings = std::mem::take(&mut self.settings);
        Ok(CursorState::open_on(scope.namespace(), Self::COMMAND.as_str(), reply, settings)?)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bson::{RawDocumentBuf, Timestamp, doc, rawdoc};

    use super::super::single::{SingleCommand as _, Target};
    use super::super::testing::{NEW, written};
    use super::{FullDocumentType, ResumeToken, Start, Watch};

    fn token(n: i32) -> ResumeToken {
        ResumeToken::new(rawdoc! { "_data": n })
    }

    fn pipeline(watch: &mut Watch) -> RawDocumentBuf {
        let pipeline = written(watch, NEW).body.get_array("pipeline").unwrap().to_owned();
        rawdoc! { "pipeline": pipeline }
    }

    /// "The `$changeStream` stage MUST be added as the first stage in the pipeline"; "options that
    /// are not set are not sent".
    #[test]
    fn the_stage_has_its_options_and_the_command_the_others() {
        let mut watch = Watch::new()
            .pipeline([doc! { "$match": { "a": 1 } }])
            .full_document(FullDocumentType::UpdateLookup)
            .start_after(token(1))
            .comment("for the log")
            .batch_size(2)
            .max_await_time(Duration::from_secs(1));
        let stage = rawdoc! { "fullDocument": "updateLookup", "startAfter": { "_data": 1 } };
        let expected = rawdoc! {
            "aggregate": "things",
            "pipeline": [{ "$changeStream": stage }, { "$match": { "a": 1 } }],
            "cursor": { "batchSize": 2 },
            "comment": "for the log",
        };
        assert_eq!(written(&mut watch, NEW).body, expected);
        let mut watch = Watch::new().of_deployment();
        assert!(matches!(watch.target(), Target::Deployment), "on the database admin");
        let command = written(&mut watch, NEW);
        let expected = rawdoc! {
            "aggregate": 1,
            "pipeline": [{ "$changeStream": { "allChangesForCluster": true } }],
            "cursor": {},
        };
        assert_eq!(command.body, expected);
    }

    /// "$changeStreamSplitLargeEvent must be the last stage": it is there once, also if the
    /// application adds it.
    #[test]
    fn large_events_are_split_once() {
        let split = || doc! { "$changeStreamSplitLargeEvent": {} };
        let stream = rawdoc! { "$changeStream": {} };
        let last = rawdoc! { "$changeStreamSplitLargeEvent": {} };
        let expected = rawdoc! { "pipeline": [stream, last] };
        for stages in [vec![], vec![split()]] {
            let mut watch = Watch::new().pipeline(stages).split_large_events(true);
            assert_eq!(pipeline(&mut watch), expected);
        }
    }

    /// "Resume Process": one of the three options, and the others are gone.
    #[test]
    fn a_stream_that_begins_again_says_where_once() {
        let given = Watch::new()
            .resume_after(token(1))
            .start_at_operation_time(Timestamp { time: 1, increment: 1 });
        let time = Timestamp { time: 2, increment: 1 };
        for (start, stage) in [
            (Start::Resume(token(2)), rawdoc! { "resumeAfter": { "_data": 2 } }),
            (Start::After(token(2)), rawdoc! { "startAfter": { "_data": 2 } }),
            (Start::At(time), rawdoc! { "startAtOperationTime": time }),
        ] {
            let mut watch = given.clone().starting(start);
            let expected = rawdoc! { "pipeline": [{ "$changeStream": stage }] };
            assert_eq!(pipeline(&mut watch), expected);
        }
    }
}
