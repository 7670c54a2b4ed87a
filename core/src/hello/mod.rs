//! The hello and legacy hello commands, and their reply.
//!
//! Implements "Connection handshake" of the MongoDB Handshake specification and "Parsing a hello or
//! legacy hello response" of SDAM.

mod reply;
mod request;

pub(crate) use reply::HelloReply;
pub use reply::{MAX_MEMBERS, ReplyDocument, ReplyError};
pub(crate) use request::{check, handshake};
