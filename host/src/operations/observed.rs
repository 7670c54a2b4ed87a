//! Operations as they are observed from without: each has one span, and is counted once, whatever
//! it sends.
//!
//! Implements OpenTelemetry, "Semantic conventions for database client metrics",
//! `db.client.operation.duration`: the operation as its caller observes it.

use std::borrow::Cow;
use std::sync::Arc;

use sdam_core::failure::Cause;
use sdam_core::metrics::ErrorType;
use sdam_core::operation::CommandMessage;
use sdam_core::spans::SpanStart;
use sdam_core::time::Instant;

use crate::error::{DriverError as _, Error};
use crate::machines::runtime::Runtime;
use crate::machines::server::Server;
use crate::machines::{Host, Shared};
use crate::observe::spans::OperationSpan;
use crate::operations::session::ClientSession;
use crate::sync::lock;

/// An operation while it runs, for its span and for the metrics, if there are any.
///
/// One of several requests [begins](Self::begin) here, and each of them is made with
/// [`Request::with_operation`](crate::driver::Request::with_operation); others begin and end their
/// own. Dropped before it has ended, the operation is given up.
#[must_use = "an operation that is dropped counts as given up"]
pub struct ObservedOperation<R: Runtime> {
    counted: Option<Counted<R>>,
    span: OperationSpan,
}

struct Counted<R: Runtime> {
    shared: Arc<Shared<R>>,
    name: Cow<'static, str>,
    since: Instant,
    /// The server that it went to last.
    server: Option<Arc<Server<R>>>,
    has_ended: bool,
}

impl<R: Runtime> ObservedOperation<R> {
    /// An operation that nothing observes.
    pub(crate) const NONE: Self = Self { counted: None, span: OperationSpan::NONE };

    /// Begins one that the metrics have by this name, with a span, which is within that of the
    /// session's transaction. Neither is asked for if nothing observes operations.
    pub fn begin(
        host: &Host<R>,
        session: Option<&ClientSession<R>>,
        name: impl FnOnce() -> Cow<'static, str>,
        start: impl FnOnce() -> SpanStart,
    ) -> Self {
        let shared = &host.shared;
        let count = || Counted {
            shared: Arc::clone(shared),
            name: name(),
            since: shared.runtime.now(),
            server: None,
            has_ended: false,
        };
        let transaction = session.and_then(ClientSession::span);
        let span = OperationSpan::begin(shared.spans(), transaction, start);
        Self { counted: shared.meter.is_on().then(count), span }
    }

    /// Begins one that consists of a command.
    pub(crate) fn of_command(
        host: &Host<R>,
        session: Option<&ClientSession<R>>,
        message: &CommandMessage<'_>,
    ) -> Self {
        let name = || Cow::Owned(message.name().to_owned());
        Self::begin(host, session, name, || {
            SpanStart::of_operation_by(message.database, message.command)
        })
    }

    /// Notes the server that it goes to.
    pub(crate) fn goes_to(&mut self, server: &Arc<Server<R>>) {
        if let Some(counted) = &mut self.counted {
            counted.server = Some(Arc::clone(server));
        }
    }

    /// Returns its span.
    pub const fn span(&self) -> &OperationSpan {
        &self.span
    }

    /// Ends it with its outcome: what an error is called is asked only if anything observes the
    /// operation.
    pub fn end<T>(self, outcome: &Result<T, Error>) {
        let error = outcome.as_ref().err();
        if let Some(mut counted) = self.counted {
            counted.end(error.map(Error::error_type));
        }
        self.span.end_with(|| error.map(Error::span_end).unwrap_or_default());
    }
}

impl<R: Runtime> Counted<R> {
    /// Counts it by the server that it went to last; not in a process that was forked off, where
    /// the lock may be held by a thread that is not there.
    fn end(&mut self, error: Option<ErrorType>) {
        self.has_ended = true;
        if !self.shared.process.is_current() {
            return;
        }
        let time = self.shared.runtime.now() - self.since;
        match &self.server {
            Some(server) => lock(&server.state).traffic().operation_ended(&self.name, time, error),
            None => self.shared.meter.operation_ended(None, &self.name, time, error),
        }
    }
}

impl<R: Runtime> Drop for Counted<R> {
    fn drop(&mut self) {
        if !self.has_ended {
            self.end(Some(ErrorType::Named(Cause::Canceled.name())));
        }
    }
}

impl<R: Runtime> std::fmt::Debug for ObservedOperation<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = self.counted.as_ref().map(|counted| &counted.name);
        f.debug_struct("ObservedOperation")
            .field("counted", &name)
            .field("span", &self.span)
            .finish()
    }
}
