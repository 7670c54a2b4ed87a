//! Replies with messages that are not quite texts, for applications that read replies themselves.

use bson::raw::RawElement;
use bson::{RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf};

/// The depth to which the documents of errors are looked into.
const MAX_DEPTH: usize = 16;

/// Returns a reply with U+FFFD for what is no UTF-8 in the texts that servers make: those of the
/// reply itself, and those of its errors, which servers cut within a character. Texts that were
/// stored are left as they are, for the reader to judge.
pub(crate) fn readable(reply: &RawDocument) -> RawDocumentBuf {
    let mut readable = RawDocumentBuf::new();
    for element in reply.iter_elements().map_while(Result::ok) {
        let depth = match element.key().as_str() {
            "writeErrors" | "writeConcernError" | "errInfo" => MAX_DEPTH,
            _ => 0,
        };
        if let Some(value) = value(&element, depth) {
            readable.append(element.key(), value);
        }
    }
    readable
}

/// Returns a value with texts that can be read, so many documents deep.
fn value(element: &RawElement<'_>, depth: usize) -> Option<RawBson> {
    match element.value() {
        Ok(RawBsonRef::Document(inner)) if depth > 0 => {
            let mut document = RawDocumentBuf::new();
            for element in inner.iter_elements().map_while(Result::ok) {
                document.append(element.key(), value(&element, depth - 1)?);
            }
            Some(document.into())
        }
        Ok(RawBsonRef::Array(inner)) if depth > 0 => {
            let mut array = RawArrayBuf::new();
            for element in inner.iter_elements().map_while(Result::ok) {
                array.push(value(&element, depth - 1)?);
            }
            Some(array.into())
        }
        Ok(value) => Some(value.into()),
        Err(_) => element.value_utf8_lossy().ok(),
    }
}

#[cfg(test)]
mod tests {
    use bson::{Document, RawDocumentBuf, doc, rawdoc};

    use super::readable;

    #[test]
    fn texts_of_errors_are_readable_and_those_of_documents_are_left_alone() {
        let broken = |document: RawDocumentBuf| {
            let mut bytes = document.into_bytes();
            bytes.iter_mut().filter(|byte| **byte == b'?').for_each(|byte| *byte = 0xe4);
            RawDocumentBuf::from_bytes(bytes).unwrap()
        };
        let error = rawdoc! { "index": 0, "errmsg": "a?", "errInfo": { "list": ["?", 1] } };
        let reply = broken(rawdoc! {
            "n": 1, "writeErrors": [error], "writeConcernError": { "errmsg": "?" }, "note": "?b",
        });
        assert!(Document::try_from(&*reply).is_err());
        let error =
            doc! { "index": 0, "errmsg": "a\u{fffd}", "errInfo": { "list": ["\u{fffd}", 1] } };
        let expected = doc! {
            "n": 1, "writeErrors": [error], "writeConcernError": { "errmsg": "\u{fffd}" },
            "note": "\u{fffd}b",
        };
        assert_eq!(Document::try_from(readable(&reply)).unwrap(), expected);
        let stored = broken(rawdoc! { "cursor": { "firstBatch": [{ "a": "?" }] }, "ok": 1 });
        assert_eq!(readable(&stored), stored);
    }

    /// An error that is nested for ever would take the stack.
    #[test]
    fn errors_are_looked_into_so_many_documents_deep() {
        const MOST: usize = super::MAX_DEPTH;
        for (levels, is_readable) in [(MOST - 1, true), (MOST, true), (MOST + 1, false)] {
            let arrays = levels < MOST;
            for (innermost, is_readable) in
                [(rawdoc! { "b": "?" }, is_readable), (rawdoc! { "b": ["?"] }, arrays)]
            {
                let nested = (1..levels).fold(innermost, |inner, _| rawdoc! { "a": inner });
                let mut bytes = rawdoc! { "errInfo": nested }.into_bytes();
                bytes.iter_mut().filter(|byte| **byte == b'?').for_each(|byte| *byte = 0xe4);
                let reply = RawDocumentBuf::from_bytes(bytes).unwrap();
                assert_eq!(Document::try_from(&*readable(&reply)).is_ok(), is_readable, "{levels}");
            }
        }
    }
}
