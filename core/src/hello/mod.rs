//! The hello and legacy hello commands, and their reply.
//!
//! Implements "Connection handshake" of the MongoDB Handshake specification and "Parsing a hello or
//! legacy hello response" of SDAM.

mod fields;
mod proxy;
mod relay;
mod rename;
mod repetition;
mod reply;
mod request;

pub(crate) use fields::{
    Field, boolean, document, integer, natural, read_ok, topology_version, wrong_type,
};
pub use fields::{MAX_MEMBERS, REPLY_FIELDS, ReplyError};
pub use proxy::{ProxyReply, ProxyReplyError};
pub use relay::{MAX_OPEN_HELLOS, Relay, RelayError};
pub use rename::rename_members;
pub(crate) use repetition::{KnownReply, Repetition};
pub(crate) use reply::HelloReply;
pub use reply::{MissingServiceId, service_id};
pub(crate) use request::{append_server_api, check, handshake, opens_with_hello};
