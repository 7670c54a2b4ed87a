//! Explanations of operations (CRUD, "Explain").

use std::time::Duration;

use bson::raw::cstr;
use bson::{RawBson, RawDocumentBuf};
use sdam_core::config::{ReadPreference, WriteConcern};
use sdam_core::operation::OperationKind;
use sdam_core::wire::ReplyDocument;

use super::aggregate::Aggregate;
use super::count::{Count, CountDocuments, EstimatedDocumentCount};
use super::delete::Delete;
use super::distinct::Distinct;
use super::find::{Find, FindOne};
use super::find_and_modify::{FindOneAndDelete, FindOneAndReplace, FindOneAndUpdate};
use super::single::Rules;
use super::update::{Replace, Update};
use super::{Command, Facts, Operation, Progress, Route, Scope};
use crate::error::Error;
use crate::value::whole_millis;

/// The explanation of an operation: by which plan a server would run it, and how that goes.
///
/// Writes are explained, too, and write nothing. The command is sent to a server that could run the
/// operation; it has no read concern and no write concern, and is not sent again after an error.
///
/// The time that the server may take is limited by [`max_time`](Self::max_time), or by `timeoutMS`
/// of the handle. Both are about the explanation. A `max_time` of the operation counts if the
/// explanation has none of its own.
///
/// ```
/// use bson::doc;
/// use sdam::operation::{Explain, Find, Verbosity};
///
/// let by_year = Find::new(doc! { "year": 1815 }).sort(doc! { "title": 1 });
/// let explain = Explain::new(by_year).verbosity(Verbosity::ExecutionStats);
/// # let _ = explain;
/// ```
#[derive(Clone, Debug)]
pub struct Explain<O> {
    operation: O,
    verbosity: Option<Verbosity>,
    max_time: Option<Duration>,
}

/// The amount of detail in an explanation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Verbosity {
    /// The plan that the server has chosen; nothing is run.
    QueryPlanner,
    /// That plan is run, and what it has looked at is counted.
    ExecutionStats,
    /// The plans that were not chosen are run, too, for as long as the choice takes. Servers take
    /// this where nothing is said.
    AllPlansExecution,
}

impl Verbosity {
    /// Returns the name that servers have for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::QueryPlanner => "queryPlanner",
            Self::ExecutionStats => "executionStats",
            Self::AllPlansExecution => "allPlansExecution",
        }
    }
}

impl<O: Explainable> Explain<O> {
    /// Explains an operation.
    pub const fn new(operation: O) -> Self {
        Self { operation, verbosity: None, max_time: None }
    }
}

impl<O> Explain<O> {
    /// Sets how detailed the explanation is.
    #[must_use]
    pub const fn verbosity(mut self, verbosity: Verbosity) -> Self {
        self.verbosity = Some(verbosity);
        self
    }

    /// Sets how long the server may take to explain, in whole milliseconds (`maxTimeMS`);
    /// deprecated in favour of `timeoutMS`.
    #[must_use]
    pub const fn max_time(mut self, time: Duration) -> Self {
        self.max_time = Some(time);
        self
    }
}

/// An operation that servers explain.
pub trait Explainable: Operation {}

macro_rules! explainable {
    ($($operation:ident)+) => {
        $(impl Explainable for $operation {})+
    };
}

explainable! {
    Aggregate Count CountDocuments Delete Distinct EstimatedDocumentCount Find FindOne
    FindOneAndDelete FindOneAndReplace FindOneAndUpdate Replace Update
}

impl Explain<Find> {
    /// Explains a search.
    pub fn find(find: impl Into<Find>) -> Self {
        Self::new(find.into())
    }
}

impl Explain<FindOne> {
    /// Explains a search for one document.
    pub fn find_one(find: impl Into<FindOne>) -> Self {
        Self::new(find.into())
    }
}

impl Explain<Aggregate> {
    /// Explains a pipeline.
    pub const fn aggregate(aggregate: Aggregate) -> Self {
        Self::new(aggregate)
    }
}

impl Explain<Count> {
    /// Explains the command `count`.
    pub fn count(count: impl Into<Count>) -> Self {
        Self::new(count.into())
    }
}

impl Explain<CountDocuments> {
    /// Explains how documents that match are counted.
    pub fn count_documents(count: impl Into<CountDocuments>) -> Self {
        Self::new(count.into())
    }
}

impl Explain<EstimatedDocumentCount> {
    /// Explains how the number of documents is estimated.
    pub const fn estimated_document_count(estimate: EstimatedDocumentCount) -> Self {
        Self::new(estimate)
    }
}

impl Explain<Distinct> {
    /// Explains how the different values of a field are found.
    pub const fn distinct(distinct: Distinct) -> Self {
        Self::new(distinct)
    }
}

impl Explain<Update> {
    /// Explains an update of the first document that matches.
    pub const fn update_one(update: Update) -> Self {
        Self::new(update.multi(false))
    }

    /// Explains an update of all documents that match.
    pub const fn update_many(update: Update) -> Self {
        Self::new(update.multi(true))
    }
}

impl Explain<Replace> {
    /// Explains the replacement of a document.
    pub const fn replace_one(replace: Replace) -> Self {
        Self::new(replace)
    }
}

impl Explain<Delete> {
    /// Explains the deletion of the first document that matches.
    pub fn delete_one(delete: impl Into<Delete>) -> Self {
        Self::new(delete.into().multi(false))
    }

    /// Explains the deletion of all documents that match.
    pub fn delete_many(delete: impl Into<Delete>) -> Self {
        Self::new(delete.into().multi(true))
    }
}

impl Explain<FindOneAndDelete> {
    /// Explains a deletion that returns the document.
    pub fn find_one_and_delete(delete: impl Into<FindOneAndDelete>) -> Self {
        Self::new(delete.into())
    }
}

impl Explain<FindOneAndReplace> {
    /// Explains a replacement that returns the document.
    pub const fn find_one_and_replace(replace: FindOneAndReplace) -> Self {
        Self::new(replace)
    }
}

impl Explain<FindOneAndUpdate> {
    /// Explains an update that returns the document.
    pub const fn find_one_and_update(update: FindOneAndUpdate) -> Self {
        Self::new(update)
    }
}

impl<O: Operation> Operation for Explain<O> {
    type Output = RawDocumentBuf;

    fn name(&self) -> &'static str {
        "explain"
    }

    fn kind(&self) -> OperationKind {
        OperationKind::Read
    }

    fn is_retryable(&self) -> bool {
        false
    }

    fn route(&self) -> Route {
        self.operation.route()
    }

    fn read_preference(&self) -> Option<&ReadPreference> {
        self.operation.read_preference()
    }

    fn command(&mut self, scope: &Scope, facts: &Facts) -> Result<Command<'_>, Error> {
        let unconcerned = Scope { write_concern: WriteConcern::default(), ..scope.clone() };
        let command = self.operation.command(&unconcerned, facts)?;
        assert!(command.sequences.is_empty(), "these are commands of one document");
        let (mut explained, mut max_time) = (RawDocumentBuf::new(), None);
        for (name, value) in command.body.iter().map_while(Result::ok) {
            match name.as_str() {
                "maxTimeMS" => max_time = Some(RawBson::from(value)),
                _ => explained.append(name, value),
            }
        }
        let mut body = RawDocumentBuf::new();
        body.append(cstr!("explain"), explained);
        if let Some(verbosity) = self.verbosity {
            body.append(cstr!("verbosity"), verbosity.name());
        }
        let own = self.max_time.map(|time| RawBson::Int64(whole_millis(time)));
        // The caller that sends the command adds what is left of `timeoutMS`.
        if let Some(time) = own.or(max_time).filter(|_| !scope.has_timeout) {
            body.append(cstr!("maxTimeMS"), time.as_raw_bson_ref());
        }
        Rules::RUN.command(scope, body)
    }

    fn reply(&mut self, _: &Scope, reply: &ReplyDocument) -> Result<Progress<Self::Output>, Error> {
        Ok(Progress::Done((**reply).to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bson::{RawDocumentBuf, doc, rawdoc};
    use sdam_core::operation::OperationKind;

    use super::super::testing::{NEW, majority, scope, unacknowledged, written, written_in};
    use super::super::{Operation, Route, Scope};
    use super::{Explain, Verbosity};
    use crate::command::delete::Delete;
    use crate::command::find::Find;
    use crate::command::find_and_modify::FindOneAndUpdate;
    use crate::command::update::Update;

    const TWO_SECONDS: Duration = Duration::from_secs(2);

    fn body(mut explain: impl Operation) -> RawDocumentBuf {
        written(&mut explain, NEW).body
    }

    /// CRUD, "Explain": "Drivers MUST ensure that its helper permits users to specify a timeout
    /// [...] for the explain command specifically".
    #[test]
    fn the_time_is_that_of_the_explanation() {
        let find = || Find::new(doc! { "name": "john doe" });
        let inner = rawdoc! { "find": "things", "filter": { "name": "john doe" } };
        let timed = rawdoc! { "explain": inner.clone(), "maxTimeMS": 2000_i64 };
        assert_eq!(body(Explain::new(find()).max_time(TWO_SECONDS)), timed);
        assert_eq!(body(Explain::new(find().max_time(TWO_SECONDS))), timed);
        let both = Explain::new(find().max_time(Duration::from_secs(9))).max_time(TWO_SECONDS);
        assert_eq!(body(both.clone()), timed);
        let has_timeout = Scope { has_timeout: true, ..scope() };
        let bare = rawdoc! { "explain": inner };
        assert_eq!(written_in(&mut both.clone(), &has_timeout, NEW).body, bare);
    }

    /// Nothing is written, so that no concern counts, and a reply is always asked for.
    #[test]
    fn writes_are_explained_without_their_concern() {
        for scope in [majority(), unacknowledged()] {
            let mut explain = Explain::new(Delete::new(doc! { "a": 1 }).multi(true));
            let expected = rawdoc! {
                "explain": {
                    "delete": "things",
                    "ordered": true,
                    "deletes": [{ "q": { "a": 1 }, "limit": 0 }],
                },
                "verbosity": "queryPlanner",
            };
            explain = explain.verbosity(Verbosity::QueryPlanner);
            assert_eq!(written_in(&mut explain, &scope, NEW).body, expected);
            let command = explain.command(&scope, &NEW).unwrap();
            assert!(command.acknowledged && !command.retryable && !command.opens_cursor);
            assert!(command.read_concern(&scope).is_none());
        }
    }

    #[test]
    fn explanations_go_where_the_operation_would_and_are_not_sent_again() {
        let update = || Explain::new(Update::new(doc! {}, doc! { "$set": { "a": 1 } }));
        let many = Explain::new(Update::many(doc! {}, doc! { "$set": { "a": 1 } }));
        let modify = FindOneAndUpdate::new(doc! {}, doc! { "$set": { "a": 1 } });
        assert_eq!(update().route(), Route::Write);
        assert_eq!(Explain::new(modify).route(), Route::Write);
        let find = Explain::new(Find::new(doc! {}));
        assert_eq!(find.route(), Route::Read);
        for (kind, retryable) in
            [(find.kind(), find.is_retryable()), (many.kind(), many.is_retryable())]
        {
            assert_eq!((kind, retryable), (OperationKind::Read, false));
        }
    }
}
