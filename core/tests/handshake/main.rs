//! The opening handshake, seen through its bytes: a scripted server answers.

mod authenticating;
mod hello;
mod hostile;
mod server;
#[cfg(feature = "aws")]
mod signed;
mod tokens;
