//! The configuration of a pool, and its current counts.

use std::time::Duration;

use crate::config::{PoolOptions, ServerAddress};

/// The configuration of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolConfig {
    /// The server's address.
    pub address: ServerAddress,
    /// The size and patience of the pool.
    pub options: PoolOptions,
    /// The time that establishing a connection may take; `None` or zero for no limit.
    pub connect_timeout: Option<Duration>,
    /// The time that each command of the login may take of a connection that is established for
    /// minPoolSize, instead of what is left of the connect time-out: the client's `timeoutMS`.
    /// With `None` or zero, the connect time-out counts for all of it.
    pub handshake_timeout: Option<Duration>,
    /// True if the server is a load balancer: then generations count for each service, and the
    /// pool never pauses again.
    pub load_balanced: bool,
}

impl PoolConfig {
    /// Describes the pool of a server that is no load balancer, without a limit on the time that
    /// establishing a connection takes.
    pub const fn new(address: ServerAddress, options: PoolOptions) -> Self {
        Self {
            address,
            options,
            connect_timeout: None,
            handshake_timeout: None,
            load_balanced: false,
        }
    }

    /// Replaces [`connect_timeout`](Self::connect_timeout).
    #[must_use]
    pub fn with_connect_timeout(mut self, connect_timeout: Option<Duration>) -> Self {
        self.connect_timeout = connect_timeout;
        self
    }

    /// Replaces [`handshake_timeout`](Self::handshake_timeout).
    #[must_use]
    pub fn with_handshake_timeout(mut self, handshake_timeout: Option<Duration>) -> Self {
        self.handshake_timeout = handshake_timeout;
        self
    }

    /// Replaces [`load_balanced`](Self::load_balanced).
    #[must_use]
    pub fn with_load_balanced(mut self, load_balanced: bool) -> Self {
        self.load_balanced = load_balanced;
        self
    }
}

/// The number of connections that a pool has, and how many operations wait for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
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
