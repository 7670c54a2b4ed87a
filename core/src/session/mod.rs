//! Sessions as values: their numbers, the pool that servers' sessions are kept in, and what one
//! session has seen.
//!
//! Implements Driver Sessions, Causal Consistency and Snapshot Reads, as far as they need no
//! server.

mod client;
mod cluster_time;
mod pool;

pub use client::{Session, SessionError, SessionOptions};
pub use cluster_time::{ClusterTime, ClusterTimeError};
pub use pool::{ServerSession, SessionId, SessionPool, SessionTimeout};
