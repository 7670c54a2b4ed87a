//! Clients on real sockets, against the embedded deployment and small servers of the tests.
//!
//! They run on tokio: what they show of the host is the same with every runtime, and what a runtime
//! itself must do is in the suite of runtimes.

mod compressors;
mod discovery;
mod embedded;
#[path = "../support/fake_server.rs"]
mod fake_server;
mod flight_recorder;
mod load_balanced;
mod oidc;
mod oidc_human;
mod plain;
mod srv;
#[path = "../support/mod.rs"]
mod support;
mod verdicts;
