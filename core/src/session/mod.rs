//! Sessions as values: their numbers, the pool that servers' sessions are kept in, what one session
//! has seen, and its transaction.
//!
//! Implements Driver Sessions, Causal Consistency, Snapshot Reads and Driver Transactions, as far
//! as they need no server.

mod client;
mod cluster_time;
mod commit_origin;
mod commit_token;
mod convenient;
mod pool;
mod standing;
mod transaction;

pub use client::{Session, SessionError, SessionOptions};
pub use cluster_time::{ClusterTime, ClusterTimeError};
pub use commit_origin::{CommitOrigin, OriginMismatch};
pub use commit_token::{CommitFault, CommitOutcome, CommitToken, CommitTokenError};
pub use convenient::{TransactionFault, TransactionLoop, TransactionStep};
pub use pool::{ServerSession, SessionId, SessionPool, SessionTimeout};
pub use standing::{TransactionRemedy, TransactionStanding};
pub use transaction::{
    AttemptFailure, Ending, SessionTransaction, TransactionError, TransactionFields,
    TransactionOptions, TransactionRole, TransactionState,
};
