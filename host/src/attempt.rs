//! A connection that is being established, as its server knows it.

use std::sync::Arc;
use std::task::Waker;

use bson::oid::ObjectId;

use super::mailbox::Mailbox;
use sdam_core::id::Generation;
use sdam_core::operation::{OperationError, OperationFailure};

/// A connection that is being established: what ends its task, and whose failure it would be.
pub(super) struct Attempt {
    pub(super) generation: Generation,
    /// Behind a load balancer, the service, once hello has named it; the generation is its own
    /// then, as of that moment.
    pub(super) service: Option<ObjectId>,
    /// 0 until hello was answered.
    pub(super) max_wire_version: i32,
    /// Closed when the connection is not needed any more.
    aborted: Arc<Mailbox<()>>,
}

impl Attempt {
    pub(super) const fn new(generation: Generation, aborted: Arc<Mailbox<()>>) -> Self {
        Self { generation, service: None, max_wire_version: 0, aborted }
    }

    /// Returns what wakes the task.
    pub(super) const fn reader(&self) -> &Arc<Mailbox<()>> {
        &self.aborted
    }

    /// Ends the task, which is to be woken.
    #[must_use = "the task is to be woken"]
    pub(super) fn abort(&self) -> Option<Waker> {
        self.aborted.end()
    }

    /// Says what the topology is to be told of an error.
    pub(super) const fn failure(&self, error: OperationError) -> OperationFailure {
        let Self { generation, service, max_wire_version, .. } = *self;
        OperationFailure { generation, service, max_wire_version, error }
    }
}
