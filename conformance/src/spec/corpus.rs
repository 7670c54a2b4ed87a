//! BSON Corpus, through the crate `bson`, which has all documents here.
//!
//! What that crate does otherwise is skipped by name, and fails as soon as the crate does it.

use bson::{Bson, Decimal128, Document, RawDocumentBuf};
use serde::Deserialize;
use serde_json::Value;

use super::difference::Differences;
use super::format::{CaseError, bytes, parse, upper_hex};
use super::report::{CaseReport, Verdict};

/// The type of decimal numbers, whose texts must be read.
const DECIMAL: &str = "0x13";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct File {
    description: String,
    #[serde(rename = "bson_type")]
    bson_type: String,
    #[serde(rename = "test_key")]
    _test_key: Option<String>,
    #[serde(rename = "deprecated")]
    _deprecated: Option<bool>,
    #[serde(default)]
    valid: Vec<Valid>,
    #[serde(default)]
    decode_errors: Vec<DecodeError>,
    #[serde(default)]
    parse_errors: Vec<ParseError>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Valid {
    description: String,
    canonical_bson: String,
    canonical_extjson: String,
    relaxed_extjson: Option<String>,
    degenerate_bson: Option<String>,
    degenerate_extjson: Option<String>,
    // Of types that a language has not; the crate has all.
    #[serde(rename = "converted_bson")]
    _converted_bson: Option<String>,
    #[serde(rename = "converted_extjson")]
    _converted_extjson: Option<String>,
    #[serde(default)]
    lossy: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct DecodeError {
    description: String,
    bson: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ParseError {
    description: String,
    string: String,
}

/// Runs the cases of a file.
pub(super) fn run(text: &str) -> Result<Vec<CaseReport>, CaseError> {
    let file: File = parse(text)?;
    let mut cases = Vec::new();
    for case in &file.valid {
        let mut differences = Differences::default();
        case.compare(&mut differences);
        cases.push(file.judge(&case.description, differences));
    }
    for DecodeError { description, bson } in &file.decode_errors {
        let mut differences = Differences::default();
        if let Ok(document) = bytes(bson).and_then(|bytes| decode(&bytes)) {
            differences.differs("bson", "an error", document);
        }
        cases.push(file.judge(description, differences));
    }
    for ParseError { description, string } in &file.parse_errors {
        let mut differences = Differences::default();
        let parsed = match file.bson_type.as_str() {
            DECIMAL => string.parse::<Decimal128>().map(|it| it.to_string()).map_err(shown),
            _ => read_json(string).and_then(|document| encode(&document)),
        };
        if let Ok(parsed) = parsed {
            differences.differs("string", "an error", parsed);
        }
        cases.push(file.judge(&format!("{description}: {string:?}"), differences));
    }
    Ok(cases)
}

impl File {
    /// Judges a case: one that is known to differ has to.
    fn judge(&self, name: &str, mut differences: Differences) -> CaseReport {
        let is_it = |known: &&Known| {
            known.file == self.description && known.cases.iter().any(|it| name.starts_with(it))
        };
        let Some(known) = KNOWN.iter().find(is_it) else {
            return CaseReport::new(name, differences);
        };
        if differences.is_empty() {
            differences.differs(
                "the list of what the crate bson does otherwise",
                "a case of it",
                "one that passes",
            );
            return CaseReport::new(name, differences);
        }
        let reason = format!("the crate bson: {}", known.reason);
        CaseReport { name: name.to_owned(), verdict: Verdict::Skipped { reason } }
    }
}

impl Valid {
    /// Compares each form with each other one that it has to become ("Testing validity").
    fn compare(&self, differences: &mut Differences) {
        let canonical = self.canonical_bson.to_uppercase();
        let from_bson = |differences: &mut Differences, field: &str, hex: &str| {
            differences.within(field, |differences| {
                let document = bytes(hex).and_then(|bytes| decode(&bytes));
                let document = differences.value("BSON", document)?;
                if let Some(found) = differences.value("to BSON", encode(&document)) {
                    differences.text("to BSON", &canonical, &found);
                }
                Some(document)
            })
        };
        if let Some(document) = from_bson(differences, "canonical_bson", &self.canonical_bson) {
            differences.within("canonical_bson", |differences| {
                let found = Bson::Document(document.clone()).into_canonical_extjson();
                compare_json(differences, "to canonical JSON", &self.canonical_extjson, found);
                if let Some(relaxed) = &self.relaxed_extjson {
                    let found = Bson::Document(document).into_relaxed_extjson();
                    compare_json(differences, "to relaxed JSON", relaxed, found);
                }
            });
        }
        if let Some(degenerate) = &self.degenerate_bson {
            from_bson(differences, "degenerate_bson", degenerate);
        }
        let degenerate = self.degenerate_extjson.iter();
        let degenerate = degenerate.map(|text| ("degenerate_extjson", text));
        for (field, text) in
            [("canonical_extjson", &self.canonical_extjson)].into_iter().chain(degenerate)
        {
            differences.within(field, |differences| {
                let Some(document) = differences.value("JSON", read_json(text)) else { return };
                if !self.lossy
                    && let Some(found) = differences.value("to BSON", encode(&document))
                {
                    differences.text("to BSON", &canonical, &found);
                }
                let found = Bson::Document(document).into_canonical_extjson();
                compare_json(differences, "to canonical JSON", &self.canonical_extjson, found);
            });
        }
        if let Some(relaxed) = &self.relaxed_extjson {
            differences.within("relaxed_extjson", |differences| {
                if let Some(document) = differences.value("JSON", read_json(relaxed)) {
                    let found = Bson::Document(document).into_relaxed_extjson();
                    compare_json(differences, "to relaxed JSON", relaxed, found);
                }
            });
        }
    }
}

/// Reads all of a document, as whatever reads one of a reply does: its frame, and then its fields.
fn decode(bytes: &[u8]) -> Result<Document, String> {
    let raw = RawDocumentBuf::from_bytes(bytes.to_vec()).map_err(shown)?;
    Document::try_from(&*raw).map_err(shown)
}

/// Writes a document as BSON, in hexadecimal digits.
fn encode(document: &Document) -> Result<String, String> {
    document.to_vec().map(|bytes| upper_hex(&bytes)).map_err(shown)
}

fn read_json(text: &str) -> Result<Document, String> {
    let json: Value = serde_json::from_str(text).map_err(shown)?;
    match Bson::try_from(json).map_err(shown)? {
        Bson::Document(document) => Ok(document),
        other => Err(format!("it is {other}, and no document")),
    }
}

/// Notes that two texts of Extended JSON are different values, if they are.
fn compare_json(differences: &mut Differences, field: &str, expected: &str, found: Value) {
    match serde_json::from_str(expected) {
        Ok(expected) => differences.equal(field, &alike(expected), &alike(found)),
        Err(error) => differences.differs(field, "JSON", error),
    }
}

/// Writes numbers in one of several forms that mean the same: `1E3` and `1000.0`.
fn alike(mut value: Value) -> Value {
    match &mut value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value.as_str().filter(|_| name == "$numberDouble").map(str::parse::<f64>) {
                    Some(Ok(number)) => *value = Value::String(format!("{number:?}")),
                    _ => *value = alike(value.take()),
                }
            }
        }
        Value::Array(values) => values.iter_mut().for_each(|value| *value = alike(value.take())),
        _ => {}
    }
    value
}

fn shown(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// A difference of the crate to the suite.
struct Known {
    /// The description of the file.
    file: &'static str,
    /// The descriptions of the cases, or what they begin with.
    cases: &'static [&'static str],
    /// The crate's way.
    reason: &'static str,
}

const KNOWN: &[Known] = &[
    Known {
        file: "DateTime",
        cases: &["Y10K"],
        reason: "without its feature large_dates, it writes a later date as the last one of 9999",
    },
    Known {
        file: "Decimal128",
        cases: &[
            "Exponent at the beginning",
            "Just a decimal place",
            r#"2 signs: "-+32.4""#,
            "Empty string",
            "[basx501]",
            "[basx503]",
            "[basx505]",
            "[basx519]",
            "[basx525]",
            "[basx549]",
            "[basx577]",
            "[basx578]",
            "[basx581]",
            "[basx582]",
            "[basx583]",
        ],
        reason: "it reads decimal numbers without digits, and with two signs; its own tests leave \
                 out what has to be refused (RUST-36)",
    },
    Known {
        file: "Top-level document validity",
        cases: &["Bad $date (number, not string or hash)"],
        reason: "it reads a date that is a number, an older form of Extended JSON",
    },
];
