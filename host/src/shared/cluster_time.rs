//! The gossip of the cluster time.
//!
//! Implements Sessions, "Gossipping the cluster time": the greatest `$clusterTime` that any reply
//! brought travels with every command; monitors take no part in it.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use bson::spec::ElementType as Kind;
use bson::{RawDocument, RawDocumentBuf, Timestamp};

/// The greatest cluster time that any reply brought.
#[derive(Debug, Default)]
pub(crate) struct LatestClusterTime(ArcSwapOption<ClusterTime>);

/// A cluster time with the server's signature.
#[derive(Debug)]
pub(crate) struct ClusterTime {
    time: Timestamp,
    pub(crate) document: RawDocumentBuf,
}

impl LatestClusterTime {
    /// Returns the cluster time that commands are to carry.
    pub(crate) fn now(&self) -> arc_swap::Guard<Option<Arc<ClusterTime>>> {
        self.0.load()
    }

    /// Keeps a cluster time if it is greater than the one known; one that is malformed is ignored.
    pub(crate) fn advance(&self, document: &RawDocument) {
        let Ok(time) = document.get_timestamp("clusterTime") else { return };
        let is_newer = |known: Option<&ClusterTime>| known.is_none_or(|known| known.time < time);
        if !is_newer(self.0.load().as_deref()) || document.as_bytes().len() > MAX_LEN {
            return;
        }
        let new = Arc::new(ClusterTime { time, document: document.to_owned() });
        self.0.rcu(|known| match is_newer(known.as_deref()) {
            true => Some(Arc::clone(&new)),
            false => known.clone(),
        });
    }
}

/// The maximum length of a cluster time, in bytes; real ones have some 150.
const MAX_LEN: usize = 4096;

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

/// Checks that a document is a cluster time as servers give it out; those without access control
/// may leave the signature out.
pub(crate) fn validate(document: &RawDocument) -> Result<(), ClusterTimeError> {
    let length = document.as_bytes().len();
    if length > MAX_LEN {
        return Err(ClusterTimeError::TooLong(length));
    }
    let get = |document: &RawDocument, name: &str| -> Result<Option<Kind>, ClusterTimeError> {
        let found =
            document.get(name).map_err(|error| ClusterTimeError::Bson(error.to_string()))?;
        Ok(found.map(|value| value.element_type()))
    };
    let demand = |found: Option<Kind>, wanted, field, expected| match found == Some(wanted) {
        true => Ok(()),
        false => Err(ClusterTimeError::Field { field, expected }),
    };
    demand(get(document, "clusterTime")?, Kind::Timestamp, "clusterTime", "timestamp")?;
    if get(document, "signature")?.is_none() {
        return Ok(());
    }
    let Ok(signature) = document.get_document("signature") else {
        let (field, expected) = ("signature", "document");
        return Err(ClusterTimeError::Field { field, expected });
    };
    demand(get(signature, "hash")?, Kind::Binary, "signature.hash", "binary")?;
    demand(get(signature, "keyId")?, Kind::Int64, "signature.keyId", "long")
}

#[cfg(test)]
mod tests {
    use bson::spec::BinarySubtype;
    use bson::{Binary, RawDocument, Timestamp, rawdoc};

    use super::{ClusterTimeError, LatestClusterTime, MAX_LEN, validate};

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
        assert!(matches!(validate(&long), Err(ClusterTimeError::TooLong(_))));
        let torn = RawDocument::from_bytes(b"\x06\0\0\0\x11\0").unwrap();
        assert!(matches!(validate(torn), Err(ClusterTimeError::Bson(_))));
    }

    #[test]
    fn the_greatest_cluster_time_is_kept_and_nonsense_is_ignored() {
        let clock = LatestClusterTime::default();
        assert!(clock.now().is_none());
        let at = |time, increment| rawdoc! { "clusterTime": Timestamp { time, increment } };
        for (document, expected) in [
            (at(5, 1), at(5, 1)),
            (at(5, 0), at(5, 1)),
            (at(5, 2), at(5, 2)),
            (rawdoc! { "clusterTime": "now" }, at(5, 2)),
            (at(6, 0), at(6, 0)),
        ] {
            clock.advance(&document);
            assert_eq!(clock.now().as_ref().unwrap().document, expected);
        }
    }

    #[test]
    fn a_cluster_time_that_is_too_long_is_ignored() {
        let at = |length: usize| {
            let time = Timestamp { time: 5, increment: 0 };
            let empty = rawdoc! { "clusterTime": time, "signature": "" }.as_bytes().len();
            rawdoc! { "clusterTime": time, "signature": "x".repeat(length - empty) }
        };
        for (length, is_kept) in [(MAX_LEN - 1, true), (MAX_LEN, true), (MAX_LEN + 1, false)] {
            let clock = LatestClusterTime::default();
            let document = at(length);
            assert_eq!(document.as_bytes().len(), length);
            clock.advance(&document);
            assert_eq!(clock.now().is_some(), is_kept, "{length}");
        }
    }
}
