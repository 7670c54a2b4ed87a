//! Spans that are kept in memory when they end.

use opentelemetry::trace::{SpanId, Status};
use opentelemetry::{Key, Value};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use sdam::otel::OpenTelemetry;

/// The spans of one test.
pub(crate) struct Kept {
    pub(crate) provider: SdkTracerProvider,
    exporter: InMemorySpanExporter,
}

impl Kept {
    pub(crate) fn new() -> Self {
        let exporter = InMemorySpanExporter::default();
        let builder = SdkTracerProvider::builder().with_simple_exporter(exporter.clone());
        Self { provider: builder.build(), exporter }
    }

    pub(crate) fn tracer(&self) -> OpenTelemetry {
        OpenTelemetry::new(&self.provider)
    }

    /// Takes those that have ended.
    pub(crate) fn take(&self) -> Vec<SpanData> {
        let spans = self.exporter.get_finished_spans().unwrap();
        self.exporter.reset();
        spans
    }

    /// Takes those that have ended, as a tree: one line for each, with what is within it below, in
    /// the order in which they have ended.
    pub(crate) fn tree(&self) -> String {
        let spans = self.take();
        let is_root = |span: &&SpanData| {
            !spans.iter().any(|other| other.span_context.span_id() == span.parent_span_id)
        };
        let mut lines = String::new();
        spans.iter().filter(is_root).for_each(|root| draw(root, &spans, 0, &mut lines));
        lines
    }
}

fn draw(span: &SpanData, spans: &[SpanData], depth: usize, lines: &mut String) {
    let failed = if span.status == Status::Unset { "" } else { " failed" };
    let exception = if text(span, "exception.type").is_some() { " with an exception" } else { "" };
    *lines += &format!("{}{}{failed}{exception}\n", "  ".repeat(depth), span.name);
    let id = span.span_context.span_id();
    let nested = spans.iter().filter(|other| other.parent_span_id == id && id != SpanId::INVALID);
    nested.for_each(|nested| draw(nested, spans, depth + 1, lines));
}

/// Returns the value of an attribute.
pub(crate) fn attribute<'a>(span: &'a SpanData, name: &'static str) -> Option<&'a Value> {
    let mut found = span.attributes.iter().filter(|it| it.key == Key::from(name));
    let value = found.next().map(|it| &it.value);
    assert!(found.next().is_none(), "{name} is there twice: {span:?}");
    value
}

/// Returns the text of an attribute.
pub(crate) fn text(span: &SpanData, name: &'static str) -> Option<String> {
    attribute(span, name).map(|value| value.as_str().into_owned())
}
