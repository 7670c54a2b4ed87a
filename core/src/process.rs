//! Forked processes, as errors report them.

use serde::Serialize;

/// A client was used in a process that was forked off from the one it was made in.
///
/// The tasks of the client, and the threads that hold its locks, do not exist here; its connections
/// are the parent's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(rename_all = "camelCase")]
#[error(
    "the client was created in process {made_in} and cannot be used in process {used_in}; create \
     another one"
)]
#[non_exhaustive]
pub struct Forked {
    /// The process that has made the client.
    pub made_in: u32,
    /// The process that has used it.
    pub used_in: u32,
}

impl Forked {
    /// Names the process that made the client, and the one that uses it.
    pub const fn new(made_in: u32, used_in: u32) -> Self {
        Self { made_in, used_in }
    }
}
