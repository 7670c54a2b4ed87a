//! Commands whose time is counted, for metrics.

use std::borrow::Cow;
use std::sync::Arc;

use sdam_core::failure::{Cause, Failure, Stage};
use sdam_core::operation::OperationError;
use sdam_core::time::Instant;

use crate::machines::runtime::Runtime;
use crate::machines::server::Server;
use crate::sync::lock;

/// A command whose time is counted. Dropped before its end was reported, it counts as given up.
pub(crate) struct TimedCommand<'a, R: Runtime> {
    /// Absent once it is counted.
    server: Option<Arc<Server<R>>>,
    name: Cow<'a, str>,
    since: Instant,
}

impl<'a, R: Runtime> TimedCommand<'a, R> {
    /// Begins now, when a command is about to be sent.
    pub(crate) fn begin(server: &Arc<Server<R>>, name: &'a str) -> Self {
        let since = server.shared().runtime.now();
        Self { server: Some(Arc::clone(server)), name: name.into(), since }
    }

    /// Counts the command: it has ended, successfully or with an error.
    pub(crate) fn end(mut self, error: Option<&OperationError>) {
        self.count(error);
    }

    /// Counts the command, unless it is counted; not in a process that was forked off, where the
    /// lock may be held by a thread that is not there.
    fn count(&mut self, error: Option<&OperationError>) {
        let Some(server) = self.server.take() else { return };
        if !server.shared().process.is_current() {
            return;
        }
        let time = server.shared().runtime.now() - self.since;
        lock(&server.state).traffic().command_ended(&self.name, time, error);
    }

    /// Returns the same, which may live longer than the request.
    pub(crate) fn into_owned(mut self) -> TimedCommand<'static, R> {
        let (server, name) = (self.server.take(), std::mem::take(&mut self.name));
        TimedCommand { server, name: Cow::Owned(name.into_owned()), since: self.since }
    }
}

impl<R: Runtime> Drop for TimedCommand<'_, R> {
    fn drop(&mut self) {
        if self.server.is_some() {
            let detail = "the wait for the reply was abandoned";
            let failure = Failure::new(Stage::Operate, Cause::Canceled, detail);
            self.count(Some(&OperationError::Stream(failure)));
        }
    }
}
