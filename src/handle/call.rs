//! One call for the next document of a cursor or the next event of a change stream, which may take
//! several commands.

use sdam_core::operation::Timeout;
use sdam_core::time::Instant;
use sdam_host::Runtime;
use sdam_host::driver::DriverTopology;

use super::perform::Handle;
use crate::error::{DriverError as _, Error};

/// A call that has its own time.
#[derive(Clone, Copy, Debug)]
pub(super) struct LimitedCall {
    /// The limit of all its commands.
    pub(super) timeout: Timeout,
    /// The time when it began, if it has a limit.
    begun: Option<Instant>,
}

impl LimitedCall {
    /// Begins a call now.
    pub(super) fn begin<R: Runtime>(handle: &Handle<R>) -> Self {
        let timeout = handle.client.timeout(handle.timeout_of_operations());
        let begun = timeout.deadline().map(|_| handle.client.now());
        Self { timeout, begun }
    }

    pub(super) const fn deadline(self) -> Option<Instant> {
        self.timeout.deadline()
    }

    /// Adds to an error that has ended the call how long all of it took.
    pub(super) fn ends<R: Runtime>(self, handle: &Handle<R>, error: Error) -> Error {
        match self.begun {
            Some(begun) => error.of_call(handle.client.now() - begun),
            None => error,
        }
    }
}
