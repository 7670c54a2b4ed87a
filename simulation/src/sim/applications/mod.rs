//! Applications under faults: tasks that use collections, cursors, bulk writes and sessions of
//! [`sdam`], of clients that may share their monitors, from one seed.
//!
//! What clients and members say is heard on the network, and judged together with what applications
//! are given: see [`checks`]. The clients below, monitors and pools, are what the rest of
//! [`sim`](super) judges.

mod checks;
mod conversation;
mod fail_point;
mod ledger;
mod operations;
mod plan;
mod questions;
mod stage;
mod stories;
mod work;

pub(super) use stage::{outline, simulate};
