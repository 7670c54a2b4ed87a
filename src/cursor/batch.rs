//! A batch of documents, read where they lie in the reply.

use bson::RawDocument;
use sdam_core::wire::ReplyDocument;

use crate::error::ReplyError;

/// The documents of a reply, one after another, without a copy.
#[derive(Clone, Debug)]
pub(crate) struct Batch {
    reply: ReplyDocument,
    /// The place of the next element within the reply, and of the end of the last one.
    at: usize,
    end: usize,
    /// The place of the document that was returned last.
    current: Option<(usize, usize)>,
    /// The command that the reply is to, and the name of the array.
    of: (&'static str, &'static str),
}

/// The type of an element that is a document.
const DOCUMENT: u8 = 0x03;

/// The length of a document without a field.
const SHORTEST: usize = 5;

impl Batch {
    /// Takes the documents of `cursor.firstBatch`, or of `cursor.nextBatch`.
    ///
    /// # Errors
    ///
    /// Fails if the reply has no such array.
    pub(crate) fn in_reply(
        command: &'static str,
        field: &'static str,
        reply: &ReplyDocument,
    ) -> Result<Self, ReplyError> {
        let missing = |_| ReplyError::new(command, field);
        let cursor = reply.get_document("cursor").map_err(missing)?;
        let array = cursor.get_array(field).map_err(missing)?;
        // Both point into the same bytes.
        let start = array.as_bytes().as_ptr() as usize - reply.as_bytes().as_ptr() as usize;
        let end = start + array.as_bytes().len() - 1;
        Ok(Self { reply: reply.clone(), at: start + 4, end, current: None, of: (command, field) })
    }

    /// Returns the next document, `None` behind the last.
    ///
    /// # Errors
    ///
    /// Fails if the next element is no document; there is nothing further then.
    pub(crate) fn next_document(&mut self) -> Result<Option<&RawDocument>, ReplyError> {
        if self.is_empty() {
            return Ok(None);
        }
        let (at, (command, field)) = (std::mem::replace(&mut self.at, self.end), self.of);
        let (start, end) = self.bounds(at).ok_or(ReplyError::new(command, field))?;
        (self.at, self.current) = (end, Some((start, end)));
        let document = RawDocument::from_bytes(&self.reply.as_bytes()[start..end]);
        document.map(Some).map_err(|_| ReplyError::new(command, field))
    }

    /// Forgets the document that was returned last.
    pub(crate) const fn leave(&mut self) {
        self.current = None;
    }

    /// Returns the document that was returned last, unless it was left.
    pub(crate) fn current(&self) -> Option<&RawDocument> {
        let (start, end) = self.current?;
        RawDocument::from_bytes(&self.reply.as_bytes()[start..end]).ok()
    }

    /// Returns whether there is nothing further.
    pub(crate) const fn is_empty(&self) -> bool {
        self.at == self.end
    }

    /// Returns where the document of an element begins and ends.
    fn bounds(&self, at: usize) -> Option<(usize, usize)> {
        let bytes = &self.reply.as_bytes()[..self.end];
        let element = bytes.get(at..)?;
        if *element.first()? != DOCUMENT {
            return None;
        }
        let name = element[1..].iter().position(|&byte| byte == 0)?;
        let start = at + 1 + name + 1;
        let length = bytes.get(start..)?.first_chunk::<4>()?;
        let length = usize::try_from(i32::from_le_bytes(*length)).ok()?;
        let end = start.checked_add(length)?;
        (length >= SHORTEST && end <= self.end).then_some((start, end))
    }
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;
    use sdam_core::wire::ReplyDocument;

    use super::Batch;
    use crate::error::ReplyError;

    fn batch(reply: bson::RawDocumentBuf) -> Result<Batch, ReplyError> {
        Batch::in_reply("find", "firstBatch", &ReplyDocument::from(reply))
    }

    #[test]
    fn documents_are_read_in_their_order() {
        let documents =
            vec![rawdoc! { "_id": 1 }, rawdoc! {}, rawdoc! { "_id": 3, "a": { "b": 1 } }];
        let array: bson::RawArrayBuf = documents.iter().map(AsRef::as_ref).collect();
        let mut read =
            batch(rawdoc! { "ok": 1, "cursor": { "firstBatch": array, "id": 0 } }).unwrap();
        for document in &documents {
            assert!(!read.is_empty());
            assert_eq!(read.next_document(), Ok(Some(&**document)));
        }
        assert!(read.is_empty() && read.next_document() == Ok(None));
    }

    #[test]
    fn a_reply_that_is_no_cursors_is_an_error() {
        for reply in [
            rawdoc! { "ok": 1 },
            rawdoc! { "cursor": 1 },
            rawdoc! { "cursor": { "nextBatch": [] } },
            rawdoc! { "cursor": { "firstBatch": {} } },
        ] {
            let error = batch(reply).unwrap_err();
            assert_eq!(
                error.to_string(),
                "the server's reply to find has no firstBatch that can be read"
            );
        }
    }

    #[test]
    fn an_element_that_is_no_document_is_an_error_and_the_end() {
        let mut batch = batch(rawdoc! { "cursor": { "firstBatch": [{}, 1, {}] } }).unwrap();
        assert!(batch.next_document().unwrap().is_some());
        let error = batch.next_document().unwrap_err();
        assert_eq!(
            error.to_string(),
            "the server's reply to find has no firstBatch that can be read"
        );
        assert!(batch.is_empty() && batch.next_document() == Ok(None));
    }

    #[test]
    fn a_document_that_is_too_short_or_too_long_or_has_no_end_is_an_error() {
        let whole = rawdoc! { "cursor": { "firstBatch": [{ "a": 1 }, { "b": 2 }] } };
        let bytes = whole.as_bytes();
        let at = bytes.windows(3).position(|bytes| bytes == b"\x10b\0").unwrap() - 4;
        assert_eq!(bytes[at], 12);
        for (at, byte) in [(at, 4), (at, 11), (at, 13), (at + 1, 1), (at + 3, 0x80), (at + 11, 1)] {
            let mut bytes = bytes.to_vec();
            bytes[at] = byte;
            let reply = bson::RawDocumentBuf::from_bytes(bytes).unwrap();
            let mut batch = batch(reply).unwrap();
            let error = loop {
                match batch.next_document() {
                    Ok(document) => assert!(document.is_some(), "{byte} at {at}"),
                    Err(error) => break error,
                }
            };
            assert_eq!(error.field, "firstBatch");
            assert!(batch.is_empty());
        }
    }
}
