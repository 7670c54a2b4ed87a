//! Numbers of documents (CRUD, "Count API Details").

use bson::raw::{CStr, cstr};
use bson::{RawArrayBuf, RawBsonRef, RawDocumentBuf, rawdoc};
use sdam_core::session::TransactionError;
use sdam_core::wire::ReplyDocument;

use super::Scope;
use super::fields::get;
use super::single::{Body, Rules, SingleCommand};
use crate::cursor::Batch;
use crate::error::Error;
use crate::reply::write::count;

operation! {
    /// `countDocuments`: the exact number of documents that a filter matches.
    ///
    /// The server runs an aggregation for it, in which `$where`, `$near` and `$nearSphere` are not
    /// allowed: use `$expr`, and `$geoWithin` with `$center` or `$centerSphere`.
    #[derive(Clone, Debug)]
    pub struct CountDocuments as CountOptions {}

    arguments {
        /// Counts the documents that a filter matches.
        new(filter: document = "filter");
    }

    options {
        /// Sets the rules for comparing texts.
        collation: collation = "collation";
        /// Adds a comment, which servers write to their logs.
        comment: value = "comment";
        /// Sets the index to be used.
        hint: hint = "hint";
        /// Sets the number at which counting ends.
        limit: u64 = "limit";
        /// Sets how long the server may take, in whole milliseconds; deprecated in favour of
        /// `timeoutMS`.
        max_time: millis = "maxTimeMS";
        /// Reads the documents of time series as they are stored (MongoDB 8.2); not for
        /// applications.
        raw_data: bool = "rawData";
        /// Sets how many documents are left out at the beginning.
        skip: u64 = "skip";
    }
}

impl SingleCommand for CountDocuments {
    type Output = u64;

    const COMMAND: &'static CStr = cstr!("aggregate");
    const RULES: Rules = Rules::READ;

    fn write(&mut self, body: &mut Body<'_>) -> Result<(), Error> {
        let mut stages = RawArrayBuf::new();
        stages.push(stage(cstr!("$match"), get(&self.filter)?));
        for (option, name) in [(cstr!("skip"), cstr!("$skip")), (cstr!("limit"), cstr!("$limit"))] {
            let value = self.options.integer(option).filter(|value| *value != 0);
            if let Some(value) = value {
                stages.push(stage(name, RawBsonRef::Int64(value)));
            }
        }
        stages.push(rawdoc! { "$group": { "_id": 1, "n": { "$sum": 1 } } });
        body.append(cstr!("pipeline"), stages);
        body.cursor(None);
        body.options(&self.options, &[cstr!("skip"), cstr!("limit")])
    }

    /// "an empty array will be returned with no n field. Drivers MUST interpret this result as a 0
    /// count."
    fn read(&mut self, _: &Scope, reply: &ReplyDocument) -> Result<u64, Error> {
        let command = Self::COMMAND.as_str();
        let mut batch = Batch::in_reply(command, "firstBatch", reply)?;
        let counted = batch.next_document()?.map(|group| count(command, group, "n"));
        Ok(counted.transpose()?.unwrap_or(0))
    }
}

fn stage(name: &'static CStr, value: RawBsonRef<'_>) -> RawDocumentBuf {
    let mut stage = RawDocumentBuf::new();
    stage.append(name, value);
    stage
}

operation! {
    /// `estimatedDocumentCount`: the number of documents as the collection's metadata have it.
    ///
    /// The server's command [`count`] is used for it. MongoDB 5.0.0 to 5.0.8 left that command out
    /// of version 1 of the Stable API: with it, use 5.0.9 or later, or `apiStrict: false`.
    ///
    /// [`count`]: https://www.mongodb.com/docs/manual/reference/command/count/#behavior
    #[derive(Clone, Debug, Default)]
    pub struct EstimatedDocumentCount as EstimatedDocumentCountOptions {}

    arguments {
        /// Asks for the number, without options.
        new();
    }

    options {
        /// Adds a comment, which servers write to their logs.
        comment: value = "comment";
        /// Sets how long the server may take, in whole milliseconds; deprecated in favour of
        /// `timeoutMS`.
        max_time: millis = "maxTimeMS";
        /// Reads the documents of time series as they are stored (MongoDB 8.2); not for
        /// applications.
        raw_data: bool = "rawData";
    }
}

impl SingleCommand for EstimatedDocumentCount {
    type Output = u64;

    const COMMAND: &'static CStr = cstr!("count");
    const RULES: Rules = Rules::READ;

    fn check_in_transaction(&self) -> Result<(), TransactionError> {
        let (operation, instead) = ("estimated_document_count", "use count_documents");
        Err(TransactionError::NotInTransaction { operation, instead })
    }

    fn write(&mut self, body: &mut Body<'_>) -> Result<(), Error> {
        body.options(&self.options, &[])
    }

    fn read(&mut self, _: &Scope, reply: &ReplyDocument) -> Result<u64, Error> {
        Ok(count(Self::COMMAND.as_str(), reply, "n")?)
    }
}

operation! {
    /// The command `count` with a filter, which drivers have deprecated: in sharded clusters it may
    /// count wrongly. Use [`CountDocuments`].
    #[derive(Clone, Debug)]
    pub struct Count as CountCommandOptions {}

    arguments {
        /// Counts the documents that a filter matches.
        new(filter: document = "filter");
    }

    options {
        /// Sets the rules for comparing texts.
        collation: collation = "collation";
        /// Adds a comment, which servers write to their logs.
        comment: value = "comment";
        /// Sets the index to be used.
        hint: hint = "hint";
        /// Sets the number at which counting ends.
        limit: u64 = "limit";
        /// Sets how long the server may take, in whole milliseconds; deprecated in favour of
        /// `timeoutMS`.
        max_time: millis = "maxTimeMS";
        /// Reads the documents of time series as they are stored (MongoDB 8.2); not for
        /// applications.
        raw_data: bool = "rawData";
        /// Sets how many documents are left out at the beginning.
        skip: u64 = "skip";
    }
}

impl SingleCommand for Count {
    type Output = u64;

    const COMMAND: &'static CStr = cstr!("count");
    const RULES: Rules = Rules::READ;

    fn write(&mut self, body: &mut Body<'_>) -> Result<(), Error> {
        body.append(cstr!("query"), get(&self.filter)?);
        body.options(&self.options, &[])
    }

    fn read(&mut self, _: &Scope, reply: &ReplyDocument) -> Result<u64, Error> {
        Ok(count(Self::COMMAND.as_str(), reply, "n")?)
    }
}

#[cfg(test)]
mod tests {
    use bson::{RawArrayBuf, doc, rawdoc};
    use sdam_core::wire::ReplyDocument;

    use super::super::testing::{NEW, OLD, scope, written};
    use super::super::{Operation, Progress};
    use super::{Count, CountDocuments, EstimatedDocumentCount};

    /// CRUD, "countDocuments": the pipeline, and which options go where.
    #[test]
    fn documents_are_counted_by_an_aggregation() {
        let mut counting = CountDocuments::new(doc! { "a": 1 }).limit(5).skip(2).comment("why");
        let expected = rawdoc! {
            "aggregate": "things",
            "pipeline": [
                { "$match": { "a": 1 } },
                { "$skip": 2_i64 },
                { "$limit": 5_i64 },
                { "$group": { "_id": 1, "n": { "$sum": 1 } } },
            ],
            "cursor": {},
            "comment": "why",
        };
        assert_eq!(written(&mut counting, NEW).body, expected);
        let reply = |batch: RawArrayBuf| {
            ReplyDocument::from(rawdoc! { "cursor": { "id": 0, "ns": "a.b", "firstBatch": batch } })
        };
        let found = reply(RawArrayBuf::from_iter([rawdoc! { "_id": 1, "n": 3 }]));
        assert_eq!(counting.reply(&scope(), &found).unwrap(), Progress::Done(3));
        let nothing = reply(RawArrayBuf::new());
        assert_eq!(counting.reply(&scope(), &nothing).unwrap(), Progress::Done(0));
        let uncounted = reply(RawArrayBuf::from_iter([rawdoc! { "_id": 1 }]));
        let error = counting.reply(&scope(), &uncounted).unwrap_err();
        assert_eq!(error.to_string(), "the server's reply to aggregate has no n that can be read");
    }

    /// CRUD, "estimatedDocumentCount": the command count, with no query.
    #[test]
    fn estimates_come_from_count() {
        let mut estimate = EstimatedDocumentCount::new().comment("why");
        let expected = rawdoc! { "count": "things", "comment": "why" };
        assert_eq!(written(&mut estimate, NEW).body, expected);
        let reply = ReplyDocument::from(rawdoc! { "n": 7.0, "ok": 1.0 });
        assert_eq!(estimate.reply(&scope(), &reply).unwrap(), Progress::Done(7));
        let nothing = ReplyDocument::from(rawdoc! { "ok": 1.0 });
        assert!(estimate.reply(&scope(), &nothing).is_err());
    }

    #[test]
    fn count_has_a_query() {
        let mut counting = Count::new(doc! { "a": 1 }).limit(1).raw_data(true);
        let expected = rawdoc! { "count": "things", "query": { "a": 1 }, "limit": 1_i64 };
        assert_eq!(written(&mut counting, OLD).body, expected);
        assert_eq!(written(&mut counting, NEW).body.get_bool("rawData").ok(), Some(true));
    }
}
