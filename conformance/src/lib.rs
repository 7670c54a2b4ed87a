//! Proof that sdam behaves as the specifications say, and the servers to prove it against.
//!
//! - `adapter`, with the feature of this name: the suite that every runtime has to pass.
//! - `runtimes`, with the feature of this name: the runtimes of the facade under that suite.
//! - [`spec`]: the official suites, driven through the public core in virtual time.
//! - [`structure`]: crates, folders and the arrows between them, for the tidy test.
//! - [`forwarder`]: a network between a client and servers that tests can disturb.
//! - [`mongod`]: real servers, started, disturbed and stopped by tests.
//! - [`name_server`]: a real name server, for seed lists in DNS.
//! - [`network`]: a network of a test's own, and a machine at the other end of a wire.
//! - [`proxy`]: a real SOCKS5 proxy.
//! - [`refusal`]: a port that refuses connections, and that no other process can take.
//! - [`responder`]: a real responder of OCSP, and an authority that revokes certificates.
//! - [`ssh_server`]: a real SSH server.
//! - [`unified`]: the official suites in the unified test format.

#[cfg(feature = "adapter")]
pub mod adapter;
pub mod forwarder;
pub mod kerberos;
pub mod mongod;
pub mod name_server;
pub mod network;
pub mod proxy;
pub mod refusal;
pub mod responder;
#[cfg(feature = "runtimes")]
pub mod runtimes;
pub mod spec;
pub mod ssh_server;
pub mod structure;
pub mod unified;
