//! Documents as lines of JSON, in the way that is fastest for all competitors in Rust.

use std::io::Write as _;

use bson::{RawDocument, RawDocumentBuf};
use sdam_bench::Failure;
use serde::de::DeserializeOwned;

/// The type of a document that was read from a line: bytes, without a map of its fields. It takes
/// extended JSON for documents as they are, of which the data have none.
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
    use bson::{Bson, Document, RawDocumentBuf, doc, rawdoc};

    use super::{Line, lines, to_line};

    #[test]
    fn a_line_is_a_document_of_either_type() {
        let text = "{\"a\":1,\"b\":{\"c\":[null,true,5000000000]}}\n{\"a\":2.5}\n";
        let nested = doc! { "a": 1, "b": { "c": [Bson::Null, true, 5_000_000_000_i64] } };
        let expected = [nested, doc! { "a": 2.5 }];
        assert_eq!(lines::<Document>(text).unwrap(), expected);
        let raw = lines::<Line>(text).unwrap();
        assert_eq!(raw, expected.each_ref().map(|one| RawDocumentBuf::try_from(one).unwrap()));
    }

    #[test]
    fn numbers_are_written_as_they_are() {
        let mut text = Vec::new();
        to_line(&rawdoc! { "a": 1, "b": [true, 5_000_000_000_i64, null] }, &mut text).unwrap();
        assert_eq!(text, b"{\"a\":1,\"b\":[true,5000000000,null]}\n");
    }
}
