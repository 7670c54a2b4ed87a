//! The opening handshake, seen through its bytes: a scripted server answers.

mod authenticating;
mod gssapi;
mod hello;
mod hostile;
mod persons;
mod server;
#[cfg(feature = "aws")]
mod signed;
mod tokens;
