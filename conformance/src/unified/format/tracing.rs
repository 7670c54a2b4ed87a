//! Spans that clients are expected to report (Unified Test Format, "expectTracingMessages").

use bson::Document;

use super::error::FormatError;
use super::object::Node;

/// The spans that a client is to have reported.
#[derive(Clone, Debug)]
pub struct ExpectedTracing {
    /// The client.
    pub client: String,
    /// True if there may be more.
    pub ignore_extra_spans: bool,
    /// The spans.
    pub spans: Vec<ExpectedSpan>,
}

/// A span that is expected.
#[derive(Clone, Debug)]
pub struct ExpectedSpan {
    /// Its name.
    pub name: String,
    /// Its attributes.
    pub attributes: Document,
    /// The spans within it.
    pub nested: Vec<ExpectedSpan>,
}

/// Reads what the text has as one object, and the official files as an array of such.
pub(super) fn expected_tracing(node: Node) -> Result<Vec<ExpectedTracing>, FormatError> {
    match node.is_array() {
        true => node.filled(for_client),
        false => Ok(vec![for_client(node)?]),
    }
}

fn for_client(node: Node) -> Result<ExpectedTracing, FormatError> {
    let mut object = node.object()?;
    let tracing = ExpectedTracing {
        client: object.required("client", Node::string)?,
        ignore_extra_spans: object.optional("ignoreExtraSpans", Node::boolean)?.unwrap_or_default(),
        spans: object.required("spans", |node| node.list(span))?,
    };
    object.finish()?;
    Ok(tracing)
}

fn span(node: Node) -> Result<ExpectedSpan, FormatError> {
    let mut object = node.object()?;
    let span = ExpectedSpan {
        name: object.required("name", Node::string)?,
        attributes: object.required("attributes", Node::document)?,
        nested: object.optional("nested", |node| node.filled(span))?.unwrap_or_default(),
    };
    object.finish()?;
    Ok(span)
}
