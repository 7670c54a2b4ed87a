//! The descriptions of a deployment and of each of its servers, as immutable values.
//!
//! Implements "Data structures" of the Server Discovery And Monitoring specification. How values
//! become others is the business of [`topology`](crate::topology).

mod changes;
mod incompatibility;
mod removal_reason;
mod server;
mod servers;
mod summary;
mod topology;

pub use changes::Change;
pub use incompatibility::{CLIENT_MAX_WIRE_VERSION, CLIENT_MIN_WIRE_VERSION, Incompatibility};
pub use removal_reason::{Removal, RemovalReason};
pub use server::{ServerDescription, ServerType, TopologyVersion};
pub(crate) use server::{millis, optional_date, optional_millis};
pub use servers::{Servers, ServersIter};
pub(crate) use topology::Replaced;
pub use topology::{MAX_SERVERS, TopologyDescription, TopologyType};
