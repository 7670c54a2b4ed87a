//! Documents as lines of extended JSON, in the way that is fastest for all competitors in Rust.

use std::io::Write as _;

use bson::{RawDocument, RawDocumentBuf};
use sdam_bench::Failure;
use serde::de::DeserializeOwned;

/// The type of a document that was read from a line: bytes, without a map of its fields.
pub(crate) type Line = RawDocumentBuf;

/// Reads documents, one a line.
pub(crate) fn lines<T: DeserializeOwned>(text: &str) -> Result<Vec<T>, Failure> {
    text.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
}

/// Appends a document as a line.
pub(crate) fn to_line(document: &RawDocument, text: &mut Vec<u8>) -> Result<(), Failure> {
    serde_json::to_writer(&mut *text, &document)?;
    Ok(text.write_all(b"\n")?)
}

#[cfg(test)]
mod tests {
    use bson::{Bson, Document, doc, rawdoc};

    use super::{Line, lines, to_line};

    #[test]
    fn a_line_is_extended_json() {
        let text = "{\"a\":1}\n{\"a\":{\"$numberLong\":\"2\"}}\n";
        let read = lines::<Document>(text).unwrap();
        assert_eq!(read, [doc! { "a": 1 }, doc! { "a": Bson::Int64(2) }]);
        let read = lines::<Line>(text).unwrap();
        assert_eq!(read, [rawdoc! { "a": 1 }, rawdoc! { "a": 2_i64 }]);
    }

    #[test]
    fn numbers_are_written_as_they_are() {
        let mut text = Vec::new();
        to_line(&rawdoc! { "a": 1, "b": [true, 5_000_000_000_i64, null] }, &mut text).unwrap();
        assert_eq!(text, b"{\"a\":1,\"b\":[true,5000000000,null]}\n");
    }
}
