//! Resume tokens.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bson::{Document, RawBsonRef, RawDocument, RawDocumentBuf, Timestamp};
use sdam_core::diagnosis::resume_token_time;
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::value::IntoDocument;

/// The place in the history of a deployment that a change stream has come to, as its server has
/// given it out: another stream goes on from there, also in another process.
///
/// It is a document of the server's own, whose content means nothing to others. Its form for
/// `serde` is that document, and as JSON its [Extended
/// JSON](https://www.mongodb.com/docs/manual/reference/mongodb-extended-json/): it may be kept as
/// either.
#[derive(Clone, Debug, PartialEq)]
pub struct ResumeToken(RawDocumentBuf);

impl ResumeToken {
    /// Takes a token as a server has given it out, the `_id` of an event for one.
    pub fn new(document: RawDocumentBuf) -> Self {
        Self(document)
    }

    /// Returns the time of the change in the history of the servers, as far as the token shows
    /// it: those of MongoDB 4.2 and later begin with it. It is for reports, and no more certain
    /// than the token.
    pub fn cluster_time(&self) -> Option<Timestamp> {
        resume_token_time(&self.0)
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
        if !serializer.is_human_readable() {
            return self.0.serialize(serializer);
        }
        let mut map = serializer.serialize_map(None)?;
        for field in &self.0 {
            match field.map_err(serde::ser::Error::custom)? {
                (name, RawBsonRef::Binary(binary)) => map.serialize_entry(
                    name.as_str(),
                    &Extended {
                        binary: ExtendedBinary {
                            base64: STANDARD.encode(binary.bytes),
                            subtype: format!("{:02x}", u8::from(binary.subtype)),
                        },
                    },
                )?,
                (name, value) => map.serialize_entry(name.as_str(), &value)?,
            }
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for ResumeToken {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if !deserializer.is_human_readable() {
            return RawDocumentBuf::deserialize(deserializer).map(Self);
        }
        let document = Document::deserialize(deserializer)?;
        let document = document.into_document().map_err(serde::de::Error::custom)?;
        Ok(Self(document))
    }
}

/// Bytes in Extended JSON: those of no subtype, bson writes as a list of numbers.
#[derive(Serialize)]
struct Extended {
    #[serde(rename = "$binary")]
    binary: ExtendedBinary,
}

#[derive(Serialize)]
struct ExtendedBinary {
    base64: String,
    #[serde(rename = "subType")]
    subtype: String,
}

#[cfg(test)]
mod tests {
    use bson::spec::BinarySubtype;
    use bson::{Binary, Timestamp, doc, rawdoc};

    use super::ResumeToken;

    /// The token of a real server, and lies.
    #[test]
    fn a_token_shows_its_time_if_it_is_one() {
        let time = |data: &str| ResumeToken::new(rawdoc! { "_data": data }).cluster_time();
        let known = Timestamp { time: 0x6560_a1b2, increment: 3 };
        assert_eq!(time("826560A1B2000000032B0229296E04"), Some(known));
        for lie in [
            "",
            "82",
            "826560A1B20000000",
            "816560A1B200000003",
            "82+560A1B200000003",
            "816560A1B200000003",
            "82zzzzzzzz00000003",
            "82é560A1B200000003é",
        ] {
            assert_eq!(time(lie), None, "{lie}");
        }
        assert_eq!(ResumeToken::new(rawdoc! { "_data": 5 }).cluster_time(), None);
    }

    /// Tokens of real servers have a field of bytes, if the key of the document has another type
    /// than it seems.
    #[test]
    fn a_token_is_kept_as_a_document_and_as_json() {
        let bits = || Binary { subtype: BinarySubtype::Generic, bytes: vec![0x81, 0x80] };
        let token = ResumeToken::new(rawdoc! { "_data": "8265", "_typeBits": bits() });
        let document = bson::serialize_to_document(&token).unwrap();
        assert_eq!(document, doc! { "_data": "8265", "_typeBits": bits() });
        assert_eq!(bson::deserialize_from_document::<ResumeToken>(document).unwrap(), token);
        let bytes = bson::serialize_to_vec(&token).unwrap();
        assert_eq!(bson::deserialize_from_slice::<ResumeToken>(&bytes).unwrap(), token);
        let value = bson::serialize_to_bson(&token).unwrap();
        assert_eq!(bson::deserialize_from_bson::<ResumeToken>(value).unwrap(), token);
        let json = serde_json::to_string(&token).unwrap();
        let expected =
            r#"{"_data":"8265","_typeBits":{"$binary":{"base64":"gYA=","subType":"00"}}}"#;
        assert_eq!(json, expected);
        assert_eq!(serde_json::from_str::<ResumeToken>(&json).unwrap(), token);
        let value = serde_json::to_value(&token).unwrap();
        assert_eq!(serde_json::from_value::<ResumeToken>(value).unwrap(), token);
    }
}
