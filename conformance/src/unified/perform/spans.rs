//! The spans of a client, kept as applications that trace receive them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bson::{Bson, Document};
use sdam_core::spans::{Attribute, AttributeValue, Exception, SpanEnd, SpanSettings, SpanStart};
use sdam_host::{Span, Tracer};

use crate::unified::play::Traced;

/// The length of commands beyond which their text is cut: longer than any of a test.
const LONGEST: usize = 1 << 20;

/// The spans that have ended within one, or within none.
#[derive(Clone, Default)]
pub(super) struct Spans(Arc<Mutex<Vec<Traced>>>);

impl Spans {
    /// Returns the settings of a client whose spans are kept, with the text of commands or without.
    pub(super) const fn settings(with_commands: bool) -> SpanSettings {
        let length = if with_commands { LONGEST } else { 0 };
        SpanSettings::enabled().with_query_text_max_length(length)
    }

    /// Takes those that were not taken yet.
    pub(super) fn take(&self) -> Vec<Traced> {
        std::mem::take(&mut *lock(&self.0))
    }

    fn open(&self, start: SpanStart) -> Arc<dyn Span> {
        let attributes = Mutex::new(start.attributes.into_iter().map(field).collect());
        let (within, nested) = (self.clone(), Self::default());
        Arc::new(Open { name: start.name, attributes, nested, within })
    }
}

impl Tracer for Spans {
    fn begin(&self, start: SpanStart) -> Arc<dyn Span> {
        self.open(start)
    }
}

/// A span that has begun.
struct Open {
    name: String,
    attributes: Mutex<Document>,
    nested: Spans,
    within: Spans,
}

impl Span for Open {
    fn begin(&self, start: SpanStart) -> Arc<dyn Span> {
        self.nested.open(start)
    }

    fn end(&self, end: SpanEnd) {
        let mut attributes = std::mem::take(&mut *lock(&self.attributes));
        let exception = end.exception.iter().flat_map(Exception::attributes);
        attributes.extend(end.attributes.into_iter().chain(exception).map(field));
        let (name, nested) = (self.name.clone(), self.nested.take());
        lock(&self.within.0).push(Traced { name, attributes, nested });
    }
}

fn field((name, value): Attribute) -> (String, Bson) {
    let value = match value {
        AttributeValue::Text(text) => Bson::String(text.into_owned()),
        AttributeValue::Integer(number) => Bson::Int64(number),
        // What the format has no name for is a value that nothing matches.
        _ => Bson::Undefined,
    };
    (name.to_owned(), value)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
