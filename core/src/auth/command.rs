//! Commands that may carry a secret.

use std::ops::{Deref, DerefMut};

use bson::RawDocumentBuf;
use zeroize::Zeroize as _;

/// The room for a command besides its payload: names, a database, the Stable API.
const ROOM: usize = 512;

/// A document that is wiped from memory when dropped, and has room for what comes into it, so that
/// it need not grow and leave copies behind.
pub(crate) struct SecretDocument(RawDocumentBuf);

impl SecretDocument {
    /// Returns an empty document with room for that many bytes, and some more.
    pub(crate) fn with_room(room: usize) -> Self {
        Self::grown(&RawDocumentBuf::new(), room)
    }

    /// Copies a document that has no secret yet, with room for that many bytes more.
    pub(crate) fn grown(document: &RawDocumentBuf, room: usize) -> Self {
        let mut bytes = Vec::with_capacity(document.as_bytes().len() + room + ROOM);
        bytes.extend_from_slice(document.as_bytes());
        Self(RawDocumentBuf::from_bytes(bytes).expect("it is a document already"))
    }
}

impl From<RawDocumentBuf> for SecretDocument {
    fn from(document: RawDocumentBuf) -> Self {
        Self(document)
    }
}

impl Deref for SecretDocument {
    type Target = RawDocumentBuf;

    fn deref(&self) -> &RawDocumentBuf {
        &self.0
    }
}

impl DerefMut for SecretDocument {
    fn deref_mut(&mut self) -> &mut RawDocumentBuf {
        &mut self.0
    }
}

impl Drop for SecretDocument {
    fn drop(&mut self) {
        std::mem::take(&mut self.0).into_bytes().zeroize();
    }
}
