//! The reason why there is no connection, and what the operation was waiting for.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use super::Stages;
use crate::config::ServerAddress;
use crate::diagnosis::Verdict;
use crate::failure::Failure;
use crate::operation::{OperationError, RETRYABLE};
use crate::process::Forked;

/// The reason why an operation got no connection (Connection Monitoring and Pooling, "Connection
/// Pool Errors").
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CheckOutError {
    /// The server has left the deployment, or the client is closed.
    #[error("Attempted to check out a connection from closed connection pool of {address}")]
    PoolClosed {
        /// The server.
        address: ServerAddress,
    },
    /// The server was found to be of no use; a server may be selected again at once.
    #[error(
        "Connection pool for {address} was cleared because another operation failed with: {cause}"
    )]
    PoolCleared {
        /// The server.
        address: ServerAddress,
        /// The time that the pool had been paused.
        paused: Duration,
        /// The cause.
        cause: Failure,
    },
    /// The pool was never used, as its server was not found to be usable yet.
    #[error("Connection pool for {address} is not ready: the server has not answered a check yet")]
    NotReady {
        /// The server.
        address: ServerAddress,
    },
    /// None became available in time.
    #[error(
        "Timed out while checking out a connection from connection pool of {address} after \
         {} ms{}: {obstacle}{}",
        waited.as_millis(),
        in_use.map(|in_use| in_use.to_string()).unwrap_or_default(),
        verdict.as_ref().map(|verdict| format!("; {}", verdict.sentence())).unwrap_or_default()
    )]
    Timeout {
        /// The server.
        address: ServerAddress,
        /// The time that the operation had waited.
        waited: Duration,
        /// The obstacle that it was waiting for.
        obstacle: Obstacle,
        /// The users of the connections, behind a load balancer.
        in_use: Option<ConnectionsInUse>,
        /// The likely cause, if it is not that all connections are in use.
        verdict: Option<Box<Verdict>>,
    },
    /// The operation has stopped to wait, for example because its future was dropped. Only events
    /// report this.
    #[error(
        "the operation that was to have a connection to {address} stopped to wait for it after \
         {} ms",
        waited.as_millis()
    )]
    Abandoned {
        /// The server.
        address: ServerAddress,
        /// The time that the operation had waited.
        waited: Duration,
    },
    /// A connection was being established for the operation, and failed.
    #[error("connecting to {address} failed: {error}")]
    Establishing {
        /// The server.
        address: ServerAddress,
        /// The error.
        error: OperationError,
        /// The stage that it had reached, and the time that each stage took.
        stages: Stages,
    },
    /// The connection had been idle and was found dead (Server Selection, "Checking an Idle
    /// Socket"), in the single-threaded mode; a server may be selected again at once.
    #[error("an idle connection to {address} was found dead: {error}")]
    IdleConnection {
        /// The server.
        address: ServerAddress,
        /// The error of `ping`.
        error: OperationError,
    },
    /// The pool is another process's.
    #[error("{forked}")]
    Forked {
        /// The server.
        address: ServerAddress,
        /// The process of the client, and the one that has asked.
        forked: Forked,
    },
}

impl CheckOutError {
    /// Returns the name: a label for metrics, which stays as it is, and distinguishes more than
    /// [`reason`](Self::reason).
    pub const fn name(&self) -> &'static str {
        match self {
            Self::PoolClosed { .. } => "poolClosed",
            Self::PoolCleared { .. } => "poolCleared",
            Self::NotReady { .. } => "notReady",
            Self::Timeout { .. } => "timeout",
            Self::Abandoned { .. } => "abandoned",
            Self::Establishing { .. } => "establishing",
            Self::IdleConnection { .. } => "idleConnection",
            Self::Forked { .. } => "forked",
        }
    }

    /// Returns the labels of the error.
    ///
    /// That a pool was cleared or is paused is retryable, and says nothing new of the server.
    pub fn labels(&self) -> Vec<&str> {
        match self {
            Self::PoolCleared { .. } | Self::NotReady { .. } => vec![RETRYABLE],
            Self::Establishing { error, .. } | Self::IdleConnection { error, .. } => error.labels(),
            Self::PoolClosed { .. }
            | Self::Timeout { .. }
            | Self::Abandoned { .. }
            | Self::Forked { .. } => Vec::new(),
        }
    }

    /// Returns the address of the server.
    pub const fn address(&self) -> &ServerAddress {
        match self {
            Self::PoolClosed { address }
            | Self::PoolCleared { address, .. }
            | Self::NotReady { address }
            | Self::Timeout { address, .. }
            | Self::Abandoned { address, .. }
            | Self::Establishing { address, .. }
            | Self::IdleConnection { address, .. }
            | Self::Forked { address, .. } => address,
        }
    }

    /// Returns how long the operation waited, or how long establishing its connection took; `None`
    /// if it was refused at once.
    pub fn waited(&self) -> Option<Duration> {
        match self {
            Self::Timeout { waited, .. } | Self::Abandoned { waited, .. } => Some(*waited),
            Self::Establishing { stages, .. } => Some(stages.iter().map(|(_, took)| took).sum()),
            Self::PoolClosed { .. }
            | Self::PoolCleared { .. }
            | Self::NotReady { .. }
            | Self::IdleConnection { .. }
            | Self::Forked { .. } => None,
        }
    }

    /// Returns the reason that the event "connection check out failed" gives: of the three that
    /// there are, the one that is nearest.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::PoolClosed { .. } | Self::Forked { .. } => "poolClosed",
            Self::Timeout { .. } | Self::Abandoned { .. } => "timeout",
            Self::PoolCleared { .. }
            | Self::NotReady { .. }
            | Self::Establishing { .. }
            | Self::IdleConnection { .. } => "connectionError",
        }
    }
}

/// The obstacle that an operation was waiting for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "waitingFor")]
#[non_exhaustive]
pub enum Obstacle {
    /// For its turn, behind others.
    Queued {
        /// The number that were waiting when it came; not in the text of the error.
        behind: usize,
        /// The number of connections that were in use when it gave up.
        in_use: u32,
        /// The number that were being established then.
        pending: u32,
    },
    /// For a connection to be established for it.
    Establishing {
        /// The stage that it had reached, and the time that each stage took.
        #[serde(serialize_with = "stages_in_millis")]
        stages: Stages,
    },
}

impl Obstacle {
    /// Returns the name, as in JSON: a label for metrics, which stays as it is.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Queued { .. } => "queued",
            Self::Establishing { .. } => "establishing",
        }
    }
}

fn stages_in_millis<S: serde::Serializer>(
    stages: &Stages,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(stages.iter().map(|(stage, took)| (stage, took.as_millis() as u64)))
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // The place in the queue differs with every caller, and would keep lines in a log from
            // being recognized as the same.
            Self::Queued { behind: _, in_use, pending } => write!(
                f,
                "it was queued, with {in_use} connections in use and {pending} being established"
            ),
            Self::Establishing { stages } => {
                f.write_str("a connection was being established")?;
                let mut separator = ": ";
                for (stage, took) in stages.iter() {
                    write!(f, "{separator}{} {} ms", stage.words(), took.as_millis())?;
                    separator = ", ";
                }
                Ok(())
            }
        }
    }
}

/// The users of a pool's connections behind a load balancer, where cursors and transactions keep
/// theirs (Load Balancer Support, "Wait queue timeouts").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ConnectionsInUse {
    /// Their maximum number, 0 for no limit.
    pub max_pool_size: u32,
    /// The number held by cursors.
    pub cursors: u32,
    /// The number held by transactions.
    pub transactions: u32,
    /// The number held by other operations.
    pub others: u32,
}

impl fmt::Display for ConnectionsInUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            ". maxPoolSize: {}, connections in use by cursors: {}, connections in use by \
             transactions: {}, connections in use by other operations: {}",
            self.max_pool_size, self.cursors, self.transactions, self.others
        )
    }
}
