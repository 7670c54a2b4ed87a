//! Spans of operations and of the commands within them, as a tracer hears of them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bson::rawdoc;
use sdam_core::spans::{SpanEnd, SpanSettings, SpanStart};

use super::fixture::{Fixture, Task};
use super::lock;
use crate::observe::spans::{Span, Spans, Tracer};
use crate::sync::Mutex;

/// The beginnings and the ends of spans, in their order.
#[derive(Clone, Default)]
struct Heard(Arc<Mutex<Vec<String>>>);

struct Open {
    name: String,
    heard: Heard,
}

impl Heard {
    fn open(&self, within: &str, start: SpanStart) -> Arc<dyn Span> {
        lock(&self.0).push(format!("{} begins in {within}", start.name));
        Arc::new(Open { name: start.name, heard: self.clone() })
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *lock(&self.0))
    }
}

impl Tracer for Heard {
    fn begin(&self, start: SpanStart) -> Arc<dyn Span> {
        self.open("nothing", start)
    }
}

impl Span for Open {
    fn begin(&self, start: SpanStart) -> Arc<dyn Span> {
        self.heard.open(&self.name, start)
    }

    fn end(&self, end: SpanEnd) {
        let how = if end.exception.is_some() { "fails" } else { "ends" };
        lock(&self.heard.0).push(format!("{} {how}", self.name));
    }
}

/// OpenTelemetry: every span that begins ends once, with its outcome, even if it was given up.
#[test]
fn spans_of_operations_and_commands_end_whatever_becomes_of_them() {
    let (fixture, heard) = (Fixture::new(""), Heard::default());
    let settings = SpanSettings::enabled().with_stack_traces(false);
    let spans = Spans::choose(Some(Arc::new(heard.clone())), Some(settings)).unwrap();
    fixture.host.trace(spans);
    let expected = |outcome: &str| {
        [
            "runCommand admin begins in nothing".to_owned(),
            "ping begins in runCommand admin".to_owned(),
            format!("ping {outcome}"),
            format!("runCommand admin {outcome}"),
        ]
    };
    fixture.run(fixture.ping(None)).unwrap();
    assert_eq!(heard.take(), expected("ends"));
    *lock(&fixture.server.reply) = Some(rawdoc! { "ok": 0, "code": 1, "errmsg": "no" });
    fixture.run(fixture.ping(None)).unwrap_err();
    assert_eq!(heard.take(), expected("fails"));
    fixture.server.mute.store(true, Ordering::Relaxed);
    let mut given_up = Task::new(fixture.ping(None));
    assert!(given_up.poll().is_pending());
    assert_eq!(heard.take(), expected("fails")[..2]);
    drop(given_up);
    assert_eq!(heard.take(), expected("fails")[2..]);
}
