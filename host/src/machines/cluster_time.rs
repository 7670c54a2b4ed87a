//! The gossip of the cluster time.
//!
//! Implements Sessions, "Gossipping the cluster time": the greatest `$clusterTime` that any reply
//! brought travels with every command; monitors take no part in it.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use bson::RawDocument;
use sdam_core::session::ClusterTime;

/// The greatest cluster time that any reply brought.
#[derive(Debug, Default)]
pub(crate) struct LatestClusterTime(ArcSwapOption<ClusterTime>);

impl LatestClusterTime {
    /// Returns the cluster time that commands are to carry.
    pub(crate) fn now(&self) -> arc_swap::Guard<Option<Arc<ClusterTime>>> {
        self.0.load()
    }

    /// Keeps the cluster time of a reply if it is greater than the one known; one that is malformed
    /// is ignored.
    pub(crate) fn advance(&self, document: &RawDocument) {
        let new = ClusterTime::timestamp_of(document);
        if new > self.0.load().as_ref().map(|known| known.timestamp())
            && let Some(new) = ClusterTime::of_reply(document)
        {
            self.advance_to(new);
        }
    }

    /// Keeps a cluster time if it is greater than the one known.
    pub(crate) fn advance_to(&self, new: ClusterTime) {
        let new = Arc::new(new);
        self.0.rcu(|known| match known {
            Some(known) if known.timestamp() >= new.timestamp() => Some(Arc::clone(known)),
            _ => Some(Arc::clone(&new)),
        });
    }
}

#[cfg(test)]
mod tests {
    use bson::{Timestamp, rawdoc};

    use super::LatestClusterTime;

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
            assert_eq!(clock.now().as_ref().unwrap().document(), &*expected);
        }
    }
}
