//! The fields of documents that peers have sent, each read by itself: one that is of no use, as a
//! text with bytes that are no UTF-8, leaves the others what they are.
//!
//! Servers cut values in their messages after so many bytes, within a character, too: the error of
//! a duplicate key is one of those.

use std::borrow::Cow;

use bson::raw::{RawElement, RawIter};
use bson::spec::ElementType;
use bson::{RawBsonRef, RawDocument};

use crate::text::beginning;

/// Returns the fields of a document.
///
/// ```
/// use sdam_core::bson::rawdoc;
/// use sdam_core::wire::elements;
///
/// let mut bytes = rawdoc! { "errmsg": "dup: ?", "code": 11000 }.into_bytes();
/// *bytes.iter_mut().find(|byte| **byte == b'?').unwrap() = 0xc3;
/// let reply = sdam_core::bson::RawDocumentBuf::from_bytes(bytes)?;
/// let [message, code] = &elements(&reply).collect::<Result<Vec<_>, _>>()?[..] else { panic!() };
/// assert!(message.value().is_err());
/// assert_eq!(message.text().as_deref(), Some("dup: \u{fffd}"));
/// assert_eq!((code.name(), code.value()?.as_i32()), ("code", Some(11000)));
/// # Ok::<(), sdam_core::bson::error::Error>(())
/// ```
pub fn elements(document: &RawDocument) -> Elements<'_> {
    Elements { bytes: document.as_bytes(), raw: document.iter_elements(), end: LENGTH_LEN }
}

/// Reads a field of a document as a text for people, see [`Element::text`].
pub fn text<'a>(document: &'a RawDocument, name: &str) -> Option<Cow<'a, str>> {
    let mut elements = elements(document).map_while(Result::ok);
    elements.find(|element| element.name() == name)?.text()
}

/// The length of the length in front of a document, or of a text.
const LENGTH_LEN: usize = 4;

/// The length of the longest character, in bytes.
const MAX_CHARACTER_LEN: usize = 4;

/// The fields of a document; an error is the last of them, where the document itself is broken.
pub struct Elements<'a> {
    bytes: &'a [u8],
    raw: RawIter<'a>,
    /// The end of the last one.
    end: usize,
}

impl<'a> Iterator for Elements<'a> {
    type Item = Result<Element<'a>, bson::error::Error>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.raw.next()?.map(|raw| {
            // A byte for the type, and one behind the name.
            let start = self.end + 1 + raw.key().len() + 1;
            self.end = start + raw.size();
            Element { bytes: self.bytes.get(start..self.end).unwrap_or_default(), raw }
        }))
    }
}

impl std::fmt::Debug for Elements<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Elements").field("end", &self.end).finish_non_exhaustive()
    }
}

/// A field of a document.
#[derive(Clone)]
pub struct Element<'a> {
    raw: RawElement<'a>,
    /// The bytes of the value.
    bytes: &'a [u8],
}

impl<'a> Element<'a> {
    /// Returns the name.
    pub fn name(&self) -> &'a str {
        self.raw.key().as_str()
    }

    /// Returns the value.
    ///
    /// # Errors
    ///
    /// Fails if its bytes are not what its type promises.
    pub fn value(&self) -> Result<RawBsonRef<'a>, bson::error::Error> {
        self.raw.value()
    }

    /// Returns a text for people, which nothing is decided by: with U+FFFD for what is no UTF-8.
    /// `None` of a value of another type.
    pub fn text(&self) -> Option<Cow<'a, str>> {
        self.text_bytes().map(String::from_utf8_lossy)
    }

    /// As [`text`](Self::text), but at most so many bytes, and whole characters.
    pub fn beginning(&self, longest: usize) -> Option<String> {
        let bytes = self.text_bytes()?;
        // Memory is spent on no more than is kept; a character that is cut here is left out below.
        let bytes = bytes.get(..longest.saturating_add(MAX_CHARACTER_LEN)).unwrap_or(bytes);
        Some(beginning(&String::from_utf8_lossy(bytes), longest).to_owned())
    }

    fn text_bytes(&self) -> Option<&'a [u8]> {
        match self.raw.element_type() {
            ElementType::String => self.bytes.get(LENGTH_LEN..self.bytes.len().checked_sub(1)?),
            _ => None,
        }
    }
}

impl std::fmt::Debug for Element<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = self.raw.element_type();
        f.debug_struct("Element").field("name", &self.name()).field("type", &kind).finish()
    }
}

#[cfg(test)]
mod tests {
    use bson::{RawDocumentBuf, rawdoc};

    use super::{elements, text};

    /// Replaces each question mark by a byte that is no UTF-8.
    fn broken(document: RawDocumentBuf) -> RawDocumentBuf {
        let mut bytes = document.into_bytes();
        bytes.iter_mut().filter(|byte| **byte == b'?').for_each(|byte| *byte = 0xe4);
        RawDocumentBuf::from_bytes(bytes).unwrap()
    }

    #[test]
    fn a_text_that_is_no_utf8_takes_nothing_along() {
        let document = broken(rawdoc! {
            "a": 1, "bad": "x?y", "nested": { "bad": "?" }, "list": ["?"], "good": "ß", "z": true,
        });
        let all: Vec<_> = elements(&document).map(Result::unwrap).collect();
        let names: Vec<_> = all.iter().map(super::Element::name).collect();
        assert_eq!(names, ["a", "bad", "nested", "list", "good", "z"]);
        assert_eq!(text(&document, "bad").as_deref(), Some("x\u{fffd}y"));
        assert_eq!(text(&document, "good").as_deref(), Some("ß"));
        assert_eq!((text(&document, "a"), text(&document, "none")), (None, None));
        assert_eq!(all[5].value().unwrap().as_bool(), Some(true));
        let nested = all[2].value().unwrap().as_document().unwrap();
        assert_eq!(text(nested, "bad").as_deref(), Some("\u{fffd}"));
    }

    /// The text is that which the whole one begins with, wherever it is cut.
    #[test]
    fn the_beginning_of_a_text_has_whole_characters_and_no_byte_more() {
        for value in ["aß語🦀z", "a?ß?語?", "", "????"] {
            let document = broken(rawdoc! { "text": value });
            let element = elements(&document).next().unwrap().unwrap();
            let whole = element.text().unwrap();
            for longest in 0..=whole.len() + 1 {
                let beginning = element.beginning(longest).unwrap();
                assert!(beginning.len() <= longest && whole.starts_with(&*beginning));
                assert!(beginning.len() + 4 > longest.min(whole.len()), "{longest}: {beginning}");
            }
        }
    }

    #[test]
    fn a_document_that_is_broken_itself_ends_with_an_error() {
        let mut bytes = rawdoc! { "a": 1, "b": "x", "c": 2 }.into_bytes();
        let length = bytes.iter().position(|byte| *byte == b'b').unwrap() + 2;
        bytes[length] = 0x7f;
        let document = RawDocumentBuf::from_bytes(bytes).unwrap();
        let all: Vec<_> = elements(&document).collect();
        assert!(matches!(&all[..], [Ok(_), Err(_)]), "{all:?}");
    }
}
