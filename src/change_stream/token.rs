//! Resume tokens.

use bson::{Document, RawDocument, RawDocumentBuf};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::value::IntoDocument;

/// The place in the history of a deployment that a change stream has come to, as its server has
/// given it out: another stream goes on from there, also in another process.
///
/// It is a document of the server's own, whose content means nothing to others. Its form for
/// `serde` is that document, so that it may be kept in a collection or as JSON.
#[derive(Clone, Debug, PartialEq)]
pub struct ResumeToken(RawDocumentBuf);

impl ResumeToken {
    /// Takes a token as a server has given it out, the `_id` of an event for one.
    pub fn new(document: RawDocumentBuf) -> Self {
        Self(document)
    }

    /// Returns the server's document.
    pub fn document(&self) -> &RawDocument {
        &self.0
    }
}

impl From<&RawDocument> for ResumeToken {
    fn from(document: &RawDocument) -> Self {
        Self(document.to_owned())
    }
}

impl IntoDocument for ResumeToken {
    fn into_document(self) -> Result<RawDocumentBuf, bson::error::Error> {
        Ok(self.0)
    }
}

impl IntoDocument for &ResumeToken {
    fn into_document(self) -> Result<RawDocumentBuf, bson::error::Error> {
        Ok(self.0.clone())
    }
}

impl Serialize for ResumeToken {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let document = Document::try_from(&*self.0).map_err(serde::ser::Error::custom)?;
        document.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for ResumeToken {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let document = Document::deserialize(deserializer)?;
        let document = document.into_document().map_err(serde::de::Error::custom)?;
        Ok(Self(document))
    }
}

#[cfg(test)]
mod tests {
    use bson::{doc, rawdoc};

    use super::ResumeToken;

    #[test]
    fn a_token_is_kept_as_a_document_and_as_json() {
        let token = ResumeToken::new(rawdoc! { "_data": "8265", "n": 1_i64 });
        let document = bson::serialize_to_document(&token).unwrap();
        assert_eq!(document, doc! { "_data": "8265", "n": 1_i64 });
        assert_eq!(bson::deserialize_from_document::<ResumeToken>(document).unwrap(), token);
        let json = serde_json::to_string(&token).unwrap();
        let read: ResumeToken = serde_json::from_str(&json).unwrap();
        assert_eq!(read.document().get_str("_data").unwrap(), "8265");
    }
}
