//! The reports of a client's operations to its topology.

use std::sync::Arc;

use sdam_core::config::ServerAddress;
use sdam_core::failure::{Cause, Stage};
use sdam_core::id::ServerId;
use sdam_core::operation::{OperationError, StateChange};
use sdam_core::selection::Snapshot;

/// AuthenticationFailed.
const AUTHENTICATION_FAILED: i32 = 18;

/// Returns whether this is a server's answer to a client that may not log in.
pub(super) fn is_refused_login(error: &OperationError) -> bool {
    match error {
        OperationError::Reply { stage, error } => {
            *stage != Stage::Operate && error.code == Some(AUTHENTICATION_FAILED)
        }
        _ => false,
    }
}

/// Returns what a server's answer to an operation says of its role.
pub(super) fn told_by_server(error: &OperationError) -> Option<StateChange> {
    match error {
        OperationError::Reply { stage: Stage::Operate, error } => error.state_change(),
        _ => None,
    }
}

/// Returns whether this says that connections to a server fail: not what it replies to commands,
/// nor that a command takes long, nor that a server that sheds load turns connections away.
pub(super) fn is_to_blame(error: &OperationError) -> bool {
    let is_up = error.stage() == Stage::Operate;
    match error {
        _ if error.is_overload() => false,
        OperationError::Stream(failure) => match failure.cause {
            Cause::Interrupted | Cause::Canceled => false,
            Cause::Timeout => !is_up,
            _ => true,
        },
        OperationError::Reply { error, .. } => !is_up && error.state_change().is_none(),
        _ => false,
    }
}

/// The topology's report of a failure, and the state before.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) server: ServerId,
    pub(super) error: OperationError,
    pub(super) before: Arc<Snapshot>,
    pub(super) is_stale: bool,
    pub(super) clears: u64,
    pub(super) abandoned: u64,
    /// The server whose connections fail.
    pub(super) blamed: Option<ServerAddress>,
    pub(super) is_checking: bool,
    /// True if it was known to be the secondary that it says it is.
    pub(super) known: bool,
}
