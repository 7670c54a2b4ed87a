//! Spans for the crate `opentelemetry`, and so for whichever exporter the program has.
//!
//! Implements OpenTelemetry, "External Dependencies": this is the API alone; the SDK, and what it
//! exports to, are the program's.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use opentelemetry::global::{self, BoxedTracer};
use opentelemetry::trace::{
    SpanBuilder, SpanKind, Status, TraceContextExt, Tracer as _, TracerProvider,
};
use opentelemetry::{Context, InstrumentationScope, KeyValue, Value};
use sdam_core::spans::{Attribute, AttributeValue, SpanEnd, SpanStart};

use crate::observe::spans::{Span, Tracer};

/// A tracer that reports spans to OpenTelemetry: those of operations within the current span of the
/// task, [`Context::current`], and those of commands within them.
///
/// Every client has one that asks the program's global provider, if the environment says
/// `OTEL_RUST_INSTRUMENTATION_MONGODB_ENABLED=true`, or the program
/// [`ClientBuilder::spans`](crate::ClientBuilder::spans).
#[derive(Clone)]
pub struct OpenTelemetry {
    /// Absent if the global provider is asked each time, which may be set later.
    tracer: Option<Arc<BoxedTracer>>,
}

impl OpenTelemetry {
    /// Reports spans to the provider that is the global one when an operation begins.
    pub const fn global() -> Self {
        Self { tracer: None }
    }

    /// Reports spans to this provider.
    pub fn new<P>(provider: &P) -> Self
    where
        P: TracerProvider<Tracer: Send + Sync + 'static>,
        <P::Tracer as opentelemetry::trace::Tracer>::Span: Send + Sync + 'static,
    {
        let tracer = BoxedTracer::new(Box::new(provider.tracer_with_scope(scope())));
        Self { tracer: Some(Arc::new(tracer)) }
    }
}

impl fmt::Debug for OpenTelemetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_global = self.tracer.is_none();
        f.debug_struct("OpenTelemetry").field("is_global", &is_global).finish_non_exhaustive()
    }
}

/// Returns who makes the spans ("Tracer Attributes").
fn scope() -> InstrumentationScope {
    InstrumentationScope::builder("sdam").with_version(env!("CARGO_PKG_VERSION")).build()
}

impl Tracer for OpenTelemetry {
    fn begin(&self, start: SpanStart) -> Arc<dyn Span> {
        let tracer = self.tracer.clone();
        let tracer = tracer.unwrap_or_else(|| Arc::new(global::tracer_with_scope(scope())));
        Open::begin(tracer, &Context::current(), start)
    }
}

/// A span that has begun.
struct Open {
    tracer: Arc<BoxedTracer>,
    /// The context whose current span it is.
    context: Context,
}

impl Open {
    fn begin(tracer: Arc<BoxedTracer>, within: &Context, start: SpanStart) -> Arc<dyn Span> {
        let builder = SpanBuilder::from_name(start.name)
            .with_kind(SpanKind::Client)
            .with_attributes(start.attributes.into_iter().map(key_value));
        let span = tracer.build_with_context(builder, within);
        Arc::new(Self { context: within.with_span(span), tracer })
    }
}

impl Span for Open {
    fn begin(&self, start: SpanStart) -> Arc<dyn Span> {
        Self::begin(Arc::clone(&self.tracer), &self.context, start)
    }

    fn is_recording(&self) -> bool {
        self.context.span().is_recording()
    }

    fn traceparent(&self) -> Option<String> {
        let span = self.context.span();
        let named = span.span_context();
        let flags = named.trace_flags().to_u8();
        named.is_valid().then(|| format!("00-{}-{}-{flags:02x}", named.trace_id(), named.span_id()))
    }

    fn end(&self, end: SpanEnd) {
        let span = self.context.span();
        span.set_attributes(end.attributes.into_iter().map(key_value));
        if let Some(exception) = end.exception {
            span.set_status(Status::error(exception.message.clone()));
            let attributes: Vec<KeyValue> =
                exception.attributes().into_iter().map(key_value).collect();
            span.set_attributes(attributes.iter().cloned());
            span.add_event("exception", attributes);
        }
        span.end();
    }
}

fn key_value((name, value): Attribute) -> KeyValue {
    let value = match value {
        AttributeValue::Text(Cow::Borrowed(text)) => Value::from(text),
        AttributeValue::Text(Cow::Owned(text)) => Value::from(text),
        AttributeValue::Integer(number) => Value::from(number),
        // Also what this version does not know.
        _ => Value::from(""),
    };
    KeyValue::new(name, value)
}
