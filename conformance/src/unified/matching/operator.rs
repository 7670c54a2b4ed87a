//! Special operators (Unified Test Format, "Special Operators for Matching Assertions").

use bson::{Bson, Document};

use super::{Extra, Matcher, difference, number, shown, types};
use crate::spec::Difference;

/// Returns the name and the operand, if a document is a special operator.
pub(super) fn operator(document: &Document) -> Option<(&str, &Bson)> {
    let (name, operand) = document.iter().next()?;
    (document.len() == 1 && name.starts_with("$$")).then_some((name, operand))
}

impl Matcher<'_> {
    pub(super) fn operator(
        self,
        place: &str,
        name: &str,
        operand: &Bson,
        actual: Option<&Bson>,
        extra: Extra,
    ) -> Result<(), Difference> {
        let matches = match (name, operand) {
            ("$$exists", Bson::Boolean(exists)) => actual.is_some() == *exists,
            ("$$type", operand) => {
                let names = type_names(operand).ok_or_else(|| malformed(place, name, operand))?;
                actual.is_some_and(|actual| names.iter().any(|name| types::has(actual, name)))
            }
            ("$$unsetOrMatches", operand) => match actual {
                None => true,
                Some(_) => return self.compare(place, operand, actual, extra),
            },
            ("$$matchesEntity", Bson::String(entity)) => match self.entities.value(entity) {
                Some(expected) => return self.compare(place, &expected, actual, extra),
                None => return Err(unknown(place, "a value", entity)),
            },
            ("$$sessionLsid", Bson::String(session)) => match self.entities.session_id(session) {
                Some(id) => {
                    // Spans have it as text (OpenTelemetry, "db.mongodb.lsid").
                    let expected = match actual {
                        Some(Bson::String(_)) => Bson::String(text_of(&id)),
                        _ => Bson::Document(id),
                    };
                    return self.compare(place, &expected, actual, Extra::Refused);
                }
                None => return Err(unknown(place, "a session", session)),
            },
            ("$$matchesHexBytes", Bson::String(hex)) => {
                let bytes = bytes(hex).ok_or_else(|| malformed(place, name, operand))?;
                match actual {
                    Some(Bson::Binary(actual)) => actual.bytes == bytes,
                    Some(Bson::String(actual)) => actual.as_bytes() == bytes,
                    _ => false,
                }
            }
            ("$$lte", operand) if number::compare(operand, operand).is_some() => {
                let order = actual.and_then(|actual| number::compare(actual, operand));
                order.is_some_and(std::cmp::Ordering::is_le)
            }
            ("$$matchAsDocument", operand) => {
                let Some(document) = actual.and_then(parsed) else {
                    return Err(difference(place, "a document as Extended JSON", shown(actual)));
                };
                return self.compare(place, operand, Some(&document), Extra::Refused);
            }
            ("$$matchAsRoot", Bson::Document(_)) => {
                return self.compare(place, operand, actual, Extra::Allowed);
            }
            _ => return Err(malformed(place, name, operand)),
        };
        match matches {
            true => Ok(()),
            false => {
                let expected = format!("{name}: {}", shown(Some(operand)));
                Err(difference(place, expected, shown(actual)))
            }
        }
    }
}

fn malformed(place: &str, name: &str, operand: &Bson) -> Difference {
    let found = format!("{name}: {}", shown(Some(operand)));
    difference(place, "a special operator that the format has, with a value it allows", found)
}

fn unknown(place: &str, kind: &str, entity: &str) -> Difference {
    difference(place, format!("{kind} among the entities that is called {entity:?}"), "none")
}

/// Returns the UUID of a logical session id as text.
fn text_of(id: &Document) -> String {
    match id.get("id") {
        Some(Bson::Binary(binary)) => {
            binary.to_uuid().map(|uuid| uuid.to_string()).unwrap_or_default()
        }
        _ => String::new(),
    }
}

/// Returns the names of types that a `$$type` lists.
fn type_names(operand: &Bson) -> Option<Vec<&str>> {
    match operand {
        Bson::Array(names) if !names.is_empty() => names.iter().map(type_name).collect(),
        name => type_name(name).map(|name| vec![name]),
    }
}

fn type_name(value: &Bson) -> Option<&str> {
    value.as_str().filter(|name| types::is_known(name))
}

/// Reads an even number of hexadecimal digits.
pub(in crate::unified) fn bytes(hex: &str) -> Option<Vec<u8>> {
    let digit = |digit: u8| char::from(digit).to_digit(16);
    let byte = |pair: &[u8]| match *pair {
        [high, low] => u8::try_from(digit(high)? * 16 + digit(low)?).ok(),
        _ => None,
    };
    hex.as_bytes().chunks(2).map(byte).collect()
}

/// Parses a string as the Extended JSON of a document.
fn parsed(value: &Bson) -> Option<Bson> {
    let Bson::String(text) = value else {
        return None;
    };
    let json: serde_json::Value = serde_json::from_str(text).ok()?;
    Bson::try_from(json).ok().filter(|value| value.as_document().is_some())
}
