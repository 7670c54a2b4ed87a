//! Distinct values (CRUD, `distinct`).

use bson::raw::{CStr, RawArrayIter, cstr};
use bson::{RawArray, RawBsonRef, RawDocumentBuf};
use sdam_core::wire::ReplyDocument;
use sdam_host::driver::documents::read_as;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::Scope;
use super::fields::get;
use super::single::{Body, Rules, SingleCommand};
use crate::error::{DeserializeError, Error, ReplyError};

operation! {
    /// The different values of a field, in the documents that a filter matches.
    #[derive(Clone, Debug)]
    pub struct Distinct as DistinctOptions {}

    arguments {
        /// Asks for the values of a field in the documents that a filter matches.
        new(field: text = "fieldName", filter: document = "filter");
    }

    options {
        /// Sets the rules for comparing texts.
        collation: collation = "collation";
        /// Adds a comment, which servers write to their logs.
        comment: value = "comment";
        /// Sets the index to be used (MongoDB 7.1).
        hint: hint = "hint";
        /// Sets how long the server may take, in whole milliseconds; deprecated in favour of
        /// `timeoutMS`.
        max_time: millis = "maxTimeMS";
        /// Reads the documents of time series as they are stored (MongoDB 8.2); not for
        /// applications.
        raw_data: bool = "rawData";
    }
}

impl SingleCommand for Distinct {
    type Output = DistinctValues;

    const COMMAND: &'static CStr = cstr!("distinct");
    const RULES: Rules = Rules::READ;

    fn write(&mut self, body: &mut Body<'_>) -> Result<(), Error> {
        body.append(cstr!("key"), self.field.as_str());
        body.append(cstr!("query"), get(&self.filter)?);
        body.options(&self.options, &[])
    }

    fn read(&mut self, _: &Scope, reply: &ReplyDocument) -> Result<DistinctValues, Error> {
        let missing = |_| ReplyError::new(Self::COMMAND.as_str(), "values");
        reply.get_array("values").map_err(missing)?;
        Ok(DistinctValues(reply.clone()))
    }
}

/// The different values of a field, which are read where they lie in the server's reply: there may
/// be many millions, each of which takes fifty times as much memory as a value of its own.
///
/// ```
/// # use sdam::error::Error;
/// # use sdam::operation::DistinctValues;
/// # fn example(values: &DistinctValues) -> Result<(), Error> {
/// // All of them, of one type; `Bson` is for values of different types.
/// let kinds: Vec<String> = values.collect()?;
/// // One after another.
/// println!("{} kinds", values.len());
/// for kind in values.iter::<String>() {
///     println!("{}", kind?);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DistinctValues(ReplyDocument);

impl DistinctValues {
    /// Returns the values one after another, each of which is read when its turn comes.
    ///
    /// A value that is not of that type is an error, and others follow it; behind one that is no
    /// BSON there is nothing further.
    pub fn iter<T: DeserializeOwned>(&self) -> impl Iterator<Item = Result<T, Error>> + '_ {
        self.raw().into_iter().enumerate().map(|(index, value)| {
            read_value(value).map_err(|mut error| {
                let path = error.path.strip_prefix(ONLY).unwrap_or(&error.path);
                error.path = match path.trim_start_matches('.') {
                    "" => format!("values.{index}"),
                    path => format!("values.{index}.{path}"),
                };
                error.into()
            })
        })
    }

    /// Returns the number of values, those included that cannot be read; it takes a look at each.
    pub fn len(&self) -> usize {
        self.raw().into_iter().count()
    }

    /// Returns whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.raw().into_iter().next().is_none()
    }

    /// Returns all values.
    ///
    /// # Errors
    ///
    /// Fails if one of them is of another type.
    pub fn collect<T: DeserializeOwned>(&self) -> Result<Vec<T>, Error> {
        self.iter().collect()
    }

    /// Returns the values as the server has sent them.
    ///
    /// # Panics
    ///
    /// Never.
    pub fn raw(&self) -> &RawArray {
        self.0.get_array("values").expect("the array was found when the reply came")
    }
}

/// The values as the server has sent them, one after another.
impl<'a> IntoIterator for &'a DistinctValues {
    type Item = Result<RawBsonRef<'a>, bson::error::Error>;
    type IntoIter = RawArrayIter<'a>;

    fn into_iter(self) -> RawArrayIter<'a> {
        self.raw().into_iter()
    }
}

/// Reads a value as a type.
fn read_value<T: DeserializeOwned>(
    value: Result<RawBsonRef<'_>, bson::error::Error>,
) -> Result<T, Box<DeserializeError>> {
    let mut only = RawDocumentBuf::new();
    let value = value.map_err(|error| DeserializeError::new(error, &only, String::new()))?;
    if let RawBsonRef::Document(document) = value {
        return read_as(document);
    }
    only.append(cstr!("$only"), value);
    read_as(&only).map(|Only { value }| value)
}

/// The name of the field of [`Only`].
const ONLY: &str = "$only";

/// A document with a value that is no document.
#[derive(Deserialize)]
struct Only<T> {
    #[serde(rename = "$only")]
    value: T,
}

#[cfg(test)]
mod tests {
    use bson::{Bson, RawDocumentBuf, doc, rawdoc};
    use sdam_core::wire::ReplyDocument;
    use serde::Deserialize;

    use super::super::testing::{NEW, scope, written};
    use super::super::{Operation, Progress};
    use super::{Distinct, DistinctValues};

    #[test]
    fn distinct_has_a_key_and_a_query_and_returns_values_of_any_type() {
        let mut distinct = Distinct::new("a.b", doc! { "c": 1 }).collation(doc! { "locale": "de" });
        let expected = rawdoc! {
            "distinct": "things",
            "key": "a.b",
            "query": { "c": 1 },
            "collation": { "locale": "de" },
        };
        assert_eq!(written(&mut distinct, NEW).body, expected);
        let reply = ReplyDocument::from(rawdoc! { "values": [1, "x"], "ok": 1 });
        let values = vec![Bson::Int32(1), Bson::String("x".to_owned())];
        assert_eq!(answered(&reply).collect::<Bson>().unwrap(), values);
        assert!(distinct.reply(&scope(), &ReplyDocument::from(rawdoc! { "ok": 1 })).is_err());
    }

    fn answered(reply: &ReplyDocument) -> DistinctValues {
        let read = Distinct::new("a", doc! {}).reply(&scope(), reply).unwrap();
        let Progress::Done(values) = read else { panic!("{read:?}") };
        values
    }

    #[test]
    fn the_values_are_counted_where_they_lie() {
        let none = answered(&ReplyDocument::from(rawdoc! { "values": [] }));
        assert!(none.is_empty());
        assert_eq!(none.len(), 0);
        let three = answered(&ReplyDocument::from(rawdoc! { "values": [1, "two", [3]] }));
        assert!(!three.is_empty());
        assert_eq!((three.len(), three.iter::<Bson>().count()), (3, 3));
        let mut first = None;
        for value in &three {
            first = first.or(value.unwrap().as_i32());
        }
        assert_eq!(first, Some(1));
    }

    #[test]
    fn a_value_of_another_type_is_an_error_that_names_it_and_no_end() {
        #[derive(Debug, Deserialize, PartialEq)]
        struct Named {
            name: String,
        }

        let named = |name| Named { name };
        let reply = rawdoc! { "values": [{ "name": "a" }, { "name": 1 }, 7, { "name": "b" }] };
        let values = answered(&ReplyDocument::from(reply));
        let read: Vec<Result<Named, String>> =
            values.iter().map(|value| value.map_err(|error| error.to_string())).collect();
        let wrong = |what: &str| {
            format!("the server's document cannot be read as the application's type: at {what}")
        };
        let expected = [
            Ok(named("a".to_owned())),
            Err(wrong("values.1.name, invalid type: integer `1`, expected a string")),
            Err(wrong("values.2, invalid type: integer `7`, expected struct Named")),
            Ok(named("b".to_owned())),
        ];
        assert_eq!(read, expected);
        assert!(values.collect::<Named>().is_err());
        assert_eq!(values.collect::<bson::RawBson>().unwrap().len(), 4);
    }

    /// Two bytes of a reply may be a value: they take no more until they are asked for.
    #[test]
    fn the_values_take_no_more_memory_than_the_reply() {
        const VALUES: usize = 100_000;
        // An array of nulls without names.
        let array = [
            i32::try_from(5 + 2 * VALUES).unwrap().to_le_bytes().to_vec(),
            [0x0a, 0].repeat(VALUES),
        ];
        let reply = [b"\0\0\0\0\x04values\0".to_vec(), array.concat(), vec![0, 0]].concat();
        let length = i32::try_from(reply.len()).unwrap();
        let reply = [&length.to_le_bytes(), &reply[4..]].concat();
        let reply = ReplyDocument::from(RawDocumentBuf::from_bytes(reply).unwrap());
        let start = reply.as_bytes().as_ptr();
        let values = answered(&reply);
        // It is the reply itself, and no copy.
        assert_eq!(values.0.as_bytes().as_ptr(), start);
        assert!(values.iter::<Bson>().take(10).all(|value| value.unwrap() == Bson::Null));
        assert_eq!(
            values.iter::<Option<String>>().filter(|it| matches!(it, Ok(None))).count(),
            VALUES
        );
    }
}
