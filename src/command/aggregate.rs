//! Aggregation (CRUD, `aggregate`).

use std::time::Duration;

use bson::raw::{CStr, cstr};
use bson::{RawBson, RawBsonRef, RawDocument};
use sdam_core::operation::OperationKind;
use sdam_core::wire::ReplyDocument;

use super::fields::{Value, get};
use super::single::{Body, Rules, SingleCommand};
use super::{MONGODB_5_0, Route, Scope, find};
use crate::cursor::{CursorState, Settings, TimeoutMode, Timing};
use crate::error::{Error, WriteConcernError};
use crate::value::{IntoDocument, array};

operation! {
    /// A pipeline that a server runs, and how.
    ///
    /// ```
    /// use bson::doc;
    /// use sdam::operation::Aggregate;
    ///
    /// let sums = [doc! { "$group": { "_id": "$kind", "sum": { "$sum": "$price" } } }];
    /// let sums = Aggregate::new(sums).allow_disk_use(true);
    /// # let _ = sums;
    /// ```
    #[derive(Clone, Debug)]
    pub struct Aggregate as AggregateOptions {
        max_await_time: Option<Duration>,
        timeout_mode: Option<TimeoutMode>,
        settings: Settings,
    }

    arguments {
        /// Runs the stages of a pipeline.
        new(pipeline: documents = "pipeline");
    }

    options {
        /// Lets the server write temporary files.
        allow_disk_use: bool = "allowDiskUse";
        /// Sets how many documents a batch has.
        batch_size: u32 = "batchSize";
        /// Has `$out` and `$merge` write documents that the collection's rules forbid.
        bypass_document_validation: bool = "bypassDocumentValidation";
        /// Sets the rules for comparing texts.
        collation: collation = "collation";
        /// Adds a comment, which servers write to their logs; it is sent with each getMore, too.
        comment: value = "comment";
        /// Sets the index to be used.
        hint: hint = "hint";
        /// Sets the values of variables for expressions.
        let_vars: document = "let";
        /// Sets how long the server may take, in whole milliseconds; deprecated in favour of
        /// `timeoutMS`.
        max_time: millis = "maxTimeMS";
        /// Reads the documents of time series as they are stored (MongoDB 8.2); not for
        /// applications.
        raw_data: bool = "rawData";
        /// Sets how long the server waits for new documents of a cursor that awaits them, as that
        /// of `$changeStream` does: `maxTimeMS` of each getMore, which servers refuse for other
        /// cursors.
        max_await_time: millis = "maxAwaitTimeMS" in max_await_time;
        /// Sets what `timeoutMS` limits.
        timeout_mode: TimeoutMode = "timeoutMode" in timeout_mode;
    }
}

/// The stages of a pipeline.
impl<I: IntoIterator<Item = D>, D: IntoDocument> From<I> for Aggregate {
    fn from(pipeline: I) -> Self {
        Self::new(pipeline)
    }
}

impl Aggregate {
    /// Sets the one stage of the pipeline.
    pub(crate) fn with_stage(mut self, stage: bson::RawDocumentBuf) -> Self {
        self.pipeline = Value::from(array([stage]));
        self
    }

    /// Returns whether the pipeline ends by writing to a collection.
    fn writes(&self) -> bool {
        let Ok(RawBson::Array(pipeline)) = &self.pipeline.0 else { return false };
        let last = pipeline.into_iter().filter_map(Result::ok).last();
        let stage = last.and_then(RawBsonRef::as_document).and_then(first_key);
        matches!(stage, Some("$out" | "$merge"))
    }
}

/// Returns the name of a document's first field.
pub(crate) fn first_key(document: &RawDocument) -> Option<&str> {
    document.iter().next()?.ok().map(|(name, _)| name.as_str())
}

impl SingleCommand for Aggregate {
    type Output = CursorState;

    const COMMAND: &'static CStr = cstr!("aggregate");
    const RULES: Rules = Rules::READ.opening();

    /// Retryable Reads: pipelines that write are not repeated. Their reply has a cursor in any
    /// case, so that there is no aggregation without one.
    fn rules(&self) -> Rules {
        match self.writes() {
            false => Self::RULES,
            true => Rules {
                kind: OperationKind::Write,
                route: Route::ReadSince(MONGODB_5_0),
                is_retryable: false,
                writes: true,
                ..Self::RULES
            },
        }
    }

    fn cursor_timing(&self) -> Timing {
        Timing {
            mode: self.timeout_mode,
            await_data: self.max_await_time.is_some(),
            max_await_time: self.max_await_time,
            writes: self.writes(),
            ..Timing::default()
        }
    }

    fn write(&mut self, body: &mut Body<'_>) -> Result<(), Error> {
        self.settings = find::settings(&self.options, body.facts);
        // "Drivers SHOULD always send this value": only the server knows what the cursor does.
        self.settings.max_await_time = self.max_await_time;
        self.settings.await_data = self.max_await_time.is_some();
        body.append(cstr!("pipeline"), get(&self.pipeline)?);
        // "Drivers SHOULD leave the cursor.batchSize command option unset in an aggregate command
        // that includes an $out or $merge stage."
        body.cursor(self.options.get(cstr!("batchSize")).filter(|_| !self.writes()));
        body.options(&self.options, &[cstr!("batchSize")])
    }

    fn read(&mut self, scope: &Scope, reply: &ReplyDocument) -> Result<CursorState, Error> {
        if self.writes() {
            WriteConcernError::check(reply)?;
        }
        let settings = std::mem::take(&mut self.settings);
        Ok(CursorState::open_on(scope.namespace(), Self::COMMAND.as_str(), reply, settings)?)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bson::{Document, doc, rawdoc};
    use sdam_core::operation::MaxTime;
    use sdam_core::wire::ReplyDocument;

    use super::super::testing::{NEW, majority, written, written_in};
    use super::super::{Operation, Progress, Route, Scope};
    use super::Aggregate;
    use crate::cursor::CursorStep;
    use crate::error::TimingError;

    #[test]
    fn aggregate_has_its_pipeline_and_a_cursor() {
        let mut operation =
            Aggregate::new([doc! { "$match": { "a": 1 } }]).batch_size(2).allow_disk_use(true);
        let expected = rawdoc! {
            "aggregate": "things",
            "pipeline": [{ "$match": { "a": 1 } }],
            "cursor": { "batchSize": 2 },
            "allowDiskUse": true,
        };
        assert_eq!(written(&mut operation, NEW).body, expected);
        assert_eq!(operation.route(), Route::Read);
    }

    /// CRUD, `maxAwaitTimeMS` of `aggregate`: "an alias for maxTimeMS, used on getMore commands",
    /// and "not set on the aggregate command".
    #[test]
    fn every_get_more_says_how_long_the_server_may_wait() {
        let changes = [doc! { "$changeStream": {} }];
        let mut operation = Aggregate::new(changes).max_await_time(Duration::from_millis(9));
        assert_eq!(written(&mut operation, NEW).body.get("maxTimeMS").unwrap(), None);
        let cursor = rawdoc! { "id": 7_i64, "ns": "app.things", "firstBatch": [] };
        let reply = ReplyDocument::from(rawdoc! { "ok": 1, "cursor": cursor });
        let Ok(Progress::Done(mut cursor)) = operation.reply(&majority(), &reply) else { panic!() };
        let Ok(CursorStep::GetMore(more)) = cursor.step() else { panic!() };
        assert_eq!(more.get_i64("maxTimeMS").ok(), Some(9));
    }

    /// CSOT, "Tailable awaitData Cursors": "Drivers MUST error if this option is set, timeoutMS is
    /// set to a non-zero value, and maxAwaitTimeMS is greater than or equal to timeoutMS".
    #[test]
    fn the_server_may_not_wait_longer_than_the_client() {
        let second = Duration::from_secs(1);
        let changes = Aggregate::new([doc! { "$changeStream": {} }]).max_await_time(second);
        let timing = changes.timing();
        assert_eq!(timing.check(Some(second)), Err(TimingError::AwaitTooLong));
        assert_eq!(timing.check(Some(2 * second)), Ok(()));
        assert_eq!(timing.of_next(), MaxTime::AtMost(second));
        let plain = Aggregate::new([doc! { "$match": {} }]).timing();
        assert_eq!((plain.check(Some(second)), plain.of_next()), (Ok(()), MaxTime::Never));
    }

    /// CRUD, "Database-level aggregation".
    #[test]
    fn a_database_aggregates_as_collection_1() {
        let mut operation = Aggregate::new(Vec::<Document>::new());
        let scope = Scope { collection: "".into(), ..majority() };
        let expected = rawdoc! { "aggregate": 1, "pipeline": [], "cursor": {} };
        assert_eq!(written_in(&mut operation, &scope, NEW).body, expected);
    }

    /// CRUD: no batchSize with $out or $merge, and "Read preferences and server selection"; Read
    /// and Write Concern: aggregate with $out takes a write concern.
    #[test]
    fn pipelines_that_write_have_a_write_concern_and_no_batch_size_and_are_not_repeated() {
        for stage in [doc! { "$out": "other" }, doc! { "$merge": { "into": "other" } }] {
            let mut operation = Aggregate::new([doc! { "$match": {} }, stage]).batch_size(0);
            let scope = majority();
            assert_eq!(operation.route(), Route::ReadSince(13));
            let command = operation.command(&scope, &NEW).unwrap();
            assert!(!command.retryable && command.takes_read_concern);
            assert_eq!(command.body.get_document("cursor").unwrap(), &*rawdoc! {});
            let concern = command.body.get_document("writeConcern").unwrap();
            assert_eq!(concern, &*rawdoc! { "w": "majority" });
        }
        let mut reading = Aggregate::new([doc! { "$match": {} }]);
        let body = written_in(&mut reading, &majority(), NEW).body;
        assert_eq!(body.get("writeConcern").unwrap(), None);
    }
}
