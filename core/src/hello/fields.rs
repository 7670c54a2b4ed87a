//! The fields of a hello reply, each read strictly: what is of the wrong type or size is an error.

use std::collections::BTreeMap;
use std::sync::Arc;

use bson::oid::ObjectId;
use bson::{DateTime, RawArray, RawBsonRef, RawDocument};

use crate::config::{AddressError, ServerAddress};
use crate::description::TopologyVersion;
use crate::wire::{self, Element};

/// The number of members that a server may list; real replica sets have at most 50.
pub const MAX_MEMBERS: usize = 1000;

/// The fields of a reply that say what a server is, or why it does not say. All that is read
/// besides is `lastWrite`, how far it has come.
pub const REPLY_FIELDS: [&str; 26] = [
    "arbiterOnly",
    "arbiters",
    "code",
    "codeName",
    "electionId",
    "errmsg",
    "helloOk",
    "hidden",
    "hosts",
    "isWritablePrimary",
    "iscryptd",
    "ismaster",
    "isreplicaset",
    "logicalSessionTimeoutMinutes",
    "maxWireVersion",
    "me",
    "minWireVersion",
    "msg",
    "ok",
    "passives",
    "primary",
    "secondary",
    "setName",
    "setVersion",
    "tags",
    "topologyVersion",
];

/// The number of tags that a server may have.
const MAX_TAGS: usize = 1000;

/// The maximum length of the text of a field, in bytes.
pub(super) const MAX_TEXT_LEN: usize = 1024;

/// The fault of a reply to hello.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReplyError {
    /// A document that is not BSON.
    #[error("malformed BSON: {0}")]
    Bson(String),
    /// A field of another type than the specification gives it.
    #[error("{field} is {found}, not {expected}")]
    Type {
        /// The field.
        field: &'static str,
        /// The type it has.
        found: String,
        /// The type it must have.
        expected: &'static str,
    },
    /// A number outside its range.
    #[error("{field} is {found}, which is out of range")]
    Range {
        /// The field.
        field: &'static str,
        /// The number.
        found: i64,
    },
    /// A name that is no server address.
    #[error("{field} has a member that is not an address: {error}")]
    Address {
        /// The field.
        field: &'static str,
        /// The fault of the address.
        error: AddressError,
    },
    /// More elements than are accepted.
    #[error("{field} has more than {limit} elements")]
    TooMany {
        /// The field.
        field: &'static str,
        /// The number that are accepted.
        limit: usize,
    },
    /// A text that is longer than accepted.
    #[error("{field} is {length} bytes long; at most {MAX_TEXT_LEN} are accepted")]
    TooLong {
        /// The field.
        field: &'static str,
        /// The length.
        length: usize,
    },
    /// A field that every reply must have is missing.
    #[error("{0} is missing")]
    Missing(&'static str),
}

pub(crate) type Field<T> = Result<T, ReplyError>;

pub(crate) fn wrong_type<T>(
    field: &'static str,
    value: RawBsonRef<'_>,
    expected: &'static str,
) -> Field<T> {
    Err(ReplyError::Type { field, found: format!("{:?}", value.element_type()), expected })
}

pub(crate) fn boolean(field: &'static str, value: RawBsonRef<'_>) -> Field<bool> {
    value.as_bool().map_or_else(|| wrong_type(field, value, "a boolean"), Ok)
}

/// Reads `ok`, which is a number or a boolean.
pub(crate) fn read_ok(value: RawBsonRef<'_>) -> Field<bool> {
    wire::ok(value).map_or_else(|| wrong_type("ok", value, "a number"), Ok)
}

/// Reads an integer of whatever numeric type, as servers differ in what they send.
pub(crate) fn integer(field: &'static str, value: RawBsonRef<'_>) -> Field<i64> {
    match value {
        RawBsonRef::Int32(int) => Ok(i64::from(int)),
        RawBsonRef::Int64(int) => Ok(int),
        RawBsonRef::Double(double) if double.fract() == 0.0 && double.abs() < 2_f64.powi(53) => {
            Ok(double as i64)
        }
        _ => wrong_type(field, value, "an integer"),
    }
}

pub(crate) fn natural(field: &'static str, value: RawBsonRef<'_>) -> Field<i64> {
    match integer(field, value)? {
        found if found < 0 => Err(ReplyError::Range { field, found }),
        found => Ok(found),
    }
}

pub(super) fn int32(field: &'static str, value: RawBsonRef<'_>) -> Field<i32> {
    let found = integer(field, value)?;
    i32::try_from(found).map_err(|_| ReplyError::Range { field, found })
}

pub(super) fn wire_version(field: &'static str, value: RawBsonRef<'_>) -> Field<i32> {
    let found = natural(field, value)?;
    i32::try_from(found).map_err(|_| ReplyError::Range { field, found })
}

pub(super) fn text<'a>(field: &'static str, value: RawBsonRef<'a>) -> Field<&'a str> {
    match value.as_str() {
        Some(text) if text.len() > MAX_TEXT_LEN => {
            Err(ReplyError::TooLong { field, length: text.len() })
        }
        Some(text) => Ok(text),
        None => wrong_type(field, value, "a string"),
    }
}

/// Reads the message or the name of an error. What is too long is cut, not refused, and what is no
/// UTF-8 is replaced, as it is for people only.
pub(super) fn message(field: &'static str, element: &Element<'_>) -> Field<String> {
    match (element.beginning(MAX_TEXT_LEN), element.value()) {
        (Some(message), _) => Ok(message),
        (None, Ok(value)) => wrong_type(field, value, "a string"),
        (None, Err(error)) => Err(ReplyError::Bson(error.to_string())),
    }
}

pub(crate) fn document<'a>(field: &'static str, value: RawBsonRef<'a>) -> Field<&'a RawDocument> {
    value.as_document().map_or_else(|| wrong_type(field, value, "a document"), Ok)
}

pub(super) fn object_id(field: &'static str, value: RawBsonRef<'_>) -> Field<ObjectId> {
    value.as_object_id().map_or_else(|| wrong_type(field, value, "an ObjectId"), Ok)
}

pub(super) fn address(
    field: &'static str,
    value: RawBsonRef<'_>,
    known: Option<&ServerAddress>,
) -> Field<ServerAddress> {
    let text = value.as_str().map_or_else(|| wrong_type(field, value, "a string"), Ok)?;
    if let Some(known) = known.filter(|known| known.is_written(text)) {
        return Ok(known.clone());
    }
    text.parse().map_err(|error| ReplyError::Address { field, error })
}

/// Reads who the server thinks is primary; some versions send an empty name for none.
pub(super) fn primary(
    value: RawBsonRef<'_>,
    known: Option<&ServerAddress>,
) -> Field<Option<ServerAddress>> {
    match value.as_str() {
        Some("") => Ok(None),
        _ => address("primary", value, known).map(Some),
    }
}

/// Reads a list of members, sorted; a list that is written as the known one is the known one.
pub(super) fn addresses(
    field: &'static str,
    value: RawBsonRef<'_>,
    known: Option<&Arc<[ServerAddress]>>,
) -> Field<Arc<[ServerAddress]>> {
    let array: &RawArray =
        value.as_array().map_or_else(|| wrong_type(field, value, "an array"), Ok)?;
    if let Some(known) = known.filter(|known| lists(array, known)) {
        return Ok(Arc::clone(known));
    }
    let mut addresses = Vec::new();
    for element in array {
        if addresses.len() == MAX_MEMBERS {
            return Err(ReplyError::TooMany { field, limit: MAX_MEMBERS });
        }
        let element = element.map_err(|error| ReplyError::Bson(error.to_string()))?;
        addresses.push(address(field, element, None)?);
    }
    addresses.sort_unstable();
    addresses.dedup();
    Ok(addresses.into())
}

/// Returns whether an array lists exactly these members, in this order.
fn lists(array: &RawArray, known: &[ServerAddress]) -> bool {
    let mut known = known.iter();
    let all = array.into_iter().all(|element| {
        let text = element.ok().and_then(RawBsonRef::as_str);
        text.zip(known.next()).is_some_and(|(text, address)| address.is_written(text))
    });
    all && known.next().is_none()
}

type Tags = BTreeMap<String, String>;

/// Reads tags; those that are the known ones are not built again.
pub(super) fn tags(value: RawBsonRef<'_>, known: Option<&Arc<Tags>>) -> Field<Arc<Tags>> {
    let document = document("tags", value)?;
    if let Some(known) = known.filter(|known| are_tags(document, known)) {
        return Ok(Arc::clone(known));
    }
    let mut tags = Tags::new();
    for element in document {
        let (key, value) = element.map_err(|error| ReplyError::Bson(error.to_string()))?;
        let (key, value) = (key.as_str(), text("tags", value)?);
        if key.len() > MAX_TEXT_LEN {
            return Err(ReplyError::TooLong { field: "tags", length: key.len() });
        }
        if tags.len() == MAX_TAGS {
            return Err(ReplyError::TooMany { field: "tags", limit: MAX_TAGS });
        }
        tags.insert(key.to_owned(), value.to_owned());
    }
    Ok(Arc::new(tags))
}

/// Returns whether a document has exactly these tags, each once.
fn are_tags(document: &RawDocument, known: &Tags) -> bool {
    let mut count = 0;
    let all = document.into_iter().all(|element| {
        count += 1;
        element.is_ok_and(|(key, value)| {
            known.get(key.as_str()).is_some_and(|known| value.as_str() == Some(known))
        })
    });
    all && count == known.len()
}

pub(super) fn last_write_date(value: RawBsonRef<'_>) -> Field<Option<DateTime>> {
    for element in document("lastWrite", value)?.iter_elements() {
        let element = element.map_err(|error| ReplyError::Bson(error.to_string()))?;
        if element.key() == "lastWriteDate" {
            let value = element.value().map_err(|error| ReplyError::Bson(error.to_string()))?;
            let date = value.as_datetime();
            return date.map_or_else(
                || wrong_type("lastWrite.lastWriteDate", value, "a date"),
                |date| Ok(Some(date)),
            );
        }
    }
    Ok(None)
}

pub(crate) fn topology_version(value: RawBsonRef<'_>) -> Field<TopologyVersion> {
    let (mut process_id, mut counter) = (None, None);
    for element in document("topologyVersion", value)?.iter_elements() {
        let element = element.map_err(|error| ReplyError::Bson(error.to_string()))?;
        let Ok(value) = element.value() else { continue };
        match element.key().as_str() {
            "processId" => process_id = Some(object_id("topologyVersion.processId", value)?),
            "counter" => counter = Some(natural("topologyVersion.counter", value)?),
            _ => {}
        }
    }
    Ok(TopologyVersion {
        process_id: process_id.ok_or(ReplyError::Missing("topologyVersion.processId"))?,
        counter: counter.ok_or(ReplyError::Missing("topologyVersion.counter"))?,
    })
}
