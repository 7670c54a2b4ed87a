//! Documents as they stand in log messages: extended JSON that is cut.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bson::{RawBsonRef, RawDocument};

use crate::wire::{Elements, elements};

/// The first moment of the year 10,000 in milliseconds since the Unix epoch: dates from then on are
/// numbers in relaxed extended JSON, too.
const YEAR_10_000: i64 = 253_402_300_800_000;

/// Returns a document in relaxed extended JSON, cut after `longest` code points with `...` behind
/// them (Logging, "Configurable Max Document Length").
///
/// The time that it takes grows with `longest`, not with the length of the document. What is no
/// UTF-8 in a text is U+FFFD; what is no BSON ends the text, too.
///
/// ```
/// use sdam_core::bson::rawdoc;
/// use sdam_core::logging::extended_json;
///
/// let command = rawdoc! { "find": "fruits", "limit": 5i64 };
/// assert_eq!(extended_json(&command, 1000), r#"{"find": "fruits", "limit": 5}"#);
/// assert_eq!(extended_json(&command, 12), r#"{"find": "fr..."#);
/// ```
pub fn extended_json(document: &RawDocument, longest: usize) -> String {
    let mut writer = Writer { out: String::new(), left: longest, open: Vec::new() };
    // What does not fit in ends everything.
    if writer.document(document, "}").and_then(|()| writer.all()).is_none() {
        writer.out.push_str("...");
    }
    writer.out
}

/// The part of a document that is written so far. `None` is returned once it is to be cut.
struct Writer<'a> {
    out: String,
    /// The number of code points that there is still room for.
    left: usize,
    /// The documents and arrays that are not written to their ends, the outermost first.
    open: Vec<Open<'a>>,
}

struct Open<'a> {
    elements: Elements<'a>,
    /// The text behind the last element.
    end: &'static str,
    is_array: bool,
    is_empty: bool,
}

impl<'a> Writer<'a> {
    /// Writes all that is open, without recursion, as documents may be nested deeply.
    fn all(&mut self) -> Option<()> {
        while let Some(open) = self.open.last_mut() {
            let is_first = std::mem::replace(&mut open.is_empty, false);
            match open.elements.next() {
                Some(element) => {
                    let (element, is_array) = (element.ok()?, open.is_array);
                    self.text(if is_first { "" } else { ", " })?;
                    if !is_array {
                        self.string(element.name())?;
                        self.text(": ")?;
                    }
                    match element.value() {
                        Ok(value) => self.value(value)?,
                        // Of a text that is no UTF-8, as much as there may be room for.
                        Err(_) => self.string(&element.beginning(self.left.saturating_mul(4))?)?,
                    }
                }
                None => {
                    let end = open.end;
                    self.open.pop();
                    self.text(end)?;
                }
            }
        }
        Some(())
    }

    fn document(&mut self, document: &'a RawDocument, end: &'static str) -> Option<()> {
        self.text("{")?;
        let elements = elements(document);
        self.open.push(Open { elements, end, is_array: false, is_empty: true });
        Some(())
    }

    fn value(&mut self, value: RawBsonRef<'a>) -> Option<()> {
        match value {
            RawBsonRef::Document(document) => self.document(document, "}"),
            RawBsonRef::Array(array) => {
                self.text("[")?;
                let elements = elements(RawDocument::from_bytes(array.as_bytes()).ok()?);
                self.open.push(Open { elements, end: "]", is_array: true, is_empty: true });
                Some(())
            }
            RawBsonRef::String(text) => self.string(text),
            RawBsonRef::Symbol(text) => self.wrapped("$symbol", text),
            RawBsonRef::JavaScriptCode(code) => self.wrapped("$code", code),
            RawBsonRef::JavaScriptCodeWithScope(code) => {
                self.text("{\"$code\": ")?;
                self.string(code.code)?;
                self.text(", \"$scope\": ")?;
                self.document(code.scope, "}}")
            }
            RawBsonRef::RegularExpression(regex) => {
                self.text("{\"$regularExpression\": {\"pattern\": ")?;
                self.string(regex.pattern.as_str())?;
                self.text(", \"options\": ")?;
                self.string(regex.options.as_str())?;
                self.text("}}")
            }
            RawBsonRef::Binary(binary) => {
                self.text("{\"$binary\": {\"base64\": \"")?;
                self.base64(binary.bytes)?;
                self.text(&format!("\", \"subType\": \"{:02x}\"}}}}", u8::from(binary.subtype)))
            }
            // The crate bson writes a later one as the last moment of 9999.
            RawBsonRef::DateTime(date) if date.timestamp_millis() >= YEAR_10_000 => {
                self.text(&bson::Bson::DateTime(date).into_canonical_extjson().to_string())
            }
            // The others are short.
            value => {
                let value = bson::Bson::try_from(value).ok()?;
                self.text(&value.into_relaxed_extjson().to_string())
            }
        }
    }

    /// Writes a document with one text.
    fn wrapped(&mut self, name: &str, text: &str) -> Option<()> {
        self.text("{")?;
        self.string(name)?;
        self.text(": ")?;
        self.string(text)?;
        self.text("}")
    }

    /// Writes as many bytes as there is room for.
    fn base64(&mut self, bytes: &[u8]) -> Option<()> {
        // Three bytes become four characters, so that the beginning of them is that of all.
        let room = (self.left / 4).saturating_add(1).saturating_mul(3);
        self.text(&STANDARD.encode(&bytes[..bytes.len().min(room)]))
    }

    /// Writes a text in quotation marks.
    fn string(&mut self, text: &str) -> Option<()> {
        self.text("\"")?;
        for character in text.chars() {
            match character {
                '"' => self.text("\\\"")?,
                '\\' => self.text("\\\\")?,
                '\n' => self.text("\\n")?,
                '\r' => self.text("\\r")?,
                '\t' => self.text("\\t")?,
                control if control < ' ' => self.text(&format!("\\u{:04x}", control as u32))?,
                other => self.character(other)?,
            }
        }
        self.text("\"")
    }

    fn text(&mut self, text: &str) -> Option<()> {
        text.chars().try_for_each(|character| self.character(character))
    }

    fn character(&mut self, character: char) -> Option<()> {
        self.left = self.left.checked_sub(1)?;
        self.out.push(character);
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use bson::oid::ObjectId;
    use bson::spec::BinarySubtype;
    use bson::{Binary, Bson, DateTime, Decimal128, RawDocumentBuf, Regex, Timestamp, doc, rawdoc};

    use super::{YEAR_10_000, extended_json};

    /// Every type, as bson itself writes it.
    #[test]
    fn a_document_is_what_relaxed_extended_json_is() {
        let document = doc! {
            "double": 1.5, "whole": 2.0, "not a number": f64::NAN, "text": "a\"b\\c\n\u{1}ß",
            "document": { "a": { "b": [1, [2i64], {}, []] } },
            "binary": Binary { subtype: BinarySubtype::Generic, bytes: vec![1, 2, 3, 4] },
            "id": ObjectId::from_bytes([7; 12]), "true": true, "null": null,
            "date": DateTime::from_millis(1_356_351_330_501),
            "far": DateTime::from_millis(i64::MIN),
            "regex": Regex { pattern: "^a".try_into().unwrap(), options: "i".try_into().unwrap() },
            "code": Bson::JavaScriptCode("f()".into()),
            "scope": Bson::JavaScriptCodeWithScope(bson::JavaScriptCodeWithScope {
                code: "f(x)".into(), scope: doc! { "x": 1, "y": { "z": 2 } },
            }),
            "symbol": Bson::Symbol("s".into()), "int": 5, "long": 1i64 << 40,
            "timestamp": Timestamp { time: 5, increment: 6 },
            "decimal": Bson::Decimal128("1.50".parse::<Decimal128>().unwrap()),
            "undefined": Bson::Undefined, "least": Bson::MinKey, "greatest": Bson::MaxKey,
        };
        let raw = RawDocumentBuf::try_from(&document).unwrap();
        let text = extended_json(&raw, usize::MAX);
        let read: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(read, Bson::Document(document).into_relaxed_extjson(), "{text}");
    }

    /// Extended JSON, "Conversion table": dates outside of 1970 to 9999 are numbers in both forms.
    #[test]
    fn a_date_is_a_text_up_to_9999() {
        let text = |millis| extended_json(&rawdoc! { "a": DateTime::from_millis(millis) }, 99);
        let last = r#"{"a": {"$date":"9999-12-31T23:59:59.999Z"}}"#;
        assert_eq!(text(YEAR_10_000 - 1), last);
        let later = r#"{"a": {"$date":{"$numberLong":"253402300800000"}}}"#;
        assert_eq!(text(YEAR_10_000), later);
        assert!(text(-1).contains("$numberLong"));
    }

    /// Logging, "Configurable Max Document Length": "Truncated extended JSON MUST have a trailing
    /// ellipsis", which "MUST NOT count toward the max length", and no code point is cut.
    #[test]
    fn a_text_is_cut_at_every_length() {
        let document = rawdoc! { "insert": "ß😀", "documents": [{ "a": "\n", "b": "x" }] };
        let whole = extended_json(&document, usize::MAX);
        let characters: Vec<char> = whole.chars().collect();
        for longest in 0..characters.len() {
            let beginning: String = characters[..longest].iter().collect();
            assert_eq!(extended_json(&document, longest), format!("{beginning}..."));
        }
        assert_eq!(extended_json(&document, characters.len()), whole);
        assert_eq!(extended_json(&rawdoc! {}, 2), "{}");
    }

    /// A document within a document, and so on, is no reason to run out of stack.
    #[test]
    fn documents_may_be_nested_deeply() {
        const DEPTH: usize = 100_000;
        let mut bytes = Vec::new();
        for depth in 0..DEPTH {
            // The length, then one field of type document with an empty name.
            let length = 5 + 7 * i32::try_from(DEPTH - 1 - depth).unwrap();
            bytes.extend(length.to_le_bytes());
            if depth + 1 < DEPTH {
                bytes.extend([3, 0]);
            }
        }
        bytes.extend([0; DEPTH]);
        let document = RawDocumentBuf::from_bytes(bytes).unwrap();
        let text = extended_json(&document, usize::MAX);
        assert_eq!((text.matches('{').count(), text.matches('}').count()), (DEPTH, DEPTH));
        assert!(!text.ends_with('.'));
    }

    /// Logging, "Performance Considerations": "the complexity is O(N) where N = max document
    /// length".
    #[test]
    fn what_is_cut_is_not_read() {
        let long = "x".repeat(1 << 20);
        let mut document = rawdoc! { "a": 1 };
        for _ in 0..16 {
            document.append(bson::cstr!("text"), long.as_str());
        }
        let measured = allocation_counter::measure(|| {
            assert_eq!(extended_json(&document, 50).chars().count(), 53);
        });
        assert!(measured.bytes_total < 1000, "{} bytes were allocated", measured.bytes_total);
        let bytes = Binary { subtype: BinarySubtype::Generic, bytes: vec![0; 1 << 20] };
        let binary = rawdoc! { "bytes": bytes };
        let measured = allocation_counter::measure(|| drop(extended_json(&binary, 50)));
        assert!(measured.bytes_total < 1000, "{} bytes were allocated", measured.bytes_total);
    }

    /// Servers cut texts within a character.
    #[test]
    fn a_text_that_is_no_utf8_is_written_as_far_as_it_is() {
        let mut bytes = rawdoc! { "errmsg": "a?ß", "list": ["?"], "code": 11000 }.into_bytes();
        bytes.iter_mut().filter(|byte| **byte == b'?').for_each(|byte| *byte = 0xf0);
        let broken = RawDocumentBuf::from_bytes(bytes).unwrap();
        let text = "{\"errmsg\": \"a\u{fffd}ß\", \"list\": [\"\u{fffd}\"], \"code\": 11000}";
        assert_eq!(extended_json(&broken, 100), text);
        assert_eq!(extended_json(&broken, 14), "{\"errmsg\": \"a\u{fffd}...");
    }

    #[test]
    fn what_is_no_bson_ends_the_text() {
        let mut bytes = rawdoc! { "a": 1, "b": "x" }.into_bytes();
        // The length of the second field's text.
        let length = bytes.len() - 7;
        bytes[length] = 0x7f;
        let broken = RawDocumentBuf::from_bytes(bytes).unwrap();
        assert_eq!(extended_json(&broken, 100), r#"{"a": 1..."#);
    }
}
