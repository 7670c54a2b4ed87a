//! Spans of operations and of the commands within them, for whoever traces the application.
//!
//! Implements OpenTelemetry, "Instrumenting Driver Operations" and "Instrumenting Server Commands".

use std::backtrace::Backtrace;
use std::fmt;
use std::sync::Arc;

use sdam_core::command::MonitoredCommand;
use sdam_core::config::ServerAddress;
use sdam_core::operation::OperationError;
use sdam_core::spans::{SpanEnd, SpanSettings, SpanStart};
use sdam_core::wire::{OpMsg, ReplyDocument};

use crate::error::{Error, given_up};
use crate::system;

/// A receiver of spans; [`OpenTelemetry`](crate::otel::OpenTelemetry) is one (feature `otel`).
///
/// It is called where operations run, and must not wait.
pub trait Tracer: Send + Sync + 'static {
    /// Begins a span within the one that the calling thread is in.
    fn begin(&self, start: SpanStart) -> Arc<dyn Span>;
}

/// A span that has begun.
pub trait Span: Send + Sync {
    /// Begins a span within this one.
    fn begin(&self, start: SpanStart) -> Arc<dyn Span>;

    /// Ends the span; it is called once.
    fn end(&self, end: SpanEnd);
}

/// The spans of one client.
#[derive(Clone)]
pub(crate) struct Spans {
    tracer: Arc<dyn Tracer>,
    query_text_max_length: usize,
    stack_traces: bool,
}

/// A span that has begun, and what its end tells.
struct Open {
    span: Arc<dyn Span>,
    stack_traces: bool,
}

impl Open {
    /// Ends the span, with the stack trace of what has failed ("Exceptions").
    fn end(self, end: SpanEnd) {
        self.span.end(match self.stack_traces {
            true => end.with_stacktrace(|| Backtrace::force_capture().to_string()),
            false => end,
        });
    }
}

impl Spans {
    /// Finds out whether anybody is to be told of spans: a tracer of the application's, or that of
    /// OpenTelemetry, if the settings or else the environment say so. Whoever names a tracer wants
    /// spans, unless the settings say otherwise.
    pub(crate) fn choose(
        tracer: Option<Arc<dyn Tracer>>,
        settings: Option<SpanSettings>,
    ) -> Option<Self> {
        let is_own = tracer.is_some();
        let tracer = tracer.or_else(default_tracer)?;
        let settings = settings.unwrap_or_else(|| {
            let mut settings = system::span_settings();
            settings.enabled |= is_own;
            settings
        });
        let SpanSettings { query_text_max_length, stack_traces, .. } = settings;
        settings.enabled.then_some(Self { tracer, query_text_max_length, stack_traces })
    }

    /// Begins the span of a command within that of its operation, if it has one; `None` if nobody
    /// is to be told of it.
    pub(crate) fn command(
        &self,
        operation: Option<&dyn Span>,
        address: &ServerAddress,
        command: &MonitoredCommand,
        message: &OpMsg<'_>,
    ) -> Option<CommandSpan> {
        let longest = self.query_text_max_length;
        let start = SpanStart::of_command(address, command, message, longest)?;
        let span = match operation {
            Some(operation) => operation.begin(start),
            None => self.tracer.begin(start),
        };
        Some(CommandSpan(Some(self.opened(span))))
    }

    /// Keeps a span that has begun.
    const fn opened(&self, span: Arc<dyn Span>) -> Open {
        Open { span, stack_traces: self.stack_traces }
    }
}

#[cfg(feature = "otel")]
fn default_tracer() -> Option<Arc<dyn Tracer>> {
    Some(Arc::new(crate::observe::otel::OpenTelemetry::global()))
}

#[cfg(not(feature = "otel"))]
fn default_tracer() -> Option<Arc<dyn Tracer>> {
    None
}

impl fmt::Debug for Spans {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Spans")
            .field("query_text_max_length", &self.query_text_max_length)
            .field("stack_traces", &self.stack_traces)
            .finish_non_exhaustive()
    }
}

/// The span of a command that was sent. Dropped before its end was told, it is given up.
pub(crate) struct CommandSpan(Option<Open>);

impl CommandSpan {
    /// Ends it with the reply, or with an error.
    pub(crate) fn end(mut self, outcome: Result<&ReplyDocument, &OperationError>) {
        self.end_once(outcome);
    }

    /// Ends it: the command was sent, to which there is no reply.
    pub(crate) fn end_unacknowledged(mut self) {
        if let Some(span) = self.0.take() {
            span.end(SpanEnd::default());
        }
    }

    fn end_once(&mut self, outcome: Result<&ReplyDocument, &OperationError>) {
        if let Some(span) = self.0.take() {
            span.end(match outcome {
                Ok(reply) => SpanEnd::of_reply(reply),
                Err(error) => SpanEnd::of_error(error),
            });
        }
    }
}

impl Drop for CommandSpan {
    fn drop(&mut self) {
        if self.0.is_some() {
            self.end_once(Err(&given_up("the wait for the reply was abandoned")));
        }
    }
}

/// The span of an operation while it runs; of none, if nobody is to be told of spans.
///
/// [`Client::operation_span`](crate::Client::operation_span) begins one for an operation of more
/// than one command. Dropped before it has ended, the operation is given up.
pub struct OperationSpan(Option<Open>);

impl OperationSpan {
    /// The span of an operation that nobody is told of.
    pub const NONE: Self = Self(None);

    /// Begins the span of an operation, if there are spans.
    pub(crate) fn begin(spans: Option<&Spans>, start: impl FnOnce() -> SpanStart) -> Self {
        Self(spans.map(|spans| spans.opened(spans.tracer.begin(start()))))
    }

    /// Ends it with the outcome of the operation.
    pub fn end<T>(self, outcome: &Result<T, Error>) {
        self.end_with(|| outcome.as_ref().map_or_else(Error::span_end, |_| SpanEnd::default()));
    }

    /// Ends it as `end` says, which is asked only if anybody is told.
    pub fn end_with(mut self, end: impl FnOnce() -> SpanEnd) {
        if let Some(span) = self.0.take() {
            span.end(end());
        }
    }

    /// Returns what commands are to be nested in.
    pub(crate) fn shared(&self) -> Option<Arc<dyn Span>> {
        self.0.as_ref().map(|open| Arc::clone(&open.span))
    }
}

impl Drop for OperationSpan {
    fn drop(&mut self) {
        if let Some(span) = self.0.take() {
            let error = given_up("the operation was abandoned");
            span.end(SpanEnd::of_error(&error));
        }
    }
}

impl fmt::Debug for OperationSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OperationSpan").field("is_told", &self.0.is_some()).finish()
    }
}
