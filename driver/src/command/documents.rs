//! Many documents in one piece of memory: what insertions and bulks of writes send.

use bson::oid::ObjectId;
use bson::raw::cstr;
use bson::{Bson, RawDocument, RawDocumentBuf};
use serde::Serialize;

use crate::error::Error;

/// Documents one behind the other.
#[derive(Clone, Debug, Default)]
pub(crate) struct Documents {
    bytes: Vec<u8>,
    /// The place where each ends.
    ends: Vec<usize>,
}

impl Documents {
    pub(crate) const fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns a document.
    ///
    /// # Panics
    ///
    /// Panics if there is none of this index.
    pub(crate) fn get(&self, index: usize) -> &RawDocument {
        let (start, end) = self.bounds(index);
        RawDocument::from_bytes(&self.bytes[start..end]).expect("it was written as a document")
    }

    /// Returns all documents.
    pub(crate) fn all(&self) -> Vec<&RawDocument> {
        (0..self.len()).map(|index| self.get(index)).collect()
    }

    /// Returns the length of a document in bytes.
    pub(crate) fn length(&self, index: usize) -> usize {
        let (start, end) = self.bounds(index);
        end - start
    }

    fn bounds(&self, index: usize) -> (usize, usize) {
        (index.checked_sub(1).map_or(0, |before| self.ends[before]), self.ends[index])
    }

    /// Adds a copy of a document.
    pub(crate) fn push(&mut self, document: &RawDocument) {
        self.bytes.extend_from_slice(document.as_bytes());
        self.ends.push(self.bytes.len());
    }

    /// Adds a value of the application's as a document.
    pub(crate) fn serialize(&mut self, value: &impl Serialize) -> Result<(), Error> {
        let start = self.bytes.len();
        let written = bson::serialize_to_buffer(value, &mut self.bytes);
        let is_document = RawDocument::from_bytes(&self.bytes[start..]);
        match written.and(is_document.map(drop)) {
            Ok(()) => {
                self.ends.push(self.bytes.len());
                Ok(())
            }
            Err(error) => {
                self.bytes.truncate(start);
                Err(Error::Serialize(error))
            }
        }
    }

    /// Returns the `_id` of the last document, after one was made if it had none: "drivers MUST
    /// generate a new ObjectId and add it as the _id field at the beginning of the document".
    pub(crate) fn identify_last(&mut self) -> Result<Bson, Error> {
        let last = self.get(self.len() - 1);
        match last.get("_id") {
            Ok(Some(id)) => Bson::try_from(id).map_err(Error::Serialize),
            Ok(None) => {
                let id = new_id();
                let mut field = RawDocumentBuf::new();
                field.append(cstr!("_id"), id);
                let (field, start) = (field.as_bytes(), self.bounds(self.len() - 1).0);
                // Without the length before it and the NUL behind it.
                let field = &field[4..field.len() - 1];
                self.bytes.splice(start + 4..start + 4, field.iter().copied());
                let length = i32::try_from(self.bytes.len() - start).unwrap_or(i32::MAX);
                self.bytes[start..start + 4].copy_from_slice(&length.to_le_bytes());
                *self.ends.last_mut().expect("there is one") = self.bytes.len();
                Ok(Bson::ObjectId(id))
            }
            Err(error) => Err(Error::Serialize(error)),
        }
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }
}

/// Makes an `_id` for a document that has none.
#[expect(clippy::disallowed_methods, reason = "an _id has to be unlike every other")]
fn new_id() -> ObjectId {
    ObjectId::new()
}

#[cfg(test)]
mod tests {
    use bson::{Bson, doc, rawdoc};

    use super::Documents;

    #[test]
    fn documents_lie_one_behind_the_other() {
        let mut documents = Documents::default();
        documents.serialize(&doc! { "a": 1 }).unwrap();
        assert!(documents.serialize(&1).is_err());
        documents.push(&rawdoc! { "b": 2 });
        assert_eq!(documents.len(), 2);
        assert_eq!(documents.get(0), &*rawdoc! { "a": 1 });
        assert_eq!(documents.get(1), &*rawdoc! { "b": 2 });
        assert_eq!(documents.length(1), rawdoc! { "b": 2 }.as_bytes().len());
    }

    /// CRUD, "Generated identifiers"; Bulk Write, "Insert".
    #[test]
    fn only_a_document_without_id_is_given_one_in_front() {
        let mut documents = Documents::default();
        documents.push(&rawdoc! { "a": 1 });
        let Bson::ObjectId(id) = documents.identify_last().unwrap() else { panic!() };
        assert_eq!(documents.get(0), &*rawdoc! { "_id": id, "a": 1 });
        documents.push(&rawdoc! { "a": 1, "_id": null });
        assert_eq!(documents.identify_last().unwrap(), Bson::Null);
        assert_eq!(documents.get(1), &*rawdoc! { "a": 1, "_id": null });
    }
}
