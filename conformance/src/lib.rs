//! Proof that sdam behaves as the specifications say, and the servers to prove it against.
//!
//! - `adapter`, with the feature of this name: the suite that every runtime has to pass.
//! - [`spec`]: the official suites, driven through the public core in virtual time.
//! - [`structure`]: crates, folders and the arrows between them, for the tidy test.
//! - [`forwarder`]: a network between a client and servers that tests can disturb.
//! - [`mongod`]: real servers, started, disturbed and stopped by tests.
//! - [`name_server`]: a real name server, for seed lists in DNS.
//! - [`proxy`]: a real SOCKS5 proxy.
//! - [`refusal`]: a port that refuses connections, and that nobody else can take.

#[cfg(feature = "adapter")]
pub mod adapter;
pub mod forwarder;
pub mod mongod;
pub mod name_server;
pub mod proxy;
pub mod refusal;
pub mod spec;
pub mod structure;
