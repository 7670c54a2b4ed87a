//! Numbers of different types that are compared by their value (Unified Test Format, "Flexible
//! Numeric Comparisons").

use std::cmp::Ordering;

use bson::Bson;

/// Compares two numbers; `None` if one of them is none, or cannot be ordered.
pub(super) fn compare(one: &Bson, other: &Bson) -> Option<Ordering> {
    match (whole(one), whole(other)) {
        (Some(one), Some(other)) => Some(one.cmp(&other)),
        (Some(one), None) => with_double(one, double(other)?),
        (None, Some(other)) => with_double(other, double(one)?).map(Ordering::reverse),
        (None, None) => double(one)?.partial_cmp(&double(other)?),
    }
}

fn whole(value: &Bson) -> Option<i64> {
    match value {
        Bson::Int32(number) => Some((*number).into()),
        Bson::Int64(number) => Some(*number),
        _ => None,
    }
}

fn double(value: &Bson) -> Option<f64> {
    match value {
        Bson::Double(number) => Some(*number),
        _ => None,
    }
}

/// Compares a whole number that a double may be unable to hold.
fn with_double(whole: i64, double: f64) -> Option<Ordering> {
    let rounded = (whole as f64).partial_cmp(&double)?;
    // A double that equals the rounded number has no fraction, and casts saturate.
    Some(rounded.then_with(|| whole.cmp(&(double as i64))))
}
