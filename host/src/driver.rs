//! The interface for drivers: what those need who build typed operations, cursors and sessions
//! above a [`Topology`](crate::Topology), as the crate `sdam` does. Applications do without.
//!
//! [`DriverTopology`], [`DriverSession`] and [`DriverError`] are traits, so that what they add to a
//! topology, a session and an error is seen where it is imported, and nowhere else.
//!
//! An operation is a [`Request`]: a command, or what [builds](BuildCommand) one once the connection
//! is known, where it goes ([`Target`]), by which rules, with which session, and within which time.
//! [`Host::execute`](crate::Host::execute) performs it by the rules of retries and time-outs, and
//! returns a [`Response`]: the reply, and where what follows goes ([`Pinned`]).
//!
//! ```
//! use sdam_core::bson::{Document, rawdoc};
//! use sdam_core::operation::{CommandMessage, OperationOptions};
//! use sdam_core::selection::Criteria;
//! use sdam_host::driver::{DriverSession, DriverTopology, Request, Target};
//! use sdam_host::{ClientSession, Error, Runtime, Topology};
//!
//! /// Counts documents, and asks once more where Retryable Reads say so.
//! async fn count<R: Runtime>(topology: &Topology<R>, name: &str) -> Result<f64, Error> {
//!     let command = rawdoc! { "count": name };
//!     let (message, options) = (CommandMessage::new("app", &command), OperationOptions::read());
//!     let target = Target::Select(Criteria::read(Default::default()).into());
//!     let mut session = ClientSession::implicit(topology.host()).try_acquire();
//!     let request = Request::new(message, &options, target)
//!         .with_session(session.as_mut())
//!         .with_timeout(topology.timeout(None));
//!     let reply = topology.host().operate(request).await?;
//!     Ok(reply.get_f64("n").unwrap_or_default())
//! }
//! ```

/// The reading of documents as types of applications, and the stack that deep ones need.
pub mod documents {
    pub use crate::documents::{
        SHALLOW, TooDeep, check_levels, check_levels_of, number, read_as, to_bson, too_deep, whole,
        with_more_stack, with_stack_for,
    };
}

pub use crate::client::driver::DriverTopology;
pub use crate::client::kill_cursors::KillLimits;
pub use crate::error::DriverError;
pub use crate::observe::spans::OperationSpan;
pub use crate::operations::observed::ObservedOperation;
pub use crate::operations::operation::Response;
pub use crate::operations::pinned::Pinned;
pub use crate::operations::request::{
    BuildCommand, BuiltCommand, Extension, Message, Request, Target,
};
pub use crate::operations::session::{DriverSession, SessionGuard};
pub use crate::operations::transaction::ThreadSession;
