//! What is known of a deployment and of each of its servers, as immutable values.
//!
//! Implements "Data structures", "Parsing a hello or legacy hello response" and "Updating the
//! TopologyDescription" of the Server Discovery And Monitoring specification.

mod changes;
mod heard;
mod misfit;
mod server;
mod servers;
mod topology;
mod update;

pub use changes::Change;
pub use misfit::{Misfit, Removal};
pub(crate) use server::millis;
pub use server::{ServerDescription, ServerType, TopologyVersion};
pub use servers::Servers;
pub use topology::{
    CLIENT_MAX_WIRE_VERSION, CLIENT_MIN_WIRE_VERSION, Incompatibility, MAX_SERVERS,
    TopologyDescription, TopologyType,
};
pub(crate) use update::Update;
