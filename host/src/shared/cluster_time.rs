//! The gossip of the cluster time.
//!
//! Implements Sessions, "Gossipping the cluster time": the greatest `$clusterTime` that any reply
//! brought travels with every command; monitors take no part in it.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
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

#[cfg(test)]
mod tests {
    use bson::{Timestamp, rawdoc};

    use super::{LatestClusterTime, MAX_LEN};

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
