//! A reply without what the command promises.

/// A reply without what the command promises.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the server's reply to {command} has no {field} that can be read")]
#[non_exhaustive]
pub struct ReplyError {
    /// The command's name.
    pub command: &'static str,
    /// The field that is missing, or that is of another type.
    pub field: &'static str,
}

impl ReplyError {
    /// Says which field of which command's reply cannot be read.
    pub const fn new(command: &'static str, field: &'static str) -> Self {
        Self { command, field }
    }
}
