//! Proof that sdam behaves as the specifications say, and the servers to prove it against.
//!
//! - `adapter`, with the feature of this name: the suite that every runtime has to pass.
//! - [`spec`]: the official suites, driven through the public core in virtual time.
//! - `certificates`, with the feature of this name: an authority for TLS in tests.
//! - [`cluster`]: an embedded deployment, a model of a replica set that speaks the wire protocol.
//! - [`fuzz`]: what must hold of every input, for a fuzzer and for `cargo test`.
//! - [`forwarder`]: a network between a client and servers that tests can disturb.
//! - [`minimize`]: delta debugging, by which failing simulations and traces get small.
//! - [`mongod`]: real servers, started, disturbed and stopped by tests.
//! - [`name_server`]: a real name server, for seed lists in DNS.
//! - [`proxy`]: a real SOCKS5 proxy.
//! - [`refusal`]: a port that refuses connections, and that nobody else can take.
//! - [`sim`]: clients, a deployment and a faulty network in virtual time.
//! - [`worlds`]: small worlds, in every order of messages, timers and a few faults.

#[cfg(feature = "adapter")]
pub mod adapter;
#[cfg(feature = "certificates")]
pub mod certificates;
pub mod cluster;
pub mod forwarder;
pub mod fuzz;
pub mod minimize;
pub mod mongod;
pub mod name_server;
pub mod proxy;
pub mod refusal;
pub mod sim;
pub mod spec;
pub mod worlds;
