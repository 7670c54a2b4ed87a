//! Operations as they are observed: each has a span, and is counted.
//!
//! Implements OpenTelemetry, "Instrumenting Driver Operations".

use sdam_core::spans::SpanStart;
use sdam_host::driver::{DriverTopology, ObservedOperation};
use sdam_host::{ClientSession, Runtime, Topology};

use crate::command::{Operation, Scope};
use crate::error::Error;

/// Begins an operation.
pub(super) fn begin<R: Runtime>(
    client: &Topology<R>,
    session: Option<&ClientSession<R>>,
    scope: &Scope,
    operation: &impl Operation,
) -> ObservedOperation<R> {
    let collection = operation.collection().unwrap_or(&scope.collection);
    let collection = Some(collection).filter(|collection| !collection.is_empty());
    let name = operation.name();
    let start = || {
        let start = SpanStart::of_operation(name, &scope.database, collection);
        start.with_cursor(operation.cursor())
    };
    ObservedOperation::begin(client.host(), session, || name.into(), start)
}

/// Ends an operation with its outcome.
pub(super) fn end<R: Runtime, T>(operation: ObservedOperation<R>, outcome: &Result<T, Error>) {
    operation.end(outcome);
}
