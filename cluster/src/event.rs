//! The events of an embedded deployment.

use super::options::MemberId;

/// The number of events that are kept for a subscriber that does not read them; then the oldest are
/// lost.
pub const MAX_UNREAD_EVENTS: usize = 1024;

/// Something that has happened to an embedded deployment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClusterEvent {
    /// A member's process has started.
    Started {
        /// The member.
        member: MemberId,
    },
    /// A member's process has ended.
    Ended {
        /// The member.
        member: MemberId,
    },
    /// A member has become primary.
    Elected {
        /// The new primary.
        member: MemberId,
        /// Its term, which no other primary has.
        term: i64,
    },
    /// A primary has become a secondary.
    SteppedDown {
        /// The former primary.
        member: MemberId,
    },
    /// A client has said hello on a new connection.
    Greeted {
        /// To this member.
        member: MemberId,
        /// The client's name for itself.
        client: ClientName,
    },
}

/// The name of a client in the metadata of its first hello on a connection; each text is
/// cut off after 128 characters.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub struct ClientName {
    /// The name and the version of the driver.
    pub driver: Option<String>,
    /// The name of the application.
    pub application: Option<String>,
}
