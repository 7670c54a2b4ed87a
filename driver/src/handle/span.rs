//! Operations as spans, for whoever traces the application.
//!
//! Implements OpenTelemetry, "Instrumenting Driver Operations".

use sdam_core::spans::SpanEnd;
use sdam_host::{Client, OperationSpan, Runtime};

use crate::command::Scope;
use crate::command::covered::Covered;
use crate::error::Error;

/// Begins the span of an operation.
pub(super) fn begin<R: Runtime>(
    client: &Client<R>,
    scope: &Scope,
    operation: &impl Covered,
) -> OperationSpan {
    let collection = operation.covered_collection().unwrap_or(&scope.collection);
    let collection = Some(collection).filter(|collection| !collection.is_empty());
    client.operation_span(operation.covered_name(), &scope.database, collection)
}

/// Ends a span with the outcome of its operation.
pub(super) fn end<T>(span: OperationSpan, outcome: &Result<T, Error>) {
    span.end_with(|| match outcome {
        Ok(_) => SpanEnd::default(),
        Err(Error::Client(error)) => error.span_end(),
        Err(error) => SpanEnd::exception("sdam_driver::Error", error.to_string()),
    });
}
