//! The adapter with each executor, on real sockets.

mod client;
#[cfg(feature = "smol")]
#[path = "../../../tests/support/fake_server.rs"]
mod fake_server;
#[cfg(feature = "smol")]
mod oidc;
#[cfg(feature = "smol")]
mod suspension;
