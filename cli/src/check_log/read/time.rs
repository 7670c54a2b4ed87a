//! The time when a line was written, whatever the log calls that.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Map, Value};

/// The names of fields, the first one found counts; what they count in if they are numbers.
const NAMES: [(&str, Unit); 9] = [
    ("time", Unit::Since1970),
    ("timestamp", Unit::Since1970),
    ("@timestamp", Unit::Since1970),
    ("t", Unit::Since1970),
    ("ts", Unit::Since1970),
    ("created", Unit::Since1970),
    ("asctime", Unit::Since1970),
    ("elapsedMs", Unit::Milliseconds),
    ("elapsedMS", Unit::Milliseconds),
];

/// Numbers from here on are milliseconds since 1970, which they have been since 1973; smaller ones
/// are seconds.
const LEAST_MILLISECONDS: f64 = 1e11;

/// No log is of a time later than this, in seconds since 1970.
const LATEST: f64 = 1e12;

#[derive(Clone, Copy)]
enum Unit {
    Since1970,
    Milliseconds,
}

/// Reads when a line was written, since 1970 or since the log's own beginning.
pub(super) fn written_at(line: &Map<String, Value>) -> Option<Duration> {
    let named = |(name, unit): (&str, Unit)| seconds(line.get(name)?, unit);
    let seconds = NAMES.into_iter().find_map(named)?;
    (0.0..LATEST).contains(&seconds).then(|| Duration::from_secs_f64(seconds))
}

fn seconds(value: &Value, unit: Unit) -> Option<f64> {
    match value {
        Value::Number(number) => {
            let number = number.as_f64()?;
            let is_millis = matches!(unit, Unit::Milliseconds) || number >= LEAST_MILLISECONDS;
            Some(if is_millis { number / 1e3 } else { number })
        }
        Value::String(text) => match text.parse::<f64>() {
            Ok(number) => seconds(&serde_json::Number::from_f64(number)?.into(), unit),
            Err(_) => date(text),
        },
        // Extended JSON, relaxed or canonical.
        Value::Object(object) => match object.get("$date").or_else(|| object.get("$numberLong"))? {
            Value::Object(number) => millis(number.get("$numberLong")?),
            Value::String(text) if text.contains('-') => date(text),
            number => millis(number),
        },
        _ => None,
    }
}

fn millis(value: &Value) -> Option<f64> {
    let number = value.as_f64().or_else(|| value.as_str()?.parse().ok())?;
    Some(number / 1e3)
}

/// Reads a date of RFC 3339; Python puts a comma before the fraction, and leaves out the zone.
fn date(text: &str) -> Option<f64> {
    let text = text.replacen(',', ".", 1);
    let date: Timestamp = text.parse().or_else(|_| format!("{text}Z").parse()).ok()?;
    Some(date.as_duration().as_secs_f64())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::written_at;

    fn millis(line: Value) -> Option<u128> {
        let Value::Object(line) = line else { unreachable!("a line is an object") };
        written_at(&line).map(|at| at.as_millis())
    }

    #[test]
    fn times_are_read_in_the_units_that_loggers_use() {
        let expected = Some(1_795_265_347_125);
        for line in [
            json!({ "time": 1_795_265_347_125_u64 }),
            json!({ "created": 1_795_265_347.125 }),
            json!({ "time": "2026-11-21T12:49:07.125Z" }),
            json!({ "asctime": "2026-11-21 12:49:07,125" }),
            json!({ "@timestamp": "2026-11-21T13:49:07.125+01:00" }),
            json!({ "t": { "$date": "2026-11-21T12:49:07.125Z" } }),
            json!({ "t": { "$date": { "$numberLong": "1795265347125" } } }),
            json!({ "ts": "1795265347.125" }),
        ] {
            assert_eq!(millis(line.clone()), expected, "{line}");
        }
        assert_eq!(millis(json!({ "elapsedMs": 12.5 })), Some(12));
    }

    #[test]
    fn what_is_no_time_is_none() {
        for line in
            [json!({}), json!({ "time": "soon" }), json!({ "time": -1 }), json!({ "t": [] })]
        {
            assert_eq!(millis(line.clone()), None, "{line}");
        }
    }
}
