//! BSON Binary Vector, through the crate `bson`.

use bson::binary::{PackedBitVector, Vector};
use bson::{Binary, Bson, Document, RawDocumentBuf};
use serde::Deserialize;

use super::difference::Differences;
use super::format::{CaseError, bytes, parse, upper_hex};
use super::report::CaseReport;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(rename = "description")]
    _description: String,
    test_key: String,
    tests: Vec<Case>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    description: String,
    valid: bool,
    vector: Option<Vec<Bson>>,
    #[serde(rename = "dtype_hex")]
    _type: String,
    #[serde(rename = "dtype_alias")]
    type_name: String,
    padding: Option<i64>,
    canonical_bson: Option<String>,
}

/// Runs the cases of a file.
pub(super) fn run(text: &str) -> Result<Vec<CaseReport>, CaseError> {
    let file: File = parse(text)?;
    let cases = file.tests.iter().map(|case| {
        let mut differences = Differences::default();
        case.compare(&file.test_key, &mut differences);
        CaseReport::new(case.description.clone(), differences)
    });
    Ok(cases.collect())
}

impl Case {
    /// Compares both ways, or has both fail ("Testing of invalid cases").
    fn compare(&self, key: &str, differences: &mut Differences) {
        let made = self.vector.as_ref().map(|numbers| self.make(numbers));
        let read = self.canonical_bson.as_ref().map(|hex| read(hex, key));
        if !self.valid {
            for (field, outcome) in [("vector", made), ("canonical_bson", read)] {
                if let Some(Ok(vector)) = outcome {
                    differences.differs(field, "an error", format!("{vector:?}"));
                }
            }
            return;
        }
        let (Some(made), Some(read)) = (made, read) else {
            return differences.differs("the case", "numbers and bytes", "one of them");
        };
        let made = differences.value("vector", made);
        let read = differences.value("canonical_bson", read);
        if let (Some(made), Some(read)) = (made, read) {
            differences.text("vector", &format!("{made:?}"), &format!("{read:?}"));
            let mut document = Document::new();
            document.insert(key, made);
            let bytes = document.to_vec().map_err(|error| error.to_string());
            if let Some(bytes) = differences.value("to BSON", bytes) {
                let expected = self.canonical_bson.as_deref().unwrap_or_default();
                differences.text("to BSON", &expected.to_uppercase(), &upper_hex(&bytes));
            }
        }
    }

    /// Makes the vector of these numbers.
    fn make(&self, numbers: &[Bson]) -> Result<Vector, String> {
        let padding = u8::try_from(self.padding.unwrap_or_default()).map_err(shown)?;
        if self.type_name != "PACKED_BIT" && padding != 0 {
            return Err("the type of the vector has no padding".to_owned());
        }
        Ok(match self.type_name.as_str() {
            "INT8" => Vector::Int8(integers(numbers)?),
            "PACKED_BIT" => {
                let vector = PackedBitVector::new(integers(numbers)?, padding);
                Vector::PackedBit(vector.map_err(shown)?)
            }
            "FLOAT32" => {
                let number = |number: &Bson| number.as_f64().ok_or_else(|| refused(number));
                // The values of the suite are those of the narrower type, rounded.
                #[expect(clippy::cast_possible_truncation)]
                let numbers = numbers.iter().map(|it| number(it).map(|it| it as f32));
                Vector::Float32(numbers.collect::<Result<_, _>>()?)
            }
            other => return Err(format!("{other} is no type of vectors")),
        })
    }
}

fn integers<T: TryFrom<i64>>(numbers: &[Bson]) -> Result<Vec<T>, String> {
    let one = |number: &Bson| {
        let value = number.as_i64().or_else(|| number.as_i32().map(i64::from));
        value.and_then(|value| T::try_from(value).ok()).ok_or_else(|| refused(number))
    };
    numbers.iter().map(one).collect()
}

/// Reads the vector of a document.
fn read(hex: &str, key: &str) -> Result<Vector, String> {
    let document = RawDocumentBuf::from_bytes(bytes(hex)?).map_err(shown)?;
    let binary = document.get_binary(key).map_err(shown)?;
    let binary = Binary { subtype: binary.subtype, bytes: binary.bytes.to_vec() };
    Vector::try_from(&binary).map_err(shown)
}

fn refused(number: &Bson) -> String {
    format!("{number} is no element of such a vector")
}

fn shown(error: impl std::fmt::Display) -> String {
    error.to_string()
}
