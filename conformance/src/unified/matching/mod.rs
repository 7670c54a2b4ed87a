//! The rules by which an expected value matches an actual one (Unified Test Format, "Evaluating
//! Matches").

mod exact;
mod number;
mod operator;
#[cfg(test)]
mod tests;
mod types;

use bson::{Bson, Document};

pub use exact::same;
pub(in crate::unified) use operator::bytes;

use crate::spec::Difference;

/// A lookup of the entities that special operators name.
pub trait Entities {
    /// Returns the value of an entity that is BSON.
    fn value(&self, name: &str) -> Option<Bson>;

    /// Returns the logical session id of an entity that is a session.
    fn session_id(&self, name: &str) -> Option<Document>;
}

/// Compares values by the rules of the format.
#[derive(Clone, Copy)]
pub struct Matcher<'a> {
    entities: &'a dyn Entities,
}

/// The treatment of fields of an actual document that the expected one does not name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extra {
    /// It may, as a document at the root.
    Allowed,
    /// It must not.
    Refused,
}

impl<'a> Matcher<'a> {
    /// Makes a matcher that looks up these entities.
    pub fn new(entities: &'a dyn Entities) -> Self {
        Self { entities }
    }

    /// Compares a value, which is no document at the root, with what is expected; `None` is one
    /// that does not exist.
    ///
    /// # Errors
    ///
    /// Returns the first difference, with the path to it, which begins with `place`.
    pub fn value(
        self,
        place: &str,
        expected: &Bson,
        actual: Option<&Bson>,
    ) -> Result<(), Difference> {
        self.compare(place, expected, actual, Extra::Refused)
    }

    /// Compares a document at the root, which may have fields that are not expected.
    ///
    /// # Errors
    ///
    /// Returns the first difference, with the path to it, which begins with `place`.
    pub fn root(
        self,
        place: &str,
        expected: &Bson,
        actual: Option<&Bson>,
    ) -> Result<(), Difference> {
        self.compare(place, expected, actual, Extra::Allowed)
    }

    /// Compares an array of documents at the root, as a cursor yields them.
    ///
    /// # Errors
    ///
    /// Returns the first difference, with the path to it, which begins with `place`.
    pub fn roots(
        self,
        place: &str,
        expected: &Bson,
        actual: Option<&Bson>,
    ) -> Result<(), Difference> {
        match (expected, actual) {
            (Bson::Array(expected), Some(Bson::Array(actual))) => {
                self.elements(place, expected, actual, Extra::Allowed)
            }
            _ => self.value(place, expected, actual),
        }
    }

    fn compare(
        self,
        place: &str,
        expected: &Bson,
        actual: Option<&Bson>,
        extra: Extra,
    ) -> Result<(), Difference> {
        match expected {
            Bson::Document(document) => match operator::operator(document) {
                Some((name, operand)) => self.operator(place, name, operand, actual, extra),
                None => self.document(place, document, actual, extra),
            },
            Bson::Array(elements) => match actual {
                Some(Bson::Array(actual)) => self.elements(place, elements, actual, Extra::Refused),
                _ => Err(differs(place, expected, actual)),
            },
            _ => match actual {
                Some(actual) if scalars_match(expected, actual) => Ok(()),
                _ => Err(differs(place, expected, actual)),
            },
        }
    }

    fn document(
        self,
        place: &str,
        expected: &Document,
        actual: Option<&Bson>,
        extra: Extra,
    ) -> Result<(), Difference> {
        let Some(Bson::Document(actual)) = actual else {
            return Err(differs(place, &Bson::Document(expected.clone()), actual));
        };
        for (key, value) in expected {
            self.compare(&below(place, key), value, actual.get(key), Extra::Refused)?;
        }
        let unexpected = actual.iter().find(|(key, _)| !expected.contains_key(key));
        match unexpected {
            Some((key, value)) if extra == Extra::Refused => {
                Err(difference(&below(place, key), "nothing", shown(Some(value))))
            }
            _ => Ok(()),
        }
    }

    fn elements(
        self,
        place: &str,
        expected: &[Bson],
        actual: &[Bson],
        extra: Extra,
    ) -> Result<(), Difference> {
        if expected.len() != actual.len() {
            let count = |elements: &[Bson]| {
                let shown = shown(Some(&Bson::Array(elements.to_vec())));
                format!("{} elements: {shown}", elements.len())
            };
            return Err(difference(place, count(expected), count(actual)));
        }
        for (index, (expected, actual)) in expected.iter().zip(actual).enumerate() {
            self.compare(&format!("{place}[{index}]"), expected, Some(actual), extra)?;
        }
        Ok(())
    }
}

fn scalars_match(expected: &Bson, actual: &Bson) -> bool {
    match number::compare(expected, actual) {
        Some(order) => order.is_eq(),
        None => same(expected, actual),
    }
}

fn below(place: &str, key: &str) -> String {
    match place {
        "" => key.to_owned(),
        place => format!("{place}.{key}"),
    }
}

fn differs(place: &str, expected: &Bson, actual: Option<&Bson>) -> Difference {
    difference(place, shown(Some(expected)), shown(actual))
}

fn difference(place: &str, expected: impl Into<String>, found: impl Into<String>) -> Difference {
    Difference { place: place.to_owned(), expected: expected.into(), found: found.into() }
}

/// The greatest number of characters of a value that a difference shows.
const MAX_SHOWN: usize = 400;

/// Writes a value as Extended JSON, shortened if it is long.
fn shown(value: Option<&Bson>) -> String {
    let Some(value) = value else {
        return "nothing".to_owned();
    };
    let text = value.clone().into_relaxed_extjson().to_string();
    match text.char_indices().nth(MAX_SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
