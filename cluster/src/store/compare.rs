//! The order of BSON values, of all types among each other.

use std::cmp::Ordering;

use bson::{Bson, Document};
use sdam_core::bson;

/// The rule by which texts are compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Collation {
    /// Byte by byte.
    #[default]
    Simple,
    /// Upper and lower case are the same, as in collations of strength 1 and 2.
    IgnoresCase,
}

impl Collation {
    /// Reads the option `collation`: of all that it can say, only case matters here.
    pub(crate) fn parse(option: Option<&Document>) -> Self {
        let Some(option) = option else { return Self::Simple };
        let strength = option.get("strength").and_then(whole).unwrap_or(3);
        match option.get_str("locale") {
            Ok("simple") => Self::Simple,
            _ if strength < 3 => Self::IgnoresCase,
            _ => Self::Simple,
        }
    }

    /// Compares two values as sorts and indexes do.
    pub(crate) fn compare(self, a: &Bson, b: &Bson) -> Ordering {
        rank(a).cmp(&rank(b)).then_with(|| self.compare_alike(a, b))
    }

    /// Returns whether two values are the same, numbers of different types included.
    pub(crate) fn is_equal(self, a: &Bson, b: &Bson) -> bool {
        self.compare(a, b).is_eq()
    }

    fn compare_alike(self, a: &Bson, b: &Bson) -> Ordering {
        match (a, b) {
            (Bson::Document(a), Bson::Document(b)) => self.compare_documents(a, b),
            (Bson::Array(a), Bson::Array(b)) => {
                let pairs = a.iter().zip(b).map(|(a, b)| self.compare(a, b));
                pairs.fold(Ordering::Equal, Ordering::then).then(a.len().cmp(&b.len()))
            }
            (Bson::Binary(a), Bson::Binary(b)) => {
                let key = |it: &bson::Binary| (it.bytes.len(), u8::from(it.subtype));
                key(a).cmp(&key(b)).then_with(|| a.bytes.cmp(&b.bytes))
            }
            (Bson::ObjectId(a), Bson::ObjectId(b)) => a.cmp(b),
            (Bson::Boolean(a), Bson::Boolean(b)) => a.cmp(b),
            (Bson::DateTime(a), Bson::DateTime(b)) => a.cmp(b),
            (Bson::Timestamp(a), Bson::Timestamp(b)) => {
                (a.time, a.increment).cmp(&(b.time, b.increment))
            }
            _ => match (text(a), text(b)) {
                (Some(a), Some(b)) => self.compare_texts(a, b),
                _ => compare_numbers(a, b),
            },
        }
    }

    fn compare_texts(self, a: &str, b: &str) -> Ordering {
        match self {
            Self::Simple => a.cmp(b),
            Self::IgnoresCase => {
                let folded = |it: &str| it.chars().flat_map(char::to_lowercase).collect::<String>();
                folded(a).cmp(&folded(b))
            }
        }
    }

    fn compare_documents(self, a: &Document, b: &Document) -> Ordering {
        let pairs = a.iter().zip(b).map(|((a_name, a), (b_name, b))| {
            let names = rank(a).cmp(&rank(b)).then_with(|| a_name.cmp(b_name));
            names.then_with(|| self.compare_alike(a, b))
        });
        pairs.fold(Ordering::Equal, Ordering::then).then(a.len().cmp(&b.len()))
    }
}

/// Returns the place of a value's type among the types.
pub(crate) const fn rank(value: &Bson) -> u8 {
    match value {
        Bson::MinKey => 0,
        // It stands for what is missing, and in sorts for an empty array.
        Bson::Undefined => 1,
        Bson::Null => 2,
        Bson::Int32(_) | Bson::Int64(_) | Bson::Double(_) | Bson::Decimal128(_) => 3,
        Bson::String(_) | Bson::Symbol(_) => 4,
        Bson::Document(_) => 5,
        Bson::Array(_) => 6,
        Bson::Binary(_) => 7,
        Bson::ObjectId(_) => 8,
        Bson::Boolean(_) => 9,
        Bson::DateTime(_) => 10,
        Bson::Timestamp(_) => 11,
        Bson::RegularExpression(_) => 12,
        Bson::DbPointer(_) => 13,
        Bson::JavaScriptCode(_) => 14,
        Bson::JavaScriptCodeWithScope(_) => 15,
        Bson::MaxKey => 16,
    }
}

fn text(value: &Bson) -> Option<&str> {
    match value {
        Bson::String(text) | Bson::Symbol(text) | Bson::JavaScriptCode(text) => Some(text),
        Bson::RegularExpression(regex) => Some(regex.pattern.as_str()),
        _ => None,
    }
}

fn compare_numbers(a: &Bson, b: &Bson) -> Ordering {
    match (integer(a), integer(b)) {
        (Some(a), Some(b)) => a.cmp(&b),
        _ => match (number(a), number(b)) {
            // No number at all comes before every number.
            (Some(a), Some(b)) => a.partial_cmp(&b).unwrap_or_else(|| b.is_nan().cmp(&a.is_nan())),
            _ => Ordering::Equal,
        },
    }
}

/// Returns an integer of either length.
pub(crate) fn integer(value: &Bson) -> Option<i64> {
    match value {
        Bson::Int32(number) => Some(i64::from(*number)),
        Bson::Int64(number) => Some(*number),
        _ => None,
    }
}

/// Returns a whole number, whatever its type.
pub(crate) fn whole(value: &Bson) -> Option<i64> {
    let number = match value {
        Bson::Double(number) => *number,
        other => return integer(other),
    };
    #[allow(clippy::cast_possible_truncation, reason = "a cast to an integer saturates")]
    (number.fract() == 0.0).then_some(number as i64)
}

/// Returns a number as near as a double comes to it.
pub(crate) fn number(value: &Bson) -> Option<f64> {
    match value {
        Bson::Double(number) => Some(*number),
        Bson::Decimal128(number) => number.to_string().parse().ok(),
        #[allow(clippy::cast_precision_loss, reason = "as near as it comes")]
        other => integer(other).map(|it| it as f64),
    }
}

/// A value that stands in an index.
#[derive(Clone, Debug)]
pub(crate) struct Key(pub(crate) Bson);

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Key {}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        Collation::Simple.compare(&self.0, &other.0)
    }
}
