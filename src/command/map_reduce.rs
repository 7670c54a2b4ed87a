//! Map-reduce, which MongoDB 5.0 has deprecated.

use bson::raw::{CStr, cstr};
use bson::{RawArrayBuf, RawBson, RawBsonRef, RawDocumentBuf};
use sdam_core::wire::ReplyDocument;

use super::Scope;
use super::arguments::{Argument, Arguments, FromArguments};
use super::fields::Fields;
use super::single::{Body, Rules, SingleCommand};
use crate::error::{ArgumentError, Error, ReplyError, WriteConcernError};

operation! {
    /// A map-reduce operation: two functions in JavaScript, and the place for what they make.
    ///
    /// MongoDB 5.0 deprecates it; [`Aggregate`](super::aggregate::Aggregate) does the same, faster.
    #[derive(Clone, Debug)]
    pub struct MapReduce as MapReduceOptions { finalize: Option<String> }

    arguments {
        /// Calls the function `map` for each document, which emits keys with values, and the
        /// function `reduce` for each key and its values.
        new(map: code = "map", reduce: code = "reduce", output: MapReduceOutput = "out");
    }

    options {
        /// Has the output collection take documents that its rules forbid.
        bypass_document_validation: bool = "bypassDocumentValidation";
        /// Sets the rules for comparing texts.
        collation: collation = "collation";
        /// Adds a comment, which servers write to their logs.
        comment: value = "comment";
        /// Has servers before MongoDB 4.4 keep values as JavaScript's between both functions.
        js_mode: bool = "jsMode";
        /// Sets how many documents the first function is called for at most.
        limit: long = "limit";
        /// Sets how long the server may take, in whole milliseconds; deprecated in favour of
        /// `timeoutMS`.
        max_time: millis = "maxTimeMS";
        /// Sets which documents the first function is called for.
        query: document = "query";
        /// Sets the values of global variables of the functions.
        scope: document = "scope";
        /// Sets the order in which the first function is called for documents.
        sort: document = "sort";
        /// Has the reply say how long the parts took.
        verbose: bool = "verbose";
        /// Sets a function that is called for each key and what `reduce` made of its values.
        finalize: code = "finalize" in finalize;
    }
}

/// The place for what a [`MapReduce`] makes.
#[derive(Clone, Debug)]
pub struct MapReduceOutput {
    options: Fields,
}

operation! {
    pub struct MapReduceOutput;

    options {
        /// Sets the database of the collection, for another than that of the documents.
        database: text = "db";
        /// Has servers before MongoDB 4.4 let others use the database between two documents.
        non_atomic: bool = "nonAtomic";
        /// Has servers before MongoDB 4.4 shard the collection by its `_id`.
        sharded: bool = "sharded";
    }
}

impl MapReduceOutput {
    fn new(name: &'static CStr, value: impl Into<RawBson>) -> Self {
        let mut options = Fields::default();
        options.set(name, Ok::<RawBson, _>(value.into()));
        Self { options }
    }

    /// Has the server reply with the documents, at most 16 MiB.
    pub fn inline() -> Self {
        Self::new(cstr!("inline"), 1)
    }

    /// Has the documents replace those of a collection.
    pub fn replace(collection: impl Into<String>) -> Self {
        Self::new(cstr!("replace"), collection.into())
    }

    /// Has the documents go into a collection, in the place of those with the same key.
    pub fn merge(collection: impl Into<String>) -> Self {
        Self::new(cstr!("merge"), collection.into())
    }

    /// Has the documents go into a collection, and the function `reduce` combine those with the
    /// same key.
    pub fn reduce(collection: impl Into<String>) -> Self {
        Self::new(cstr!("reduce"), collection.into())
    }

    fn is_inline(&self) -> bool {
        self.options.has(cstr!("inline"))
    }
}

impl FromArguments for MapReduceOutput {
    fn required(arguments: &mut Arguments) -> Result<Self, ArgumentError> {
        type Make = fn(String) -> MapReduceOutput;
        let makes: [(_, Make); 3] =
            [("replace", Self::replace), ("merge", Self::merge), ("reduce", Self::reduce)];
        for (name, make) in makes {
            if let Some(collection) = arguments.optional::<String>(name)? {
                return Ok(make(collection));
            }
        }
        match arguments.optional::<i64>("inline")? {
            Some(_) => Ok(Self::inline()),
            None => {
                let (name, expected) = ("out".to_owned(), <Self as Argument>::EXPECTED);
                Err(ArgumentError::WrongType { name, expected })
            }
        }
    }
}

from_document!(MapReduceOutput);

/// Server Selection, "Read Preference": with `{ inline: 1 }` it "may-use-secondary", else it
/// "must-use-primary".
impl SingleCommand for MapReduce {
    type Output = RawArrayBuf;

    const COMMAND: &'static CStr = cstr!("mapReduce");
    /// Retryable Reads, "Unsupported Read Operations": `Collection.mapReduce()`.
    const RULES: Rules = Rules::READ.retryable(false);

    /// Read and Write Concern: what is not inline has a write concern, and "does not support a
    /// readConcern". The reply is always waited for.
    fn rules(&self) -> Rules {
        match self.output.is_inline() {
            true => Self::RULES,
            false => Rules { writes: true, ..Rules::RUN },
        }
    }

    fn write(&mut self, body: &mut Body<'_>) -> Result<(), Error> {
        body.append(cstr!("map"), RawBsonRef::JavaScriptCode(&self.map));
        body.append(cstr!("reduce"), RawBsonRef::JavaScriptCode(&self.reduce));
        let mut output = RawDocumentBuf::new();
        self.output.options.write(&mut output)?;
        body.append(cstr!("out"), output);
        if let Some(finalize) = &self.finalize {
            body.append(cstr!("finalize"), RawBsonRef::JavaScriptCode(finalize));
        }
        body.options(&self.options, &[])
    }

    fn read(&mut self, _: &Scope, reply: &ReplyDocument) -> Result<RawArrayBuf, Error> {
        if !self.output.is_inline() {
            return WriteConcernError::check(reply).map(|()| RawArrayBuf::new());
        }
        let missing = |_| ReplyError::new(Self::COMMAND.as_str(), "results");
        Ok(reply.get_array("results").map_err(missing)?.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use bson::{Bson, doc, rawdoc};
    use sdam_core::wire::ReplyDocument;

    use super::super::testing::{NEW, majority, written, written_in};
    use super::super::{Operation, Progress, Route};
    use super::{MapReduce, MapReduceOutput};

    const MAP: &str = "function() { emit(this.kind, this.price); }";
    const REDUCE: &str = "function(kind, prices) { return Array.sum(prices); }";

    fn code(text: &str) -> Bson {
        Bson::JavaScriptCode(text.to_owned())
    }

    #[test]
    fn map_reduce_has_its_functions_as_code_and_all_options() {
        let output = MapReduceOutput::merge("sums").database("other");
        let mut operation = MapReduce::new(MAP, REDUCE, output.sharded(true).non_atomic(false))
            .finalize("function(kind, sum) { return sum * factor; }")
            .query(doc! { "price": { "$gt": 0 } })
            .sort(doc! { "kind": 1 })
            .limit(5)
            .scope(doc! { "factor": 2 })
            .js_mode(true)
            .verbose(true)
            .bypass_document_validation(true)
            .collation(doc! { "locale": "de" })
            .comment("why");
        let expected = doc! {
            "mapReduce": "things",
            "map": code(MAP),
            "reduce": code(REDUCE),
            "out": { "merge": "sums", "db": "other", "sharded": true, "nonAtomic": false },
            "finalize": code("function(kind, sum) { return sum * factor; }"),
            "query": { "price": { "$gt": 0 } },
            "sort": { "kind": 1 },
            "limit": 5_i64,
            "scope": { "factor": 2 },
            "jsMode": true,
            "verbose": true,
            "bypassDocumentValidation": true,
            "collation": { "locale": "de" },
            "comment": "why",
        };
        let body = written(&mut operation, NEW).body;
        assert_eq!(bson::Document::try_from(&*body).unwrap(), expected);
    }

    /// Read and Write Concern, "Read Concern" and "Server's Default WriteConcern"; Server
    /// Selection, "Read Preference"; Retryable Reads, "Unsupported Read Operations".
    #[test]
    fn it_is_a_read_if_the_reply_has_the_documents_and_else_a_write_and_never_repeated() {
        let mut reading = MapReduce::new(MAP, REDUCE, MapReduceOutput::inline());
        assert_eq!(reading.route(), Route::Read);
        let scope = majority();
        assert_eq!(written_in(&mut reading, &scope, NEW).body.get("writeConcern").unwrap(), None);
        let command = reading.command(&scope, &NEW).unwrap();
        assert!(command.takes_read_concern && !command.retryable);
        let mut writing = MapReduce::new(MAP, REDUCE, MapReduceOutput::replace("sums"));
        assert_eq!(writing.route(), Route::Write);
        let command = writing.command(&scope, &NEW).unwrap();
        assert!(!command.takes_read_concern && !command.takes_cluster_time && !command.retryable);
        assert!(command.body.get_document("writeConcern").is_ok());
        assert!(!reading.is_retryable() && !writing.is_retryable());
    }

    #[test]
    fn the_reply_has_the_documents_or_the_error_of_a_write_concern() {
        let mut reading = MapReduce::new(MAP, REDUCE, MapReduceOutput::inline());
        let results = ReplyDocument::from(rawdoc! { "results": [{ "_id": 0, "value": 6 }] });
        let Ok(Progress::Done(found)) = reading.reply(&majority(), &results) else { panic!() };
        assert_eq!(found.into_iter().count(), 1);
        assert!(reading.reply(&majority(), &ReplyDocument::from(rawdoc! { "ok": 1 })).is_err());
        let mut writing = MapReduce::new(MAP, REDUCE, MapReduceOutput::reduce("sums"));
        let done = ReplyDocument::from(rawdoc! { "result": "sums", "ok": 1 });
        assert!(matches!(writing.reply(&majority(), &done), Ok(Progress::Done(_))));
        let failed = rawdoc! { "code": 79, "codeName": "UnknownReplWriteConcern", "errmsg": "no" };
        let failed = ReplyDocument::from(rawdoc! { "ok": 1, "writeConcernError": failed });
        let error = writing.reply(&majority(), &failed).unwrap_err();
        assert_eq!(error.code(), Some(79), "{error}");
    }
}
