//! The client on real sockets; what counts threads or forks has processes of its own.

mod client;
#[path = "../deployment/mod.rs"]
mod deployment;
#[expect(dead_code, reason = "other tests need more of it")]
#[path = "../../../tests/support/fake_server.rs"]
mod fake_server;
mod flood;
mod reauthentication;
