//! The nesting of documents and arrays, judged before anything recurses into them.

use bson::spec::ElementType;
use bson::{RawBsonRef, RawDocument};

/// The number of levels of documents and arrays within each other that is read as a type: what
/// recurses once a level would need more stack for more.
///
/// Servers take 200 levels, and 250 if they are started with `maxBSONDepth`.
pub const MAX_NESTING: usize = 250;

/// Returns the number of levels of documents and arrays within each other, 1 for a document without
/// any; `None` if there are more than `most`.
///
/// It does not recurse. What is no BSON is passed over, as nothing can be read of it; but a scope
/// whose code is no UTF-8 counts as nested too deeply, as its levels cannot be counted.
///
/// ```
/// use sdam_core::bson::rawdoc;
/// use sdam_core::wire::nesting;
///
/// let document = rawdoc! { "a": [{ "b": 1 }], "c": {} };
/// assert_eq!(nesting(&document, 3), Some(3));
/// assert_eq!(nesting(&document, 2), None);
/// ```
pub fn nesting(document: &RawDocument, most: usize) -> Option<usize> {
    let (mut open, mut deepest) = (vec![document.iter_elements()], 1);
    while let Some(elements) = open.last_mut() {
        let mut is_code = false;
        let inner = match elements.next() {
            None => {
                open.pop();
                continue;
            }
            Some(Ok(element)) => match element.element_type() {
                ElementType::EmbeddedDocument | ElementType::Array => element.value(),
                ElementType::JavaScriptCodeWithScope => {
                    is_code = true;
                    element.value()
                }
                _ => continue,
            },
            Some(Err(_)) => continue,
        };
        let inner = match inner {
            Ok(RawBsonRef::Document(inner)) => inner,
            // An array is a document whose names are numbers.
            Ok(RawBsonRef::Array(inner)) => match RawDocument::from_bytes(inner.as_bytes()) {
                Ok(inner) => inner,
                Err(_) => continue,
            },
            Ok(RawBsonRef::JavaScriptCodeWithScope(code)) => code.scope,
            // A scope behind code that is no UTF-8 can be read leniently, and then lies elsewhere.
            Err(_) if is_code => return None,
            Ok(_) | Err(_) => continue,
        };
        open.push(inner.iter_elements());
        deepest = deepest.max(open.len());
        if deepest > most {
            return None;
        }
    }
    (deepest <= most).then_some(deepest)
}

#[cfg(test)]
mod tests {
    use bson::{Bson, JavaScriptCodeWithScope, RawDocumentBuf, doc, rawdoc};

    use super::nesting;

    #[test]
    fn a_scope_behind_code_that_is_no_utf8_is_not_passed_over() {
        let code = JavaScriptCodeWithScope { code: "?".to_owned(), scope: doc! {} };
        let document = RawDocumentBuf::try_from(&doc! { "a": Bson::from(code) }).unwrap();
        assert_eq!(nesting(&document, 250), Some(2));
        let mut bytes = document.into_bytes();
        bytes.iter_mut().filter(|byte| **byte == b'?').for_each(|byte| *byte = 0xff);
        assert_eq!(nesting(&RawDocumentBuf::from_bytes(bytes).unwrap(), 250), None);
    }

    /// Makes a document of so many levels, each of them a field with this name and type.
    fn nested(levels: usize, kind: u8) -> RawDocumentBuf {
        let mut bytes = Vec::new();
        for left in (1..=levels).rev() {
            let length = i32::try_from(5 + 7 * (left - 1)).unwrap();
            bytes.extend(length.to_le_bytes());
            if left > 1 {
                bytes.extend([kind, 0]);
            }
        }
        bytes.extend(vec![0; levels]);
        RawDocumentBuf::from_bytes(bytes).unwrap()
    }

    #[test]
    fn levels_are_counted_up_to_the_limit() {
        assert_eq!(nesting(&rawdoc! {}, 1), Some(1));
        assert_eq!(nesting(&rawdoc! {}, 0), None);
        for kind in [3, 4] {
            for levels in [1, 2, 250] {
                assert_eq!(nesting(&nested(levels, kind), 250), Some(levels));
                assert_eq!(nesting(&nested(levels, kind), levels - 1), None);
            }
            assert_eq!(nesting(&nested(6_000_000, kind), 250), None);
            assert_eq!(nesting(&nested(100_000, kind), usize::MAX), Some(100_000));
        }
    }

    #[test]
    fn the_deepest_level_counts_wherever_it_is() {
        let scope = JavaScriptCodeWithScope { code: "f".into(), scope: doc! { "a": { "b": 1 } } };
        let document = doc! {
            "first": { "a": [1, { "b": {} }], "c": 1 },
            "second": [],
            "scope": Bson::JavaScriptCodeWithScope(scope.clone()),
        };
        assert_eq!(nesting(&RawDocumentBuf::try_from(&document).unwrap(), 9), Some(5));
        let document = doc! { "a": Bson::JavaScriptCodeWithScope(scope) };
        assert_eq!(nesting(&RawDocumentBuf::try_from(&document).unwrap(), 9), Some(3));
    }

    /// A reader may go on behind a document that it cannot read.
    #[test]
    fn what_is_behind_a_broken_document_counts() {
        let mut bytes = rawdoc! { "a": { "b": 1 }, "c": { "d": { "e": 1 } } }.into_bytes();
        let at = bytes.iter().position(|byte| *byte == b'b').unwrap() - 1;
        bytes[at] = 0x7a;
        let broken = RawDocumentBuf::from_bytes(bytes).unwrap();
        assert_eq!(nesting(&broken, 9), Some(3));
    }
}
