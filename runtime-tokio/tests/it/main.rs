//! The client on real sockets, against the embedded deployment and small servers of its own.

mod client;
#[cfg(all(feature = "snappy", feature = "zlib"))]
mod compressors;
mod dialing;
#[cfg(feature = "tls")]
mod embedded;
#[path = "../support/fake_server.rs"]
mod fake_server;
mod flight_recorder;
mod load_balanced;
mod oidc;
#[cfg(feature = "tls")]
mod plain;
mod srv;
#[path = "../support/mod.rs"]
mod support;
mod suspension;
mod verdicts;
