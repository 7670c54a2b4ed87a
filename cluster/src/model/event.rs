//! The events of an embedded deployment.

use crate::options::MemberId;
use crate::wire::ClientName;

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
    SaidHello {
        /// To this member.
        member: MemberId,
        /// The client's name for itself.
        client: ClientName,
    },
}
