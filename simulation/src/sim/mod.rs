//! Deterministic simulation: clients, a deployment and a faulty network in virtual time, on one
//! thread, from one seed.
//!
//! [`run`] draws a deployment, clients with their options and workloads, and faults; lets all of it
//! happen; and checks after every step what must hold: the laws of machines, the rules of events,
//! heartbeats and pools, and that operations that wait are answered within [`Bounds`]. The same
//! seed takes the same steps, so that whatever fails can be looked at again. [`Swarm`] counts what
//! came of many seeds.
//!
//! Each seed is simulated in several [`Part`]s: one that judges monitors, pools and operations of
//! the clients themselves, and others whose applications use collections, cursors, bulk writes and
//! sessions, or transactions, or change streams, of clients that may share their monitors.
//!
//! The deployment is the model behind [`cluster`](sdam_cluster); the clients are real ones, on a
//! runtime in virtual time.

mod applications;
mod bounds;
mod checks;
mod client;
mod coverage;
mod deployment;
mod dns;
mod documents;
mod fault;
mod flood;
mod fork;
mod incidents;
mod inject;
mod listen_backlog;
mod liveness;
mod logins;
mod network;
mod oracle;
mod path;
mod plan;
mod queue;
#[cfg(test)]
mod quiet;
mod random;
mod reconfig;
mod reduction;
mod request;
mod revocation;
mod run;
mod runtime;
mod scenario;
mod schedule;
#[cfg(feature = "fuzz")]
mod script;
mod shrink;
pub mod storm;
mod swarm;
mod tap;
mod trace;
pub mod virtual_time;
mod world;

pub use bounds::Bounds;
#[cfg(feature = "fuzz")]
pub(crate) use checks::Checks;
pub use checks::Violation;
pub use coverage::{Sign, Tally};
pub use fault::FaultKind;
pub use listen_backlog::{Arrivals, ListenBacklog, WhenFull};
pub use reduction::{Reduction, ReductionError};
pub use run::{Case, Failure, Part, Run, Statistics, run};
pub use runtime::{Observer, Virtual, VirtualSocket};
pub use scenario::{SCENARIOS, Scenario};
#[cfg(feature = "fuzz")]
pub(crate) use script::Script;
pub use shrink::{Shrunk, Size, shrink};
pub use swarm::{Incidence, Swarm};
