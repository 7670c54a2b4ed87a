//! The messages of a connection: requests as members read them, replies, and errors.

mod command_error;
mod hello;
mod op_query;
pub(crate) mod reply;
mod request;

pub(crate) use command_error::CommandError;
pub(crate) use hello::Hello;
use op_query::Query;
pub(crate) use op_query::no_documents;
pub use request::ClientName;
pub(crate) use request::{ReplyForm, ReplyTo, Request, check_length, integer, own_name};
