//! The content of a line of a log, whichever driver wrote it.

use std::time::Duration;

use sdam_core::bson::{RawBsonRef, RawDocumentBuf};
use sdam_core::config::ServerAddress;

use super::shape::{ServerShape, Shape};

/// A line that says something of a topology.
#[derive(Debug)]
pub(crate) struct Record {
    /// The number of the line, from 1.
    pub(crate) line: usize,
    /// The time of the line, since the earliest of the log; never less than before in the same
    /// topology.
    pub(crate) at: Option<Duration>,
    /// The topology of the log that it speaks of.
    pub(crate) topology: usize,
    pub(crate) what: What,
}

/// The content of a record.
#[derive(Debug)]
pub(crate) enum What {
    TopologyOpening,
    TopologyClosed,
    /// `None` is a description whose form is not known.
    TopologyChanged {
        previous: Option<Box<Shape>>,
        new: Option<Box<Shape>>,
    },
    ServerOpening {
        address: ServerAddress,
    },
    ServerClosed {
        address: ServerAddress,
    },
    ServerChanged {
        address: ServerAddress,
        previous: Option<Box<ServerShape>>,
        new: Option<Box<ServerShape>>,
    },
    Started {
        address: ServerAddress,
        /// True if the server replies when its state changes only, if the log says.
        awaited: Option<bool>,
    },
    Ended {
        address: ServerAddress,
        found: Found,
        /// As its start should have said.
        awaited: Option<bool>,
    },
    /// Messages are missing about here: before the next record, or before the one that comes first.
    Lost,
}

/// The finding of a heartbeat.
#[derive(Clone, Debug)]
pub(crate) enum Found {
    /// The reply to hello, or as much of it as can change a description.
    Reply(RawDocumentBuf),
    /// There was a reply, which the log does not report.
    UnseenReply,
    /// The check has failed; why is for people.
    Failure(String),
}

impl Found {
    /// Returns the reply, or else that there is one which is not in the log; `None` of a failure.
    pub(crate) const fn said(&self) -> Option<Option<&RawDocumentBuf>> {
        match self {
            Self::Reply(reply) => Some(Some(reply)),
            Self::UnseenReply => Some(None),
            Self::Failure(_) => None,
        }
    }

    /// Returns whether the reply has a topologyVersion, so that the next ones are streamed; a reply
    /// that is not in the log may have one.
    pub(crate) fn may_be_streamed(&self) -> bool {
        match self {
            Self::Reply(reply) => {
                // Null counts as absent.
                let version = reply.get("topologyVersion").ok().flatten();
                version.is_some_and(|version| version != RawBsonRef::Null)
            }
            Self::UnseenReply => true,
            Self::Failure(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use sdam_core::bson::rawdoc;

    use super::Found;

    #[test]
    fn replies_are_streamed_only_if_they_have_a_topology_version() {
        let may_be = |reply| Found::Reply(reply).may_be_streamed();
        assert!(may_be(rawdoc! { "ok": 1, "topologyVersion": { "counter": 1_i64 } }));
        assert!(!may_be(rawdoc! { "ok": 1 }));
        assert!(!may_be(rawdoc! { "ok": 1, "topologyVersion": null }));
    }
}
