//! The time of a cluster, which travels from reply to command.
//!
//! Implements Driver Sessions, "Gossipping the cluster time".

use bson::spec::ElementType;
use bson::{RawDocument, RawDocumentBuf, Timestamp};

/// The maximum length of a cluster time, in bytes; real ones have some 150.
const MAX_LEN: usize = 4096;

/// A cluster time with the server's signature, as a server gave it out.
///
/// Of two, the one with the greater timestamp is the later; the signature is not compared.
#[derive(Clone, Debug)]
pub struct ClusterTime {
    timestamp: Timestamp,
    document: RawDocumentBuf,
}

/// The fault of a document that an application gave as a cluster time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ClusterTimeError {
    /// It is longer than any that a server gives out.
    #[error("a cluster time of {0} bytes; at most {MAX_LEN} are allowed")]
    TooLong(usize),
    /// A document that is not BSON.
    #[error("a cluster time that is malformed BSON: {0}")]
    Bson(String),
    /// A field is missing, or of another type than it must have.
    #[error(
        "a cluster time whose {field} is no {expected}; it must be as a server gave it out: \
         {{clusterTime: <timestamp>, signature: {{hash: <binary>, keyId: <long>}}}}"
    )]
    Field {
        /// The field.
        field: &'static str,
        /// The type that it must have.
        expected: &'static str,
    },
}

impl ClusterTime {
    /// Takes the `$clusterTime` of a reply; `None` if it is malformed or too long.
    pub fn of_reply(document: &RawDocument) -> Option<Self> {
        let timestamp = Self::timestamp_of(document)?;
        Some(Self { timestamp, document: document.to_owned() })
    }

    /// Returns the timestamp of a reply's `$clusterTime`; `None` if that is malformed or too long.
    pub fn timestamp_of(document: &RawDocument) -> Option<Timestamp> {
        let is_short = document.as_bytes().len() <= MAX_LEN;
        document.get_timestamp("clusterTime").ok().filter(|_| is_short)
    }

    /// Takes what an application says is a cluster time.
    ///
    /// # Errors
    ///
    /// Fails if it is not as servers give it out; those without access control may leave the
    /// signature out.
    pub fn parse(document: &RawDocument) -> Result<Self, ClusterTimeError> {
        validate(document)?;
        let (field, expected) = ("clusterTime", "timestamp");
        Self::of_reply(document).ok_or(ClusterTimeError::Field { field, expected })
    }

    /// Returns the timestamp, by which cluster times are compared.
    pub const fn timestamp(&self) -> Timestamp {
        self.timestamp
    }

    /// Returns the whole document, which commands carry as `$clusterTime`.
    pub fn document(&self) -> &RawDocument {
        &self.document
    }

    /// Returns the later of two.
    pub fn later<'a>(one: Option<&'a Self>, other: Option<&'a Self>) -> Option<&'a Self> {
        match (one, other) {
            (Some(one), Some(other)) if other.timestamp > one.timestamp => Some(other),
            (None, other) => other,
            (one, _) => one,
        }
    }
}

fn validate(document: &RawDocument) -> Result<(), ClusterTimeError> {
    let length = document.as_bytes().len();
    if length > MAX_LEN {
        return Err(ClusterTimeError::TooLong(length));
    }
    let get = |document: &RawDocument, name: &str| -> Result<Option<_>, ClusterTimeError> {
        let found =
            document.get(name).map_err(|error| ClusterTimeError::Bson(error.to_string()))?;
        Ok(found.map(|value| value.element_type()))
    };
    let demand = |found: Option<_>, wanted, field, expected| match found == Some(wanted) {
        true => Ok(()),
        false => Err(ClusterTimeError::Field { field, expected }),
    };
    demand(get(document, "clusterTime")?, ElementType::Timestamp, "clusterTime", "timestamp")?;
    if get(document, "signature")?.is_none() {
        return Ok(());
    }
    let Ok(signature) = document.get_document("signature") else {
        let (field, expected) = ("signature", "document");
        return Err(ClusterTimeError::Field { field, expected });
    };
    demand(get(signature, "hash")?, ElementType::Binary, "signature.hash", "binary")?;
    demand(get(signature, "keyId")?, ElementType::Int64, "signature.keyId", "long")
}

#[cfg(test)]
mod tests {
    use bson::spec::BinarySubtype;
    use bson::{Binary, RawDocument, Timestamp, rawdoc};

    use super::{ClusterTime, ClusterTimeError, MAX_LEN, validate};

    #[test]
    fn a_cluster_time_of_an_application_is_as_a_server_gave_it_out() {
        let time = Timestamp { time: 5, increment: 1 };
        let hash = Binary { subtype: BinarySubtype::Generic, bytes: vec![0; 20] };
        let field = |document: &RawDocument| match validate(document) {
            Err(ClusterTimeError::Field { field, .. }) => field,
            other => panic!("{other:?}"),
        };
        let signature = rawdoc! { "hash": hash.clone(), "keyId": 0_i64 };
        assert_eq!(validate(&rawdoc! { "clusterTime": time, "signature": signature }), Ok(()));
        assert_eq!(validate(&rawdoc! { "clusterTime": time }), Ok(()));
        assert_eq!(field(&rawdoc! {}), "clusterTime");
        assert_eq!(field(&rawdoc! { "clusterTime": 5_i64 }), "clusterTime");
        assert_eq!(field(&rawdoc! { "clusterTime": time, "signature": 1 }), "signature");
        let signature = rawdoc! { "hash": "0", "keyId": 0_i64 };
        let document = rawdoc! { "clusterTime": time, "signature": signature };
        assert_eq!(field(&document), "signature.hash");
        let document = rawdoc! { "clusterTime": time, "signature": { "hash": hash, "keyId": 0 } };
        assert_eq!(field(&document), "signature.keyId");
        let long = rawdoc! { "clusterTime": time, "more": "x".repeat(MAX_LEN) };
        assert!(matches!(ClusterTime::parse(&long), Err(ClusterTimeError::TooLong(_))));
        let torn = RawDocument::from_bytes(b"\x06\0\0\0\x11\0").unwrap();
        assert!(matches!(ClusterTime::parse(torn), Err(ClusterTimeError::Bson(_))));
    }

    /// Driver Sessions, "Receiving the current cluster time": "The signature field does not
    /// participate in the comparison".
    #[test]
    fn the_later_of_two_has_the_greater_timestamp() {
        let at = |time, increment, signature: &str| {
            let time = Timestamp { time, increment };
            ClusterTime::of_reply(&rawdoc! { "clusterTime": time, "signature": signature }).unwrap()
        };
        let (early, late) = (at(5, 1, "z"), at(5, 2, "a"));
        let later = |one, other| ClusterTime::later(one, other).map(ClusterTime::timestamp);
        assert_eq!(later(Some(&early), Some(&late)), Some(late.timestamp()));
        assert_eq!(later(Some(&late), Some(&early)), Some(late.timestamp()));
        assert_eq!(later(None, Some(&early)), Some(early.timestamp()));
        assert_eq!(later(Some(&early), None), Some(early.timestamp()));
        assert_eq!(later(None, None), None);
        let same = at(5, 1, "other");
        let kept = ClusterTime::later(Some(&early), Some(&same)).unwrap();
        assert_eq!(kept.document(), early.document());
    }

    #[test]
    fn what_a_reply_brings_is_ignored_if_it_is_malformed_or_too_long() {
        let time = Timestamp { time: 5, increment: 0 };
        assert!(ClusterTime::of_reply(&rawdoc! { "clusterTime": "now" }).is_none());
        let at = |length: usize| {
            let empty = rawdoc! { "clusterTime": time, "signature": "" }.as_bytes().len();
            rawdoc! { "clusterTime": time, "signature": "x".repeat(length - empty) }
        };
        for (length, is_taken) in [(MAX_LEN - 1, true), (MAX_LEN, true), (MAX_LEN + 1, false)] {
            let document = at(length);
            assert_eq!(document.as_bytes().len(), length);
            assert_eq!(ClusterTime::of_reply(&document).is_some(), is_taken, "{length}");
            let empty = rawdoc! { "clusterTime": time, "more": "" }.as_bytes().len();
            let whole = rawdoc! { "clusterTime": time, "more": "x".repeat(length - empty) };
            assert_eq!(ClusterTime::parse(&whole).is_ok(), is_taken, "{length}");
        }
    }
}
