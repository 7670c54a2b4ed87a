//! The configuration of a pool, and its current counts.

use std::time::Duration;

use crate::config::{PoolOptions, ServerAddress};

/// The configuration of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolConfig {
    /// The server's address.
    pub address: ServerAddress,
    /// The size and patience of the pool.
    pub options: PoolOptions,
    /// The time that establishing a connection may take; `None` or zero for no limit.
    pub connect_timeout: Option<Duration>,
    /// True if the server is a load balancer: then generations count for each service, and the
    /// pool never pauses again.
    pub load_balanced: bool,
}

/// The number of connections that a pool has, and how many operations wait for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Counts {
    /// Connections that can be checked out.
    pub available: usize,
    /// Connections that are being established.
    pub pending: usize,
    /// Connections in use.
    pub in_use: usize,
    /// Operations that wait.
    pub waiting: usize,
}

impl Counts {
    /// Returns how many connections there are: what maxPoolSize limits.
    pub const fn total(self) -> usize {
        self.available + self.pending + self.in_use
    }
}
