//! The document of a reply, and whether it says that the command has succeeded.

use std::fmt;
use std::num::NonZeroI64;
use std::ops::Deref;

use bson::{RawBsonRef, RawDocument, RawDocumentBuf};
use bytes::Bytes;

/// The maximum length of a reply to hello in an event, in bytes.
pub const MAX_EVENT_REPLY_LEN: usize = 16 * 1024;

/// A reply as the server sent it; printed, it is a length.
#[derive(Clone, PartialEq, Eq)]
pub struct ReplyDocument(Bytes);

impl fmt::Debug for ReplyDocument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReplyDocument({} bytes)", self.0.len())
    }
}

impl ReplyDocument {
    /// Shares the memory of `message`, which `document` is a part of.
    ///
    /// # Panics
    ///
    /// Panics if it is none.
    pub fn new(message: &Bytes, document: &RawDocument) -> Self {
        Self(message.slice_ref(document.as_bytes()))
    }

    /// Returns the bytes of the document.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns a part of the document, which shares its memory.
    ///
    /// # Panics
    ///
    /// Panics if it is none.
    pub fn share(&self, part: &[u8]) -> Bytes {
        self.0.slice_ref(part)
    }

    /// Returns what the server calls the connection, if it says so: a number that nothing depends
    /// on, and that is unknown if it is none.
    pub(crate) fn connection_id(&self) -> Option<NonZeroI64> {
        let id = match self.get("connectionId").ok()?? {
            RawBsonRef::Int32(id) => id.into(),
            RawBsonRef::Int64(id) => id,
            _ => return None,
        };
        NonZeroI64::new(id)
    }

    /// Copies what an event keeps: the whole document, or the fields of it that fit into
    /// [`MAX_EVENT_REPLY_LEN`] bytes. A slow subscriber has thousands of them, and a slice would
    /// keep all that was read with it.
    pub(crate) fn abridged(&self) -> Self {
        if self.0.len() <= MAX_EVENT_REPLY_LEN {
            return Self(Bytes::copy_from_slice(&self.0));
        }
        let mut fields = RawDocumentBuf::new();
        for element in self.iter_elements().map_while(Result::ok) {
            let mut field = RawDocumentBuf::new();
            // What does not fit in is not copied.
            if element.size() > MAX_EVENT_REPLY_LEN {
                continue;
            }
            let Ok(value) = element.value_utf8_lossy() else { continue };
            field.append(element.key(), value.clone());
            // Both have a frame, of which one is left.
            if fields.as_bytes().len() + field.as_bytes().len() <= MAX_EVENT_REPLY_LEN {
                fields.append(element.key(), value);
            }
        }
        fields.into()
    }
}

/// A document of one's own.
impl From<RawDocumentBuf> for ReplyDocument {
    fn from(document: RawDocumentBuf) -> Self {
        Self(document.into_bytes().into())
    }
}

impl Deref for ReplyDocument {
    type Target = RawDocument;

    fn deref(&self) -> &RawDocument {
        RawDocument::from_bytes(&self.0).expect("a slice of a message that was read as a document")
    }
}

/// Reads the field `ok` of a reply: whether the command has succeeded, which 1 says, as a number of
/// whatever type, or `true`. `None` of a value that is neither a number nor a boolean, which says
/// nothing: a reply in which nothing says that the command has succeeded is an error.
///
/// The specifications have `ok: 1`. MongoDB sends a double; others that speak the protocol may send
/// an integer or a boolean, which refuses nothing if it is `true`.
///
/// ```
/// use sdam_core::bson::RawBsonRef;
/// use sdam_core::wire::ok;
///
/// assert_eq!(ok(RawBsonRef::Double(1.0)), Some(true));
/// assert_eq!(ok(RawBsonRef::Boolean(true)), Some(true));
/// assert_eq!(ok(RawBsonRef::Int32(0)), Some(false));
/// assert_eq!(ok(RawBsonRef::String("1")), None);
/// ```
pub fn ok(value: RawBsonRef<'_>) -> Option<bool> {
    match value {
        RawBsonRef::Double(double) => Some(double == 1.0),
        RawBsonRef::Int32(int) => Some(int == 1),
        RawBsonRef::Int64(int) => Some(int == 1),
        RawBsonRef::Boolean(truth) => Some(truth),
        _ => None,
    }
}
