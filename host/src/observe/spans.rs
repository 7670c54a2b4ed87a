//! Spans of operations and of the commands within them, for tracing the application.
//!
//! Implements OpenTelemetry, "Instrumenting Driver Operations" and "Instrumenting Server Commands".

use std::backtrace::Backtrace;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sdam_core::command::MonitoredCommand;
use sdam_core::config::ServerAddress;
use sdam_core::operation::OperationError;
use sdam_core::spans::{SpanEnd, SpanSettings, SpanStart};
use sdam_core::time::Instant;
use sdam_core::wire::{OpMsg, ReplyDocument};

use crate::error::{DriverError as _, ERROR_TYPE, Error, given_up};
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

    /// Returns whether anything is kept of the span: no stack trace is made for one of which
    /// nothing is, as for one that was not sampled.
    fn is_recording(&self) -> bool {
        true
    }

    /// Returns the W3C `traceparent` that names the span, which servers of 9.0 and later receive;
    /// `None` for one that has no valid name.
    fn traceparent(&self) -> Option<String> {
        None
    }

    /// Ends the span; it is called once.
    fn end(&self, end: SpanEnd);
}

/// The spans of one client.
#[derive(Clone)]
pub(crate) struct Spans {
    tracer: Arc<dyn Tracer>,
    query_text_max_length: usize,
    stack_traces: bool,
    trace_contexts: bool,
    /// Those that were made; `None` to make none.
    made: Option<Arc<StackTraces>>,
}

/// A span that has begun, and what its end reports.
struct Open {
    span: Arc<dyn Span>,
    stack_traces: Option<Arc<StackTraces>>,
}

impl Open {
    /// Ends the span, with the stack trace of what has failed ("Exceptions"), as far as those have
    /// a limit.
    fn end(self, end: SpanEnd) {
        let has_trace = end.exception.is_some()
            && self.span.is_recording()
            && self.stack_traces.is_some_and(|traces| traces.begin());
        self.span.end(match has_trace {
            true => end.with_stacktrace(|| Backtrace::force_capture().to_string()),
            false => end,
        });
    }
}

/// The number of stack traces that a client makes within a second: each takes up to a millisecond,
/// and where everything fails, they would take most of the time.
const STACK_TRACES_A_SECOND: u64 = 10;

/// The stack traces that a client has made of late.
struct StackTraces {
    /// Reads the client's clock, while there is the client.
    clock: Box<dyn Fn() -> Option<Instant> + Send + Sync>,
    /// The second of the last one, and how many there were in that: the two digits on the right.
    last: AtomicU64,
}

impl StackTraces {
    /// Returns whether one may be made now, and counts it.
    fn begin(&self) -> bool {
        let Some(now) = (self.clock)() else { return false };
        let second = now.as_nanos() / 1_000_000_000;
        let count = |last: u64| match last / 100 < second {
            true => Some(second * 100 + 1),
            false => (last % 100 < STACK_TRACES_A_SECOND).then_some(last + 1),
        };
        self.last.fetch_update(Ordering::Relaxed, Ordering::Relaxed, count).is_ok()
    }
}

impl Spans {
    /// Chooses the tracer that receives spans, if any: the application's, or that of OpenTelemetry,
    /// if the settings or else the environment say so. A tracer of the application's enables spans,
    /// unless the settings say otherwise.
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
        let SpanSettings { query_text_max_length, stack_traces, trace_contexts, .. } = settings;
        let made = None;
        settings.enabled.then_some(Self {
            tracer,
            query_text_max_length,
            stack_traces,
            trace_contexts,
            made,
        })
    }

    /// Makes stack traces, as many as a client may by this clock, unless the settings say
    /// otherwise.
    #[must_use]
    pub(crate) fn with_clock(
        self,
        clock: impl Fn() -> Option<Instant> + Send + Sync + 'static,
    ) -> Self {
        let new = || StackTraces { clock: Box::new(clock), last: AtomicU64::new(0) };
        Self { made: self.stack_traces.then(|| Arc::new(new())), ..self }
    }

    /// Begins the span of a command within that of its operation, if it has one; `None` if no
    /// tracer is to receive it.
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

    /// Returns the `traceparent` of a command's span, if servers are to receive it.
    pub(crate) fn traceparent(&self, span: &CommandSpan) -> Option<String> {
        span.0.as_ref().filter(|_| self.trace_contexts)?.span.traceparent()
    }

    /// Keeps a span that has begun.
    fn opened(&self, span: Arc<dyn Span>) -> Open {
        Open { span, stack_traces: self.made.clone() }
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
            .field("trace_contexts", &self.trace_contexts)
            .finish_non_exhaustive()
    }
}

/// The span of a command that was sent. Dropped before its end was reported, it is given up.
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
                Err(error) => SpanEnd::of_error(ERROR_TYPE, error),
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

/// The span of an operation while it runs; of none, if no tracer receives spans.
///
/// It is that of an [`ObservedOperation`](crate::driver::ObservedOperation). Dropped before it has
/// ended, the operation is given up.
pub struct OperationSpan(Option<Open>);

impl OperationSpan {
    /// The span of an operation that no tracer receives.
    pub const NONE: Self = Self(None);

    /// Begins the span of an operation, if there are spans: within that of its transaction, if it
    /// has one.
    pub(crate) fn begin(
        spans: Option<&Spans>,
        transaction: Option<Arc<dyn Span>>,
        start: impl FnOnce() -> SpanStart,
    ) -> Self {
        let begin = |spans: &Spans| match transaction {
            Some(transaction) => transaction.begin(start()),
            None => spans.tracer.begin(start()),
        };
        Self(spans.map(|spans| spans.opened(begin(spans))))
    }

    /// Ends it with the outcome of the operation.
    pub fn end<T>(self, outcome: &Result<T, Error>) {
        self.end_with(|| outcome.as_ref().map_or_else(Error::span_end, |_| SpanEnd::default()));
    }

    /// Ends it as `end` says, which is called only if a tracer receives it.
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
            span.end(SpanEnd::exception(ERROR_TYPE, error.to_string()));
        }
    }
}

impl fmt::Debug for OperationSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OperationSpan").field("is_told", &self.0.is_some()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::{Arc, Mutex};

    use sdam_core::spans::{SpanEnd, SpanSettings, SpanStart};
    use sdam_core::time::Instant;

    use super::{STACK_TRACES_A_SECOND, Span, Spans, Tracer};

    /// A tracer that keeps how its spans have ended.
    #[derive(Clone, Default)]
    struct Kept {
        ends: Arc<Mutex<Vec<SpanEnd>>>,
        is_deaf: bool,
    }

    impl Tracer for Kept {
        fn begin(&self, _: SpanStart) -> Arc<dyn Span> {
            Arc::new(self.clone())
        }
    }

    impl Span for Kept {
        fn begin(&self, _: SpanStart) -> Arc<dyn Span> {
            Arc::new(self.clone())
        }

        fn is_recording(&self) -> bool {
            !self.is_deaf
        }

        fn end(&self, end: SpanEnd) {
            self.ends.lock().unwrap().push(end);
        }
    }

    /// Has so many spans fail at each of these times, in milliseconds, and returns how many have a
    /// stack trace.
    fn storm(tracer: &Kept, times: &[u64], count: usize) -> u64 {
        let (settings, time) = (SpanSettings::enabled(), Arc::new(AtomicU64::new(0)));
        let spans = Spans::choose(Some(Arc::new(tracer.clone())), Some(settings)).unwrap();
        let clock = Arc::clone(&time);
        let spans =
            spans.with_clock(move || Some(Instant::from_millis(clock.load(Ordering::Relaxed))));
        for at in times {
            time.store(*at, Ordering::Relaxed);
            for _ in 0..count {
                let span = spans.opened(Arc::new(tracer.clone()));
                span.end(SpanEnd::exception("app::Error", "late"));
            }
        }
        let ends = tracer.ends.lock().unwrap();
        let exceptions = ends.iter().filter_map(|end| end.exception.as_ref());
        assert_eq!(exceptions.clone().count(), count * times.len(), "each says what has failed");
        exceptions.filter(|exception| exception.stacktrace.is_some()).count() as u64
    }

    #[test]
    fn a_storm_of_failures_makes_few_stack_traces() {
        assert_eq!(storm(&Kept::default(), &[0], 3), 3);
        assert_eq!(storm(&Kept::default(), &[0, 999], 200), STACK_TRACES_A_SECOND);
        // What comes late counts in the second of the last one.
        let times = [0, 1000, 1999, 7000, 6999];
        assert_eq!(storm(&Kept::default(), &times, 50), 3 * STACK_TRACES_A_SECOND);
    }

    #[test]
    fn a_span_of_which_nothing_is_kept_makes_no_stack_trace() {
        assert_eq!(storm(&Kept { is_deaf: true, ..Kept::default() }, &[0], 3), 0);
    }
}
