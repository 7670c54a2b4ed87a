//! Values of the server's and of the application's as [`Bson`], without recursion.
//!
//! bson's own conversion recurses, and each level has a copy of all that is within it.

use std::fmt;

use bson::raw::{RawArrayIter, RawIter};
use bson::{Bson, Document, JavaScriptCodeWithScope, RawBsonRef, RawDocument};
use sdam_core::wire::MAX_NESTING;
use serde::de::Error as _;

type Result<T> = std::result::Result<T, bson::error::Error>;

/// Says that a document is nested too deeply.
pub fn too_deep() -> bson::error::Error {
    bson::error::Error::custom(TooDeep)
}

/// The sentence of that error.
pub struct TooDeep;

impl fmt::Display for TooDeep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "there are more than {MAX_NESTING} levels of documents and arrays")
    }
}

/// Makes a value that is kept of one that is read in place.
///
/// # Errors
///
/// Fails if it is no BSON, and if it has more than [`MAX_NESTING`] levels of documents and arrays:
/// whatever it is given to recurses, dropping it included.
pub fn to_bson(value: RawBsonRef<'_>) -> Result<Bson> {
    let Some(outermost) = Open::of(None, value) else { return Bson::try_from(value) };
    let mut open = vec![outermost];
    let mut last = None;
    while let Some(top) = open.last_mut() {
        if let Some((key, value)) = last.take() {
            top.add(key, value);
        }
        match top.next()? {
            Some((key, value)) => match Open::of(key, value) {
                Some(_) if open.len() == MAX_NESTING => return Err(too_deep()),
                Some(inner) => open.push(inner),
                None => last = Some((key, Bson::try_from(value)?)),
            },
            None => last = open.pop().map(|done| (done.key, done.made.into())),
        }
    }
    Ok(last.map_or(Bson::Null, |(_, value)| value))
}

/// A document or an array that is not read to its end.
struct Open<'a> {
    /// Its name in the document that it is in.
    key: Option<&'a str>,
    rest: Rest<'a>,
    made: Made,
}

enum Rest<'a> {
    Document(RawIter<'a>),
    Array(RawArrayIter<'a>),
}

/// The part of a value that is made so far.
enum Made {
    Document(Document),
    Array(Vec<Bson>),
    Scope(String, Document),
}

impl<'a> Open<'a> {
    /// Begins a value; `None` if it has no others within it.
    fn of(key: Option<&'a str>, value: RawBsonRef<'a>) -> Option<Self> {
        let (rest, made) = match value {
            RawBsonRef::Document(document) => {
                (Rest::Document(document.iter_elements()), Made::Document(Document::new()))
            }
            RawBsonRef::Array(array) => (Rest::Array(array.into_iter()), Made::Array(Vec::new())),
            RawBsonRef::JavaScriptCodeWithScope(code) => {
                let made = Made::Scope(code.code.to_owned(), Document::new());
                (Rest::Document(code.scope.iter_elements()), made)
            }
            _ => return None,
        };
        Some(Self { key, rest, made })
    }

    /// Returns the next value within, with its name in a document.
    fn next(&mut self) -> Result<Option<(Option<&'a str>, RawBsonRef<'a>)>> {
        match &mut self.rest {
            Rest::Document(elements) => match elements.next().transpose()? {
                Some(element) => Ok(Some((Some(element.key().as_str()), element.value()?))),
                None => Ok(None),
            },
            Rest::Array(values) => Ok(values.next().transpose()?.map(|value| (None, value))),
        }
    }

    fn add(&mut self, key: Option<&str>, value: Bson) {
        match &mut self.made {
            Made::Document(document) | Made::Scope(_, document) => {
                document.insert(key.unwrap_or_default(), value);
            }
            Made::Array(values) => values.push(value),
        }
    }
}

impl From<Made> for Bson {
    fn from(made: Made) -> Self {
        match made {
            Made::Document(document) => document.into(),
            Made::Array(values) => values.into(),
            Made::Scope(code, scope) => JavaScriptCodeWithScope { code, scope }.into(),
        }
    }
}

/// Reads a whole number that servers send as one type or another.
pub fn number(document: &RawDocument, name: &str) -> Option<i64> {
    whole(document.get(name).ok()??)
}

/// The same of a value.
pub fn whole(value: RawBsonRef<'_>) -> Option<i64> {
    match value {
        RawBsonRef::Int32(value) => Some(value.into()),
        RawBsonRef::Int64(value) => Some(value),
        RawBsonRef::Double(value) => (value.fract() == 0.0).then_some(value as i64),
        _ => None,
    }
}

/// Fails if a document of the application's has more than [`MAX_NESTING`] levels of documents and
/// arrays, as writing it recurses; else returns the number of levels.
///
/// # Errors
///
/// Fails as it says.
pub fn check_levels(document: &Document) -> Result<usize> {
    levels(document.values(), 2)
}

/// The same of a value.
///
/// # Errors
///
/// Fails as it says.
pub fn check_levels_of(value: &Bson) -> Result<usize> {
    levels(std::iter::once(value), 1)
}

/// Returns the number of levels of values that are at this level themselves.
fn levels<'a>(values: impl Iterator<Item = &'a Bson>, level: usize) -> Result<usize> {
    let (mut deepest, mut open) = (level - 1, Vec::new());
    let within = |value: &'a Bson, level: usize, open: &mut Vec<(&'a Bson, usize)>| match value {
        Bson::Document(_) | Bson::Array(_) | Bson::JavaScriptCodeWithScope(_) => {
            open.push((value, level));
        }
        _ => {}
    };
    values.for_each(|value| within(value, level, &mut open));
    while let Some((value, level)) = open.pop() {
        if level > MAX_NESTING {
            return Err(too_deep());
        }
        deepest = deepest.max(level);
        let mut go_on = |value| within(value, level + 1, &mut open);
        match value {
            Bson::Document(document) => document.values().for_each(&mut go_on),
            Bson::JavaScriptCodeWithScope(code) => code.scope.values().for_each(&mut go_on),
            Bson::Array(values) => values.iter().for_each(&mut go_on),
            _ => {}
        }
    }
    Ok(deepest)
}

#[cfg(test)]
mod tests {
    use bson::{Bson, JavaScriptCodeWithScope, RawBsonRef, RawDocumentBuf, doc};

    use super::{check_levels, check_levels_of, to_bson};

    #[test]
    fn a_value_is_what_bson_makes_of_it() {
        let code = JavaScriptCodeWithScope { code: "f".into(), scope: doc! { "x": [1, {}] } };
        let document = doc! {
            "int": 1, "text": "a", "none": null, "empty": {}, "nothing": [],
            "list": [1, [2, { "a": "b" }], { "c": [] }, Bson::JavaScriptCodeWithScope(code)],
            "inner": { "a": { "b": 1 }, "c": [[[]]] },
            "least": Bson::MinKey,
        };
        let raw = RawDocumentBuf::try_from(&document).unwrap();
        assert_eq!(to_bson(RawBsonRef::Document(&raw)).unwrap(), Bson::Document(document.clone()));
        for (name, value) in &document {
            assert_eq!(&to_bson(raw.get(name).unwrap().unwrap()).unwrap(), value);
        }
    }

    #[test]
    fn a_value_that_is_nested_too_deeply_is_an_error() {
        let nested = |levels| (1..levels).fold(doc! {}, |inner, _| doc! { "a": [1], "b": inner });
        let document = nested(250);
        assert_eq!(check_levels(&document).unwrap(), 250);
        assert_eq!(check_levels_of(&document.clone().into()).unwrap(), 250);
        let raw = RawDocumentBuf::try_from(&document).unwrap();
        assert_eq!(to_bson(RawBsonRef::Document(&raw)).unwrap(), Bson::Document(document));
        let document = nested(251);
        assert!(check_levels(&document).is_err());
        assert!(check_levels_of(&document.clone().into()).is_err());
        let raw = RawDocumentBuf::try_from(&document).unwrap();
        let error = to_bson(RawBsonRef::Document(&raw)).unwrap_err();
        let reason = "there are more than 250 levels of documents and arrays";
        assert_eq!(error.message.as_deref(), Some(reason));
    }

    #[test]
    fn a_value_that_is_no_bson_is_an_error() {
        let mut bytes = bson::rawdoc! { "a": { "b": [1, "x"] } }.into_bytes();
        let at = bytes.iter().position(|byte| *byte == b'x').unwrap();
        bytes[at] = 0xff;
        let raw = RawDocumentBuf::from_bytes(bytes).unwrap();
        assert!(to_bson(RawBsonRef::Document(&raw)).is_err());
    }
}
