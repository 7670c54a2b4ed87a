//! Clients in runtimes of tokio: their tasks, their streams, and a thread that is held up.

mod client;
mod dialing;
#[path = "../../../tests/support/mod.rs"]
mod support;
mod suspension;
