//! Arguments of operations by name, as configurations and tests have them.

use std::time::Duration;

use bson::{Bson, Document, Timestamp};
use serde::{Deserialize, Deserializer, de};

use super::find::CursorType;
use super::find_and_modify::ReturnDocument;
use super::map_reduce::MapReduceOutput;
use crate::collation::Collation;
use crate::cursor::TimeoutMode;
use crate::error::ArgumentError;
use crate::value::{Hint, Modifications};

/// The arguments that an operation has not read yet.
pub(crate) struct Arguments(pub(crate) Document);

impl Arguments {
    /// Takes an argument that must be there.
    pub(crate) fn required<T: Argument>(&mut self, name: &'static str) -> Result<T, ArgumentError> {
        self.optional(name)?.ok_or(ArgumentError::MissingArgument(name))
    }

    /// Takes an argument that may be there.
    pub(crate) fn optional<T: Argument>(&mut self, name: &str) -> Result<Option<T>, ArgumentError> {
        self.0.remove(name).map(|value| read(name, value)).transpose()
    }

    /// Takes those of these names that are there.
    pub(crate) fn take(&mut self, names: &[&str]) -> Self {
        let (taken, left) = std::mem::take(&mut self.0)
            .into_iter()
            .partition(|(name, _)| names.contains(&name.as_str()));
        self.0 = left;
        Self(taken)
    }
}

/// A type with options that have names.
pub(crate) trait Options: Sized {
    /// The names of all options.
    const OPTIONS: &'static [&'static str];

    /// Sets an option.
    fn set(self, name: &str, value: Bson) -> Result<Self, ArgumentError>;

    fn set_all(self, options: Document) -> Result<Self, ArgumentError> {
        let mut options = options.into_iter();
        options.try_fold(self, |own, (name, value)| own.set(&name, value))
    }
}

/// Options while they are set, one by one.
#[derive(Clone, Debug, Default)]
pub struct OptionsBuilder<O>(pub(crate) O);

impl<O> OptionsBuilder<O> {
    /// Returns the options.
    pub fn build(self) -> O {
        self.0
    }
}

/// A type that is made of arguments with names.
pub(crate) trait FromArguments: Options {
    /// The names of arguments that it can do without, and that are no options.
    const OPTIONAL: &'static [&'static str] = &[];

    /// Takes the arguments that it cannot do without, and those of [`OPTIONAL`](Self::OPTIONAL).
    fn required(arguments: &mut Arguments) -> Result<Self, ArgumentError>;

    fn from_arguments(mut arguments: Arguments) -> Result<Self, ArgumentError> {
        let own = Self::required(&mut arguments)?;
        own.set_all(arguments.0).map_err(|mut error| {
            if let ArgumentError::UnknownArgument { known, .. } = &mut error
                && *known == Self::OPTIONS
            {
                known.splice(..0, Self::OPTIONAL.iter().copied());
            }
            error
        })
    }
}

/// A value that an argument may have.
pub(crate) trait Argument: Sized {
    /// The description of such a value in an error.
    const EXPECTED: &'static str;

    fn read(value: Bson) -> Option<Self>;
}

/// Reads the value of an argument.
pub(crate) fn read<T: Argument>(name: &str, value: Bson) -> Result<T, ArgumentError> {
    let error = || ArgumentError::WrongType { name: name.to_owned(), expected: T::EXPECTED };
    T::read(value).ok_or_else(error)
}

/// Reads a type of its arguments with serde, from whichever format has them.
pub(crate) fn deserialize<'de, T, D>(
    deserializer: D,
    from_document: impl FnOnce(Document) -> Result<T, ArgumentError>,
) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
{
    from_document(Document::deserialize(deserializer)?).map_err(de::Error::custom)
}

/// Code in JavaScript.
pub(crate) struct Code(String);

impl From<Code> for String {
    fn from(code: Code) -> Self {
        code.0
    }
}

/// Says which values of BSON arguments are read from.
macro_rules! arguments {
    ($($type:ty = $expected:literal { $($value:pat => $read:expr,)+ })+) => {
        $(impl Argument for $type {
            const EXPECTED: &'static str = $expected;

            fn read(value: Bson) -> Option<Self> {
                match value {
                    $($value => $read,)+
                    _ => None,
                }
            }
        })+
    };
}

arguments! {
    bool = "true or false" { Bson::Boolean(value) => Some(value), }
    i32 = "an integer of 32 bits" {
        Bson::Int32(value) => Some(value),
        Bson::Int64(value) => value.try_into().ok(),
        Bson::Double(value) => whole(value)?.try_into().ok(),
    }
    i64 = "an integer" {
        Bson::Int32(value) => Some(value.into()),
        Bson::Int64(value) => Some(value),
        Bson::Double(value) => whole(value),
    }
    Duration = "a number of milliseconds" {
        Bson::Int32(value) => value.try_into().ok().map(Self::from_millis),
        Bson::Int64(value) => value.try_into().ok().map(Self::from_millis),
    }
    String = "a string" { Bson::String(value) => Some(value), }
    Code = "code in JavaScript" {
        Bson::JavaScriptCode(code) | Bson::String(code) => Some(Self(code)),
    }
    Timestamp = "a timestamp" { Bson::Timestamp(value) => Some(value), }
    Document = "a document" { Bson::Document(value) => Some(value), }
    Collation = "a document with locale and other options of collations" {
        collation @ Bson::Document(_) => bson::deserialize_from_bson(collation).ok(),
    }
    Vec<Document> = "an array of documents" {
        Bson::Array(values) => values.into_iter().map(Document::read).collect(),
    }
    Hint = "the name or the keys of an index" {
        Bson::String(name) => Some(name.into()),
        Bson::Document(keys) => Some(keys.into()),
    }
    Modifications = "a document of operators or a pipeline" {
        Bson::Document(operators) => Some(operators.into()),
        stages @ Bson::Array(_) => Vec::<Document>::read(stages).map(Self::from),
    }
    CursorType = "nonTailable, tailable, tailableAwait or exhaust" {
        Bson::String(name) => named(&name, &[
            ("nonTailable", Self::NonTailable),
            ("tailable", Self::Tailable),
            ("tailableAwait", Self::TailableAwait),
            ("exhaust", Self::Exhaust),
        ]),
    }
    TimeoutMode = "cursorLifetime or iteration" {
        Bson::String(name) => named(&name, &[
            ("cursorLifetime", Self::CursorLifetime),
            ("iteration", Self::Iteration),
        ]),
    }
    MapReduceOutput = "a collection, or one of inline, replace, merge and reduce with its options" {
        Bson::String(collection) => Some(Self::replace(collection)),
        Bson::Document(output) => Self::from_document(output).ok(),
    }
    ReturnDocument = "Before or After" {
        Bson::String(name) => named(&name, &[("Before", Self::Before), ("After", Self::After)]),
    }
}

impl Argument for u32 {
    const EXPECTED: &'static str = "an integer from 0 to 4294967295";

    fn read(value: Bson) -> Option<Self> {
        i64::read(value)?.try_into().ok()
    }
}

impl Argument for u64 {
    const EXPECTED: &'static str = "an integer that is not negative";

    fn read(value: Bson) -> Option<Self> {
        i64::read(value)?.try_into().ok()
    }
}

impl Argument for Bson {
    const EXPECTED: &'static str = "a value";

    fn read(value: Bson) -> Option<Self> {
        Some(value)
    }
}

/// Returns a whole number that is written as a double, as languages with one kind of numbers do.
fn whole(value: f64) -> Option<i64> {
    // Beyond that, a double is whole because it has no room for the rest.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    (value.fract() == 0.0 && value.abs() <= EXACT).then_some(value as i64)
}

fn named<T: Copy>(name: &str, values: &[(&str, T)]) -> Option<T> {
    values.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
}

#[cfg(test)]
mod tests {
    use bson::{Bson, Document, doc, rawdoc};
    use serde::Deserialize;

    use crate::command::testing::{NEW, scope, written};
    use crate::command::{Operation, Progress};
    use crate::error::ArgumentError;
    use crate::operation::{
        Aggregate, BulkWrite, ClientBulkWrite, CreateIndexes, DropCollection, DropIndexes,
        DropSearchIndex, Find, FindOneAndUpdate, InsertMany, InsertOne, ListCollections,
        ListSearchIndexes, MapReduce, MapReduceOutput, RunCursorCommand, Update,
    };
    use crate::options::{CursorType, FindOneAndUpdateOptions, FindOptions, Hint};

    fn body(mut operation: impl Operation) -> Document {
        Document::try_from(&*written(&mut operation, NEW).body).unwrap()
    }

    /// Options by name are those that the methods set, whatever their kind.
    #[test]
    fn an_operation_is_the_same_however_its_options_are_set() {
        let by_name = doc! {
            "filter": { "a": 1 },
            "allowDiskUse": true,
            "batchSize": 5_i64,
            "comment": ["why"],
            "cursorType": "tailableAwait",
            "hint": "a_1",
            "limit": 7,
            "maxAwaitTimeMS": 10,
            "maxTimeMS": 20_i64,
            "sort": { "b": 1 },
        };
        let by_method = Find::new(doc! { "a": 1 })
            .allow_disk_use(true)
            .batch_size(5)
            .comment(Bson::Array(vec!["why".into()]))
            .cursor_type(CursorType::TailableAwait)
            .hint("a_1")
            .limit(7)
            .max_await_time(std::time::Duration::from_millis(10))
            .max_time(std::time::Duration::from_millis(20))
            .sort(doc! { "b": 1 });
        let read = Find::from_document(by_name.clone()).unwrap();
        assert_eq!(read.timing(), by_method.timing());
        assert_eq!(body(read), body(by_method));
        let read: Find = bson::deserialize_from_document(by_name).unwrap();
        let options = FindOptions::from_document(doc! { "limit": 8, "hint": { "c": 1 } }).unwrap();
        let body = body(read.with_options(options));
        assert_eq!(
            (body.get("limit"), body.get("hint")),
            (Some(&8_i64.into()), Some(&doc! { "c": 1 }.into()))
        );
    }

    /// Options alone are written as they are read.
    #[test]
    fn options_come_back_as_they_were() {
        let options = doc! {
            "cursorType": "tailableAwait",
            "hint": { "a": 1 },
            "limit": 7_i64,
            "maxTimeMS": 20_i64,
            "sort": { "b": 1 },
            "timeoutMode": "iteration",
        };
        let read = FindOptions::from_document(options.clone()).unwrap();
        assert_eq!(read.hint, Some(Hint::Keys(doc! { "a": 1 })));
        assert_eq!(bson::serialize_to_document(&read).unwrap(), options);
        let none = bson::serialize_to_document(&FindOptions::default()).unwrap();
        assert_eq!(none, doc! {}, "what is not set is not written");
        for options in [doc! { "returnDocument": "After", "hint": "a_1" }, doc! {}] {
            let read = FindOneAndUpdateOptions::from_document(options.clone()).unwrap();
            assert_eq!(bson::serialize_to_document(&read).unwrap(), options);
        }
    }

    /// JavaScript, JSON and old servers know one kind of numbers.
    #[test]
    fn a_whole_number_may_be_a_double() {
        let read = |limit: f64| FindOptions::from_document(doc! { "limit": limit });
        assert_eq!(read(5_253_511_168.0).unwrap().limit, Some(5_253_511_168));
        assert_eq!(read(-2.0).unwrap().limit, Some(-2));
        for wrong in [0.5, 1e16, f64::NAN, f64::INFINITY] {
            assert_eq!(
                read(wrong).unwrap_err().to_string(),
                "the argument limit must be an integer"
            );
        }
        let batch_size = FindOptions::from_document(doc! { "batchSize": 5e9 });
        let expected = "the argument batchSize must be an integer from 0 to 4294967295";
        assert_eq!(batch_size.unwrap_err().to_string(), expected);
    }

    /// Names that the command has others for, and arguments that are more than a field of it.
    #[test]
    fn arguments_have_the_names_of_the_specifications() {
        let update = doc! {
            "filter": {}, "update": [{ "$set": { "a": 1 } }], "projection": { "a": 1 },
            "returnDocument": "After",
        };
        let expected = doc! {
            "findAndModify": "things", "query": {}, "update": [{ "$set": { "a": 1 } }],
            "new": true, "fields": { "a": 1 },
        };
        assert_eq!(body(FindOneAndUpdate::from_document(update).unwrap()), expected);
        let index = doc! { "keys": { "a": 1 }, "unique": true, "commitQuorum": 1 };
        let expected = doc! {
            "createIndexes": "things",
            "indexes": [{ "key": { "a": 1 }, "unique": true, "name": "a_1" }],
            "commitQuorum": 1,
        };
        assert_eq!(body(CreateIndexes::from_document(index).unwrap()), expected);
        let one = DropIndexes::from_document(doc! { "name": "a_1" }).unwrap();
        assert_eq!(body(one), doc! { "dropIndexes": "things", "index": "a_1" });
        let all = DropIndexes::from_document(doc! {}).unwrap();
        assert_eq!(body(all), doc! { "dropIndexes": "things", "index": "*" });
        let code = |text: &str| Bson::JavaScriptCode(text.to_owned());
        for (out, expected) in [
            (Bson::from("sums"), doc! { "replace": "sums" }),
            (doc! { "inline": 1 }.into(), doc! { "inline": 1 }),
            (doc! { "merge": "a", "db": "b" }.into(), doc! { "merge": "a", "db": "b" }),
        ] {
            let map_reduce = doc! { "map": code("f"), "reduce": "g", "out": out };
            let body = body(MapReduce::from_document(map_reduce).unwrap());
            assert_eq!(body.get_document("out").unwrap(), &expected);
            assert_eq!(body.get("reduce"), Some(&code("g")));
        }
        let list = doc! { "name": "a", "aggregationOptions": { "batchSize": 3 } };
        let body = body(ListSearchIndexes::from_document(list).unwrap());
        assert_eq!(body.get_document("cursor").unwrap(), &doc! { "batchSize": 3 });
        let run = doc! { "command": { "find": "a" }, "timeoutMode": "iteration", "comment": 1 };
        assert!(RunCursorCommand::from_document(run).unwrap().timing().mode.is_some());
    }

    /// CRUD, "Write Models": a write is a document with the name of it.
    #[test]
    fn writes_are_read_with_what_they_write() {
        let insert = InsertOne::from_document(doc! { "document": { "_id": 1 }, "comment": "why" });
        let mut insert = insert.unwrap();
        assert_eq!(written(&mut insert, NEW).sequences[0].1, [rawdoc! { "_id": 1 }]);
        let insert = doc! { "documents": [{ "_id": 1 }, { "_id": 2 }], "ordered": false };
        let written_many = written(&mut InsertMany::from_document(insert).unwrap(), NEW);
        assert_eq!(written_many.body.get_bool("ordered").ok(), Some(false));
        assert_eq!(written_many.sequences[0].1.len(), 2);
        let requests = |requests: Vec<Document>| {
            BulkWrite::from_document(doc! { "requests": requests, "ordered": false })
        };
        let mut bulk = requests(vec![
            doc! { "updateMany": { "filter": {}, "update": { "$set": { "a": 1 } } } },
            doc! { "replaceOne": { "filter": {}, "replacement": {}, "upsert": true } },
            doc! { "deleteOne": { "filter": {}, "hint": "a_1" } },
        ])
        .unwrap();
        assert_eq!(written(&mut bulk, NEW).sequences[0].1.len(), 2);
        let error = |write| requests(vec![write]).unwrap_err().to_string();
        assert!(
            error(doc! { "upsertOne": {} }).starts_with("unknown argument \"upsertOne\"; known")
        );
        assert_eq!(error(doc! { "deleteOne": {} }), "the argument filter is missing");
        assert_eq!(error(doc! { "deleteOne": 1 }), "the argument deleteOne must be a document");
        let several = "the argument write must be a document with one field, such as updateOne";
        assert_eq!(error(doc! {}), several);
        assert_eq!(error(doc! { "deleteOne": {}, "deleteMany": {} }), several);
        let write = doc! { "insertOne": { "namespace": "a.b", "document": { "_id": 1 } } };
        let bulk = doc! { "models": [write], "verboseResults": true };
        let mut bulk = ClientBulkWrite::from_document(bulk).unwrap();
        let body = written(&mut bulk, NEW).body;
        assert_eq!(body.get_bool("errorsOnly").ok(), Some(false));
        let nowhere = doc! { "models": [{ "deleteOne": { "filter": {} } }] };
        let error = ClientBulkWrite::from_document(nowhere).unwrap_err();
        assert_eq!(error, ArgumentError::MissingArgument("namespace"));
    }

    #[test]
    fn an_error_names_the_option_and_what_there_is() {
        let error = |options| FindOptions::from_document(options).unwrap_err().to_string();
        let unknown = error(doc! { "sorted": 1 });
        assert!(unknown.starts_with("unknown argument \"sorted\"; known are allowDiskUse, "));
        let of_index = CreateIndexes::from_document(doc! { "keys": { "a": 1 }, "unqiue": true });
        let of_index = of_index.unwrap_err().to_string();
        assert!(of_index.contains("unique, ") && of_index.contains("commitQuorum, "), "{of_index}");
        let all = DropIndexes::from_document(doc! { "nam": "a_1" }).unwrap_err().to_string();
        assert!(all.contains("known are name, comment, "), "{all}");
        let output = MapReduceOutput::from_document(doc! { "merg": "a" }).unwrap_err();
        assert!(output.to_string().starts_with("the argument out must be "), "{output}");
        assert!(unknown.ends_with("maxAwaitTimeMS, timeoutMode"), "{unknown}");
        for (options, expected) in [
            (doc! { "sort": 1 }, "the argument sort must be a document"),
            (doc! { "limit": "1" }, "the argument limit must be an integer"),
            (
                doc! { "batchSize": i64::MAX },
                "the argument batchSize must be an integer from 0 to 4294967295",
            ),
            (doc! { "skip": -1 }, "the argument skip must be an integer that is not negative"),
            (doc! { "maxTimeMS": -1 }, "the argument maxTimeMS must be a number of milliseconds"),
            (doc! { "hint": 1 }, "the argument hint must be the name or the keys of an index"),
            (
                doc! { "timeoutMode": "x" },
                "the argument timeoutMode must be cursorLifetime or iteration",
            ),
        ] {
            assert_eq!(error(options), expected);
        }
        let missing = Update::from_document(doc! { "filter": {} }).unwrap_err().to_string();
        assert_eq!(missing, "the argument update is missing");
        let stages = Aggregate::from_document(doc! { "pipeline": [1] }).unwrap_err().to_string();
        assert_eq!(stages, "the argument pipeline must be an array of documents");
        // What has no options says so.
        let none = DropSearchIndex::new("a").with_options(doc! { "a": 1 }).unwrap_err();
        assert_eq!(none.to_string(), "unknown argument \"a\"; there are none");
    }

    /// A configuration may be of any format that serde knows, and says what is wrong with it.
    #[test]
    fn operations_are_part_of_configurations() {
        #[derive(Deserialize)]
        struct Configuration {
            list: ListCollections,
        }
        let read = |list: Document| {
            bson::deserialize_from_document::<Configuration>(doc! { "list": list })
        };
        let mut list = read(doc! { "filter": { "name": "a" }, "batchSize": 1 }).unwrap().list;
        let expected = rawdoc! {
            "listCollections": 1, "filter": { "name": "a" }, "cursor": { "batchSize": 1 },
        };
        assert_eq!(written(&mut list, NEW).body, expected);
        let error = read(doc! { "batchsize": 1 }).err().unwrap().to_string();
        assert!(error.contains("unknown argument \"batchsize\"; known are "), "{error}");
    }

    /// A command that has been read is performed as any other is.
    #[test]
    fn replies_are_those_of_the_operation() {
        let mut drop = DropCollection::from_document(doc! { "comment": 1 }).unwrap();
        let reply = rawdoc! { "ok": 1 }.into();
        assert_eq!(drop.reply(&scope(), &reply).unwrap(), Progress::Done(()));
    }
}
