//! Operations of several commands, counted once.
//!
//! Implements OpenTelemetry, "Semantic conventions for database client metrics",
//! `db.client.operation.duration`: the operation as its caller observes it.

use std::sync::Arc;

use sdam_core::config::ServerAddress;
use sdam_core::failure::Cause;
use sdam_core::metrics::ErrorType;
use sdam_core::time::Instant;

use crate::error::Error;
use crate::machines::Shared;
use crate::machines::runtime::Runtime;

/// An operation of several requests while it runs, for the metrics; of none, if nothing is counted.
///
/// [`Client::counted_operation`](crate::Client::counted_operation) begins one. Dropped before it
/// has ended, the operation counts as given up.
#[must_use = "an operation that is dropped counts as given up"]
pub struct CountedOperation<R: Runtime>(Option<Counted<R>>);

struct Counted<R: Runtime> {
    shared: Arc<Shared<R>>,
    name: &'static str,
    since: Instant,
    /// The server that it went to last.
    server: Option<ServerAddress>,
}

impl<R: Runtime> CountedOperation<R> {
    pub(crate) fn begin(shared: &Arc<Shared<R>>, name: &'static str) -> Self {
        let begin = || Counted {
            shared: Arc::clone(shared),
            name,
            since: shared.runtime.now(),
            server: None,
        };
        Self(shared.meter.is_on().then(begin))
    }

    /// Notes the server that the operation went to.
    pub fn answered_by(&mut self, server: &ServerAddress) {
        if let Some(counted) = &mut self.0
            && counted.server.as_ref() != Some(server)
        {
            counted.server = Some(server.clone());
        }
    }

    /// Notes the server that an error is about, if it is about one.
    pub fn failed(&mut self, error: &Error) {
        if let Some(server) = error.server() {
            self.answered_by(server);
        }
    }

    /// Counts the operation: it has ended, successfully or with an error, which is asked for only
    /// if anything is counted.
    pub fn end_with(mut self, error: impl FnOnce() -> Option<ErrorType>) {
        if let Some(counted) = self.0.take() {
            counted.end(error());
        }
    }
}

impl<R: Runtime> Counted<R> {
    /// Counts it, but not in a process that was forked off, where the lock may be held by a thread
    /// that is not there.
    fn end(self, error: Option<ErrorType>) {
        let Self { shared, name, since, server } = self;
        if shared.process.is_current() {
            let time = shared.runtime.now() - since;
            shared.meter.operation_ended(server.as_ref(), name, time, error);
        }
    }
}

impl<R: Runtime> Drop for CountedOperation<R> {
    fn drop(&mut self) {
        if let Some(counted) = self.0.take() {
            counted.end(Some(ErrorType::Named(Cause::Canceled.name())));
        }
    }
}

impl<R: Runtime> std::fmt::Debug for CountedOperation<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = self.0.as_ref().map(|counted| counted.name);
        f.debug_tuple("CountedOperation").field(&name).finish()
    }
}
