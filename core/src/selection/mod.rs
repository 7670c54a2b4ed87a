//! Server selection: the server that an operation uses, and the reason.
//!
//! Implements the Server Selection and Max Staleness specifications for multi-threaded and
//! asynchronous clients. A [`Snapshot`] is an immutable view, and [`Snapshot::select`] a pure
//! function of it that takes no lock and allocates nothing; waiting is the topology's business.

mod available;
mod choose;
mod command;
mod criteria;
mod explain;
mod snapshot;
mod suitable;

pub use command::read_preference_argument;
pub use criteria::{Criteria, Predicate};
pub use explain::{Explanation, Reason, ServerExplanation};
pub use snapshot::{Refusal, Snapshot};
pub(crate) use suitable::is_replica_set;
