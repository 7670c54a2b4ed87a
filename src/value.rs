//! The arguments of operations: documents, hints, updates.

use std::fmt;
use std::time::Duration;

use bson::{Bson, Document, RawArrayBuf, RawBson, RawDocument, RawDocumentBuf, Timestamp};
use sdam_core::operation::MAX_MILLIS;
use sdam_host::driver::documents::{check_levels, check_levels_of, with_stack_for};
use serde::{Deserialize, Serialize};

/// A document as an application has it: with its own bytes, or to be written as bytes.
pub trait IntoDocument {
    /// Writes the document as bytes, unless it is there as such.
    ///
    /// # Errors
    ///
    /// Fails if it is no BSON, as with NUL in the name of a field.
    fn into_document(self) -> Result<RawDocumentBuf, bson::error::Error>;
}

impl IntoDocument for RawDocumentBuf {
    fn into_document(self) -> Result<RawDocumentBuf, bson::error::Error> {
        Ok(self)
    }
}

impl IntoDocument for &RawDocumentBuf {
    fn into_document(self) -> Result<RawDocumentBuf, bson::error::Error> {
        Ok(self.clone())
    }
}

impl IntoDocument for &RawDocument {
    fn into_document(self) -> Result<RawDocumentBuf, bson::error::Error> {
        Ok(self.to_owned())
    }
}

impl IntoDocument for Document {
    fn into_document(self) -> Result<RawDocumentBuf, bson::error::Error> {
        (&self).into_document()
    }
}

impl IntoDocument for &Document {
    fn into_document(self) -> Result<RawDocumentBuf, bson::error::Error> {
        with_stack_for(check_levels(self)?, || RawDocumentBuf::try_from(self))
    }
}

/// A value of the application's, before it is known to be BSON.
///
/// Printed, it is its type and its length alone: it may be a secret.
#[derive(Clone)]
pub(crate) struct Value(pub(crate) Result<RawBson, bson::error::Error>);

impl Value {
    /// Writes a document.
    pub(crate) fn document(value: impl IntoDocument) -> Self {
        value.into_document().into()
    }

    /// Writes a value of any type.
    pub(crate) fn of(value: impl Into<Bson>) -> Self {
        let value = value.into();
        let levels = check_levels_of(&value);
        levels.and_then(|levels| with_stack_for(levels, || RawBson::try_from(value))).into()
    }
}

impl<T: Into<RawBson>> From<Result<T, bson::error::Error>> for Value {
    fn from(value: Result<T, bson::error::Error>) -> Self {
        Self(value.map(Into::into))
    }
}

/// Values that are BSON for certain.
macro_rules! certain {
    ($($type:ty)*) => {
        $(impl From<$type> for Value {
            fn from(value: $type) -> Self {
                Self(Ok(value.into()))
            }
        })*
    };
}

certain! { bool i32 i64 String Timestamp }

/// Numbers are of 32 bits where they fit.
impl From<u32> for Value {
    fn from(number: u32) -> Self {
        match i32::try_from(number) {
            Ok(number) => number.into(),
            Err(_) => i64::from(number).into(),
        }
    }
}

/// A number that is too large for BSON counts more than any collection has.
impl From<u64> for Value {
    fn from(number: u64) -> Self {
        i64::try_from(number).unwrap_or(i64::MAX).into()
    }
}

impl From<Duration> for Value {
    fn from(time: Duration) -> Self {
        whole_millis(time).into()
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Ok(value) => value_without_contents(value).fmt(f),
            Err(error) => error.fmt(f),
        }
    }
}

/// Returns what is printed of a value of the application's.
pub(crate) fn value_without_contents(value: &RawBson) -> impl fmt::Debug {
    let kind = value.as_raw_bson_ref().element_type();
    let length = match value {
        RawBson::Document(document) => Some(document.as_bytes().len()),
        RawBson::Array(array) => Some(array.as_bytes().len()),
        _ => None,
    };
    match length {
        Some(length) => format_args!("{kind:?} of {length} bytes").to_string(),
        None => format!("{kind:?}"),
    }
}

/// An index to be used: its name, or its keys.
///
/// ```
/// use bson::doc;
/// use sdam::operation::Find;
/// use sdam::options::Hint;
///
/// let by_name = Find::new(doc! {}).hint("age_1");
/// let by_keys = Find::new(doc! {}).hint(doc! { "age": 1 });
/// let by_either = Find::new(doc! {}).hint(Hint::from("age_1"));
/// # let _ = (by_name, by_keys, by_either);
/// ```
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Hint {
    /// The keys of the index.
    Keys(Document),
    /// The name of the index.
    Name(String),
}

impl Hint {
    pub(crate) fn into_value(self) -> Value {
        match self {
            Self::Keys(keys) => Value::document(keys),
            Self::Name(name) => name.into(),
        }
    }
}

/// It is printed without the name or the keys.
impl fmt::Debug for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Keys(_) => "Keys(..)",
            Self::Name(_) => "Name(..)",
        })
    }
}

impl From<&str> for Hint {
    fn from(name: &str) -> Self {
        Self::Name(name.to_owned())
    }
}

impl From<String> for Hint {
    fn from(name: String) -> Self {
        Self::Name(name)
    }
}

impl From<Document> for Hint {
    fn from(keys: Document) -> Self {
        Self::Keys(keys)
    }
}

/// The modifications of an update: a document of operators, or a pipeline.
#[derive(Clone, Debug)]
pub struct Modifications(pub(crate) Value);

impl From<Document> for Modifications {
    fn from(operators: Document) -> Self {
        Self(Value::document(operators))
    }
}

impl From<RawDocumentBuf> for Modifications {
    fn from(operators: RawDocumentBuf) -> Self {
        Self(Value::document(operators))
    }
}

/// A pipeline, each of its stages a document.
impl<D: IntoDocument> From<Vec<D>> for Modifications {
    fn from(stages: Vec<D>) -> Self {
        Self(array(stages).into())
    }
}

/// A pipeline, each of its stages a document.
impl<D: IntoDocument, const N: usize> From<[D; N]> for Modifications {
    fn from(stages: [D; N]) -> Self {
        Self(array(stages).into())
    }
}

/// The memory that the document of a command has at first, in bytes: enough for most, unless an
/// argument is large.
const EXPECTED_LEN: usize = 256;

/// Begins a command, with room for its fields.
pub(crate) fn begin_command() -> RawDocumentBuf {
    const EMPTY: [u8; 5] = [5, 0, 0, 0, 0];
    let mut bytes = Vec::with_capacity(EXPECTED_LEN);
    bytes.extend_from_slice(&EMPTY);
    RawDocumentBuf::from_bytes(bytes).expect("it is an empty document")
}

/// Writes documents as an array.
pub(crate) fn array(
    documents: impl IntoIterator<Item = impl IntoDocument>,
) -> Result<RawArrayBuf, bson::error::Error> {
    let mut array = RawArrayBuf::new();
    for document in documents {
        array.push(document.into_document()?);
    }
    Ok(array)
}

/// Returns a duration in whole milliseconds, rounded up lest a short one becomes none; servers take
/// [`MAX_MILLIS`] at most.
pub(crate) fn whole_millis(time: Duration) -> i64 {
    i32::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(MAX_MILLIS).into()
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;

    use bson::doc;

    use super::{Hint, IntoDocument as _};
    use crate::command::testing::{NEW, scope};
    use crate::command::{Operation, Progress};
    use crate::cursor::{CursorState, Settings};
    use crate::operation::{
        Aggregate, BulkWrite, ClientBulkWrite, CreateIndexes, Delete, DeleteModel, Distinct, Find,
        FindOneAndReplace, IndexModel, InsertMany, InsertModel, InsertOne, Replace, RunCommand,
        RunCursorCommand, Update, UpdateModel, WriteModel,
    };

    /// A word that is in every document here, as a text, as a name, and as bytes.
    const SECRET: &str = "swordfish";

    fn hides(printed: &dyn Debug) {
        let text = format!("{printed:?}{printed:#?}");
        assert!(!text.contains(SECRET), "{text}");
        let bytes: String = SECRET.bytes().map(|byte| format!("{byte:02x}")).collect();
        assert!(!text.contains(&bytes), "{text}");
        let numbers: Vec<String> = SECRET.bytes().map(|byte| byte.to_string()).collect();
        assert!(!text.contains(&numbers.join(", ")), "{text}");
    }

    /// Command Logging and Monitoring, "Security": what a command like createUser has is in no
    /// text.
    #[test]
    fn what_is_printed_of_an_operation_has_no_document() {
        let document = || doc! { "_id": SECRET, SECRET: { "pwd": [SECRET] } };
        let set = || doc! { "$set": document() };
        let update = || WriteModel::UpdateOne(UpdateModel::new(document(), set()));
        let insert = || WriteModel::InsertOne(InsertModel::new(document()));
        hides(&RunCommand::new(doc! { "createUser": "a", "pwd": SECRET }));
        hides(&RunCursorCommand::new(document()).comment(SECRET));
        hides(&Find::new(document()).comment(document()).hint(SECRET));
        hides(&Hint::from(SECRET));
        hides(&Hint::from(document()));
        hides(&Aggregate::new([document()]));
        hides(&InsertOne::new(&document()));
        hides(&InsertMany::new::<bson::Document>([document()]));
        hides(&Update::new(document(), set()));
        hides(&Replace::new(document(), document()));
        hides(&FindOneAndReplace::new(document(), document()));
        hides(&Delete::new(document()));
        hides(&CreateIndexes::new([IndexModel::new(document())]));
        let delete = WriteModel::DeleteOne(DeleteModel::new(document()));
        hides(&BulkWrite::new([insert(), update(), delete]));
        let mut bulk = ClientBulkWrite::new([("a.b", insert()), ("a.b", update())]);
        hides(&bulk.command(&scope(), &NEW).unwrap());
        hides(&bulk);
        let mut insert = InsertOne::new(&document());
        hides(&insert.command(&scope(), &NEW).unwrap());
    }

    #[test]
    fn what_is_printed_of_a_reply_has_no_document() {
        let batch = bson::rawdoc! { "id": 0_i64, "ns": "a.b", "firstBatch": [{ "a": SECRET }] };
        let reply = bson::rawdoc! { "ok": 1, "cursor": batch, "values": [SECRET] }.into();
        hides(&reply);
        hides(&CursorState::open("find", &reply, Settings::default()).unwrap());
        let mut distinct = Distinct::new("a", doc! { "a": SECRET });
        let values = distinct.reply(&scope(), &reply).unwrap();
        hides(&values);
        assert!(matches!(values, Progress::Done(values) if values.collect::<String>().is_ok()));
    }

    #[test]
    fn a_document_has_the_same_bytes_in_whichever_form_it_comes() {
        let raw = bson::rawdoc! { "_id": 1, "a": { "b": [true] } };
        let document = doc! { "_id": 1, "a": { "b": [true] } };
        let borrowed: &bson::RawDocument = &raw;
        for written in [
            raw.clone().into_document(),
            (&raw).into_document(),
            borrowed.into_document(),
            document.clone().into_document(),
            (&document).into_document(),
        ] {
            assert_eq!(written.unwrap(), raw);
        }
    }
}
